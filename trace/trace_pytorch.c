/* SPDX-License-Identifier: Apache-2.0
 *
 * From a PyTorch memory snapshot to a trace: the history of one device, addresses replaced by allocation
 * numbers, streams and pools by dense indices.
 *
 * A free is the entry "free_requested": the moment at which the program gave the memory back. A history that
 * has none of these uses "free_completed". Frees of addresses that are not live were allocated before the
 * recording began: they are counted and left out. An allocation at a live address means that the recording
 * lost a free: it is put in before, and counted. Entries of other kinds (segments, snapshots, ...) describe
 * what the recorded allocator did, not what was asked of it, and are left out.
 */
#include "error.h"
#include "trace_format.h"
#include "trace_map.h"
#include "trace_pickle.h"

/* A request that no device could ever serve marks a damaged trace. */
#define SIZE_MAX_BYTES ((int64_t)1 << 56)

struct history {
	const char *name;
	const struct pickle *pickle;
	struct trace *trace;
	enum pickle_word free_action;
	struct trace_map live;       /* address -> allocation */
	struct trace_map streams;
	struct trace_map pools;
	size_t entry;                /* number of the entry that is being read */
};

static trz_status bad_entry(const struct history *h, const char *what)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: entry %zu of device %u: %s", h->name, h->entry,
	                h->trace->device, what);
}

/* The dense index of a key: its own if it has been seen, else the next. */
static trz_status dense(struct trace_map *map, uint64_t key, uint32_t *index)
{
	if (map_get(map, key, index))
		return TRZ_OK;
	*index = (uint32_t)map->count;
	return map_set(map, key, *index);
}

static trz_status read_stream(struct history *h, pickle_value entry, uint16_t *stream)
{
	pickle_value value = pickle_entry(h->pickle, entry, PICKLE_STREAM);
	if (pickle_tag(value) != PICKLE_INT)
		return bad_entry(h, "its stream is no number");
	uint32_t index;
	trz_status status = dense(&h->streams, (uint64_t)pickle_int(value), &index);
	if (status != TRZ_OK)
		return status;
	if (index >= TRACE_STREAMS_MAX)
		return bad_entry(h, "the trace has more than 4096 streams");
	*stream = (uint16_t)index;
	return TRZ_OK;
}

static trz_status read_pool(struct history *h, pickle_value entry, uint32_t *pool)
{
	pickle_value value = pickle_entry(h->pickle, entry, PICKLE_POOL_ID);
	*pool = 0;
	return pickle_tag(value) == PICKLE_PAIR ? dense(&h->pools, pickle_index(value), pool) : TRZ_OK;
}

static trz_status add_free(struct history *h, uint64_t address, uint32_t id, uint16_t stream)
{
	map_remove(&h->live, address);
	return trace_add(h->trace, &(struct trace_event){ .kind = TRACE_FREE, .id = id, .stream = stream });
}

static trz_status add_alloc(struct history *h, pickle_value entry, uint64_t address)
{
	struct trace_event event = { .kind = TRACE_ALLOC, .id = h->trace->allocs };
	pickle_value size = pickle_entry(h->pickle, entry, PICKLE_SIZE);
	if (pickle_tag(size) != PICKLE_INT || pickle_int(size) < 0 || pickle_int(size) > SIZE_MAX_BYTES)
		return bad_entry(h, "its size is no number from 0 to 2^56");
	event.size = (uint64_t)pickle_int(size);
	trz_status status = read_stream(h, entry, &event.stream);
	if (status == TRZ_OK)
		status = read_pool(h, entry, &event.pool);
	uint32_t lost;
	if (status == TRZ_OK && map_get(&h->live, address, &lost)) {
		h->trace->implied_frees++;
		status = add_free(h, address, lost, event.stream);
	}
	if (status == TRZ_OK)
		status = map_set(&h->live, address, event.id);
	return status == TRZ_OK ? trace_add(h->trace, &event) : status;
}

static trz_status add_entry(struct history *h, pickle_value entry)
{
	if (pickle_tag(entry) != PICKLE_DICT)
		return bad_entry(h, "is no dict");
	pickle_value action = pickle_entry(h->pickle, entry, PICKLE_ACTION);
	if (pickle_tag(action) != PICKLE_WORD)
		return bad_entry(h, "has no action");
	enum pickle_word word = (enum pickle_word)pickle_index(action);
	if (word != PICKLE_ALLOC && word != h->free_action)
		return TRZ_OK;

	pickle_value value = pickle_entry(h->pickle, entry, PICKLE_ADDR);
	if (pickle_tag(value) != PICKLE_INT)
		return bad_entry(h, "its addr is no number");
	uint64_t address = (uint64_t)pickle_int(value);
	if (word == PICKLE_ALLOC)
		return add_alloc(h, entry, address);
	uint32_t id;
	if (!map_get(&h->live, address, &id)) {
		h->trace->unknown_frees++;
		return TRZ_OK;
	}
	uint16_t stream;
	trz_status status = read_stream(h, entry, &stream);
	return status == TRZ_OK ? add_free(h, address, id, stream) : status;
}

static enum pickle_word choose_free_action(const struct pickle *p, pickle_value entries)
{
	pickle_value entry;
	for (struct pickle_items it = pickle_items(p, entries); pickle_next(p, &it, &entry);) {
		if (pickle_tag(entry) != PICKLE_DICT)
			continue;
		pickle_value action = pickle_entry(p, entry, PICKLE_ACTION);
		if (pickle_tag(action) == PICKLE_WORD && pickle_index(action) == PICKLE_FREE_REQUESTED)
			return PICKLE_FREE_REQUESTED;
	}
	return PICKLE_FREE_COMPLETED;
}

/* The entries of the device asked for, or of the one that has the most. */
static trz_status choose_device(const char *name, const struct pickle *p, int device, pickle_value *entries,
                                uint32_t *chosen)
{
	pickle_value traces = PICKLE_UNSET;
	if (pickle_tag(p->root) == PICKLE_DICT)
		traces = pickle_entry(p, p->root, PICKLE_DEVICE_TRACES);
	if (!pickle_is_list(traces))
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: is no memory snapshot: it has no list device_traces", name);
	uint64_t devices = pickle_count(p, traces);
	if (device != TRACE_ANY_DEVICE && (device < 0 || (uint64_t)device >= devices)) {
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "%s: has no device %d; it has traces of %llu devices",
		                name, device, (unsigned long long)devices);
	}
	uint64_t most = 0;
	uint32_t index = 0;
	pickle_value value;
	for (struct pickle_items it = pickle_items(p, traces); pickle_next(p, &it, &value); index++) {
		if (!pickle_is_list(value))
			return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: device_traces[%u] is no list", name, index);
		bool wanted = device == TRACE_ANY_DEVICE ? pickle_count(p, value) > most : (uint32_t)device == index;
		if (!wanted)
			continue;
		most = pickle_count(p, value);
		*entries = value;
		*chosen = index;
	}
	if (most == 0) {
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: its device_traces are empty; record the history first "
		                "(torch.cuda.memory._record_memory_history())", name);
	}
	return TRZ_OK;
}

static trz_status add_entries(struct history *h, pickle_value entries)
{
	/* The default stream and the default pool come first, used or not. */
	uint32_t index;
	trz_status status = dense(&h->streams, 0, &index);
	if (status == TRZ_OK)
		status = dense(&h->pools, 0, &index);
	pickle_value entry;
	for (struct pickle_items it = pickle_items(h->pickle, entries);
	     status == TRZ_OK && pickle_next(h->pickle, &it, &entry); h->entry++)
		status = add_entry(h, entry);
	return status;
}

trz_status trace_read_pytorch(struct trace_input *in, int device, struct trace *out)
{
	struct pickle pickle;
	struct history h = { .name = in->name, .pickle = &pickle, .trace = out };
	pickle_value entries = PICKLE_UNSET;
	trz_status status = pickle_read(in, &pickle);
	if (status == TRZ_OK)
		status = choose_device(in->name, &pickle, device, &entries, &out->device);
	if (status == TRZ_OK) {
		h.free_action = choose_free_action(&pickle, entries);
		status = add_entries(&h, entries);
	}
	if (status == TRZ_OK && out->count == 0)
		status = trz_fail(TRZ_ERROR_BAD_INPUT, "%s: the history of device %u holds no allocation", in->name,
		                  out->device);
	map_free(&h.live);
	map_free(&h.streams);
	map_free(&h.pools);
	pickle_free(&pickle);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * From a PyTorch memory snapshot to a trace: the history of one device.
 *
 * A free is the entry "free_requested": the moment at which the program gave the memory back. A history that
 * has none of these uses "free_completed". Entries of other kinds (segments, snapshots, ...) describe what the recorded
 * allocator did, not the requests to it, and are left out.
 */
#include "error.h"
#include "trace_format.h"
#include "trace_history.h"
#include "trace_pickle.h"

struct snapshot {
	const char *name;
	const struct pickle *pickle;
	struct history history;
	uint32_t device;
	enum pickle_word free_action;
	size_t entry;                /* number of the entry that is being read */
};

static trz_status bad_entry(const struct snapshot *s, const char *what)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: entry %zu of device %u: %s", s->name, s->entry,
	                s->device, what);
}

static trz_status read_stream(const struct snapshot *s, pickle_value entry, uint64_t *stream)
{
	pickle_value value = pickle_entry(s->pickle, entry, PICKLE_STREAM);
	if (pickle_tag(value) != PICKLE_INT)
		return bad_entry(s, "its stream is not a number");
	*stream = (uint64_t)pickle_int(value);
	return TRZ_OK;
}

static trz_status add_alloc(struct snapshot *s, pickle_value entry, uint64_t address, uint64_t stream)
{
	pickle_value size = pickle_entry(s->pickle, entry, PICKLE_SIZE);
	if (pickle_tag(size) != PICKLE_INT || pickle_int(size) < 0 ||
	    pickle_int(size) > (int64_t)HISTORY_SIZE_MAX)
		return bad_entry(s, "its size is not a number from 0 to 2^56");
	pickle_value pool = pickle_entry(s->pickle, entry, PICKLE_POOL_ID);
	uint64_t pool_key = pickle_tag(pool) == PICKLE_PAIR ? pickle_index(pool) : 0;
	return history_alloc(&s->history, address, (uint64_t)pickle_int(size), stream, pool_key);
}

static trz_status add_entry(struct snapshot *s, pickle_value entry)
{
	if (pickle_tag(entry) != PICKLE_DICT)
		return bad_entry(s, "is not a dict");
	pickle_value action = pickle_entry(s->pickle, entry, PICKLE_ACTION);
	if (pickle_tag(action) != PICKLE_WORD)
		return bad_entry(s, "has no action");
	enum pickle_word word = (enum pickle_word)pickle_index(action);
	if (word != PICKLE_ALLOC && word != s->free_action)
		return TRZ_OK;

	pickle_value value = pickle_entry(s->pickle, entry, PICKLE_ADDR);
	if (pickle_tag(value) != PICKLE_INT)
		return bad_entry(s, "its addr is not a number");
	uint64_t address = (uint64_t)pickle_int(value);
	uint64_t stream = 0;
	trz_status status = read_stream(s, entry, &stream);
	if (status != TRZ_OK)
		return status;
	return word == PICKLE_ALLOC ? add_alloc(s, entry, address, stream)
	                            : history_free(&s->history, address, stream);
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
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: not a memory snapshot: it has no list device_traces", name);
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
			return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: device_traces[%u] is not a list", name, index);
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

static trz_status add_entries(struct snapshot *s, pickle_value entries, struct trace *out)
{
	trz_status status = history_begin(&s->history, s->name, out);
	pickle_value entry;
	for (struct pickle_items it = pickle_items(s->pickle, entries);
	     status == TRZ_OK && pickle_next(s->pickle, &it, &entry); s->entry++)
		status = add_entry(s, entry);
	history_end(&s->history);
	return status;
}

trz_status trace_read_pytorch(struct trace_input *in, int device, struct trace *out)
{
	struct pickle pickle;
	struct snapshot s = { .name = in->name, .pickle = &pickle };
	pickle_value entries = PICKLE_UNSET;
	trz_status status = pickle_read(in, &pickle);
	if (status == TRZ_OK)
		status = choose_device(in->name, &pickle, device, &entries, &s.device);
	if (status == TRZ_OK) {
		out->device = s.device;
		s.free_action = choose_free_action(&pickle, entries);
		status = add_entries(&s, entries, out);
	}
	if (status == TRZ_OK && out->count == 0)
		status = trz_fail(TRZ_ERROR_BAD_INPUT, "%s: the history of device %u holds no allocation", in->name,
		                  out->device);
	pickle_free(&pickle);
	return status;
}

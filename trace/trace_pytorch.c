/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a PyTorch memory snapshot into a trace: the history of one device.
 *
 * A free is the entry "free_requested": the moment at which the program gave the memory back. In a history that
 * has none of these it is "free_completed". Entries of other kinds (segments, snapshots, ...) describe what the
 * recorded allocator did, not what was requested of it, and are left out.
 */
#include "error.h"
#include "trace_format.h"
#include "trace_history.h"
#include "trace_pickle.h"

struct snapshot {
	const char *name;
	const struct plain *plain;
	struct history history;
	uint32_t device;
	enum plain_word free_action;
	size_t entry;                /* number of the entry that is being read */
};

static trz_status bad_entry(const struct snapshot *s, const char *what)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: entry %zu of device %u: %s", s->name, s->entry,
	                s->device, what);
}

static trz_status read_stream(const struct snapshot *s, plain_value entry, uint64_t *stream)
{
	plain_value value = plain_entry(s->plain, entry, PLAIN_STREAM);
	if (plain_tag(value) != PLAIN_INT)
		return bad_entry(s, "its stream is not a number");
	*stream = (uint64_t)plain_int(value);
	return TRZ_OK;
}

static trz_status add_alloc(struct snapshot *s, plain_value entry, uint64_t address, uint64_t stream)
{
	plain_value size = plain_entry(s->plain, entry, PLAIN_SIZE);
	if (plain_tag(size) != PLAIN_INT || plain_int(size) < 0 ||
	    plain_int(size) > (int64_t)TRACE_SIZE_MAX)
		return bad_entry(s, "its size is not a number from 0 to 2^56");
	plain_value pool = plain_entry(s->plain, entry, PLAIN_POOL_ID);
	uint64_t pool_key = plain_tag(pool) == PLAIN_PAIR ? plain_index(pool) : 0;
	return history_alloc(&s->history, address, (uint64_t)plain_int(size), stream, pool_key);
}

static trz_status add_entry(struct snapshot *s, plain_value entry)
{
	if (plain_tag(entry) != PLAIN_DICT)
		return bad_entry(s, "is not a dict");
	plain_value action = plain_entry(s->plain, entry, PLAIN_ACTION);
	if (plain_tag(action) != PLAIN_WORD)
		return bad_entry(s, "has no action");
	enum plain_word word = (enum plain_word)plain_index(action);
	if (word != PLAIN_ALLOC && word != s->free_action)
		return TRZ_OK;

	plain_value value = plain_entry(s->plain, entry, PLAIN_ADDR);
	if (plain_tag(value) != PLAIN_INT)
		return bad_entry(s, "its addr is not a number");
	uint64_t address = (uint64_t)plain_int(value);
	uint64_t stream = 0;
	trz_status status = read_stream(s, entry, &stream);
	if (status != TRZ_OK)
		return status;
	return word == PLAIN_ALLOC ? add_alloc(s, entry, address, stream)
	                            : history_free(&s->history, address, stream);
}

static enum plain_word choose_free_action(const struct plain *p, plain_value entries)
{
	plain_value entry;
	for (struct plain_items it = plain_items(p, entries); plain_next(p, &it, &entry);) {
		if (plain_tag(entry) != PLAIN_DICT)
			continue;
		plain_value action = plain_entry(p, entry, PLAIN_ACTION);
		if (plain_tag(action) == PLAIN_WORD && plain_index(action) == PLAIN_FREE_REQUESTED)
			return PLAIN_FREE_REQUESTED;
	}
	return PLAIN_FREE_COMPLETED;
}

/* The entries of the given device, or of the one that has the most. */
static trz_status choose_device(const char *name, const struct plain *p, int device, plain_value *entries,
                                uint32_t *chosen)
{
	plain_value traces = PLAIN_UNSET;
	if (plain_tag(p->root) == PLAIN_DICT)
		traces = plain_entry(p, p->root, PLAIN_DEVICE_TRACES);
	if (!plain_is_list(traces))
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: not a memory snapshot: it has no list device_traces", name);
	uint64_t devices = plain_count(p, traces);
	if (device != TRACE_ANY_DEVICE && (device < 0 || (uint64_t)device >= devices)) {
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "%s: has no device %d; it has traces of %llu devices",
		                name, device, (unsigned long long)devices);
	}
	if (devices > TRACE_DEVICES_MAX)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: its device_traces are of %llu devices; %d are read", name,
		                (unsigned long long)devices, TRACE_DEVICES_MAX);
	uint64_t most = 0;
	uint32_t index = 0;
	plain_value value;
	for (struct plain_items it = plain_items(p, traces); plain_next(p, &it, &value); index++) {
		if (!plain_is_list(value))
			return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: device_traces[%u] is not a list", name, index);
		bool wanted = device == TRACE_ANY_DEVICE ? plain_count(p, value) > most : (uint32_t)device == index;
		if (!wanted)
			continue;
		most = plain_count(p, value);
		*entries = value;
		*chosen = index;
	}
	if (most == 0) {
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: its device_traces are empty; record the history first "
		                "(torch.cuda.memory._record_memory_history())", name);
	}
	return TRZ_OK;
}

static trz_status add_entries(struct snapshot *s, plain_value entries, struct trace *out)
{
	trz_status status = history_begin(&s->history, s->name, out);
	plain_value entry;
	for (struct plain_items it = plain_items(s->plain, entries);
	     status == TRZ_OK && plain_next(s->plain, &it, &entry); s->entry++)
		status = add_entry(s, entry);
	history_end(&s->history);
	return status;
}

trz_status trace_read_pytorch(struct trace_input *in, int device, struct trace *out)
{
	struct plain plain;
	struct snapshot s = { .name = in->name, .plain = &plain };
	plain_value entries = PLAIN_UNSET;
	trz_status status = plain_init(&plain, false);
	if (status == TRZ_OK)
		status = pickle_read(in, &plain);
	if (status == TRZ_OK)
		status = choose_device(in->name, &plain, device, &entries, &s.device);
	if (status == TRZ_OK) {
		out->device = s.device;
		s.free_action = choose_free_action(&plain, entries);
		status = add_entries(&s, entries, out);
	}
	if (status == TRZ_OK && out->count == 0)
		status = trz_fail(TRZ_ERROR_BAD_INPUT, "%s: the history of device %u holds no allocation", in->name,
		                  out->device);
	plain_free(&plain);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a recording of `terrazzo sim --record` into a trace of the device on which the process made most requests.
 *
 * An event record that neither a stream nor the host waits for orders nothing, and is left out; so are those that the
 * program's allocator makes for itself. Streams of all devices stay, since they may order those of one; those that
 * another device's default stream orders are no blocking ones.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "sim_recording.h"
#include "trace_history.h"

enum { DEVICES = 64, READ_ENTRIES = 4096 };

/* Keys of other devices' default streams: no stream's number is as large. */
#define OTHER_DEFAULT ((uint64_t)1 << 63)

struct recorded_pool {
	uint32_t holders;
};

struct recording {
	const char *name;
	const struct sim_recorded *entries;
	size_t count;
	uint16_t device;
	uint8_t *matters;             /* by entry: an event record that somebody waits for */
	struct history history;
	struct trace_map recorded;    /* an event -> the entry of its newest record that matters, + 1 */
	struct trace_map events;      /* an event -> its id */
	uint32_t *unused_events;      /* ids of events that have ended */
	size_t unused_count;
	uint32_t event_count;
	struct trace_map captures;
	struct recorded_pool *pools;  /* by number */
	uint32_t pool_count;
	uint32_t open_pool;           /* the newest pool that allocations are diverted to; 0: none */
};

static trz_status no_memory(const struct recording *r)
{
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read %zu notes", r->name, r->count);
}

/* ---- the file ------------------------------------------------------------------------------------------- */

static trz_status read_entries(FILE *from, const char *name, struct sim_recorded **out, size_t *count)
{
	struct sim_recorded *entries = NULL;
	size_t got = READ_ENTRIES;
	for (*count = 0; got == READ_ENTRIES; *count += got) {
		struct sim_recorded *grown = realloc(entries, (*count + READ_ENTRIES) * sizeof *grown);
		if (!grown) {
			free(entries);
			return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read it", name);
		}
		entries = grown;
		got = fread(entries + *count, sizeof *entries, READ_ENTRIES, from);
	}
	*out = entries;
	if (!ferror(from))
		return TRZ_OK;
	free(entries);
	*out = NULL;
	return trz_fail(TRZ_ERROR_IO, "%s: cannot be read: %s", name, strerror(errno));
}

/* Counts the entries before the end, and finds the device with most requests. */
static trz_status survey(struct recording *r)
{
	size_t requests[DEVICES] = { 0 };
	size_t i;
	for (i = 0; i < r->count && r->entries[i].kind != SIM_RECORDED_END; i++) {
		const struct sim_recorded *e = &r->entries[i];
		if (e->kind >= SIM_RECORDED_KINDS || e->device >= DEVICES)
			return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: note %zu is damaged", r->name, i);
		requests[e->device] += e->kind == SIM_RECORDED_ALLOC;
	}
	r->count = i;
	for (uint16_t device = 1; device < DEVICES; device++)
		if (requests[device] > requests[r->device])
			r->device = device;
	return TRZ_OK;
}

/* Finds the records that matter: those for which a stream or the host waits before the event is recorded again. */
static trz_status find_records(struct recording *r)
{
	struct trace_map newest = { 0 };
	trz_status status = TRZ_OK;
	uint32_t at;
	if (r->count > UINT32_MAX)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: has more than 2^32 - 1 notes", r->name);
	for (size_t i = 0; i < r->count && status == TRZ_OK; i++) {
		const struct sim_recorded *e = &r->entries[i];
		if (e->kind == SIM_RECORDED_EVENT)
			status = map_set(&newest, e->key, (uint32_t)i);
		else if (e->kind == SIM_RECORDED_EVENT_END)
			map_remove(&newest, e->key);
		else if ((e->kind == SIM_RECORDED_WAIT || e->kind == SIM_RECORDED_EVENT_SYNC) && map_get(&newest, e->key, &at))
			r->matters[at] = 1;
	}
	map_free(&newest);
	return status;
}

/* ---- events ------------------------------------------------------------------------------------------------ */

static uint64_t stream_key(const struct recording *r, const struct sim_recorded *e)
{
	bool elsewhere = e->stream == 0 && e->device != r->device;
	return elsewhere ? OTHER_DEFAULT + e->device : e->stream;
}

/* Adds an event on the entry's stream. */
static trz_status add(struct recording *r, const struct sim_recorded *e, enum trace_kind kind, uint32_t id,
                      uint32_t pool)
{
	struct trace_event event = { .kind = (uint8_t)kind, .id = id, .pool = pool };
	trz_status status = history_stream(&r->history, stream_key(r, e), &event.stream);
	return status == TRZ_OK ? trace_add(r->history.trace, &event) : status;
}

static trz_status new_id(struct recording *r, uint64_t key, uint32_t *id)
{
	if (map_get(&r->events, key, id))
		return TRZ_OK;
	*id = r->unused_count ? r->unused_events[--r->unused_count] : r->event_count++;
	return map_set(&r->events, key, *id);
}

static trz_status record_event(struct recording *r, const struct sim_recorded *e)
{
	uint32_t id;
	size_t index = (size_t)(e - r->entries);
	map_remove(&r->recorded, e->key);
	if (!r->matters[index])
		return TRZ_OK;
	trz_status status = new_id(r, e->key, &id);
	if (status == TRZ_OK)
		status = map_set(&r->recorded, e->key, (uint32_t)index);
	return status == TRZ_OK ? add(r, e, TRACE_EVENT_RECORD, id, 0) : status;
}

/* A wait for an event that has not been recorded waits for nothing. */
static trz_status await_event(struct recording *r, const struct sim_recorded *e, enum trace_kind kind)
{
	uint32_t index, id;
	if (!map_get(&r->recorded, e->key, &index) || !map_get(&r->events, e->key, &id))
		return TRZ_OK;
	return add(r, e, kind, id, 0);
}

static trz_status end_event(struct recording *r, const struct sim_recorded *e)
{
	uint32_t id;
	map_remove(&r->recorded, e->key);
	if (!map_get(&r->events, e->key, &id))
		return TRZ_OK;
	map_remove(&r->events, e->key);
	uint32_t *grown = realloc(r->unused_events, (r->unused_count + 1) * sizeof *grown);
	if (!grown)
		return no_memory(r);
	r->unused_events = grown;
	r->unused_events[r->unused_count++] = id;
	return TRZ_OK;
}

/* ---- captures and pools ------------------------------------------------------------------------------------ */

static trz_status find_pool(struct recording *r, uint32_t key, uint32_t *pool)
{
	trz_status status = history_pool(&r->history, key, pool);
	if (status != TRZ_OK || *pool < r->pool_count)
		return status;
	struct recorded_pool *grown = realloc(r->pools, (*pool + 1) * sizeof *grown);
	if (!grown)
		return no_memory(r);
	memset(grown + r->pool_count, 0, (*pool + 1 - r->pool_count) * sizeof *grown);
	r->pools = grown;
	r->pool_count = *pool + 1;
	return TRZ_OK;
}

/* As in PyTorch each begin and each open holds the pool, and only releases let go of it. */
static trz_status pool_event(struct recording *r, const struct sim_recorded *e)
{
	uint32_t pool;
	trz_status status = find_pool(r, e->pool, &pool);
	if (status != TRZ_OK || e->device != r->device || !pool)
		return status;
	struct recorded_pool *p = &r->pools[pool];
	switch (e->kind) {
	case SIM_RECORDED_POOL_BEGIN:
		r->open_pool = pool;
		p->holders++;
		return TRZ_OK;
	case SIM_RECORDED_POOL_OPEN:
		p->holders++;
		return TRZ_OK;
	case SIM_RECORDED_POOL_END:
		r->open_pool = r->open_pool == pool ? 0 : r->open_pool;
		return TRZ_OK;
	default:
		if (p->holders == 0 || --p->holders > 0)
			return TRZ_OK;
		return trace_add(r->history.trace, &(struct trace_event){ .kind = TRACE_POOL_RELEASE, .pool = pool });
	}
}

static trz_status begin_capture(struct recording *r, const struct sim_recorded *e)
{
	uint32_t id = (uint32_t)r->captures.count;
	trz_status status = map_set(&r->captures, e->key, id);
	return status == TRZ_OK ? add(r, e, TRACE_CAPTURE_BEGIN, id, r->open_pool) : status;
}

static trz_status capture_event(struct recording *r, const struct sim_recorded *e, enum trace_kind kind)
{
	uint32_t id;
	return map_get(&r->captures, e->key, &id) ? add(r, e, kind, id, 0) : TRZ_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------- */

static trz_status add_request(struct recording *r, const struct sim_recorded *e)
{
	struct history *h = &r->history;
	uint32_t pool;
	if (e->device != r->device && e->kind != SIM_RECORDED_USE)
		return TRZ_OK;
	if (e->kind == SIM_RECORDED_FREE)
		return e->stream == SIM_RECORDED_OWN_STREAM ? history_free_own(h, e->key)
		                                            : history_free(h, e->key, stream_key(r, e));
	if (e->kind == SIM_RECORDED_USE)
		return history_use(h, e->key, stream_key(r, e));
	if (e->value > TRACE_SIZE_MAX)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: an allocation is larger than 2^56 bytes", r->name);
	trz_status status = find_pool(r, e->pool, &pool);
	return status == TRZ_OK ? history_alloc(h, e->key, e->value, stream_key(r, e), e->pool) : status;
}

static trz_status add_entry(struct recording *r, const struct sim_recorded *e)
{
	switch ((enum sim_recorded_kind)e->kind) {
	case SIM_RECORDED_ALLOC:
	case SIM_RECORDED_FREE:
	case SIM_RECORDED_USE:
		return add_request(r, e);
	case SIM_RECORDED_EVENT:
		return record_event(r, e);
	case SIM_RECORDED_EVENT_END:
		return end_event(r, e);
	case SIM_RECORDED_WAIT:
		return await_event(r, e, TRACE_STREAM_WAIT);
	case SIM_RECORDED_EVENT_SYNC:
		return await_event(r, e, TRACE_EVENT_SYNC);
	case SIM_RECORDED_STREAM_SYNC:
		return add(r, e, TRACE_STREAM_SYNC, 0, 0);
	case SIM_RECORDED_BLOCKING:
		return e->device == r->device ? add(r, e, TRACE_STREAM_BLOCKING, 0, 0) : TRZ_OK;
	case SIM_RECORDED_DEVICE_SYNC:
	case SIM_RECORDED_DEFAULT_WORK: {
		enum trace_kind kind = e->kind == SIM_RECORDED_DEVICE_SYNC ? TRACE_DEVICE_SYNC : TRACE_DEFAULT_WORK;
		struct trace_event event = { .kind = (uint8_t)kind };
		return e->device == r->device ? trace_add(r->history.trace, &event) : TRZ_OK;
	}
	case SIM_RECORDED_CAPTURE_BEGIN:
		return begin_capture(r, e);
	case SIM_RECORDED_CAPTURE_END:
		return capture_event(r, e, TRACE_CAPTURE_END);
	case SIM_RECORDED_LAUNCH:
		return capture_event(r, e, TRACE_GRAPH_LAUNCH);
	case SIM_RECORDED_POOL_OPEN:
	case SIM_RECORDED_POOL_RELEASE:
	case SIM_RECORDED_POOL_BEGIN:
	case SIM_RECORDED_POOL_END:
		return pool_event(r, e);
	case SIM_RECORDED_END:
	case SIM_RECORDED_KINDS:
		break;
	}
	return TRZ_OK;
}

static trz_status convert(struct recording *r, struct trace *out)
{
	trz_status status = survey(r);
	r->matters = calloc(r->count + 1, 1);
	if (status == TRZ_OK && !r->matters)
		status = no_memory(r);
	if (status == TRZ_OK)
		status = find_records(r);
	if (status == TRZ_OK)
		status = history_begin(&r->history, r->name, out);
	out->device = r->device;
	for (size_t i = 0; i < r->count && status == TRZ_OK; i++)
		status = add_entry(r, &r->entries[i]);
	history_end(&r->history);
	map_free(&r->recorded);
	map_free(&r->events);
	map_free(&r->captures);
	free(r->unused_events);
	free(r->pools);
	free(r->matters);
	return status;
}

trz_status trace_load_recording(const char *path, struct trace *out)
{
	struct sim_recorded *entries = NULL;
	struct recording r = { .name = path };
	*out = (struct trace){ .streams = 1 };
	FILE *from = fopen(path, "rbe");
	if (!from)
		return trz_fail(TRZ_ERROR_IO, "%s: cannot be opened: %s", path, strerror(errno));
	trz_status status = read_entries(from, path, &entries, &r.count);
	fclose(from);
	r.entries = entries;
	if (status == TRZ_OK)
		status = convert(&r, out);
	free(entries);
	if (status != TRZ_OK)
		trace_free(out);
	return status;
}

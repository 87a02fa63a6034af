/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over a snapshot's segments, by who can use their free memory; what PyTorch's allocator needs for a request.
 */
#include "dump_evidence.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_copies.h"
#include "dump_growth.h"
#include "dump_holdings.h"
#include "dump_left.h"
#include "dump_passes.h"
#include "dump_play.h"
#include "dump_running.h"
#include "dump_spare.h"
#include "error.h"
#include "report_evidence.h"

/* PyTorch's constants: requests up to SMALL come from segments of SMALL_SEGMENT, those below MIDDLE from LARGE_SEGMENT,
 * larger ones from segments of their own size, rounded up to STEP. */
#define SMALL MIB(1)
#define SMALL_SEGMENT MIB(2)
#define MIDDLE MIB(10)
#define LARGE_SEGMENT MIB(20)
#define STEP MIB(2)

/* ---- the failure ------------------------------------------------------------------------------------ */

static const struct dump_trace *trace_of(const struct dump *d, int device)
{
	static const struct dump_trace none;
	return device >= 0 && (size_t)device < d->trace_count ? &d->traces[device] : &none;
}

size_t dump_newest_oom(const struct dump *d, int device)
{
	const struct dump_trace *t = trace_of(d, device);
	for (size_t i = t->first + t->count; i > t->first; i--)
		if (d->events[i - 1].action == DUMP_OOM)
			return i - 1;
	return SIZE_MAX;
}

static uint64_t reserved_of(const struct dump *d, int device)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < d->segment_count; i++)
		bytes += d->segments[i].device == device ? d->segments[i].size : 0;
	return bytes;
}

static int device_count(const struct dump *d)
{
	int count = (int)d->trace_count;
	for (size_t i = 0; i < d->segment_count; i++)
		count = d->segments[i].device >= count ? d->segments[i].device + 1 : count;
	return count;
}

int dump_fullest(const struct dump *d)
{
	int chosen = -1;
	uint64_t latest = 0, most = 0;
	bool failed = false;
	for (int i = 0; i < device_count(d); i++) {
		size_t event = dump_newest_oom(d, i);
		uint64_t reserved = reserved_of(d, i);
		if (event != SIZE_MAX && (!failed || d->events[event].time_us >= latest)) {
			failed = true;
			latest = d->events[event].time_us;
			chosen = i;
		} else if (!failed && (reserved > most || (chosen < 0 && trace_of(d, i)->count))) {
			most = reserved;
			chosen = i;
		}
	}
	return chosen;
}

bool dump_has_device(const struct dump *d, int device)
{
	return device >= 0 && (trace_of(d, device)->count || reserved_of(d, device));
}

uint64_t dump_needed_by_pytorch(uint64_t size, uint64_t device_free, bool expandable)
{
	if (size <= SMALL)
		return SMALL_SEGMENT;
	uint64_t segment = size < MIDDLE ? LARGE_SEGMENT : align_up(size, STEP);
	uint64_t pages = (size + LARGE_SEGMENT - 1) / LARGE_SEGMENT * LARGE_SEGMENT;
	return expandable && device_free >= segment && device_free < pages ? pages : segment;
}

/* ---- sums ------------------------------------------------------------------------------------------- */

/* Of one segment. */
struct sums {
	uint64_t held, requested, pending, free, largest;
};

static struct sums sum_segment(const struct dump_moment *m, const struct dump_segment *s)
{
	struct sums sums = { 0 };
	for (size_t i = s->first; i < s->first + s->count; i++) {
		const struct dump_block *b = &m->blocks[i];
		if (b->state == DUMP_HELD) {
			sums.held += b->size;
			sums.requested += b->requested;
		} else if (b->state == DUMP_PENDING) {
			sums.pending += b->size;
		} else {
			sums.free += b->size;
			sums.largest = max_u64(sums.largest, b->size);
		}
	}
	return sums;
}

/* Before it gives up PyTorch returns the default pool's free segments, and the whole free pages of expandable ones:
 * free memory of two pages has a whole one, wherever it begins. If one is left, and the history does not name pools, it
 * is a private pool's. */
static bool is_kept_by_pool(const struct dump *d, const struct evidence *e, const struct dump_segment *s,
                            const struct sums *sums)
{
	if (!e->failed || d->terrazzo || d->pools_told || s->pool != 0)
		return false;
	return s->expandable ? sums->largest >= 2 * LARGE_SEGMENT : sums->free == s->size;
}

static void add_free(const struct dump *d, struct evidence *e, const struct dump_segment *s, const struct sums *sums)
{
	bool whole = sums->free == s->size;
	/* PyTorch serves small and large requests from different segments. */
	bool fits = e->joins || !e->failed || s->small == (e->requested <= SMALL);
	uint64_t piece = fits ? sums->largest : 0;
	e->free_partly += whole ? 0 : sums->free;
	if (s->pool != evidence_or_zero(e->pool) || is_kept_by_pool(d, e, s, sums)) {
		e->free_pools += sums->free;
		e->largest_pools = max_u64(e->largest_pools, piece);
		e->releasable_pools += whole ? sums->free : 0;
		return;
	}
	e->releasable += whole ? sums->free : 0;
	if (d->terrazzo || s->stream == evidence_or_zero(e->stream)) {
		e->free_own += sums->free;
		e->largest_free = max_u64(e->largest_free, piece);
	} else {
		e->free_streams += sums->free;
		e->largest_streams = max_u64(e->largest_streams, piece);
	}
}

/* A pending block counts among those of the other streams, which it awaits. */
static void add_pending(struct evidence *e, const struct dump_moment *m, const struct dump_segment *s)
{
	for (size_t i = s->first; i < s->first + s->count; i++)
		if (m->blocks[i].state == DUMP_PENDING && s->pool == evidence_or_zero(e->pool))
			e->largest_streams = max_u64(e->largest_streams, m->blocks[i].size);
}

static void add_sums(const struct dump *d, const struct dump_moment *m, struct evidence *e)
{
	e->reserved = e->allocated = e->live_requested = e->pending = e->cached = 0;
	e->free_own = e->free_streams = e->free_pools = e->free_partly = 0;
	e->releasable = e->releasable_pools = e->largest_free = e->largest_streams = e->largest_pools = 0;
	for (size_t i = 0; i < m->segment_count; i++) {
		const struct dump_segment *s = &m->segments[i];
		struct sums sums = sum_segment(m, s);
		e->reserved += s->size;
		e->allocated += sums.held;
		e->live_requested += sums.requested;
		e->pending += sums.pending;
		e->cached += sums.free;
		add_free(d, e, s, &sums);
		add_pending(e, m, s);
	}
	if (!d->has_requested && d->block_count)  /* without blocks all are from the history, which has requests */
		e->live_requested = EVIDENCE_UNKNOWN;
	if (d->terrazzo)
		e->largest_free = e->largest_streams = e->largest_pools = EVIDENCE_UNKNOWN;  /* pieces are joined */
}

/* ---- what the history tells ------------------------------------------------------------------------- */

/* Goes back from the end and undoes each event. Returns the event before which most was allocated: the first of those
 * that changed nothing, since a request to free comes before its completion. */
static size_t find_peaks(const struct dump *d, const struct dump_trace *t, size_t end, struct evidence *e)
{
	uint64_t allocated = e->allocated + e->pending, reserved = e->reserved;
	size_t most = end;
	e->peak_allocated = allocated;
	e->peak_reserved = reserved;
	for (size_t i = end; i > t->first; i--) {
		const struct dump_event *event = &d->events[i - 1];
		uint64_t size = dump_rounded(d, event->size);
		if (event->action == DUMP_ALLOC)
			allocated -= min_u64(allocated, size);
		else if (event->action == DUMP_FREE_COMPLETED)
			allocated += size;
		else if (event->action == DUMP_SEGMENT_ALLOC || event->action == DUMP_SEGMENT_MAP)
			reserved -= min_u64(reserved, event->size);
		else if (event->action == DUMP_SEGMENT_FREE || event->action == DUMP_SEGMENT_UNMAP)
			reserved += event->size;
		if (allocated > e->peak_allocated || (allocated == e->peak_allocated && most == i))
			most = i - 1;
		e->peak_allocated = max_u64(e->peak_allocated, allocated);
		e->peak_reserved = max_u64(e->peak_reserved, reserved);
	}
	return most;
}

/* What the allocator returned to the driver just before it gave up. */
static void find_rungs(const struct dump *d, const struct dump_trace *t, size_t failure, struct evidence *e)
{
	struct evidence_rung rung = { .name = "returned free segments to the driver" };
	for (size_t i = failure; i > t->first; i--) {
		const struct dump_event *event = &d->events[i - 1];
		bool returned = event->action == DUMP_SEGMENT_FREE || event->action == DUMP_SEGMENT_UNMAP;
		if (!returned && event->action != DUMP_FREE_COMPLETED)
			break;
		rung.gave += returned ? event->size : 0;
		rung.tries += returned;
	}
	if (rung.tries)
		e->rungs[e->rung_count++] = rung;
}

static const char *keep_stack(const struct dump *d, uint32_t stack, struct evidence *e)
{
	char text[4 * DUMP_SITE_BYTES];
	dump_stack_text(d, stack, text, sizeof text);
	return *text ? evidence_keep(e, text) : NULL;
}

static void tell_failure(const struct dump *d, size_t failure, struct evidence *e)
{
	const struct dump_event *event = &d->events[failure];
	char site[DUMP_SITE_BYTES];
	e->failed = true;
	e->requested = event->size;
	e->needed = d->terrazzo ? EVIDENCE_UNKNOWN : dump_needed_by_pytorch(event->size, event->address, d->expandable);
	e->device_free = event->address;
	e->stream = event->stream;
	e->pool = event->pool;
	e->time_ns = event->time_us * 1000;
	e->category = dump_category(d, event->stack);
	if (event->stack == 0 && dump_history_has_stacks(d, trace_of(d, e->device)->first, failure))
		e->category = CATEGORY_GRADIENTS;  /* autograd's threads run no lines of Python */
	if (dump_site_text(d, event->stack, site)) {
		e->site = evidence_keep(e, site);
		e->stack = keep_stack(d, event->stack, e);
	}
}

/* What follows if the file has neither the limit nor the device's size. If the device had room for the whole request, a
 * limit refused it, which is at least what was reserved. And an empty process could have what this one has reserved and
 * what the device has left: a request beyond that is too large. */
static void infer(struct evidence *e)
{
	if (e->device_free >= e->needed && !e->joins) {
		e->limit = e->peak_reserved;
		e->limit_inferred = true;
	}
	e->too_large = e->needed > e->device_free + e->reserved;
}

/* ---- holders ---------------------------------------------------------------------------------------- */

static void tell_holder(const struct dump *d, const struct dump_holding *from, struct evidence *e)
{
	struct evidence_holder *h = &e->holders[e->holder_count++];
	char site[DUMP_SITE_BYTES];
	dump_holding_text(d, from, site);
	*h = (struct evidence_holder){ .category = from->category, .bytes = from->bytes, .count = from->count,
	                               .peak = EVIDENCE_UNKNOWN, .site = evidence_keep(e, site),
	                               .stack = keep_stack(d, from->stack, e) };
	h->loaded = dump_site(d, from->stack)->of_file;
	h->tag = from->tag && *from->tag ? evidence_keep(e, from->tag) : NULL;
}

static trz_status tell_holders(const struct dump *d, const struct dump_moment *m, struct evidence *e)
{
	struct dump_holding *list;
	size_t count;
	trz_status status = dump_holdings(d, m, &list, &count);
	/* Without stacks no category is known. */
	for (int i = 0; i < CATEGORY_COUNT && d->stack_count > 1; i++)
		e->categories[i] = 0;
	for (size_t i = 0; i < count; i++) {
		if (d->stack_count > 1)
			e->categories[list[i].category] += list[i].bytes;
		if (i < EVIDENCE_HOLDERS_MAX)
			tell_holder(d, &list[i], e);
	}
	free(list);
	return status;
}

/* ---- the whole -------------------------------------------------------------------------------------- */

/* What terrazzo knew at the failure, and the rest of the snapshot does not tell. */
static bool has_report(const struct dump *d, int device, struct evidence *e)
{
	return d->report && report_evidence(d->report, e) && (device == DUMP_ANY_DEVICE || device == e->device);
}

/* Whether the program failed, and no leak is known yet, nor an overfilled list. `but`: of another category. */
static bool lacks_leak(const struct evidence *e, enum evidence_category but)
{
	for (unsigned i = 0; i < e->growth_count; i++)
		if ((e->growth[i].leak && e->growth[i].category != but) || e->growth[i].overfilled)
			return false;
	return e->failed && evidence_known(e->allocated);
}

/* Whether private pools have most of what a line holds. */
static bool is_of_pools(const struct dump *d, const struct dump_moment *m, const char *site)
{
	uint64_t bytes = 0, of_pools = 0;
	char text[DUMP_SITE_BYTES];
	for (size_t i = 0; i < m->segment_count; i++) {
		const struct dump_segment *s = &m->segments[i];
		for (size_t k = s->first; k < s->first + s->count; k++) {
			const struct dump_block *b = &m->blocks[k];
			if (b->state != DUMP_HELD || !dump_site_text(d, b->stack, text) || !evidence_same_site(text, site))
				continue;
			bytes += b->size;
			of_pools += s->pool ? b->size : 0;
		}
	}
	return of_pools > bytes / 2;
}

/* What a captured graph allocates lives as long as the graph, and so do its inputs: with a graph for each batch size
 * that is no leak. */
static void pardon_graphs(const struct dump *d, const struct dump_moment *m, struct evidence *e)
{
	bool pools = false, captures = false;
	for (size_t i = 0; i < m->segment_count; i++)
		pools |= m->segments[i].pool != 0;
	for (unsigned i = 0; i < e->growth_count && pools; i++)
		captures |= e->growth[i].leak && is_of_pools(d, m, e->growth[i].site);
	for (unsigned i = 0; i < e->growth_count && captures; i++)
		e->growth[i].leak = false;
}

/* What outlives neither the pass nor the step that was running is no leak yet. */
static trz_status pardon_running(const struct dump *d, const struct dump_moment *m, size_t end, struct evidence *e)
{
	bool leaks = false;
	size_t pass, step;
	for (unsigned i = 0; i < e->growth_count; i++)
		leaks |= e->growth[i].leak;
	if (!leaks)
		return TRZ_OK;
	trz_status status = dump_running(d, e->device, end, &pass);
	if (status == TRZ_OK)
		status = dump_pardon_since(d, pass, end, m, e);
	if (status == TRZ_OK)
		status = dump_passes_of_step(d, e->device, end, &step);
	return status == TRZ_OK ? dump_pardon_since(d, step, end, m, e) : status;
}

static trz_status tell_growth(const struct dump_play *p, const struct dump_moment *m, size_t end, struct evidence *e)
{
	trz_status status = dump_growth(p, m, e);
	if (status == TRZ_OK && lacks_leak(e, CATEGORY_COUNT))
		status = dump_left(p->d, e->device, end, m, e);
	if (status == TRZ_OK && lacks_leak(e, CATEGORY_GRADIENTS))  /* models that are kept have theirs */
		status = dump_copies(p->d, e->device, end, m, e);
	if (status == TRZ_OK && lacks_leak(e, CATEGORY_COUNT))
		status = dump_passes(p->d, e->device, end, m, e);
	pardon_graphs(p->d, m, e);
	if (status == TRZ_OK && e->failed)
		status = pardon_running(p->d, m, end, e);
	return status;
}

static trz_status tell_history(const struct dump *d, const struct dump_moment *m, size_t end, struct evidence *e,
                               struct evidence *fails)
{
	struct dump_play p;
	trz_status status = dump_play(d, e->device, end, m, &p);
	if (fails)
		evidence_copy(fails, e);
	if (status == TRZ_OK)
		status = tell_growth(&p, m, end, e);
	if (status == TRZ_OK && fails) {
		fails->failed = true;
		status = tell_growth(&p, m, end, fails);
		fails->failed = e->failed;
	}
	dump_play_free(&p);
	return status;
}

/* Begins the evidence of a device; `device`: as in dump_evidence(). */
static trz_status begin(const struct dump *d, const char *name, int device, struct evidence *e)
{
	evidence_init(e, d->terrazzo ? EVIDENCE_SNAPSHOT : EVIDENCE_PICKLE, name);
	e->device = device == DUMP_ANY_DEVICE ? dump_fullest(d) : device;
	e->allocator = d->terrazzo ? "terrazzo" : "PyTorch";
	e->joins = d->terrazzo;
	e->expandable = !d->terrazzo && d->expandable;
	if (dump_has_device(d, e->device)) {
		e->has_history = trace_of(d, e->device)->count > 0;
		return TRZ_OK;
	}
	return trz_fail(TRZ_ERROR_NOT_FOUND, "%s: holds no memory and no history of %s", name,
	                e->device < 0 ? "any device" : "that device");
}

trz_status dump_evidence(const struct dump *d, const char *name, int device, struct evidence *e, struct evidence *fails)
{
	evidence_init(e, EVIDENCE_SNAPSHOT, name);
	if (has_report(d, device, e))
		return TRZ_OK;
	trz_status status = begin(d, name, device, e);
	if (status != TRZ_OK)
		return status;
	const struct dump_trace *t = trace_of(d, e->device);
	size_t failure = dump_newest_oom(d, e->device), end = failure == SIZE_MAX ? t->first + t->count : failure;
	struct dump_moment m;
	status = dump_moment(d, e->device, end, &m);
	if (status != TRZ_OK)
		return status;
	if (failure != SIZE_MAX)
		tell_failure(d, failure, e);
	add_sums(d, &m, e);
	find_peaks(d, t, end, e);
	if (failure != SIZE_MAX)
		find_rungs(d, t, failure, e);
	if (failure != SIZE_MAX && !d->terrazzo)
		infer(e);
	status = tell_holders(d, &m, e);
	if (status == TRZ_OK && e->failed && e->has_history)
		status = dump_spare(d, e->device, end, &m, e);
	if (status == TRZ_OK && e->has_history)
		status = tell_history(d, &m, end, e, e->failed ? NULL : fails);
	dump_moment_free(&m);
	return status;
}

trz_status dump_evidence_at_peak(const struct dump *d, const char *name, int device, struct evidence *e)
{
	struct dump_moment m;
	trz_status status = begin(d, name, device, e);
	if (status == TRZ_OK)
		status = dump_moment(d, e->device, d->event_count, &m);
	if (status != TRZ_OK)
		return status;
	const struct dump_trace *t = trace_of(d, e->device);
	add_sums(d, &m, e);
	size_t most = find_peaks(d, t, t->first + t->count, e);
	dump_moment_free(&m);
	status = dump_moment(d, e->device, most, &m);
	if (status != TRZ_OK)
		return status;
	e->peak = e->has_history;
	add_sums(d, &m, e);
	status = tell_holders(d, &m, e);
	dump_moment_free(&m);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * From the facts of a heap to the evidence, and from there to standard error or to a program's callback.
 */
#include "serve/postmortem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call_site.h"
#include "device/nvml.h"
#include "error.h"
#include "leaks.h"
#include "oom_report.h"
#include "observe/holders.h"
#include "observe/steps.h"
#include "rank.h"
#include "supply/oom.h"

enum { PRINTS_MOST = 16, TEXT_BYTES = 24 << 10, SITES_AT_ONCE = 64, SITES_JUDGED = 256 };

_Static_assert((int)TRZ_CATEGORY_WEIGHTS == (int)CATEGORY_WEIGHTS && (int)TRZ_CATEGORY_OTHER == (int)CATEGORY_OTHER &&
                   (int)CATEGORY_COUNT == (int)SITES_CATEGORIES,
               "categories have the same numbers everywhere");

/* A failure that has been printed. */
struct printed {
	uint64_t site;
	unsigned log2;               /* of its size */
};

struct weights {
	bool known;                  /* they have been counted for this report */
	uint64_t alike;              /* the most from one place: a model has that many parts that are alike */
	uint64_t all;
};

/* Guarded by `busy`. Its holder may be inside callbacks, so no thread waits for it. */
struct reporter {
	atomic_bool busy;
	int cancel;                /* whether its maker could be cancelled before */
	int rank;                    /* const; -1: unknown */
	struct printed printed[PRINTS_MOST];
	unsigned printed_count;
	struct facts facts;
	struct evidence evidence;
	struct verdict verdict;
	struct weights weights;
	trz_holder holders[SITES_JUDGED];
	size_t used;
	char text[TEXT_BYTES];
};

trz_status postmortem_open(trz_heap *h)
{
	h->reporter = meta_alloc(&h->meta, sizeof *h->reporter);
	if (!h->reporter)
		return meta_exhausted();
	const char *rank = rank_text();
	h->reporter->rank = *rank ? atoi(rank) : -1;
	memset(h->reporter->text, 1, sizeof h->reporter->text);  /* the host gives the pages of both now */
	memset(h->reporter->holders, 1, sizeof h->reporter->holders);
	return TRZ_OK;
}

static bool begin(struct reporter *r)
{
	int cancel = uncancelled_begin();
	if (atomic_exchange_explicit(&r->busy, true, memory_order_acquire)) {
		uncancelled_end(cancel);
		return false;
	}
	r->cancel = cancel;
	return true;
}

static void end(struct reporter *r)
{
	int cancel = r->cancel;
	atomic_store_explicit(&r->busy, false, memory_order_release);
	uncancelled_end(cancel);
}

/* ---- call sites in words ---- */

typedef char site_line[2 * CALL_SITE_BYTES];

/* The text of a call site. A function without its line may be a helper by which the whole program allocates, so its
 * caller is named as well. */
static bool site_text(const struct call_frame *frames, size_t count, site_line text)
{
	char outer[CALL_SITE_BYTES];
	int level = call_site_level(frames, count);
	if (level < 0 || !call_site_text(frames, count, text))
		return false;
	size_t next = (size_t)level + 1;
	bool helper = !frames[level].line && !call_is_operation(&frames[level]) && next < count;
	if (helper && call_site_text(frames + next, count - next, outer))
		snprintf(text + strlen(text), sizeof(site_line) - strlen(text), " < %s", outer);
	return true;
}

struct told_site {
	const char *site, *stack;    /* NULL: unknown */
	enum evidence_category category;
};

static struct told_site tell_frames(struct evidence *e, const struct call_frame *frames, size_t count)
{
	char lines[4 * CALL_SITE_BYTES];
	site_line line;
	if (!count)
		return (struct told_site){NULL, NULL, CATEGORY_UNKNOWN};
	call_stack_text(frames, count, lines, sizeof lines);
	const char *site = site_text(frames, count, line) ? evidence_keep(e, line) : NULL;
	return (struct told_site){site, evidence_keep(e, lines), call_category(frames, count)};
}

static struct told_site tell_site(trz_heap *h, struct evidence *e, uint64_t number)
{
	struct call_frame frames[FRAMES_LEVELS];
	return tell_frames(e, frames, frames_calls_of_site(h, number, frames, FRAMES_LEVELS));
}

/* ---- evidence ---- */

/* Moves bytes whose purpose the program has not said to the category that their stack suggests. */
static void guess(struct evidence *e, enum evidence_category category, uint64_t bytes)
{
	bytes = min_u64(bytes, e->categories[CATEGORY_UNKNOWN]);
	e->categories[CATEGORY_UNKNOWN] -= bytes;
	e->categories[category] = evidence_or_zero(e->categories[category]) + bytes;
}

/* The site's category: what the program has said, else what the stack suggests. */
static enum evidence_category purpose(struct evidence *e, const trz_holder *site, const struct call_frame *frames,
                                      size_t count)
{
	if (site->category != TRZ_CATEGORY_NONE)
		return (enum evidence_category)site->category;
	enum evidence_category category = call_category(frames, count);
	if (category != CATEGORY_UNKNOWN)
		guess(e, category, site->bytes);
	return category;
}

static void put_categories(trz_heap *h, struct reporter *r)
{
	struct evidence *e = &r->evidence;
	uint64_t said = 0;
	size_t count = min_u64(holders_read(h, TRZ_BY_CATEGORY, r->holders, SITES_JUDGED), SITES_JUDGED);
	for (size_t i = 0; i < count; i++) {
		e->categories[r->holders[i].category] = r->holders[i].bytes;
		said += r->holders[i].bytes;
	}
	e->categories[CATEGORY_UNKNOWN] = e->allocated - min_u64(e->allocated, said);
}

/* A holder of the same line, category and tag, allocated from another place of the program; NULL: none. */
static struct evidence_holder *same_line(struct evidence *e, const trz_holder *site, enum evidence_category category,
                                         const struct call_frame *frames, size_t count)
{
	site_line line;
	if (!site_text(frames, count, line))
		return NULL;
	for (unsigned i = 0; i < e->holder_count; i++) {
		struct evidence_holder *to = &e->holders[i];
		bool same_tag = !strcmp(to->tag ? to->tag : "", site->tag);
		if (to->category == category && same_tag && evidence_same_site(to->site, line))
			return to;
	}
	return NULL;
}

/* Adds a site to a line. The sites of a line peaked at different times, so the peak of their sum is not known. */
static void add_to_line(struct evidence_holder *to, const trz_holder *site)
{
	to->bytes += site->bytes;
	to->count += site->count;
	to->error += site->error;
	to->peak = EVIDENCE_UNKNOWN;
}

static void add_line(struct evidence *e, const trz_holder *site, enum evidence_category category,
                     const struct call_frame *frames, size_t count)
{
	if (e->holder_count == EVIDENCE_HOLDERS_MAX)
		return;
	struct told_site told = tell_frames(e, frames, count);
	e->holders[e->holder_count++] = (struct evidence_holder){.site = told.site,
	                                                         .stack = told.stack,
	                                                         .category = category,
	                                                         .tag = *site->tag ? site->tag : NULL,
	                                                         .bytes = site->bytes,
	                                                         .peak = site->peak,
	                                                         .count = site->count,
	                                                         .loaded = call_is_of_file(frames, count),
	                                                         .error = site->error};
}

static void sort_lines(struct evidence *e)
{
	for (unsigned i = 1; i < e->holder_count; i++)
		for (unsigned at = i; at > 0 && e->holders[at].bytes > e->holders[at - 1].bytes; at--) {
			struct evidence_holder moved = e->holders[at];
			e->holders[at] = e->holders[at - 1];
			e->holders[at - 1] = moved;
		}
}

/* The report shows the largest lines. Many more sites count towards them, and towards the categories, since weights
 * come from many small sites. */
static void put_holders(trz_heap *h, struct reporter *r)
{
	struct evidence *e = &r->evidence;
	struct call_frame frames[FRAMES_LEVELS];
	put_categories(h, r);
	size_t sites = min_u64(holders_read(h, TRZ_BY_SITE, r->holders, SITES_JUDGED), SITES_JUDGED);
	for (size_t i = 0; i < sites && r->holders[i].bytes; i++) {
		const trz_holder *site = &r->holders[i];
		size_t count = frames_calls_of_site(h, site->stack, frames, FRAMES_LEVELS);
		enum evidence_category category = purpose(e, site, frames, count);
		struct evidence_holder *line = same_line(e, site, category, frames, count);
		if (line)
			add_to_line(line, site);
		else
			add_line(e, site, category, frames, count);
	}
	sort_lines(e);
}

static void add_weights(trz_heap *h, struct weights *w, const struct holders_count *sites, size_t count)
{
	struct call_frame frames[FRAMES_LEVELS];
	for (size_t i = 0; i < count; i++) {
		size_t levels = frames_python_calls(h, sites[i].stack, frames, FRAMES_LEVELS);
		if (call_category(frames, levels) != CATEGORY_WEIGHTS)
			continue;
		w->alike = max_u64(w->alike, sites[i].count);
		w->all += sites[i].count;
	}
}

/* Counts the weights of all sites, so that no model is too large; once a report, since the program is asked for each
 * site's text. */
static const struct weights *weights_of(trz_heap *h)
{
	struct weights *w = &h->reporter->weights;
	struct holders_count sites[SITES_AT_ONCE];
	uint32_t next = 1;
	size_t count = w->known ? 0 : SITES_AT_ONCE;
	while (count == SITES_AT_ONCE) {
		count = holders_live(h, &next, sites, SITES_AT_ONCE);
		add_weights(h, w, sites, count);
	}
	w->known = true;
	return w;
}

/* Whether what grows is gradients or optimizer state with at most one allocation for each weight: weights may be added,
 * or unfrozen, one after the other. */
static bool is_for_each_weight(trz_heap *h, const trz_growth_info *from, enum evidence_category category)
{
	return from->suspect && (category == CATEGORY_GRADIENTS || category == CATEGORY_OPTIMIZER) &&
	       holders_live_of(h, from->site) <= weights_of(h)->all;
}

/* `steps`: how many have ended. `kept`: growth from steps_kept, where what is no suspect is a list filled with more
 * than before. */
static void put_grown(trz_heap *h, struct evidence *e, const trz_growth_info *grown, size_t count, uint64_t steps,
                      bool kept)
{
	for (size_t i = 0; i < count; i++) {
		const trz_growth_info *from = &grown[i];
		struct told_site told = tell_site(h, e, from->stack);
		enum evidence_category category = from->category ? (enum evidence_category)from->category : told.category;
		bool copies = category == CATEGORY_WEIGHTS && evidence_are_copies(e, told.site);
		bool may_leak = (copies || evidence_may_leak(category)) && !is_for_each_weight(h, from, category);
		evidence_add_growth(e, &(struct evidence_growth){.site = told.site || !*from->tag ? told.site : from->tag,
		                                                 .category = category,
		                                                 .leak = from->suspect && may_leak,
		                                                 .overfilled = kept && !from->suspect && may_leak,
		                                                 .per_step = from->bytes_per_step,
		                                                 .per_step_low = from->bytes_per_step_low,
		                                                 .per_step_high = from->bytes_per_step_high,
		                                                 .live = from->live,
		                                                 .steps = steps - from->since_step});
	}
}

/* Whether about half of what grows is a model's, since graphs keep inputs, too. */
static bool is_a_models(trz_heap *h, const trz_growth_info *grown, size_t count)
{
	struct call_frame frames[FRAMES_LEVELS];
	uint64_t all = 0, of_models = 0;
	for (size_t i = 0; i < count; i++) {
		bool own = call_is_of_model(frames, frames_calls_of_site(h, grown[i].stack, frames, FRAMES_LEVELS));
		all += grown[i].grown;
		of_models += own ? grown[i].grown : 0;
	}
	return of_models > 0 && of_models >= all / 5 * 2;
}

/* Reports what a loop keeps whose steps the program has not told, and for which no marker was found. */
static void put_kept(trz_heap *h, struct evidence *e)
{
	trz_growth_info kept[EVIDENCE_GROWTH_MAX];
	struct kept_loop loop = steps_kept(h, kept, EVIDENCE_GROWTH_MAX);
	bool models = loop.calls_models || is_a_models(h, kept, loop.sites);
	if (!models || !loop.sites || leaks_may_be_one_pass(loop.steps, loop.allocations, weights_of(h)->alike))
		return;
	e->growth_count = 0;
	e->has_history = true;
	put_grown(h, e, kept, loop.sites, loop.steps, true);
}

static bool has_leak(const struct evidence *e)
{
	for (unsigned i = 0; i < e->growth_count; i++)
		if (e->growth[i].leak)
			return true;
	return false;
}

/* Takes back the verdict on leaks if the recognised steps may be turns of a recurrent model: one pass makes as many as
 * its input is long. */
static void except_turns(trz_heap *h, struct evidence *e)
{
	bool turns = has_leak(e) && steps_may_be_within_a_model(h);
	for (unsigned i = 0; i < e->growth_count; i++)
		e->growth[i].leak &= !turns;
}

/* Leaves out leaks that may be one pass if the recognised steps may be layers: checkpointed layers come and go like
 * steps, forward and backward, except for their outputs and gradients, which then are no growth. There is one gradient
 * for each weight, whichever operations they come from. */
static void except_one_pass(trz_heap *h, struct evidence *e)
{
	double allocations;
	uint64_t steps = has_leak(e) ? steps_recognised(h, &allocations) : 0;
	if (!steps)
		return;
	bool outputs = leaks_may_be_one_pass(steps, allocations, weights_of(h)->alike);
	bool gradients = leaks_may_be_one_pass(steps, allocations, weights_of(h)->all);
	unsigned left = 0;
	for (unsigned i = 0; i < e->growth_count; i++) {
		const struct evidence_growth *g = &e->growth[i];
		if (!g->leak || !(g->category == CATEGORY_GRADIENTS ? gradients : outputs))
			e->growth[left++] = *g;
	}
	e->growth_count = left;
}

/* Reports what grows with the steps that the program has told, or that the heap has recognised. */
static void put_growth(trz_heap *h, struct evidence *e)
{
	trz_growth_info grown[EVIDENCE_GROWTH_MAX];
	trz_forecast_info when;
	size_t count = steps_growth(h, e->failed, grown, EVIDENCE_GROWTH_MAX);
	e->has_history = steps_told(h) > 0;
	put_grown(h, e, grown, count, steps_told(h), false);
	if (e->failed) {
		except_one_pass(h, e);
		except_turns(h, e);
	}
	if (e->failed && !has_leak(e))
		put_kept(h, e);
	if (!e->failed && steps_forecast(h, &when))
		e->forecast = (struct evidence_forecast){.steps = when.steps,
		                                         .steps_low = when.steps_low,
		                                         .steps_high = when.steps_high,
		                                         .seconds = when.seconds};
}

static void put_size(const struct facts *f, struct evidence *e)
{
	e->failed = f->info.requested != 0;
	if (!e->failed)
		return;
	e->requested = f->info.requested;
	e->needed = f->needed;
}

static void put_request(trz_heap *h, const struct facts *f, struct evidence *e)
{
	if (!e->failed)
		return;
	e->stream = (uint64_t)(uintptr_t)f->info.stream;
	e->pool = f->pool;
	e->category = (enum evidence_category)f->category;
	struct told_site told = tell_site(h, e, f->site);
	e->site = told.site;
	e->stack = told.stack;
	if (e->category == CATEGORY_UNKNOWN)
		e->category = told.category;
	for (unsigned i = 0; i < f->rung_count; i++)
		e->rungs[e->rung_count++] =
			(struct evidence_rung){.name = f->rungs[i].name, .tries = 1, .gave = f->rungs[i].gave};
}

/* The name of a process, such as "python"; NULL: unknown. */
static const char *name_of(uint64_t process, struct evidence *e)
{
	char path[64], name[32] = "";
	snprintf(path, sizeof path, "/proc/%" PRIu64 "/comm", process);
	FILE *file = fopen(path, "re");
	if (!file)
		return NULL;
	bool read = fgets(name, sizeof name, file) != NULL;
	fclose(file);
	name[strcspn(name, "\n")] = '\0';
	return read ? evidence_keep(e, name) : NULL;
}

/* With a shared limit, the device's figures are those without it, and the shared limit is the one reported unless the
 * heap's own leaves less. */
static void put_shared_limit(const trz_shared_limit *shared, const trz_oom_info *info, struct evidence *e)
{
	size_t held = shared->own + shared->others, left = shared->limit - min_u64(shared->limit, held);
	if (!shared->limit)
		return;
	if (shared->device_total) {
		e->device_total = shared->device_total;
		e->device_free = shared->device_free;
	}
	if (info->limit && info->limit - min_u64(info->limit, info->reserved) < left)
		return;
	e->limit = shared->limit;
	e->limit_held = held;
	e->limit_others = shared->others;
	for (unsigned i = 0; i < shared->process_count && i < EVIDENCE_SHARERS_MAX; i++)
		e->sharers[e->sharer_count++] = (struct evidence_sharer){.process = shared->processes[i].process,
		                                                         .name = name_of(shared->processes[i].process, e),
		                                                         .bytes = shared->processes[i].bytes};
}

static void put_device(trz_heap *h, const struct facts *f, struct evidence *e)
{
	e->device = h->driver.device;
	e->device_total = f->info.device_total;
	e->device_free = f->info.device_free;
	if (f->withheld)
		e->withheld = f->withheld;
	if (f->info.limit)
		e->limit = f->info.limit;
	put_shared_limit(&f->shared, &f->info, e);
}

/* What only NVIDIA's management library knows, which takes a while. */
static void put_processes(trz_heap *h, const struct facts *f, struct evidence *e)
{
	struct nvml_usage usage;
	if (!nvml_ask(&h->driver, &usage))
		return;
	e->other_processes = usage.others;
	e->context = usage.own - min_u64(usage.own, f->info.reserved);
}

static void put_memory(const struct facts *f, struct evidence *e)
{
	const trz_oom_info *i = &f->info;
	e->reserved = i->reserved;
	e->pending = i->pending;
	e->cached = i->cached + f->free_slots;
	e->allocated = i->reserved - min_u64(i->reserved, e->pending + e->cached);
	e->live_requested = f->live_requested;
	e->free_own = f->free_own;
	e->free_streams = f->free_streams;
	e->free_pools = f->free_pools;
	e->free_partly = e->cached - min_u64(e->cached, f->whole + f->whole_pools);
	e->releasable = f->whole;
	e->releasable_pools = f->whole_pools;
	e->largest = i->largest;
	e->largest_free = f->largest_own;
	e->largest_streams = f->largest_streams;
	e->largest_pools = f->largest_pools;
	e->peak_allocated = f->peak_allocated;
	e->peak_reserved = f->peak_reserved;
}

/* Begins evidence of r->facts, with what they tell of memory. */
static void begin_evidence(trz_heap *h, struct reporter *r)
{
	struct evidence *e = &r->evidence;
	char name[32];
	snprintf(name, sizeof name, "process %d", (int)getpid());
	evidence_init(e, EVIDENCE_HEAP, "");
	e->source_name = evidence_keep(e, name);
	e->allocator = "terrazzo";
	e->joins = h->driver.vmm;
	e->process = (uint64_t)getpid();
	e->rank = r->rank;
	put_device(h, &r->facts, e);
	put_memory(&r->facts, e);
	put_size(&r->facts, e);
}

/* Makes evidence and verdict of r->facts. No lock is held. */
static void judge(trz_heap *h, struct reporter *r)
{
	struct evidence *e = &r->evidence;
	r->weights = (struct weights){.known = false};
	begin_evidence(h, r);
	put_processes(h, &r->facts, e);
	put_request(h, &r->facts, e);
	put_holders(h, r);
	put_growth(h, e);
	verdict_find(e, &r->verdict);
}

/* The same by memory alone, which takes no time to speak of: for failures that are not reported. */
static void judge_briefly(trz_heap *h, struct reporter *r)
{
	begin_evidence(h, r);
	verdict_find(&r->evidence, &r->verdict);
}

/* ---- printing ---- */

/* Whole lines, as many as there is room for. */
static bool keep_text(void *owner, const char *text, size_t size)
{
	struct reporter *r = owner;
	if (size > sizeof r->text - r->used)
		return false;
	memcpy(r->text + r->used, text, size);
	r->used += size;
	return true;
}

static bool is_new(struct reporter *r, const struct facts *f)
{
	const struct printed p = {f->site, log2_floor(f->info.requested)};
	for (unsigned i = 0; i < r->printed_count; i++)
		if (r->printed[i].site == p.site && r->printed[i].log2 == p.log2)
			return false;
	if (r->printed_count == PRINTS_MOST)
		return false;
	r->printed[r->printed_count++] = p;
	return true;
}

/* The thread's error says what the verdict says. */
static void agree(const struct reporter *r)
{
	const struct verdict *v = &r->verdict;
	const struct evidence_growth *leak = verdict_leak(&r->evidence);
	uint64_t kept = v->kind == VERDICT_OTHER_PROCESS ? v->others : v->kind == VERDICT_POOL ? r->evidence.free_pools
	              : v->kind == VERDICT_ROUNDING ? v->rounding : v->kind == VERDICT_LEAK && leak ? leak->live : 0;
	if (v->kind != VERDICT_UNKNOWN)
		oom_reword(v->kind, r->facts.info.missing ? r->facts.info.missing : evidence_or_zero(v->short_bytes), kept);
}

static void print_report(struct reporter *r)
{
	r->used = 0;
	keep_text(r, "terrazzo: ", 10);
	oom_report_text(&r->evidence, &r->verdict, keep_text, r);
	trz_tell_text(r->text, r->used);
}

/* Reports the thread's newest failure, if it is new and its report is wanted. Otherwise judges it `briefly`, or not at
 * all. */
static void tell_failure(trz_heap *h, struct reporter *r, bool wanted, bool briefly)
{
	char text[ERROR_TEXT_BYTES];
	r->facts = *oom_thread_facts();
	if (!r->facts.info.requested || r->facts.heap != h->serial)
		return;
	bool prints = wanted && h->config.oom_report && is_new(r, &r->facts);
	if (!prints && !briefly)
		return;
	snprintf(text, sizeof text, "%s", trz_last_error());
	if (prints) {
		judge(h, r);
		print_report(r);
	} else {
		judge_briefly(h, r);
	}
	trz_fail(TRZ_ERROR_OUT_OF_MEMORY, "%s", text);
	agree(r);
}

static void tell(trz_heap *h, bool wanted, bool briefly)
{
	int error = errno;
	if (begin(h->reporter)) {
		tell_failure(h, h->reporter, wanted, briefly);
		end(h->reporter);
	}
	errno = error;
}

void postmortem_print(trz_heap *h)
{
	tell(h, true, false);
}

trz_status postmortem_failed(trz_heap *h, trz_status status)
{
	tell(h, !heap_thread.holds_reports, true);
	return status;
}

void postmortem_write(struct jsonw *j, void *owner)
{
	trz_heap *h = owner;
	const struct facts *f = oom_thread_facts();
	if (f->info.requested && f->heap == h->serial && begin(h->reporter)) {
		h->reporter->facts = *f;
		judge(h, h->reporter);
		oom_report_object(j, &h->reporter->evidence, &h->reporter->verdict);
		end(h->reporter);
		return;
	}
	jsonw_open(j, '{');
	jsonw_close(j, '}');
}

/* ---- for programs ---- */

static trz_status gather(trz_heap *h, unsigned flags, struct facts *out)
{
	*out = (struct facts){0};
	if (flags & TRZ_REPORT_FAILURE) {
		*out = *oom_thread_facts();
		return out->info.requested && out->heap == h->serial
		           ? TRZ_OK
		           : trz_fail(TRZ_ERROR_NOT_FOUND, "no request of this thread has run out of memory of this heap");
	}
	if (!heap_lock_growth(h))
		return heap_not_permitted("trz_report");
	oom_facts_now(h, out);
	heap_unlock_growth(h);
	return TRZ_OK;
}

struct writer {
	trz_report_callback *write;
	void *user;
};

static bool pass_on(void *owner, const char *text, size_t size)
{
	const struct writer *w = owner;
	return w->write(w->user, text, size);
}

trz_status postmortem_report(trz_heap *h, unsigned flags, trz_report_callback *write, void *user)
{
	struct reporter *r = h->reporter;
	struct writer w = {write, user};
	struct facts facts;
	trz_status status = gather(h, flags, &facts);
	if (status != TRZ_OK)
		return status;
	if (!begin(r))
		return trz_fail(TRZ_NOT_READY, "another report on the heap of device %d is being made: try again",
		                h->driver.device);
	r->facts = facts;
	judge(h, r);
	bool done = flags & TRZ_REPORT_JSON ? oom_report_json(&r->evidence, &r->verdict, pass_on, &w)
	                                    : oom_report_text(&r->evidence, &r->verdict, pass_on, &w);
	end(r);
	return done ? TRZ_OK : trz_fail(TRZ_ERROR_IO, "the report's callback has refused a part of it");
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The report for people. Every line is made in a buffer on the stack.
 */
#include "oom_report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bits.h"
#include "decimal.h"
#include "size_text.h"

enum {
	LINE_BYTES = 400,
	CATEGORIES_SHOWN = 6,
	SITES_SHOWN = 7,
	GROWTH_SHOWN = 2,
	REMEDIES_SHOWN = 6,
	RUNGS_SHOWN = 6,
	SHARERS_SHOWN = 3,
	REMEDY_BYTES = 256
};

/* A request as large as this, in one piece, is rarely a layer's output. */
#define ONE_PIECE GIB(1)

struct writer {
	const struct evidence *e;
	const struct verdict *v;
	oom_report_sink *sink;
	void *owner;
	bool failed;
};

/* Sizes in a call to say: each in storage of its own until the end of the block. */
struct size {
	char text[SIZE_TEXT_BYTES];
};

#define SIZE(bytes) say_size((bytes), (struct size){{0}}.text)

static const char *say_size(uint64_t bytes, char text[SIZE_TEXT_BYTES])
{
	if (bytes < KIB(10) || bytes >= MIB(1))
		return size_text(bytes, text);
	return decimal_size(bytes, 10, "KiB", text, SIZE_TEXT_BYTES);
}

#define SHARE(part, whole) say_share((part), (whole), (struct size){{0}}.text)

/* Per cent, with one decimal. */
static const char *say_share(uint64_t part, uint64_t whole, char text[SIZE_TEXT_BYTES])
{
	if (!evidence_known(whole))
		return "?";
	double exact = whole ? 1000.0 * (double)part / (double)whole : 0;
	uint64_t tenths = exact < 1e15 ? (uint64_t)exact : (uint64_t)1e15;
	double rest = exact - (double)tenths;
	tenths += rest > 0.5 || (rest == 0.5 && tenths % 2);
	snprintf(text, SIZE_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " %%", tenths / 10, tenths % 10);
	return text;
}

__attribute__((format(printf, 2, 3))) static void say(struct writer *w, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;
	va_start(args, format);
	int length = vsnprintf(line, sizeof line - 1, format, args);
	va_end(args);
	if (length < 0)
		return;
	size_t size = min_u64((uint64_t)length, sizeof line - 2);
	line[size++] = '\n';
	w->failed = w->failed || !w->sink(w->owner, line, size);
}

/* ---- the first three lines -------------------------------------------------------------------------- */

static void where_text(const struct evidence *e, char *text, size_t room)
{
	char rank[80] = "", process[40] = "";
	if (e->rank >= 0)
		snprintf(rank, sizeof rank, "rank %d, ", e->rank);
	else if (e->writer)
		snprintf(rank, sizeof rank, "%.72s, ", e->writer);
	if (evidence_known(e->process) && !e->writer)
		snprintf(process, sizeof process, ", process %" PRIu64, e->process);
	if (e->device >= 0)
		snprintf(text, room, "%sdevice %d%s", rank, e->device, process);
	else
		snprintf(text, room, "%sdevice unknown%s", rank, process);
}

static void stream_text(const struct evidence *e, char *text, size_t room)
{
	int length = 0;
	text[0] = '\0';
	if (evidence_known(e->stream))
		length = snprintf(text, room, " on stream %#" PRIx64, e->stream);
	if (!evidence_known(e->pool) || e->pool == 0 || length < 0 || (size_t)length >= room)
		return;
	/* PyTorch's pools have two numbers. */
	if (e->pool >> 30)
		snprintf(text + length, room - (size_t)length, " in pool (%" PRIu64 ", %" PRIu64 ")", e->pool >> 30,
		         e->pool & ((1u << 30) - 1));
	else
		snprintf(text + length, room - (size_t)length, " in pool %" PRIu64, e->pool);
}

static void say_what(struct writer *w)
{
	const struct evidence *e = w->e;
	const struct verdict *v = w->v;
	char where[160], stream[64], missing[64] = "";
	where_text(e, where, sizeof where);
	stream_text(e, stream, sizeof stream);
	if (evidence_known(v->short_bytes) && v->short_bytes)
		snprintf(missing, sizeof missing, ", %s%s short",
		         v->short_at_most ? "at most " : e->inexact ? "about " : "",
		         SIZE(v->short_bytes));
	if (!e->failed)
		say(w, "%s of %s: %s allocated, %s reserved", e->peak ? "peak" : "memory", where,
		    SIZE(evidence_or_zero(e->allocated)), SIZE(evidence_or_zero(e->reserved)));
	else if (evidence_known(e->requested))
		say(w, "out of memory, %s: %s asked for%s%s", where, SIZE(e->requested), stream, missing);
	else
		say(w, "%sout of memory, %s: a request of unknown size%s%s", e->likely ? "probably " : "", where,
		    e->asker ? ", by " : "", e->asker ? e->asker : "");
}

/* "2.50 GiB asked for - 1.89 GiB left on the device - 51.20 MiB free in the allocator = 573.44 MiB short" */
static void sum_text(const struct writer *w, char *text, size_t room)
{
	const struct verdict *v = w->v;
	bool by_limit = evidence_known(v->limit_room) && v->room == v->limit_room;
	bool withheld = evidence_or_zero(w->e->withheld) != 0;
	text[0] = '\0';
	if (!evidence_known(v->need) || !evidence_known(v->room) || !evidence_known(v->short_bytes))
		return;
	const char *left = by_limit ? "left under the limit"
	                            : withheld ? "that the device would give" : "left on the device";
	const char *how = w->e->needed != w->e->requested && evidence_known(w->e->needed) ? "needed" : "asked for";
	if (!evidence_known(v->usable))
		snprintf(text, room, "%s %s - %s %s = %s short, less what the allocator has free", SIZE(v->need), how,
		         SIZE(v->room), left, SIZE(v->short_bytes));
	else if (v->need > v->room + v->usable)
		snprintf(text, room, "%s %s - %s %s - %s free in the allocator = %s short", SIZE(v->need), how,
		         SIZE(v->room), left, SIZE(v->usable), SIZE(v->short_bytes));
	else if (v->untold)
		snprintf(text, room, "%s %s - %s %s = at most %s short, as the largest piece is not told", SIZE(v->need), how,
		         SIZE(v->room), left, SIZE(v->short_bytes));
	else
		snprintf(text, room, "%s %s - %s in the largest piece = %s short", SIZE(v->need), how, SIZE(v->piece),
		         SIZE(v->short_bytes));
}

static const char *known_text(const char *text)
{
	return text && *text ? text : "unknown";
}

static uint64_t whole(double value)
{
	return value > 0 ? (uint64_t)(value < 1e18 ? value : 1e18) : 0;
}

static bool is_unknown_site(const char *site)
{
	return strncmp(site, "no call stack", 13) == 0;
}

/* What is kept outside of models alone may be a replay buffer, or a ring that has not wrapped yet: these grow alike. */
static bool may_be_buffer(const struct evidence *e)
{
	for (unsigned i = 0; i < e->growth_count; i++)
		if (e->growth[i].leak && e->growth[i].category != CATEGORY_UNKNOWN)
			return false;
	return true;
}

static void say_leak(struct writer *w)
{
	const struct evidence_growth *g = verdict_leak(w->e);
	bool unknown = !g->site || is_unknown_site(g->site);
	bool called = g->loop && *g->loop;
	say(w, "verdict: leak: what %s%.120s%s%s%.120s grows by %s a step and holds %s%s", unknown ? "has " : "",
	    g->site && *g->site ? g->site : "no call stack", unknown ? "," : " allocates", called ? " for " : "",
	    called ? g->loop : "", SIZE(whole(g->per_step)), SIZE(g->live),
	    may_be_buffer(w->e) ? ", or is a buffer that is not full yet" : "");
}

static const char *unknown_reason(const struct writer *w)
{
	if (!w->e->failed)
		return "no request that failed is on record here";
	if (w->e->likely)
		return "such an error is mostly for want of memory; else of an operation or a type that the library lacks";
	if (w->e->asker && !evidence_known(w->v->need))
		return "it was asked of the driver, beside PyTorch's allocator, and the text tells no sizes";
	if (!evidence_known(w->v->need))
		return "the source does not tell what was asked for";
	if (!evidence_known(w->v->room))
		return "the source does not tell how much the device had left";
	return "by these figures it should have been served: a limit that the source does not tell (a memory fraction) has "
	       "refused it, or memory has been freed since, perhaps by another process";
}

/* Who else has memory under the limit: ", 3.00 GiB by process 123 (python)". "" if nobody has. */
static const char *others_text(const struct evidence *e, char *text, size_t room)
{
	const struct evidence_sharer *s = e->sharers;
	uint64_t bytes = evidence_or_zero(e->limit_others);
	text[0] = '\0';
	if (bytes && e->sharer_count && s->bytes >= bytes)
		snprintf(text, room, ", %s by process %" PRIu64 "%s%s%s", SIZE(bytes), s->process, s->name ? " (" : "",
		         s->name ? s->name : "", s->name ? ")" : "");
	else if (bytes)
		snprintf(text, room, ", %s by other processes", SIZE(bytes));
	return text;
}

/* Says how a device is full for this request: much may be left. */
static const char *use_text(const struct writer *w)
{
	enum { MUCH = 8 };
	uint64_t known = w->e->device_total, all = evidence_known(known) ? known : evidence_or_zero(w->e->reserved);
	if (w->v->room > all / MUCH || !evidence_known(w->v->usable))
		return "what is left does not suffice";
	return w->v->also_count ? "nearly all memory is in use" : "all memory is in use";
}

/* Whether others may have most of the device without the source's telling: PyTorch's snapshots do not know its size. */
static bool hides_others(const struct evidence *e)
{
	bool known = evidence_known(e->device_total) || !evidence_known(e->reserved);
	return e->source == EVIDENCE_PICKLE && e->failed && !known;
}

/* ", 3.00 GiB by this allocator", which a reader can compare with the device. "": the source tells the rest. */
static const char *own_text(const struct evidence *e, char *text, size_t room)
{
	text[0] = '\0';
	if (hides_others(e))
		snprintf(text, room, ", %s by this allocator", SIZE(e->reserved));
	return text;
}

/* ", beside 3.00 GiB in use". "": not told. */
static const char *beside_text(const struct evidence *e, char *text, size_t room)
{
	text[0] = '\0';
	if (evidence_known(e->allocated))
		snprintf(text, room, ", beside %s in use", SIZE(e->allocated));
	return text;
}

/* A text does not tell whether the request was of a pool. */
static void say_pools(struct writer *w, const char *figures)
{
	bool told = evidence_known(w->e->pool);
	say(w, "verdict: pool: %s pools keep %s free, which %s may not use: %s", told ? "other" : "private",
	    SIZE(w->e->free_pools), told ? "this request" : "requests outside of them", figures);
}

static void say_verdict(struct writer *w)
{
	const struct evidence *e = w->e;
	const struct verdict *v = w->v;
	const char *name = verdict_name(v->kind);
	char figures[200], others[96];
	sum_text(w, figures, sizeof figures);
	if (v->presumed) {
		say(w, "verdict: %s: by what fills the device, as no request is on record: of its %s, %s are reserved, and of "
		    "these %s are free", name, SIZE(e->device_total), SIZE(e->reserved), SIZE(e->cached));
		return;
	}
	switch (v->kind) {
	case VERDICT_TOO_LARGE:
		if (evidence_known(e->device_total) && evidence_known(v->need) && v->need <= e->device_total)
			say(w, "verdict: %s: no device of this size could serve it: an empty process could have %s of its %s", name,
			    SIZE(verdict_empty_device(e)), SIZE(e->device_total));
		else if (evidence_known(e->device_total))
			say(w, "verdict: %s: no device of this size could serve it: the device has %s in all", name,
			    SIZE(e->device_total));
		else if (evidence_known(e->device_free) && evidence_known(e->reserved))
			say(w, "verdict: %s: an empty process could have %s on this device", name,
			    SIZE(e->device_free + e->reserved));
		else
			say(w, "verdict: %s: no device could serve it", name);
		return;
	case VERDICT_LIMIT:
		if (verdict_exceeds_limit(e, v))
			say(w, "verdict: %s: %s are allowed in all, less than the request alone: %s", name, SIZE(e->limit),
			    figures);
		else if (evidence_known(e->limit_held))
			say(w, "verdict: %s: %s are allowed and %s held%s, though the device has room: %s", name, SIZE(e->limit),
			    SIZE(e->limit_held), others_text(e, others, sizeof others), figures);
		else if (!evidence_known(e->limit) || !evidence_known(e->reserved))
			say(w, "verdict: %s: a limit (a memory fraction) forbade it", name);
		else if (e->limit_inferred)
			say(w, "verdict: %s: the device has %s left, so a limit (a memory fraction) forbade it", name,
			    SIZE(e->device_free));
		else
			say(w, "verdict: %s: %s are allowed and %s reserved, though the device has room: %s", name,
			    SIZE(e->limit), SIZE(e->reserved), figures);
		return;
	case VERDICT_OTHER_PROCESS:
		say(w, "verdict: %s: other processes have %s%s of the device: %s", name,
		    evidence_known(e->other_processes) ? "" : "about ", SIZE(v->others), figures);
		return;
	case VERDICT_LEAK:
		say_leak(w);
		return;
	case VERDICT_POOL:
		say_pools(w, figures);
		return;
	case VERDICT_OTHER_STREAM:
		say(w, "verdict: %s: other streams keep %s that would have done: %s", name,
		    SIZE(evidence_or_zero(e->free_streams) + evidence_or_zero(e->pending)), figures);
		return;
	case VERDICT_FRAGMENTED:
		say(w, "verdict: %s: enough is free, but not in one piece%s: %s", name, beside_text(e, others, sizeof others),
		    figures);
		return;
	case VERDICT_ROUNDING:
		say(w, "verdict: %s: rounding takes %s: %s", name, SIZE(v->rounding), figures);
		return;
	case VERDICT_FULL:
		say(w, "verdict: %s: %s%s: %s", name, use_text(w), own_text(e, others, sizeof others), figures);
		return;
	default:
		say(w, "verdict: %s: %s", name, unknown_reason(w));
	}
}

/* Whether a program can spare a part of that memory at most. */
static bool is_part(enum remedy_kind kind)
{
	return kind == REMEDY_CHECKPOINT || kind == REMEDY_KV_CACHE;
}

/* Unless the verdict has said it: where the leak is, and how fast all of it grows. */
static void leak_remedy_text(const struct writer *w, char *text, size_t room)
{
	const struct evidence_growth *most = verdict_leak(w->e);
	double rate = verdict_leak_rate(w->e);
	char by[SIZE_TEXT_BYTES + 12] = "", at[140] = "";
	if (w->v->kind != VERDICT_LEAK && rate > 0)
		snprintf(by, sizeof by, " by %s a step", SIZE(whole(rate)));
	if (w->v->kind != VERDICT_LEAK && most && most->site && *most->site)
		snprintf(at, sizeof at, ", most at %.120s", most->site);
	snprintf(text, room, "free, bound or move to the host what grows%s%s (.item(), .detach().cpu(), no_grad, hooks, "
	         "caches)", by, at);
}

/* " (lasts 2 steps)", for memory that a leak will take, too. */
static const char *lasts_text(const struct verdict_remedy *r, char text[40])
{
	text[0] = '\0';
	if (r->lasts < 1)
		snprintf(text, 40, " (lasts less than a step)");
	else if (r->lasts < VERDICT_LASTS)
		snprintf(text, 40, " (lasts %" PRIu64 " step%s)", whole(r->lasts), r->lasts < 2 ? "" : "s");
	return text;
}

static void fewer_text(const struct evidence_holder *many, char *text, size_t room)
{
	const char *blocks = strstr(many->site, "blocks of");
	if (is_unknown_site(many->site) && blocks)
		snprintf(text, room, "keep fewer at once of the %" PRIu64 " %.40s (results, states, data; no call stack)",
		         many->count, blocks);
	else
		snprintf(text, room, "keep fewer at once of the %" PRIu64 " that %.160s holds (results, states, data)",
		         many->count, many->site);
}

/* The part of the batch. What a smaller one leaves free in pieces is smaller, too, where these are not joined. */
static double smaller_by(const struct writer *w, const struct verdict_remedy *batch)
{
	bool pieces = w->v->missing > w->v->short_bytes && evidence_known(w->v->usable);
	return (double)batch->bytes / ((double)verdict_scaling(w->e) + (pieces ? (double)w->v->usable : 0));
}

/* Says what to do; the remedy's bytes stand beside it. */
static void remedy_text(const struct writer *w, const struct verdict_remedy *r, char *text, size_t room)
{
	static const char *const texts[REMEDY_COUNT] = {
		[REMEDY_TRIM] = "return free memory to the driver (trim, empty_cache)",
		[REMEDY_STREAMS] = "use one stream, or free before the peak what other streams keep",
		[REMEDY_POOLS] = "release private pools, or capture graphs with one shared pool",
		[REMEDY_JOIN] = "join free pieces: terrazzo, or expandable_segments:True",
		[REMEDY_LIMIT] = "raise the limit",
		[REMEDY_OTHER_PROCESS] = "end the other processes, or use another device",
		[REMEDY_OVERFILLED] = "collect less in the loop: fewer rounds at once, results reduced or moved to the host, "
		                      "no_grad() where nothing is trained",
		[REMEDY_ATTEMPT] = "drop what a failed attempt has left: try again after the except block, and keep no "
		                   "exception (its traceback keeps tensors)",
		[REMEDY_PASSES] = "let go of each pass's activations before the next, as the steps before did: no_grad() in "
		                  "evaluation, .item() for losses that are added up",
		[REMEDY_LOADED] = "load checkpoints to the host (map_location=\"cpu\") and let go of them: the model has its "
		                  "own weights",
		[REMEDY_ROUNDING] = "ask for sizes that need no rounding",
		[REMEDY_CHECKPOINT] = "activations: checkpoint them in training, keep fewer, or offload them",
		[REMEDY_OFFLOAD_OPTIMIZER] = "shard, offload or shrink (8 bit) the optimizer's state",
		[REMEDY_OFFLOAD_WEIGHTS] = "shard, offload or quantise the weights",
		[REMEDY_KV_CACHE] = "keep fewer tokens in the KV cache",
	};
	char lasts[40];
	lasts_text(r, lasts);
	if (r->kind == REMEDY_POOLS && evidence_or_zero(w->e->pool))
		snprintf(text, room, "allocate outside of this pool, or release others%s", lasts);
	else if (r->kind == REMEDY_JOIN && w->e->source == EVIDENCE_HEAP)
		snprintf(text, room, "join free pieces: leave out vmm:off, or use a device with virtual memory management");
	else if (r->kind == REMEDY_LEAK)
		leak_remedy_text(w, text, room);
	else if (r->kind == REMEDY_GROWTH)
		snprintf(text, room, "bound what gets larger with each step (a cache, a list, a batch or sequence): %.160s",
		         known_text(verdict_larger(w->e)->site));
	else if (r->kind == REMEDY_FEWER)
		fewer_text(verdict_many(w->e), text, room);
	else if (r->kind != REMEDY_BATCH)
		snprintf(text, room, "%s%s%s", texts[r->kind],
		         r->at_least ? ", by at least" : is_part(r->kind) ? ", up to" : "", lasts);
	else if (r->enough)
		snprintf(text, room, "a batch or sequence smaller by %.0f %%%s",
		         100.0 * smaller_by(w, r) + 0.5, lasts);
	else
		snprintf(text, room, "a batch%s that needs this much less",
		         w->e->category == CATEGORY_UNKNOWN ? ", sequence or buffer" : " or sequence");
}

static void say_remedy(struct writer *w)
{
	const struct verdict *v = w->v;
	char text[REMEDY_BYTES];
	if (v->kind == VERDICT_TOO_LARGE) {
		bool layer = w->e->category == CATEGORY_WEIGHTS || w->e->category == CATEGORY_OPTIMIZER;
		say(w, "remedy: ask for less at once: a smaller %s, or a split over devices",
		    layer ? "layer" : "batch or sequence");
	} else if (v->kind == VERDICT_UNKNOWN && w->e->asker) {
		say(w, "remedy: leave it memory: a smaller batch, empty_cache() before, set_per_process_memory_fraction below "
		    "1; see nvidia-smi for other processes");
	} else if (v->kind == VERDICT_UNKNOWN && w->e->failed) {
		say(w, "remedy: record a history or take a snapshot at the failure, and explain that");
	} else if (v->kind == VERDICT_UNKNOWN && w->e->source == EVIDENCE_PICKLE) {
		say(w, "remedy: if memory ran out, explain this together with the error's text, or record a history that has "
		    "it");
	} else if (v->remedy_count == 0) {
		say(w, "remedy: none is known from these figures");
	} else {
		const struct verdict_remedy *r = &v->remedies[0];
		bool partial = evidence_known(v->missing) && !r->enough && !r->at_least && r->kind != REMEDY_BATCH;
		char second[REMEDY_BYTES];
		remedy_text(w, r, text, sizeof text);
		if (v->choice) {
			remedy_text(w, &r[1], second, sizeof second);
			say(w, "remedy: %s: %s; or %s: %s", text, SIZE(r->bytes), second, SIZE(r[1].bytes));
		} else {
			say(w, "remedy: %s: %s%s", text, SIZE(r->bytes), partial ? ", not enough alone" : "");
		}
	}
}

/* ---- figures ---------------------------------------------------------------------------------------- */

static void say_figure(struct writer *w, int depth, const char *name, uint64_t bytes)
{
	if (evidence_known(bytes))
		say(w, "%*s%-*s %14s", 2 * depth, "", 40 - 2 * depth, name, SIZE(bytes));
}

/* A part of the figure above; 0 is not worth a line. */
static void say_part(struct writer *w, const char *name, uint64_t bytes)
{
	if (bytes)
		say_figure(w, 4, name, bytes);
}

static void say_allocated(struct writer *w)
{
	const struct evidence *e = w->e;
	say_figure(w, 3, "allocated", e->allocated);
	if (evidence_known(e->allocated) && evidence_known(e->live_requested))
		say_part(w, "of it rounding", e->allocated - min_u64(e->allocated, e->live_requested));
	if (e->pending)
		say_figure(w, 3, "awaits other streams' work", e->pending);
	say_figure(w, 3, "free", e->cached);
	say_part(w, e->failed ? "for this request" : "of the default stream", e->free_own);
	say_part(w, "of other streams", e->free_streams);
	say_part(w, e->failed && evidence_or_zero(e->pool) ? "of other pools" : "of private pools", e->free_pools);
	say_part(w, "beside live blocks", e->free_partly);
	if (evidence_known(e->allocated) && evidence_known(e->reserved) && e->reserved >= e->allocated && e->allocated)
		say(w, "      fragmentation                      %15s", SHARE(e->reserved - e->allocated, e->reserved));
}

/* "  48.00 MiB by process 841 (python), ..." */
static void sharers_text(const struct evidence *e, char *text, size_t room)
{
	size_t used = 0;
	text[0] = '\0';
	for (unsigned i = 0; i < e->sharer_count && i < SHARERS_SHOWN && used < room; i++) {
		const struct evidence_sharer *s = &e->sharers[i];
		used += (size_t)snprintf(text + used, room - used, "%s%s by process %" PRIu64 "%s%.20s%s", i ? ", " : "  ",
		                         SIZE(s->bytes), s->process, s->name ? " (" : "", s->name ? s->name : "",
		                         s->name ? ")" : "");
	}
	if (e->sharer_count > SHARERS_SHOWN && used < room)
		snprintf(text + used, room - used, ", ...");
}

/* Says who holds what under a shared limit. */
static void say_sharers(struct writer *w)
{
	const struct evidence *e = w->e;
	char sharers[240];
	if (!evidence_known(e->limit_held))
		return;
	say_figure(w, 2, "held by this process", e->limit_held - min_u64(e->limit_held, evidence_or_zero(e->limit_others)));
	sharers_text(e, sharers, sizeof sharers);
	if (evidence_or_zero(e->limit_others))
		say(w, "    %-36s %14s%s", "held by others", SIZE(e->limit_others), sharers);
}

static void say_figures(struct writer *w)
{
	const struct evidence *e = w->e;
	say(w, "memory");
	say_figure(w, 1, "the device has", e->device_total);
	say_figure(w, 2, "other processes", e->other_processes);
	say_figure(w, 2, "context and libraries", e->context);
	say_figure(w, 2, "left", e->device_free);
	say_figure(w, 3, "which cannot be had", e->withheld);
	say_figure(w, 2, "reserved by the allocator", e->reserved);
	say_allocated(w);
	say_figure(w, 1, e->limit_inferred ? "the limit, at least" : "the limit", e->limit);
	say_sharers(w);
	say_figure(w, 1, "largest request that would have done",
	           evidence_known(e->largest) || !e->failed || w->v->untold ? e->largest : w->v->piece);
	say_figure(w, 1, "most that was allocated", e->peak ? EVIDENCE_UNKNOWN : e->peak_allocated);
}

/* ---- holders, growth, remedies, rungs --------------------------------------------------------------- */

/* The categories with memory, most first; returns their number. */
static unsigned sort_categories(const struct evidence *e, unsigned order[CATEGORY_COUNT])
{
	unsigned count = 0;
	for (unsigned i = 0; i < CATEGORY_COUNT; i++) {
		if (evidence_or_zero(e->categories[i]) == 0)
			continue;
		unsigned at = count++;
		for (; at > 0 && e->categories[order[at - 1]] < e->categories[i]; at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
	return count;
}

/* If all of it is unknown, that says nothing. */
static void say_categories(struct writer *w)
{
	const uint64_t *bytes = w->e->categories;
	unsigned order[CATEGORY_COUNT], count = sort_categories(w->e, order);
	if (count == 1 && order[0] == CATEGORY_UNKNOWN)
		return;
	for (unsigned i = 0; i < count && i < CATEGORIES_SHOWN; i++) {
		if (i == 0)
			say(w, "held by category");
		say(w, "  %14s %7s  %s", SIZE(bytes[order[i]]), SHARE(bytes[order[i]], w->e->allocated),
		    evidence_category_text(order[i]));
	}
}

static void say_site(struct writer *w, const struct evidence_holder *h)
{
	char error[64] = "", category[40] = "";
	if (h->error)
		snprintf(error, sizeof error, " +- %s", SIZE(h->error));
	if (h->category != CATEGORY_UNKNOWN)
		snprintf(category, sizeof category, ", %s", evidence_category_text(h->category));
	say(w, "  %14s%s %7s  %.120s%s%.40s%s (%" PRIu64 " live)", SIZE(h->bytes), error,
	    SHARE(h->bytes, w->e->allocated), known_text(h->site), h->tag && *h->tag ? ", tag " : "",
	    h->tag ? h->tag : "", category, h->count);
}

static void say_sites(struct writer *w)
{
	unsigned shown = 0;
	for (unsigned i = 0; i < w->e->holder_count && shown < SITES_SHOWN; i++) {
		const struct evidence_holder *h = &w->e->holders[i];
		if (!h->site && !h->tag)
			continue;
		if (shown++ == 0)
			say(w, "held by call site");
		say_site(w, h);
	}
	if (w->e->site && w->e->failed)
		say(w, "asked for by %.300s", w->e->site);
}

static void say_growth(struct writer *w)
{
	const struct evidence *e = w->e;
	for (unsigned i = 0; i < e->growth_count && i < GROWTH_SHOWN; i++) {
		const struct evidence_growth *g = &e->growth[i];
		if (i == 0)
			say(w, "growth");
		bool told = g->category != CATEGORY_UNKNOWN;
		say(w, "  %14s a step, %s live  %.160s%s%s%s", SIZE(whole(g->per_step)), SIZE(g->live),
		    known_text(g->site), told ? ", " : "", told ? evidence_category_text(g->category) : "",
		    g->leak ? ": looks like a leak" : "");
	}
	if (e->forecast.steps > 0 && e->forecast.seconds > 0)
		say(w, "  at this rate out of memory in %.0f steps (%.0f to %.0f), %.0f minutes", e->forecast.steps,
		    e->forecast.steps_low, e->forecast.steps_high, e->forecast.seconds / 60);
	else if (e->forecast.steps > 0)
		say(w, "  at this rate out of memory in %.0f steps (%.0f to %.0f)", e->forecast.steps,
		    e->forecast.steps_low, e->forecast.steps_high);
}

static bool advises(const struct verdict *v, enum remedy_kind kind)
{
	for (unsigned i = 0; i < v->remedy_count; i++)
		if (v->remedies[i].kind == kind)
			return true;
	return false;
}

/* Points out a checkpoint that is live beside the model that it was for. */
static void say_loaded(struct writer *w)
{
	enum { MUCH = 16 };
	const struct evidence *e = w->e;
	const struct evidence_holder *most = NULL;
	uint64_t bytes = 0;
	for (unsigned i = 0; i < e->holder_count; i++) {
		bytes += e->holders[i].loaded ? e->holders[i].bytes : 0;
		if (e->holders[i].loaded && (!most || e->holders[i].bytes > most->bytes))
			most = &e->holders[i];
	}
	if (most && e->failed && !advises(w->v, REMEDY_LOADED) && evidence_known(e->allocated) &&
	    bytes >= e->allocated / MUCH)
		say(w, "  note: %s are as %.120s has read them from a file; if they have been copied into a model since, load "
		    "to the host (map_location=\"cpu\") and let go of them", SIZE(bytes), known_text(most->site));
}

/* Says what the request's size and kind suggest beyond the sums. */
static void say_hints(struct writer *w)
{
	const struct evidence *e = w->e;
	bool too_much = w->v->kind == VERDICT_FULL || w->v->kind == VERDICT_TOO_LARGE;
	if (!too_much || !evidence_known(w->v->need))
		return;
	if (w->v->together)
		say(w, "  note: the request is as large as what a loop has kept, so the parts and the whole are live together; "
		    "write into one tensor made beforehand, or move the parts to the host");
	else if (e->category == CATEGORY_OPTIMIZER)
		say(w, "  note: the optimizer makes its state in the first step; a smaller batch does not help; foreach=False "
		    "or fused=True, where it has them, spare copies of all weights in each step");
	else if (w->v->need >= ONE_PIECE && e->category != CATEGORY_WEIGHTS)
		say(w, "  note: one piece this large is often an attention matrix (use flash attention) or logits (chunk the "
		    "loss)");
}

static void say_what_is_hidden(struct writer *w)
{
	const struct evidence *e = w->e;
	if (w->v->kind == VERDICT_FULL && hides_others(e) && evidence_known(e->device_free))
		say(w, "  note: of the device only %s are on record; if it has much more, others have the rest, which a "
		    "snapshot does not tell: explain it with the error's text, or --device-memory",
		    SIZE(e->reserved + e->device_free));
}

static void say_remedies(struct writer *w)
{
	const struct verdict *v = w->v;
	char text[REMEDY_BYTES];
	if (v->remedy_count)
		say(w, "what would give how much%s", w->e->failed ? " (* alone enough)" : "");
	for (unsigned i = 0; i < v->remedy_count && i < REMEDIES_SHOWN; i++) {
		remedy_text(w, &v->remedies[i], text, sizeof text);
		say(w, "%c %14s  %s", v->remedies[i].enough ? '*' : ' ', SIZE(v->remedies[i].bytes), text);
	}
	say_hints(w);
	say_loaded(w);
	say_what_is_hidden(w);
}

/* What gave nothing has one line, by the short names that stand before a colon. */
static void say_rungs(struct writer *w)
{
	const struct evidence *e = w->e;
	char vain[LINE_BYTES] = "";
	size_t used = 0;
	if (e->rung_count)
		say(w, "what was tried");
	for (unsigned i = 0; i < e->rung_count && i < RUNGS_SHOWN; i++) {
		const struct evidence_rung *r = &e->rungs[i];
		char times[40] = "";
		if (r->tries > 1)
			snprintf(times, sizeof times, " (%" PRIu64 " times)", r->tries);
		if (r->gave)
			say(w, "  %14s  %.100s%s", SIZE(r->gave), r->name, times);
		else if (used < sizeof vain)
			used += (size_t)snprintf(vain + used, sizeof vain - used, "%s%.*s%s", used ? ", " : "",
			                         (int)min_u64(strcspn(r->name, ":"), 40), r->name, times);
	}
	if (used)
		say(w, "  %14s  %s", SIZE(0), vain);
}

static void say_also(struct writer *w)
{
	char text[160] = "";
	size_t used = 0;
	for (unsigned i = 0; i < w->v->also_count && used < sizeof text; i++)
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", verdict_name(w->v->also[i]));
	if (used)
		say(w, "also: %s", text);
}

static void say_source(struct writer *w)
{
	const struct evidence *e = w->e;
	say(w, "source: %.200s%s%s%s", known_text(e->source_name), e->allocator ? ", allocator " : "",
	    e->allocator ? e->allocator : "", e->has_history ? "" : "; no history: growth is not known");
}

bool oom_report_text(const struct evidence *e, const struct verdict *v, oom_report_sink *sink, void *owner)
{
	struct writer w = {.e = e, .v = v, .sink = sink, .owner = owner};
	say_what(&w);
	if (!e->peak) {
		say_verdict(&w);
		say_remedy(&w);
		say_also(&w);
	}
	say_figures(&w);
	say_categories(&w);
	say_sites(&w);
	say_growth(&w);
	say_remedies(&w);
	say_rungs(&w);
	say_source(&w);
	return !w.failed;
}

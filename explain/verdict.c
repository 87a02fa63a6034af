/* SPDX-License-Identifier: Apache-2.0
 *
 * The decision list, and the remedies.
 */
#include "verdict.h"

#include <string.h>

#include "bits.h"

/* Up to here memory outside the allocator is taken for this process's context and libraries; if there is more, all but
 * CONTEXT_USUAL is taken for other processes'. */
#define CONTEXT_MAX MIB(1536)
#define CONTEXT_USUAL GIB(1)

/* The least that terrazzo makes, of which it makes whole multiples. */
#define GRANULE MIB(2)

/* Below this share of the memory that they are part of, other processes, rounding and free memory are what any program
 * meets: they may have been what was missing, but are not why memory ran out. */
enum { SHARE = 32 };

/* Programs whose memory is mostly activations, temporaries and KV cache, which are as good a reason, always leave more
 * than SHARE in pieces, and those with a list some more: free memory in pieces counts from these shares on. */
enum { SCATTERED = 8, SCATTERED_LIST = 16 };

/* From this share of a request on, what it is rounded up by is why memory ran out; but not on a full device if that is
 * only the segment of a small request. */
enum { MUCH_ROUNDED = 4 };
#define SEGMENT MIB(20)

/* What gets larger with the steps is why memory ran out, from this share of what is live on. */
enum { MUCH_GROWN = 8 };

/* What is kept without need is worth a word from this share of what is live on. */
enum { MUCH_SPARE = 16 };

/* A line holds very many blocks from MANY on, if they are MANY_OF_EACH times as many as the weights: small weights are
 * sampled, and a layer of PyTorch's own makes a dozen blocks for each large one. */
enum { MANY = 256, MANY_OF_EACH = 16 };

/* A line outside models has made a list if it holds so many blocks or more, and three quarters of what is live. */
enum { LISTED = 32 };

/* Memory that a leak will take, too, comes before fixing the leak if it lasts for so many steps, and is more than the
 * leak has taken so far. */
enum { LASTING = 1000 };

/* If a batch that is smaller by up to such a part is enough, that is less trouble than to argue with others. */
enum { LITTLE_SMALLER = 16 };

/* A leak is not why if pools or other streams keep more than this many times as much that would have served. */
enum { BESIDE = 4 };

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a > EVIDENCE_UNKNOWN - 1 - b ? EVIDENCE_UNKNOWN - 1 : a + b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* ---- what the figures come to ----------------------------------------------------------------------- */

static uint64_t usable_memory(const struct evidence *e)
{
	if (evidence_known(e->free_own))
		return e->free_own;
	if (!evidence_known(e->cached))
		return EVIDENCE_UNKNOWN;
	return less(e->cached, sum(evidence_or_zero(e->free_pools), evidence_or_zero(e->free_streams)));
}

static uint64_t others_memory(const struct evidence *e)
{
	if (evidence_known(e->other_processes))
		return e->other_processes;
	if (!evidence_known(e->device_total) || !evidence_known(e->device_free) || !evidence_known(e->reserved))
		return EVIDENCE_UNKNOWN;
	uint64_t outside = less(e->device_total, sum(e->device_free, e->reserved));
	if (evidence_known(e->context))
		return less(outside, e->context);
	return outside > CONTEXT_MAX ? outside - CONTEXT_USUAL : 0;
}

static uint64_t rounding_of_request(const struct evidence *e, uint64_t need)
{
	return evidence_known(e->requested) && evidence_known(need) ? less(need, e->requested) : 0;
}

/* What rounding adds to this request, and to all that is live if that is much. */
static uint64_t rounding_memory(const struct evidence *e, uint64_t need)
{
	uint64_t rounding = rounding_of_request(e, need);
	if (evidence_known(e->allocated) && evidence_known(e->live_requested)) {
		uint64_t live = less(e->allocated, e->live_requested);
		rounding += live >= e->allocated / SHARE ? live : 0;
	}
	return rounding;
}

static uint64_t largest_piece(const struct evidence *e, const struct verdict *v)
{
	if (evidence_known(e->largest))
		return e->largest;
	if (!evidence_known(v->room))
		return e->largest_free;
	return max_u64(v->room, evidence_or_zero(e->largest_free));
}

static bool is_untold(const struct evidence *e, const struct verdict *v)
{
	return !e->joins && !evidence_known(e->largest) && !evidence_known(e->largest_free) && evidence_known(v->room) &&
	       evidence_or_zero(v->usable) > 0;
}

/* If the limit is only inferred, its room may be anything that did not suffice: then this is the most that is short. */
static uint64_t shortage(const struct evidence *e, const struct verdict *v)
{
	if (!evidence_known(v->need) || !evidence_known(v->room))
		return EVIDENCE_UNKNOWN;
	uint64_t have = sum(v->room, evidence_or_zero(v->usable));
	return v->need > have && !e->limit_inferred ? v->need - have : less(v->need, v->piece);
}

/* PyTorch does not join new memory with free pieces: if none of them is large enough, the driver must have all that the
 * request takes. */
static uint64_t missing_memory(const struct evidence *e, const struct verdict *v)
{
	bool adds_up = e->joins || e->expandable || !evidence_known(v->short_bytes) || v->piece >= v->need;
	return adds_up ? v->short_bytes : max_u64(v->short_bytes, less(v->need, v->room));
}

static bool leaks(const struct evidence_growth *g)
{
	return g->leak;
}

static bool overfills(const struct evidence_growth *g)
{
	return g->overfilled;
}

static uint64_t grown(const struct evidence *e, bool (*counts)(const struct evidence_growth *g))
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < e->growth_count; i++)
		if (counts(&e->growth[i]))
			bytes = sum(bytes, e->growth[i].live);
	return bytes;
}

const struct evidence_growth *verdict_leak(const struct evidence *e)
{
	const struct evidence_growth *most = NULL;
	for (unsigned i = 0; i < e->growth_count; i++)
		if (e->growth[i].leak && (!most || e->growth[i].live > most->live))
			most = &e->growth[i];
	return most;
}

double verdict_leak_rate(const struct evidence *e)
{
	double rate = 0;
	for (unsigned i = 0; i < e->growth_count; i++)
		rate += e->growth[i].leak && e->growth[i].per_step > 0 ? e->growth[i].per_step : 0;
	return rate;
}

/* Weights, their gradients and optimizer state, and KV caches have remedies of their own. */
static bool is_free_to_go(enum evidence_category category)
{
	return evidence_may_leak(category) && category != CATEGORY_GRADIENTS && category != CATEGORY_OPTIMIZER;
}

/* Weights do as one model after the other is loaded, or each layer as it is needed. */
static bool gets_larger(const struct evidence_growth *g)
{
	return !g->leak && !g->overfilled && (is_free_to_go(g->category) || g->category == CATEGORY_WEIGHTS);
}

/* What is copied into something larger with each step. */
static bool is_copied(const struct evidence_growth *g)
{
	return gets_larger(g) && g->category == CATEGORY_UNKNOWN;
}

const struct evidence_growth *verdict_larger(const struct evidence *e)
{
	const struct evidence_growth *most = NULL;
	for (unsigned i = 0; i < e->growth_count; i++)
		if (gets_larger(&e->growth[i]) && (!most || e->growth[i].live > most->live))
			most = &e->growth[i];
	return most;
}

static uint64_t count_weights(const struct evidence *e)
{
	uint64_t count = 0;
	for (unsigned i = 0; i < e->holder_count; i++)
		count += e->holders[i].category == CATEGORY_WEIGHTS ? e->holders[i].count : 0;
	return count;
}

static bool is_a_list(const struct evidence *e, const struct evidence_holder *h)
{
	return e->holder_count > 0 && h->site && h->category == CATEGORY_UNKNOWN && h->count >= LISTED &&
	       evidence_known(e->allocated) && h->bytes >= e->allocated / 4 * 3;
}

const struct evidence_holder *verdict_many(const struct evidence *e)
{
	const struct evidence_holder *most = e->holders;
	if (e->holder_count == 0 || !most->site || !is_free_to_go(most->category) || !evidence_known(e->allocated) ||
	    most->bytes < e->allocated / 2)
		return NULL;
	bool many = most->count >= MANY && most->count >= MANY_OF_EACH * count_weights(e);
	return many || is_a_list(e, most) ? most : NULL;
}

/* What a line holds now: its growth counts whole steps only. Where only live blocks have stacks, the holder without one
 * is a part of what grows. */
static uint64_t held_by(const struct evidence *e, const struct evidence_growth *g)
{
	for (unsigned i = 0; i < e->holder_count; i++)
		if (evidence_same_site(e->holders[i].site, g->site))
			return max_u64(e->holders[i].bytes, g->live);
	return g->live;
}

/* Whether the request is as large as what a growing line holds: the program puts together what a loop has listed, for
 * the first time. */
static bool is_put_together(const struct evidence *e)
{
	for (unsigned i = 0; i < e->growth_count && e->failed && evidence_known(e->requested); i++) {
		uint64_t held = e->growth[i].leak && !e->growth[i].goes_on ? held_by(e, &e->growth[i]) : 0;
		if (held && evidence_is_together(held, e->requested))
			return true;
	}
	return false;
}

/* What of a room can be had. */
static uint64_t in_granules(const struct evidence *e, uint64_t room)
{
	return e->joins && evidence_known(room) ? align_down(room, GRANULE) : room;
}

static void work_out(const struct evidence *e, struct verdict *v)
{
	v->need = evidence_known(e->needed) ? e->needed : e->requested;
	v->device_room = v->limit_room = EVIDENCE_UNKNOWN;
	if (evidence_known(e->device_free))
		v->device_room = in_granules(e, less(e->device_free, evidence_or_zero(e->withheld)));
	if (evidence_known(e->limit) && evidence_known(e->reserved))
		v->limit_room = in_granules(e, less(e->limit, evidence_known(e->limit_held) ? e->limit_held : e->reserved));
	v->room = min_u64(v->device_room, v->limit_room);
	v->usable = usable_memory(e);
	v->others = others_memory(e);
	v->piece = largest_piece(e, v);
	v->untold = is_untold(e, v);
	v->rounding = rounding_memory(e, v->need);
	v->short_bytes = e->failed ? shortage(e, v) : EVIDENCE_UNKNOWN;
	v->missing = missing_memory(e, v);
	v->together = is_put_together(e);
	v->caches = evidence_known(e->allocated) && evidence_or_zero(e->categories[CATEGORY_KV_CACHE]) > e->allocated / 2;
}

/* ---- the decision list: each judge answers for itself, about a request that failed ----------------------- */

/* How much free memory could have been joined with new memory. If the sum would have sufficed and did not, that is what
 * the largest piece has of it. */
static uint64_t joinable(const struct evidence *e, const struct verdict *v)
{
	uint64_t usable = evidence_or_zero(v->usable);
	if (!e->joins)
		return 0;
	return evidence_known(v->room) && sum(v->room, usable) >= v->need ? less(v->piece, v->room) : usable;
}

/* What the request could have had with `room` of new memory from the driver. */
static uint64_t within(const struct evidence *e, const struct verdict *v, uint64_t room)
{
	return sum(room, joinable(e, v));
}

/* Whether more than `bytes` is free in pieces that could not be joined. */
static bool is_more_scattered(const struct evidence *e, const struct verdict *v, uint64_t bytes)
{
	return e->joins && less(evidence_or_zero(v->usable), joinable(e, v)) > bytes;
}

uint64_t verdict_empty_device(const struct evidence *e)
{
	return less(e->device_total, sum(evidence_or_zero(e->context), evidence_or_zero(e->withheld)));
}

static bool is_too_large(const struct evidence *e, const struct verdict *v)
{
	return e->too_large || (evidence_known(e->device_total) && evidence_known(v->need) &&
	                        v->need > verdict_empty_device(e));
}

bool verdict_exceeds_limit(const struct evidence *e, const struct verdict *v)
{
	return evidence_known(e->limit) && !e->limit_inferred && v->need > e->limit;
}

/* Whether the limit, if there is one, leaves room for the request. */
static bool allows(const struct evidence *e, const struct verdict *v)
{
	return !evidence_known(v->limit_room) || within(e, v, v->limit_room) >= v->need;
}

static bool is_limit(const struct evidence *e, const struct verdict *v)
{
	if (e->limit_refused || verdict_exceeds_limit(e, v))
		return true;
	if (allows(e, v))
		return false;
	if (evidence_known(v->device_room))
		return within(e, v, v->device_room) >= v->need;
	return !evidence_known(e->device_total) || e->limit < e->device_total;
}

static bool is_other_process(const struct evidence *e, const struct verdict *v)
{
	if (!evidence_known(v->others) || !evidence_known(v->device_room))
		return false;
	uint64_t have = within(e, v, v->device_room);
	return have < v->need && sum(have, v->others) >= v->need && !is_more_scattered(e, v, v->others);
}

static bool is_leak(const struct evidence *e, const struct verdict *v)
{
	uint64_t bytes = grown(e, leaks);
	return bytes > 0 && !v->together && (!evidence_known(v->missing) || bytes >= v->missing);
}

/* Whether memory that others keep would have served: `total` bytes of it, the largest piece, and what of it could have
 * gone back to the driver. If the request's own memory is too little even as a sum, theirs has to make up for it; if
 * the sum would suffice, live blocks are in the way, and only pieces help. */
static bool would_serve(const struct evidence *e, const struct verdict *v, uint64_t total, uint64_t largest,
                        uint64_t releasable)
{
	if (!evidence_known(total) || total == 0)
		return false;
	if (evidence_known(largest) && largest >= v->need)
		return true;
	if (!evidence_known(v->room))
		return false;
	uint64_t have = sum(v->room, evidence_or_zero(v->usable));
	if (have < v->need)
		return sum(have, total) >= v->need;
	if (evidence_known(releasable))
		return sum(e->joins ? v->piece : v->room, releasable) >= v->need;
	return !e->joins && !evidence_known(largest) && sum(v->room, total) >= v->need;
}

static bool is_pool(const struct evidence *e, const struct verdict *v)
{
	return would_serve(e, v, e->free_pools, e->largest_pools, e->releasable_pools);
}

static uint64_t others_streams(const struct evidence *e)
{
	if (!evidence_known(e->free_streams) && !evidence_known(e->pending))
		return EVIDENCE_UNKNOWN;
	return sum(evidence_or_zero(e->free_streams), evidence_or_zero(e->pending));
}

/* If a piece of this stream would have sufficed and was not used, it came free while PyTorch waited for other streams:
 * PyTorch does not look again. */
static bool is_other_stream(const struct evidence *e, const struct verdict *v)
{
	if (!e->joins && evidence_known(e->largest_free) && e->largest_free >= v->need)
		return true;
	return would_serve(e, v, others_streams(e), e->largest_streams, EVIDENCE_UNKNOWN);
}

/* The free memory that joining pieces would put to use. */
static uint64_t scattered(const struct evidence *e, const struct verdict *v)
{
	return sum(evidence_or_zero(v->usable), evidence_or_zero(e->free_streams));
}

static bool is_fragmented(const struct evidence *e, const struct verdict *v)
{
	uint64_t pieces = evidence_or_zero(v->usable);
	return pieces > 0 && evidence_known(v->room) && sum(v->room, pieces) >= v->need && v->room < v->need &&
	       !(evidence_known(e->largest_free) && e->largest_free >= v->need);
}

/* Without its rounding the request may fit into a piece. */
static bool is_rounding(const struct evidence *e, const struct verdict *v)
{
	if (v->rounding == 0 || !evidence_known(v->missing) || v->missing == 0)
		return false;
	uint64_t own = rounding_of_request(e, v->need);
	return v->rounding >= v->missing || (own > 0 && own >= less(v->need, v->piece));
}

/* The last judge: none before it has found a material reason. */
static bool is_full(const struct evidence *e, const struct verdict *v)
{
	(void)e;
	return evidence_known(v->room) && v->room < v->need && v->piece < v->need;
}

typedef bool judge(const struct evidence *e, const struct verdict *v);

static judge *const judges[] = {
	[VERDICT_TOO_LARGE] = is_too_large,
	[VERDICT_LIMIT] = is_limit,
	[VERDICT_OTHER_PROCESS] = is_other_process,
	[VERDICT_LEAK] = is_leak,
	[VERDICT_POOL] = is_pool,
	[VERDICT_OTHER_STREAM] = is_other_stream,
	[VERDICT_FRAGMENTED] = is_fragmented,
	[VERDICT_ROUNDING] = is_rounding,
	[VERDICT_FULL] = is_full,
};

static bool applies(const struct evidence *e, const struct verdict *v, enum verdict_kind kind)
{
	if (kind == VERDICT_LEAK)
		return is_leak(e, v);
	if (kind == VERDICT_TOO_LARGE && e->too_large)
		return true;
	return e->failed && evidence_known(v->need) && judges[kind](e, v);
}

static bool has_piece(const struct verdict *v, uint64_t largest)
{
	return evidence_known(largest) && largest >= v->need;
}

/* How much pools or other streams keep that would have served. */
static uint64_t kept_by_others(const struct evidence *e, const struct verdict *v)
{
	uint64_t pools = applies(e, v, VERDICT_POOL) ? e->free_pools : 0;
	uint64_t streams = applies(e, v, VERDICT_OTHER_STREAM) ? others_streams(e) : 0;
	return max_u64(evidence_or_zero(pools), evidence_or_zero(streams));
}

/* More gradients than all weights have are activations'. */
static uint64_t passing_gradients(const struct evidence *e)
{
	uint64_t weights = e->categories[CATEGORY_WEIGHTS];
	bool known = evidence_known(weights) && weights > 0;
	return known ? less(evidence_or_zero(e->categories[CATEGORY_GRADIENTS]), weights) : 0;
}

/* Whether it is told what most of live memory is for: a snapshot from before the failure had less. */
static bool tells_categories(const struct evidence *e)
{
	uint64_t told = 0;
	for (int i = 0; i < CATEGORY_COUNT; i++)
		told = sum(told, evidence_or_zero(e->categories[i]));
	return evidence_known(e->categories[CATEGORY_ACTIVATIONS]) && told >= evidence_or_zero(e->allocated) / 2;
}

/* Whether most of what is live comes and goes with the batch, or is copied into something larger with the steps. A text
 * does not tell: then what was asked for does, which in a backward pass is gradients. */
static bool is_mostly_passing(const struct evidence *e)
{
	static const enum evidence_category passing[] = { CATEGORY_ACTIVATIONS, CATEGORY_TEMPORARY, CATEGORY_KV_CACHE };
	uint64_t held = sum(grown(e, is_copied), passing_gradients(e));
	bool asked = e->category == CATEGORY_GRADIENTS;
	for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
		held = sum(held, evidence_or_zero(e->categories[passing[i]]));
		asked |= e->category == passing[i];
	}
	if (!tells_categories(e))
		return asked;
	return evidence_known(e->allocated) && held > e->allocated / 2;
}

/* The least that counts of free memory in pieces, or of what rounding takes. A model's weights, their gradients and the
 * state that an optimizer makes of them are asked for piece by piece: what serves one may not serve the next. */
static uint64_t least_scattered(const struct evidence *e)
{
	bool most = is_mostly_passing(e) || e->category == CATEGORY_OPTIMIZER || e->category == CATEGORY_WEIGHTS ||
	            e->category == CATEGORY_GRADIENTS;
	return evidence_or_zero(e->reserved) / (most ? SCATTERED : is_a_list(e, e->holders) ? SCATTERED_LIST : SHARE);
}

/* Whether a verdict that applies is about enough memory to be the one given. */
static bool is_material(const struct evidence *e, const struct verdict *v, enum verdict_kind kind)
{
	if (kind == VERDICT_OTHER_PROCESS)
		return v->others >= evidence_or_zero(e->device_total) / SHARE;
	uint64_t least = evidence_or_zero(e->reserved) / SHARE;
	if (kind == VERDICT_LEAK)
		return grown(e, leaks) >= kept_by_others(e, v) / BESIDE;
	if (kind == VERDICT_POOL)
		return has_piece(v, e->largest_pools) || e->free_pools >= least;
	if (kind == VERDICT_OTHER_STREAM)
		return has_piece(v, e->largest_streams) || has_piece(v, e->largest_free) ||
		       others_streams(e) >= (e->joins ? least : least_scattered(e));
	if (kind == VERDICT_FRAGMENTED)
		return v->usable >= least_scattered(e) && less(sum(v->room, v->usable), v->piece) >= least;
	if (kind == VERDICT_ROUNDING) {
		uint64_t own = rounding_of_request(e, v->need);
		return v->rounding >= least_scattered(e) ||
		       (own > SEGMENT && own >= evidence_or_zero(e->requested) / MUCH_ROUNDED);
	}
	return true;
}

/* Whatever else is the reason makes the device full, too, so `also` does not name that. */
static void judge_all(const struct evidence *e, struct verdict *v)
{
	for (int kind = 0; kind < VERDICT_UNKNOWN; kind++) {
		if (!applies(e, v, kind))
			continue;
		if (v->kind == VERDICT_UNKNOWN && is_material(e, v, kind))
			v->kind = kind;
		else if (kind != VERDICT_FULL)
			v->also[v->also_count++] = kind;
	}
}

/* ---- without a request ------------------------------------------------------------------------------- */

/* Shares: of the device, left at most; of reserved memory, free at least. */
enum { SCARCE = 16, MUCH = 8 };

/* A snapshot without a failure was mostly taken after one. If nearly all of a device of known size is reserved, memory
 * itself says what fills it. Whole free segments say nothing: the failed request's own have been freed since. */
static enum verdict_kind presumed_kind(const struct evidence *e)
{
	bool known = evidence_known(e->device_total) && evidence_known(e->reserved) && evidence_known(e->cached);
	if (e->failed || e->peak || e->source != EVIDENCE_PICKLE || !known || e->reserved == 0)
		return VERDICT_UNKNOWN;
	uint64_t much = e->reserved / MUCH;
	if (less(e->device_total, e->reserved) > e->device_total / SCARCE)
		return VERDICT_UNKNOWN;
	if (evidence_or_zero(e->free_pools) >= much)
		return VERDICT_POOL;
	if (evidence_or_zero(e->free_streams) >= much)
		return VERDICT_OTHER_STREAM;
	if (evidence_or_zero(e->free_partly) >= much)
		return VERDICT_FRAGMENTED;
	return e->cached < much ? VERDICT_FULL : VERDICT_UNKNOWN;
}

static void presume(const struct evidence *e, struct verdict *v)
{
	if (v->kind != VERDICT_UNKNOWN)
		return;
	v->kind = presumed_kind(e);
	v->presumed = v->kind != VERDICT_UNKNOWN;
}

/* ---- remedies --------------------------------------------------------------------------------------- */

static void add_remedy(struct verdict *v, enum remedy_kind kind, uint64_t bytes, bool enough)
{
	if (evidence_known(bytes) && bytes > 0)
		v->remedies[v->remedy_count++] =
			(struct verdict_remedy){.kind = kind, .bytes = bytes, .enough = enough, .lasts = VERDICT_LASTS};
}

/* Adds a remedy that suffices if it gives as much as was missing. */
static void add_at_least(struct verdict *v, enum remedy_kind kind)
{
	unsigned at = v->remedy_count;
	add_remedy(v, kind, v->missing, false);
	if (v->remedy_count > at)
		v->remedies[at].at_least = true;
}

/* Whether it would suffice if `bytes` less were in use. */
static bool covers(const struct verdict *v, uint64_t bytes)
{
	return evidence_known(v->missing) && evidence_known(bytes) && bytes >= v->missing;
}

/* Whether the request is for samples' gradients: a weight's gradient is never larger than all weights. */
static bool is_of_samples(const struct evidence *e)
{
	uint64_t weights = e->categories[CATEGORY_WEIGHTS];
	return e->category == CATEGORY_GRADIENTS && evidence_known(e->requested) && evidence_known(weights) &&
	       weights > 0 && e->requested > weights;
}

uint64_t verdict_scaling(const struct evidence *e)
{
	uint64_t activations = e->categories[CATEGORY_ACTIVATIONS];
	if (!evidence_known(activations))
		return EVIDENCE_UNKNOWN;
	bool scales = e->category == CATEGORY_ACTIVATIONS || e->category == CATEGORY_TEMPORARY || is_of_samples(e) ||
	              (e->category == CATEGORY_UNKNOWN && activations > 0);
	return sum(activations, scales ? evidence_or_zero(e->requested) : 0);
}

/* What the request is for; if that is unknown, what its line has allocated before. */
static enum evidence_category request_category(const struct evidence *e)
{
	enum evidence_category found = e->category;
	for (unsigned i = 0; i < e->holder_count && found == CATEGORY_UNKNOWN; i++)
		if (evidence_same_site(e->holders[i].site, e->site))
			found = e->holders[i].category;
	return found;
}

/* Whether one of the remedies so far suffices alone. */
static bool has_enough(const struct verdict *v)
{
	for (unsigned i = 0; i < v->remedy_count; i++)
		if (v->remedies[i].enough)
			return true;
	return false;
}

/* What a program may keep without need, if it is much. */
static void add_spare(const struct evidence *e, struct verdict *v, enum remedy_kind kind, uint64_t bytes)
{
	if (e->failed && evidence_known(bytes) && evidence_known(e->allocated) && bytes >= e->allocated / MUCH_SPARE)
		add_remedy(v, kind, bytes, covers(v, bytes));
}

/* A smaller batch would help for some steps only. */
static void add_growth(const struct evidence *e, struct verdict *v, uint64_t leak)
{
	uint64_t larger = grown(e, gets_larger);
	bool much = evidence_known(e->allocated) && larger >= e->allocated / MUCH_GROWN;
	if (e->failed && !leak && !v->together && much && covers(v, larger))
		add_remedy(v, REMEDY_GROWTH, larger, true);
}

static void add_fewer(const struct evidence *e, struct verdict *v, uint64_t leak)
{
	const struct evidence_holder *many = verdict_many(e);
	if (e->failed && !leak && !v->together && many && covers(v, many->bytes))
		add_remedy(v, REMEDY_FEWER, many->bytes, true);
}

/* With smaller batches, a list that is put together only has more parts. */
static void add_batch(const struct evidence *e, struct verdict *v)
{
	uint64_t scaling = verdict_scaling(e);
	enum evidence_category category = request_category(e);
	bool tokens = (v->caches || category == CATEGORY_KV_CACHE) && covers(v, e->categories[CATEGORY_KV_CACHE]);
	bool fixed = category == CATEGORY_OPTIMIZER || category == CATEGORY_WEIGHTS;
	bool enough = covers(v, scaling), last = v->kind != VERDICT_TOO_LARGE && !has_enough(v);
	bool offered = enough || last || !evidence_known(scaling);
	if (!e->failed || !evidence_known(v->missing) || fixed || tokens || v->together || !offered)
		return;
	if (evidence_known(scaling))
		add_remedy(v, REMEDY_BATCH, v->missing, enough);
	else
		add_at_least(v, REMEDY_BATCH);
}

/* A list that goes on growing, or a cache that holds most, would soon fill what a smaller batch leaves. */
static bool is_reason_of(const struct verdict *v, enum remedy_kind remedy)
{
	static const enum verdict_kind reasons[REMEDY_COUNT] = {  /* else VERDICT_TOO_LARGE, which has no remedy */
		[REMEDY_LIMIT] = VERDICT_LIMIT,
		[REMEDY_OTHER_PROCESS] = VERDICT_OTHER_PROCESS,
		[REMEDY_LEAK] = VERDICT_LEAK,
		[REMEDY_POOLS] = VERDICT_POOL,
		[REMEDY_STREAMS] = VERDICT_OTHER_STREAM,
		[REMEDY_JOIN] = VERDICT_FRAGMENTED,
		[REMEDY_ROUNDING] = VERDICT_ROUNDING,
		[REMEDY_OVERFILLED] = VERDICT_FULL,
		[REMEDY_ATTEMPT] = VERDICT_FULL,
		[REMEDY_PASSES] = VERDICT_FULL,
		[REMEDY_LOADED] = VERDICT_FULL,
		[REMEDY_GROWTH] = VERDICT_FULL,
		[REMEDY_FEWER] = VERDICT_FULL,
		[REMEDY_BATCH] = VERDICT_FULL,
		[REMEDY_KV_CACHE] = VERDICT_FULL,
	};
	bool counts = remedy != REMEDY_KV_CACHE || v->caches;
	return counts && v->kind != VERDICT_TOO_LARGE && reasons[remedy] == v->kind;
}

/* The remedy that gives back memory of the request's category; REMEDY_COUNT: none. */
static enum remedy_kind remedy_of_request(const struct evidence *e)
{
	switch (request_category(e)) {
	case CATEGORY_ACTIVATIONS:
		return REMEDY_CHECKPOINT;
	case CATEGORY_OPTIMIZER:
		return REMEDY_OFFLOAD_OPTIMIZER;
	case CATEGORY_WEIGHTS:
		return REMEDY_OFFLOAD_WEIGHTS;
	case CATEGORY_KV_CACHE:
		return REMEDY_KV_CACHE;
	default:
		return REMEDY_COUNT;
	}
}

/* Adds a remedy for a category, all or part of which the program could do without. If the source does not tell how much
 * there is, the request itself says that there is some. */
static void add_category(const struct evidence *e, struct verdict *v, enum remedy_kind kind, enum evidence_category c)
{
	if (evidence_known(e->categories[c]))
		add_remedy(v, kind, e->categories[c], covers(v, e->categories[c]));
	else if (e->failed && remedy_of_request(e) == kind)
		add_at_least(v, kind);
}

static bool is_of_category(enum remedy_kind kind)
{
	return kind >= REMEDY_CHECKPOINT && kind <= REMEDY_KV_CACHE;
}

static bool is_of_free(enum remedy_kind kind)
{
	return kind == REMEDY_STREAMS || kind == REMEDY_POOLS || kind == REMEDY_JOIN;
}

static bool comes_before(const struct verdict *v, enum remedy_kind own, const struct verdict_remedy *a,
                         const struct verdict_remedy *b)
{
	bool failed = evidence_known(v->short_bytes);  /* else none is known to be enough */
	bool reason_a = is_reason_of(v, a->kind) && (a->enough || !failed);
	bool reason_b = is_reason_of(v, b->kind) && (b->enough || !failed);
	if (reason_a != reason_b)
		return reason_a;
	bool enough_a = a->enough || a->at_least, enough_b = b->enough || b->at_least;
	if (enough_a != enough_b)
		return enough_a;
	/* If the device is full, what is free elsewhere is not the trouble, even if it would suffice once. */
	if (v->kind == VERDICT_FULL && is_of_free(a->kind) != is_of_free(b->kind))
		return is_of_free(b->kind);
	if (is_of_category(a->kind) && is_of_category(b->kind) && (a->kind == own || b->kind == own))
		return a->kind == own;
	return a->kind < b->kind;
}

static void sort_remedies(struct verdict *v, enum remedy_kind own)
{
	for (unsigned i = 1; i < v->remedy_count; i++) {
		struct verdict_remedy moved = v->remedies[i];
		unsigned at = i;
		for (; at > 0 && comes_before(v, own, &moved, &v->remedies[at - 1]); at--)
			v->remedies[at] = v->remedies[at - 1];
		v->remedies[at] = moved;
	}
}

/* Memory that is had once; other remedies change what the program goes on to take. */
static bool is_once(enum remedy_kind kind)
{
	return kind <= REMEDY_OTHER_PROCESS || kind == REMEDY_ROUNDING || kind == REMEDY_BATCH ||
	       kind == REMEDY_OFFLOAD_OPTIMIZER || kind == REMEDY_OFFLOAD_WEIGHTS;
}

/* Says how long the leaks leave each remedy. */
static void find_lasts(const struct evidence *e, struct verdict *v)
{
	double rate = v->together ? 0 : verdict_leak_rate(e);
	for (unsigned i = 0; i < v->remedy_count && rate > 0 && evidence_known(v->missing); i++) {
		struct verdict_remedy *r = &v->remedies[i];
		if (is_once(r->kind) && r->enough)
			r->lasts = (double)less(r->bytes, v->missing) / rate;
	}
}

/* Remedies against what would soon fill other memory, too, or fills it without need. */
static bool fills(enum remedy_kind kind)
{
	return kind == REMEDY_GROWTH || kind == REMEDY_FEWER || (kind >= REMEDY_ATTEMPT && kind <= REMEDY_LOADED);
}

static bool spares_use(enum remedy_kind kind)
{
	return kind >= REMEDY_OVERFILLED && kind != REMEDY_ROUNDING;
}

/* Where more is in use than is free, pieces are but half of the reason: that less be in use is the other. */
static bool is_other_half(const struct evidence *e, const struct verdict *v, enum remedy_kind kind)
{
	return v->kind == VERDICT_FRAGMENTED && spares_use(kind) && evidence_known(e->allocated) &&
	       evidence_known(e->reserved) && e->allocated > e->reserved / 2;
}

/* What may be better than the remedy that the verdict suggests, which will not last or is up to others: to fix a leak,
 * to bound what gets larger or drop what is kept without need, or a batch that is a little smaller. NULL: nothing. */
static const struct verdict_remedy *find_rival(const struct evidence *e, const struct verdict *v)
{
	bool others = v->kind == VERDICT_LIMIT || v->kind == VERDICT_OTHER_PROCESS;
	for (unsigned i = 1; i < v->remedy_count; i++) {
		const struct verdict_remedy *r = &v->remedies[i];
		if (r->kind == REMEDY_LEAK && r->enough)
			return r;
		if (fills(r->kind) && r->enough && v->kind != VERDICT_FULL)
			return r;
		if (r->enough && is_other_half(e, v, r->kind))
			return r;
		if (r->kind == REMEDY_BATCH && r->enough && others && r->bytes <= verdict_scaling(e) / LITTLE_SMALLER)
			return r;
	}
	return NULL;
}

static bool is_better(const struct evidence *e, const struct verdict *v, const struct verdict_remedy *rival,
                      const struct verdict_remedy *usual)
{
	if (rival->kind == REMEDY_BATCH && v->kind != VERDICT_FRAGMENTED)
		return verdict_scaling(e) > usual->bytes;
	return usual->lasts < LASTING || (usual->lasts < VERDICT_LASTS && usual->bytes < rival->bytes);
}

static void weigh(const struct evidence *e, struct verdict *v)
{
	const struct verdict_remedy *usual = &v->remedies[0], *found = find_rival(e, v);
	if (!found || !is_reason_of(v, usual->kind) || !usual->enough)
		return;
	struct verdict_remedy rival = *found;
	unsigned from = (unsigned)(found - v->remedies), to = is_better(e, v, &rival, usual) ? 0 : 1;
	memmove(&v->remedies[to + 1], &v->remedies[to], (from - to) * sizeof rival);
	v->remedies[to] = rival;
	v->choice = true;
}

static void find_remedies(const struct evidence *e, struct verdict *v)
{
	uint64_t streams = others_streams(e), leak = grown(e, leaks), overfilled = grown(e, overfills);
	bool needs = e->failed && evidence_known(v->need) && evidence_known(v->room);
	bool trims = needs && !e->joins && sum(v->room, evidence_or_zero(e->releasable)) >= v->need;
	/* What is missing is counted beyond all that can be returned and joined: each of these gives all, or nothing. */
	if (!e->failed || trims)
		add_remedy(v, REMEDY_TRIM, e->releasable, trims);
	add_remedy(v, REMEDY_STREAMS, streams, applies(e, v, VERDICT_OTHER_STREAM));
	add_remedy(v, REMEDY_POOLS, e->free_pools, applies(e, v, VERDICT_POOL));
	if (!e->joins && !e->expandable && needs && sum(v->room, scattered(e, v)) >= v->need)
		add_remedy(v, REMEDY_JOIN, scattered(e, v), true);
	if (applies(e, v, VERDICT_LIMIT))
		add_remedy(v, REMEDY_LIMIT, evidence_known(v->device_room) ? less(v->device_room, v->limit_room) :
		           v->missing, !evidence_known(v->device_room) || within(e, v, v->device_room) >= v->need);
	add_remedy(v, REMEDY_OTHER_PROCESS, v->others, applies(e, v, VERDICT_OTHER_PROCESS) && allows(e, v));
	if (!v->together)
		add_remedy(v, REMEDY_LEAK, leak, covers(v, leak));
	else
		overfilled = sum(overfilled, leak);  /* with fewer parts the whole is smaller, too */
	if (v->together || covers(v, overfilled))
		add_remedy(v, REMEDY_OVERFILLED, overfilled, true);
	add_growth(e, v, leak);
	add_fewer(e, v, leak);
	add_spare(e, v, REMEDY_ATTEMPT, e->kept_failed);
	if (!leak)
		add_spare(e, v, REMEDY_PASSES, e->kept_passes);
	add_spare(e, v, REMEDY_LOADED, e->loaded_twice);
	if (e->failed && is_rounding(e, v) && is_material(e, v, VERDICT_ROUNDING))
		add_remedy(v, REMEDY_ROUNDING, v->rounding, true);
	add_batch(e, v);
	add_category(e, v, REMEDY_CHECKPOINT, CATEGORY_ACTIVATIONS);
	add_category(e, v, REMEDY_OFFLOAD_OPTIMIZER, CATEGORY_OPTIMIZER);
	add_category(e, v, REMEDY_OFFLOAD_WEIGHTS, CATEGORY_WEIGHTS);
	add_category(e, v, REMEDY_KV_CACHE, CATEGORY_KV_CACHE);
	sort_remedies(v, remedy_of_request(e));
	find_lasts(e, v);
	weigh(e, v);
}

/* Whether short_bytes is only a bound. What the allocator has free counts as none in it if it is unknown. */
static bool is_bound(const struct evidence *e, const struct verdict *v)
{
	bool limit = e->limit_inferred && v->kind == VERDICT_LIMIT;
	bool pieces = v->untold && sum(v->room, v->usable) >= v->need;
	return evidence_known(v->short_bytes) && (limit || pieces || !evidence_known(v->usable));
}

void verdict_find(const struct evidence *e, struct verdict *v)
{
	memset(v, 0, sizeof *v);
	v->kind = VERDICT_UNKNOWN;
	work_out(e, v);
	judge_all(e, v);
	presume(e, v);
	v->short_at_most = is_bound(e, v);
	find_remedies(e, v);
}

/* ---- names ------------------------------------------------------------------------------------------ */

const char *verdict_name(enum verdict_kind kind)
{
	static const char *const names[VERDICT_COUNT] = {
		"too_large", "limit", "other_process", "leak", "pool", "other_stream", "fragmented", "rounding", "full",
		"unknown",
	};
	return names[kind];
}

const char *remedy_name(enum remedy_kind kind)
{
	static const char *const names[REMEDY_COUNT] = {
		"trim", "other_streams", "release_pools", "join_pieces", "raise_limit", "end_other_processes", "fix_leak",
		"collect_less", "drop_attempt", "drop_passes", "load_to_host", "avoid_rounding", "bound_growth", "keep_fewer",
		"smaller_batch",
		"checkpoint_activations", "offload_optimizer", "offload_weights", "shrink_kv_cache",
	};
	return names[kind];
}

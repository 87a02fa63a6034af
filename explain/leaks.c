/* SPDX-License-Identifier: Apache-2.0
 *
 * Each site's series at several widths, and what makes its growth suspect.
 */
#include "leaks.h"

#include <assert.h>
#include <string.h>

#include "bits.h"
#include "prng.h"
#include "trend.h"

enum {
	POINTS = TREND_POINTS_MAX,
	LEVELS = 6,
	FACTOR = 4,                /* a point is the least, or the most, of this many of the level below */
	HEADS = 256,               /* heads of lists in the table of sites */
	FILLS = 2,                 /* a list emptied so often will be once more, ... */
	FILLS_PART = 16,           /* ... if it holds less than this many times what it held */
	EARLY_STEPS = 16,          /* before these, growth that takes most of what is left is no suspect */
	LESS_KEPT = 4,             /* new allocations make at least such a part of growth that is kept */
	OF_A_PART = 4              /* a part of a model adds at most this many in one pass */
};

/* Bytes are kept in units, so that 32 bits reach 2 TiB. */
enum { UNIT = 512 };

/* The newest points of each level, the i-th at [i % POINTS], and the one that is being made. */
struct series {
	uint32_t points[LEVELS][POINTS];
	uint32_t count[LEVELS];    /* points so far */
	uint32_t part[LEVELS];
	/* The highest point before a fall by a fifth or more, and the highest since the last fall. Growth that only comes
	 * back to where it has been before is none. */
	uint32_t fell_from[LEVELS], most[LEVELS];
	struct leaks_fills fills[LEVELS];
	bool maxima;
};

struct entry {
	uint64_t site;
	uint32_t now, low;         /* low: the least since the newest step */
	uint32_t next;             /* the number of the next entry in the list, + 1; 0: none */
	uint32_t count, few;       /* allocations: now, and the fewest since the newest step */
	bool counted;
	struct series series, counts;
};

/* The end of a series, as one test looks at it. */
struct end {
	unsigned level;
	size_t points;
	struct trend trend;
};

/* An entry that grows steadily, and its longest end for which that is true. */
struct grower {
	const struct entry *entry;
	struct end end;
	double more;               /* allocations added over that end */
	bool kept;                 /* it has grown by more allocations, not by larger ones */
};

struct leaks {
	uint64_t steps;
	uint64_t capacity;         /* bytes; 0: not known */
	bool failed;
	uint32_t entries;
	uint32_t head[HEADS];      /* the number of each list's first entry, + 1; 0: none */
	struct entry entry[LEAKS_SITES];
	struct entry low, high;    /* of the heap; only `low` and `series` are used */
	struct entry rest;         /* what has no site, and the sites that are not followed */
	uint64_t unfollowed;       /* units of sites that are not followed, in this step */
	uint32_t least;            /* the least that a followed site held at the end of the newest step */
	bool told;                 /* leaks_all was called since the newest step */
	uint64_t times[POINTS];    /* [i % POINTS]: when step i ended */
	struct grower growers[LEAKS_SITES + 1];  /* the present question's, since stacks may be small */
};

/* ---- series ----------------------------------------------------------------------------------------- */

static uint32_t in_units(uint64_t bytes)
{
	return (uint32_t)min_u64((bytes + UNIT - 1) / UNIT, UINT32_MAX);
}

static uint32_t worse(const struct series *s, uint32_t a, uint32_t b)
{
	return (a > b) == s->maxima ? a : b;
}

bool leaks_is_emptied(uint64_t now, uint64_t most)
{
	return now < most / 8;
}

void leaks_note_emptied(struct leaks_fills *f, uint64_t from)
{
	if (from > 2 * f->from)
		f->count = 1;
	else if (from >= f->from / 2)
		f->count++;
	f->from = max_u64(f->from, from);
}

bool leaks_is_filled_anew(const struct leaks_fills *f, uint64_t now)
{
	return f->count >= FILLS && now < FILLS_PART * f->from;
}

static void note_fall(struct series *s, unsigned level, uint32_t value)
{
	if (value < s->most[level] - s->most[level] / 5) {
		if (leaks_is_emptied(value, s->most[level]))
			leaks_note_emptied(&s->fills[level], s->most[level]);
		s->fell_from[level] = s->fell_from[level] > s->most[level] ? s->fell_from[level] : s->most[level];
		s->most[level] = 0;
	}
	if (value > s->most[level])
		s->most[level] = value;
}

static void series_add(struct series *s, uint32_t value)
{
	for (unsigned level = 0; level < LEVELS; level++) {
		s->points[level][s->count[level] % POINTS] = value;
		s->count[level]++;
		note_fall(s, level, value);
		if (level + 1 == LEVELS)
			return;
		bool first = s->count[level] % FACTOR == 1;
		s->part[level + 1] = first ? value : worse(s, s->part[level + 1], value);
		if (s->count[level] % FACTOR)
			return;
		value = s->part[level + 1];
	}
}

/* The newest n points of a level; before the first a site held nothing. */
static void series_copy(const struct series *s, unsigned level, size_t n, double *out)
{
	size_t none = n > s->count[level] ? n - s->count[level] : 0;
	assert(n <= POINTS);
	for (size_t i = 0; i < n; i++)
		out[i] = i < none ? 0 : (double)s->points[level][(s->count[level] - n + i) % POINTS];
}

static size_t series_length(const struct series *s, unsigned level)
{
	return s->count[level] < POINTS ? s->count[level] : POINTS;
}

static uint64_t width(unsigned level)
{
	return (uint64_t)1 << 2 * level;
}

_Static_assert(FACTOR == 1 << 2, "width() says so");

/* ---- sites ------------------------------------------------------------------------------------------ */

size_t leaks_bytes(void)
{
	return sizeof(struct leaks);
}

struct leaks *leaks_start(void *memory)
{
	struct leaks *g = memory;
	memset(g, 0, sizeof *g);
	g->rest.site = LEAKS_REST;
	g->high.series.maxima = true;
	return g;
}

static uint32_t *head_of(struct leaks *g, uint64_t site)
{
	return &g->head[prng_mix(site) % HEADS];
}

static struct entry *find(struct leaks *g, uint64_t site)
{
	for (uint32_t i = *head_of(g, site); i; i = g->entry[i - 1].next)
		if (g->entry[i - 1].site == site)
			return &g->entry[i - 1];
	return NULL;
}

static void unlink_entry(struct leaks *g, struct entry *e)
{
	uint32_t *link = head_of(g, e->site), number = (uint32_t)(e - g->entry) + 1;
	while (*link != number)
		link = &g->entry[*link - 1].next;
	*link = e->next;
}

/* The entry that a site with so many units may take: a new one, or that of the site with the fewest; NULL: none. */
static struct entry *take(struct leaks *g, uint32_t units)
{
	if (g->entries < LEAKS_SITES)
		return &g->entry[g->entries++];
	if (units <= g->least)
		return NULL;
	struct entry *least = g->entry;
	for (uint32_t i = 1; i < LEAKS_SITES; i++)
		if (g->entry[i].now < least->now)
			least = &g->entry[i];
	if (least->now >= units)
		return NULL;
	unlink_entry(g, least);
	return least;
}

static struct entry *find_or_take(struct leaks *g, uint64_t site, uint32_t units)
{
	struct entry *e = find(g, site);
	if (e || units == 0)
		return e;
	e = take(g, units);
	if (!e)
		return NULL;
	*e = (struct entry){.site = site, .next = *head_of(g, site)};
	*head_of(g, site) = (uint32_t)(e - g->entry) + 1;
	return e;
}

void leaks_site(struct leaks *g, uint64_t site, uint64_t live_bytes)
{
	uint32_t units = in_units(live_bytes);
	struct entry *e = find_or_take(g, site, units);
	if (!e) {
		g->unfollowed += units;
		return;
	}
	e->now = units;
	if (units < e->low)
		e->low = units;
}

void leaks_count(struct leaks *g, uint64_t site, uint64_t live_allocations)
{
	struct entry *e = find(g, site);
	if (!e)
		return;
	e->count = (uint32_t)min_u64(live_allocations, UINT32_MAX);
	if (e->count < e->few)
		e->few = e->count;
	e->counted = true;
}

void leaks_all(struct leaks *g, uint64_t low_bytes, uint64_t high_bytes)
{
	uint32_t low = in_units(low_bytes), high = in_units(high_bytes);
	g->low.low = g->told && g->low.low < low ? g->low.low : low;
	g->high.low = g->told && g->high.low > high ? g->high.low : high;
	g->told = true;
}

void leaks_rest(struct leaks *g, uint64_t live_bytes)
{
	g->rest.now = in_units(live_bytes);
}

void leaks_room(struct leaks *g, uint64_t capacity_bytes)
{
	g->capacity = capacity_bytes;
}

void leaks_failed(struct leaks *g, bool failed)
{
	g->failed = failed;
}

uint64_t leaks_steps(const struct leaks *g)
{
	return g->steps;
}

void leaks_step(struct leaks *g, uint64_t time_ns)
{
	g->least = UINT32_MAX;
	for (uint32_t i = 0; i < g->entries; i++) {
		struct entry *e = &g->entry[i];
		g->least = e->now < g->least ? e->now : g->least;
		series_add(&e->series, e->low);
		e->low = e->now;
		series_add(&e->counts, e->few);
		e->few = e->count;
	}
	g->rest.low = (uint32_t)min_u64(g->rest.now + g->unfollowed, UINT32_MAX);
	series_add(&g->rest.series, g->rest.low);
	g->unfollowed = 0;
	series_add(&g->low.series, g->low.low);
	series_add(&g->high.series, g->high.low);
	g->told = false;
	g->times[g->steps % POINTS] = time_ns;
	g->steps++;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double smaller(double a, double b)
{
	return a < b ? a : b;
}

/* ---- the suspicion ---------------------------------------------------------------------------------- */

static double end_steps(const struct end *end)
{
	return (double)(end->trend.points * width(end->level));
}

/* Units per step. */
static double end_rate(const struct end *end)
{
	return end->trend.slope / (double)width(end->level);
}

static struct trend fit(const double *points, size_t count)
{
	return count < TREND_SECTIONS ? trend_of_few(points, count) : trend_fit(points, count);
}

/* Whether the heap as a whole grew meanwhile, as far as its own ups and downs let one see: memory that moves from one
 * site to another is no leak. */
static bool heap_agrees(const struct leaks *g, const struct end *end)
{
	double points[POINTS];
	series_copy(&g->low.series, end->level, end->points, points);
	struct trend all = fit(points, end->points);
	return all.rise + 3 * all.noise >= 0.5 * end->trend.rise;
}

static double median_of_three(const double *p)
{
	double low = smaller(p[0], p[1]), high = larger(p[0], p[1]);
	return larger(low, smaller(high, p[2]));
}

/* Spares most series the arithmetic: of five places, the last must be higher than the first, and all but two higher
 * than the one before. */
static bool may_grow(const double *points, size_t n)
{
	enum { PLACES = 5, LEAST = 3 * PLACES };
	if (n < LEAST)
		return points[n - 1] > points[0];
	double at[PLACES];
	int falls = 0;
	for (size_t i = 0; i < PLACES; i++) {
		at[i] = median_of_three(&points[i * (n - 3) / (PLACES - 1)]);
		falls += i > 0 && at[i] <= at[i - 1];
	}
	return at[PLACES - 1] > at[0] && falls <= 2;
}

/* Looks at the newest n points of a level. false: they do not grow steadily. */
static bool look(const struct leaks *g, const struct series *s, unsigned level, size_t n, struct end *end)
{
	double points[POINTS];
	series_copy(s, level, n, points);
	double newest = points[n - 1] > points[n - 2] ? points[n - 1] : points[n - 2];
	bool anew = leaks_is_filled_anew(&s->fills[level], (uint64_t)newest);
	if (newest <= 1.05 * s->fell_from[level] || anew || !may_grow(points, n))
		return false;
	*end = (struct end){.level = level, .points = n};
	end->trend = fit(points, n);
	return end->trend.grows && heap_agrees(g, end);
}

/* Looks from the longest end on, and skips the short ends of coarse levels: they are long ends of finer ones. */
static bool grows(const struct leaks *g, const struct series *s, struct end *longest)
{
	static const size_t lengths[] = {64, 56, 48, 40, 32, 24, 20, 16, 12, 8, 7, 6, 5, 4};
	enum { ALL = sizeof lengths / sizeof *lengths, FEW = 4, OF_COARSE = 6 };
	size_t of_finest = g->failed ? ALL : ALL - FEW;
	for (unsigned level = LEVELS; level-- > 0;)
		for (size_t i = 0; i < (level ? OF_COARSE : of_finest); i++)
			if (lengths[i] <= series_length(s, level) && look(g, s, level, lengths[i], longest))
				return true;
	return false;
}

/* Growth is kept if allocations grow steadily, too, or if new ones of the site's usual size make up much of it. */
static void judge_counts(struct grower *w)
{
	double points[POINTS], rise = w->end.trend.slope * w->end.trend.points;
	const struct entry *e = w->entry;
	w->kept = true;
	w->more = 0;
	if (!e->counted)
		return;
	series_copy(&e->counts, w->end.level, w->end.points, points);
	struct trend t = fit(points, w->end.points);
	w->more = larger(0, t.slope * t.points - 2 * t.noise);
	bool many = w->end.points >= TREND_SECTIONS;
	w->kept = t.grows || (many && w->more * e->now * LESS_KEPT >= rise * e->count);
}

static double units_left(const struct leaks *g)
{
	double used = (double)g->high.low, all = (double)(g->capacity / UNIT);
	return all > used ? all - used : 0;
}

/* Whether growth over so many steps matters, if all that is as old comes to `rate` units a step: because of what it has
 * added; */
static bool adds_much(const struct leaks *g, double steps, double rate)
{
	double now = (double)g->low.low, rise = rate * steps, before = now > rise ? now - rise : 0;
	if (g->failed)
		return rise >= now / 20;
	return steps >= LEAKS_STEPS && (rise >= before / 4 || (steps >= LEAKS_LONG_STEPS && rise >= now / 100));
}

/* or because of how little is left. */
static bool leaves_little(const struct leaks *g, double steps, double rate)
{
	double rise = rate * steps, left = units_left(g);
	if (!g->capacity || g->failed)
		return false;
	if (rise >= 1.5 * left && steps >= EARLY_STEPS)
		return rise >= (double)g->low.low / 20;
	return steps >= LEAKS_STEPS && rise >= left / 2;
}

/* Suspects first, then by bytes a step. */
static bool comes_before(const struct leaks_finding *a, const struct leaks_finding *b)
{
	if (a->suspect != b->suspect)
		return a->suspect;
	return a->bytes_per_step > b->bytes_per_step;
}

static size_t insert(struct leaks_finding *list, size_t count, size_t capacity, const struct leaks_finding *f)
{
	size_t i = count;
	while (i > 0 && comes_before(f, &list[i - 1]))
		i--;
	if (i == capacity)
		return count;
	size_t after = (count < capacity ? count : capacity - 1) - i;
	memmove(&list[i + 1], &list[i], after * sizeof *list);
	list[i] = *f;
	return count < capacity ? count + 1 : count;
}

static struct leaks_finding describe(const struct leaks *g, const struct grower *w, bool suspect)
{
	const struct trend *t = &w->end.trend;
	double steps = end_steps(&w->end), rise = end_rate(&w->end) * steps;
	uint64_t live = w->entry == &g->rest ? w->entry->low : w->entry->now;
	double rate = end_rate(&w->end), doubt = t->doubt / (double)width(w->end.level);
	double sure = rise / (rise + 4 * t->noise), lasted = steps / LEAKS_STEPS;
	return (struct leaks_finding){.site = w->entry->site,
	                              .suspect = suspect,
	                              .bytes_per_step = rate * UNIT,
	                              .bytes_per_step_low = larger(0, rate - doubt) * UNIT,
	                              .bytes_per_step_high = (rate + doubt) * UNIT,
	                              .bytes = (uint64_t)(rise * UNIT),
	                              .allocations_per_step = w->more / steps,
	                              .since_step = g->steps - (uint64_t)steps,
	                              .live = live * UNIT,
	                              .confidence = sure * (suspect || lasted > 1 ? 1 : lasted)};
}

/* Lists all that grow steadily. */
static size_t list_growers(struct leaks *g)
{
	struct grower *out = g->growers;
	size_t count = 0;
	for (uint32_t i = 0; i <= g->entries; i++) {
		const struct entry *e = i < g->entries ? &g->entry[i] : &g->rest;
		out[count].entry = e;
		if (grows(g, &e->series, &out[count].end))
			judge_counts(&out[count++]);
	}
	return count;
}

/* Whether one of the growers is a suspect: it is kept, it has a fair share in what has grown for as long, and that
 * matters. One that has not grown for long is none while others have and matter: little may be left because of them.
 * Nor does it count how little is left if a younger one grows far faster. */
static bool suspected(const struct leaks *g, const struct grower *list, size_t count, const struct grower *one)
{
	double together = 0, most = 0, fastest = 0, lasting = 0, rate = end_rate(&one->end), steps = end_steps(&one->end);
	for (size_t i = 0; i < count; i++) {
		double other = list[i].kept ? end_rate(&list[i].end) : 0, age = end_steps(&list[i].end);
		fastest = larger(fastest, other);
		if (age >= LEAKS_STEPS)
			lasting += other;
		if (age < smaller(steps, LEAKS_STEPS))
			continue;
		together += other;
		most = larger(most, other);
	}
	if (!one->kept)
		return false;
	bool lasts = adds_much(g, LEAKS_STEPS, lasting) || leaves_little(g, LEAKS_STEPS, lasting);
	if (steps < LEAKS_STEPS && !g->failed && lasts)
		return false;
	if ((steps < LEAKS_STEPS ? 1.5 : 4) * rate < most)
		return false;
	return adds_much(g, steps, together) || (leaves_little(g, steps, together) && 4 * rate >= fastest);
}

size_t leaks_findings(struct leaks *g, struct leaks_finding *out, size_t capacity)
{
	const struct grower *list = g->growers;
	size_t count = list_growers(g), found = 0;
	for (size_t i = 0; i < count && capacity; i++) {
		bool suspect = suspected(g, list, count, &list[i]);
		struct leaks_finding f = describe(g, &list[i], suspect);
		found = insert(out, found, capacity, &f);
	}
	return found;
}

/* ---- the forecast ----------------------------------------------------------------------------------- */

static double step_ns(const struct leaks *g)
{
	uint64_t n = g->steps < POINTS ? g->steps : POINTS;
	if (n < 2)
		return 0;
	uint64_t last = g->times[(g->steps - 1) % POINTS], first = g->times[(g->steps - n) % POINTS];
	return last > first ? (double)(last - first) / (double)(n - 1) : 0;
}

/* The sum of the suspects over the longest end that they share, and the most that the heap holds beside them. false:
 * there are none. */
static bool suspects_points(struct leaks *g, struct end *end, double *sum, double *beside)
{
	struct grower *list = g->growers;
	bool suspect[LEAKS_SITES + 1];
	size_t count = list_growers(g), kept = 0;
	for (size_t i = 0; i < count; i++)  /* each is judged by all of the list, which changes only then */
		suspect[i] = suspected(g, list, count, &list[i]);
	for (size_t i = 0; i < count; i++)
		if (suspect[i])
			list[kept++] = list[i];
	if (kept == 0)
		return false;
	*end = list[0].end;
	for (size_t i = 1; i < kept; i++)
		if (end_steps(&list[i].end) < end_steps(end))
			*end = list[i].end;
	memset(sum, 0, end->points * sizeof *sum);
	for (size_t i = 0; i < kept; i++) {
		series_copy(&list[i].entry->series, end->level, end->points, beside);
		for (size_t k = 0; k < end->points; k++)
			sum[k] += beside[k];
	}
	series_copy(&g->high.series, end->level, end->points, beside);
	for (size_t k = 0; k < end->points; k++)
		beside[k] -= sum[k];
	return true;
}

bool leaks_forecast(struct leaks *g, struct leaks_forecast *out)
{
	struct end end;
	struct trend_passage passage;
	double sum[POINTS], beside[POINTS];
	if (!g->capacity || !suspects_points(g, &end, sum, beside))
		return false;
	if (!trend_passes(sum, beside, end.points, (double)(g->capacity / UNIT), &passage))
		return false;
	double w = (double)width(end.level), ns = step_ns(g);
	*out = (struct leaks_forecast){.steps = passage.likely * w, .steps_low = passage.low * w,
	                                .steps_high = passage.high * w};
	out->ns = out->steps * ns;
	out->ns_low = out->steps_low * ns;
	out->ns_high = out->steps_high * ns;
	return true;
}

bool leaks_may_be_one_pass(uint64_t steps, double allocations_per_step, uint64_t alike)
{
	return (double)alike * OF_A_PART >= (double)steps * larger(1, allocations_per_step) && alike >= steps;
}

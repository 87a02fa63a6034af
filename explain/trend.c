/* SPDX-License-Identifier: Apache-2.0
 *
 * Trends: medians of sections, the slopes between them, and first passages.
 */
#include "trend.h"

#include <assert.h>
#include <string.h>

enum {
	SECTIONS = TREND_SECTIONS,
	STEPS = SECTIONS - 1,
	PAIRS = SECTIONS * STEPS / 2,
	STEPS_UP = 6               /* this many of STEPS must be real ones */
};

/* The least that a step from section to section, the last two steps, and the later half must rise, in parts of what
 * they would in a straight line. */
static const double real_step = 0.25, last_steps = 0.4, later_half = 0.75;

/* For normally distributed values: the standard deviation in median deviations; and the deviation of the median of n
 * of them in deviations of their mean. */
static const double median_deviation = 1.4826, median_spread = 1.2533;

/* ---- small statistics ------------------------------------------------------------------------------- */

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double smaller(double a, double b)
{
	return a < b ? a : b;
}

/* The library has no libm. */
static double root(double x)
{
	if (x <= 0)
		return 0;
	double y = x > 1 ? x : 1;
	for (double next = (y + x / y) / 2; next < y; next = (y + x / y) / 2)
		y = next;
	return y;
}

static void sort(double *v, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		double x = v[i];
		size_t k = i;
		for (; k > 0 && v[k - 1] > x; k--)
			v[k] = v[k - 1];
		v[k] = x;
	}
}

/* Sorts v. */
static double median(double *v, size_t n)
{
	sort(v, n);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* ---- sections --------------------------------------------------------------------------------------- */

struct sections {
	double at[SECTIONS];       /* medians */
	double slope;              /* per section, as are the next three */
	double early, late;        /* of the halves */
	double shake;
	size_t each;               /* points in a section */
	const double *points;      /* the first of SECTIONS * each */
};

/* The median of the slopes between all pairs of sections first .. first + n - 1. */
static double pairs_slope(const double *at, size_t first, size_t n)
{
	double slopes[PAIRS];
	size_t count = 0;
	for (size_t i = first; i < first + n; i++)
		for (size_t k = i + 1; k < first + n; k++)
			slopes[count++] = (at[k] - at[i]) / (double)(k - i);
	return median(slopes, count);
}

/* The deviation of the steps from a straight line through them: growth that speeds up is not shaky for that. */
static double steps_shake(const double *at)
{
	double mean = (at[STEPS] - at[0]) / STEPS, tilt = 0, places = 0, squares = 0;
	for (int i = 0; i < STEPS; i++) {
		double place = i - (STEPS - 1) / 2.0;
		tilt += place * (at[i + 1] - at[i]);
		places += place * place;
	}
	tilt /= places;
	for (int i = 0; i < STEPS; i++) {
		double off = at[i + 1] - at[i] - mean - tilt * (i - (STEPS - 1) / 2.0);
		squares += off * off;
	}
	return root(squares / (STEPS - 2));
}

static struct sections cut(const double *points, size_t count)
{
	assert(count >= SECTIONS && count <= TREND_POINTS_MAX);
	struct sections s = {.each = count / SECTIONS};
	s.points = points + count % SECTIONS;
	for (size_t i = 0; i < SECTIONS; i++) {
		double part[TREND_POINTS_MAX / SECTIONS];
		memcpy(part, s.points + i * s.each, s.each * sizeof *part);
		s.at[i] = median(part, s.each);
	}
	s.slope = pairs_slope(s.at, 0, SECTIONS);
	s.early = pairs_slope(s.at, 0, SECTIONS / 2);
	s.late = pairs_slope(s.at, SECTIONS / 2, SECTIONS / 2);
	s.shake = steps_shake(s.at);
	return s;
}

/* Where point i lies, in sections: the centre of section k is at k. */
static double position(const struct sections *s, size_t i)
{
	return ((double)i + 0.5) / (double)s->each - 0.5;
}

/* The value at a position on the straight lines that join the sections' medians. */
static double joined(const struct sections *s, double x)
{
	size_t i = x <= 0 ? 0 : (size_t)x;
	if (i > STEPS - 1)
		i = STEPS - 1;
	return s->at[i] + (s->at[i + 1] - s->at[i]) * (x - (double)i);
}

/* ---- does it grow? ---------------------------------------------------------------------------------- */

static double line_level(const struct sections *s)
{
	double levels[SECTIONS];
	for (size_t i = 0; i < SECTIONS; i++)
		levels[i] = s->at[i] - s->slope * (double)i;
	return median(levels, SECTIONS);
}

static double deviation(const struct sections *s, double level)
{
	double off[TREND_POINTS_MAX];
	size_t n = s->each * SECTIONS;
	for (size_t i = 0; i < n; i++) {
		off[i] = s->points[i] - (level + s->slope * position(s, i));
		off[i] = off[i] < 0 ? -off[i] : off[i];
	}
	return median_deviation * median(off, n);
}

/* Whether the newest points have fallen back behind the line, as they do soon after growth has stopped. */
static bool has_stopped(const struct sections *s, double level, double noise, double mean_step)
{
	double off[3];
	size_t n = s->each * SECTIONS;
	for (size_t i = 0; i < 3; i++)
		off[i] = s->points[n - 1 - i] - (level + s->slope * position(s, n - 1 - i));
	return median(off, 3) < -0.5 * mean_step - 3 * noise;
}

/* The noise from one point to the next: 0 for a series of a few jumps, which deviates much from a line. */
static double flicker(const struct sections *s)
{
	double step[TREND_POINTS_MAX], off[TREND_POINTS_MAX];
	size_t n = s->each * SECTIONS - 1;
	for (size_t i = 0; i < n; i++)
		off[i] = step[i] = s->points[i + 1] - s->points[i];
	double usual = median(off, n);
	for (size_t i = 0; i < n; i++)
		off[i] = step[i] > usual ? step[i] - usual : usual - step[i];
	return median_deviation * median(off, n) / root(2);
}

static bool grows(const struct sections *s, double level, double noise)
{
	const double *at = s->at;
	double rise = at[STEPS] - at[0], mean = rise / STEPS, spread = median_spread / root((double)s->each);
	if (rise <= 0 || s->slope <= 0 || rise < 6 * spread * noise || rise < 3 * noise)
		return false;
	double wobble = spread * flicker(s);  /* that of a section's median, if points flicker independently */
	unsigned up = 0;
	for (size_t i = 0; i < STEPS; i++)
		up += at[i + 1] - at[i] >= real_step * mean - root(2) * wobble;
	double early = at[3] - at[0], late = at[7] - at[4], last = at[7] - at[5];
	return up >= STEPS_UP && late >= later_half * early - 2 * wobble &&
	       last >= last_steps * 2 * mean - 2 * wobble && !has_stopped(s, level, noise, mean);
}

struct trend trend_fit(const double *points, size_t count)
{
	struct sections s = cut(points, count);
	double level = line_level(&s), noise = deviation(&s, level), each = (double)s.each;
	return (struct trend){.grows = grows(&s, level, noise),
	                      .slope = s.slope / each,
	                      .recent = s.late / each,
	                      .level = level + s.slope * position(&s, s.each * SECTIONS - 1),
	                      .rise = s.at[STEPS] - s.at[0],
	                      .noise = noise,
	                      .shake = s.shake,
	                      .doubt = 2 * s.shake / (root(STEPS) * each),
	                      .points = (unsigned)(s.each * SECTIONS)};
}

struct trend trend_of_few(const double *points, size_t count)
{
	assert(count >= TREND_FEW && count < TREND_SECTIONS);
	double steps[TREND_SECTIONS];
	size_t n = count - 1;
	for (size_t i = 0; i < n; i++)
		steps[i] = points[i + 1] - points[i];
	double usual = median(steps, n), rise = points[n] - points[0];
	return (struct trend){.grows = steps[0] > 0 && steps[0] >= usual / 2 && steps[n - 1] <= 2 * usual,
	                      .slope = rise / (double)n,
	                      .recent = rise / (double)n,
	                      .level = points[n],
	                      .rise = rise,
	                      .doubt = steps[n - 1] - steps[0],
	                      .points = (unsigned)count};
}

/* ---- first passages --------------------------------------------------------------------------------- */

/* How a series goes on: each point adds `step`, which itself becomes step * ratio + more. */
struct course {
	double level;              /* at the last point */
	double step, ratio, more;
};

/* How many points after the last one the series has passed the bound with this probability, if points lie off the
 * course as those in `off`, sorted, did. -1: not within `far`. */
static double passage(struct course c, const double *off, size_t n, double bound, double probability, double far)
{
	double unpassed = 1;
	for (double k = 1; k <= far; k++) {
		c.level += c.step;
		c.step = c.step * c.ratio + c.more;
		size_t below = n;
		while (below > 0 && c.level + off[below - 1] >= bound)
			below--;
		unpassed *= (double)below / (double)n;
		if (1 - unpassed >= probability)
			return k;
	}
	return -1;
}

/* The level at the last point of a curve with this slope there, by the sections of the later half. */
static double end_level(const struct sections *s, double slope, double bend)
{
	double levels[SECTIONS / 2], end = position(s, s->each * SECTIONS - 1);
	for (size_t i = 0; i < SECTIONS / 2; i++) {
		double back = end - (double)(i + SECTIONS / 2);
		levels[i] = s->at[i + SECTIONS / 2] + slope * back - bend * back * back / 2;
	}
	return median(levels, SECTIONS / 2);
}

static bool speeds_up(const struct sections *s)
{
	double gain = s->late - s->early;
	return gain > 1.5 * s->shake && gain > 0.03 * s->slope && s->early > 0;
}

/* How far slopes may be off over the next k sections, in parts of the slope. */
static double doubt(const struct sections *s, double slope, double k)
{
	double spread = 2.3 * s->shake * root(1.0 / STEPS + 1 / larger(k, 0.5));
	return smaller(0.7, larger(0.06, spread / slope));
}

struct courses {
	struct course slow, likely, fast;
};

static struct courses straight(const struct sections *s, double bound)
{
	double each = (double)s->each, level = end_level(s, s->slope, 0);
	double off = doubt(s, s->slope, (bound - level) / s->slope);
	double fast = larger(s->slope, s->late), slow = s->late > 0 ? smaller(s->slope, s->late) : s->slope / 2;
	struct courses c;
	c.likely = (struct course){level, s->slope / each, 1, 0};
	c.fast = (struct course){level, fast * (1 + off) / each, 1, 0};
	c.slow = (struct course){level, slow * (1 - off) / each, 1, 0};
	return c;
}

/* Slow: as fast as in the later half. Likely: the slope grows by as much as before. Fast: by the same factor. */
static struct courses bent(const struct sections *s, double bound)
{
	double each = (double)s->each, bend = (s->late - s->early) / (SECTIONS / 2);
	double slope = s->late + 2 * bend, level = end_level(s, slope, bend);
	double factor = root(root(s->late / s->early)), rate = 2 * (factor - 1) / (factor + 1);
	double off = doubt(s, slope, (bound - level) / slope);
	struct courses c;
	c.likely = (struct course){level, slope / each, 1, bend / (each * each)};
	c.fast = (struct course){level, s->late * factor * factor * (1 + off) / each, 1 + rate / each, 0};
	c.slow = (struct course){level, s->late * (1 - off / 2) / each, 1, 0};
	return c;
}

/* The slope per point in the later half; 0 if it falls. */
static double beside_slope(const double *beside, size_t each)
{
	struct sections s = cut(beside, SECTIONS * each);
	return larger(0, s.late / (double)each);
}

bool trend_passes(const double *points, const double *beside, size_t count, double bound, struct trend_passage *out)
{
	struct sections s = cut(points, count);
	double off[TREND_POINTS_MAX], all[TREND_POINTS_MAX], far = (double)TREND_FAR * (double)count;
	size_t n = s.each * SECTIONS, half = n / 2;
	if (s.slope <= 0 || s.late <= 0)
		return false;
	for (size_t i = 0; i < n; i++)
		all[i] = off[i] = s.points[i] - joined(&s, position(&s, i)) + beside[count - n + i];
	double *recent = &off[n - half];
	double usual = median(recent, half);
	sort(all, n);
	struct courses c = speeds_up(&s) ? bent(&s, bound - usual) : straight(&s, bound - usual);
	c.fast.step += beside_slope(beside + count % SECTIONS, s.each);
	out->likely = passage(c.likely, recent, half, bound, 0.5, far);
	out->low = passage(c.fast, all, n, bound, 0.03, far);
	out->high = passage(c.slow, recent, half, bound, 0.97, 4 * far);
	if (out->likely < 0 || out->low < 0)
		return false;
	/* Other memory does not stay as it is: allow a little more, mostly on the side where it hurts. */
	out->low = larger(0, smaller(out->low, out->likely) - 0.05 * out->likely - 1);
	out->high = out->high < 0 ? 4 * far : larger(out->high, out->likely) + 1;
	return true;
}

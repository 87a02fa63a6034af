/* SPDX-License-Identifier: Apache-2.0
 *
 * Trends of short series, by robust statistics: whether one grows steadily, how fast, and when it will pass a bound.
 *
 * A series is cut into eight sections of equal length, and each section counts by its median, so that a few outliers
 * move nothing. A series that grows steadily rises from nearly every section to the next, and still does in the last
 * ones; one that warms up, fills up, grows in a few jumps, or has stopped does not.
 */
#ifndef TRZ_EXPLAIN_TREND_H
#define TRZ_EXPLAIN_TREND_H

#include <stdbool.h>
#include <stddef.h>

enum { TREND_SECTIONS = 8, TREND_POINTS_MAX = 64, TREND_FEW = 4 };

struct trend {
	bool grows;                /* steadily, and still */
	double slope;              /* per point; Theil and Sen's: the median of the slopes between all sections */
	double recent;             /* that of the later half */
	double level;              /* of the line at the last point */
	double rise;               /* from the first section to the last */
	double noise;              /* standard deviation of points about the line, from the median deviation */
	double shake;              /* standard deviation of the steps between sections, less their own trend */
	double doubt;              /* two standard errors of the slope */
	unsigned points;
};

/* count: TREND_SECTIONS to TREND_POINTS_MAX. Sections are equal: the points left over at the start are dropped. */
struct trend trend_fit(const double *points, size_t count);

/* For TREND_FEW to TREND_SECTIONS - 1 points, which are too few for statistics: they grow if each is more than the one
 * before, by about as much. */
struct trend trend_of_few(const double *points, size_t count);

/* How many points after the last one the series passes a bound: `likely`, and between `low` and `high`, which is meant
 * to hold in 19 of 20 cases. */
struct trend_passage {
	double low, likely, high;
};

/* The bound applies to a point plus what is `beside` it. Growth that speeds up is taken to go on speeding up.
 * false: the series does not grow, or does not pass within TREND_FAR times the points that were seen. */
enum { TREND_FAR = 1000 };
bool trend_passes(const double *points, const double *beside, size_t count, double bound, struct trend_passage *out);

#endif

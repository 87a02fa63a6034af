/* SPDX-License-Identifier: Apache-2.0
 *
 * A cost table of the simulator (sim/costs/, whose first file explains the format) from the figures.
 *
 * It is made of means, since a table predicts sums; they leave out the slowest hundredth of the calls, when something
 * else had the processor. Calls on handles come from rounds of about 100. A call over a range costs `call_ns` once and
 * `handle_ns` for each handle: rounds of 1 and of 100 handles give both. Along the sizes the table takes the fewest
 * points from which straight lines come within 5 % of every size, and prints what remains.
 */
#include "gpu.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_POINTS = 8, MOST = 32 };  /* SIM_COST_POINTS of sim/sim_machine.h */

struct curve {
	unsigned count;
	double mib[MOST], ns[MOST];
};

/* Straight lines between some points of a curve, and what each MiB adds. */
struct fit {
	double call_ns, mib_ns, rest[MOST];
	bool kept[MOST];
	unsigned points;
};

struct text {
	char *at;
	size_t room;
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(t->at, t->room, format, arguments);
	va_end(arguments);
	size_t used = length < 0 ? 0 : (size_t)length < t->room ? (size_t)length : t->room - 1;
	t->at += used;
	t->room -= used;
}

/* ---- figures of a slot ---------------------------------------------------------------------------------- */

static const struct figure *find(const char *slot, const char *what, double mib, unsigned least, unsigned most)
{
	const struct figure *best = NULL;
	for (unsigned i = 0; i < results->figure_count; i++) {
		const struct figure *f = &results->figures[i];
		if (strcmp(f->slot, slot) == 0 && strcmp(f->what, what) == 0 && (mib < 0 || f->mib == mib) &&
		    f->live == 0 && f->handles >= least && f->handles <= most && (!best || f->handles > best->handles))
			best = f;
	}
	return best;
}

static void add_point(struct curve *c, double mib, double ns)
{
	if (c->count < MOST) {
		c->mib[c->count] = mib;
		c->ns[c->count++] = ns;
	}
}

static bool has_size(const struct curve *c, double mib)
{
	for (unsigned i = 0; i < c->count; i++)
		if (c->mib[i] == mib)
			return true;
	return false;
}

static void sort_curve(struct curve *c)
{
	for (unsigned i = 1; i < c->count; i++)
		for (unsigned k = i; k > 0 && c->mib[k - 1] > c->mib[k]; k--) {
			double mib = c->mib[k], ns = c->ns[k];
			c->mib[k] = c->mib[k - 1], c->ns[k] = c->ns[k - 1];
			c->mib[k - 1] = mib, c->ns[k - 1] = ns;
		}
}

/* One call for each handle: the cost by size, of the rounds with the most handles up to 100. */
static struct curve curve_of(const char *slot)
{
	struct curve c = {0};
	for (unsigned i = 0; i < results->figure_count; i++) {
		const struct figure *f = &results->figures[i];
		double whole = f->mib < 1 ? 0 : f->mib;
		if (strcmp(f->slot, slot) != 0 || f->what[0] || f->live || has_size(&c, whole))
			continue;
		const struct figure *best = find(slot, "", f->mib, 1, 100);
		if (best)
			add_point(&c, whole, best->ns.mean);
	}
	sort_curve(&c);
	return c;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* One call for a range: what a handle costs by size, and what the call adds (the median over the sizes). */
static struct curve curve_of_range(const char *slot, double *call_ns)
{
	struct curve c = {0};
	double many_ns[MOST], many[MOST], calls[MOST];
	for (unsigned i = 0; i < results->figure_count; i++) {
		const struct figure *f = &results->figures[i];
		if (strcmp(f->slot, slot) != 0 || strcmp(f->what, "range") != 0 || f->live || has_size(&c, f->mib))
			continue;
		const struct figure *least = find(slot, "range", f->mib, 1, 1), *most = find(slot, "range", f->mib, 2, 100);
		if (!least || !most || c.count == MOST)
			continue;
		many[c.count] = most->handles;
		many_ns[c.count] = most->ns.mean;
		calls[c.count] = (most->handles * least->ns.mean - most->ns.mean) / (most->handles - 1);
		add_point(&c, f->mib, 0);
	}
	if (c.count == 0)
		return c;
	qsort(calls, c.count, sizeof *calls, by_value);
	*call_ns = calls[c.count / 2] > 0 ? floor(calls[c.count / 2]) : 0;
	for (unsigned i = 0; i < c.count; i++)
		c.ns[i] = fmax((many_ns[i] - *call_ns) / many[i], 0);
	sort_curve(&c);
	return c;
}

/* ---- fitting -------------------------------------------------------------------------------------------- */

static double estimate(const struct curve *c, const struct fit *f, double mib)
{
	unsigned below = MOST, above = MOST;
	for (unsigned i = 0; i < c->count; i++) {
		if (!f->kept[i])
			continue;
		if (c->mib[i] <= mib)
			below = i;
		if (c->mib[i] >= mib && above == MOST)
			above = i;
	}
	below = below == MOST ? above : below;
	above = above == MOST ? below : above;
	double run = c->mib[above] - c->mib[below], part = run > 0 ? (mib - c->mib[below]) / run : 0;
	return f->rest[below] + part * (f->rest[above] - f->rest[below]) + f->mib_ns * mib;
}

static double error_at(const struct curve *c, const struct fit *f, unsigned i)
{
	return fabs(estimate(c, f, c->mib[i]) - c->ns[i]) / fmax(c->ns[i], 1);
}

/* What a MiB adds beyond the last point, as between the last two; no more than leaves every point above 0. */
static double slope_of(const struct curve *c)
{
	unsigned last = c->count - 1;
	double slope = last ? (c->ns[last] - c->ns[last - 1]) / (c->mib[last] - c->mib[last - 1]) : 0;
	for (unsigned i = 0; i < c->count; i++)
		if (c->mib[i] > 0)
			slope = fmin(slope, c->ns[i] / c->mib[i]);
	return slope > 0 ? floor(slope) : 0;
}

static struct fit fit_curve(const struct curve *c)
{
	struct fit f = {.mib_ns = slope_of(c)};
	for (unsigned i = 0; i < c->count; i++)
		f.rest[i] = round(c->ns[i] - f.mib_ns * c->mib[i]);
	f.kept[0] = f.kept[c->count - 1] = true;
	f.points = c->count > 1 ? 2 : 1;
	while (f.points < TABLE_POINTS) {
		unsigned worst = 0;
		for (unsigned i = 1; i < c->count; i++)
			if (error_at(c, &f, i) > error_at(c, &f, worst))
				worst = i;
		if (error_at(c, &f, worst) <= 0.05)
			break;
		f.kept[worst] = true;
		f.points++;
	}
	return f;
}

/* ---- writing -------------------------------------------------------------------------------------------- */

static void put_section(struct text *t, const char *slot, const struct curve *c, const struct fit *f)
{
	const char *between = "";
	bool flat = true;
	for (unsigned i = 0; i < c->count; i++)
		flat &= !f->kept[i] || f->rest[i] == f->rest[0];
	put(t, "[%s]\n", slot);
	if (f->call_ns > 0)
		put(t, "call_ns = %.0f\n", f->call_ns);
	put(t, "handle_ns = ");
	for (unsigned i = 0; i < c->count; i++) {
		if (!f->kept[i] || (flat && i > 0))
			continue;
		if (flat)
			put(t, "%.0f", f->rest[i]);
		else
			put(t, "%s%.0f:%.0f", between, c->mib[i], f->rest[i]);
		between = ", ";
	}
	put(t, "\n");
	if (f->mib_ns > 0)
		put(t, "mib_ns = %.0f\n", f->mib_ns);
}

/* The largest differences between the table and rounds of any number of handles. */
static void put_residuals(struct text *t, const char *slot, bool range, const struct curve *c, const struct fit *f)
{
	static const unsigned counts[] = {1, 10, 100, 1000};
	for (unsigned k = 0; k < 4; k++) {
		double worst = 0, at = 0, sum = 0;
		unsigned n = 0;
		for (unsigned i = 0; i < c->count; i++) {
			const unsigned least = counts[k] == 1 ? 1 : counts[k] / 10 + 1;
			const struct figure *x = find(slot, range ? "range" : "", c->mib[i], least, counts[k]);
			if (!x)
				continue;
			double handles = range ? x->handles : 1;
			double table = f->call_ns + handles * estimate(c, f, c->mib[i]), off = table / x->ns.mean - 1;
			sum += fabs(off);
			n++;
			if (fabs(off) > fabs(worst))
				worst = off, at = c->mib[i];
		}
		if (n)
			put(t, "#   %4u: %3.0f %%, at most %+.0f %% at %.0f MiB\n", counts[k], sum / n * 100, worst * 100, at);
	}
}

static void put_handles(struct text *t, const char *slot, bool range)
{
	double call_ns = 0;
	struct curve c = range ? curve_of_range(slot, &call_ns) : curve_of(slot);
	if (c.count == 0) {
		put(t, "\n# not measured: [%s]\n", slot);
		return;
	}
	struct fit f = fit_curve(&c);
	f.call_ns = call_ns;
	put(t, "\n# Table against measured, by handles:\n");
	put_residuals(t, slot, range, &c, &f);
	put_section(t, slot, &c, &f);
	if (strcmp(slot, "set_access") == 0)
		put(t, "device_percent = 100\n");
}

static void put_call(struct text *t, const char *slot, const char *what, const char *note)
{
	const struct figure *f = find(slot, what, -1, 1, UINT32_MAX);
	if (!f)
		put(t, "# not measured: [%s]\n", slot);
	else
		put(t, "%s[%s]\ncall_ns = %.0f\n", note, slot, f->ns.mean);
}

void cost_table_write(char *text, size_t size, const char *sources)
{
	struct text t = {text, size};
	put(&t, "# What driver calls cost on a GPU, as measured by device_figures. costs/a100.ini explains the format.\n#\n"
	        "# [measured] %s.\n"
	        "# Means of calls through driver_cuda, without the slowest hundredth. \"Table against measured\" gives\n"
	        "# the mean and the largest difference, for rounds of up to so many handles.\n"
	        "# [assumed] device_percent of set_access: one GPU cannot tell.\n", sources);
	put_handles(&t, "reserve", false);
	put_handles(&t, "unreserve", false);
	put_handles(&t, "create", false);
	put_handles(&t, "release", false);
	put_handles(&t, "map", false);
	put_handles(&t, "set_access", true);
	put_handles(&t, "unmap", true);
	put_handles(&t, "mem_alloc", false);
	put_handles(&t, "mem_free", false);
	put_handles(&t, "export_handle", false);
	put_handles(&t, "import_handle", false);
	put(&t, "\n# Calls without memory: on an idle device, except where a note says otherwise.\n");
	put_call(&t, "mem_info", "batch", "");
	put_call(&t, "event_create", "", "");
	put_call(&t, "event_destroy", "", "");
	put_call(&t, "event_record", "idle", "");
	put_call(&t, "context_record", "2 streams, idle", "# With two streams.\n");
	put_call(&t, "event_query", "not done", "# Of an event that has not completed.\n");
	put_call(&t, "event_sync", "done", "# Of an event that has completed.\n");
	put_call(&t, "stream_wait", "not done", "# For an event of another stream that has not completed.\n");
	put_call(&t, "stream_id", "", "");
	put_call(&t, "stream_capture", "", "");
	put_call(&t, "capture_mode", "", "");
}

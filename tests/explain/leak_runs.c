/* SPDX-License-Identifier: Apache-2.0
 *
 * What each kind of site holds at the end of a step.
 */
#include "leak_runs.h"

#include <math.h>

#include "prng.h"

double run_uniform(struct run *r)
{
	return (double)(prng_next(&r->random) >> 11) / 9007199254740992.0;
}

double run_normal(struct run *r)
{
	double sum = 0;
	for (int i = 0; i < 12; i++)
		sum += run_uniform(r);
	return sum - 6;
}

static int between(struct run *r, int low, int high)
{
	return low + (int)(run_uniform(r) * (high - low + 1));
}

static void make_leak(struct run *r, struct run_site *s, double rate)
{
	s->kind = (enum site_kind)between(r, SITE_LEAK, SITE_KINDS - 1);
	s->size = rate * r->base;
	s->begin = run_uniform(r) < 0.5 ? between(r, 0, 5) : between(r, 6, r->steps / 2);
	s->every = between(r, 2, 5);
	s->noise = s->kind == SITE_LEAK_NOISY ? run_uniform(r) * 0.08 * r->base : 0;
	s->length = r->steps - s->begin;
}

static void make_other(struct run *r, struct run_site *s)
{
	s->kind = (enum site_kind)between(r, 0, SITE_LEAK - 1);
	s->size = run_uniform(r) * (run_uniform(r) < 0.5 ? 0.1 : 0.6) * r->base;
	s->begin = run_uniform(r) < 0.5 ? between(r, 0, 5) : between(r, 6, r->steps * 2 / 3);
	s->every = between(r, 10, 200);
	s->length = between(r, 1, 140);
	s->noise = s->size * run_uniform(r) * 0.3;
	if (s->kind == SITE_WARM_UP)
		s->begin = 0, s->length = between(r, 1, 10);
	if (s->kind == SITE_EVALUATION)
		s->length = between(r, 1, s->every / 3);
}

struct run run_make(uint64_t seed, double rate, int steps)
{
	struct run r = {.random = seed * 2 + 1, .rate = rate, .steps = steps, .leak = -1};
	r.base = pow(2, 28 + 8 * run_uniform(&r));
	r.activations = r.base * run_uniform(&r) * 1.5;
	r.sites = between(&r, 3, RUN_SITES);
	r.site[0] = (struct run_site){.kind = SITE_WARM_UP, .size = r.base, .length = between(&r, 1, 4)};
	for (int i = 1; i < r.sites; i++)
		make_other(&r, &r.site[i]);
	double others = 0;
	for (int i = 1; i < r.sites; i++)
		others += r.site[i].size;
	r.capacity = r.base * (1.3 + 6 * run_uniform(&r)) + 1.5 * others + r.activations;
	if (rate > 0) {
		r.leak = between(&r, 1, r.sites - 1);
		r.site[r.leak] = (struct run_site){0};
		make_leak(&r, &r.site[r.leak], rate);
	}
	return r;
}

static double leaked(struct run *r, const struct run_site *s, int after)
{
	switch (s->kind) {
	case SITE_LEAK_RARE:
		return between(r, 1, s->every) == 1 ? s->size * s->every : 0;
	case SITE_LEAK_LENGTHS:
		return s->size * -log(1 - run_uniform(r));
	case SITE_LEAK_FASTER:
		return s->size * (1 + (double)after / s->length);
	default:
		return s->size;
	}
}

static double held(struct run *r, struct run_site *s, int step)
{
	int after = step - s->begin;
	if (after < 0)
		return 0;
	double part = fmin(1, (after + 1.0) / s->length);
	switch (s->kind) {
	case SITE_CONSTANT:
		return s->size;
	case SITE_WARM_UP:
	case SITE_FILLS_STRAIGHT:
	case SITE_STOPS:
		return s->size * part;
	case SITE_FILLS:
		return s->size * (1 - exp(-2.0 * after / s->length));
	case SITE_EVALUATION:
		return after % s->every < s->length ? s->size : 0;
	case SITE_EPOCH:
		return s->size * (after % s->length) / s->length;
	case SITE_LENGTHS:
		return fmax(0, s->size + s->noise * run_normal(r));
	case SITE_STAIRS:
		return s->size * floor(1 + fmin(3, (double)after / s->every)) / 4;
	case SITE_LOG:
		return s->size * log(1.0 + after) / log(1.0 + r->steps);
	default:
		s->sum += leaked(r, s, after);
		return fmax(0, s->sum + s->noise * (4 + run_normal(r)));
	}
}

void run_step(struct run *r, int step)
{
	r->low = 0;
	for (int i = 0; i < r->sites; i++) {
		r->site[i].live = floor(held(r, &r->site[i], step));
		r->low += r->site[i].live;
	}
	r->high = r->low + r->activations * (0.6 + 0.4 * run_uniform(r));
}

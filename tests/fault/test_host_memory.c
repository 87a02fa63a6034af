/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's memory runs out at every point where the heap asks for some: this file replaces alloc/ground/meta.c (the
 * linker then never needs that one) and refuses the n-th request.
 */
#include <stdio.h>
#include <stdlib.h>

#include "accounts.h"
#include "ground/meta.h"
#include "scenario.h"

/* ---- metadata memory that can be refused ------------------------------------------------------------- */

struct meta_chunk {
	_Alignas(64) struct meta_chunk *next;
	struct meta_chunk **link;
	size_t size;
};

static uint64_t countdown;      /* requests until one is refused; 0: none is */
static bool persistent;
static uint64_t refused;
static uint64_t left;           /* of the countdown, when the operation had ended */

static bool strikes(void)
{
	if (countdown == 0 || --countdown > 0)
		return false;
	countdown = persistent;
	refused++;
	return true;
}

bool meta_open(struct meta *m)
{
	m->chunks = NULL;
	atomic_init(&m->bytes, 0);
	atomic_init(&m->refused, 0);
	return !strikes();
}

void meta_close(struct meta *m)
{
	while (m->chunks)
		meta_free(m, m->chunks + 1);
}

void *meta_alloc(struct meta *m, size_t size)
{
	struct meta_chunk *c = strikes() ? NULL : aligned_alloc(64, align_up(sizeof *c + size, 64));
	if (!c) {
		atomic_fetch_add(&m->refused, 1);
		return NULL;
	}
	memset(c, 0, sizeof *c + size);
	*c = (struct meta_chunk){.next = m->chunks, .link = &m->chunks, .size = size};
	if (c->next)
		c->next->link = &c->next;
	m->chunks = c;
	atomic_fetch_add(&m->bytes, sizeof *c + size);
	return c + 1;
}

void meta_free(struct meta *m, void *p)
{
	if (!p)
		return;
	struct meta_chunk *c = (struct meta_chunk *)p - 1;
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	atomic_fetch_sub(&m->bytes, sizeof *c + c->size);
	free(c);
}

void node_pool_init(struct node_pool *p, struct meta *m, size_t node_size)
{
	*p = (struct node_pool){.meta = m, .node_size = align_up(node_size, 16)};
}

/* Few nodes at a time, so that there are many points to fail at. */
bool node_pool_reserve_slow(struct node_pool *p, size_t count)
{
	while (p->available < count) {
		char *node = meta_alloc(p->meta, p->node_size);
		if (!node)
			return false;
		node_pool_give(p, node);
	}
	return true;
}

/* ---- the sweep --------------------------------------------------------------------------------------- */

static char where[200];

static int tell_where(void **state)
{
	(void)state;
	countdown = 0;
	if (where[0])
		print_error("%s\n", where);
	return 0;
}

/* Whether the n-th request of the operation, or every one from it on, was met. */
static bool starve(const struct scenario *s, bool classic, bool for_good, uint64_t nth)
{
	struct stage g;
	snprintf(where, sizeof where, "%s%s: request %llu for host memory is refused%s", s->name,
	         classic ? ", without vmm" : "", (unsigned long long)nth, for_good ? ", and all after it" : "");
	countdown = 0;
	stage_open(&g, s, classic);
	refused = 0;
	persistent = for_good;
	countdown = nth;
	trz_status status = s->run(&g);
	left = countdown;
	countdown = 0;
	if (status != TRZ_OK && status != TRZ_ERROR_HOST_MEMORY && status != s->expected)
		fail_msg("gave %s: %s", trz_status_name(status), trz_last_error());
	stage_judge(&g, s, status);
	where[0] = '\0';
	return refused > 0;
}

/* How many requests the undisturbed operation makes. */
static uint64_t count_requests(const struct scenario *s, bool classic)
{
	starve(s, classic, false, UINT64_MAX);
	return UINT64_MAX - left;
}

static uint64_t sweep_one(const struct scenario *s, bool classic)
{
	uint64_t points = 0, stride = scenario_stride(s, count_requests(s, classic));
	for (int for_good = 0; for_good < 2; for_good++)
		for (uint64_t nth = 1; starve(s, classic, for_good, nth); nth += stride)
			points++;
	return points;
}

static void sweep(bool classic)
{
	uint64_t points = 0;
	FOR_SCENARIOS(i, s)
		if (!classic || !s->vmm_only)
			points += sweep_one(s, classic);
	print_message("%llu refused requests for host memory%s\n", (unsigned long long)points,
	              classic ? " without vmm" : "");
	assert_true(points > 0 || scenarios_are_chosen());
}

static void test_every_request_is_refused(void **state)
{
	(void)state;
	sweep(false);
}

static void test_every_request_is_refused_without_vmm(void **state)
{
	(void)state;
	sweep(true);
}

/* An argument: only scenarios whose names contain it. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_every_request_is_refused, tell_where),
		cmocka_unit_test_teardown(test_every_request_is_refused_without_vmm, tell_where),
	};
	if (argc > 1)
		scenario_choose(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

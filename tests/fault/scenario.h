/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations to disturb: each scenario prepares a heap and does one operation, a call of the interface or a few in a
 * row; the tests of this folder make it fail at every point where it can.
 */
#ifndef TRZ_TESTS_SCENARIO_H
#define TRZ_TESTS_SCENARIO_H

#include "stage.h"

/* `run` returns the operation's status: of several calls, that of the first that failed. */
struct scenario {
	const char *name;
	uint64_t capacity;           /* 0: 1 GiB */
	uint64_t withheld;           /* of it, what the device gives to nobody */
	const char *conf;            /* NULL: as by default */
	void (*prepare)(struct stage *);
	trz_status (*run)(struct stage *);
	const char *shows;           /* a statistic that the undisturbed operation raises: it went the way that it is to
	                              * test */
	void (*proof)(struct stage *);  /* asserts the same in another way; NULL: does not */
	trz_status expected;         /* what the undisturbed operation returns, */
	trz_status also;             /* and what a disturbed one may return besides what was injected */
	bool vmm_only;               /* says nothing about a heap of classic segments */
	bool old_driver;             /* one that has no events of whole contexts */
	bool two_contexts;           /* one that dies is not the end of the other */
	unsigned points;             /* so many are disturbed, evenly; 0: POINTS_OF_ONE */
};

struct scenarios {
	const struct scenario *list;
	size_t count;
};

extern const struct scenarios scenarios_first, scenarios_of_moves, scenarios_of_order, scenarios_of_pools,
                              scenarios_of_sharing, scenarios_of_telling;

/* The i-th of all; NULL: there are no more. */
const struct scenario *scenario_at(size_t i);

/* Chooses those whose names contain a text, at first all. */
void scenario_choose(const char *part);
bool scenario_is_chosen(const struct scenario *s);
bool scenarios_are_chosen(void);

#define FOR_SCENARIOS(i, s) \
	for (size_t i = 0; scenario_at(i); i++) \
		for (const struct scenario *s = scenario_at(i); s && scenario_is_chosen(s); s = NULL)

/* Which points of a scenario are disturbed, if it has so many: every so-manyth. */
enum { POINTS_OF_ONE = 150 };
uint64_t scenario_stride(const struct scenario *s, uint64_t points);

#endif

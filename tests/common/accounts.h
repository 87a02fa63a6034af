/* SPDX-License-Identifier: Apache-2.0
 *
 * Law L2 from the outside: the terms of a heap's balance, from its statistics.
 */
#ifndef TRZ_TESTS_ACCOUNTS_H
#define TRZ_TESTS_ACCOUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "terrazzo.h"

struct accounts {
	uint64_t reserved, requested, rounding, pending, cached, free_slots, idle, zombie;
	uint64_t allocations[2], allocated[2], requested_of[2];  /* [small, large] */
	uint64_t classic;
};

struct accounts accounts_read(trz_heap *heap);

/* reserved = requested + rounding + pending + cached + free slots + idle + zombie. */
bool accounts_balance(const struct accounts *a);

#endif

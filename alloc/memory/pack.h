/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing: places for blocks whose lives within a period are known, so that no two that live at the same time overlap.
 * The largest come first, the longest-lived of equals first, each in the smallest gap that those placed leave it
 * (best fit decreasing). Time is a circle: what lives across the end of the period meets what begins it. Pure.
 */
#ifndef TRZ_ALLOC_PACK_H
#define TRZ_ALLOC_PACK_H

#include <stddef.h>
#include <stdint.h>

struct piece {
	uint64_t size, place;        /* place: where it begins, or would best; PACK_NOWHERE: it has none */
	uint32_t begin, life;        /* in ticks: 0 <= begin < period, 0 < life <= period */
	uint32_t name;               /* the caller's */
};

#define PACK_NOWHERE UINT64_MAX

/* Places pieces [fixed, count) below `limit`, around the first `fixed` ones, which stay where they are. Those that have
 * a place keep it if it clashes with none before them; no place: there was no room below the limit. Reorders them.
 * `scratch` has room for as many. Takes the square of their number: 0.03 s for 5,000. */
void pack(struct piece *pieces, size_t fixed, size_t count, uint32_t period, uint64_t limit, struct piece *scratch);

#endif

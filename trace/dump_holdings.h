/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds a snapshot's live memory: blocks added up by call site, tag and category; those without a stack by size.
 */
#ifndef TRZ_TRACE_DUMP_HOLDINGS_H
#define TRZ_TRACE_DUMP_HOLDINGS_H

#include "dump_moment.h"
#include "dump_sites.h"

struct dump_holding {
	enum evidence_category category;
	const char *tag;           /* "": none */
	uint32_t stack;            /* of one of the blocks: all have the same site */
	uint32_t frame;            /* of the site; UINT32_MAX: no stack */
	uint64_t each;             /* without a stack: the size of each block */
	uint64_t bytes, count;     /* requested bytes, where known; blocks */
};

/* Most bytes first; free() the list. Errors: HOST_MEMORY. */
trz_status dump_holdings(const struct dump *d, const struct dump_moment *m, struct dump_holding **list, size_t *count);

/* "train.py:31 forward", "no call stack, blocks of 2.00 MiB" */
void dump_holding_text(const struct dump *d, const struct dump_holding *h, char text[DUMP_SITE_BYTES]);

#endif

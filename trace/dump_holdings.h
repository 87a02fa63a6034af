/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds a snapshot's live memory: added up by call site, tag and category; what has no stack by the size of each.
 */
#ifndef TRZ_TRACE_DUMP_HOLDINGS_H
#define TRZ_TRACE_DUMP_HOLDINGS_H

#include "dump_moment.h"
#include "dump_sites.h"

struct dump_holding {
	enum evidence_category category;
	const char *tag;           /* "": none */
	uint32_t stack;            /* one of those that were added up: all have its site */
	uint32_t frame;            /* of the site; UINT32_MAX: no stack */
	uint64_t each;             /* without a stack: the size of each */
	uint64_t bytes, count;     /* as requested, where that is known */
};

/* Most bytes first; free() frees the list. Errors: HOST_MEMORY. */
trz_status dump_holdings(const struct dump *d, const struct dump_moment *m, struct dump_holding **list, size_t *count);

/* "train.py:31 forward", "no call stack, blocks of 2.00 MiB" */
void dump_holding_text(const struct dump *d, const struct dump_holding *h, char text[DUMP_SITE_BYTES]);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The page as a file.
 */
#ifndef TRZ_CLI_PAGE_WRITE_H
#define TRZ_CLI_PAGE_WRITE_H

#include "page.h"

struct page_source {
	const char *title;         /* the file's name */
	const char *kind;          /* "a snapshot of terrazzo" */
	const char *verdict;       /* the report's text; NULL: none */
	bool by_events;            /* the axis that the page shows first */
};

/* Writes the page, whole or not at all. Errors: NOT_FOUND (the plotting library), IO, HOST_MEMORY. */
trz_status page_write(struct page_history *h, const struct page_source *from, const char *path);

#endif

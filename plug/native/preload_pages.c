/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots from which `terrazzo run --report` makes pages: each heap keeps a history with call stacks, and leaves a
 * file in the folder that TERRAZZO_PAGES names when it runs out of memory, and at its end. python/terrazzo/pages.py
 * does the same for PyTorch, and has the form of the names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload.h"
#include "rank.h"

enum { NAME_BYTES = 192 };  /* of a pattern (docs/options.md) */

/* RANK-PROCESS-DEVICE.json in the folder, as a pattern; false: an option has no room for it, or no such characters. */
static bool name_files(const char *folder, char name[NAME_BYTES])
{
	const char *rank = rank_text();
	bool is_number = *rank && rank[strspn(rank, "0123456789")] == '\0';
	size_t used = 0;
	for (; *folder && used < NAME_BYTES - 2; folder++) {
		if (*folder == '%')
			name[used++] = '%';
		name[used++] = *folder;
	}
	int more = snprintf(name + used, NAME_BYTES - used, "/%s-%%p-%%d.json", is_number ? rank : "none");
	return !*folder && more >= 0 && used + (size_t)more < NAME_BYTES && !strpbrk(name, ", ");
}

const char *preload_pages(void)
{
	static char config[2 * NAME_BYTES + 128];
	char name[NAME_BYTES];
	const char *folder = getenv("TERRAZZO_PAGES");
	if (!folder || !*folder)
		return NULL;
	if (!name_files(folder, name)) {
		fprintf(stderr, "terrazzo: no page: %s is too long, or has a comma or a blank; name another folder in TMPDIR\n",
		        folder);
		return NULL;
	}
	snprintf(config, sizeof config, "history:1048576,native_frames:on,oom_snapshots:1,oom_snapshot:%s,exit_snapshot:%s",
	         name, name);
	return config;
}

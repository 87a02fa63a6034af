/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz harness: any bytes as a log with out-of-memory errors in it.
 */
#include "corpus_main.h"

#include <stdlib.h>
#include <string.h>

#include "oom_report.h"
#include "oom_text.h"

enum { ERRORS_MAX = 8 };

static void require(bool condition)
{
	if (!condition)
		abort();
}

static bool count(void *owner, const char *text, size_t size)
{
	require(memchr(text, '\0', size) == NULL);
	*(size_t *)owner += size;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct evidence list[ERRORS_MAX];
	static struct verdict v;
	size_t errors, bytes = 0;
	trz_status status = oom_text_read("input", (const char *)data, size, list, ERRORS_MAX, &errors);
	require((status == TRZ_OK) == (errors > 0) && errors <= ERRORS_MAX);
	for (size_t i = 0; i < errors; i++) {
		verdict_find(&list[i], &v);
		require(oom_report_text(&list[i], &v, count, &bytes) && oom_report_json(&list[i], &v, count, &bytes));
	}
	require(errors == 0 || bytes > 0);
	return 0;
}

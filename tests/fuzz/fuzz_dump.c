/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz harness: any bytes as a memory snapshot. A snapshot that loads must be whole: blocks tile their segments, and
 * every index is valid. And the verdict on a failure must come out, whatever the history claims.
 */
#include "corpus_main.h"

#include <stdlib.h>
#include <string.h>

#include "dump_evidence.h"
#include "oom_report.h"

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_segment(const struct dump *d, const struct dump_segment *s)
{
	uint64_t at = s->address;
	require(s->first <= d->block_count && s->count <= d->block_count - s->first);
	for (size_t i = s->first; i < s->first + s->count; i++) {
		const struct dump_block *b = &d->blocks[i];
		require(b->address == at && b->size > 0 && b->requested <= b->size && b->stack < d->stack_count && b->tag);
		at += b->size;
	}
	require(at == s->address + s->size);
}

static bool count(void *owner, const char *text, size_t size)
{
	require(memchr(text, '\0', size) == NULL);
	*(size_t *)owner += size;
	return true;
}

static void tell(const struct evidence *e)
{
	static struct verdict v;
	size_t bytes = 0;
	verdict_find(e, &v);
	require(oom_report_text(e, &v, count, &bytes) && oom_report_json(e, &v, count, &bytes) && bytes > 0);
}

static bool adds_up(const struct evidence *e)
{
	return evidence_known(e->reserved) && e->reserved == e->allocated + e->pending + e->cached;
}

/* What is made of it, whatever it says. */
static void explain(const struct dump *d)
{
	static struct evidence e, fails;
	if (dump_evidence(d, "input", DUMP_ANY_DEVICE, &e, &fails) == TRZ_OK) {
		tell(&e);
		require(d->report || adds_up(&e));
	}
	if (dump_evidence_at_peak(d, "input", DUMP_ANY_DEVICE, &e) == TRZ_OK) {
		tell(&e);
		require(adds_up(&e));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dump d;
	if (dump_load_memory("input", data, size, &d) != TRZ_OK) {
		require(!d.segments && !d.texts);
		return 0;
	}
	for (size_t i = 0; i < d.segment_count; i++)
		check_segment(&d, &d.segments[i]);
	for (size_t i = 0; i < d.event_count; i++)
		require(d.events[i].stack < d.stack_count && d.events[i].tag);
	for (uint32_t i = 0; i < d.stack_count; i++)
		for (uint32_t level = 0; level < d.stacks[i].count; level++)
			require(dump_frame(&d, i, level)->file && dump_frame(&d, i, level)->name);
	explain(&d);
	dump_free(&d);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo's own snapshot of a failure tells the same as its report at the failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dump_evidence.h"
#include "oom_report.h"
#include "rig.h"
#include "verdict.h"

static char folder[] = "/tmp/terrazzo-own-XXXXXX";
static struct evidence e;
static struct verdict v;

static struct rig open_rig(uint64_t capacity, const char *more)
{
	char conf[256];
	snprintf(conf, sizeof conf, "oom_report:off,oom_snapshot:%s/s.json%s", folder, more);
	return rig_open(capacity, conf);
}

/* What the process itself would print, whole lines. */
struct page {
	char text[1 << 16];
	size_t used;
};

static bool to_page(void *user, const char *text, size_t size)
{
	struct page *page = user;
	assert_true(size < sizeof page->text - page->used);
	memcpy(page->text + page->used, text, size);
	page->used += size;
	page->text[page->used] = '\0';
	return true;
}

/* Up to the line that names the source. */
static void end_before_source(struct page *page)
{
	char *source = strstr(page->text, "\nsource: ");
	assert_non_null(source);
	source[1] = '\0';
}

/* Whether its device is told, as pages do, or not. */
static void explain(struct rig *r, size_t size, trz_stream stream)
{
	static struct page here, there;
	struct dump d;
	char path[128];
	void *p;
	here.used = 0;
	snprintf(path, sizeof path, "%s/s.json", folder);
	assert_int_not_equal(trz_alloc(r->heap, size, 0, stream, &p), TRZ_OK);
	assert_ok(trz_report(r->heap, TRZ_REPORT_FAILURE, to_page, &here));
	end_before_source(&here);
	assert_ok(dump_load(path, &d));
	assert_int_equal(dump_evidence(&d, path, 1, &e, NULL), TRZ_ERROR_NOT_FOUND);
	for (int device = DUMP_ANY_DEVICE; device <= 0; device++) {
		there.used = 0;
		assert_ok(dump_evidence(&d, path, device, &e, NULL));
		verdict_find(&e, &v);
		assert_true(oom_report_text(&e, &v, to_page, &there));
		end_before_source(&there);
		assert_string_equal(there.text, here.text);
	}
	dump_free(&d);
	unlink(path);
}

static void test_full(void **state)
{
	(void)state;
	struct rig r = open_rig(GIB(1), "");
	trz_set_tag("weights of \"it\"");
	void *p = rig_alloc(&r, MIB(700), NULL);
	trz_set_tag(NULL);
	explain(&r, MIB(600), NULL);
	assert_string_equal(verdict_name(v.kind), "full");
	assert_int_equal(e.requested, MIB(600));
	assert_string_equal(e.holders[0].tag, "weights of \"it\"");
	assert_int_equal(e.holders[0].bytes, MIB(700));
	rig_free(&r, p);
	rig_close(&r);
}

static void test_limit(void **state)
{
	(void)state;
	struct rig r = open_rig(GIB(4), ",limit:1GiB");
	void *p = rig_alloc(&r, MIB(700), NULL);
	explain(&r, MIB(600), NULL);
	assert_string_equal(verdict_name(v.kind), "limit");
	assert_int_equal(e.limit, GIB(1));
	rig_free(&r, p);
	rig_close(&r);
}

static void test_too_large(void **state)
{
	(void)state;
	struct rig r = open_rig(GIB(1), "");
	explain(&r, GIB(2), NULL);
	assert_string_equal(verdict_name(v.kind), "too_large");
	rig_close(&r);
}

/* A file whose report has been taken out tells what its memory and its history tell. */
static void test_without_a_report(void **state)
{
	(void)state;
	struct rig r = open_rig(GIB(1), "");
	assert_ok(trz_history_start(r.heap, 1000));
	void *p = rig_alloc(&r, MIB(700), NULL), *q;
	char path[128];
	struct dump d;
	assert_int_not_equal(trz_alloc(r.heap, MIB(600), 0, NULL, &q), TRZ_OK);
	snprintf(path, sizeof path, "%s/by-call.json", folder);
	assert_ok(trz_snapshot(r.heap, path));
	assert_ok(dump_load(path, &d));
	assert_null(d.report);
	assert_ok(dump_evidence(&d, path, DUMP_ANY_DEVICE, &e, NULL));
	dump_free(&d);
	verdict_find(&e, &v);
	assert_string_equal(verdict_name(v.kind), "full");
	assert_int_equal(e.requested, MIB(600));
	assert_int_equal(e.allocated, MIB(700));
	assert_true(e.joins && e.has_history && e.failed);
	unlink(path);
	snprintf(path, sizeof path, "%s/s.json", folder);
	unlink(path);
	rig_free(&r, p);
	rig_close(&r);
}

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_without_a_report),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

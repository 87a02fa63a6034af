/* SPDX-License-Identifier: Apache-2.0
 *
 * Device code: the reader finds in cubins, PTX and fatbins exactly the kernels, parameters and variables that went in,
 * and refuses damaged files with a text.
 */
#include "fatbin.h"

#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "image.h"
#include "testing.h"

static struct fatbin *open_image(const struct image *image, unsigned sm)
{
	struct fatbin *fatbin;
	assert_ok(fatbin_open(image->data, image->bytes, sm, &fatbin));
	return fatbin;
}

static struct image text_image(const char *text)
{
	struct image image = { 0 };
	image_append(&image, text, strlen(text));
	return image;
}

static const struct fatbin_kernel *kernel_of(struct fatbin *fatbin, const char *name)
{
	const struct fatbin_kernel *kernel;
	assert_ok(fatbin_kernel(fatbin, name, &kernel));
	assert_string_equal(kernel->name, name);
	return kernel;
}

static const struct fatbin_variable *variable_of(struct fatbin *fatbin, const char *name)
{
	const struct fatbin_variable *variable;
	assert_ok(fatbin_variable(fatbin, name, &variable));
	assert_string_equal(variable->name, name);
	return variable;
}

static void has_params(struct fatbin *fatbin, const char *name, uint32_t bytes, uint32_t count,
                       const struct kernel_param *list)
{
	const struct kernel_params *params = fatbin_params(fatbin, name);
	assert_non_null(params);
	assert_int_equal(params->count, count);
	assert_int_equal(params->bytes, bytes);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(params->list[i].offset, list[i].offset);
		assert_int_equal(params->list[i].size, list[i].size);
	}
}

#define HAS_PARAMS(fatbin, name, bytes, ...) \
	has_params(fatbin, name, bytes, LENGTH(((struct kernel_param[]){ __VA_ARGS__ })), \
	           (struct kernel_param[]){ __VA_ARGS__ })

/* Records stand in falling order, as ptxas writes them, and in the large form where one does not fit. */
static struct image cubin_with_params(void)
{
	struct cubin_maker m;
	struct image info = { 0 };
	cubin_begin(&m, 80);
	cubin_kernel(&m, "_Z4nonev", &info);
	info_value(&info, 0x19, 65);
	info_param(&info, 2, 64, 1);
	info_param(&info, 1, 8, 56);
	info_param(&info, 0, 0, 4);
	uint32_t threads[3] = { 16, 8, 2 };
	info_record(&info, 0x05, threads, sizeof threads);
	unsigned symbol = cubin_kernel(&m, "_Z5mixed", &info);
	image_free(&info);
	info_param_large(&info, 1, 30000, 8);
	info_param_large(&info, 0, 0, 30000);
	cubin_kernel(&m, "_Z5large", &info);
	image_free(&info);
	uint32_t facts[2] = { symbol, 77 };
	info_record(&info, 0x2f, facts, sizeof facts);
	facts[1] = 320;
	info_record(&info, 0x11, facts, sizeof facts);
	cubin_section(&m, ".nv.info", 0x70000000, 0, info.data, info.bytes);
	cubin_section(&m, ".nv.shared._Z5mixed", SHT_NOBITS, 2 + 1, NULL, 1280);
	image_free(&info);
	return cubin_end(&m);
}

static void test_cubin_params(void **state)
{
	(void)state;
	struct image cubin = cubin_with_params();
	struct fatbin *fatbin = open_image(&cubin, 0);
	has_params(fatbin, "_Z4nonev", 0, 0, NULL);
	HAS_PARAMS(fatbin, "_Z5mixed", 65, { 0, 4 }, { 8, 56 }, { 64, 1 });
	HAS_PARAMS(fatbin, "_Z5large", 30008, { 0, 30000 }, { 30000, 8 });
	const struct fatbin_kernel *mixed = kernel_of(fatbin, "_Z5mixed");
	assert_int_equal(mixed->registers, 77);
	assert_int_equal(mixed->local_bytes, 320);
	assert_int_equal(mixed->max_threads, 256);
	assert_int_equal(mixed->shared_bytes, 1280);
	const struct fatbin_kernel *large = kernel_of(fatbin, "_Z5large");
	assert_int_equal(large->registers, 0);
	assert_int_equal(large->max_threads, 0);
	assert_int_equal(large->shared_bytes, 0);
	assert_int_equal(large->constant_bytes, 0);
	struct fatbin_image image;
	assert_ok(fatbin_image(fatbin, &image));
	assert_false(image.ptx);
	assert_int_equal(image.sm, 80);
	assert_int_equal(image.kernel_count, 3);
	assert_int_equal(image.variable_count, 0);
	assert_string_equal(image.kernels[0].name, "_Z4nonev");
	assert_string_equal(image.kernels[2].name, "_Z5mixed");
	assert_null(fatbin_params(fatbin, "_Z5mixedv"));
	assert_text(trz_last_error(), "no kernel \"_Z5mixedv\" among the 3 of this image (cubin for sm_80)");
	fatbin_close(fatbin);
	image_free(&cubin);
}

/* A kernel whose parameters cannot be told stands in the list, and says why. */
static void test_cubin_params_not_known(void **state)
{
	(void)state;
	struct cubin_maker m;
	struct image info = { 0 };
	cubin_begin(&m, 75);
	m.abi = 7;
	cubin_kernel(&m, "bare", NULL);
	info_value(&info, 0x19, 16);
	cubin_kernel(&m, "size_only", &info);
	info_param(&info, 1, 0, 8);
	info_param(&info, 1, 8, 8);
	cubin_kernel(&m, "twice", &info);
	info_param(&info, 7, 16, 8);
	cubin_kernel(&m, "gap", &info);
	image_free(&info);
	info_param(&info, 0, 0, 0);
	cubin_kernel(&m, "no_bytes", &info);
	image_free(&info);
	struct image cubin = cubin_end(&m);
	struct fatbin *fatbin = open_image(&cubin, 75);
	static const char *const names[] = { "bare", "size_only", "twice", "gap", "no_bytes" };
	static const char *const reasons[] = { "no .nv.info", "not their places", "numbers", "numbers", "numbers" };
	for (size_t i = 0; i < LENGTH(names); i++) {
		assert_null(fatbin_params(fatbin, names[i]));
		assert_text(trz_last_error(), names[i]);
		assert_text(trz_last_error(), reasons[i]);
		assert_int_equal(kernel_of(fatbin, names[i])->params.count, 0);
	}
	struct fatbin_image image;
	assert_ok(fatbin_image(fatbin, &image));
	assert_int_equal(image.sm, 75);
	fatbin_close(fatbin);
	image_free(&cubin);
}

/* From sm_90 on the section counts the system's 1 KiB too. */
static void test_cubin_reserved_shared(void **state)
{
	(void)state;
	struct cubin_maker m;
	cubin_begin(&m, 90);
	cubin_kernel(&m, "a", NULL);
	cubin_kernel(&m, "b", NULL);
	cubin_section(&m, ".nv.shared.a", SHT_NOBITS, 1, NULL, 1024 + 128);
	cubin_section(&m, ".nv.constant3", SHT_NOBITS, 0, NULL, 80);
	struct image cubin = cubin_end(&m);
	struct fatbin *fatbin = open_image(&cubin, 90);
	assert_int_equal(kernel_of(fatbin, "a")->constant_bytes, 80);
	assert_int_equal(kernel_of(fatbin, "b")->constant_bytes, 80);
	assert_int_equal(kernel_of(fatbin, "a")->shared_bytes, 128);
	assert_int_equal(kernel_of(fatbin, "b")->shared_bytes, 0);
	fatbin_close(fatbin);
	image_free(&cubin);
}

static void test_cubin_variables(void **state)
{
	(void)state;
	struct cubin_maker m;
	static const uint32_t init[4] = { 0, 0, 11, 22 };
	cubin_begin(&m, 80);
	unsigned zero = cubin_section(&m, ".nv.global", SHT_NOBITS, 0, NULL, 4096);
	unsigned set = cubin_section(&m, ".nv.global.init", SHT_PROGBITS, 0, init, sizeof init);
	unsigned constant = cubin_section(&m, ".nv.constant3", SHT_PROGBITS, 0, init, sizeof init);
	unsigned other = cubin_section(&m, ".nv.constant4", SHT_PROGBITS, 0, init, sizeof init);
	cubin_symbol(&m, "managed", STT_OBJECT, 0x04, zero, 0, 8);
	cubin_symbol(&m, "cleared", STT_OBJECT, 0, zero, 8, 4000);
	cubin_symbol(&m, "set", STT_OBJECT, 0, set, 8, 8);
	cubin_symbol(&m, "set_to_zero", STT_OBJECT, 0, set, 0, 8);
	cubin_symbol(&m, "table", STT_OBJECT, 0, constant, 4, 12);
	cubin_symbol(&m, "elsewhere", STT_OBJECT, 0, SHN_UNDEF, 0, 8);
	cubin_symbol(&m, "of_the_compiler", STT_OBJECT, 0, other, 0, 8);
	cubin_symbol(&m, "helper", STT_FUNC, 0, set, 0, 8);
	struct image cubin = cubin_end(&m);
	struct fatbin *fatbin = open_image(&cubin, 80);
	assert_ok(fatbin_load(fatbin));
	memset(cubin.data, 0xff, cubin.bytes);
	assert_true(variable_of(fatbin, "managed")->managed);
	const struct fatbin_variable *v = variable_of(fatbin, "cleared");
	assert_true(v->bytes == 4000 && !v->initial && !v->managed && !v->constant);
	v = variable_of(fatbin, "set");
	assert_true(v->bytes == 8 && !v->constant);
	assert_memory_equal(v->initial, init + 2, 8);
	assert_null(variable_of(fatbin, "set_to_zero")->initial);
	v = variable_of(fatbin, "table");
	assert_true(v->bytes == 12 && v->constant);
	assert_memory_equal(v->initial, init + 1, 12);
	assert_error(fatbin_variable(fatbin, "elsewhere", &v), TRZ_ERROR_NOT_FOUND, "no variable \"elsewhere\"");
	struct fatbin_image image;
	assert_ok(fatbin_image(fatbin, &image));
	assert_int_equal(image.variable_count, 5);
	assert_int_equal(image.kernel_count, 0);
	fatbin_close(fatbin);
	image_free(&cubin);
}

static const char ptx_text[] =
	"\n// .entry in_a_comment()\n/*/ .entry in_another() { } */\n"
	".version 8.5\n.target sm_90a, debug\n.address_size 64\n"
	".file 1 \"/a { \\path\"\n"
	".visible .global .align 4 .b8 counter[40];\n"
	".global .attribute(.managed) .align 8 .f64 managed_one;\n"
	".extern .global .align 4 .b8 elsewhere[];\n"
	".extern .global .align 4 .u32 elsewhere2;\n"
	".const .align 16 .v4 .f32 table[2][3] = {{1, 2}, {3}}, second;\n"
	".extern .shared .align 16 .b8 dynamic[];\n"
	".func (.param .b32 r) helper (.param .b64 .ptr .global .align 4 p) { .reg .b32 %r<2>; { ret; } }\n"
	".entry declared(.param .u64 p);\n"
	".visible .entry _Z4nonev()\n{ ret; }\n"
	".entry bare { ret; }\n"
	".visible .entry _Z5mixed(\n"
	"\t.param .u8 a,\n\t.param .u16 b, // a comment, with (brackets\n\t.param .align 64 .b8 c[40],\n"
	"\t.param .u64 .ptr .global .align 1 d,\n\t.param .align 1 .b8 e[3],\n\t.param .v2 .f32 f,\n\t.param .f16 g\n)\n"
	".maxntid 16, 8\n.minnctapersm 2\n{\n\t.shared .align 4 .b8 s[128];\n\tmov.u32 %r1, {0};\n}\n"
	".entry required(.param .b32 x) .reqntid 32, 2, 3 { }\n"
	".section .debug_str { .b8 1, 2\n }\n";

static void test_ptx(void **state)
{
	(void)state;
	struct image text = text_image(ptx_text);
	struct fatbin *fatbin = open_image(&text, 90);
	struct fatbin_image image;
	assert_ok(fatbin_image(fatbin, &image));
	assert_true(image.ptx);
	assert_int_equal(image.sm, 90);
	assert_int_equal(image.kernel_count, 4);
	assert_int_equal(image.variable_count, 4);
	has_params(fatbin, "_Z4nonev", 0, 0, NULL);
	has_params(fatbin, "bare", 0, 0, NULL);
	HAS_PARAMS(fatbin, "_Z5mixed", 130, { 0, 1 }, { 2, 2 }, { 64, 40 }, { 104, 8 }, { 112, 3 }, { 120, 8 },
	           { 128, 2 });
	HAS_PARAMS(fatbin, "required", 4, { 0, 4 });
	assert_int_equal(kernel_of(fatbin, "_Z5mixed")->max_threads, 128);
	assert_int_equal(kernel_of(fatbin, "required")->max_threads, 192);
	assert_null(fatbin_params(fatbin, "declared"));
	assert_int_equal(variable_of(fatbin, "counter")->bytes, 40);
	assert_true(variable_of(fatbin, "managed_one")->managed);
	assert_true(variable_of(fatbin, "table")->bytes == 96 && variable_of(fatbin, "table")->constant);
	assert_int_equal(variable_of(fatbin, "second")->bytes, 16);
	fatbin_close(fatbin);
	/* Without a size it ends at its NUL. */
	assert_ok(fatbin_open(ptx_text, FATBIN_UNKNOWN_SIZE, 90, &fatbin));
	HAS_PARAMS(fatbin, "required", 4, { 0, 4 });
	fatbin_close(fatbin);
	image_free(&text);
}

static void refused(const struct image *image, trz_status status, const char *part)
{
	struct fatbin *fatbin;
	const struct fatbin_kernel *kernel;
	trz_status opened = fatbin_open(image->data, image->bytes, 80, &fatbin);
	if (opened != TRZ_OK) {
		assert_null(fatbin);
		assert_int_equal(opened, status);
		assert_text(trz_last_error(), part);
		return;
	}
	/* Each time anew. */
	assert_error(fatbin_load(fatbin), status, part);
	assert_error(fatbin_kernel(fatbin, "k", &kernel), status, part);
	assert_null(kernel);
	assert_null(fatbin_params(fatbin, "k"));
	struct fatbin_image view;
	assert_error(fatbin_image(fatbin, &view), status, part);
	assert_int_equal(view.kernel_count, 0);
	fatbin_close(fatbin);
}

static void test_bad_ptx(void **state)
{
	(void)state;
	static const struct {
		const char *text, *part;
	} cases[] = {
		{ "hello", "PTX line 1: PTX begins with .version, not hello" },
		{ ".version 8.0\n.entry", "line 2: an entry's name is expected, not the end" },
		{ ".version 8.0 .entry k(.param .u64 a", ") is expected, not the end" },
		{ ".version 8.0 .entry k(.param .u64 a)", "an entry's body is expected" },
		{ ".version 8.0 .entry k(.param .u64 a;", ") is expected, not ;" },
		{ ".version 8.0 .entry k(.param .what a) {}", "a type is expected, not .what" },
		{ ".version 8.0 .entry k(.param .b8 a[99999999999]) {}", "a smaller number" },
		{ ".version 8.0 .entry k(.param .b64 a[4294967295]) {}", "too large" },
		{ ".version 8.0 .entry k(.param .b8 a[]) {}", "a number is expected, not ]" },
		{ ".version 8.0 .entry k(.param .align 3 .b8 a[3]) {}", "power of two" },
		{ ".version 8.0 .entry k() { { }", "a closing bracket is missing" },
		{ ".version 8.0 .global .u32 a", "; is expected" },
		{ ".version 8.0 .global .u32 .b;", "a name is expected, not .b" },
		{ ".version 8.0 /* .entry k() {", NULL },
	};
	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct image text = text_image(cases[i].text);
		if (cases[i].part) {
			refused(&text, TRZ_ERROR_BAD_INPUT, cases[i].part);
		} else {
			struct fatbin *fatbin = open_image(&text, 80);
			assert_ok(fatbin_load(fatbin));
			fatbin_close(fatbin);
		}
		image_free(&text);
	}
}

/* Which of the entries is taken shows by its one kernel. */
static void chooses(const struct image *fatbin_bytes, unsigned sm, const char *kernel)
{
	struct fatbin *fatbin = open_image(fatbin_bytes, sm);
	struct fatbin_image image;
	assert_ok(fatbin_image(fatbin, &image));
	assert_int_equal(image.kernel_count, 1);
	assert_string_equal(image.kernels[0].name, kernel);
	fatbin_close(fatbin);
}

static void add_cubin(struct image *fatbin, unsigned sm, uint64_t flags, const char *kernel)
{
	struct image cubin = cubin_of_one(sm, kernel);
	fatbin_add(fatbin, ENTRY_CUBIN, sm, flags, &cubin, 0);
	image_free(&cubin);
}

static void add_ptx(struct image *fatbin, unsigned sm, const char *text)
{
	struct image ptx = text_image(text);
	fatbin_add(fatbin, ENTRY_PTX, sm, 0, &ptx, 0);
	image_free(&ptx);
}

static void test_choice_by_architecture(void **state)
{
	(void)state;
	struct image fatbin = fatbin_empty();
	add_ptx(&fatbin, 90, ".version 8.0 .entry ptx90() {}");
	add_cubin(&fatbin, 80, 0, "cubin80");
	add_cubin(&fatbin, 86, 0, "cubin86");
	add_cubin(&fatbin, 90, 0, "cubin90");
	add_cubin(&fatbin, 90, ENTRY_ONE_SM, "cubin90a");
	add_cubin(&fatbin, 103, ENTRY_ONE_SM, "cubin103a");
	chooses(&fatbin, 80, "cubin80");
	chooses(&fatbin, 87, "cubin86");
	chooses(&fatbin, 90, "cubin90a");
	chooses(&fatbin, 100, "ptx90");
	chooses(&fatbin, 103, "cubin103a");
	chooses(&fatbin, 107, "ptx90");
	chooses(&fatbin, 75, "cubin103a");  /* nothing that a driver would take: the newest */
	chooses(&fatbin, 0, "cubin103a");
	image_free(&fatbin);
	fatbin = fatbin_empty();
	add_ptx(&fatbin, 90, ".version 8.0 .entry ptx90() {}");
	chooses(&fatbin, 0, "ptx90");
	chooses(&fatbin, 80, "ptx90");
	image_free(&fatbin);
}

static void test_packed_entries(void **state)
{
	(void)state;
	struct image cubin = cubin_with_params(), lz4 = image_lz4(&cubin), zstd = image_zstd(&cubin);
	assert_true(lz4.bytes < cubin.bytes && zstd.bytes < cubin.bytes);
	for (int i = 0; i < 2; i++) {
		struct image bytes = fatbin_empty();
		fatbin_add(&bytes, ENTRY_CUBIN, 80, i ? ENTRY_LZ4 : ENTRY_ZSTD, i ? &lz4 : &zstd, cubin.bytes);
		struct fatbin *fatbin = open_image(&bytes, 80);
		HAS_PARAMS(fatbin, "_Z5mixed", 65, { 0, 4 }, { 8, 56 }, { 64, 1 });
		fatbin_close(fatbin);
		image_free(&bytes);
		static const int64_t lies[] = { -1, 1, 1 << 20, 1ll << 40 };
		for (size_t j = 0; j < LENGTH(lies); j++) {
			bytes = fatbin_empty();
			fatbin_add(&bytes, ENTRY_CUBIN, 80, i ? ENTRY_LZ4 : ENTRY_ZSTD, i ? &lz4 : &zstd,
			           cubin.bytes + (uint64_t)lies[j]);
			refused(&bytes, TRZ_ERROR_BAD_INPUT, i ? "packed by LZ4 do not unpack" : "packed by zstd do not unpack");
			image_free(&bytes);
		}
	}
	image_free(&cubin);
	image_free(&lz4);
	image_free(&zstd);
}

struct test_wrapper {
	uint32_t magic, version;
	const void *data, *more;
};

static void test_wrapper(void **state)
{
	(void)state;
	struct image bytes = fatbin_empty();
	add_cubin(&bytes, 80, 0, "inside");
	struct test_wrapper wrapper = { 0x466243b1, 1, bytes.data, NULL };
	struct fatbin *fatbin;
	assert_ok(fatbin_open(&wrapper, FATBIN_UNKNOWN_SIZE, 80, &fatbin));
	assert_non_null(kernel_of(fatbin, "inside"));
	fatbin_close(fatbin);
	assert_error(fatbin_open(&wrapper, sizeof wrapper, 80, &fatbin), TRZ_ERROR_BAD_INPUT, "address");
	assert_null(fatbin);
	wrapper.data = NULL;
	assert_error(fatbin_open(&wrapper, FATBIN_UNKNOWN_SIZE, 80, &fatbin), TRZ_ERROR_BAD_INPUT, "has no fatbin");
	assert_error(fatbin_open(NULL, 0, 80, &fatbin), TRZ_ERROR_INVALID_ARGUMENT, "NULL");
	fatbin_close(NULL);
	image_free(&bytes);
}

/* A cubin without a known size too. */
static void test_unknown_size(void **state)
{
	(void)state;
	struct image cubin = cubin_with_params();
	struct fatbin *fatbin;
	assert_ok(fatbin_open(cubin.data, FATBIN_UNKNOWN_SIZE, 80, &fatbin));
	assert_ok(fatbin_load(fatbin));
	image_free(&cubin);
	HAS_PARAMS(fatbin, "_Z5mixed", 65, { 0, 4 }, { 8, 56 }, { 64, 1 });
	fatbin_close(fatbin);
}

static void test_nothing_usable(void **state)
{
	(void)state;
	struct image bytes = fatbin_empty(), lto = text_image("intermediate code");
	refused(&bytes, TRZ_ERROR_NOT_SUPPORTED, "neither a cubin nor PTX");
	fatbin_add(&bytes, ENTRY_LTO, 80, 0, &lto, 0);
	refused(&bytes, TRZ_ERROR_NOT_SUPPORTED, "neither a cubin nor PTX");
	image_free(&bytes);
	image_append(&bytes, "\1\2\3\4\5", 5);
	refused(&bytes, TRZ_ERROR_BAD_INPUT, "begins with 0x4030201: neither");
	image_free(&bytes);
	bytes = cubin_of_one(80, "k");
	bytes.data[18] = 62;
	refused(&bytes, TRZ_ERROR_BAD_INPUT, "machine 62");
	image_free(&bytes);
	image_free(&lto);
}

/* Cut anywhere, an image is refused with a text; its copy ends where it ends. */
static void cut_everywhere(const struct image *whole)
{
	for (size_t bytes = 4; bytes < whole->bytes; bytes++) {
		struct image cut = { 0 };
		cut.data = malloc(bytes);
		assert_non_null(cut.data);
		cut.bytes = bytes;
		memcpy(cut.data, whole->data, bytes);
		refused(&cut, TRZ_ERROR_BAD_INPUT, "damaged or truncated");
		image_free(&cut);
	}
}

static void test_cut(void **state)
{
	(void)state;
	struct image cubin = cubin_with_params(), bytes = fatbin_empty(), zstd = image_zstd(&cubin);
	cut_everywhere(&cubin);
	fatbin_add(&bytes, ENTRY_CUBIN, 80, 0, &cubin, 0);
	fatbin_add(&bytes, ENTRY_CUBIN, 90, ENTRY_ZSTD, &zstd, cubin.bytes);
	cut_everywhere(&bytes);
	image_free(&bytes);
	image_free(&cubin);
	image_free(&zstd);
}

static void *look_up(void *argument)
{
	struct fatbin *fatbin = argument;
	uintptr_t wrong = 0;
	for (int i = 0; i < 100; i++) {
		const struct kernel_params *params = fatbin_params(fatbin, i % 2 ? "_Z5mixed" : "_Z5large");
		wrong += !params || params->count != (i % 2 ? 3 : 2);
	}
	return (void *)wrong;
}

static void test_threads(void **state)
{
	(void)state;
	struct image cubin = cubin_with_params();
	for (int round = 0; round < 20; round++) {
		struct fatbin *fatbin = open_image(&cubin, 80);
		pthread_t threads[4];
		for (size_t i = 0; i < LENGTH(threads); i++)
			assert_int_equal(pthread_create(&threads[i], NULL, look_up, fatbin), 0);
		for (size_t i = 0; i < LENGTH(threads); i++) {
			void *wrong;
			assert_int_equal(pthread_join(threads[i], &wrong), 0);
			assert_null(wrong);
		}
		fatbin_close(fatbin);
	}
	image_free(&cubin);
}

/* Names sort and are found however many there are. */
static void test_many_kernels(void **state)
{
	(void)state;
	struct cubin_maker m;
	cubin_begin(&m, 80);
	struct image info = { 0 };
	char name[300];
	for (uint16_t i = 0; i < 2000; i++) {
		snprintf(name, sizeof name, "k%u_%.*s", (i * 7919u) % 2000, i % 200, trz_status_text(TRZ_OK));
		image_free(&info);
		info_param(&info, 0, 8, (uint16_t)((i * 7919u) % 2000 + 1));
		cubin_kernel(&m, name, &info);
	}
	image_free(&info);
	struct image cubin = cubin_end(&m);
	struct fatbin *fatbin = open_image(&cubin, 80);
	for (unsigned i = 0; i < 2000; i++) {
		snprintf(name, sizeof name, "k%u_%.*s", (i * 7919u) % 2000, (int)i % 200, trz_status_text(TRZ_OK));
		HAS_PARAMS(fatbin, name, (i * 7919u) % 2000 + 9, { 8, (i * 7919u) % 2000 + 1 });
	}
	fatbin_close(fatbin);
	image_free(&cubin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cubin_params),
		cmocka_unit_test(test_cubin_params_not_known),
		cmocka_unit_test(test_cubin_reserved_shared),
		cmocka_unit_test(test_cubin_variables),
		cmocka_unit_test(test_ptx),
		cmocka_unit_test(test_bad_ptx),
		cmocka_unit_test(test_choice_by_architecture),
		cmocka_unit_test(test_packed_entries),
		cmocka_unit_test(test_wrapper),
		cmocka_unit_test(test_unknown_size),
		cmocka_unit_test(test_nothing_usable),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_many_kernels),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

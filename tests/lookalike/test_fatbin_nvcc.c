/* SPDX-License-Identifier: Apache-2.0
 *
 * nvcc's output for one program reads the same in every form that nvcc packs: parameters lie as C lays them out.
 * Skipped without nvcc.
 */
#include "fatbin.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "testing.h"

struct box {
	char a;
	double d[3];
	short s;
};

struct chest {
	char a[6000];
};

static const char program[] =
	"struct box { char a; double d[3]; short s; };\n"
	"struct chest { char a[6000]; };\n"
	"__device__ int counter[10]; __device__ int primes[4] = { 2, 3, 5, 7 };\n"
	"__constant__ double table[2] = { 1.5, 2.5 };\n"
	"extern \"C\" __global__ void none() {}\n"
	"extern \"C\" __global__ void mixed(char c, short s, int i, double *p, box b, const float *q, char last)\n"
	"{ __shared__ int sh[32]; sh[threadIdx.x] = i; __syncthreads();\n"
	"  p[0] = c + s + b.d[1] + q[0] + last + sh[31 - threadIdx.x] + counter[1] + primes[i] + table[i]; }\n"
	"extern \"C\" __global__ void __launch_bounds__(128) unused(int, void *, box, char) {}\n"
	"extern \"C\" __global__ void large(chest h, int *p) { p[0] = h.a[p[1]]; }\n"
	"template <typename T> __global__ void simple(T a, T *p) { p[0] = a; }\n"
	"template __global__ void simple<double>(double, double *);\n";

static char folder[] = "/tmp/trz_fatbin_XXXXXX";

static char *read_all(const char *path, size_t *bytes)
{
	FILE *from = fopen(path, "rb");
	if (!from)
		return NULL;
	fseek(from, 0, SEEK_END);
	*bytes = (size_t)ftell(from);
	rewind(from);
	char *data = malloc(*bytes);
	assert_non_null(data);
	assert_int_equal(fread(data, 1, *bytes, from), *bytes);
	fclose(from);
	return data;
}

static void layout_is(struct fatbin *fatbin, const char *name, uint32_t count, const struct kernel_param *list)
{
	const struct kernel_params *params = fatbin_params(fatbin, name);
	assert_non_null(params);
	assert_int_equal(params->count, count);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(params->list[i].offset, list[i].offset);
		assert_int_equal(params->list[i].size, list[i].size);
	}
	assert_int_equal(params->bytes, count ? list[count - 1].offset + list[count - 1].size : 0);
}

static void check_kernels(struct fatbin *fatbin)
{
	struct mixed {
		char c;
		short s;
		int i;
		double *p;
		struct box b;
		const float *q;
		char last;
	};
#define FIELD(type, member) { offsetof(type, member), sizeof(((type *)0)->member) }
	const struct kernel_param mixed[] = {
		FIELD(struct mixed, c), FIELD(struct mixed, s), FIELD(struct mixed, i),    FIELD(struct mixed, p),
		FIELD(struct mixed, b), FIELD(struct mixed, q), FIELD(struct mixed, last),
	};
	const struct kernel_param unused[] = { { 0, 4 }, { 8, 8 }, { 16, sizeof(struct box) }, { 56, 1 } };
	const struct kernel_param large[] = { { 0, sizeof(struct chest) }, { 6000, 8 } };
	const struct kernel_param simple[] = { { 0, 8 }, { 8, 8 } };
	layout_is(fatbin, "none", 0, NULL);
	layout_is(fatbin, "mixed", LENGTH(mixed), mixed);
	layout_is(fatbin, "unused", LENGTH(unused), unused);
	layout_is(fatbin, "large", LENGTH(large), large);
	layout_is(fatbin, "_Z6simpleIdEvT_PS0_", LENGTH(simple), simple);
}

static void check_image(const char *path, bool ptx, unsigned sm)
{
	size_t bytes = 0;
	char *data = read_all(path, &bytes);
	assert_non_null(data);
	struct fatbin *fatbin;
	struct fatbin_image image;
	const struct fatbin_kernel *kernel;
	const struct fatbin_variable *variable;
	assert_ok(fatbin_open(data, bytes, sm, &fatbin));
	assert_ok(fatbin_image(fatbin, &image));
	free(data);
	assert_int_equal(image.ptx, ptx);
	assert_int_equal(image.sm, sm);
	assert_int_equal(image.kernel_count, 5);
	assert_int_equal(image.variable_count, 3);
	check_kernels(fatbin);
	assert_ok(fatbin_kernel(fatbin, "unused", &kernel));
	assert_int_equal(kernel->max_threads, 128);
	assert_ok(fatbin_kernel(fatbin, "mixed", &kernel));
	assert_int_equal(kernel->shared_bytes, ptx ? 0 : 128);
	assert_true(ptx ? kernel->constant_bytes == 0 : kernel->constant_bytes >= 16);
	assert_true(ptx ? kernel->registers == 0 : kernel->registers >= 8);
	assert_ok(fatbin_variable(fatbin, "counter", &variable));
	assert_true(variable->bytes == 40 && !variable->constant && !variable->initial);
	assert_ok(fatbin_variable(fatbin, "table", &variable));
	assert_true(variable->bytes == 16 && variable->constant && !variable->initial == ptx);
	assert_ok(fatbin_variable(fatbin, "primes", &variable));
	const int primes[4] = { 2, 3, 5, 7 };
	if (!ptx)
		assert_memory_equal(variable->initial, primes, sizeof primes);
	fatbin_close(fatbin);
}

static void test_every_form(void **state)
{
	(void)state;
	static const struct {
		const char *options;
		bool ptx;
		unsigned sm;
	} forms[] = {
		{ "-cubin -arch=sm_80", false, 80 },
		{ "-cubin -arch=sm_90a", false, 90 },
		{ "-cubin -arch=sm_100", false, 100 },
		{ "-cubin -arch=sm_90 -rdc=true", false, 90 },
		{ "-ptx -arch=sm_80", true, 80 },
		{ "-fatbin -arch=sm_80", false, 80 },
		{ "-fatbin -arch=sm_80 --no-compress", false, 80 },
		{ "-fatbin -arch=sm_100 --compress-mode=size", false, 100 },
		{ "-fatbin -gencode arch=compute_80,code=compute_80", true, 80 },
		{ "-fatbin -gencode arch=compute_80,code=compute_80 --compress-mode=speed", true, 80 },
		{ "-fatbin -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90", false, 90 },
	};
	char path[64], command[512];
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/program.cu", folder);
	FILE *to = fopen(path, "w");
	assert_non_null(to);
	fputs(program, to);
	assert_int_equal(fclose(to), 0);
	size_t made = 0;
	for (size_t i = 0; i < LENGTH(forms); i++) {
		snprintf(command, sizeof command, "cd %s && nvcc %s -o image program.cu 2>log", folder, forms[i].options);
		if (system(command) != 0) {
			print_message("this nvcc does not make %s\n", forms[i].options);
			continue;
		}
		snprintf(path, sizeof path, "%s/image", folder);
		print_message("%s\n", forms[i].options);
		check_image(path, forms[i].ptx, forms[i].sm);
		made++;
	}
	snprintf(command, sizeof command, "rm -r %s", folder);
	assert_int_equal(system(command), 0);
	assert_true(made > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_form),
	};
	if (system("nvcc --version >/dev/null 2>&1") != 0)
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

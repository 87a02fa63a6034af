/* SPDX-License-Identifier: Apache-2.0
 *
 * That driver_cuda keeps the contract over the look-alike libcuda; and how driver_cuda loads a library. Each run is a
 * process of its own, since a library is loaded once: without arguments the program starts itself again for each
 * machine, with LD_LIBRARY_PATH on the look-alike ($TRZ_LOOKALIKE_DIR).
 */
#include "contract.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whether anyone still holds the primary context of device 0. */
static int primary_is_active(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	assert_non_null(library);
	int (*get_state)(int, unsigned *, int *) =
		(int (*)(int, unsigned *, int *))dlsym(library, "cuDevicePrimaryCtxGetState");
	unsigned flags = 0;
	int active = -1;
	assert_non_null(get_state);
	assert_int_equal(get_state(0, &flags, &active), 0);
	return active;
}

static int keep_contract(void)
{
	const trz_driver *driver = NULL;
	expect_ok(trz_driver_cuda(&driver));
	const struct contract_ops *ops = contract_cuda_ops();
	assert_non_null(ops);
	int failed = contract_run("driver_cuda over the look-alike", driver, ops, NULL);
	assert_false(primary_is_active());
	return failed;
}

/* Checks that loading fails with `status`, twice alike, and that the reason contains `words`. */
static int refuse(trz_status status, const char *words)
{
	const trz_driver *driver = NULL;
	for (int i = 0; i < 2; i++) {
		expect_status(trz_driver_cuda(&driver), status);
		assert_null(driver);
		assert_non_null(strstr(trz_last_error(), words));
	}
	return 0;
}

static int refuse_old_version(void)
{
	return refuse(TRZ_ERROR_NO_DRIVER, "11.1");
}

static int refuse_no_device(void)
{
	return refuse(TRZ_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE (100) from cuInit");
}

/* Tests nothing if the system has a real libcuda.so.1. */
static int refuse_no_library(void)
{
	if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
		return 0;
	return refuse(TRZ_ERROR_NO_DRIVER, "LD_LIBRARY_PATH");
}

/* Before CUDA 12 there are no stream ids: the handle stands in, and NULL and 1 are still one stream. */
static int number_streams_by_handle(void)
{
	const trz_driver *driver = NULL;
	trz_context context = NULL;
	uint64_t id = 0, legacy = 0, own = 0;
	expect_ok(trz_driver_cuda(&driver));
	expect_ok(driver->context_retain(driver->self, 0, NULL, &context));
	expect_ok(driver->stream_id(driver->self, context, NULL, &id));
	expect_ok(driver->stream_id(driver->self, context, (trz_stream)1, &legacy));
	expect_ok(driver->stream_id(driver->self, context, (trz_stream)2, &own));
	assert_true(id == 1 && legacy == 1);
	assert_true((own & 0xffffffff) == 2 && own >> 32 == (uint64_t)gettid());
	expect_ok(driver->stream_id(driver->self, context, (trz_stream)0x7f0000001230, &id));
	assert_true(id == 0x7f0000001230);
	expect_ok(driver->context_release(driver->self, 0, context));
	return 0;
}

/* Checks that a failure keeps the driver's own name for it. */
static int name_failures(void)
{
	const trz_driver *driver = NULL;
	const trz_tile_props props = {.device = 0};
	trz_handle handle = 0;
	expect_ok(trz_driver_cuda(&driver));
	assert_string_equal(driver->name, "cuda");
	assert_int_equal(driver->size, sizeof *driver);
	expect_status(driver->create(driver->self, &props, 1, &handle), TRZ_ERROR_INVALID_ARGUMENT);
	assert_string_equal(trz_driver_last_error(), "CUDA_ERROR_INVALID_VALUE (1) from cuMemCreate");
	trz_driver_note("%s", "of this thread's newest failure");
	assert_string_equal(trz_driver_last_error(), "of this thread's newest failure");
	return 0;
}

/* Which library each run gets, how its machine is set up, and what it does there. */
static const struct machine {
	const char *name;
	bool library;
	const char *variable, *value;
	int (*run)(void);
} machines[] = {
	{"plain", true, "TERRAZZO_SIM_MEMORY", "512M", keep_contract},
	{"no-vmm", true, "TERRAZZO_SIM_VMM", "no", keep_contract},
	{"old", true, "TERRAZZO_SIM_DRIVER_VERSION", "11020", number_streams_by_handle},
	{"two-devices", true, "TERRAZZO_SIM_DEVICES", "2", keep_contract},
	{"memory-context", true, "TERRAZZO_SIM_MEMORY_CONTEXT", "yes", keep_contract},
	{"names", true, "TERRAZZO_SIM_MEMORY", "512M", name_failures},
	{"too-old", true, "TERRAZZO_SIM_DRIVER_VERSION", "11010", refuse_old_version},
	{"no-device", true, "TERRAZZO_SIM_DEVICES", "0", refuse_no_device},
	{"no-library", false, "TERRAZZO_SIM_MEMORY", "512M", refuse_no_library},
};
enum { MACHINES = sizeof machines / sizeof machines[0] };

static int run_here(const char *name)
{
	for (size_t i = 0; i < MACHINES; i++) {
		if (strcmp(machines[i].name, name) == 0)
			return machines[i].run();
	}
	return 1;
}

static int start(const char *program, const struct machine *machine)
{
	int status = -1;
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		setenv("LD_LIBRARY_PATH", machine->library ? getenv("TRZ_LOOKALIKE_DIR") : "", 1);
		setenv("TERRAZZO_SIM_VIOLATIONS", "count", 1);
		setenv("TERRAZZO_SIM_WORK", "blocked", 1);
		setenv("TERRAZZO_SIM_SCALARS", "real", 1);
		setenv(machine->variable, machine->value, 1);
		execl(program, program, machine->name, (char *)NULL);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	printf("machine %s: %s\n", machine->name, status == 0 ? "passed" : "FAILED");
	return status != 0;
}

int main(int argc, char **argv)
{
	int failed = 0;
	if (argc == 2)
		return run_here(argv[1]) != 0;
	if (!getenv("TRZ_LOOKALIKE_DIR")) {
		puts("skipped: TRZ_LOOKALIKE_DIR does not name the folder of the look-alike libcuda.so.1");
		return 77;
	}
	for (size_t i = 0; i < MACHINES; i++)
		failed += start("/proc/self/exe", &machines[i]);
	return failed != 0;
}

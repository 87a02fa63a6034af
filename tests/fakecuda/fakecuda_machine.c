/* SPDX-License-Identifier: Apache-2.0
 *
 * The library itself: its machine, its version, its results, and its table of functions.
 */
#include "fakecuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct fake_machine fake;

static pthread_once_t open_once = PTHREAD_ONCE_INIT;
static cuda_result open_result;

/* ---- the machine ------------------------------------------------------------ */

/* The number in an environment variable, with an optional suffix of bytes. */
static uint64_t read_number(const char *variable, uint64_t initial)
{
	const char *text = getenv(variable);
	char *end;
	if (!text || !*text)
		return initial;
	uint64_t number = strtoull(text, &end, 0);
	switch (*end) {
	case 'K':
		return number << 10;
	case 'M':
		return number << 20;
	case 'G':
		return number << 30;
	default:
		return number;
	}
}

static int read_version(void)
{
	return (int)read_number("TRZ_FAKECUDA_VERSION", 13000);
}

static cuda_result open_machine(void)
{
	const sim_config config = {
		.devices = (int)read_number("TRZ_FAKECUDA_DEVICES", 1),
		.capacity = read_number("TRZ_FAKECUDA_MEMORY", 0),
		.no_vmm = getenv("TRZ_FAKECUDA_NO_VMM") != NULL,
		.continue_on_violation = getenv("TRZ_FAKECUDA_CONTINUE") != NULL,
		.seed = read_number("TRZ_FAKECUDA_SEED", 0),
	};
	if (config.devices == 0)
		return TRZ_CUDA_ERROR_NO_DEVICE;
	trz_status status = sim_open(&config, &fake.sim);
	if (status == TRZ_OK)
		fake.table = sim_driver(fake.sim);
	return fake_result(status);
}

static void open_machine_once(void)
{
	open_result = open_machine();
}

cuda_result cuInit(unsigned flags)
{
	if (flags != 0)
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	pthread_once(&open_once, open_machine_once);
	return open_result;
}

cuda_result cuDriverGetVersion(int *version)
{
	*version = read_version();
	return TRZ_CUDA_SUCCESS;
}

/* ---- results ------------------------------------------------------------ */

cuda_result fake_result(trz_status status)
{
	switch (status) {
	case TRZ_OK:
		return TRZ_CUDA_SUCCESS;
	case TRZ_NOT_READY:
		return TRZ_CUDA_ERROR_NOT_READY;
	case TRZ_ERROR_OUT_OF_MEMORY:
	case TRZ_ERROR_HOST_MEMORY:
	case TRZ_ERROR_ADDRESS_SPACE:
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	case TRZ_ERROR_INVALID_ARGUMENT:
	case TRZ_ERROR_ALIGNMENT:
	case TRZ_ERROR_IN_USE:
	case TRZ_ERROR_WRONG_DEVICE:
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	case TRZ_ERROR_NO_DEVICE:
		return TRZ_CUDA_ERROR_INVALID_DEVICE;
	case TRZ_ERROR_NOT_SUPPORTED:
		return TRZ_CUDA_ERROR_NOT_SUPPORTED;
	case TRZ_ERROR_CONTEXT_DEAD:
		return TRZ_CUDA_ERROR_ILLEGAL_ADDRESS;
	case TRZ_ERROR_CAPTURE:
		return TRZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	case TRZ_ERROR_SHUTDOWN:
		return TRZ_CUDA_ERROR_DEINITIALIZED;
	default:
		return TRZ_CUDA_ERROR_UNKNOWN;
	}
}

cuda_result cuGetErrorName(cuda_result result, const char **name)
{
	switch (result) {
#define FAKE_RESULT_NAME(constant, value) \
	case TRZ_##constant:              \
		*name = #constant;        \
		return TRZ_CUDA_SUCCESS;
		CUDA_ABI_RESULTS(FAKE_RESULT_NAME)
#undef FAKE_RESULT_NAME
	default:
		*name = NULL;
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- the functions by name ------------------------------------------------------------ */

static const struct fake_symbol {
	const char *name;
	int version;
	void *function;
} fake_symbols[] = {
#define FAKE_SYMBOL_ROW(name, exported, version, parameters) {#name, version, (void *)exported},
	FAKECUDA_SYMBOLS(FAKE_SYMBOL_ROW)
#undef FAKE_SYMBOL_ROW
};

/* The newest form of a function that `version` knows; `why` may be NULL. */
cuda_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *why)
{
	const struct fake_symbol *best = NULL;
	bool too_new = false;
	(void)flags; /* there are no per-thread forms, and then the legacy ones are right for both */
	*function = NULL;
	if (version > read_version())
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof fake_symbols / sizeof fake_symbols[0]; i++) {
		const struct fake_symbol *symbol = &fake_symbols[i];
		if (strcmp(symbol->name, name) != 0)
			continue;
		too_new = symbol->version > version;
		if (!too_new && (!best || symbol->version > best->version))
			best = symbol;
	}
	if (best)
		*function = best->function;
	if (why)
		*why = best ? 0 : too_new ? 2 : 1;
	return best ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_NOT_FOUND;
}

cuda_result cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

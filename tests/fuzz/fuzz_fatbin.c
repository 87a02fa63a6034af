/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz harness: any bytes as device code. Everything read must be in order and within its bounds; a refusal must have a
 * text.
 */
#include "corpus_main.h"

#include <stdlib.h>
#include <string.h>

#include "fatbin.h"

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_kernel(struct fatbin *fatbin, const struct fatbin_kernel *kernel)
{
	const struct kernel_params *params = fatbin_params(fatbin, kernel->name);
	require(params || trz_last_error()[0]);
	for (uint32_t i = 0; params && i < params->count; i++)
		require((uint64_t)params->list[i].offset + params->list[i].size <= params->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fatbin *fatbin;
	struct fatbin_image image;
	unsigned char sink = 0;
	if (size == 0)
		return 0;
	if (fatbin_open(data, size, size % 2 ? 90 : 0, &fatbin) != TRZ_OK) {
		require(!fatbin && trz_last_error()[0]);
		return 0;
	}
	if (fatbin_image(fatbin, &image) != TRZ_OK)
		require(trz_last_error()[0] && image.kernel_count == 0);
	for (size_t i = 0; i < image.kernel_count; i++) {
		require(i == 0 || strcmp(image.kernels[i - 1].name, image.kernels[i].name) <= 0);
		check_kernel(fatbin, &image.kernels[i]);
	}
	for (size_t i = 0; i < image.variable_count; i++)
		for (uint64_t j = 0; image.variables[i].initial && j < image.variables[i].bytes; j++)
			sink ^= ((const unsigned char *)image.variables[i].initial)[j];
	volatile unsigned char read = sink;
	(void)read;
	fatbin_close(fatbin);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * cuRAND: generators. A device generator's calls only take time and make no numbers; a host generator fills with zeros.
 */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

STANDIN_HANDLE(curandCreateGenerator, curandDestroyGenerator)

/* Marks a host generator, which has no stream. */
#define ON_HOST ((void *)-1)

int curandCreateGeneratorHost(void **generator, int type)
{
	(void)type;
	*generator = standin_handle();
	standin_set_stream(*generator, ON_HOST);
	return 0;
}

int curandSetStream(void *generator, void *stream)
{
	if (standin_stream(generator) != ON_HOST)
		standin_set_stream(generator, stream);
	return 0;
}

/* `count` numbers of `size` bytes. */
static int generate(const char *name, void *generator, void *numbers, size_t count, size_t size)
{
	const uint64_t word = (uintptr_t)numbers;
	if (standin_stream(generator) != ON_HOST)
		return standin_work(name, standin_stream(generator), &word, 1);
	memset(numbers, 0, count * size);
	return 0;
}

#define GENERATE(name, type) \
	int name(void *generator, type *numbers, size_t count) \
	{ \
		return generate(#name, generator, numbers, count, sizeof *numbers); \
	}
#define GENERATE_NORMAL(name, type) \
	int name(void *generator, type *numbers, size_t count, type mean, type deviation) \
	{ \
		(void)mean, (void)deviation; \
		return generate(#name, generator, numbers, count, sizeof *numbers); \
	}

GENERATE(curandGenerate, unsigned)
GENERATE(curandGenerateLongLong, uint64_t)
GENERATE(curandGenerateUniform, float)
GENERATE(curandGenerateUniformDouble, double)
GENERATE_NORMAL(curandGenerateNormal, float)
GENERATE_NORMAL(curandGenerateNormalDouble, double)
GENERATE_NORMAL(curandGenerateLogNormal, float)
GENERATE_NORMAL(curandGenerateLogNormalDouble, double)

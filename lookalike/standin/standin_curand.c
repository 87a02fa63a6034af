/* SPDX-License-Identifier: Apache-2.0
 *
 * cuRAND: generators. A device generator's calls only take time and make no numbers; a host generator fills with zeros.
 */
#include <stdlib.h>
#include <string.h>

#include "standin.h"
#include "standin_driver.h"

enum { TYPE_ERROR = 103, OUT_OF_RANGE = 104, LENGTH_NOT_MULTIPLE = 105 };
enum { ON_HOST, TYPE, DIMENSIONS };
enum { QUASI = 200, FIRST_OF_64_BITS = 203, LAST_QUASI = 204, MOST_DIMENSIONS = 20000 };

/* ---- generators ------------------------------------------------------------------------------------ */

static int is_type(int type)
{
	static const int pseudo[] = { 100, 101, 121, 141, 142, 161 };
	for (size_t i = 0; i < sizeof pseudo / sizeof pseudo[0]; i++)
		if (type == pseudo[i])
			return 1;
	return type >= QUASI && type <= LAST_QUASI;
}

static int create(void **generator, int type, int on_host)
{
	if (!is_type(type))
		return TYPE_ERROR;
	int failed = standin_make_handle(generator);
	if (failed)
		return failed;
	standin_set_mode(*generator, TYPE, type);
	standin_set_mode(*generator, ON_HOST, on_host);
	standin_set_mode(*generator, DIMENSIONS, 1);
	return 0;
}

int curandCreateGenerator(void **generator, int type)
{
	return create(generator, type, 0);
}

int curandCreateGeneratorHost(void **generator, int type)
{
	return create(generator, type, 1);
}

int curandDestroyGenerator(void *generator)
{
	return standin_drop_handle(generator);
}

int curandSetStream(void *generator, void *stream)
{
	return standin_give_stream(generator, stream);
}

int curandSetPseudoRandomGeneratorSeed(void *generator, uint64_t seed)
{
	int type = 0, failed = standin_get_mode(generator, TYPE, &type);
	(void)seed;
	return failed ? failed : type >= QUASI ? TYPE_ERROR : 0;
}

int curandSetQuasiRandomGeneratorDimensions(void *generator, unsigned dimensions)
{
	int type = 0, failed = standin_get_mode(generator, TYPE, &type);
	if (failed || type < QUASI)
		return failed ? failed : TYPE_ERROR;
	if (dimensions < 1 || dimensions > MOST_DIMENSIONS)
		return OUT_OF_RANGE;
	return standin_set_mode(generator, DIMENSIONS, (int)dimensions);
}

STANDIN_VERSION(curandGetVersion)
STANDIN_PROPERTY(curandGetProperty)

/* ---- numbers --------------------------------------------------------------------------------------- */

/* `count` numbers of `size` bytes. */
static int generate(const char *name, void *generator, void *numbers, size_t count, size_t size)
{
	const uint64_t word = count ? (uintptr_t)numbers : 0;
	int on_host = 0, dimensions = 1;
	standin_get_mode(generator, DIMENSIONS, &dimensions);
	int failed = standin_get_mode(generator, ON_HOST, &on_host);
	if (failed || count % (size_t)dimensions)
		return failed ? failed : LENGTH_NOT_MULTIPLE;
	if (!on_host)
		return standin_handle_work(name, generator, &word, 1);
	memset(numbers, 0, count * size);
	return 0;
}

/* Pseudorandom generators make normal numbers in pairs. */
static int generate_normal(const char *name, void *generator, void *numbers, size_t count, size_t size)
{
	int type = QUASI;
	standin_get_mode(generator, TYPE, &type);
	return type < QUASI && count % 2 ? LENGTH_NOT_MULTIPLE : generate(name, generator, numbers, count, size);
}

/* Quasirandom integers have the generator's width; 64 bits are for these generators alone. */
static int generate_integers(const char *name, void *generator, void *numbers, size_t count, size_t size)
{
	int type = 0, failed = standin_get_mode(generator, TYPE, &type);
	if (!failed && (type >= FIRST_OF_64_BITS) != (size == 8))
		failed = TYPE_ERROR;
	return failed ? failed : generate(name, generator, numbers, count, size);
}

#define GENERATE_INTEGERS(name, type) \
	int name(void *generator, type *numbers, size_t count) \
	{ \
		return generate_integers(#name, generator, numbers, count, sizeof *numbers); \
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
		return generate_normal(#name, generator, numbers, count, sizeof *numbers); \
	}

GENERATE_INTEGERS(curandGenerate, unsigned)
GENERATE_INTEGERS(curandGenerateLongLong, uint64_t)
GENERATE(curandGenerateUniform, float)
GENERATE(curandGenerateUniformDouble, double)
GENERATE_NORMAL(curandGenerateNormal, float)
GENERATE_NORMAL(curandGenerateNormalDouble, double)
GENERATE_NORMAL(curandGenerateLogNormal, float)
GENERATE_NORMAL(curandGenerateLogNormalDouble, double)

int curandGeneratePoisson(void *generator, unsigned *numbers, size_t count, double lambda)
{
	return lambda > 0 ? generate("curandGeneratePoisson", generator, numbers, count, sizeof *numbers) : OUT_OF_RANGE;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions of real bytes. Floating types are added up in double, in the order of ranks, and rounded once: for two
 * ranks that is what any other order gives. Integers wrap around.
 */
#include "nccl.h"

#include <math.h>
#include <string.h>

enum { PIECE = 256 };

/* ---- small floating types ------------------------------------------------------------ */

/* Sign, exponent, mantissa. In a format without infinity only the largest code is not a number. */
struct format {
	int exponent, mantissa, bias;
	bool infinite;
};
static const struct format half = { 5, 10, 15, true }, e4m3 = { 4, 3, 7, false }, e5m2 = { 5, 2, 15, true };

static double decode(const struct format *f, uint32_t code)
{
	uint32_t fraction = code & ((1u << f->mantissa) - 1);
	int exponent = (int)(code >> f->mantissa & ((1u << f->exponent) - 1)), most = (1 << f->exponent) - 1;
	double sign = code >> (f->exponent + f->mantissa) & 1 ? -1 : 1;
	if (exponent == most && f->infinite)
		return fraction ? NAN : sign * INFINITY;
	if (exponent == most && fraction == (1u << f->mantissa) - 1)
		return NAN;
	if (exponent == 0)
		return sign * ldexp(fraction, 1 - f->bias - f->mantissa);
	return sign * ldexp(fraction | 1u << f->mantissa, exponent - f->bias - f->mantissa);
}

static uint32_t largest(const struct format *f)
{
	uint32_t top = (1u << (f->exponent + f->mantissa)) - 1;  /* all ones */
	return f->infinite ? top >> f->mantissa << f->mantissa : top;
}

/* Rounds to nearest, ties to even. What is too large becomes infinity in half, the largest number in the 8-bit types,
 * as in CUDA's conversions. */
static uint32_t encode(const struct format *f, double x)
{
	uint32_t sign = signbit(x) ? 1u << (f->exponent + f->mantissa) : 0, over = largest(f);
	int exponent;
	if (isnan(x))
		return sign | over | (f->infinite ? 1u << (f->mantissa - 1) : 0);
	if (f->exponent + f->mantissa == 7)
		over--;
	if (x == 0)
		return sign;
	if (isinf(x))
		return sign | over;
	frexp(x, &exponent);
	int place = exponent - 1 < 1 - f->bias ? 1 - f->bias : exponent - 1;
	double units = nearbyint(ldexp(fabs(x), f->mantissa - place));
	if (units >= ldexp(1, 40))
		return sign | over;
	uint64_t code = (uint64_t)units + ((uint64_t)(place + f->bias - 1) << f->mantissa);
	return sign | (code < over ? (uint32_t)code : over);
}

/* All values of a type, filled in once, since decoding is slow. */
static float halves[1 << 16];
static double eights[2][1 << 8];

static void fill_tables(void)
{
	for (uint32_t i = 0; i < 1 << 16; i++)
		halves[i] = (float)decode(&half, i);
	for (uint32_t i = 0; i < 1 << 8; i++) {
		eights[0][i] = decode(&e4m3, i);
		eights[1][i] = decode(&e5m2, i);
	}
}

static float from_bfloat(uint16_t code)
{
	uint32_t bits = (uint32_t)code << 16;
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static uint16_t to_bfloat(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	if (isnan(x))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- pieces of a tensor ------------------------------------------------------------ */

static void read_floats(int type, const void *from, uint64_t first, uint64_t count, double *to)
{
	for (uint64_t i = 0; i < count; i++)
		switch (type) {
		case NCCL_HALF:
			to[i] = (double)halves[((const uint16_t *)from)[first + i]];
			break;
		case NCCL_FLOAT:
			to[i] = (double)((const float *)from)[first + i];
			break;
		case NCCL_DOUBLE:
			to[i] = ((const double *)from)[first + i];
			break;
		case NCCL_BFLOAT16:
			to[i] = (double)from_bfloat(((const uint16_t *)from)[first + i]);
			break;
		default:
			to[i] = eights[type == NCCL_E5M2][((const uint8_t *)from)[first + i]];
		}
}

static void write_floats(int type, void *to, uint64_t first, uint64_t count, const double *from)
{
	for (uint64_t i = 0; i < count; i++)
		switch (type) {
		case NCCL_HALF:
			((uint16_t *)to)[first + i] = (uint16_t)encode(&half, (double)(float)from[i]);
			break;
		case NCCL_FLOAT:
			((float *)to)[first + i] = (float)from[i];
			break;
		case NCCL_DOUBLE:
			((double *)to)[first + i] = from[i];
			break;
		case NCCL_BFLOAT16:
			((uint16_t *)to)[first + i] = to_bfloat((float)from[i]);
			break;
		default:
			((uint8_t *)to)[first + i] = (uint8_t)encode(type == NCCL_E5M2 ? &e5m2 : &e4m3, from[i]);
		}
}

/* Sign-extends signed integers. */
static void read_integers(int type, const void *from, uint64_t first, uint64_t count, uint64_t *to)
{
	for (uint64_t i = 0; i < count; i++)
		switch (type) {
		case NCCL_INT8:
			to[i] = (uint64_t)((const int8_t *)from)[first + i];
			break;
		case NCCL_UINT8:
			to[i] = ((const uint8_t *)from)[first + i];
			break;
		case NCCL_INT32:
			to[i] = (uint64_t)((const int32_t *)from)[first + i];
			break;
		case NCCL_UINT32:
			to[i] = ((const uint32_t *)from)[first + i];
			break;
		default:
			to[i] = ((const uint64_t *)from)[first + i];
		}
}

static void write_integers(int type, void *to, uint64_t first, uint64_t count, const uint64_t *from)
{
	for (uint64_t i = 0; i < count; i++)
		switch (type) {
		case NCCL_INT8:
		case NCCL_UINT8:
			((uint8_t *)to)[first + i] = (uint8_t)from[i];
			break;
		case NCCL_INT32:
		case NCCL_UINT32:
			((uint32_t *)to)[first + i] = (uint32_t)from[i];
			break;
		default:
			((uint64_t *)to)[first + i] = from[i];
		}
}

/* ---- operations ------------------------------------------------------------ */

static double combine_floats(int operation, double a, double b)
{
	switch (operation) {
	case NCCL_PROD:
		return a * b;
	case NCCL_MAX:
		return b > a || isnan(b) ? b : a;
	case NCCL_MIN:
		return b < a || isnan(b) ? b : a;
	default:
		return a + b;
	}
}

static uint64_t combine_integers(int operation, bool is_signed, uint64_t a, uint64_t b)
{
	bool less = is_signed ? (int64_t)b < (int64_t)a : b < a;
	switch (operation) {
	case NCCL_PROD:
		return a * b;
	case NCCL_MAX:
		return less ? a : b;
	case NCCL_MIN:
		return less ? b : a;
	default:
		return a + b;
	}
}

static void reduce_floats(int type, int operation, void *to, const void *const *from, const double *scale, int ranks,
                          uint64_t first, uint64_t count)
{
	double sum[PIECE], next[PIECE];
	for (int r = 0; r < ranks; r++) {
		read_floats(type, from[r], first, count, r ? next : sum);
		for (uint64_t i = 0; operation == NCCL_SCALED_SUM && i < count; i++)
			(r ? next : sum)[i] *= scale[r];
		for (uint64_t i = 0; r && i < count; i++)
			sum[i] = combine_floats(operation, sum[i], next[i]);
	}
	for (uint64_t i = 0; operation == NCCL_AVG && i < count; i++)
		sum[i] /= ranks;
	write_floats(type, to, 0, count, sum);
}

static void reduce_integers(int type, int operation, void *to, const void *const *from, const double *scale, int ranks,
                            uint64_t first, uint64_t count)
{
	uint64_t sum[PIECE], next[PIECE];
	bool is_signed = type == NCCL_INT8 || type == NCCL_INT32 || type == NCCL_INT64;
	for (int r = 0; r < ranks; r++) {
		read_integers(type, from[r], first, count, r ? next : sum);
		for (uint64_t i = 0; operation == NCCL_SCALED_SUM && i < count; i++)
			(r ? next : sum)[i] *= (uint64_t)(int64_t)scale[r];
		for (uint64_t i = 0; r && i < count; i++)
			sum[i] = combine_integers(operation, is_signed, sum[i], next[i]);
	}
	for (uint64_t i = 0; operation == NCCL_AVG && i < count; i++)
		sum[i] = is_signed ? (uint64_t)((int64_t)sum[i] / ranks) : sum[i] / (uint64_t)ranks;
	write_integers(type, to, 0, count, sum);
}

static pthread_once_t tables = PTHREAD_ONCE_INIT;

double nccl_value(int type, const void *at)
{
	double x;
	uint64_t n;
	pthread_once(&tables, fill_tables);
	if (type >= NCCL_HALF) {
		read_floats(type, at, 0, 1, &x);
		return x;
	}
	read_integers(type, at, 0, 1, &n);
	return (double)(int64_t)n;
}

void nccl_reduce(int type, int operation, void *to, const void *const *from, const double *scale, int ranks,
                 uint64_t first, uint64_t count)
{
	pthread_once(&tables, fill_tables);
	for (uint64_t done = 0; done < count;) {
		uint64_t piece = count - done < PIECE ? count - done : PIECE;
		char *target = (char *)to + done * nccl_type_bytes(type);
		if (type >= NCCL_HALF)
			reduce_floats(type, operation, target, from, scale, ranks, first + done, piece);
		else
			reduce_integers(type, operation, target, from, scale, ranks, first + done, piece);
		done += piece;
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * cuFFT: plans are numbers. The work area of a plan is invented: a complex number for each element. As in cuFFT, a plan
 * allocates it unless the program has said that it brings its own.
 */
#include <pthread.h>

#include "standin.h"

enum { PLANS = 4096, INVALID_PLAN = 1, ALLOC_FAILED = 2, INVALID_VALUE = 4 };
enum { OF_DOUBLES = 0x40 };  /* in the types Z2Z, D2Z and Z2D */

int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);

static struct plan {
	void *stream;
	size_t bytes;
	uint64_t area;
	int live;
	int own, brings;  /* the area is the plan's; the program brings it */
} plans[PLANS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct plan *find(int plan)
{
	return plan >= 0 && plan < PLANS && plans[plan].live ? &plans[plan] : NULL;
}

static void drop_area(struct plan *p)
{
	if (p->own)
		cuMemFree_v2(p->area);
	p->area = 0;
	p->own = 0;
}

int cufftCreate(int *plan)
{
	int i = 0;
	pthread_mutex_lock(&lock);
	while (i < PLANS && plans[i].live)
		i++;
	if (i < PLANS)
		plans[i] = (struct plan){.live = 1};
	pthread_mutex_unlock(&lock);
	*plan = i;
	return i < PLANS ? 0 : ALLOC_FAILED;
}

int cufftDestroy(int plan)
{
	struct plan *p = find(plan);
	if (!p)
		return INVALID_PLAN;
	drop_area(p);
	pthread_mutex_lock(&lock);
	p->live = 0;
	pthread_mutex_unlock(&lock);
	return 0;
}

int cufftSetStream(int plan, void *stream)
{
	struct plan *p = find(plan);
	if (!p)
		return INVALID_PLAN;
	p->stream = stream;
	return 0;
}

int cufftSetAutoAllocation(int plan, int automatic)
{
	struct plan *p = find(plan);
	if (!p)
		return INVALID_PLAN;
	p->brings = !automatic;
	return 0;
}

int cufftSetWorkArea(int plan, void *area)
{
	struct plan *p = find(plan);
	if (!p)
		return INVALID_PLAN;
	drop_area(p);
	p->area = (uintptr_t)area;
	return 0;
}

int cufftGetSize(int plan, size_t *bytes)
{
	struct plan *p = find(plan);
	if (!p || !bytes)
		return p ? INVALID_VALUE : INVALID_PLAN;
	*bytes = p->bytes;
	return 0;
}

/* ---- sizes ----------------------------------------------------------------------------------------------- */

static size_t number_bytes(int type)
{
	return type & OF_DOUBLES ? 16 : 8;
}

static size_t at_least_none(long long count)
{
	return count > 0 ? (size_t)count : 0;
}

static size_t bytes_of(int rank, const int *n, int type, int batch)
{
	size_t bytes = number_bytes(type) * at_least_none(batch);
	for (int i = 0; i < rank; i++)
		bytes *= at_least_none(n[i]);
	return bytes;
}

static size_t bytes_of_many(int rank, const long long *n, size_t number, long long batch)
{
	size_t bytes = number * at_least_none(batch);
	for (int i = 0; i < rank; i++)
		bytes *= at_least_none(n[i]);
	return bytes;
}

static int tell(size_t bytes, size_t *told)
{
	if (!bytes || !told)
		return INVALID_VALUE;
	*told = bytes;
	return 0;
}

/* `told` may be NULL: cufftPlan1d and its kin have nowhere to put the size. */
static int make(int plan, size_t bytes, size_t *told)
{
	struct plan *p = find(plan);
	if (!p || !bytes)
		return p ? INVALID_VALUE : INVALID_PLAN;
	drop_area(p);
	p->bytes = bytes;
	if (told)
		*told = bytes;
	if (!p->brings && cuMemAlloc_v2(&p->area, bytes) != 0)
		return ALLOC_FAILED;
	p->own = !p->brings;
	return 0;
}

static int create(int *plan, size_t bytes)
{
	int failed = cufftCreate(plan);
	if (failed)
		return failed;
	failed = make(*plan, bytes, NULL);
	if (failed)
		cufftDestroy(*plan);
	return failed;
}

/* cuFFT's parameters of where the elements of several transforms lie. */
#define LAYOUT(number) number *in_embed, number in_stride, number in_distance, number *out_embed, number out_stride, \
	number out_distance

/* The functions of one way to say how large a transform is. */
#define SIZES(suffix, bytes, ...)                                                                             \
	int cufftPlan##suffix(int *plan, __VA_ARGS__) { return create(plan, bytes); }                             \
	int cufftMakePlan##suffix(int plan, __VA_ARGS__, size_t *told) { return make(plan, bytes, told); }        \
	int cufftGetSize##suffix(int plan, __VA_ARGS__, size_t *told)                                             \
	{                                                                                                         \
		(void)plan;                                                                                           \
		return tell(bytes, told);                                                                             \
	}                                                                                                         \
	int cufftEstimate##suffix(__VA_ARGS__, size_t *told) { return tell(bytes, told); }

SIZES(1d, bytes_of(1, (const int[]){x}, type, batch), int x, int type, int batch)
SIZES(2d, bytes_of(2, (const int[]){x, y}, type, 1), int x, int y, int type)
SIZES(3d, bytes_of(3, (const int[]){x, y, z}, type, 1), int x, int y, int z, int type)
SIZES(Many, bytes_of(rank, n, type, batch), int rank, int *n, LAYOUT(int), int type, int batch)

int cufftMakePlanMany64(int plan, int rank, long long *n, LAYOUT(long long), int type, long long batch, size_t *told)
{
	return make(plan, bytes_of_many(rank, n, number_bytes(type), batch), told);
}

int cufftGetSizeMany64(int plan, int rank, long long *n, LAYOUT(long long), int type, long long batch, size_t *told)
{
	(void)plan;
	return tell(bytes_of_many(rank, n, number_bytes(type), batch), told);
}

/* `execution` is one of CUDA's data types; the widest, two doubles, is taken for all. */
int cufftXtMakePlanMany(int plan, int rank, long long *n, long long *in_embed, long long in_stride,
                        long long in_distance, int in_type, long long *out_embed, long long out_stride,
                        long long out_distance, int out_type, long long batch, size_t *told, int execution)
{
	(void)in_embed, (void)in_stride, (void)in_distance, (void)in_type, (void)out_embed;
	(void)out_stride, (void)out_distance, (void)out_type, (void)execution;
	return make(plan, bytes_of_many(rank, n, 16, batch), told);
}

/* ---- transforms ------------------------------------------------------------------------------------------- */

static int execute(const char *name, int plan, const void *in, const void *out)
{
	struct plan *p = find(plan);
	if (!p)
		return INVALID_PLAN;
	const uint64_t words[] = { (uintptr_t)in, (uintptr_t)out, p->area };
	return standin_work(name, p->stream, words, 3);
}

#define EXECUTE_BOTH_WAYS(name) \
	int name(int plan, void *in, void *out, int direction) { (void)direction; return execute(#name, plan, in, out); }
#define EXECUTE(name) int name(int plan, void *in, void *out) { return execute(#name, plan, in, out); }

EXECUTE_BOTH_WAYS(cufftXtExec)
EXECUTE_BOTH_WAYS(cufftExecC2C)
EXECUTE_BOTH_WAYS(cufftExecZ2Z)
EXECUTE(cufftExecR2C)
EXECUTE(cufftExecC2R)
EXECUTE(cufftExecD2Z)
EXECUTE(cufftExecZ2D)

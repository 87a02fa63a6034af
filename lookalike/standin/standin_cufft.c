/* SPDX-License-Identifier: Apache-2.0
 *
 * cuFFT: plans are numbers. The work area of a plan is invented: a complex number for each element. As in cuFFT, a plan
 * allocates it unless the program has said that it brings its own.
 */
#include <pthread.h>

#include "standin.h"
#include "standin_driver.h"

enum { PLANS = 4096, INVALID_PLAN = 1, ALLOC_FAILED = 2, INVALID_TYPE = 3, INVALID_VALUE = 4, NO_WORKSPACE = 13 };
enum { MOST_DIMENSIONS = 3 };
enum { R2C = 0x2a, C2R = 0x2c, C2C = 0x29, D2Z = 0x6a, Z2D = 0x6c, Z2Z = 0x69 };

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
	if (!plan)
		return INVALID_VALUE;
	pthread_mutex_lock(&lock);
	while (i < PLANS && plans[i].live)
		i++;
	if (i < PLANS)
		plans[i] = (struct plan){.live = 1};
	pthread_mutex_unlock(&lock);
	*plan = i < PLANS ? i : -1;
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

STANDIN_VERSION(cufftGetVersion)
STANDIN_PROPERTY(cufftGetProperty)

/* ---- sizes ----------------------------------------------------------------------------------------------- */

/* How large a transform's work area is, or `status`: why it cannot be made. */
struct need {
	size_t bytes;
	int status;
};

static struct need refused(int status)
{
	return (struct need){ .status = status };
}

static size_t number_bytes(int type)
{
	return type == C2C || type == R2C || type == C2R ? 8 : type == Z2Z || type == D2Z || type == Z2D ? 16 : 0;
}

/* Of `rank` sizes and a batch, each of them positive. */
static struct need need_of_many(int rank, const long long *n, size_t number, long long batch)
{
	struct need need = { .bytes = number };
	if (!number)
		return refused(INVALID_TYPE);
	if (!n || rank < 1 || rank > MOST_DIMENSIONS || batch <= 0)
		return refused(INVALID_VALUE);
	bool large = __builtin_mul_overflow(need.bytes, (size_t)batch, &need.bytes);
	for (int i = 0; i < rank; i++) {
		if (n[i] <= 0)
			return refused(INVALID_VALUE);
		large |= __builtin_mul_overflow(need.bytes, (size_t)n[i], &need.bytes);
	}
	return large ? refused(ALLOC_FAILED) : need;
}

static struct need need_of(int rank, const int *n, int type, long long batch)
{
	long long sizes[MOST_DIMENSIONS];
	for (int i = 0; n && i < rank && i < MOST_DIMENSIONS; i++)
		sizes[i] = n[i];
	return need_of_many(rank, n ? sizes : NULL, number_bytes(type), batch);
}

static int tell(struct need need, size_t *told)
{
	if (need.status || !told)
		return need.status ? need.status : INVALID_VALUE;
	*told = need.bytes;
	return 0;
}

/* A plan is made once. `told` may be NULL: cufftPlan1d and its kin have nowhere to put the size. */
static int make(int plan, struct need need, size_t *told)
{
	struct plan *p = find(plan);
	if (!p || p->bytes || need.status)
		return p && !p->bytes ? need.status : INVALID_PLAN;
	if (!p->brings && ((trz_lookalike_bind && trz_lookalike_bind() != 0) || cuMemAlloc_v2(&p->area, need.bytes) != 0))
		return ALLOC_FAILED;
	p->bytes = need.bytes;
	p->own = !p->brings;
	if (told)
		*told = need.bytes;
	return 0;
}

static int create(int *plan, struct need need)
{
	int failed = cufftCreate(plan);
	if (failed)
		return failed;
	failed = make(*plan, need, NULL);
	if (failed)
		cufftDestroy(*plan);
	return failed;
}

/* cuFFT's parameters of where the elements of several transforms lie. */
#define LAYOUT(number) number *in_embed, number in_stride, number in_distance, number *out_embed, number out_stride, \
	number out_distance

/* The functions of one way to say how large a transform is. */
#define SIZES(suffix, need, ...)                                                                              \
	int cufftPlan##suffix(int *plan, __VA_ARGS__) { return create(plan, need); }                              \
	int cufftMakePlan##suffix(int plan, __VA_ARGS__, size_t *told) { return make(plan, need, told); }         \
	int cufftGetSize##suffix(int plan, __VA_ARGS__, size_t *told)                                             \
	{                                                                                                         \
		return find(plan) ? tell(need, told) : INVALID_PLAN;                                                  \
	}                                                                                                         \
	int cufftEstimate##suffix(__VA_ARGS__, size_t *told) { return tell(need, told); }

SIZES(1d, need_of(1, (const int[]){x}, type, batch), int x, int type, int batch)
SIZES(2d, need_of(2, (const int[]){x, y}, type, 1), int x, int y, int type)
SIZES(3d, need_of(3, (const int[]){x, y, z}, type, 1), int x, int y, int z, int type)
SIZES(Many, need_of(rank, n, type, batch), int rank, int *n, LAYOUT(int), int type, int batch)

int cufftMakePlanMany64(int plan, int rank, long long *n, LAYOUT(long long), int type, long long batch, size_t *told)
{
	return make(plan, need_of_many(rank, n, number_bytes(type), batch), told);
}

int cufftGetSizeMany64(int plan, int rank, long long *n, LAYOUT(long long), int type, long long batch, size_t *told)
{
	return find(plan) ? tell(need_of_many(rank, n, number_bytes(type), batch), told) : INVALID_PLAN;
}

/* `execution` is one of CUDA's data types; the widest, two doubles, is taken for all. */
int cufftXtMakePlanMany(int plan, int rank, long long *n, long long *in_embed, long long in_stride,
                        long long in_distance, int in_type, long long *out_embed, long long out_stride,
                        long long out_distance, int out_type, long long batch, size_t *told, int execution)
{
	(void)in_embed, (void)in_stride, (void)in_distance, (void)in_type, (void)out_embed;
	(void)out_stride, (void)out_distance, (void)out_type, (void)execution;
	return make(plan, need_of_many(rank, n, 16, batch), told);
}

/* ---- transforms ------------------------------------------------------------------------------------------- */

static int execute(const char *name, int plan, const void *in, const void *out)
{
	struct plan *p = find(plan);
	if (!p || !p->bytes)
		return INVALID_PLAN;
	if (!in || !out)
		return INVALID_VALUE;
	if (!p->area)
		return NO_WORKSPACE;
	const uint64_t words[] = { (uintptr_t)in, (uintptr_t)out, p->area };
	return standin_work(name, p->stream, words, 3);
}

#define EXECUTE(name) int name(int plan, void *in, void *out) { return execute(#name, plan, in, out); }
#define EXECUTE_BOTH_WAYS(name) \
	int name(int plan, void *in, void *out, int direction) \
	{ \
		return direction == 1 || direction == -1 ? execute(#name, plan, in, out) : INVALID_VALUE; \
	}

/* Not every transform has two directions. */
int cufftXtExec(int plan, void *in, void *out, int direction)
{
	(void)direction;
	return execute("cufftXtExec", plan, in, out);
}

EXECUTE_BOTH_WAYS(cufftExecC2C)
EXECUTE_BOTH_WAYS(cufftExecZ2Z)
EXECUTE(cufftExecR2C)
EXECUTE(cufftExecC2R)
EXECUTE(cufftExecD2Z)
EXECUTE(cufftExecZ2D)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Green contexts, and the shares of a device's multiprocessors for which they are made.
 */
#include "driver_lookalike.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { MULTIPROCESSORS = 1 };  /* CU_DEV_RESOURCE_TYPE_SM */

/* What a green context may use: CUdevResourceDesc. The program has no call to free it. */
struct description {
	struct description *next;
	struct cuda_share share;
};
static _Atomic(struct description *) descriptions;
static _Atomic(struct look_green *) greens;

/* ---- shares ------------------------------------------------------------ */

/* As the programming guide has it for each architecture: the fewest multiprocessors of a share, and its steps. */
static void set_steps(struct cuda_share *share, bool alone)
{
	unsigned major = look.profile->compute_major;
	share->least = alone || major < 8 ? (major < 7 ? 1 : 2) : major < 9 ? 4 : 8;
	share->step = alone || major < 9 ? (major < 7 ? 1 : 2) : 8;
}

static struct cuda_share share_of(cuda_device device, unsigned count)
{
	struct cuda_share share = {.type = MULTIPROCESSORS, .device = device, .count = count};
	set_steps(&share, false);
	return share;
}

cuda_result cuDeviceGetDevResource(cuda_device device, struct cuda_share *share, int type)
{
	LOOK_ENTER(cuDeviceGetDevResource);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	LOOK_NEED(share, INVALID_VALUE);
	LOOK_NEED(type == MULTIPROCESSORS, INVALID_RESOURCE_TYPE);
	*share = share_of(device, look.profile->sms);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGreenCtxGetDevResource(void *context, struct cuda_share *share, int type)
{
	LOOK_ENTER(cuGreenCtxGetDevResource);
	const struct look_green *g = look_green_of(context);
	LOOK_NEED(g, INVALID_CONTEXT);
	LOOK_NEED(share, INVALID_VALUE);
	LOOK_NEED(type == MULTIPROCESSORS, INVALID_RESOURCE_TYPE);
	*share = share_of(g->device, g->multiprocessors);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuCtxGetDevResource(void *context, struct cuda_share *share, int type)
{
	cuda_device device;
	if (context && look_green_of(context))
		return cuGreenCtxGetDevResource(context, share, type);
	LOOK_ENTER(cuCtxGetDevResource);
	cuda_result result = cuCtxGetDevice_v2(&device, context);
	return result == TRZ_CUDA_SUCCESS ? cuDeviceGetDevResource(device, share, type) : result;
}

/* Equal groups of at least `least` multiprocessors; what is left over may have any number of them. */
cuda_result cuDevSmResourceSplitByCount(struct cuda_share *groups, unsigned *count, const struct cuda_share *whole,
                                        struct cuda_share *rest, unsigned flags, unsigned least)
{
	enum { ALONE = 1, LARGE_CLUSTERS = 2 };
	LOOK_ENTER(cuDevSmResourceSplitByCount);
	LOOK_NEED(count && whole && !(flags & ~(unsigned)(ALONE | LARGE_CLUSTERS)), INVALID_VALUE);
	LOOK_NEED(whole->type == MULTIPROCESSORS, INVALID_RESOURCE_TYPE);
	LOOK_NEED(least <= whole->count, INVALID_VALUE);
	struct cuda_share group = *whole;
	set_steps(&group, flags & ALONE);
	group.count = least > group.least ? least + group.step - 1 : group.least;
	group.count -= group.count % group.step;
	unsigned most = whole->count / group.count, made = groups && *count < most ? *count : most;
	LOOK_NEED(made, INVALID_RESOURCE_CONFIGURATION);
	for (unsigned i = 0; groups && i < made; i++)
		groups[i] = group;
	if (rest) {
		*rest = *whole;
		rest->count = whole->count - made * group.count;
		rest->type = rest->count ? MULTIPROCESSORS : 0;
	}
	*count = made;
	return TRZ_CUDA_SUCCESS;
}

/* ---- descriptions ------------------------------------------------------------ */

/* Several shares are one of all their multiprocessors. */
cuda_result cuDevResourceGenerateDesc(void **made, const struct cuda_share *shares, unsigned count)
{
	LOOK_ENTER(cuDevResourceGenerateDesc);
	LOOK_NEED(made && shares && count, INVALID_VALUE);
	struct cuda_share all = shares[0];
	for (unsigned i = 0; i < count; i++) {
		LOOK_NEED(shares[i].type == MULTIPROCESSORS, INVALID_RESOURCE_TYPE);
		LOOK_NEED(shares[i].device == all.device, INVALID_RESOURCE_CONFIGURATION);
		all.count += i ? shares[i].count : 0;
	}
	struct description *d = malloc(sizeof *d);
	LOOK_NEED(d, OUT_OF_MEMORY);
	*d = (struct description){descriptions, all};
	while (!atomic_compare_exchange_weak(&descriptions, &d->next, d))
		continue;
	*made = d;
	return TRZ_CUDA_SUCCESS;
}

static const struct description *description_of(const void *handle)
{
	const struct description *d = descriptions;
	while (d && d != handle)
		d = d->next;
	return d;
}

/* ---- green contexts ------------------------------------------------------------ */

struct look_green *look_green_of(const void *context)
{
	struct look_green *g = greens;
	while (g && g != context)
		g = g->next;
	return g && g->primary ? g : NULL;
}

cuda_result cuGreenCtxCreate(void **made, void *description, cuda_device device, unsigned flags)
{
	enum { DEFAULT_STREAM = 1 };
	void *primary_context;
	LOOK_ENTER(cuGreenCtxCreate);
	const struct description *d = description_of(description);
	LOOK_NEED(made && d && d->share.device == device && flags == DEFAULT_STREAM, INVALID_VALUE);
	struct look_green *g = malloc(sizeof *g);
	LOOK_NEED(g, OUT_OF_MEMORY);
	cuda_result result = cuDevicePrimaryCtxRetain(&primary_context, device);
	if (result != TRZ_CUDA_SUCCESS) {
		free(g);
		return result;
	}
	*g = (struct look_green){greens, primary_context, device, d->share.count};
	while (!atomic_compare_exchange_weak(&greens, &g->next, g))
		continue;
	*made = g;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGreenCtxDestroy(void *context)
{
	LOOK_ENTER(cuGreenCtxDestroy);
	struct look_green *g = look_green_of(context);
	LOOK_NEED(g, INVALID_CONTEXT);
	g->primary = NULL;
	return cuDevicePrimaryCtxRelease_v2(g->device);
}

cuda_result cuCtxFromGreenCtx(void **context, void *green)
{
	LOOK_ENTER(cuCtxFromGreenCtx);
	LOOK_NEED(context && look_green_of(green), INVALID_VALUE);
	*context = green;
	return TRZ_CUDA_SUCCESS;
}

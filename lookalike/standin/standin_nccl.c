/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL: communicators of one rank, whose collectives copy from source to target. A communicator of several
 * ranks is refused by name: there is nothing that would exchange data between simulated devices.
 */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

enum { SUCCESS = 0, UNHANDLED_CUDA_ERROR = 1, INVALID_USAGE = 5 };

static const char WHY[] = "collectives among several devices are not; run one rank, or use the fake process group "
                          "of torch.testing._internal.distributed.fake_pg";

struct unique_id {
	char internal[128];
};

static int make(const char *name, void **communicator, int ranks)
{
	*communicator = NULL;
	if (ranks != 1)
		return standin_refuse(name, WHY, INVALID_USAGE);
	*communicator = standin_descriptor(64);
	return SUCCESS;
}

int ncclGetVersion(int *version)
{
	*version = STANDIN_MAJOR * 10000 + STANDIN_MINOR * 100 + STANDIN_PATCH;
	return SUCCESS;
}

const char *ncclGetErrorString(int status)
{
	return status ? "refused by terrazzo's stand-in for NCCL" : "no error";
}

const char *ncclGetLastError(void *communicator)
{
	(void)communicator;
	return "";
}

int ncclGetUniqueId(struct unique_id *id)
{
	memset(id, 0, sizeof *id);
	return SUCCESS;
}

int ncclCommGetUniqueId(void *communicator, struct unique_id *id)
{
	(void)communicator;
	return ncclGetUniqueId(id);
}

int ncclCommInitRank(void **communicator, int ranks, struct unique_id id, int rank)
{
	(void)id, (void)rank;
	return make("ncclCommInitRank", communicator, ranks);
}

int ncclCommInitRankConfig(void **communicator, int ranks, struct unique_id id, int rank, void *config)
{
	(void)id, (void)rank, (void)config;
	return make("ncclCommInitRankConfig", communicator, ranks);
}

int ncclCommInitRankScalable(void **communicator, int ranks, int rank, int ids, struct unique_id *id, void *config)
{
	(void)rank, (void)ids, (void)id, (void)config;
	return make("ncclCommInitRankScalable", communicator, ranks);
}

int ncclCommInitAll(void **communicators, int devices, const int *list)
{
	(void)list;
	return make("ncclCommInitAll", communicators, devices);
}

int ncclCommSplit(void *communicator, int color, int key, void **made, void *config)
{
	(void)communicator, (void)key, (void)config;
	*made = color < 0 ? NULL : standin_descriptor(64);
	return SUCCESS;
}

int ncclCommDestroy(void *communicator)
{
	free(communicator);
	return SUCCESS;
}

int ncclCommAbort(void *communicator)
{
	return ncclCommDestroy(communicator);
}

int ncclCommFinalize(void *communicator)
{
	(void)communicator;
	return SUCCESS;
}

int ncclCommCount(const void *communicator, int *count)
{
	(void)communicator;
	*count = 1;
	return SUCCESS;
}

int ncclCommUserRank(const void *communicator, int *rank)
{
	(void)communicator;
	*rank = 0;
	return SUCCESS;
}

/* Registration only makes transfers faster. */
int ncclCommRegister(const void *communicator, void *buffer, size_t size, void **handle)
{
	(void)communicator, (void)size;
	*handle = buffer;
	return SUCCESS;
}

int ncclCommDeregister(const void *communicator, void *handle)
{
	(void)communicator, (void)handle;
	return SUCCESS;
}

int ncclCommGetAsyncError(void *communicator, int *status)
{
	(void)communicator;
	*status = SUCCESS;
	return SUCCESS;
}

/* ---- collectives of one rank: every one of them is a copy ---------------------------------------------- */

/* The driver's copy, which the look-alike driver has. */
__attribute__((weak)) int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream);

static size_t size_of_type(int type)
{
	static const size_t sizes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };
	return type >= 0 && (size_t)type < sizeof sizes / sizeof sizes[0] ? sizes[type] : 1;
}

static int copy(const char *name, const void *from, void *to, size_t count, int type, void *stream)
{
	const uint64_t words[] = { (uintptr_t)from, (uintptr_t)to };
	if (from != to && count > 0 && cuMemcpyDtoDAsync_v2
	    && cuMemcpyDtoDAsync_v2((uintptr_t)to, (uintptr_t)from, count * size_of_type(type), stream) != 0)
		return UNHANDLED_CUDA_ERROR;
	return standin_work(name, stream, words, 2) ? UNHANDLED_CUDA_ERROR : SUCCESS;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, void *comm, void *stream)
{
	(void)operation, (void)comm;
	return copy("ncclAllReduce", from, to, count, type, stream);
}

int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, void *comm, void *stream)
{
	(void)operation, (void)root, (void)comm;
	return copy("ncclReduce", from, to, count, type, stream);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation, void *comm, void *stream)
{
	(void)operation, (void)comm;
	return copy("ncclReduceScatter", from, to, count, type, stream);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream)
{
	(void)root, (void)comm;
	return copy("ncclBroadcast", from, to, count, type, stream);
}

int ncclBcast(void *both, size_t count, int type, int root, void *comm, void *stream)
{
	(void)root, (void)comm;
	return copy("ncclBcast", both, both, count, type, stream);
}

int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream)
{
	(void)comm;
	return copy("ncclAllGather", from, to, count, type, stream);
}

int ncclAlltoAll(const void *from, void *to, size_t count, int type, void *comm, void *stream)
{
	(void)comm;
	return copy("ncclAlltoAll", from, to, count, type, stream);
}

int ncclGather(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream)
{
	(void)root, (void)comm;
	return copy("ncclGather", from, to, count, type, stream);
}

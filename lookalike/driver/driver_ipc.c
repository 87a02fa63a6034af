/* SPDX-License-Identifier: Apache-2.0
 *
 * Other processes' plain memory and events, by 64-byte handles. The processes must share a machine, as those of one
 * `terrazzo sim` do.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

static const char memory_magic[8] = "trz-mem", event_magic[8] = "trz-evt";

/* The contents of a handle. */
struct ipc {
	char magic[8];
	uint64_t pid;
	struct sim_token token;
	uint64_t generation;  /* of the allocation: a later one at its address has another handle */
};

_Static_assert(sizeof(struct ipc) <= sizeof(struct cuda_ipc), "it fits");

/* Memory of another process that this one has opened `count` times. */
struct opened {
	struct opened *next;
	struct sim_token token;
	cuda_addr address;
	unsigned count;
	bool of_pool;
};

static struct {
	pthread_mutex_t lock;
	struct opened *first;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

cuda_result look_ipc_export(struct cuda_ipc *handle, cuda_addr address)
{
	struct ipc ipc = {.pid = (uint64_t)getpid()};
	struct sim_place place;
	LOOK_NEED(sim_place_at(look.sim, address, &place), INVALID_VALUE);
	ipc.generation = place.generation;
	cuda_result result = look_result(sim_plain_export(look.sim, address, &ipc.token));
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	memcpy(ipc.magic, memory_magic, sizeof ipc.magic);
	memset(handle, 0, sizeof *handle);
	memcpy(handle, &ipc, sizeof ipc);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuIpcGetMemHandle(struct cuda_ipc *handle, cuda_addr address)
{
	struct sim_place place;
	void *pool;
	LOOK_ENTER(cuIpcGetMemHandle);
	LOOK_NEED(handle && look_place_at(address, &place, &pool) && !pool && !look_managed(address), INVALID_VALUE);
	return look_ipc_export(handle, address);
}

/* Maps the memory at an address of its own; `access`: the devices that reach it, one bit each. */
static cuda_result lay(trz_handle handle, uint64_t size, uint32_t access, cuda_addr *address)
{
	trz_addr made = 0;
	int devices[LOOK_DEVICES], count = 0;
	for (int i = 0; i < look.devices; i++)
		if (access >> i & 1)
			devices[count++] = i;
	cuda_result result = LOOK_SLOT(reserve, size, 0, 0, &made);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	result = LOOK_SLOT(map, made, size, handle);
	if (result == TRZ_CUDA_SUCCESS) {
		result = LOOK_SLOT(set_access, made, size, devices, count);
		if (result != TRZ_CUDA_SUCCESS)
			LOOK_SLOT(unmap, made, size);
	}
	if (result != TRZ_CUDA_SUCCESS)
		LOOK_SLOT(unreserve, made, size);
	*address = made;
	return result;
}

static cuda_result open_memory(const struct sim_token *token, uint32_t access, bool of_pool, cuda_addr *address)
{
	trz_handle handle;
	struct opened *o = calloc(1, sizeof *o);
	LOOK_NEED(o, OUT_OF_MEMORY);
	cuda_result result = look_result(sim_plain_import(look.sim, token, &handle));
	if (result == TRZ_CUDA_SUCCESS) {
		result = lay(handle, token->size, access, &o->address);
		LOOK_SLOT(release, handle);  /* the mapping keeps it */
	} else {
		fprintf(stderr, "terrazzo: opening another process's memory: the memory is gone, or the other process belongs "
		        "to another terrazzo sim and shares no device with this one\n");
	}
	if (result != TRZ_CUDA_SUCCESS) {
		free(o);
		return result;
	}
	o->token = *token;
	o->count = 1;
	o->of_pool = of_pool;
	o->next = memory.first;
	memory.first = o;
	*address = o->address;
	return TRZ_CUDA_SUCCESS;
}

/* Memory that is opened again keeps its address. */
cuda_result look_ipc_open(cuda_addr *address, const struct cuda_ipc *handle, uint32_t access, bool of_pool)
{
	struct ipc ipc;
	memcpy(&ipc, handle, sizeof ipc);
	LOOK_NEED(memcmp(ipc.magic, memory_magic, sizeof memory_magic) == 0, INVALID_VALUE);
	pthread_mutex_lock(&memory.lock);
	struct opened *o = memory.first;
	while (o && (o->token.machine != ipc.token.machine || o->token.offset != ipc.token.offset || o->of_pool != of_pool))
		o = o->next;
	cuda_addr start = o ? o->address : 0;
	cuda_result result = TRZ_CUDA_SUCCESS;
	if (o)
		o->count++;
	else
		result = open_memory(&ipc.token, access, of_pool, &start);
	pthread_mutex_unlock(&memory.lock);
	if (result == TRZ_CUDA_SUCCESS)
		*address = start + ipc.token.inside;
	return result;
}

/* A process has no need to open its own memory, and cannot. */
cuda_result cuIpcOpenMemHandle_v2(cuda_addr *address, struct cuda_ipc handle, unsigned flags)
{
	struct ipc ipc;
	enum { LAZY_ENABLE_PEER_ACCESS = 1 };  /* the only flag, and required */
	LOOK_ENTER(cuIpcOpenMemHandle_v2);
	LOOK_NEED(flags == LAZY_ENABLE_PEER_ACCESS, INVALID_VALUE);
	trz_context context = look_context();
	LOOK_NEED(context, INVALID_CONTEXT);
	memcpy(&ipc, &handle, sizeof ipc);
	LOOK_NEED(ipc.pid != (uint64_t)getpid(), INVALID_CONTEXT);
	return look_ipc_open(address, &handle, 1u << sim_context_device(look.sim, context), false);
}

bool look_ipc_close(cuda_addr address, bool of_pool, cuda_result *result)
{
	if (!__atomic_load_n(&memory.first, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&memory.lock);
	struct opened **at = &memory.first;
	while (*at && (address < (*at)->address || address - (*at)->address >= (*at)->token.size ||
	               (*at)->of_pool != of_pool))
		at = &(*at)->next;
	struct opened *o = *at;
	*result = TRZ_CUDA_SUCCESS;
	if (o && --o->count == 0) {
		*result = LOOK_SLOT(unmap, o->address, o->token.size);
		LOOK_SLOT(unreserve, o->address, o->token.size);
		*at = o->next;
		free(o);
	}
	pthread_mutex_unlock(&memory.lock);
	return o;
}

cuda_result cuIpcCloseMemHandle(cuda_addr address)
{
	cuda_result result;
	LOOK_ENTER(cuIpcCloseMemHandle);
	LOOK_NEED(look_ipc_close(address, false, &result), INVALID_VALUE);
	return result;
}

/* ---- events ------------------------------------------------------------ */

/* Those that were made for several processes. */
struct shared_event {
	SLIST_ENTRY(shared_event) link;
	const void *event;
};

static struct {
	pthread_mutex_t lock;
	SLIST_HEAD(, shared_event) all;
} events = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct shared_event *find_event(const void *event)
{
	struct shared_event *e;
	SLIST_FOREACH(e, &events.all, link)
		if (e->event == event)
			break;
	return e;
}

bool look_ipc_event_made(const void *event)
{
	struct shared_event *e = malloc(sizeof *e);
	if (!e)
		return false;
	e->event = event;
	pthread_mutex_lock(&events.lock);
	SLIST_INSERT_HEAD(&events.all, e, link);
	pthread_mutex_unlock(&events.lock);
	return true;
}

void look_ipc_event_gone(const void *event)
{
	pthread_mutex_lock(&events.lock);
	struct shared_event *e = find_event(event);
	if (e)
		SLIST_REMOVE(&events.all, e, shared_event, link);
	pthread_mutex_unlock(&events.lock);
	free(e);
}

static bool is_for_processes(const void *event)
{
	pthread_mutex_lock(&events.lock);
	bool is = find_event(event);
	pthread_mutex_unlock(&events.lock);
	return is;
}

/* Waits for the event's work, since each process has queues of its own. */
cuda_result cuIpcGetEventHandle(struct cuda_ipc *handle, void *event)
{
	LOOK_ENTER(cuIpcGetEventHandle);
	LOOK_NEED(handle, INVALID_VALUE);
	LOOK_NEED(event && is_for_processes(event), INVALID_HANDLE);
	cuda_result result = cuEventSynchronize(event);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	memset(handle, 0, sizeof *handle);
	memcpy(handle, event_magic, sizeof event_magic);
	return TRZ_CUDA_SUCCESS;
}

/* A new event, which has passed. */
cuda_result cuIpcOpenEventHandle(void **event, struct cuda_ipc handle)
{
	enum { DISABLE_TIMING = 2 };
	LOOK_ENTER(cuIpcOpenEventHandle);
	LOOK_NEED(memcmp(&handle, event_magic, sizeof event_magic) == 0, INVALID_VALUE);
	return cuEventCreate(event, DISABLE_TIMING);
}

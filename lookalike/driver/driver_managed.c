/* SPDX-License-Identifier: Apache-2.0
 *
 * Managed memory: plain memory that host and devices share, which moves to the host when its device is full. The
 * program can query what it has advised about it, but that changes nothing.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ON_CPU = -1, NOWHERE = -2 };   /* CU_DEVICE_CPU, CU_DEVICE_INVALID */

/* What advice is about; ACCESSED is for one device. */
enum about { READ_MOSTLY, PREFERRED, PREFETCHED, ACCESSED };

/* At each address the newest advice counts. */
struct advice {
	LIST_ENTRY(advice) link;
	cuda_addr start, end;
	enum about about;
	int device, value;           /* `device`: for ACCESSED only */
};

struct managed {
	LIST_ENTRY(managed) link;
	cuda_addr address;
	uint64_t size;
	LIST_HEAD(, advice) advice;  /* newest first */
};

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, managed) all;
	size_t count;                /* read without the lock where 0 means nothing to do */
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock; NULL: the range lies in no managed memory. */
static struct managed *find(cuda_addr address, uint64_t size)
{
	struct managed *m;
	LIST_FOREACH(m, &memory.all, link)
		if (address >= m->address && address - m->address < m->size && size <= m->size - (address - m->address))
			break;
	return m;
}

bool look_managed(cuda_addr address)
{
	if (__atomic_load_n(&memory.count, __ATOMIC_RELAXED) == 0)
		return false;
	pthread_mutex_lock(&memory.lock);
	bool found = find(address, 1);
	pthread_mutex_unlock(&memory.lock);
	return found;
}

/* With the lock. */
static void forget(struct managed *m)
{
	while (!LIST_EMPTY(&m->advice)) {
		struct advice *a = LIST_FIRST(&m->advice);
		LIST_REMOVE(a, link);
		free(a);
	}
	LIST_REMOVE(m, link);
	memory.count--;
	free(m);
}

void look_managed_forget(cuda_addr address)
{
	if (__atomic_load_n(&memory.count, __ATOMIC_RELAXED) == 0)
		return;
	pthread_mutex_lock(&memory.lock);
	struct managed *m = find(address, 1);
	if (m && m->address == address)
		forget(m);
	pthread_mutex_unlock(&memory.lock);
}

void look_managed_end_context(void)
{
	struct sim_place place;
	struct managed *m, *next;
	pthread_mutex_lock(&memory.lock);
	for (m = LIST_FIRST(&memory.all); m; m = next) {
		next = LIST_NEXT(m, link);
		if (!sim_place_at(look.sim, m->address, &place))
			forget(m);
	}
	pthread_mutex_unlock(&memory.lock);
}

/* False: no host memory. */
static bool add(cuda_addr address, uint64_t size)
{
	struct managed *m = calloc(1, sizeof *m);
	if (!m)
		return false;
	m->address = address;
	m->size = size;
	pthread_mutex_lock(&memory.lock);
	LIST_INSERT_HEAD(&memory.all, m, link);
	memory.count++;
	pthread_mutex_unlock(&memory.lock);
	return true;
}

void trz_lookalike_managed(uint64_t address, uint64_t size)
{
	if (!look_managed(address))
		add(address, size);
}

cuda_result cuMemAllocManaged(cuda_addr *address, size_t size, unsigned flags)
{
	enum { ATTACH_GLOBAL = 1, ATTACH_HOST = 2 };
	LOOK_ENTER(cuMemAllocManaged);
	LOOK_NEED(address && size > 0 && (flags == ATTACH_GLOBAL || flags == ATTACH_HOST), INVALID_VALUE);
	trz_context context = look_context();
	LOOK_NEED(context, INVALID_CONTEXT);
	trz_addr made = 0;
	int device = sim_context_device(look.sim, context);
	cuda_result result = look_result(sim_managed_alloc(look.sim, context, size, &made));
	look_answered("cuMemAllocManaged", size, device, result);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	*address = made;
	look_note_request(SIM_RECORDED_ALLOC, device, context, NULL, made, size);
	if (add(made, size))
		return TRZ_CUDA_SUCCESS;
	look_plain_free(context, made);
	return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- advice ------------------------------------------------------------ */

static cuda_result note(cuda_addr address, uint64_t size, struct advice like)
{
	struct advice *a = malloc(sizeof *a);
	LOOK_NEED(a, OUT_OF_MEMORY);
	*a = like;
	a->start = address;
	a->end = address + size;
	pthread_mutex_lock(&memory.lock);
	struct managed *m = size ? find(address, size) : NULL;
	if (m)
		LIST_INSERT_HEAD(&m->advice, a, link);
	pthread_mutex_unlock(&memory.lock);
	if (!m)
		free(a);
	LOOK_NEED(m, INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

/* The values of `advice`, from 1, are pairs: one sets something, the next unsets it. */
cuda_result cuMemAdvise(cuda_addr address, size_t size, int advice, cuda_device device)
{
	enum { PAIRS = 3 };
	static const enum about abouts[PAIRS] = {READ_MOSTLY, PREFERRED, ACCESSED};
	LOOK_ENTER(cuMemAdvise);
	LOOK_NEED(advice >= 1 && advice <= 2 * PAIRS, INVALID_VALUE);
	enum about about = abouts[(advice - 1) / 2];
	bool set = advice % 2;
	LOOK_NEED(about == READ_MOSTLY || (!set && about == PREFERRED) || (device >= ON_CPU && device < look.devices),
	          INVALID_DEVICE);
	struct advice like = {.about = about, .value = set};
	if (about == PREFERRED)
		like.value = set ? device : NOWHERE;
	if (about == ACCESSED)
		like.device = device;
	return note(address, size, like);
}

static int device_of(struct cuda_mem_location location)
{
	return location.type == TRZ_CU_MEM_LOCATION_TYPE_DEVICE ? location.id : ON_CPU;
}

cuda_result cuMemAdvise_v2(cuda_addr address, size_t size, int advice, struct cuda_mem_location location)
{
	return cuMemAdvise(address, size, advice, device_of(location));
}

cuda_result cuMemPrefetchAsync(cuda_addr address, size_t size, cuda_device device, void *stream)
{
	LOOK_ENTER(cuMemPrefetchAsync);
	LOOK_NEED(look_stream_context(stream), INVALID_CONTEXT);
	LOOK_NEED(device >= ON_CPU && device < look.devices, INVALID_DEVICE);
	return note(address, size, (struct advice){.about = PREFETCHED, .value = device});
}

cuda_result cuMemPrefetchAsync_v2(cuda_addr address, size_t size, struct cuda_mem_location location, unsigned flags,
                                  void *stream)
{
	LOOK_NEED(flags == 0, INVALID_VALUE);
	return cuMemPrefetchAsync(address, size, device_of(location), stream);
}

cuda_result cuStreamAttachMemAsync(void *stream, cuda_addr address, size_t size, unsigned flags)
{
	enum { ATTACH_SINGLE = 4 };
	LOOK_ENTER(cuStreamAttachMemAsync);
	(void)size;
	LOOK_NEED(look_stream_context(stream), INVALID_CONTEXT);
	LOOK_NEED(look_managed(address) && flags && flags <= ATTACH_SINGLE && !(flags & (flags - 1)), INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

/* ---- questions ------------------------------------------------------------ */

/* With the lock: the value that counts at an address. */
static int value_at(const struct managed *m, enum about about, int device, cuda_addr address)
{
	const struct advice *a;
	LIST_FOREACH(a, &m->advice, link)
		if (a->about == about && a->device == device && address >= a->start && address < a->end)
			return a->value;
	return about == PREFERRED || about == PREFETCHED ? NOWHERE : 0;
}

/* With the lock: the value that counts in the whole range; `mixed` if it is not the same everywhere. */
static int value_of(const struct managed *m, enum about about, int device, cuda_addr start, uint64_t size, int mixed)
{
	const struct advice *a;
	int value = value_at(m, about, device, start);
	LIST_FOREACH(a, &m->advice, link) {
		if (a->start > start && a->start - start < size && value_at(m, about, device, a->start) != value)
			return mixed;
		if (a->end > start && a->end - start < size && value_at(m, about, device, a->end) != value)
			return mixed;
	}
	return value;
}

/* The CUmemLocationType of a device number. */
static int type_of(int device)
{
	return device == NOWHERE ? 0 : device == ON_CPU ? TRZ_CU_MEM_LOCATION_TYPE_HOST : TRZ_CU_MEM_LOCATION_TYPE_DEVICE;
}

static void list_accessed(const struct managed *m, cuda_addr address, size_t size, int *list, size_t room)
{
	size_t found = 0;
	for (int i = ON_CPU; i < look.devices && found < room; i++)
		if (value_of(m, ACCESSED, i, address, size, 0))
			list[found++] = i;
	while (found < room)
		list[found++] = NOWHERE;
}

/* With the lock: answers a query; the values of CUmem_range_attribute begin at 1. */
static cuda_result answer(const struct managed *m, void *data, size_t data_size, int attribute, cuda_addr address,
                          size_t size)
{
	enum { OF_READ_MOSTLY = 1, OF_PREFERRED, OF_ACCESSED, OF_PREFETCHED, PREFERRED_TYPE, PREFERRED_ID, PREFETCHED_TYPE,
	       PREFETCHED_ID };
	int value, preferred = value_of(m, PREFERRED, 0, address, size, NOWHERE);
	int prefetched = value_of(m, PREFETCHED, 0, address, size, NOWHERE);
	if (attribute == OF_ACCESSED) {
		LOOK_NEED(data_size && data_size % sizeof(int) == 0, INVALID_VALUE);
		list_accessed(m, address, size, data, data_size / sizeof(int));
		return TRZ_CUDA_SUCCESS;
	}
	LOOK_NEED(data_size == sizeof value && attribute >= OF_READ_MOSTLY && attribute <= PREFETCHED_ID, INVALID_VALUE);
	bool wants_type = attribute == PREFERRED_TYPE || attribute == PREFETCHED_TYPE;
	bool of_prefetch = attribute == OF_PREFETCHED || attribute >= PREFETCHED_TYPE;
	value = of_prefetch ? prefetched : preferred;
	if (attribute == OF_READ_MOSTLY)
		value = value_of(m, READ_MOSTLY, 0, address, size, 0);
	else if (wants_type)
		value = type_of(value);
	memcpy(data, &value, sizeof value);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemRangeGetAttributes(void **data, size_t *data_sizes, int *attributes, size_t count, cuda_addr address,
                                    size_t size)
{
	LOOK_ENTER(cuMemRangeGetAttributes);
	LOOK_NEED(data && data_sizes && attributes && count > 0 && size > 0, INVALID_VALUE);
	cuda_result result = TRZ_CUDA_SUCCESS;
	pthread_mutex_lock(&memory.lock);
	const struct managed *m = find(address, size);
	for (size_t i = 0; m && i < count && result == TRZ_CUDA_SUCCESS; i++)
		result = data[i] ? answer(m, data[i], data_sizes[i], attributes[i], address, size)
		                 : TRZ_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&memory.lock);
	LOOK_NEED(m, INVALID_VALUE);
	return result;
}

cuda_result cuMemRangeGetAttribute(void *data, size_t data_size, int attribute, cuda_addr address, size_t size)
{
	LOOK_COUNT(cuMemRangeGetAttribute);
	return cuMemRangeGetAttributes(&data, &data_size, &attribute, 1, address, size);
}

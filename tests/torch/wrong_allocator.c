/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator for torch.cuda.memory.CUDAPluggableAllocator that is right, or wrong on purpose: mistakes.py shows that
 * the simulated device finds out. Each allocation is physical memory of its own (cuMemCreate), mapped at an address of
 * its own; freed pieces are kept by stream, and unmapped beyond a limit.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

enum { RIGHT, IGNORES_RECORD_STREAM, UNMAPS_LIVE_POOL };
enum { MOST_PIECES = 4096, MOST_EVENTS = 8 };

#define GRANULE ((size_t)2 << 20)
#define MOST_CACHED (4 * GRANULE)

struct property {
	int type, handle_types, location_type, device;
	void *win32;
	uint64_t flags;
};

struct access {
	int location_type, device, flags;
};

/* PyTorch's MempoolId_t. */
struct pool {
	uint64_t first, second;
};

/* `events` were recorded when it was freed, on its own stream and on those that used it; in a capture, none. */
struct piece {
	uint64_t address, handle;
	size_t size;
	void *stream, *users[MOST_EVENTS], *events[MOST_EVENTS];
	int user_count, event_count;
	struct pool pool;
	int is_free;
};

int cuMemCreate(uint64_t *, size_t, const struct property *, uint64_t), cuMemRelease(uint64_t);
int cuMemAddressReserve(uint64_t *, size_t, size_t, uint64_t, uint64_t), cuMemAddressFree(uint64_t, size_t);
int cuMemMap(uint64_t, size_t, size_t, uint64_t, uint64_t), cuMemUnmap(uint64_t, size_t);
int cuMemSetAccess(uint64_t, size_t, const struct access *, size_t);
int cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuEventQuery(void *), cuEventDestroy_v2(void *);
int cuCtxSynchronize(void);

int mistake = RIGHT;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct piece pieces[MOST_PIECES];  /* unused where address is 0 */
static struct pool current;               /* {0, 0}: none */

static void must(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "wrong_allocator: %s: error %d\n", what, result);
	exit(3);
}
#define MUST(call) must(call, #call)

static int same_pool(struct pool a, struct pool b)
{
	return a.first == b.first && a.second == b.second;
}

/* Events may neither be recorded nor queried then; what is freed is kept for the graph. */
static int is_capture(void)
{
	const struct pool none = {0, 0};
	return !same_pool(current, none);
}

static int has_passed(const struct piece *p)
{
	for (int i = 0; i < p->event_count; i++)
		if (cuEventQuery(p->events[i]) != 0)
			return 0;
	return 1;
}

static void forget_events(struct piece *p)
{
	for (int i = 0; i < p->event_count; i++)
		MUST(cuEventDestroy_v2(p->events[i]));
	p->event_count = p->user_count = 0;
}

static void make(struct piece *p, size_t size, int device)
{
	const struct property property = {.type = 1, .location_type = 1, .device = device};
	const struct access access = {1, device, 3};
	p->size = size;
	MUST(cuMemCreate(&p->handle, size, &property, 0));
	MUST(cuMemAddressReserve(&p->address, size, 0, 0, 0));
	MUST(cuMemMap(p->address, size, 0, p->handle, 0));
	MUST(cuMemSetAccess(p->address, size, &access, 1));
}

static void end(struct piece *p)
{
	forget_events(p);
	MUST(cuMemUnmap(p->address, p->size));
	MUST(cuMemRelease(p->handle));
	MUST(cuMemAddressFree(p->address, p->size));
	memset(p, 0, sizeof *p);
}

/* The first events are those of other streams; that of its own matters only to who unmaps. */
static int may_be_used_again(const struct piece *p)
{
	for (int i = 0; i + 1 < p->event_count; i++)
		if (cuEventQuery(p->events[i]) != 0)
			return 0;
	return 1;
}

static void shrink_cache(void)
{
	const struct pool none = {0, 0};
	size_t cached = 0;
	for (int i = 0; i < MOST_PIECES; i++) {
		struct piece *p = &pieces[i];
		if (!p->address || !p->is_free || !same_pool(p->pool, none))
			continue;
		cached += p->size;
		if (cached > MOST_CACHED && has_passed(p)) {
			cached -= p->size;
			end(p);
		}
	}
}

void *wrong_alloc(ssize_t wanted, int device, void *stream)
{
	size_t size = ((size_t)wanted + GRANULE - 1) / GRANULE * GRANULE;
	struct piece *found = NULL, *unused = NULL;
	if (wanted == 0)
		return NULL;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MOST_PIECES && !found; i++) {
		struct piece *p = &pieces[i];
		if (!p->address)
			unused = unused ? unused : p;
		else if (p->is_free && p->size == size && p->stream == stream && same_pool(p->pool, current) &&
		         may_be_used_again(p))
			found = p;
	}
	if (!found) {
		if (!unused)
			must(1, "too many pieces");
		found = unused;
		make(found, size, device);
	}
	forget_events(found);
	found->is_free = 0;
	found->stream = stream;
	found->pool = current;
	pthread_mutex_unlock(&lock);
	return (void *)(uintptr_t)found->address;
}

static struct piece *find(const void *address)
{
	for (int i = 0; i < MOST_PIECES; i++)
		if (pieces[i].address == (uintptr_t)address)
			return &pieces[i];
	return NULL;
}

static void record(struct piece *p, void *stream)
{
	enum { NO_TIMING = 2 };
	MUST(cuEventCreate(&p->events[p->event_count], NO_TIMING));
	MUST(cuEventRecord(p->events[p->event_count++], stream));
}

void wrong_free(void *address, ssize_t size, int device, void *stream)
{
	(void)size, (void)device, (void)stream;
	if (!address)
		return;
	pthread_mutex_lock(&lock);
	struct piece *p = find(address);
	must(!p, "free of what was never allocated");
	p->is_free = 1;
	if (is_capture()) {
		p->pool = current;
	} else {
		for (int i = 0; i < p->user_count; i++)
			record(p, p->users[i]);
		record(p, p->stream);
		shrink_cache();
	}
	pthread_mutex_unlock(&lock);
}

void wrong_record_stream(void *address, void *stream)
{
	pthread_mutex_lock(&lock);
	struct piece *p = find(address);
	if (p && p->stream != stream && mistake != IGNORES_RECORD_STREAM && p->user_count < MOST_EVENTS - 1)
		p->users[p->user_count++] = stream;
	pthread_mutex_unlock(&lock);
}

/* The filter, a reference to a std::function, would say which streams are meant. */
void wrong_begin_pool(int device, struct pool pool, const void *filter)
{
	(void)device, (void)filter;
	current = pool;
}

/* The graph will use what was freed while it was captured: to unmap that is the second mistake. */
void wrong_end_pool(int device, struct pool pool)
{
	const struct pool none = {0, 0};
	(void)device;
	pthread_mutex_lock(&lock);
	current = none;
	for (int i = 0; i < MOST_PIECES && mistake == UNMAPS_LIVE_POOL; i++)
		if (pieces[i].address && pieces[i].is_free && same_pool(pieces[i].pool, pool))
			end(&pieces[i]);
	pthread_mutex_unlock(&lock);
}

void wrong_release_pool(int device, struct pool pool)
{
	const struct pool none = {0, 0};
	(void)device;
	MUST(cuCtxSynchronize());
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MOST_PIECES; i++) {
		if (!pieces[i].address || !same_pool(pieces[i].pool, pool))
			continue;
		pieces[i].pool = none;
		if (pieces[i].is_free)
			end(&pieces[i]);
	}
	pthread_mutex_unlock(&lock);
}

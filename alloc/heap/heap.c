/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening and closing a heap's structures; the window at an address; asking the device what it has free.
 */
#include "heap/heap.h"

#include <assert.h>
#include <sched.h>
#include <string.h>

#include "error.h"

_Thread_local struct heap_thread heap_thread;

/* ---- opening and closing ---- */

enum { QUARANTINE_ALL = 1 << 20 };  /* times the device's memory: more than there are addresses */
enum { SITES_SEED = 0x7e44a220 };

static atomic_uint_fast64_t opened;  /* heaps so far, in this process */

/* Sets the options that the debugging options change. */
static trz_status apply_aids(trz_heap *h)
{
	struct config *c = &h->config;
	bool never_again = c->guard || c->unmap_on_free;
	if (never_again && !h->driver.vmm)
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "%s needs virtual memory management, which device %d lacks",
		                c->guard ? "guard" : "unmap_on_free", h->driver.device);
	h->dedicates = c->no_cache || never_again;
	if (c->no_cache)
		c->small_limit = 0;
	if (never_again)
		c->quarantine = QUARANTINE_ALL;
	return TRZ_OK;
}

static trz_status open_structures(trz_heap *h)
{
	uint64_t free_bytes, total;
	trz_status status = driver_mem_info(&h->driver, &free_bytes, &total);
	if (status != TRZ_OK)
		return trz_fail(status, "reading the free memory of device %d failed: %s", h->driver.device,
		                trz_driver_last_error());
	counter_set(&h->attainable, free_bytes);
	if (!pagemap_open(&h->pagemap, &h->meta))
		return meta_exhausted();
	node_pool_init(&h->blocks, &h->meta, sizeof(struct block));
	node_pool_init(&h->slabs, &h->meta, align_up(sizeof(struct slab), 64));  /* each in cache lines of its own */
	node_pool_init(&h->pendings, &h->meta, sizeof(struct pending));
	node_pool_init(&h->uses, &h->meta, sizeof(struct use));
	node_pool_init(&h->slot_frames, &h->meta, SLAB_SLOTS_MAX * sizeof(uint64_t));
	node_pool_init(&h->slot_sites, &h->meta, SLAB_SLOTS_MAX * sizeof(uint16_t));
	clocks_init(&h->clocks, &h->meta);
	h->clocks.off = !h->config.order;
	h->config.tile_size = align_up(h->config.tile_size, h->driver.granule);
	h->config.tile_size_max = align_up(h->config.tile_size_max, h->driver.granule);
	tiles_init(&h->tiles, &h->meta, &h->driver, &h->counters,
	           h->config.exportable && h->driver.info.export_fd ? TRZ_EXPORT_FD : TRZ_EXPORT_NONE);
	h->streams.meta = h->events.meta = h->undestroyed.meta = &h->meta;
	h->events.context = h->undestroyed.context = h->driver.context;
	h->streams.counters = &h->counters;
	lanes_init(&h->streams.lanes);
	h->sites.on = h->config.sites;
	h->sites.random = SITES_SEED;
	h->sites.last_stack = SITES_OTHER;
	h->serial = atomic_fetch_add_explicit(&opened, 1, memory_order_relaxed) + 1;
	h->tile_least[SMALL] = h->tile_least[LARGE] = SIZE_LIMIT;
	atomic_init(&h->limit, h->config.limit);
	return TRZ_OK;
}

/* Every allocation is a reader, so writers go first: else a thread that begins or ends a diversion would have to wait
 * for a gap between readers. */
static void init_divert_lock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attributes;
	pthread_rwlockattr_init(&attributes);
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(lock, &attributes);
	pthread_rwlockattr_destroy(&attributes);
}

trz_status heap_open(trz_heap *h, const trz_open_params *params, const trz_driver *table)
{
	trz_status status = config_load(&h->config, params->config);
	if (status != TRZ_OK)
		return status;
	status = driver_bind(&h->driver, table, params->device, params->context, h->config.vmm, &h->counters);
	if (status != TRZ_OK)
		return status;
	if (!meta_open(&h->meta)) {
		driver_unbind(&h->driver);
		return meta_exhausted();
	}
	h->lock.occasional = true;
	spinlock_allow_biases();
	pthread_mutex_init(&h->growth_lock, NULL);
	pthread_mutex_init(&h->oom_lock, NULL);
	pthread_mutex_init(&h->steps.lock, NULL);
	init_divert_lock(&h->divert_lock);
	status = apply_aids(h);
	if (status == TRZ_OK)
		status = open_structures(h);
	if (status != TRZ_OK)
		heap_close(h);
	return status;
}

void heap_close(trz_heap *h)
{
	pthread_mutex_destroy(&h->growth_lock);
	pthread_mutex_destroy(&h->oom_lock);
	pthread_mutex_destroy(&h->steps.lock);
	pthread_rwlock_destroy(&h->divert_lock);
	meta_close(&h->meta);
	driver_unbind(&h->driver);
}

struct window *heap_window_at(const trz_heap *h, trz_addr address)
{
	HEAP_GROWTH_LOCKED(h);
	struct window *const lists[] = {h->windows[SMALL], h->windows[LARGE], h->imports};
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		for (struct window *w = lists[i]; w; w = w->next)
			if (address >= w->base && address < w->top)
				return w;
	return NULL;
}

uint64_t heap_ask_device(trz_heap *h, uint64_t *total)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t free_bytes, unused;
	if (driver_mem_info(&h->driver, &free_bytes, total ? total : &unused) != TRZ_OK)
		return 0;
	h->withheld = min_u64(h->withheld, free_bytes);
	free_bytes -= h->withheld;
	counter_set(&h->attainable, heap_reserved(h) + free_bytes);
	return free_bytes;
}

trz_status heap_not_permitted(const char *function)
{
	return trz_fail(TRZ_ERROR_NOT_PERMITTED, "%s was called in a host function of a stream, where CUDA permits no "
	                "calls", function);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading the tool, once for the process, and calling its functions.
 */
#include "observe/nvtx.h"

#include <dlfcn.h>
#include <stdio.h>

#include "error.h"
#include "heap/ledger.h"
#include "observe/nvtx_abi.h"

static struct {
	pthread_mutex_t lock;        /* guards all here, and the windows' nvtx_*; held while the tool is called */
	bool tried, loaded;
	char why[256];               /* why it could not be loaded */
	intptr_t slots[NVTX_ABI_SLOTS];
} tool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool begin_locked(void *symbol, const char *why)
{
	struct nvtx_segment segment = {.id = 1, .slot_count = NVTX_ABI_SLOTS, .slots = tool.slots};
	struct nvtx_module module = {.version = NVTX_ABI_VERSION,
	                             .size = sizeof module,
	                             .module = NVTX_ABI_MODULE_MEM,
	                             .compat = NVTX_ABI_COMPAT_MEM,
	                             .segment_count = 1,
	                             .segments = &segment};
	if (!symbol) {
		snprintf(tool.why, sizeof tool.why, "%.240s", why ? why : "it has no " NVTX_ABI_INITIALIZE);
		return false;
	}
	nvtx_initialize *initialize;
	*(void **)&initialize = symbol;
	if (initialize(&module))
		return true;
	snprintf(tool.why, sizeof tool.why, "the tool refuses");
	return false;
}

/* The tool may wait, which is a cancellation point; its lock must be given back. Returns what give_tool needs. */
static int take_tool(void)
{
	int cancel = uncancelled_begin();
	pthread_mutex_lock(&tool.lock);
	return cancel;
}

static void give_tool(int cancel)
{
	pthread_mutex_unlock(&tool.lock);
	uncancelled_end(cancel);
}

/* NULL: the tool ignores this event. */
#define SLOT(type, index) ((type *)tool.slots[index])

static bool was_tried(void)
{
	pthread_mutex_lock(&tool.lock);
	bool tried = tool.tried;
	pthread_mutex_unlock(&tool.lock);
	return tried;
}

/* Once for the process. The dynamic linker is asked with no lock held: docs/lock-order.md. */
static void load(const char *path)
{
	if (was_tried())
		return;
	void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	void *symbol = library ? dlsym(library, NVTX_ABI_INITIALIZE) : NULL;
	const char *why = symbol ? NULL : dlerror();
	int cancel = take_tool();
	if (!tool.tried) {
		tool.tried = true;
		tool.loaded = begin_locked(symbol, why);
	}
	give_tool(cancel);
}

void nvtx_load(void)
{
	struct config config;
	const char *path = config_injection_path();
	if (path && !was_tried() && config_load(&config, NULL) == TRZ_OK && config.nvtx)
		load(path);
}

trz_status nvtx_open(trz_heap *h)
{
	const char *path = h->config.nvtx ? config_injection_path() : NULL;
	if (!path)
		return TRZ_OK;
	load(path);
	pthread_mutex_lock(&tool.lock);
	bool loaded = tool.loaded;
	pthread_mutex_unlock(&tool.lock);
	if (!loaded)
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "the tool that NVTX_INJECTION64_PATH names cannot be used, %s: "
		                "correct the path, or set nvtx:off", tool.why);
	h->annotates = true;
	return TRZ_OK;
}

static void register_window_locked(const trz_heap *h, struct window *w)
{
	char name[64];
	const struct nvtx_range range = {w->size, (const void *)w->base};
	snprintf(name, sizeof name, "terrazzo, device %d", h->driver.device);
	const struct nvtx_heap_desc desc = {.compat = NVTX_ABI_COMPAT_MEM,
	                                    .size = sizeof desc,
	                                    .usage = NVTX_ABI_HEAP_SUB_ALLOCATOR,
	                                    .type = NVTX_ABI_TYPE_ADDRESS,
	                                    .range_size = sizeof range,
	                                    .range = &range,
	                                    .message_type = NVTX_ABI_MESSAGE_ASCII,
	                                    .message = name};
	nvtx_heap_register *call = SLOT(nvtx_heap_register, NVTX_ABI_HEAP_REGISTER);
	w->nvtx_heap = call ? call(NULL, &desc) : NULL;
	w->nvtx_known = true;
}

/* A live allocation; no window: there is none. The window stays while it is live. */
struct region {
	struct window *window;
	uint64_t size;               /* as requested */
};

static struct region slot_at_locked(trz_heap *h, const struct slab *s, trz_addr address)
{
	HEAP_LOCKED(h);
	heap_call_in_locked(h, s->home->stream);
	unsigned slot = slab_slot_at(s, address);
	if (slot == SLAB_SLOTS_MAX || (s->free | s->pending) >> slot & 1)
		return (struct region){.window = NULL};
	return (struct region){s->block->window, slab_class(s)->slot_size - s->unused[slot]};
}

/* The allocation that begins at an address, unless it is another process's memory, of which the tool knows nothing. */
static struct region find(trz_heap *h, trz_addr address)
{
	struct region r = {.window = NULL};
	heap_lock(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	const struct block *b = pagemap_is_slab(entry) ? NULL : pagemap_block(entry);
	if (pagemap_is_slab(entry))
		r = slot_at_locked(h, pagemap_slab(entry), address);
	else if (b && b->address == address && !b->window->foreign)
		r = (struct region){b->window, b->requested};
	heap_unlock(h);
	return r;
}

void nvtx_allocated(trz_heap *h, trz_addr address)
{
	const struct region r = find(h, address);
	if (!r.window)
		return;
	const struct nvtx_range range = {r.size, (const void *)address};
	int cancel = take_tool();
	if (!r.window->nvtx_known)
		register_window_locked(h, r.window);
	const struct nvtx_regions regions = {.compat = NVTX_ABI_COMPAT_MEM,
	                                     .size = sizeof regions,
	                                     .type = NVTX_ABI_TYPE_ADDRESS,
	                                     .heap = r.window->nvtx_heap,
	                                     .count = 1,
	                                     .element_size = sizeof range,
	                                     .elements = &range};
	nvtx_regions_register *call = SLOT(nvtx_regions_register, NVTX_ABI_REGIONS_REGISTER);
	if (call)
		call(NULL, &regions);
	give_tool(cancel);
}

void nvtx_freeing(trz_heap *h, trz_addr address)
{
	const void *region = (const void *)address;
	const struct nvtx_region_refs refs = {.compat = NVTX_ABI_COMPAT_MEM,
	                                      .size = sizeof refs,
	                                      .type = NVTX_ABI_REF_POINTER,
	                                      .count = 1,
	                                      .element_size = sizeof region,
	                                      .elements = &region};
	if (!find(h, address).window)
		return;
	int cancel = take_tool();
	nvtx_regions_unregister *call = SLOT(nvtx_regions_unregister, NVTX_ABI_REGIONS_UNREGISTER);
	if (call)
		call(NULL, &refs);
	give_tool(cancel);
}

void nvtx_window_closing(trz_heap *h, struct window *w)
{
	if (!h->annotates)
		return;
	int cancel = take_tool();
	nvtx_heap_unregister *call = SLOT(nvtx_heap_unregister, NVTX_ABI_HEAP_UNREGISTER);
	if (w->nvtx_known && call)
		call(NULL, w->nvtx_heap);
	w->nvtx_known = false;
	give_tool(cancel);
}

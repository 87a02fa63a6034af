/* SPDX-License-Identifier: Apache-2.0
 *
 * The injected tool.
 */
#include "fake_tool.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "observe/nvtx_abi.h"

struct fake_tool fake_tool;

int InitializeInjectionNvtxExtension(struct nvtx_module *module);

static void blame(const char *what)
{
	if (!*fake_tool.wrong)
		snprintf(fake_tool.wrong, sizeof fake_tool.wrong, "%s", what);
}

static void need(int condition, const char *what)
{
	if (!condition)
		blame(what);
}

static struct fake_region *heap_of(void *handle)
{
	for (size_t i = 0; i < fake_tool.heap_count; i++)
		if (fake_tool.heaps[i].heap == handle)
			return &fake_tool.heaps[i];
	return NULL;
}

static void *heap_register(void *domain, const struct nvtx_heap_desc *d)
{
	const struct nvtx_range *r = d->range;
	fake_tool.calls++;
	need(!domain && d->compat == 0x0102 && d->size == sizeof *d, "a heap's form");
	need(d->usage == 1 && d->type == 1 && d->range_size == sizeof *r, "a heap's kind");
	need(r->size && fake_tool.heap_count < FAKE_TOOL_MAX, "a heap's range");
	struct fake_region heap = {(uint64_t)r->address, r->size, (void *)(fake_tool.calls | (uint64_t)1 << 40)};
	fake_tool.heaps[fake_tool.heap_count++] = heap;
	snprintf(fake_tool.name, sizeof fake_tool.name, "%s", d->message);
	return heap.heap;
}

static void heap_unregister(void *domain, void *handle)
{
	struct fake_region *heap = heap_of(handle);
	fake_tool.calls++;
	need(!domain && heap, "an unknown heap goes");
	for (size_t i = fake_tool.region_count; i-- > 0;)  /* its regions go with it */
		if (fake_tool.regions[i].heap == handle)
			fake_tool.regions[i] = fake_tool.regions[--fake_tool.region_count];
	if (heap)
		*heap = fake_tool.heaps[--fake_tool.heap_count];
}

static void regions_register(void *domain, const struct nvtx_regions *d)
{
	const struct nvtx_range *r = d->elements;
	const struct fake_region *heap = heap_of(d->heap);
	fake_tool.calls++;
	need(!domain && d->compat == 0x0102 && d->size == sizeof *d && d->type == 1, "a batch's form");
	need(d->count == 1 && d->element_size == sizeof *r && !d->handles, "a batch's elements");
	uint64_t address = (uint64_t)r->address;
	need(heap && address >= heap->address && address + r->size <= heap->address + heap->size, "a region outside");
	for (size_t i = 0; i < fake_tool.region_count; i++)
		need(address >= fake_tool.regions[i].address + fake_tool.regions[i].size ||
		         fake_tool.regions[i].address >= address + r->size, "regions overlap");
	need(fake_tool.region_count < FAKE_TOOL_MAX, "too many regions");
	if (fake_tool.waits)
		pthread_testcancel();
	fake_tool.regions[fake_tool.region_count++] = (struct fake_region){address, r->size, d->heap};
}

static void regions_unregister(void *domain, const struct nvtx_region_refs *d)
{
	fake_tool.calls++;
	need(!domain && d->compat == 0x0102 && d->size == sizeof *d && d->type == 1, "a list's form");
	need(d->count == 1 && d->element_size == sizeof(void *), "a list's elements");
	for (size_t i = 0; i < fake_tool.region_count; i++)
		if (fake_tool.regions[i].address == *(const uint64_t *)d->elements) {
			fake_tool.regions[i] = fake_tool.regions[--fake_tool.region_count];
			return;
		}
	blame("an unknown region goes");
}

int InitializeInjectionNvtxExtension(struct nvtx_module *module)
{
	need(module->version == 3 && module->size == sizeof *module && module->module == 1, "the module's form");
	need(module->compat == 0x0102 && module->segment_count == 1 && module->segments->id == 1, "the module's segment");
	need(module->segments->slot_count == 63, "the module's slots");
	for (size_t i = 0; i < 63; i++)
		need(module->segments->slots[i] == 0, "a slot that is taken");
	module->segments->slots[0] = (intptr_t)heap_register;
	module->segments->slots[1] = (intptr_t)heap_unregister;
	module->segments->slots[3] = (intptr_t)regions_register;
	module->segments->slots[5] = (intptr_t)regions_unregister;
	fake_tool.initialized++;
	return 1;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The registration cache, and the replaced slots by which it watches the driver.
 */
#include "registry.h"

#include <pthread.h>
#include <stdio.h>

static struct registry *watched;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void blame(struct registry *r, const char *what, trz_addr address)
{
	if (!*r->wrong)
		snprintf(r->wrong, sizeof r->wrong, "%#llx %s", (unsigned long long)address, what);
}

static struct registration *find(struct registration *list, size_t count, trz_addr address, uint64_t size)
{
	for (size_t i = count; i-- > 0;)
		if (address < list[i].address + list[i].size && list[i].address < address + size)
			return &list[i];
	return NULL;
}

static void add(struct registration *list, size_t *count, struct registration entry)
{
	assert_true(*count < REGISTRY_MAX);
	list[(*count)++] = entry;
}

static void drop(struct registration *list, size_t *count, struct registration *entry)
{
	*entry = list[--*count];
}

/* ---- the driver's side ---- */

static void driver_maps(trz_addr address, uint64_t size, trz_handle handle)
{
	struct registry *r = watched;
	pthread_mutex_lock(&lock);
	if (find(r->known, r->known_count, address, size))
		blame(r, "is laid again while the cache knows it", address);
	add(r->mapped, &r->mapped_count, (struct registration){address, size, handle});
	pthread_mutex_unlock(&lock);
}

static void driver_unmaps(trz_addr address, uint64_t size)
{
	struct registry *r = watched;
	pthread_mutex_lock(&lock);
	if (find(r->known, r->known_count, address, size))
		blame(r, "is unmapped while the cache knows it", address);
	for (struct registration *m; (m = find(r->mapped, r->mapped_count, address, size));)
		drop(r->mapped, &r->mapped_count, m);
	pthread_mutex_unlock(&lock);
}

static trz_status watched_map(void *self, trz_addr address, uint64_t size, trz_handle handle)
{
	trz_status status = watched->overlay->rig.d->map(self, address, size, handle);
	if (status == TRZ_OK)
		driver_maps(address, size, handle);
	return status;
}

static trz_status watched_unmap(void *self, trz_addr address, uint64_t size)
{
	pthread_mutex_lock(&lock);
	struct registration *m = find(watched->mapped, watched->mapped_count, address, size), before = {0};
	if (m)
		before = *m;
	pthread_mutex_unlock(&lock);
	trz_status status = watched->overlay->rig.d->unmap(self, address, size);
	if (status == TRZ_OK)
		driver_unmaps(before.address, before.size);
	return status;
}

static trz_status watched_alloc(void *self, trz_context context, uint64_t size, trz_addr *address)
{
	trz_status status = watched->overlay->rig.d->mem_alloc(self, context, size, address);
	if (status == TRZ_OK)
		driver_maps(*address, size, ++watched->handles);
	return status;
}

static trz_status watched_free(void *self, trz_context context, trz_addr address)
{
	trz_status status = watched->overlay->rig.d->mem_free(self, context, address);
	if (status == TRZ_OK)
		driver_unmaps(address, 1);
	return status;
}

void registry_watch(struct registry *r, struct overlay *o)
{
	*r = (struct registry){.overlay = o};
	watched = r;
	o->table.map = watched_map;
	o->table.unmap = watched_unmap;
	o->table.mem_alloc = watched_alloc;
	o->table.mem_free = watched_free;
}

/* ---- the cache's side ---- */

static void learn(struct registry *r, trz_addr address, uint64_t size)
{
	const struct registration *m = find(r->mapped, r->mapped_count, address, size);
	r->maps++;
	if (!m || m->address != address || m->size != size)
		blame(r, "is told of as mapped and is not, or not just so", address);
	else if (find(r->known, r->known_count, address, size))
		blame(r, "is told of twice", address);
	else
		add(r->known, &r->known_count, *m);
}

static void forget(struct registry *r, trz_addr address, uint64_t size)
{
	const struct registration *m = find(r->mapped, r->mapped_count, address, size);
	struct registration *k = find(r->known, r->known_count, address, size);
	r->unmaps++;
	if (!m || m->address != address || m->size != size)
		blame(r, "is unmapped before it is told of", address);
	if (!k || k->address != address || k->size != size)
		blame(r, "is told to go and was never told of", address);
	else
		drop(r->known, &r->known_count, k);
}

void registry_notice(void *user, trz_map_event event, void *address, size_t size)
{
	struct registry *r = user;
	void *p;
	pthread_mutex_lock(&lock);
	(event == TRZ_MAP ? learn : forget)(r, (trz_addr)address, size);
	bool busy = r->busy;
	pthread_mutex_unlock(&lock);
	if (!busy)
		return;
	trz_heap *heap = r->overlay->rig.heap;
	if (trz_check(heap) != TRZ_OK)  /* takes every lock */
		blame(r, trz_last_error(), (trz_addr)address);
	if (trz_alloc(heap, 600, 0, NULL, &p) == TRZ_OK)
		trz_free(heap, p);
}

bool registry_covers(struct registry *r, const void *address, size_t size)
{
	trz_addr at = (trz_addr)address, end = at + size;
	pthread_mutex_lock(&lock);
	while (at < end) {
		const struct registration *k = find(r->known, r->known_count, at, 1);
		const struct registration *m = find(r->mapped, r->mapped_count, at, 1);
		if (!k || !m || k->handle != m->handle || k->address != m->address)
			break;
		at = k->address + k->size;
	}
	pthread_mutex_unlock(&lock);
	return at >= end;
}

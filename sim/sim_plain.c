/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain memory (cuMemAlloc): chunks of whole 2 MiB granules, mapped and accessible from the start. Requests of
 * up to half a granule share a chunk, as the driver packs them; a chunk ends with its last allocation.
 */
#include "sim_machine.h"

#include <stdlib.h>

#include "bits.h"

enum { UNIT_SHIFT = 9, CHUNK_UNITS = 4096, SHARED_CHUNK_BYTES = CHUNK_UNITS << UNIT_SHIFT };

/* An allocation; no other ever has the same `id`. */
struct sim_plain {
	uint64_t bytes, id;
};

/* Addresses for plain memory at places that the caller chooses; it ends with its context. */
struct sim_plain_range {
	LIST_ENTRY(sim_plain_range) link;
	const struct sim_context *context;
	uint64_t address;
};

/* Invariant: live > 0. In a shared chunk units[i] is the length, in units of 512 bytes, of the allocation that
 * starts at unit i, and 0 where none does; all[i] is that allocation. A chunk of a large request has only one, at unit
 * 0. */
struct sim_chunk {
	LIST_ENTRY(sim_chunk) link;
	struct sim_context *context;
	uint64_t address, size;
	uint32_t live;
	bool shared;
	bool managed;
	bool placed;  /* in a sim_plain_range */
	uint16_t units[CHUNK_UNITS];
	struct sim_plain all[];
};

/* The first run of free units that is long enough; CHUNK_UNITS: none. */
static unsigned find_units(const struct sim_chunk *c, unsigned need)
{
	unsigned run = 0;
	for (unsigned i = 0; i < CHUNK_UNITS;) {
		if (c->units[i]) {
			i += c->units[i];
			run = 0;
		} else {
			i++;
			if (++run == need)
				return i - need;
		}
	}
	return CHUNK_UNITS;
}

static struct sim_chunk *chunk_at(const sim *s, uint64_t address)
{
	const struct sim_mapping *m = sim_mapping_at(s, address);
	return m ? m->chunk : NULL;
}

/* Maps a new chunk with access for its device; after a failure nothing of it is left. */
static trz_status lay_chunk(sim *s, struct sim_chunk *chunk, bool on_host)
{
	int device = chunk->context->device;
	struct sim_phys *p = sim_phys_new(s, device, chunk->size);
	if (!p) {
		if (!on_host)
			sim_memory_give(s, device, chunk->size);
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for plain memory");
	}
	p->managed = chunk->managed;
	p->on_host = on_host;
	trz_status status = sim_mapping_add(s, chunk->address, p, chunk);
	if (status != TRZ_OK) {
		sim_phys_drop(s, p);
		return status;
	}
	status = sim_mapping_show(s, chunk->address, chunk->size);
	if (status == TRZ_OK)
		sim_mapping_grant(s, chunk->address, chunk->size, 1u << device | s->device[device].plain_access);
	else
		sim_mapping_remove(s, sim_mapping_at(s, chunk->address));
	return status;
}

/* A new chunk for up to `room` allocations; `at`: an address in a sim_plain_range, or 0. Managed memory for which the
 * device has no room is on the host. */
static trz_status new_chunk(sim *s, struct sim_context *c, uint64_t at, bool managed, uint64_t size, size_t room,
                            struct sim_chunk **out)
{
	struct sim_chunk *chunk = calloc(1, sizeof *chunk + room * sizeof chunk->all[0]);
	if (!chunk)
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for plain memory");
	chunk->context = c;
	chunk->size = size;
	chunk->address = at;
	chunk->placed = at != 0;
	chunk->managed = managed;
	bool taken = sim_memory_take(s, c->device, size);
	trz_status status = taken || managed ? TRZ_OK : TRZ_ERROR_OUT_OF_MEMORY;
	if (status == TRZ_OK && !at) {
		status = sim_range_take(s, size, 0, 0, &chunk->address);
		if (status != TRZ_OK && taken)
			sim_memory_give(s, c->device, size);
	}
	if (status == TRZ_OK) {
		status = lay_chunk(s, chunk, !taken);
		if (status != TRZ_OK && !at)
			sim_range_give(s, chunk->address);
	}
	if (status != TRZ_OK) {
		free(chunk);
		return status;
	}
	LIST_INSERT_HEAD(&s->chunks, chunk, link);
	s->plain_reservations += !chunk->placed;
	*out = chunk;
	return TRZ_OK;
}

static trz_status end_chunk(sim *s, struct sim_chunk *chunk)
{
	trz_status status = sim_mapping_hide(s, chunk->address, chunk->size);
	if (status != TRZ_OK)
		return status;
	sim_mapping_remove(s, sim_mapping_at(s, chunk->address));
	if (!chunk->placed)
		sim_range_give(s, chunk->address);
	s->plain_count -= chunk->live;
	s->plain_reservations -= !chunk->placed;
	LIST_REMOVE(chunk, link);
	free(chunk);
	return TRZ_OK;
}

static trz_status alloc_shared(sim *s, struct sim_context *c, bool managed, uint64_t size, trz_addr *address)
{
	unsigned need = (unsigned)((size + (1u << UNIT_SHIFT) - 1) >> UNIT_SHIFT);
	struct sim_chunk *chunk;
	LIST_FOREACH(chunk, &s->chunks, link)
		if (chunk->shared && chunk->context == c && chunk->managed == managed &&
		    find_units(chunk, need) < CHUNK_UNITS)
			break;
	if (!chunk) {
		uint64_t whole = align_up(SHARED_CHUNK_BYTES, s->config.granularity);
		trz_status status = new_chunk(s, c, 0, managed, whole, CHUNK_UNITS, &chunk);
		if (status != TRZ_OK)
			return status;
		chunk->shared = true;
	}
	unsigned unit = find_units(chunk, need);
	chunk->units[unit] = (uint16_t)need;
	chunk->all[unit] = (struct sim_plain){size, ++s->generation};
	chunk->live++;
	*address = chunk->address + ((uint64_t)unit << UNIT_SHIFT);
	return TRZ_OK;
}

/* A chunk of one allocation. */
static trz_status alloc_whole(sim *s, struct sim_context *c, uint64_t at, bool managed, uint64_t size,
                              trz_addr *address)
{
	struct sim_chunk *chunk;
	uint64_t unit = max_u64(SHARED_CHUNK_BYTES, s->config.granularity);
	trz_status status = new_chunk(s, c, at, managed, align_up(size, unit), 1, &chunk);
	if (status != TRZ_OK)
		return status;
	chunk->units[0] = 1;
	chunk->all[0] = (struct sim_plain){size, ++s->generation};
	chunk->live = 1;
	*address = chunk->address;
	return TRZ_OK;
}

static trz_status count_new(sim *s, trz_status status, uint64_t size)
{
	if (status != TRZ_OK)
		return status;
	s->plain_count++;
	sim_charge_handle(s, SIM_SLOT_mem_alloc, size, 1);
	return TRZ_OK;
}

static trz_status alloc(sim *s, struct sim_context *c, bool managed, uint64_t size, trz_addr *address)
{
	bool shared = size <= SHARED_CHUNK_BYTES / 2;
	return count_new(s, shared ? alloc_shared(s, c, managed, size, address)
	                           : alloc_whole(s, c, 0, managed, size, address), size);
}

trz_status sim_plain_alloc(sim *s, struct sim_context *c, uint64_t size, trz_addr *address)
{
	if (size == 0)
		return sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "plain allocation of 0 bytes");
	if (size > s->config.capacity)
		return sim_refuse(s, TRZ_ERROR_OUT_OF_MEMORY, "%llu bytes are more than the device has",
		                  (unsigned long long)size);
	return alloc(s, c, false, size, address);
}

trz_status sim_managed_alloc(sim *s, trz_context context, uint64_t size, trz_addr *address)
{
	struct sim_call call = sim_enter(s, SIM_SLOT_mem_alloc);
	struct sim_context *c = NULL;
	if (call.status == TRZ_OK)
		call.status = sim_context_find(s, context, &c);
	if (call.status == TRZ_OK && (size == 0 || size > s->window_bytes))
		call.status = sim_refuse(s, TRZ_ERROR_OUT_OF_MEMORY, "no room for %llu bytes of managed memory",
		                         (unsigned long long)size);
	if (call.status == TRZ_OK)
		call.status = alloc(s, c, true, size, address);
	return sim_leave(&call);
}

trz_status sim_plain_range(sim *s, trz_context context, uint64_t size, trz_addr *address)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_plain_range *range = calloc(1, sizeof *range);
	struct sim_context *c = NULL;
	if (!range)
		call.status = sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a range of plain memory");
	if (call.status == TRZ_OK)
		call.status = sim_context_find(s, context, &c);
	if (call.status == TRZ_OK)
		call.status = sim_range_take(s, size, 0, 0, address);
	if (call.status == TRZ_OK) {
		*range = (struct sim_plain_range){.context = c, .address = *address};
		LIST_INSERT_HEAD(&s->plain_ranges, range, link);
		s->plain_reservations++;
	} else {
		free(range);
	}
	return sim_leave(&call);
}

static void end_range(sim *s, struct sim_plain_range *range)
{
	sim_range_give(s, range->address);
	s->plain_reservations--;
	LIST_REMOVE(range, link);
	free(range);
}

void sim_plain_unrange(sim *s, trz_addr address)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_plain_range *range = LIST_FIRST(&s->plain_ranges);
	while (range && range->address != address)
		range = LIST_NEXT(range, link);
	if (range)
		end_range(s, range);
	sim_leave(&call);
}

trz_status sim_plain_lay(sim *s, trz_context context, trz_addr address, uint64_t size)
{
	struct sim_call call = sim_enter(s, SIM_SLOT_mem_alloc);
	struct sim_context *c = NULL;
	if (call.status == TRZ_OK)
		call.status = sim_context_find(s, context, &c);
	if (call.status == TRZ_OK)
		call.status = count_new(s, alloc_whole(s, c, address, false, size, &address), size);
	return sim_leave(&call);
}

/* The chunk in which an allocation begins at `address`; NULL: none does. */
static struct sim_chunk *find_chunk(const sim *s, uint64_t address, unsigned *unit)
{
	struct sim_chunk *chunk = chunk_at(s, address);
	uint64_t inside = chunk ? address - chunk->address : 1;
	*unit = (unsigned)(inside >> UNIT_SHIFT);
	bool exact = inside < SHARED_CHUNK_BYTES && inside % (1u << UNIT_SHIFT) == 0 && chunk->units[*unit];
	return exact ? chunk : NULL;
}

static trz_status end_allocation(sim *s, const struct sim_context *c, trz_addr address)
{
	trz_status status = sim_device_check(s, c->device);
	if (status != TRZ_OK)
		return status;
	unsigned unit;
	struct sim_chunk *chunk = find_chunk(s, address, &unit);
	if (!chunk || chunk->context != c)
		return sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, 0,
		                  "mem_free of %#llx, which is not an allocation of the context",
		                   (unsigned long long)address);
	uint64_t size = chunk->shared ? (uint64_t)chunk->units[unit] << UNIT_SHIFT : chunk->size;
	sim_check_unused(s, "mem_free", address, size);
	if (chunk->live == 1) {
		status = end_chunk(s, chunk);
	} else {
		chunk->units[unit] = 0;
		chunk->live--;
		s->plain_count--;
	}
	if (status == TRZ_OK)
		sim_charge_handle(s, SIM_SLOT_mem_free, size, 1);
	return status;
}

trz_status sim_plain_free(sim *s, struct sim_context *c, trz_addr address)
{
	sim_maybe_drain(s, c->device, true);
	return end_allocation(s, c, address);
}

trz_status sim_plain_lift(sim *s, trz_context context, trz_addr address)
{
	struct sim_call call = sim_enter(s, SIM_SLOT_mem_free);
	struct sim_context *c = NULL;
	if (call.status == TRZ_OK)
		call.status = sim_context_find(s, context, &c);
	if (call.status == TRZ_OK)
		call.status = end_allocation(s, c, address);
	return sim_leave(&call);
}

trz_status sim_plain_peer(sim *s, int device, int peer, bool on)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_chunk *chunk;
	if (device < 0 || device >= s->config.devices || peer < 0 || peer >= s->config.devices || device == peer) {
		call.status = sim_refuse(s, TRZ_ERROR_NO_DEVICE, "device %d has no peer %d", device, peer);
		return sim_leave(&call);
	}
	if (on && (s->config.no_peers || s->config.peers_full)) {
		int result = s->config.no_peers ? TRZ_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : TRZ_CUDA_ERROR_TOO_MANY_PEERS;
		call.status = sim_answer(s, TRZ_ERROR_DRIVER, result, "device %d does not reach device %d", peer, device);
		return sim_leave(&call);
	}
	uint32_t bit = 1u << peer, *access = &s->device[device].plain_access;
	*access = on ? *access | bit : *access & ~bit;
	LIST_FOREACH(chunk, &s->chunks, link) {
		struct sim_mapping *m = sim_mapping_at(s, chunk->address);
		if (m->phys->device == device)
			m->access = on ? m->access | bit : m->access & ~bit;
	}
	return sim_leave(&call);
}

trz_context sim_plain_context(sim *s, trz_addr address)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_chunk *chunk = chunk_at(s, address);
	trz_context context = chunk ? (trz_context)chunk->context->value : NULL;
	sim_leave(&call);
	return context;
}

bool sim_plain_query(const sim *s, struct sim_place *place, uint64_t address)
{
	uint64_t size;
	const struct sim_chunk *chunk = chunk_at(s, address);
	if (!chunk || !sim_plain_at(s, address, &place->address, &size))
		return false;
	const struct sim_plain *p = &chunk->all[(place->address - chunk->address) >> UNIT_SHIFT];
	place->size = p->bytes;
	place->generation = p->id;
	return true;
}

bool sim_plain_at(const sim *s, uint64_t address, uint64_t *start, uint64_t *size)
{
	const struct sim_chunk *chunk = chunk_at(s, address);
	if (!chunk)
		return false;
	*start = chunk->address;
	*size = chunk->size;
	for (unsigned i = 0; chunk->shared && i < CHUNK_UNITS; i += chunk->units[i] ? chunk->units[i] : 1) {
		*start = chunk->address + ((uint64_t)i << UNIT_SHIFT);
		*size = (uint64_t)chunk->units[i] << UNIT_SHIFT;
		if (address - *start < *size)
			return true;
	}
	return !chunk->shared;
}

void sim_plain_end(sim *s, const struct sim_context *c)
{
	struct sim_chunk *next;
	for (struct sim_chunk *chunk = LIST_FIRST(&s->chunks); chunk; chunk = next) {
		next = LIST_NEXT(chunk, link);
		if (!c || chunk->context == c)
			end_chunk(s, chunk);
	}
	struct sim_plain_range *other;
	for (struct sim_plain_range *range = LIST_FIRST(&s->plain_ranges); range; range = other) {
		other = LIST_NEXT(range, link);
		if (!c || range->context == c)
			end_range(s, range);
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills. Its address shows whether a side of a copy is the device's.
 */
#include "driver_lookalike.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"

/* Copies from pageable memory are staged up to this size; larger ones are waited for. */
static const uint64_t staged_most = KIB(64);
/* The largest read that counts as a scalar, on which control flow may depend. */
static const uint64_t scalar_most = 16;

static bool is_pageable(uint64_t address)
{
	uint64_t start, size;
	unsigned flags;
	return !sim_is_device(look.sim, address) && !look_pinned((const void *)address, &start, &size, &flags);
}

bool trz_lookalike_is_known_to_device(uint64_t address)
{
	return !is_pageable(address);
}

/* Whether a range lies in the plain allocation that it begins in, by the byte. If nothing is mapped there, the item of
 * work will say what is wrong. */
static bool is_whole(uint64_t address, uint64_t size)
{
	struct sim_place place;
	void *pool;
	char byte;
	if (!sim_is_device(look.sim, address))
		return true;
	if (look_place_at(address, &place, &pool)) {
		uint64_t inside = address - place.address;
		return !place.plain || (inside <= place.size && size <= place.size - inside);
	}
	return !sim_peek(look.sim, address, &byte, sizeof byte);  /* else it lies between allocations of a chunk */
}

bool look_is_captured(trz_context context, void *stream)
{
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t id;
	return look.table->stream_capture(look.table->self, context, stream, &status, &id) != TRZ_OK ||
	       status != TRZ_CAPTURE_NONE;
}

/* ---- reads ------------------------------------------------------------ */

/* Waits for the stream's collectives: what they bring is known only then. A program that reads a scalar waits for it
 * anyway, if not always in the call that begins the read. */
static trz_status await_ranks(trz_context context, void *stream)
{
	if (!__atomic_load_n(&look.has_met, __ATOMIC_RELAXED) || look_is_captured(context, stream))
		return TRZ_OK;
	return sim_stream_sync(look.sim, context, stream);
}

static trz_status enqueue_real(trz_context context, void *stream, const struct look_piece *p)
{
	return p->peer ? sim_copy_peer(look.sim, context, stream, p->to, p->from, p->size)
	               : sim_copy(look.sim, context, stream, p->to, p->from, p->size);
}

/* Gives a short read the answer in the place of what lies there. */
static trz_status enqueue_answer(trz_context context, void *stream, const struct look_piece *p, uint64_t answer)
{
	uint64_t *kept = calloc(2, sizeof *kept);  /* as large as the largest short read */
	if (!kept)
		return TRZ_ERROR_HOST_MEMORY;
	*kept = answer;
	trz_status status = sim_copy(look.sim, context, stream, p->to, (uintptr_t)kept, p->size);
	if (status == TRZ_OK)
		status = sim_host(look.sim, context, stream, free, kept);
	else
		free(kept);
	return status;
}

static trz_status enqueue_to_host(trz_context context, void *stream, const struct look_piece *p)
{
	uint64_t answer;
	bool scalar = p->whole <= scalar_most && !look.real_scalars;
	trz_status status = scalar ? await_ranks(context, stream) : TRZ_OK;
	if (status != TRZ_OK)
		return status;
	bool captured = scalar && look_is_captured(context, stream);  /* such work happens later, after other work */
	if (scalar && !captured && look_answer(&answer))
		return enqueue_answer(context, stream, p, answer);
	if (!scalar || (!captured && trz_lookalike_is_known(p->from, p->size)))
		return enqueue_real(context, stream, p);
	look_blank_read(p->size);
	return sim_copy_blank(look.sim, context, stream, p->to, p->from, p->size);
}

/* A copy of bytes that a collective may yet bring: whether they are known can be told once it has run. */
struct later {
	uint64_t to, from, size;
};

static void note_later(void *argument)
{
	struct later l = *(struct later *)argument;
	free(argument);
	bool known = trz_lookalike_is_known(l.from, l.size);
	if (known || look_is_brought(l.from, l.size))
		look_note_copied(l.to, l.from, l.size, known);
}

static trz_status enqueue_note(trz_context context, void *stream, const struct look_piece *p)
{
	struct later *l = malloc(sizeof *l);
	if (!l)
		return TRZ_ERROR_HOST_MEMORY;
	*l = (struct later){p->to, p->from, p->size};
	trz_status status = sim_host(look.sim, context, stream, note_later, l);
	if (status != TRZ_OK)
		free(l);
	return status;
}

static trz_status enqueue(trz_context context, void *stream, const struct look_piece *p)
{
	enum { NOTED_MOST = 4096 };
	bool from_device = sim_is_device(look.sim, p->from);
	__atomic_fetch_add(&look_live.copied_bytes, p->size, __ATOMIC_RELAXED);
	if (from_device && !sim_is_device(look.sim, p->to))
		return enqueue_to_host(context, stream, p);
	bool captured = look_is_captured(context, stream), known = !from_device || trz_lookalike_is_known(p->from, p->size);
	if (captured)
		look_note_known(p->to, p->size, false);
	else
		look_note_copied(p->to, p->from, p->size, known);
	trz_status status = enqueue_real(context, stream, p);
	bool may_come = __atomic_load_n(&look.has_met, __ATOMIC_RELAXED) && p->size <= NOTED_MOST && !known && !captured;
	return status == TRZ_OK && may_come ? enqueue_note(context, stream, p) : status;
}

/* ---- copies ------------------------------------------------------------ */

/* Copies the source first, so that the caller may change it at once. */
static trz_status enqueue_staged(trz_context context, void *stream, struct look_piece p)
{
	void *staged = malloc(p.size);
	if (!staged)
		return TRZ_ERROR_HOST_MEMORY;
	memcpy(staged, (const void *)p.from, p.size);
	p.from = (uintptr_t)staged;
	trz_status status = enqueue(context, stream, &p);
	if (status == TRZ_OK)
		status = sim_host(look.sim, context, stream, free, staged);
	else
		free(staged);
	return status;
}

/* An asynchronous copy with pageable memory waits, or is staged, unless it is captured. */
cuda_result look_copy_piece(const struct look_piece *p, void *stream, bool wait)
{
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	if (p->size == 0)
		return TRZ_CUDA_SUCCESS;
	LOOK_NEED(p->to && p->from, INVALID_VALUE);
	LOOK_NEED(!(p->to_device && is_pageable(p->to)) && !(p->from_device && is_pageable(p->from)), INVALID_VALUE);
	LOOK_NEED(is_whole(p->to, p->size) && is_whole(p->from, p->size), INVALID_VALUE);
	bool late = look_is_late(), stage = false, waits = wait || is_pageable(p->to);
	look_note_work(context, stream);
	if (!wait && late && !look_is_captured(context, stream)) {
		stage = is_pageable(p->from) && p->size <= staged_most && !is_pageable(p->to);
		wait = !stage && (is_pageable(p->to) || is_pageable(p->from));
	}
	trz_status status = stage ? enqueue_staged(context, stream, *p) : enqueue(context, stream, p);
	if (status == TRZ_OK && wait)
		status = sim_stream_sync(look.sim, context, stream);
	else if (status == TRZ_OK)
		look_progress();
	if (status == TRZ_OK && waits && !look_is_captured(context, stream))
		look_note(SIM_RECORDED_STREAM_SYNC, context, stream, 0);
	return look_result(status);
}

/* Which sides are the device's: by their addresses, or as the call says. */
enum sides { ANY = 0, TO_DEVICE = 1, FROM_DEVICE = 2 };

static cuda_result copy(unsigned sides, uint64_t to, uint64_t from, uint64_t size, void *stream, bool wait)
{
	const struct look_piece all = {
		.to = to, .from = from, .size = size, .whole = size, .to_device = sides & TO_DEVICE,
		.from_device = sides & FROM_DEVICE,
	};
	return look_copy_piece(&all, stream, wait);
}

/* A real driver waits only for the staging of a copy from host to device, and for none from device to device. We wait
 * for both: to a program this looks like a fast device. */
cuda_result cuMemcpy(cuda_addr to, cuda_addr from, size_t size)
{
	LOOK_ENTER(cuMemcpy);
	return copy(ANY, to, from, size, NULL, true);
}

cuda_result cuMemcpyAsync(cuda_addr to, cuda_addr from, size_t size, void *stream)
{
	LOOK_ENTER(cuMemcpyAsync);
	return copy(ANY, to, from, size, stream, false);
}

cuda_result cuMemcpyHtoD_v2(cuda_addr to, const void *from, size_t size)
{
	LOOK_ENTER(cuMemcpyHtoD_v2);
	return copy(TO_DEVICE, to, (uintptr_t)from, size, NULL, true);
}

cuda_result cuMemcpyHtoDAsync_v2(cuda_addr to, const void *from, size_t size, void *stream)
{
	LOOK_ENTER(cuMemcpyHtoDAsync_v2);
	return copy(TO_DEVICE, to, (uintptr_t)from, size, stream, false);
}

cuda_result cuMemcpyDtoH_v2(void *to, cuda_addr from, size_t size)
{
	LOOK_ENTER(cuMemcpyDtoH_v2);
	return copy(FROM_DEVICE, (uintptr_t)to, from, size, NULL, true);
}

cuda_result cuMemcpyDtoHAsync_v2(void *to, cuda_addr from, size_t size, void *stream)
{
	LOOK_ENTER(cuMemcpyDtoHAsync_v2);
	return copy(FROM_DEVICE, (uintptr_t)to, from, size, stream, false);
}

cuda_result cuMemcpyDtoD_v2(cuda_addr to, cuda_addr from, size_t size)
{
	LOOK_ENTER(cuMemcpyDtoD_v2);
	return copy(TO_DEVICE | FROM_DEVICE, to, from, size, NULL, false);
}

cuda_result cuMemcpyDtoDAsync_v2(cuda_addr to, cuda_addr from, size_t size, void *stream)
{
	LOOK_ENTER(cuMemcpyDtoDAsync_v2);
	return copy(TO_DEVICE | FROM_DEVICE, to, from, size, stream, false);
}

/* Between devices, whether or not one reaches the other's memory: the driver goes through the host if need be. */
static cuda_result copy_between(uint64_t to, uint64_t from, uint64_t size, void *stream, bool wait)
{
	const struct look_piece all = {
		.to = to, .from = from, .size = size, .whole = size, .peer = true, .to_device = true, .from_device = true,
	};
	return look_copy_piece(&all, stream, wait);
}

cuda_result cuMemcpyPeerAsync(cuda_addr to, void *to_context, cuda_addr from, void *from_context, size_t size,
                              void *stream)
{
	LOOK_ENTER(cuMemcpyPeerAsync);
	(void)to_context, (void)from_context;
	return copy_between(to, from, size, stream, false);
}

cuda_result cuMemcpyPeer(cuda_addr to, void *to_context, cuda_addr from, void *from_context, size_t size)
{
	LOOK_ENTER(cuMemcpyPeer);
	(void)to_context, (void)from_context;
	return copy_between(to, from, size, NULL, true);
}

/* ---- fills ------------------------------------------------------------ */

struct host_fill {
	unsigned char *address;
	uint64_t pattern;
	unsigned unit;
	size_t count;
};

/* Does not free its argument, since a graph may call it again. */
static void fill_host(void *argument)
{
	const struct host_fill *f = argument;
	for (size_t i = 0; i < f->count; i++)
		memcpy(f->address + i * f->unit, &f->pattern, f->unit);
}

/* Fills host memory that the device knows, pinned or managed. The fill's argument is never freed. */
static trz_status fill_pinned(trz_context context, void *stream, struct host_fill fill)
{
	struct host_fill *kept = malloc(sizeof *kept);
	if (!kept)
		return TRZ_ERROR_HOST_MEMORY;
	*kept = fill;
	return sim_host(look.sim, context, stream, fill_host, kept);
}

cuda_result look_fill(cuda_addr address, uint64_t pattern, unsigned unit, size_t count, void *stream, bool wait)
{
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	if (count == 0)
		return TRZ_CUDA_SUCCESS;
	LOOK_NEED(count <= SIZE_MAX / unit && address % unit == 0 && is_whole(address, count * unit), INVALID_VALUE);
	look_note_work(context, stream);
	uint64_t start, size;
	unsigned flags;
	bool host = !sim_is_device(look.sim, address) && look_pinned((void *)address, &start, &size, &flags);
	LOOK_NEED(!host || count * unit <= start + size - address, INVALID_VALUE);
	struct host_fill fill = {(unsigned char *)address, pattern, unit, count};
	if (!host)
		look_note_filled(address, count * unit, !look_is_captured(context, stream));
	trz_status status = host ? fill_pinned(context, stream, fill)
	                         : sim_fill_pattern(look.sim, context, stream, address, count, pattern, unit);
	if (status == TRZ_OK && wait)
		status = sim_stream_sync(look.sim, context, stream);
	else if (status == TRZ_OK)
		look_progress();
	if (status == TRZ_OK && wait)
		look_note(SIM_RECORDED_STREAM_SYNC, context, stream, 0);
	return look_result(status);
}

cuda_result cuMemsetD8_v2(cuda_addr address, unsigned char value, size_t count)
{
	LOOK_ENTER(cuMemsetD8_v2);
	return look_fill(address, value, 1, count, NULL, true);
}

cuda_result cuMemsetD16_v2(cuda_addr address, unsigned short value, size_t count)
{
	LOOK_ENTER(cuMemsetD16_v2);
	return look_fill(address, value, 2, count, NULL, true);
}

cuda_result cuMemsetD32_v2(cuda_addr address, unsigned value, size_t count)
{
	LOOK_ENTER(cuMemsetD32_v2);
	return look_fill(address, value, 4, count, NULL, true);
}

cuda_result cuMemsetD8Async(cuda_addr address, unsigned char value, size_t count, void *stream)
{
	LOOK_ENTER(cuMemsetD8Async);
	return look_fill(address, value, 1, count, stream, false);
}

cuda_result cuMemsetD16Async(cuda_addr address, unsigned short value, size_t count, void *stream)
{
	LOOK_ENTER(cuMemsetD16Async);
	return look_fill(address, value, 2, count, stream, false);
}

cuda_result cuMemsetD32Async(cuda_addr address, unsigned value, size_t count, void *stream)
{
	LOOK_ENTER(cuMemsetD32Async);
	return look_fill(address, value, 4, count, stream, false);
}

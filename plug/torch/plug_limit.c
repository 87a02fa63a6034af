/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory fraction: a process's share of a device. It limits the heap together with the memory that the allocators
 * of PyTorch's pools have taken past the heap; the heap's own limit is what these leave.
 */
#include "plug.h"

#include <pthread.h>

#include "terrazzo_driver.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Guarded by `lock`. */
static struct budget {
	double fraction;   /* the fraction + 1; 0: none was set */
	size_t allowed;    /* bytes; 0: no limit */
	size_t elsewhere;  /* bytes taken past the heap */
} budgets[TRZ_TORCH_DEVICES];

static trz_status device_total(int device, uint64_t *total)
{
	const trz_driver *driver;
	trz_device_info info;
	trz_status status = plug_pass(trz_driver_cuda(&driver));
	if (status == TRZ_OK && driver->device_info(driver->self, device, &info) != TRZ_OK)
		status = plug_fail(TRZ_ERROR_NO_DEVICE, "device %d: %s", device, trz_driver_last_error());
	if (status == TRZ_OK)
		*total = info.total_bytes;
	return status;
}

/* What the budget leaves for the heap. */
static size_t share_of_heap(const struct budget *b)
{
	return b->allowed > b->elsewhere ? b->allowed - b->elsewhere : 0;
}

/* To the heap a limit of 0 means no limit. */
static trz_status limit_heap(trz_heap *heap, const struct budget *b)
{
	size_t share = share_of_heap(b);
	return trz_set_limit(heap, !b->allowed ? 0 : share ? share : 1);
}

/* The heap is looked up under the lock, and joins once it can be found: so it gets the limit in any case. */
static trz_status set_locked(int device, double fraction, uint64_t total)
{
	trz_heap *heap;
	struct budget *b = &budgets[device];
	b->fraction = fraction + 1;
	b->allowed = fraction == 1 ? 0 : (size_t)((double)total * fraction);
	if (fraction != 1 && !b->allowed)
		b->allowed = 1;
	trz_status status = trz_torch_heap(device, false, &heap);
	return heap ? plug_pass(limit_heap(heap, b)) : status;
}

trz_status trz_torch_set_fraction(int device, double fraction)
{
	trz_heap *heap;
	uint64_t total = 0;
	if (!(fraction >= 0 && fraction <= 1))
		return plug_fail(TRZ_ERROR_INVALID_ARGUMENT, "a fraction of %g of a device's memory: it must be from 0 to 1",
		                 fraction);
	trz_status status = trz_torch_heap(device, false, &heap);
	if (status == TRZ_OK)
		status = device_total(device, &total);
	if (status != TRZ_OK)
		return status;
	pthread_mutex_lock(&lock);
	status = set_locked(device, fraction, total);
	pthread_mutex_unlock(&lock);
	return status;
}

void plug_join_limit(int device, trz_heap *heap)
{
	pthread_mutex_lock(&lock);
	if (budgets[device].allowed)
		limit_heap(heap, &budgets[device]);
	pthread_mutex_unlock(&lock);
}

double trz_torch_get_fraction(int device)
{
	double kept = 0;
	pthread_mutex_lock(&lock);
	if (device >= 0 && device < TRZ_TORCH_DEVICES)
		kept = budgets[device].fraction;
	pthread_mutex_unlock(&lock);
	return kept == 0 ? 1 : kept - 1;
}

void trz_torch_memory_fraction(double fraction, int device)
{
	trz_status status = trz_torch_set_fraction(device, fraction);
	if (status != TRZ_OK)
		plug_throw(status, trz_torch_last_error());
}

/* Changes what counts as taken elsewhere, and returns the budget after that. */
static struct budget move_budget(int device, trz_heap *heap, size_t more, size_t less)
{
	pthread_mutex_lock(&lock);
	struct budget *b = &budgets[device];
	b->elsewhere += more;
	b->elsewhere -= less;
	if (b->allowed)
		limit_heap(heap, b);
	struct budget now = *b;
	pthread_mutex_unlock(&lock);
	return now;
}

static uint64_t reserved_by(trz_heap *heap)
{
	uint64_t reserved = 0;
	trz_stat(heap, "reserved_bytes.all.current", &reserved);
	return reserved;
}

trz_status trz_torch_take_elsewhere(int device, size_t size)
{
	trz_heap *heap;
	trz_status status = trz_torch_heap(device, true, &heap);
	if (status != TRZ_OK)
		return status;
	/* From here on the heap does not grow, and gives back memory beyond its share. */
	struct budget b = move_budget(device, heap, size, 0);
	if (!b.allowed)
		return TRZ_OK;
	if (b.elsewhere <= b.allowed && reserved_by(heap) > share_of_heap(&b))
		trz_trim(heap, share_of_heap(&b), NULL);
	if (b.elsewhere <= b.allowed && reserved_by(heap) <= share_of_heap(&b))
		return TRZ_OK;
	move_budget(device, heap, 0, size);
	return plug_fail(TRZ_ERROR_LIMIT, "device %d: the limit does not leave %zu bytes", device, size);
}

void trz_torch_give_elsewhere(int device, size_t size)
{
	trz_heap *heap;
	if (trz_torch_heap(device, true, &heap) == TRZ_OK)
		move_budget(device, heap, 0, size);
}

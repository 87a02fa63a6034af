/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: physical memory in the machine's file, reservations and mappings in a window of the host's address
 * space.
 *
 * The table by granule is authoritative; every access of simulated work is checked against it. The host's
 * page tables follow it for programs that dereference device addresses: the window is PROT_NONE, a mapping
 * becomes present with its first access rights (under host_faults with its first use by work, stamps left out), and
 * ends with its unmap. Mappings that follow one another in the memfd, too, share one host mapping. The kernel limits
 * how many of those a process may have (vm.max_map_count); that limit says nothing about device memory, so reaching it
 * is a violation of its own.
 */
#include "sim_machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bits.h"
#include "error.h"
#include "prng.h"
#include "sim_file.h"

/* Where windows may lie. The main window ends below where position-independent programs load; further machines
 * find room above it. TSan supports only a narrow band. */
#ifdef TRZ_UNDER_TSAN
static const uint64_t window_low = 0x7e8000000000, window_high = 0x7fc000000000, window_step = GIB(64);
static const uint64_t window_wanted = GIB(1024);
#else
static const uint64_t window_low = 0x200000000000, window_high = 0x7a0000000000, window_step = GIB(1024);
static const uint64_t window_wanted = GIB(48 * 1024);
#endif
static const uint64_t window_least = GIB(64);

/* ---- opening and closing ------------------------------------------------------------------------------- */

static bool place_window(sim *s, uint64_t bytes)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
	for (uint64_t base = window_low; base + bytes <= window_high; base += window_step) {
		void *p = mmap((void *)base, bytes, PROT_NONE, flags, -1, 0);
		if (p == (void *)base) {
			s->window = base;
			s->window_bytes = bytes;
			return true;
		}
		if (p != MAP_FAILED)
			munmap(p, bytes);
	}
	return false;
}

/* A size that the caller chose is kept; the default one shrinks where other machines are open. */
static trz_status open_window(sim *s)
{
	uint64_t bytes = s->config.va_bytes ? s->config.va_bytes : window_wanted;
	while (!place_window(s, bytes)) {
		if (s->config.va_bytes || bytes / 2 < window_least)
			return trz_fail(TRZ_ERROR_ADDRESS_SPACE,
			                "no free %llu GiB of address space for the device window: raise the process's limit of it "
			                "(ulimit -v)", (unsigned long long)(bytes >> 30));
		bytes /= 2;
	}
	return TRZ_OK;
}

static size_t table_bytes(const sim *s)
{
	return (size_t)(s->window_bytes >> s->granule_shift) * sizeof *s->granules;
}

trz_status sim_memory_open(sim *s)
{
	trz_status status = sim_ledger_open(s);
	if (status != TRZ_OK)
		return status;
	s->granule_shift = log2_floor(s->config.granularity);
	status = open_window(s);
	if (status != TRZ_OK) {
		sim_ledger_close(s);
		return status;
	}
	void *table = mmap(NULL, table_bytes(s), PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table == MAP_FAILED) {
		status = trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for the simulated device: %s",
		                  strerror(errno));
		munmap((void *)s->window, s->window_bytes);
		sim_ledger_close(s);
		return status;
	}
	s->granules = table;
	return TRZ_OK;
}

void sim_memory_close(sim *s)
{
	while (!LIST_EMPTY(&s->mappings)) {
		struct sim_mapping *m = LIST_FIRST(&s->mappings);
		LIST_REMOVE(m, link);
		free(m);
	}
	while (!LIST_EMPTY(&s->physical)) {
		struct sim_phys *p = LIST_FIRST(&s->physical);
		LIST_REMOVE(p, link);
		free(p->beside);
		free(p);
	}
	free(s->reservations);
	sim_registry_free(&s->memory);
	munmap(s->granules, table_bytes(s));
	munmap((void *)s->window, s->window_bytes);
	sim_ledger_close(s);
}

/* ---- physical memory ------------------------------------------------------------------------------ */

static void poison(sim *s, const struct sim_phys *p)
{
	enum { PARTS = 32 };
	unsigned char garbage[512];
	struct iovec parts[PARTS];  /* the same bytes again and again */
	memset(garbage, 0xdb, sizeof garbage);
	for (int i = 0; i < PARTS; i++)
		parts[i] = (struct iovec){garbage, sizeof garbage};
	for (uint64_t at = 0; at < p->size; at += PARTS * sizeof garbage)
		if (pwritev(s->memory_fd, parts, PARTS, (off_t)(p->offset + at)) < 0) {
			fprintf(stderr, "sim: no host memory to poison device memory: %s\n", strerror(errno));
			abort();
		}
}

/* The caller has charged the device. NULL: no host memory. */
struct sim_phys *sim_phys_new(sim *s, int device, uint64_t size)
{
	struct sim_phys *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->offset = sim_ledger_offset(s, device, size);
	p->size = size;
	p->device = device;
	p->shared = -1;
	p->bare = !s->config.host_faults || s->config.poison;
	LIST_INSERT_HEAD(&s->physical, p, link);
	if (s->config.poison)
		poison(s, p);
	return p;
}

struct sim_phys *sim_phys_adopt(sim *s, int shared)
{
	const struct sim_shared *e = &s->ledger->shared[shared];
	struct sim_phys *p;
	LIST_FOREACH(p, &s->physical, link)
		if (p->offset == e->offset)
			return p;
	p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->offset = e->offset;
	p->size = e->size;
	p->device = sim_ledger_device(s, e->device);
	p->shared = shared;
	p->bare = true;
	p->export_kinds = e->export_kinds;
	LIST_INSERT_HEAD(&s->physical, p, link);
	return p;
}

/* Ends the memory if neither a handle nor a mapping is left. Its place in the file is never used again; a hole
 * there gives the pages back to the host. */
void sim_phys_drop(sim *s, struct sim_phys *p)
{
	if (p->handles + p->mappings > 0)
		return;
	if (p->shared >= 0) {
		sim_ledger_drop(s, p);
	} else {
		sim_file_punch(s->memory_fd, p->offset, p->size);
		if (!p->on_host)
			sim_memory_give(s, p->device, p->size);
	}
	LIST_REMOVE(p, link);
	free(p->beside);
	free(p);
}

static trz_status check_props(sim *s, const trz_tile_props *props, uint64_t size)
{
	if (s->config.no_vmm)
		return sim_refuse(s, TRZ_ERROR_NOT_SUPPORTED, "the device has no virtual memory management");
	if (props->device < 0 || props->device >= s->config.devices)
		return sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "there is no device %d", props->device);
	if (size == 0 || size % s->config.granularity)
		return sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "%llu bytes are not a multiple of the granularity",
		                  (unsigned long long)size);
	if (props->export_kinds & ~(unsigned)TRZ_EXPORT_FD)
		return sim_refuse(s, TRZ_ERROR_NOT_SUPPORTED, "export kinds %#x: only file descriptors are supported",
		                  props->export_kinds);
	return sim_device_check(s, props->device);
}

trz_status sim_create(sim *s, const trz_tile_props *props, uint64_t size, trz_handle *handle)
{
	trz_status status = check_props(s, props, size);
	if (status != TRZ_OK)
		return status;
	if (!sim_memory_take(s, props->device, size))
		return TRZ_ERROR_OUT_OF_MEMORY;
	struct sim_phys *p = sim_phys_new(s, props->device, size);
	uint64_t value = p ? sim_registry_add(&s->memory, p) : 0;
	if (!value) {
		if (p)
			sim_phys_drop(s, p);
		else
			sim_memory_give(s, props->device, size);
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a handle");
	}
	p->handles = 1;
	p->export_kinds = props->export_kinds;
	s->live_handles++;
	sim_charge_handle(s, SIM_SLOT_create, size, 1);
	*handle = value;
	return TRZ_OK;
}

trz_status sim_release(sim *s, trz_handle handle)
{
	struct sim_phys *p = sim_registry_get(&s->memory, handle);
	if (!p)
		return sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, 0,
		                  "release of handle %#llx, which is dead or was never made",
		                   (unsigned long long)handle);
	trz_status status = sim_device_check(s, p->device);
	if (status != TRZ_OK)
		return status;
	sim_charge_handle(s, SIM_SLOT_release, p->size, 1);
	s->live_handles--;
	if (p->retains > 0 && p->retained == handle) {
		p->retains--;
		return TRZ_OK;
	}
	sim_registry_remove(&s->memory, handle);
	p->handles--;
	sim_phys_drop(s, p);
	return TRZ_OK;
}

/* ---- reservations --------------------------------------------------------------------------------- */

/* Index of the first reservation that starts above `address`. */
static size_t reservation_above(const sim *s, uint64_t address)
{
	size_t low = 0, high = s->reservation_count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (s->reservations[middle].address > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static bool is_reserved(const sim *s, uint64_t address, uint64_t size)
{
	size_t i = reservation_above(s, address);
	if (i == 0)
		return false;
	const struct sim_reservation *r = &s->reservations[i - 1];
	return address - r->address <= r->size && size <= r->size - (address - r->address);
}

/* The range at `hint` if that is free, else the lowest free one; *at is its place in the array. 0: none. */
static uint64_t find_free(const sim *s, uint64_t size, uint64_t alignment, uint64_t hint, size_t *at)
{
	uint64_t end = s->window + s->window_bytes;
	if (hint >= s->window && hint < end && size <= end - hint && hint % alignment == 0) {
		size_t i = reservation_above(s, hint);
		bool before = i == 0 || s->reservations[i - 1].address + s->reservations[i - 1].size <= hint;
		if (before && (i == s->reservation_count || s->reservations[i].address >= hint + size)) {
			*at = i;
			return hint;
		}
	}
	uint64_t from = s->window;
	for (size_t i = 0; i <= s->reservation_count; i++) {
		uint64_t to = i < s->reservation_count ? s->reservations[i].address : end;
		uint64_t start = align_up(from, alignment);
		if (start < to && size <= to - start) {
			*at = i;
			return start;
		}
		if (i < s->reservation_count)
			from = to + s->reservations[i].size;
	}
	return 0;
}

static bool make_room_for_reservation(sim *s)
{
	if (s->reservation_count < s->reservation_room)
		return true;
	size_t room = s->reservation_room ? s->reservation_room * 2 : 64;
	struct sim_reservation *grown = realloc(s->reservations, room * sizeof *grown);
	if (!grown)
		return false;
	s->reservations = grown;
	s->reservation_room = room;
	return true;
}

trz_status sim_range_take(sim *s, uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *address)
{
	if (!make_room_for_reservation(s))
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a reservation");
	size_t at;
	uint64_t start = find_free(s, size, max_u64(alignment, s->config.granularity), hint, &at);
	if (!start)
		return sim_refuse(s, TRZ_ERROR_ADDRESS_SPACE, "no free range of %llu bytes in a window of %llu",
		                  (unsigned long long)size, (unsigned long long)s->window_bytes);
	memmove(&s->reservations[at + 1], &s->reservations[at],
	        (s->reservation_count - at) * sizeof s->reservations[0]);
	s->reservations[at] = (struct sim_reservation){start, size, 0};
	s->reservation_count++;
	*address = start;
	return TRZ_OK;
}

void sim_range_give(sim *s, uint64_t address)
{
	size_t above = reservation_above(s, address);
	memmove(&s->reservations[above - 1], &s->reservations[above],
	        (s->reservation_count - above) * sizeof s->reservations[0]);
	s->reservation_count--;
}

trz_status sim_reserve(sim *s, uint64_t size, uint64_t alignment, trz_addr hint, trz_addr *address)
{
	if (s->config.no_vmm)
		return sim_refuse(s, TRZ_ERROR_NOT_SUPPORTED, "the device has no virtual memory management");
	if (size == 0 || size % s->config.granularity || (alignment && !is_power_of_two(alignment)))
		return sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "reservation of %llu bytes aligned to %llu",
		                  (unsigned long long)size, (unsigned long long)alignment);
	trz_status status = sim_range_take(s, size, alignment, hint, address);
	if (status == TRZ_OK)
		sim_charge_handle(s, SIM_SLOT_reserve, size, 1);
	return status;
}

trz_status sim_unreserve(sim *s, trz_addr address, uint64_t size)
{
	size_t i = reservation_above(s, address);
	if (i == 0 || s->reservations[i - 1].address != address || s->reservations[i - 1].size != size)
		return sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, 0,
		                  "unreserve of [%#llx, +%llu), which is not a reservation",
		                   (unsigned long long)address, (unsigned long long)size);
	for (uint64_t a = address; a < address + size; a += s->config.granularity)
		if (sim_mapping_at(s, a))
			return sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, 0,
			                  "unreserve of [%#llx, +%llu) with a mapping left at %#llx",
			                   (unsigned long long)address, (unsigned long long)size, (unsigned long long)a);
	sim_range_give(s, address);
	sim_charge_handle(s, SIM_SLOT_unreserve, size, 1);
	return TRZ_OK;
}

/* ---- mappings ------------------------------------------------------------------------------------- */

bool sim_in_window(const sim *s, uint64_t address)
{
	return address - s->window < s->window_bytes;
}

struct sim_mapping *sim_mapping_at(const sim *s, uint64_t address)
{
	return sim_in_window(s, address) ? s->granules[(address - s->window) >> s->granule_shift] : NULL;
}

static void fill_table(sim *s, uint64_t address, uint64_t size, struct sim_mapping *m)
{
	size_t first = (size_t)((address - s->window) >> s->granule_shift);
	size_t count = (size_t)(size >> s->granule_shift);
	for (size_t i = 0; i < count; i++)
		s->granules[first + i] = m;
}

/* The range is free. */
trz_status sim_mapping_add(sim *s, uint64_t address, struct sim_phys *p, struct sim_chunk *chunk)
{
	struct sim_mapping *m = calloc(1, sizeof *m);
	if (!m)
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a mapping");
	m->address = address;
	m->phys = p;
	m->chunk = chunk;
	m->generation = m->stands_for = ++s->generation;
	p->mappings++;
	fill_table(s, address, p->size, m);
	LIST_INSERT_HEAD(&s->mappings, m, link);
	if (!chunk)
		s->mapping_count++;
	return TRZ_OK;
}

/* After sim_mapping_hide. */
void sim_mapping_remove(sim *s, struct sim_mapping *m)
{
	fill_table(s, m->address, m->phys->size, NULL);
	LIST_REMOVE(m, link);
	if (!m->chunk)
		s->mapping_count--;
	m->phys->mappings--;
	sim_phys_drop(s, m->phys);
	free(m);
}

static trz_status host_mapping_failed(sim *s)
{
	if (errno != ENOMEM)
		return sim_refuse(s, TRZ_ERROR_DRIVER, "host mapping failed: %s", strerror(errno));
	return sim_violate(s, TRZ_ERROR_DRIVER,
	                   "the host refuses another mapping with %llu device mappings live: this is its limit "
	                   "vm.max_map_count, not device memory; raise it with sysctl",
	                   (unsigned long long)s->mapping_count);
}

static bool any_present(const sim *s, uint64_t address, uint64_t size)
{
	for (uint64_t a = address; a < address + size; a += sim_mapping_at(s, a)->phys->size)
		if (sim_mapping_at(s, a)->present)
			return true;
	return false;
}

/* Takes whole mappings out of the host's page tables. */
trz_status sim_mapping_hide(sim *s, uint64_t address, uint64_t size)
{
	if (!any_present(s, address, size))
		return TRZ_OK;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
	if (mmap((void *)address, size, PROT_NONE, flags, -1, 0) == MAP_FAILED)
		return host_mapping_failed(s);
	return TRZ_OK;
}

/* Makes absent mappings from `m` on present, as far as they follow one another in the file, too; *bytes is how
 * much they cover. */
static trz_status show_run(sim *s, struct sim_mapping *m, uint64_t end, uint64_t *bytes)
{
	uint64_t run = 0;
	for (struct sim_mapping *n = m; n && !n->present && n->phys->offset == m->phys->offset + run;) {
		run += n->phys->size;
		n = m->address + run < end ? sim_mapping_at(s, m->address + run) : NULL;
	}
	if (mmap((void *)m->address, run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
	         s->memory_fd, (off_t)m->phys->offset) == MAP_FAILED)
		return host_mapping_failed(s);
	for (uint64_t done = 0; done < run;) {
		struct sim_mapping *n = sim_mapping_at(s, m->address + done);
		n->present = true;
		done += n->phys->size;
	}
	*bytes = run;
	return TRZ_OK;
}

/* Makes present the mappings that the range touches; it has no gap. */
trz_status sim_mapping_show(sim *s, uint64_t address, uint64_t size)
{
	for (uint64_t a = address; a < address + size;) {
		struct sim_mapping *m = sim_mapping_at(s, a);
		uint64_t bytes = m->phys->size;
		trz_status status = m->present ? TRZ_OK : show_run(s, m, address + size, &bytes);
		if (status != TRZ_OK)
			return status;
		a = m->address + bytes;
	}
	return TRZ_OK;
}

trz_status sim_bytes_show(sim *s, uint64_t address, uint64_t size)
{
	struct sim_mapping *m;
	for (uint64_t a = address; a < address + size; a = m->address + m->phys->size) {
		m = sim_mapping_at(s, a);
		sim_stamps_settle(s, m->phys);
	}
	return sim_mapping_show(s, address, size);
}

/* Lets the devices of the mask reach whole mappings, too. */
void sim_mapping_grant(sim *s, uint64_t address, uint64_t size, uint32_t access)
{
	struct sim_mapping *m;
	for (uint64_t a = address; a < address + size; a += m->phys->size) {
		m = sim_mapping_at(s, a);
		m->access |= access;
	}
}

/* Checks that the range consists of whole mappings made by `map`; else it is a violation. */
static trz_status check_whole(sim *s, const char *what, uint64_t address, uint64_t size)
{
	const char *wrong = size == 0 ? "is empty" : NULL;
	uint64_t a = address;
	while (!wrong && a - address < size) {
		const struct sim_mapping *m = sim_mapping_at(s, a);
		if (!m)
			wrong = "has a hole";
		else if (m->address != a)
			wrong = "starts inside a mapping";
		else if (m->chunk)
			wrong = "is plain memory";
		else
			a += m->phys->size;
	}
	if (!wrong && a - address != size)
		wrong = "ends inside a mapping";
	if (!wrong)
		return TRZ_OK;
	return sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, 0, "%s of [%#llx, +%llu), which %s at %#llx", what,
	                   (unsigned long long)address, (unsigned long long)size, wrong, (unsigned long long)a);
}

static trz_status check_map(sim *s, uint64_t address, uint64_t size, const struct sim_phys *p)
{
	const char *wrong = NULL;
	if (!p)
		wrong = "the handle is dead or was never made";
	else if (size != p->size && p->shared >= 0)
		return sim_refuse(s, TRZ_ERROR_NOT_SUPPORTED, "map of shared memory: %llu bytes requested, it has %llu",
		                  (unsigned long long)size, (unsigned long long)p->size);
	else if (size != p->size)
		wrong = "the size is not the handle's";
	else if (address % s->config.granularity)
		wrong = "the address is not a multiple of the granularity";
	else if (!is_reserved(s, address, size))
		wrong = "the range is not inside a reservation";
	for (uint64_t at = 0; !wrong && at < size; at += s->config.granularity)
		if (sim_mapping_at(s, address + at))
			wrong = "something is mapped there";
	if (!wrong)
		return sim_device_check(s, p->device);
	trz_status status = p && size != p->size ? TRZ_ERROR_NOT_SUPPORTED : TRZ_ERROR_INVALID_ARGUMENT;
	return sim_misuse(s, status, 0, "map at [%#llx, +%llu): %s",
	                  (unsigned long long)address, (unsigned long long)size, wrong);
}

static void note_filling(sim *s, struct sim_mapping *m)
{
	struct sim_reservation *r = &s->reservations[reservation_above(s, m->address) - 1];
	if (r->size == m->phys->size)
		r->filled = m->stands_for = r->filled ? r->filled : m->generation;
	else
		r->filled = 0;
}

trz_status sim_map(sim *s, trz_addr address, uint64_t size, trz_handle handle)
{
	struct sim_phys *p = sim_registry_get(&s->memory, handle);
	trz_status status = check_map(s, address, size, p);
	if (status == TRZ_OK)
		status = sim_mapping_add(s, address, p, NULL);
	if (status == TRZ_OK) {
		sim_mapping_at(s, address)->handle = handle;
		note_filling(s, sim_mapping_at(s, address));
		sim_charge_handle(s, SIM_SLOT_map, size, 1);
	}
	return status;
}

static int device_at(const sim *s, uint64_t address)
{
	const struct sim_mapping *m = sim_mapping_at(s, address);
	return m ? m->phys->device : 0;
}

trz_status sim_unmap(sim *s, trz_addr address, uint64_t size)
{
	sim_check_unused(s, "unmap", address, size);
	sim_maybe_drain(s, device_at(s, address), false);
	trz_status status = check_whole(s, "unmap", address, size);
	if (status == TRZ_OK)
		status = sim_device_check(s, device_at(s, address));
	if (status == TRZ_OK)
		status = sim_mapping_hide(s, address, size);
	if (status != TRZ_OK)
		return status;
	for (uint64_t a = address; a < address + size;) {
		struct sim_mapping *m = sim_mapping_at(s, a);
		sim_charge_handle(s, SIM_SLOT_unmap, m->phys->size, 1);
		a += m->phys->size;
		sim_mapping_remove(s, m);
	}
	return TRZ_OK;
}

bool sim_reaches(const sim *s, int device, int peer)
{
	return device == peer || !s->config.no_peers;
}

/* One bit for each listed device; 0: one of them cannot get access, and sim_refuse has the reason. */
static uint32_t access_mask(sim *s, const int *devices, int count)
{
	uint32_t mask = 0;
	for (int i = 0; i < count; i++) {
		if (devices[i] < 0 || devices[i] >= s->config.devices) {
			sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "there is no device %d", devices[i]);
			return 0;
		}
		mask |= 1u << devices[i];
	}
	if (!mask)
		sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "set_access names no device");
	return mask;
}

static trz_status check_reach(sim *s, uint64_t address, uint64_t size, const int *devices, int count)
{
	bool none = s->config.no_peers || s->config.peers_full;
	for (uint64_t a = address; none && a < address + size; a += sim_mapping_at(s, a)->phys->size)
		for (int i = 0; i < count; i++)
			if (devices[i] != device_at(s, a))
				return sim_refuse(s, s->config.no_peers ? TRZ_ERROR_INVALID_ARGUMENT : TRZ_ERROR_DRIVER,
				                  "device %d does not reach device %d", devices[i], device_at(s, a));
	return TRZ_OK;
}

trz_status sim_set_access(sim *s, trz_addr address, uint64_t size, const int *devices, int count)
{
	uint32_t access = access_mask(s, devices, count);
	if (!access)
		return TRZ_ERROR_INVALID_ARGUMENT;
	sim_maybe_drain(s, device_at(s, address), false);
	trz_status status = check_whole(s, "set_access", address, size);
	if (status == TRZ_OK)
		status = sim_device_check(s, device_at(s, address));
	if (status == TRZ_OK)
		status = check_reach(s, address, size, devices, count);
	if (status == TRZ_OK && !s->config.host_faults)
		status = sim_mapping_show(s, address, size);
	if (status != TRZ_OK)
		return status;
	sim_mapping_grant(s, address, size, access);
	for (uint64_t a = address; a < address + size; a += sim_mapping_at(s, a)->phys->size)
		sim_charge_handle(s, SIM_SLOT_set_access, sim_mapping_at(s, a)->phys->size, count);
	return TRZ_OK;
}

/* ---- what work and lookers-on need ---------------------------------------------------------------- */

bool sim_mapping_is_younger(const struct sim_mapping *m, const struct sim_stream *st, const struct sim_work *w)
{
	return (st->graph ? m->stands_for : m->generation) > w->generation;
}

bool sim_reachable(const sim *s, const struct sim_stream *st, const struct sim_work *w, int device, uint64_t address,
                   uint64_t size, char why[SIM_TEXT_BYTES])
{
	for (uint64_t a = address; a - address < size;) {
		const struct sim_mapping *m = sim_mapping_at(s, a);
		const char *wrong = NULL;
		if (!m)
			wrong = "nothing is mapped";
		else if (!(m->access >> device & 1))
			wrong = "the mapping has no access rights for the device";
		else if (sim_mapping_is_younger(m, st, w))
			wrong = "the mapping is younger than the work";
		if (wrong) {
			snprintf(why, SIM_TEXT_BYTES, "[%#llx, +%llu): %s at %#llx", (unsigned long long)address,
			         (unsigned long long)size, wrong, (unsigned long long)a);
			return false;
		}
		a = m->address + m->phys->size;
	}
	return true;
}

void sim_check_unused(sim *s, const char *what, uint64_t address, uint64_t size)
{
	if (!sim_enforces(s, SIM_RULE_UNMAP_IN_USE))
		return;
	for (size_t i = 0; i < s->active_count; i++) {
		const struct sim_stream *st = s->active[i];
		for (uint64_t n = st->completed; n < st->enqueued; n++) {
			const struct sim_work *w = &st->items[n & (st->room - 1)];
			if (!sim_work_uses(w, address, size))
				continue;
			sim_violate(s, TRZ_ERROR_INVALID_ARGUMENT,
			            "%s of [%#llx, +%llu) while an unfinished %s on stream %llu uses [%#llx, +%llu)",
			            what, (unsigned long long)address, (unsigned long long)size, sim_work_name(w),
			            (unsigned long long)st->id, (unsigned long long)w->address,
			            (unsigned long long)w->size);
			return;
		}
	}
}

void sim_maybe_drain(sim *s, int device, bool otherwise)
{
	bool wait = sim_enforces(s, SIM_RULE_SYNC_MAYBE) ? prng_next(&s->sync_seed) & 1 : otherwise;
	if (wait)
		sim_drain(s, device);
}

/* How many of the bytes lie in the mapping that the address is in, and where in the memory file; 0: there is none. */
static uint64_t settled_run(const sim *s, uint64_t address, uint64_t size, uint64_t *offset)
{
	const struct sim_mapping *m = sim_mapping_at(s, address);
	if (!m)
		return 0;
	sim_stamps_settle(s, m->phys);
	uint64_t inside = address - m->address;
	*offset = m->phys->offset + inside;
	return min_u64(size, m->phys->size - inside);
}

bool sim_bytes_read(const sim *s, uint64_t address, void *to, uint64_t size)
{
	uint64_t done = 0, offset, bytes;
	while ((bytes = settled_run(s, address + done, size - done, &offset)) > 0) {
		ssize_t got = sim_file_read(s->memory_fd, (char *)to + done, bytes, offset);
		if (got <= 0)
			break;
		done += (uint64_t)got;
	}
	return done == size;
}

bool sim_peek(sim *s, trz_addr address, void *to, uint64_t size)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	bool seen = sim_bytes_read(s, address, to, size);
	sim_leave(&call);
	return seen;
}

bool sim_poke(sim *s, trz_addr address, const void *from, uint64_t size)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	uint64_t done = 0, offset, bytes;
	while ((bytes = settled_run(s, address + done, size - done, &offset)) > 0) {
		ssize_t put = sim_file_write(s->memory_fd, (const char *)from + done, bytes, offset);
		if (put <= 0)
			break;
		done += (uint64_t)put;
	}
	sim_leave(&call);
	return done == size;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of copies and fills. Device memory is a sparse file, and stays sparse: zeros are written as holes, and
 * holes are never read, so that a copy of unwritten gigabytes costs a few system calls.
 */
#include "sim_machine.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "bits.h"
#include "sim_file.h"

/* Below this, looking for holes costs more than it saves. */
static const uint64_t sparse_least = KIB(64);
static const uint64_t page = KIB(4);

static bool is_zero(const char *bytes, uint64_t size)
{
	return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* Where an address lies in the memory file, and how far its mapping goes from there. */
static uint64_t file_place(const sim *s, uint64_t address, uint64_t *bytes)
{
	const struct sim_mapping *m = sim_mapping_at(s, address);
	uint64_t inside = address - m->address;
	*bytes = m->phys->size - inside;
	return m->phys->offset + inside;
}

static void zero_device(sim *s, uint64_t address, uint64_t size)
{
	uint64_t bytes;
	for (uint64_t end = address + size; address < end; address += bytes) {
		uint64_t offset = file_place(s, address, &bytes);
		bytes = min_u64(bytes, end - address);
		uint64_t first = align_up(address, page) - address, last = align_down(address + bytes, page) - address;
		bool hole = bytes >= sparse_least &&
		            sim_file_punch(s->memory_fd, offset + first, last - first);
		if (!hole)
			first = last = bytes;
		memset((void *)address, 0, first);
		memset((void *)(address + last), 0, bytes - last);
	}
}

/* Host pages that are zero already are only read, so that untouched pages take no memory. */
static void zero_host(uint64_t address, uint64_t size)
{
	uint64_t bytes;
	for (uint64_t end = address + size; address < end; address += bytes) {
		bytes = min_u64(end - address, page - address % page);
		if (!is_zero((const char *)address, bytes))
			memset((void *)address, 0, bytes);
	}
}

static void zero(sim *s, uint64_t address, uint64_t size)
{
	if (sim_in_window(s, address))
		zero_device(s, address, size);
	else
		zero_host(address, size);
}

/* Copies bytes that are not a hole; pages of zeros among them become one. */
static void copy_dense(sim *s, uint64_t to, uint64_t from, uint64_t size)
{
	if (size < sparse_least || !sim_in_window(s, to)) {
		memmove((void *)to, (const void *)from, size);
		return;
	}
	uint64_t zeros = 0, bytes;
	for (uint64_t at = 0; at < size; at += bytes) {
		bytes = min_u64(size - at, page);
		if (is_zero((const char *)from + at, bytes)) {
			zeros += bytes;
			continue;
		}
		zero(s, to + at - zeros, zeros);
		zeros = 0;
		memmove((void *)(to + at), (const void *)(from + at), bytes);
	}
	zero(s, to + size - zeros, zeros);
}

/* The end of the hole or of the data that begins at `offset`. */
static uint64_t run_end(const sim *s, uint64_t offset, uint64_t end, bool *hole)
{
	off_t data = lseek(s->memory_fd, (off_t)offset, SEEK_DATA);
	*hole = data < 0 || (uint64_t)data > offset;
	if (*hole)
		return data < 0 ? end : min_u64((uint64_t)data, end);
	off_t next = lseek(s->memory_fd, (off_t)offset, SEEK_HOLE);
	return next < 0 ? end : min_u64((uint64_t)next, end);
}

void sim_bytes_copy(sim *s, uint64_t to, uint64_t from, uint64_t size)
{
	bool overlap = to < from + size && from < to + size;
	if (size < sparse_least || overlap || !sim_in_window(s, from)) {
		if (overlap)
			memmove((void *)to, (const void *)from, size);
		else
			copy_dense(s, to, from, size);
		return;
	}
	uint64_t bytes;
	for (uint64_t end = from + size; from < end; from += bytes, to += bytes) {
		uint64_t offset = file_place(s, from, &bytes);
		bytes = min_u64(bytes, end - from);
		bool hole;
		bytes = run_end(s, offset, offset + bytes, &hole) - offset;
		if (hole)
			zero(s, to, bytes);
		else
			copy_dense(s, to, from, bytes);
	}
}

void sim_bytes_fill(sim *s, uint64_t to, uint64_t size, const void *pattern, size_t unit)
{
	if (is_zero(pattern, unit)) {
		zero(s, to, size);
		return;
	}
	if (unit == 1) {
		memset((void *)to, *(const uint8_t *)pattern, size);
		return;
	}
	for (uint64_t at = 0; at < size; at += unit)
		memcpy((void *)(to + at), pattern, unit);
}

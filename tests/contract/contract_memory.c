/* SPDX-License-Identifier: Apache-2.0
 *
 * Contract cases: virtual memory management, sharing, plain memory.
 */
#include "contract.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bits.h"

enum { SHARES = 32 }; /* the cases that exhaust the device take its memory in about so many pieces */

/* ---- pieces of the cases ------------------------------------------------------------------------ */

static void need_vmm(const struct contract_env *env)
{
	if (!env->info.vmm)
		skip();
}

static trz_handle create(struct contract_env *env, uint64_t size)
{
	const trz_tile_props props = {.device = env->device};
	trz_handle handle = 0;
	expect_ok(SLOT(env, create, &props, size, &handle));
	assert_int_not_equal(handle, 0);
	return handle;
}

static trz_addr reserve(struct contract_env *env, uint64_t size)
{
	trz_addr address = 0;
	expect_ok(SLOT(env, reserve, size, 0, 0, &address));
	assert_int_not_equal(address, 0);
	return address;
}

static void map(struct contract_env *env, trz_addr address, uint64_t size, trz_handle handle)
{
	expect_ok(SLOT(env, map, address, size, handle));
	expect_ok(SLOT(env, set_access, address, size, &env->device, 1));
}

static void fill(struct contract_env *env, trz_addr address, uint64_t size, uint8_t value)
{
	OPS(env, fill, env->context, NULL, address, size, value);
	OPS(env, stream_sync, env->context, NULL);
}

static void expect_bytes(struct contract_env *env, trz_addr address, uint64_t size, uint8_t value)
{
	uint8_t *bytes = malloc(size);
	uint64_t wrong = 0;
	assert_non_null(bytes);
	OPS(env, read, env->context, NULL, bytes, address, size);
	OPS(env, stream_sync, env->context, NULL);
	for (uint64_t i = 0; i < size; i++)
		wrong += bytes[i] != value;
	free(bytes);
	assert_int_equal(wrong, 0);
}

/* ---- mapping ------------------------------------------------------------------------------------ */

static void create_takes_whole_granules(struct contract_env *env)
{
	need_vmm(env);
	const trz_tile_props props = {.device = env->device};
	const uint64_t granule = env->info.granularity;
	trz_handle handle = 7;
	expect_status(SLOT(env, create, &props, 0, &handle), TRZ_ERROR_INVALID_ARGUMENT);
	expect_status(SLOT(env, create, &props, granule / 2, &handle), TRZ_ERROR_INVALID_ARGUMENT);
	expect_status(SLOT(env, create, &props, granule + granule / 2, &handle), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(handle, 7);
	expect_ok(SLOT(env, release, create(env, 3 * granule)));
}

static void memory_lives_from_create_to_release(struct contract_env *env)
{
	need_vmm(env);
	const uint64_t size = 2 * env->info.granularity;
	trz_handle handle = create(env, size);
	trz_addr address = reserve(env, size);
	map(env, address, size, handle);
	fill(env, address, size, 0x5a);
	expect_bytes(env, address, size, 0x5a);
	expect_ok(SLOT(env, unmap, address, size));
	expect_ok(SLOT(env, unreserve, address, size));
	expect_ok(SLOT(env, release, handle));
}

static void contents_move_with_the_handle(struct contract_env *env)
{
	need_vmm(env);
	const uint64_t size = env->info.granularity;
	trz_handle handle = create(env, size);
	trz_addr first = reserve(env, 2 * size), second = first + size;
	map(env, first, size, handle);
	fill(env, first, size, 0x11);
	expect_ok(SLOT(env, unmap, first, size));
	map(env, second, size, handle);
	expect_bytes(env, second, size, 0x11);
	expect_ok(SLOT(env, unmap, second, size));
	expect_ok(SLOT(env, unreserve, first, 2 * size));
	expect_ok(SLOT(env, release, handle));
}

static void aliases_agree_after_the_stream_is_synchronised(struct contract_env *env)
{
	need_vmm(env);
	const uint64_t size = env->info.granularity;
	trz_handle handle = create(env, size);
	trz_addr first = reserve(env, size), second = reserve(env, size);
	map(env, first, size, handle);
	map(env, second, size, handle);
	fill(env, first, size, 0x21);
	expect_bytes(env, second, size, 0x21);
	fill(env, second, size / 2, 0x22);
	expect_bytes(env, first, size / 2, 0x22);
	expect_bytes(env, first + size / 2, size / 2, 0x21);
	expect_ok(SLOT(env, unmap, first, size));
	expect_bytes(env, second, size / 2, 0x22);
	expect_ok(SLOT(env, unmap, second, size));
	expect_ok(SLOT(env, unreserve, first, size));
	expect_ok(SLOT(env, unreserve, second, size));
	expect_ok(SLOT(env, release, handle));
}

static void released_memory_stays_while_mapped(struct contract_env *env)
{
	need_vmm(env);
	const uint64_t size = env->info.granularity;
	trz_handle handle = create(env, size);
	trz_addr address = reserve(env, size);
	map(env, address, size, handle);
	expect_ok(SLOT(env, release, handle));
	fill(env, address, size, 0x33);
	expect_bytes(env, address, size, 0x33);
	expect_ok(SLOT(env, unmap, address, size));
	expect_ok(SLOT(env, unreserve, address, size));
}

static void neighbours_are_granted_and_unmapped_in_one_call(struct contract_env *env)
{
	need_vmm(env);
	const uint64_t granule = env->info.granularity, size = 6 * granule;
	trz_addr address = reserve(env, size);
	trz_handle handles[3];
	uint64_t offset = 0;
	for (unsigned i = 0; i < 3; offset += (i + 1) * granule, i++) {
		handles[i] = create(env, (i + 1) * granule);
		expect_ok(SLOT(env, map, address + offset, (i + 1) * granule, handles[i]));
	}
	expect_ok(SLOT(env, set_access, address, size, &env->device, 1));
	fill(env, address, size, 0x44);
	expect_bytes(env, address, size, 0x44);
	expect_ok(SLOT(env, unmap, address, 3 * granule));
	expect_bytes(env, address + 3 * granule, 3 * granule, 0x44);
	expect_ok(SLOT(env, unmap, address + 3 * granule, 3 * granule));
	expect_ok(SLOT(env, unreserve, address, size));
	for (unsigned i = 0; i < 3; i++)
		expect_ok(SLOT(env, release, handles[i]));
}

/* Setting one device's access leaves another's as it is. */
static void access_is_granted_device_by_device(struct contract_env *env)
{
	int devices = 0, peer = env->device + 1;
	bool can = false;
	need_vmm(env);
	expect_ok(SLOT(env, device_count, &devices));
	if (peer >= devices)
		skip();
	expect_ok(SLOT(env, peer_access, peer, env->device, &can));
	if (!can)
		skip();
	const uint64_t size = env->info.granularity;
	trz_addr address = reserve(env, size);
	trz_handle handle = create(env, size);
	map(env, address, size, handle);
	expect_ok(SLOT(env, set_access, address, size, &peer, 1));
	fill(env, address, size, 0x45);
	expect_bytes(env, address, size, 0x45);
	expect_ok(SLOT(env, unmap, address, size));
	expect_ok(SLOT(env, unreserve, address, size));
	expect_ok(SLOT(env, release, handle));
}

static void mapping_is_undone_whole(struct contract_env *env)
{
	need_vmm(env);
	const uint64_t granule = env->info.granularity, size = 2 * granule;
	trz_handle handle = create(env, size);
	trz_addr address = reserve(env, size);
	map(env, address, size, handle);
	fill(env, address, size, 0x55);
	expect_refused(SLOT(env, unmap, address, granule));
	expect_refused(SLOT(env, unmap, address + granule, granule));
	expect_bytes(env, address, size, 0x55);
	expect_ok(SLOT(env, unmap, address, size));
	expect_ok(SLOT(env, unreserve, address, size));
	expect_ok(SLOT(env, release, handle));
}

static void map_over_a_mapping_is_refused(struct contract_env *env)
{
	need_vmm(env);
	const uint64_t size = env->info.granularity;
	trz_handle handle = create(env, size), other = create(env, size);
	trz_addr address = reserve(env, size);
	map(env, address, size, handle);
	fill(env, address, size, 0x66);
	expect_refused(SLOT(env, map, address, size, other));
	expect_bytes(env, address, size, 0x66);
	expect_ok(SLOT(env, unmap, address, size));
	expect_ok(SLOT(env, unreserve, address, size));
	expect_ok(SLOT(env, release, handle));
	expect_ok(SLOT(env, release, other));
}

static void mapped_reservation_cannot_end(struct contract_env *env)
{
	need_vmm(env);
	const uint64_t size = env->info.granularity;
	trz_handle handle = create(env, size);
	trz_addr address = reserve(env, 2 * size);
	map(env, address, size, handle);
	fill(env, address, size, 0x77);
	expect_refused(SLOT(env, unreserve, address, 2 * size));
	expect_bytes(env, address, size, 0x77);
	expect_ok(SLOT(env, unmap, address, size));
	expect_ok(SLOT(env, unreserve, address, 2 * size));
	expect_ok(SLOT(env, release, handle));
}

static void reservation_is_aligned(struct contract_env *env)
{
	need_vmm(env);
	const uint64_t size = env->info.granularity, alignment = 64 * size;
	trz_addr first = 0, second = 0;
	expect_ok(SLOT(env, reserve, size, alignment, 0, &first));
	expect_ok(SLOT(env, reserve, size, alignment, 0, &second));
	assert_int_equal(first % alignment, 0);
	assert_int_equal(second % alignment, 0);
	expect_ok(SLOT(env, unreserve, first, size));
	expect_ok(SLOT(env, unreserve, second, size));
}

static void address_space_ends(struct contract_env *env)
{
	need_vmm(env);
	trz_addr address = 9;
	expect_status(SLOT(env, reserve, UINT64_C(1) << 60, 0, 0, &address), TRZ_ERROR_ADDRESS_SPACE);
	assert_int_equal(address, 9);
}

/* ---- capacity ----------------------------------------------------------------------------------- */

static void capacity_ends_and_comes_back(struct contract_env *env)
{
	need_vmm(env);
	const trz_tile_props props = {.device = env->device};
	const uint64_t size = align_up(env->info.total_bytes / SHARES, env->info.granularity);
	trz_handle handles[2 * SHARES];
	trz_status status = TRZ_OK;
	unsigned count = 0;
	while (count < 2 * SHARES && status == TRZ_OK) {
		status = SLOT(env, create, &props, size, &handles[count]);
		count += status == TRZ_OK;
	}
	expect_status(status, TRZ_ERROR_OUT_OF_MEMORY);
	assert_in_range(count, 1, SHARES);
	expect_ok(SLOT(env, release, handles[--count]));
	handles[count++] = create(env, size);
	while (count > 0)
		expect_ok(SLOT(env, release, handles[--count]));
}

static void free_memory_is_part_of_the_total(struct contract_env *env)
{
	uint64_t unused = 0, total = 0;
	expect_ok(SLOT(env, mem_info, env->context, &unused, &total));
	assert_true(unused <= total);
	assert_true(total <= env->info.total_bytes);
	assert_true(unused > 0);
}

static void plain_memory_is_aligned_and_usable(struct contract_env *env)
{
	trz_addr address[8];
	for (unsigned i = 0; i < 8; i++) {
		expect_ok(SLOT(env, mem_alloc, env->context, 1 + 1000 * i, &address[i]));
		assert_int_equal(address[i] % 256, 0);
		fill(env, address[i], 1 + 1000 * i, (uint8_t)i);
	}
	for (unsigned i = 0; i < 8; i++) {
		expect_bytes(env, address[i], 1 + 1000 * i, (uint8_t)i);
		expect_ok(SLOT(env, mem_free, env->context, address[i]));
	}
}

static void too_much_plain_memory_is_refused(struct contract_env *env)
{
	trz_addr address = 3;
	expect_status(SLOT(env, mem_alloc, env->context, 2 * env->info.total_bytes, &address),
	              TRZ_ERROR_OUT_OF_MEMORY);
	assert_int_equal(address, 3);
}

/* ---- sharing ------------------------------------------------------------------------------------ */

static void descriptor_carries_the_memory(struct contract_env *env)
{
	if (!env->info.export_fd)
		skip();
	const trz_tile_props props = {.device = env->device, .export_kinds = TRZ_EXPORT_FD};
	const uint64_t size = env->info.granularity;
	trz_handle handle = 0, imported = 0;
	int descriptor = -1;
	expect_ok(SLOT(env, create, &props, size, &handle));
	expect_ok(SLOT(env, export_handle, handle, TRZ_EXPORT_FD, &descriptor));
	assert_true(descriptor >= 0);
	expect_ok(SLOT(env, import_handle, TRZ_EXPORT_FD, &descriptor, &imported));
	assert_int_equal(close(descriptor), 0);
	trz_addr first = reserve(env, size), second = reserve(env, size);
	map(env, first, size, handle);
	map(env, second, size, imported);
	fill(env, first, size, 0x88);
	expect_ok(SLOT(env, unmap, first, size));
	expect_ok(SLOT(env, release, handle));
	expect_bytes(env, second, size, 0x88);
	expect_ok(SLOT(env, unmap, second, size));
	expect_ok(SLOT(env, release, imported));
	expect_ok(SLOT(env, unreserve, first, size));
	expect_ok(SLOT(env, unreserve, second, size));
}

/* The importer only knows the size that it is told. */
static void imported_memory_is_mapped_whole(struct contract_env *env)
{
	if (!env->info.export_fd)
		skip();
	const trz_tile_props props = {.device = env->device, .export_kinds = TRZ_EXPORT_FD};
	const uint64_t size = 2 * env->info.granularity;
	trz_handle handle = 0, imported = 0;
	int descriptor = -1;
	expect_ok(SLOT(env, create, &props, size, &handle));
	expect_ok(SLOT(env, export_handle, handle, TRZ_EXPORT_FD, &descriptor));
	expect_ok(SLOT(env, import_handle, TRZ_EXPORT_FD, &descriptor, &imported));
	assert_int_equal(close(descriptor), 0);
	trz_addr range = reserve(env, 2 * size);
	expect_status(SLOT(env, map, range, 2 * size, imported), TRZ_ERROR_NOT_SUPPORTED);
	expect_status(SLOT(env, map, range, size / 2, imported), TRZ_ERROR_NOT_SUPPORTED);
	map(env, range, size, imported);
	expect_ok(SLOT(env, unmap, range, size));
	expect_ok(SLOT(env, release, imported));
	expect_ok(SLOT(env, release, handle));
	expect_ok(SLOT(env, unreserve, range, 2 * size));
}

static void export_is_decided_at_create(struct contract_env *env)
{
	if (!env->info.export_fd)
		skip();
	trz_handle handle = create(env, env->info.granularity);
	int descriptor = -1;
	expect_refused(SLOT(env, export_handle, handle, TRZ_EXPORT_FD, &descriptor));
	expect_ok(SLOT(env, release, handle));
}

static void export_that_the_device_lacks_is_refused(struct contract_env *env)
{
	need_vmm(env);
	if (env->info.export_fabric)
		skip();
	const trz_tile_props props = {.device = env->device, .export_kinds = TRZ_EXPORT_FABRIC};
	trz_handle handle = 5;
	expect_status(SLOT(env, create, &props, env->info.granularity, &handle), TRZ_ERROR_NOT_SUPPORTED);
	assert_int_equal(handle, 5);
}

/* Callers need no current context for these. CUDA does not say whether the driver needs one: the slots see to it. */
static void *make_memory(void *argument)
{
	struct contract_env *env = argument;
	uint64_t size = env->info.granularity;
	trz_addr address = reserve(env, size);
	trz_handle handle = create(env, size);
	map(env, address, size, handle);
	expect_ok(SLOT(env, unmap, address, size));
	expect_ok(SLOT(env, release, handle));
	expect_ok(SLOT(env, unreserve, address, size));
	assert_null(env->ops->context_current(env->self));
	return NULL;
}

static void a_thread_without_a_context_makes_memory(struct contract_env *env)
{
	pthread_t thread;
	need_vmm(env);
	assert_int_equal(pthread_create(&thread, NULL, make_memory, env), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

const struct contract_case contract_memory_cases[] = {
	{"a_thread_without_a_context_makes_memory", a_thread_without_a_context_makes_memory, ON_H200},
	{"create_takes_whole_granules", create_takes_whole_granules, ON_H200},
	{"memory_lives_from_create_to_release", memory_lives_from_create_to_release, ON_H200},
	{"contents_move_with_the_handle", contents_move_with_the_handle, ON_H200},
	{"aliases_agree_after_the_stream_is_synchronised", aliases_agree_after_the_stream_is_synchronised,
	 ON_H200},
	{"released_memory_stays_while_mapped", released_memory_stays_while_mapped, ON_H200},
	{"neighbours_are_granted_and_unmapped_in_one_call", neighbours_are_granted_and_unmapped_in_one_call,
	 ON_H200},
	{"access_is_granted_device_by_device", access_is_granted_device_by_device, NEVER_ON_GPU},
	{"mapping_is_undone_whole", mapping_is_undone_whole, ON_H200},
	{"map_over_a_mapping_is_refused", map_over_a_mapping_is_refused, ON_H200},
	{"mapped_reservation_cannot_end", mapped_reservation_cannot_end, ON_H200},
	{"reservation_is_aligned", reservation_is_aligned, ON_H200},
	{"address_space_ends", address_space_ends, ON_H200},
	{"capacity_ends_and_comes_back", capacity_ends_and_comes_back, ON_H200},
	{"free_memory_is_part_of_the_total", free_memory_is_part_of_the_total, ON_H200},
	{"plain_memory_is_aligned_and_usable", plain_memory_is_aligned_and_usable, ON_H200},
	{"too_much_plain_memory_is_refused", too_much_plain_memory_is_refused, ON_H200},
	{"descriptor_carries_the_memory", descriptor_carries_the_memory, ON_H200},
	{"imported_memory_is_mapped_whole", imported_memory_is_mapped_whole, ON_H200},
	{"export_is_decided_at_create", export_is_decided_at_create, ON_H200},
	{"export_that_the_device_lacks_is_refused", export_that_the_device_lacks_is_refused, NEVER_ON_GPU},
	{NULL, NULL, NULL},
};

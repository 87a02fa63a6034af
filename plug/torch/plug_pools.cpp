/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch names pools by pairs of numbers and diverts allocations by std::function; the heap has pointers and plain
 * filters. This file maps the former to the latter.
 */
#include "plug_pools.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "plug.h"

namespace {

struct diversion {
	std::unique_ptr<trz_torch_filter> filter;
	std::thread::id thread;
};

/* While `references` > 0, each counts one reference of the heap's pool. */
struct pool {
	trz_pool *heap_pool;
	unsigned references;
	unsigned number;
	std::vector<diversion> diversions;  /* the newest last */
};

using key = std::tuple<int, unsigned long long, unsigned long long>;

/* Never destroyed: tensors, and with them graphs, may be freed after static objects are. */
struct registry {
	std::mutex lock;
	std::map<key, pool> pools;
};

registry &all()
{
	static registry *r = new registry;
	return *r;
}

key key_of(int device, trz_torch_pool_id id)
{
	return {device, id.first, id.second};
}

trz_status unknown(int device, trz_torch_pool_id id)
{
	return plug_fail(TRZ_ERROR_NOT_FOUND, "device %d has no pool (%llu, %llu)", device, id.first, id.second);
}

/* In a child made by fork() pools end silently, with the objects of PyTorch that hold them: destructors cannot fail. */
trz_status end_status(trz_status status)
{
	return status == TRZ_ERROR_SHUTDOWN ? TRZ_OK : status;
}

/* The heap calls it under a lock that an exception would leave held. PyTorch's filters ask the driver about the stream
 * and throw its error: the filter does not accept a stream that fails. */
bool call_filter(void *user, trz_stream stream)
{
	try {
		return (*static_cast<trz_torch_filter *>(user))(stream);
	} catch (...) {
		return false;
	}
}

/* The diversion that trz_pool_end ends: the newest that this thread began, else the newest. */
std::vector<diversion>::iterator newest(pool &p)
{
	for (auto d = p.diversions.end(); d != p.diversions.begin();)
		if ((--d)->thread == std::this_thread::get_id())
			return d;
	return p.diversions.end() - 1;
}

void check(trz_status status)
{
	if (status != TRZ_OK)
		plug_throw(status, trz_torch_last_error());
}

} // namespace

trz_status trz_torch_pool_open(int device, trz_torch_pool_id id)
{
	trz_heap *heap;
	trz_status status = trz_torch_heap(device, true, &heap);
	if (status != TRZ_OK)
		return status;
	std::lock_guard<std::mutex> guard(all().lock);
	auto found = all().pools.find(key_of(device, id));
	if (found != all().pools.end()) {
		status = plug_pass(trz_pool_retain(heap, found->second.heap_pool));
		found->second.references += status == TRZ_OK;
		return status;
	}
	pool p = {nullptr, 1, 0, {}};
	trz_pool_info info;
	status = plug_pass(trz_pool_create(heap, &p.heap_pool));
	if (status != TRZ_OK || (status = plug_pass(trz_pool_query(heap, p.heap_pool, &info))) != TRZ_OK)
		return status;
	p.number = info.id;
	all().pools.emplace(key_of(device, id), std::move(p));
	return TRZ_OK;
}

trz_status trz_torch_pool_close(int device, trz_torch_pool_id id)
{
	trz_heap *heap;
	trz_status status = trz_torch_heap(device, false, &heap);
	if (status != TRZ_OK)
		return end_status(status);
	std::lock_guard<std::mutex> guard(all().lock);
	auto found = all().pools.find(key_of(device, id));
	if (found == all().pools.end())
		return unknown(device, id);
	status = plug_pass(trz_pool_release(heap, found->second.heap_pool));
	if (status == TRZ_OK && --found->second.references == 0)
		all().pools.erase(found);
	return status;
}

trz_status trz_torch_pool_begin(int device, trz_torch_pool_id id, trz_torch_filter filter)
{
	trz_heap *heap;
	trz_status status = trz_torch_heap(device, false, &heap);
	if (status != TRZ_OK)
		return status;
	std::lock_guard<std::mutex> guard(all().lock);
	auto found = all().pools.find(key_of(device, id));
	if (found == all().pools.end())
		return unknown(device, id);
	diversion d = {std::make_unique<trz_torch_filter>(std::move(filter)), std::this_thread::get_id()};
	auto *asks = *d.filter ? call_filter : nullptr;
	status = plug_pass(trz_pool_begin(heap, found->second.heap_pool, asks, d.filter.get()));
	if (status == TRZ_OK)
		found->second.diversions.push_back(std::move(d));
	return status;
}

trz_status trz_torch_pool_end(int device, trz_torch_pool_id id)
{
	trz_heap *heap;
	diversion ended;
	trz_status status = trz_torch_heap(device, false, &heap);
	if (status != TRZ_OK)
		return end_status(status);
	std::lock_guard<std::mutex> guard(all().lock);
	auto found = all().pools.find(key_of(device, id));
	if (found == all().pools.end() || found->second.diversions.empty())
		return unknown(device, id);
	status = plug_pass(trz_pool_end(heap, found->second.heap_pool));
	if (status == TRZ_OK) {
		auto d = newest(found->second);
		ended = std::move(*d);
		found->second.diversions.erase(d);
	}
	return status;
}

trz_pool *trz_torch_pool_find(int device, trz_torch_pool_id id)
{
	std::lock_guard<std::mutex> guard(all().lock);
	auto found = all().pools.find(key_of(device, id));
	return found == all().pools.end() ? nullptr : found->second.heap_pool;
}

unsigned trz_torch_pool_references(int device, trz_torch_pool_id id)
{
	std::lock_guard<std::mutex> guard(all().lock);
	auto found = all().pools.find(key_of(device, id));
	return found == all().pools.end() ? 0 : found->second.references;
}

size_t trz_torch_pool_list(int device, trz_torch_pool_id *ids, size_t capacity)
{
	size_t count = 0;
	std::lock_guard<std::mutex> guard(all().lock);
	for (const auto &[k, p] : all().pools)
		if (std::get<0>(k) == device && count++ < capacity)
			ids[count - 1] = {std::get<1>(k), std::get<2>(k)};
	return count;
}

trz_torch_pool_id trz_torch_pool_by_number(int device, unsigned number)
{
	std::lock_guard<std::mutex> guard(all().lock);
	for (const auto &[k, p] : all().pools)
		if (std::get<0>(k) == device && p.number == number)
			return {std::get<1>(k), std::get<2>(k)};
	return {0, 0};
}

/* ---- hooks ------------------------------------------------------------------------------------------------------ */

void trz_torch_begin_allocate_to_pool(int device, trz_torch_pool_id id, trz_torch_filter filter)
{
	check(trz_torch_pool_open(device, id));
	trz_status status = trz_torch_pool_begin(device, id, std::move(filter));
	if (status != TRZ_OK)
		trz_torch_pool_close(device, id);
	check(status);
}

void trz_torch_end_allocate_to_pool(int device, trz_torch_pool_id id)
{
	check(trz_torch_pool_end(device, id));
}

void trz_torch_release_pool(int device, trz_torch_pool_id id)
{
	check(trz_torch_pool_close(device, id));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch names pools by pairs of numbers and diverts allocations by std::function; the heap has pointers and plain
 * filters. This file maps the former to the latter.
 */
#include "plug_pools.hpp"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "plug.h"

namespace {

struct watched_filter {
	trz_torch_filter accepts;
	std::atomic<trz_stream> taken;  /* a stream whose allocation it has accepted; NULL: none, or the default one */
};

struct diversion {
	std::unique_ptr<watched_filter> filter;
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

/* In a child made by fork(), pools end silently, with the objects of PyTorch that hold them: destructors cannot
 * fail. */
trz_status end_status(trz_status status)
{
	return status == TRZ_ERROR_SHUTDOWN ? TRZ_OK : status;
}

/* Calls PyTorch's filter. The heap calls this under a lock, which an exception would leave held. PyTorch's filters ask
 * the driver about the stream and throw its errors: such a stream is not accepted. */
bool call_filter(void *user, trz_stream stream)
{
	auto *filter = static_cast<watched_filter *>(user);
	try {
		if (!filter->accepts(stream))
			return false;
		filter->taken.store(stream, std::memory_order_relaxed);
		return true;
	} catch (...) {
		return false;
	}
}

/* Whether a diversion of the calling thread was for a capture that is over. A capture's filter asks the driver whether
 * the stream is in the capture; other filters go on accepting a stream in the thread that began the diversion. */
bool is_over(const diversion &d)
{
	trz_stream taken = d.filter->taken.load(std::memory_order_relaxed);
	return taken && !call_filter(d.filter.get(), taken);
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

/* Ends the newest diversion to a pool; the registry is locked. */
trz_status end_newest(trz_heap *heap, pool &p, diversion &ended)
{
	trz_status status = plug_pass(trz_pool_end(heap, p.heap_pool));
	if (status == TRZ_OK) {
		auto d = newest(p);
		ended = std::move(*d);
		p.diversions.erase(d);
	}
	return status;
}

/* Drops a reference; the registry is locked. */
trz_status drop_reference(trz_heap *heap, std::map<key, pool>::iterator found)
{
	trz_status status = plug_pass(trz_pool_release(heap, found->second.heap_pool));
	if (status == TRZ_OK && --found->second.references == 0)
		all().pools.erase(found);
	return status;
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
	return found == all().pools.end() ? unknown(device, id) : drop_reference(heap, found);
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
	diversion d = {std::make_unique<watched_filter>(), std::this_thread::get_id()};
	d.filter->accepts = std::move(filter);
	auto *asks = d.filter->accepts ? call_filter : nullptr;
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
	return end_newest(heap, found->second, ended);
}

/* PyTorch ends the diversion right after the capture, in the same thread. So if the thread comes here for something
 * else and the capture is over, nobody will end the diversion, nor drop the reference that was taken when it began. */
bool trz_torch_pool_end_broken(int *device, trz_torch_pool_id *id)
{
	diversion ended;
	std::lock_guard<std::mutex> guard(all().lock);
	for (auto p = all().pools.begin(); p != all().pools.end(); ++p) {
		auto [on, first, second] = p->first;
		pool &found = p->second;
		trz_heap *heap;
		if (found.diversions.empty() || newest(found)->thread != std::this_thread::get_id() ||
		    !is_over(*newest(found)))
			continue;
		if (trz_torch_heap(on, false, &heap) != TRZ_OK || end_newest(heap, found, ended) != TRZ_OK)
			return false;
		*device = on;
		*id = {first, second};
		drop_reference(heap, p);
		return true;
	}
	return false;
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

static std::atomic<bool> ends_broken;

void trz_torch_watch_captures()
{
	ends_broken = true;
}

void plug_end_broken_captures()
{
	int device;
	trz_torch_pool_id id;
	while (ends_broken && trz_torch_pool_end_broken(&device, &id))
		continue;
}

void trz_torch_begin_allocate_to_pool(int device, trz_torch_pool_id id, trz_torch_filter filter)
{
	plug_end_broken_captures();
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

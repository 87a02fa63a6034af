/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of GMLake (Guo et al., ASPLOS 2024), written anew from what abstracts and summaries tell of its policy:
 * GMLake itself is a patch of an old PyTorch (bench/README.md says what is assumed). Memory comes in 2 MiB handles.
 * A primitive block is a run of them at an address of its own; a stitched block maps the handles of several primitive
 * blocks once more, at one address. A request takes, in this order: a free block of exactly its size (S1); the smallest
 * larger primitive block, which it splits (S2); free primitive blocks, the largest first, stitched (S3), with a new one
 * for the rest (S4); nothing, once all free memory has been returned (S5). Requests below 2 MiB split blocks of 2 MiB.
 */
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench_peer.h"

extern "C" {
struct location {
	int type, id;
};
struct properties {
	int type, handle_types;
	location where;
	void *windows;
	unsigned char flags[8];
};
struct access {
	location where;
	int flags;
};
int cuMemCreate(uint64_t *handle, size_t size, const properties *what, unsigned long long flags);
int cuMemRelease(uint64_t handle);
int cuMemAddressReserve(uint64_t *address, size_t size, size_t alignment, uint64_t hint, unsigned long long flags);
int cuMemAddressFree(uint64_t address, size_t size);
int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, unsigned long long flags);
int cuMemUnmap(uint64_t address, size_t size);
int cuMemSetAccess(uint64_t address, size_t size, const access *who, size_t count);
int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuEventQuery(void *event);
int cuEventDestroy_v2(void *event);
int cuCtxSynchronize(void);
}

namespace {

constexpr uint64_t chunk = 2 << 20, unit = 512;
constexpr uint64_t device_location = 1, read_write = 3, no_timing = 2;
constexpr uint64_t most_stitched = 4;  /* addresses of stitched blocks, as a multiple of the memory */

/* Free blocks serve one stream, and requests either below 2 MiB or above. */
struct lane {
	void *stream;
	bool small;
	auto operator<=>(const lane &) const = default;
};

struct stitched;

/* Memory that was created at once. */
struct segment {
	uint64_t address, size;
	std::vector<uint64_t> handles;
};

struct primitive {
	segment *in;
	uint64_t address, size;
	struct lane lane;
	bool active = false;
	primitive *before = nullptr, *after = nullptr;  /* other parts of the segment */
	std::set<stitched *> users = {};
};

struct stitched {
	uint64_t address, size;
	struct lane lane;
	std::vector<primitive *> parts;
	unsigned active_parts = 0;
	uint64_t used = 0;  /* when it was last used */
};

/* What a pointer that the program has stands for. */
struct given {
	primitive *block = nullptr;
	stitched *sewn = nullptr;
	std::vector<void *> streams = {};  /* other streams that use it */
};

/* Memory that is freed but that other streams' work may still use. */
struct late {
	given what;
	std::vector<void *> events;
};

/* Free blocks, by size and address. */
template <class block> struct pool {
	std::map<std::pair<uint64_t, uint64_t>, block *> blocks;

	void add(block *one)
	{
		blocks[{one->size, one->address}] = one;
	}

	void remove(const block *one)
	{
		blocks.erase({one->size, one->address});
	}

	/* The smallest of at least that size; nullptr: there is none. */
	block *best(uint64_t size) const
	{
		auto found = blocks.lower_bound({size, 0});
		return found == blocks.end() ? nullptr : found->second;
	}
};

std::mutex mutex;
uint64_t limit = 128 << 20;  /* smaller blocks are not stitched */
std::map<lane, pool<primitive>> free_blocks;
std::map<lane, pool<stitched>> free_stitched;
std::unordered_map<uint64_t, given> live;
std::vector<late> lates;
uint64_t made_bytes, stitched_bytes, now;

/* ---- the driver ---- */

bool map_all(uint64_t address, const std::vector<uint64_t> &handles)
{
	const access who = {{device_location, 0}, read_write};
	for (size_t i = 0; i < handles.size(); i++)
		if (cuMemMap(address + i * chunk, chunk, 0, handles[i], 0) != 0)
			std::abort();
	return cuMemSetAccess(address, handles.size() * chunk, &who, 1) == 0;
}

void unmap_all(uint64_t address, uint64_t size)
{
	for (uint64_t at = 0; at < size; at += chunk)
		cuMemUnmap(address + at, chunk);
	cuMemAddressFree(address, size);
}

void release_handles(const std::vector<uint64_t> &handles)
{
	for (uint64_t handle : handles)
		cuMemRelease(handle);
}

/* ---- blocks ---- */

void set_active(primitive *block, bool active)
{
	block->active = active;
	auto &own = free_blocks[block->lane];
	if (active)
		own.remove(block);
	else
		own.add(block);
	for (stitched *user : block->users) {
		auto &sewn = free_stitched[user->lane];
		if (active && user->active_parts++ == 0)
			sewn.remove(user);
		if (!active && --user->active_parts == 0)
			sewn.add(user);
	}
}

/* Makes a free block; nullptr: the device does not have so much. */
primitive *create(uint64_t size, lane of)
{
	const properties what = {1, 0, {device_location, 0}, nullptr, {}};
	segment *made = new segment{0, size, {}};
	for (uint64_t at = 0; at < size; at += chunk) {
		uint64_t handle;
		if (cuMemCreate(&handle, chunk, &what, 0) != 0) {
			release_handles(made->handles);
			delete made;
			return nullptr;
		}
		made->handles.push_back(handle);
	}
	if (cuMemAddressReserve(&made->address, size, 0, 0, 0) != 0 || !map_all(made->address, made->handles))
		std::abort();
	made_bytes += size;
	primitive *block = new primitive{made, made->address, size, of};
	free_blocks[of].add(block);
	return block;
}

/* Cuts a free block; the rest becomes a block of its own, and stitched blocks keep both. */
void split(primitive *block, uint64_t size)
{
	primitive *rest = new primitive{block->in, block->address + size, block->size - size, block->lane};
	free_blocks[block->lane].remove(block);
	block->size = size;
	rest->before = block;
	rest->after = block->after;
	if (rest->after)
		rest->after->before = rest;
	block->after = rest;
	rest->users = block->users;
	for (stitched *user : rest->users)
		user->parts.push_back(rest);
	free_blocks[block->lane].add(block);
	free_blocks[block->lane].add(rest);
}

/* Whether these are free parts of a segment that belong to the same stitched blocks, or to none. */
bool may_join(const primitive *block, const primitive *next)
{
	return block && next && !block->active && !next->active && block->users == next->users;
}

/* Joins the block with the next part of its segment. */
void absorb(primitive *block)
{
	primitive *next = block->after;
	auto &own = free_blocks[block->lane];
	own.remove(block);
	own.remove(next);
	for (stitched *user : next->users)
		std::erase(user->parts, next);
	block->size += next->size;
	block->after = next->after;
	if (block->after)
		block->after->before = block;
	delete next;
	own.add(block);
}

void merge(primitive *block)
{
	if (may_join(block, block->after))
		absorb(block);
	if (may_join(block->before, block))
		absorb(block->before);
}

void drop(stitched *block)
{
	free_stitched[block->lane].remove(block);
	unmap_all(block->address, block->size);
	stitched_bytes -= block->size;
	for (primitive *part : block->parts)
		part->users.erase(block);
	const std::vector<primitive *> parts = std::move(block->parts);
	delete block;
	std::set<primitive *> left(parts.begin(), parts.end());
	while (!left.empty()) {  /* joining may remove others of them */
		primitive *part = *left.begin();
		left.erase(part);
		if (may_join(part, part->after))
			left.erase(part->after);
		merge(part);
	}
}

/* If there are too many addresses of stitched blocks, drops those unused for longest. */
void drop_old()
{
	std::vector<std::pair<uint64_t, stitched *>> unused;
	for (auto &[of, own] : free_stitched)
		for (auto &[order, block] : own.blocks)
			unused.emplace_back(block->used, block);
	std::set<std::pair<uint64_t, stitched *>> oldest(unused.begin(), unused.end());
	cuCtxSynchronize();
	for (auto &[used, block] : oldest)
		if (stitched_bytes > most_stitched / 2 * made_bytes)
			drop(block);
}

stitched *stitch(const std::vector<primitive *> &parts, uint64_t size, lane of)
{
	stitched *made = new stitched{0, size, of, parts};
	std::vector<uint64_t> handles;
	for (primitive *part : parts) {
		auto first = part->in->handles.begin() + (long)((part->address - part->in->address) / chunk);
		handles.insert(handles.end(), first, first + (long)(part->size / chunk));
		part->users.insert(made);
	}
	if (cuMemAddressReserve(&made->address, size, 0, 0, 0) != 0 || !map_all(made->address, handles))
		std::abort();
	stitched_bytes += size;
	free_stitched[of].add(made);
	return made;
}

/* ---- requests ---- */

void *give_out(primitive *block)
{
	set_active(block, true);
	live[block->address] = {block, nullptr, {}};
	return (void *)block->address;
}

void *give_out(stitched *block)
{
	block->used = ++now;
	for (primitive *part : block->parts)
		set_active(part, true);
	live[block->address] = {nullptr, block, {}};
	return (void *)block->address;
}

/* S3 and S4. */
void *take_several(uint64_t size, lane of)
{
	std::vector<primitive *> parts;
	uint64_t sum = 0;
	auto &blocks = free_blocks[of].blocks;
	for (auto at = blocks.rbegin(); at != blocks.rend() && at->second->size >= limit && sum < size; ++at) {
		parts.push_back(at->second);
		sum += at->second->size;
	}
	if (sum < size) {
		primitive *more = create(size - sum, of);
		if (!more)
			return nullptr;
		if (parts.empty())
			return give_out(more);
		parts.push_back(more);
	} else if (sum > size) {
		split(parts.back(), parts.back()->size - (sum - size));
	}
	return give_out(stitch(parts, size, of));
}

void *take_one(uint64_t size, lane of)
{
	primitive *block = free_blocks[of].best(size);
	if (block && block->size == size)
		return give_out(block);
	stitched *sewn = free_stitched[of].best(size);
	if (sewn && sewn->size == size)
		return give_out(sewn);
	if (!block)
		return nullptr;
	split(block, size);
	return give_out(block);
}

void *take_anew(uint64_t size, lane of)
{
	if (!of.small)
		return take_several(size, of);
	primitive *made = create(chunk, of);
	return made ? take_one(size, of) : nullptr;
}

void become_free(const given &what)
{
	if (what.block) {
		set_active(what.block, false);
		merge(what.block);
		return;
	}
	what.sewn->used = ++now;
	for (primitive *part : what.sewn->parts)
		set_active(part, false);
	const std::vector<primitive *> parts = what.sewn->parts;
	for (size_t i = 0; i < parts.size(); i++)
		if (std::find(what.sewn->parts.begin(), what.sewn->parts.end(), parts[i]) != what.sewn->parts.end())
			merge(parts[i]);
}

void look_at_late(bool all)
{
	for (size_t i = 0; i < lates.size();) {
		auto &events = lates[i].events;
		while (!events.empty() && (all || cuEventQuery(events.back()) == 0)) {
			cuEventDestroy_v2(events.back());
			events.pop_back();
		}
		if (!events.empty()) {
			i++;
			continue;
		}
		become_free(lates[i].what);
		lates.erase(lates.begin() + (long)i);
	}
}

void destroy(primitive *block)
{
	free_blocks[block->lane].remove(block);
	unmap_all(block->address, block->size);
	release_handles(block->in->handles);
	made_bytes -= block->size;
	delete block->in;
	delete block;
}

void give_back_all()
{
	cuCtxSynchronize();
	look_at_late(true);
	std::vector<stitched *> stitched_blocks;
	for (auto &[of, own] : free_stitched)
		for (auto &[order, block] : own.blocks)
			stitched_blocks.push_back(block);
	for (stitched *block : stitched_blocks)
		drop(block);
	std::vector<primitive *> whole;
	for (auto &[of, own] : free_blocks)
		for (auto &[order, block] : own.blocks)
			if (block->size == block->in->size && block->users.empty())
				whole.push_back(block);
	for (primitive *block : whole)
		destroy(block);
}

/* ---- the peer ---- */

int begin(const char *options)
{
	if (*options)
		limit = std::strtoull(options, nullptr, 10) << 20;
	return 0;
}

void *take(size_t size, void *stream)
{
	std::lock_guard<std::mutex> guard(mutex);
	const lane of = {stream, size < chunk};
	const uint64_t step = of.small ? unit : chunk;
	size = (size + step - 1) / step * step;
	look_at_late(false);
	if (stitched_bytes > most_stitched * made_bytes)
		drop_old();
	void *found = take_one(size, of);
	if (!found)
		found = take_anew(size, of);
	if (found)
		return found;
	give_back_all();
	found = take_one(size, of);
	return found ? found : take_anew(size, of);
}

void use_on(void *pointer, void *stream)
{
	std::lock_guard<std::mutex> guard(mutex);
	live[(uint64_t)pointer].streams.push_back(stream);
}

void give(void *pointer, size_t, void *own, void *last)
{
	std::lock_guard<std::mutex> guard(mutex);
	auto found = live.find((uint64_t)pointer);
	late freed = {std::move(found->second), {}};
	live.erase(found);
	if (own != last)
		freed.what.streams.push_back(last);
	for (void *stream : freed.what.streams) {
		void *event;
		if (stream == own)
			continue;
		cuEventCreate(&event, no_timing);
		cuEventRecord(event, stream);
		freed.events.push_back(event);
	}
	if (freed.events.empty())
		become_free(freed.what);
	else
		lates.push_back(std::move(freed));
}

void empty()
{
	std::lock_guard<std::mutex> guard(mutex);
	give_back_all();
}

struct peer make_peer()
{
	struct peer made = {};
	made.open = begin;
	made.close = empty;
	made.alloc = take;
	made.free = give;
	made.record_stream = use_on;
	made.empty_cache = empty;
	return made;
}

}  // namespace

const struct peer bench_peer = make_peer();

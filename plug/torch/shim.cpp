/* SPDX-License-Identifier: Apache-2.0
 *
 * Full parity with PyTorch's own allocator: what torch.cuda.memory_stats, snapshots, pools, graph trees, profilers and
 * observers ask of an allocator, answered from terrazzo's heaps. Compiled by python/terrazzo/torch against the PyTorch
 * that is installed, since the classes here belong to no stable interface of it.
 *
 * Pools that bring an allocator of their own stay with PyTorch's allocator ("native" below): it knows how to cache memory
 * that is not terrazzo's.
 */
#include "shim_versions.hpp"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "plug_pools.hpp"

namespace {

using namespace versions;

trz_torch_pool_id pool_id(MempoolId_t id)
{
	return {id.first, id.second};
}

MempoolId_t pool_id(trz_torch_pool_id id)
{
	return {id.first, id.second};
}

void check(trz_status status)
{
	TORCH_CHECK(status == TRZ_OK, "terrazzo: ", trz_torch_last_error());
}

/* A child made by fork(), where locks of the parent's threads may be held for ever: what ends there, ends silently. */
bool in_child()
{
	trz_heap *heap;
	return trz_torch_heap(0, false, &heap) == TRZ_ERROR_SHUTDOWN;
}

trz_heap *heap_of(int device)
{
	trz_heap *heap;
	check(trz_torch_heap(device, true, &heap));
	return heap;
}

/* ---- statistics ------------------------------------------------------------------------------------------------- */

/* The statistics of a heap by name. Their order never changes in a process. */
class Statistics {
public:
	explicit Statistics(trz_heap *heap)
	{
		size_t count;
		check(trz_stats(heap, nullptr, 0, &count));
		values_.resize(count);
		check(trz_stats(heap, values_.data(), count, &count));
		static const index *made = make_index(values_);
		index_ = made;
	}

	int64_t operator[](const std::string &name) const
	{
		auto found = index_->find(name);
		return found == index_->end() ? 0 : static_cast<int64_t>(values_[found->second].value);
	}

private:
	using index = std::unordered_map<std::string, size_t>;

	static const index *make_index(const std::vector<trz_stat_value> &values)
	{
		auto *made = new index;
		for (size_t i = 0; i < values.size(); i++)
			made->emplace(values[i].name, i);
		return made;
	}

	std::vector<trz_stat_value> values_;
	const index *index_;
};

/* In the order of PyTorch's StatType. */
constexpr const char *POOLS[] = {"all", "small_pool", "large_pool"};

DeviceStats read_stats(const Statistics &from)
{
	DeviceStats stats;
	auto flow = [&](StatArray &to, const std::string &name) {
		for (size_t i = 0; i < to.size(); i++) {
			std::string prefix = name + "." + POOLS[i] + ".";
			to[i].current = from[prefix + "current"];
			to[i].peak = from[prefix + "peak"];
			to[i].allocated = from[prefix + "allocated"];
			to[i].freed = from[prefix + "freed"];
		}
	};
	flow(stats.allocation, "allocation");
	flow(stats.segment, "segment");
	flow(stats.allocated_bytes, "allocated_bytes");
	flow(stats.reserved_bytes, "reserved_bytes");
	flow(stats.requested_bytes, "requested_bytes");
	/* What is pending has been freed, but is active still. The heap does not tell small from large there. */
	auto active = [&](StatArray &to, const StatArray &held,
	                  const char *pending, const std::string &name) {
		to = held;
		for (size_t i : {0, 2}) {
			to[i].current += from[std::string(pending) + ".current"];
			to[i].freed -= from[std::string(pending) + ".current"];
			to[i].peak = std::max(to[i].peak, i == 0 ? from[name + ".all.peak"] : to[i].current);
		}
	};
	active(stats.active, stats.allocation, "pending", "active");
	active(stats.active_bytes, stats.allocated_bytes, "pending_bytes", "active_bytes");
	stats.num_alloc_retries = from["num_alloc_retries"];
	stats.num_ooms = from["num_ooms"];
	stats.num_device_alloc = from["num_device_alloc"];
	stats.num_device_free = from["num_device_free"];
	stats.max_split_size = std::numeric_limits<int64_t>::max();
	return stats;
}

/* What reset_accumulated_memory_stats() sets to 0, as it was then. */
void subtract(DeviceStats &stats, const DeviceStats &base)
{
	using array = StatArray DeviceStats::*;
	for (array member : {&DeviceStats::allocation, &DeviceStats::segment, &DeviceStats::active,
	                     &DeviceStats::allocated_bytes, &DeviceStats::reserved_bytes,
	                     &DeviceStats::active_bytes, &DeviceStats::requested_bytes})
		for (size_t i = 0; i < (stats.*member).size(); i++) {
			(stats.*member)[i].allocated -= (base.*member)[i].allocated;
			(stats.*member)[i].freed -= (base.*member)[i].freed;
		}
	stats.num_alloc_retries -= base.num_alloc_retries;
	stats.num_ooms -= base.num_ooms;
	stats.num_sync_all_streams -= base.num_sync_all_streams;
	set_rejections(stats, rejections_of(stats) - rejections_of(base));
	stats.num_device_alloc -= base.num_device_alloc;
	stats.num_device_free -= base.num_device_free;
}

void add(DeviceStats &stats, const DeviceStats &other)
{
	using array = StatArray DeviceStats::*;
	for (array member : {&DeviceStats::allocation, &DeviceStats::segment, &DeviceStats::active,
	                     &DeviceStats::allocated_bytes, &DeviceStats::reserved_bytes,
	                     &DeviceStats::active_bytes, &DeviceStats::requested_bytes})
		for (size_t i = 0; i < (stats.*member).size(); i++) {
			(stats.*member)[i].current += (other.*member)[i].current;
			(stats.*member)[i].peak += (other.*member)[i].peak;
			(stats.*member)[i].allocated += (other.*member)[i].allocated;
			(stats.*member)[i].freed += (other.*member)[i].freed;
		}
	stats.num_device_alloc += other.num_device_alloc;
	stats.num_device_free += other.num_device_free;
	add_pools_of(stats, other);
}

/* ---- history ---------------------------------------------------------------------------------------------------- */

/* What PyTorch wants to know of an operation besides what the heap's history has. The events that the operation notes
 * there have the note's number, where others have that of a stack. */
struct Note {
	std::shared_ptr<c10::GatheredContext> context;
	std::string compile_context, user_metadata;
};

thread_local std::vector<std::string> compile_contexts;
thread_local std::string user_metadata;

/* The number of the note of the operation that the thread is inside; 0: it has none. */
thread_local uint64_t noted;

/* How often the thread is inside an operation that holds the gate: what it is told meanwhile may allocate and free. */
thread_local unsigned together;

/* While PyTorch records, each allocation and free is made under a shared hold of `gate`, which a snapshot holds alone:
 * what is live then has its context. */
class History {
public:
	std::atomic<bool> on{false};
	std::shared_mutex gate;

	void set(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear,
	         const std::vector<std::string> &skip)
	{
		std::unique_lock<std::shared_mutex> alone(gate);
		entries_ = std::min<size_t>(std::max<size_t>(entries, 1), MOST_EVENTS);
		recorder_ = enabled ? recorder : nullptr;
		when_ = enabled ? when : RecordContext::NEVER;
		skip_ = {skip.begin(), skip.end()};
		if (!enabled || clear || !on) {
			forget();
			for (trz_heap *heap : heaps_)
				if (heap)
					record(heap, enabled);
		}
		on = enabled;
	}

	/* A heap that has just been opened, perhaps by a tracker inside an operation: nobody else holds the gate alone then,
	 * and whoever opens heaps does so one at a time. */
	void join(int device, trz_heap *heap)
	{
		std::unique_lock<std::shared_mutex> alone(gate, std::defer_lock);
		if (!together)
			alone.lock();
		heaps_[device] = heap;
		if (on)
			record(heap, true);
	}

	/* Takes the interpreter's lock, whose holder may be waiting for the gate: to be called before that is held. */
	std::shared_ptr<c10::GatheredContext> gather(RecordContext least) const
	{
		CreateContextFn recorder = recorder_;  /* another thread may end the recording */
		return recorder && when_ >= least && !together ? recorder() : nullptr;
	}

	/* The number of a new note of the calling thread's. */
	uint64_t note(std::shared_ptr<c10::GatheredContext> context)
	{
		if (when_ < RecordContext::ALLOC)
			context = nullptr;
		std::lock_guard<std::mutex> guard(lock_);
		notes_.push_back({std::move(context), compile_contexts.empty() ? "N/A" : compile_contexts.back(),
		                  user_metadata});
		if (notes_.size() > 2 * entries_) {
			notes_.pop_front();
			first_++;
		}
		return first_ + notes_.size() - 1;
	}

	/* Forgets the note of an operation that came to nothing, unless there are newer ones: else those who often ask in vain
	 * would push out the notes of events. */
	void drop(uint64_t number)
	{
		std::lock_guard<std::mutex> guard(lock_);
		if (number + 1 == first_ + notes_.size())
			notes_.pop_back();
	}

	/* Keeps the context of an allocation while it lives. */
	void hold(uint64_t address, std::shared_ptr<c10::GatheredContext> context)
	{
		if (!context)
			return;
		std::lock_guard<std::mutex> guard(lock_);
		held_[address] = std::move(context);
	}

	/* An allocation's life ends: its context. */
	std::shared_ptr<c10::GatheredContext> let_go(uint64_t address)
	{
		std::lock_guard<std::mutex> guard(lock_);
		auto found = held_.extract(address);
		return found ? std::move(found.mapped()) : nullptr;
	}

	void annotate(TraceEntry entry)
	{
		std::lock_guard<std::mutex> guard(lock_);
		annotations_.push_back(std::move(entry));
	}

	void annotate_section(DeviceIndex device, const std::vector<std::pair<std::string, std::string>> &metadata)
	{
		AnnotationEntry entry(device, 0);
		entry.time_.t_ = now_us();
		for (const auto &[name, value] : metadata)
			entry.recordUserMetadata(name, value);
		std::lock_guard<std::mutex> guard(lock_);
		sections_.push_back(std::move(entry));
	}

	std::shared_ptr<c10::GatheredContext> held(uint64_t address)
	{
		std::lock_guard<std::mutex> guard(lock_);
		auto found = held_.find(address);
		return found == held_.end() ? nullptr : found->second;
	}

	bool skips(const std::string &action) const
	{
		return skip_.count(action) != 0;
	}

	const std::vector<AnnotationEntry> &sections() const
	{
		return sections_;
	}

	/* Gives an entry the note of a number, if there is one. */
	void complete(TraceEntry &entry, uint64_t number)
	{
		std::lock_guard<std::mutex> guard(lock_);
		if (number < first_ || number - first_ >= notes_.size())
			return;
		const Note &n = notes_[number - first_];
		entry.context_ = n.context;
		set_note(entry, n.compile_context, n.user_metadata);
	}

	/* Adds a device's annotations to its entries. */
	void add_annotations(std::vector<TraceEntry> &entries, DeviceIndex device);

	static time_t now_us()
	{
		using namespace std::chrono;
		return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
	}

private:
	/* PyTorch's default is unlimited; the heap's ring is made at once (48 bytes an event, touched when used). */
	static constexpr size_t MOST_EVENTS = size_t{1} << 22;

	/* No interpreter's and no native stack has such a number. */
	static constexpr uint64_t FIRST = uint64_t{1} << 63;

	/* The heap's stacks are PyTorch's meanwhile: a callback that was set before has to be set again. */
	void record(trz_heap *heap, bool enabled) const
	{
		check(trz_history_stop(heap));
		check(trz_set_frame_callback(heap, enabled ? name_note : nullptr, nullptr, nullptr));
		if (enabled)
			check(trz_history_start(heap, entries_));
	}

	static uint64_t name_note(void *)
	{
		return noted;
	}

	void forget()
	{
		std::lock_guard<std::mutex> guard(lock_);
		first_ += notes_.size();
		notes_.clear();
		held_.clear();
		annotations_.clear();
		sections_.clear();
	}

	trz_heap *heaps_[TRZ_TORCH_DEVICES] = {};
	size_t entries_ = 1;
	std::atomic<CreateContextFn> recorder_{nullptr};
	std::atomic<RecordContext> when_{RecordContext::NEVER};
	std::unordered_set<std::string> skip_;

	std::mutex lock_;
	std::deque<Note> notes_;
	uint64_t first_ = FIRST;  /* the number of the oldest of them */
	std::unordered_map<uint64_t, std::shared_ptr<c10::GatheredContext>> held_;
	std::vector<TraceEntry> annotations_;
	std::vector<AnnotationEntry> sections_;
};

void History::add_annotations(std::vector<TraceEntry> &entries, DeviceIndex device)
{
	std::lock_guard<std::mutex> guard(lock_);
	for (const TraceEntry &a : annotations_)
		if (a.device_ == device)
			entries.push_back(a);
	std::stable_sort(entries.begin(), entries.end(),
	                 [](const TraceEntry &a, const TraceEntry &b) { return a.time_.t_ < b.time_.t_; });
}

History &history()
{
	static History *h = new History;
	return *h;
}

/* A shared hold of the gate, once for operations inside others. */
class Together {
public:
	Together()
	{
		if (together++ == 0)
			history().gate.lock_shared();
	}
	~Together()
	{
		if (--together == 0)
			history().gate.unlock_shared();
	}
	Together(const Together &) = delete;
};

/* What the thread's operation notes in the history of a heap has this note. */
class Noted {
public:
	explicit Noted(std::shared_ptr<c10::GatheredContext> context)
		: number(history().note(std::move(context))), outer_(std::exchange(noted, number))
	{
	}
	~Noted()
	{
		noted = outer_;
	}
	Noted(const Noted &) = delete;

	const uint64_t number;

private:
	const uint64_t outer_;
};

/* trz_trim of a heap, or, without one, trz_torch_trim; bytes that went. */
size_t trim_noted(trz_heap *heap, size_t keep, std::shared_ptr<c10::GatheredContext> context)
{
	auto trim = [=] {
		size_t released = 0;
		if (!heap)
			return trz_torch_trim(keep);
		trz_trim(heap, keep, &released);
		return released;
	};
	if (!history().on || in_child())
		return trim();
	Noted note(std::move(context));
	size_t released = trim();
	if (!released)
		history().drop(note.number);
	return released;
}

/* ---- snapshots -------------------------------------------------------------------------------------------------- */

/* Turns what trz_walk tells of one heap into PyTorch's structures. */
struct Walk {
	DeviceIndex device;
	MempoolId_t wanted;
	bool all;
	std::vector<SegmentInfo> segments;
	std::vector<TraceEntry> entries;
	bool in_segment = false;
	/* By address: the note of the newest free, and for what the newest mapping was made. */
	std::unordered_map<uint64_t, uint64_t> freed;
	std::unordered_map<uint64_t, std::shared_ptr<c10::GatheredContext>> mapped;

	MempoolId_t id_of(unsigned number) const
	{
		return number ? pool_id(trz_torch_pool_by_number(device, number)) : MempoolId_t{0, 0};
	}

	void segment(const trz_segment_info &s)
	{
		MempoolId_t id = id_of(s.pool);
		in_segment = all || id == wanted;
		if (!in_segment)
			return;
		SegmentInfo info;
		info.device = device;
		info.address = s.address;
		info.total_size = s.size;
		info.is_large = !s.small;
		info.is_expandable = s.expandable;
		info.owner_private_pool_id = id;
		segments.push_back(std::move(info));
	}

	void block(const trz_block_info &b)
	{
		if (!in_segment)
			return;
		auto &s = segments.back();
		BlockInfo info;
		info.size = b.size;
		info.requested_size = b.requested;
		info.allocated = b.state == TRZ_BLOCK_HELD;
		info.active = b.state != TRZ_BLOCK_FREE;
		if (info.active)
			info.context_when_allocated = history().held(b.address);
		/* A slot is longer than what is counted as allocated. */
		size_t counted = info.allocated ? (b.requested + 511) / 512 * 512 : b.size;
		s.requested_size += info.active ? b.requested : 0;
		s.allocated_size += info.allocated ? counted : 0;
		s.active_size += info.active ? counted : 0;
		s.blocks.push_back(std::move(info));
	}

	/* A free that has completed tells of the free, and memory that went of its mapping, where nothing newer is known. */
	void add_note(TraceEntry &entry, const trz_event_info &e)
	{
		uint64_t number = e.frames;
		if (entry.action_ == TraceEntry::FREE_REQUESTED)
			freed[e.address] = number;
		else if (auto found = freed.find(e.address); entry.action_ == TraceEntry::FREE_COMPLETED && found != freed.end())
			number = found->second;
		set_note(entry, "N/A", e.tag);
		history().complete(entry, number);
		if (entry.action_ == TraceEntry::SEGMENT_MAP || entry.action_ == TraceEntry::SEGMENT_ALLOC)
			mapped[e.address] = entry.context_;
		else if (entry.action_ == TraceEntry::SEGMENT_UNMAP || entry.action_ == TraceEntry::SEGMENT_FREE)
			if (!entry.context_)
				entry.context_ = mapped[e.address];
	}

	void event(const trz_event_info &e)
	{
		TraceEntry entry = trace_entry(parseTraceEntryAction(e.action), device, e.address, e.size, e.stream,
		                               id_of(e.pool));
		add_note(entry, e);
		entry.time_.t_ = static_cast<time_t>(e.time_ns / 1000);
		if (!history().skips(e.action))
			entries.push_back(std::move(entry));
	}

	void run(trz_heap *heap, bool traces)
	{
		trz_visitor v = {};
		v.user = this;
		v.segment = [](void *user, const trz_segment_info *s) { static_cast<Walk *>(user)->segment(*s); };
		v.block = [](void *user, const trz_block_info *b) { static_cast<Walk *>(user)->block(*b); };
		if (traces)
			v.event = [](void *user, const trz_event_info *e) { static_cast<Walk *>(user)->event(*e); };
		check(trz_walk(heap, &v));
	}
};

/* ---- mappings --------------------------------------------------------------------------------------------------- */

/* While the thread is told of all that a heap has mapped. */
thread_local bool learning;

/* The stream of the allocation that the thread is making: what is mapped meanwhile is mapped for it. */
thread_local cudaStream_t allocating;

/* What a tracker threw meanwhile: the heap tells it, and an exception must not pass through that. */
thread_local std::exception_ptr thrown;

/* What trackers threw first while `call` called the heap; inside a tracker that is another operation's. */
template <typename Call>
std::exception_ptr thrown_in(Call call)
{
	std::exception_ptr outer = std::exchange(thrown, nullptr);
	call();
	return std::exchange(thrown, outer);
}

/* A mapping, as trackers are told of it when it comes and when it goes. */
struct Mapping {
	DeviceIndex device;
	size_t size;
	cudaStream_t stream;
	MempoolId_t pool;
	bool expandable;

	TraceEntry entry(uint64_t address, bool comes) const
	{
		TraceEntry::Action action = expandable ? comes ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP
		                                       : comes ? TraceEntry::SEGMENT_ALLOC : TraceEntry::SEGMENT_FREE;
		return trace_entry(action, device, address, size, stream, pool, c10::getApproximateTime());
	}
};

/* All mappings, while there are trackers. */
class Mappings {
public:
	/* False: it is none of the heap's own, or the heap does not know it. */
	bool add(DeviceIndex device, uint64_t address, Mapping *out)
	{
		trz_segment_info info;
		if (trz_query_mapping(heap_of(device), reinterpret_cast<void *>(address), &info) != TRZ_OK)
			return false;
		MempoolId_t pool = info.pool ? pool_id(trz_torch_pool_by_number(device, info.pool)) : MempoolId_t{0, 0};
		*out = {device, static_cast<size_t>(info.size), allocating, pool, info.expandable};
		std::lock_guard<std::mutex> guard(lock_);
		all_[address] = *out;
		return true;
	}

	bool remove(uint64_t address, Mapping *out)
	{
		std::lock_guard<std::mutex> guard(lock_);
		auto found = all_.find(address);
		if (found == all_.end())
			return false;
		*out = found->second;
		all_.erase(found);
		return true;
	}

	/* The pool of the memory at an address. */
	MempoolId_t pool_at(uint64_t address)
	{
		std::lock_guard<std::mutex> guard(lock_);
		auto after = all_.upper_bound(address);
		return after == all_.begin() ? MempoolId_t{0, 0} : std::prev(after)->second.pool;
	}

private:
	std::mutex lock_;
	std::map<uint64_t, Mapping> all_;
};

Mappings &mappings()
{
	static Mappings *m = new Mappings;
	return *m;
}

/* ---- the allocator ---------------------------------------------------------------------------------------------- */

struct Checkpoint : cca::AllocatorState {
	Checkpoint(DeviceIndex on, MempoolId_t of, trz_pool_state *kept) : device(on), id(of), state(kept)
	{
	}
	~Checkpoint() override
	{
		trz_pool_state_free(state);
	}
	DeviceIndex device;
	MempoolId_t id;
	trz_pool_state *state;
};

/* What is asked of the allocator; without an address it decides where. */
struct Wanted {
	size_t size;
	DeviceIndex device;
	cudaStream_t stream;
	void *address;
};

/* What serves a pool: the heap, the heap with a tile for each allocation, or the native allocator. */
enum class Server { HEAP, HEAP_ALONE, NATIVE };

/* A diversion to a pool; the heap knows of those to its own only. */
struct Diversion {
	int device;
	MempoolId_t id;
	Server server;
	std::thread::id thread;
	std::function<bool(cudaStream_t)> filter;
};

#include "shim_source.hpp"

class Allocator final : public Newest {
public:
	explicit Allocator(cca::CUDAAllocator *native) : Newest(no_alloc, no_free), native_(native)
	{
		initialized_ = true;
	}

	/* -- allocation -- */

	c10::DataPtr allocate(size_t size) override
	{
		DeviceIndex device = c10::cuda::current_device();
		void *ptr = alloc(size, device, c10::cuda::getCurrentCUDAStream(device).stream());
		return {ptr, ptr, &free_any, c10::Device(c10::DeviceType::CUDA, device)};
	}

	/* Of the newest PyTorch only: there it is virtual. */
	c10::DataPtr allocateWithAddress(size_t size, void *address)
	{
		DeviceIndex device = c10::cuda::current_device();
		cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
		if (server_for(device, stream) == Server::NATIVE)
			return allocate_with_address(*native_, size, address);
		void *ptr = alloc_watched({size, device, stream, address});
		return {ptr, ptr, &free_any, c10::Device(c10::DeviceType::CUDA, device)};
	}

	c10::DeleterFnPtr raw_deleter() const override
	{
		return &free_any;
	}

	void *raw_alloc(size_t size) override
	{
		DeviceIndex device = c10::cuda::current_device();
		return alloc(size, device, c10::cuda::getCurrentCUDAStream(device).stream());
	}

	void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override
	{
		return alloc(size, c10::cuda::current_device(), stream);
	}

	void raw_delete(void *ptr) override
	{
		free_any(ptr);
	}

	void init(int device_count) override
	{
		device_count_ = device_count;
		trz_torch_init(device_count);
	}

	/* From now on PyTorch allocates here; before, changing to it is possible. */
	void take_over()
	{
		installed = this;
		trz_torch_on_open(opened);
		c10::SetAllocator(c10::DeviceType::CUDA, this, 255);
	}

	void recordStream(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream) override
	{
		if (!ptr.get())
			return;
		if (trz_torch_owner(ptr.get()))
			trz_torch_record_stream(ptr.get(), stream.stream());
		else if (native_used_)
			native_->recordStream(ptr, stream);
	}

	void *getBaseAllocation(void *ptr, size_t *size) override
	{
		return trz_torch_base_alloc(ptr, size);
	}

	/* -- limits, cache, statistics -- */

	double getMemoryFraction(DeviceIndex device) override
	{
		return trz_torch_get_fraction(device);
	}

	void setMemoryFraction(double fraction, DeviceIndex device) override
	{
		check(trz_torch_set_fraction(device, fraction));
	}

	void emptyCache(MempoolId_t id) override
	{
		/* PyTorch names a pool when it drops it: what that had free is the heap's by then, and stays there. */
		std::exception_ptr failure;
		if (id == MempoolId_t{0, 0})
			failure = thrown_in([] { trim_noted(nullptr, 0, history().gather(RecordContext::ALL)); });
		if (native_used_)
			empty_cache(*native_, id);
		if (failure)
			std::rethrow_exception(failure);
	}

	void cacheInfo(DeviceIndex device, size_t *largest) override
	{
		check(trz_largest_block(heap_of(device), c10::cuda::getCurrentCUDAStream(device).stream(), largest));
	}

	std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override
	{
		std::vector<StreamSegmentSize> sizes;
		for (const auto &s : walk(device, {0, 0}, true, false).segments)
			if (s.is_expandable)
				sizes.emplace_back(nullptr, !s.is_large, s.total_size);
		return sizes;
	}

	DeviceStats getDeviceStats(DeviceIndex device) override;
	void resetAccumulatedStats(DeviceIndex device) override;
	void resetPeakStats(DeviceIndex device) override;

	/* Off, what is freed goes back to the device as soon as its work has completed. */
	void enable(bool value) override
	{
		watch(WATCH_UNCACHED, !value);
	}

	bool isEnabled() const override
	{
		return !(watched_ & WATCH_UNCACHED);
	}

	/* -- history and snapshots -- */

	cca::SnapshotInfo snapshot(MempoolId_t id, bool include_traces) override;

	/* Older PyTorch does not tell of captures. */
	void markCaptureBegin(DeviceIndex)
	{
		captures_++;
	}

	void markCaptureEnd(DeviceIndex)
	{
		captures_--;
	}

	void recordHistory(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear,
	                   const std::vector<std::string> &skip_actions) override
	{
		history().set(enabled, recorder, entries, when, clear, skip_actions);
		watch(WATCH_HISTORY, enabled);
		if (native_used_)
			record_history(*native_, enabled, recorder, entries, when, clear, skip_actions);
	}

	bool isHistoryEnabled() override
	{
		return history().on;
	}

	std::shared_ptr<c10::GatheredContext> getContextForPointer(const void *ptr) override
	{
		return history().held(reinterpret_cast<uint64_t>(ptr));
	}

	void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata) override
	{
		if (history().on)
			history().annotate_section(c10::cuda::current_device(), metadata);
	}

	void pushCompileContext(std::string &metadata) override
	{
		compile_contexts.push_back(metadata);
	}

	void popCompileContext() override
	{
		if (!compile_contexts.empty())
			compile_contexts.pop_back();
	}

	bool supportsUserMetadata() override
	{
		return true;
	}

	void setUserMetadata(const std::string &metadata) override
	{
		user_metadata = metadata;
	}

	std::string getUserMetadata() override
	{
		return user_metadata;
	}

	void annotateMemory(const void *ptr, const std::string &metadata) override;

	void attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer) override
	{
		if (native_used_)
			native_->attachOutOfMemoryObserver(observer);
		std::lock_guard<std::mutex> guard(lock_);
		observers_.push_back(std::move(observer));
	}

	void attachOomRejectionObserver(OomRejectionObserver observer) override
	{
		std::lock_guard<std::mutex> guard(lock_);
		rejection_observers_.push_back(std::move(observer));
	}

	void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;

	/* -- pools -- */

	void createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<cca::CUDAAllocator> allocator) override;
	void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use) override;
	void setNoSplit(DeviceIndex device, MempoolId_t id) override;
	int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
	void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override;
	void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
	void releasePool(DeviceIndex device, MempoolId_t id) override;

	bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
	                              const std::unordered_set<void *> &expected) override;
	std::shared_ptr<cca::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
	cca::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<cca::AllocatorState> state) override;

	/* -- several devices and processes -- */

	cca::ShareableHandle shareIpcHandle(void *ptr) override;
	std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

	/* From now on `device` may use memory of `owner`. */
	void enablePeerAccess(DeviceIndex device, DeviceIndex owner) override
	{
		CUDAPluggableAllocator::enablePeerAccess(device, owner);
		trz_status status = trz_enable_peer(heap_of(owner), device, true);
		TORCH_CHECK(status == TRZ_OK || status == TRZ_ERROR_NOT_SUPPORTED, "terrazzo: ", trz_last_error());
	}

	cudaError_t memcpyAsync(void *dst, int dst_device, const void *src, int src_device, size_t count,
	                        cudaStream_t stream, bool p2p_enabled) override
	{
		/* Without peer access memory has no mapping on other devices. */
		if (dst_device == src_device || p2p_enabled)
			return cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, stream);
		return cudaMemcpyPeerAsync(dst, dst_device, src, src_device, count, stream);
	}

	std::string name() override
	{
		return "terrazzo";
	}

private:
	/* What makes an operation take the long way. */
	enum { WATCH_HISTORY = 1, WATCH_TRACKERS = 2, WATCH_POOLS = 4, WATCH_UNCACHED = 8 };

	void watch(unsigned what, bool on)
	{
		if (on)
			watched_ |= what;
		else
			watched_ &= ~what;
	}

	/* The device of the thread's newest allocation: where a free is tried first. */
	static int &hint()
	{
		static thread_local int device;
		return device;
	}

	void *alloc(size_t size, DeviceIndex device, cudaStream_t stream)
	{
		void *ptr = nullptr;
		hint() = device;
		if (C10_UNLIKELY(watched_ || c10::memoryProfilingEnabled()))
			return alloc_watched({size, device, stream, nullptr});
		trz_status status = trz_torch_try_alloc(size, device, stream, &ptr);
		if (C10_UNLIKELY(status != TRZ_OK))
			refuse(status, size, device);
		const c10::impl::PyInterpreter *tracer = c10::impl::GPUTrace::get_trace();
		if (C10_UNLIKELY(tracer != nullptr))
			(*tracer)->trace_gpu_memory_allocation(c10::DeviceType::CUDA, reinterpret_cast<uintptr_t>(ptr));
		return ptr;
	}

	static void free_any(void *ptr);
	static bool collect(void *, const trz_oom_info *);
	static void opened(int device, trz_heap *heap);
	static void watch_mappings(int device, trz_heap *heap);
	static void mapping_changed(void *device, trz_map_event event, void *address, size_t size);

	void *alloc_watched(const Wanted &wanted);
	trz_status alloc_noted(const Wanted &wanted, bool alone, void **ptr);
	void free_noted(void *ptr, DeviceIndex device);
	void free_watched(void *ptr);
	void tell_profiler(void *ptr, int64_t size, DeviceIndex device);
	void tell_trackers(TraceEntry::Action action, DeviceIndex device, void *ptr, size_t size, cudaStream_t stream);
	void tell_trackers(const TraceEntry &entry);
	[[noreturn]] void reject(size_t size, DeviceIndex device, const trz_oom_info &info, const std::string &text);
	[[noreturn]] void refuse(trz_status status, size_t size, DeviceIndex device);

	cca::CUDAAllocator *use_native_locked();

	cca::CUDAAllocator *native()
	{
		std::lock_guard<std::mutex> guard(lock_);
		return use_native_locked();
	}

	Server server_of(int device, MempoolId_t id);
	Server server_for(int device, cudaStream_t stream);
	bool is_native(int device, MempoolId_t id)
	{
		return server_of(device, id) == Server::NATIVE;
	}
	void hand_over(DeviceIndex device, MempoolId_t id);
	bool may_wait();
	bool make_room(DeviceIndex device);
	bool empty_native();
	void *keep_native(void *ptr, DeviceIndex device);
	void *lend(size_t size, DeviceIndex device, cudaStream_t stream);
	void *lend(MempoolId_t id, size_t size, DeviceIndex device, cudaStream_t stream);
	Walk walk(DeviceIndex device, MempoolId_t id, bool all, bool traces);
	void add_own_counts(DeviceStats &stats, DeviceIndex device);
	void add_pools(DeviceStats &stats, trz_heap *heap, DeviceIndex device);
	cca::ShareableHandle share_plain(void *ptr, DeviceIndex device);

	static Allocator *installed;
	cca::CUDAAllocator *const native_;
	std::atomic<bool> native_used_{false};
	std::atomic<unsigned> watched_{0};
	std::atomic<int> captures_{0};
	std::atomic<int64_t> waits_{0};  /* of the host for all work of a device */
	int device_count_ = 1;

	/* Of what follows. The native allocator calls a pool's allocator, and with that us, with locks of its own held: it is
	 * not called with this one held. */
	std::mutex lock_;
	std::vector<cca::OutOfMemoryObserver> observers_;
	std::vector<OomRejectionObserver> rejection_observers_;
	std::map<int, int64_t> rejections_, lent_;  /* by device: failures of the heap that are not failures to PyTorch */
	std::vector<AllocatorTraceTracker> trackers_;
	std::map<std::pair<int, MempoolId_t>, Server> servers_;  /* of pools that are not simply the heap's */
	std::set<std::pair<int, MempoolId_t>> lenders_;  /* native pools whose free memory others may have */
	std::vector<Diversion> diversions_;  /* the newest last */
	std::map<int, DeviceStats> bases_;
	std::map<int, std::map<MempoolId_t, StatArray::value_type>> pool_flows_;
	std::unordered_map<void *, DeviceIndex> native_pointers_;
	std::vector<std::shared_ptr<cca::CUDAAllocator>> borrowed_;  /* by the native allocator of older PyTorch */
};

Allocator *Allocator::installed;

/* -- allocation -- */

/* What PyTorch's own allocator calls when memory is lacking, to collect what it holds back itself. */
bool Allocator::collect(void *, const trz_oom_info *)
{
	bool freed = false;
	try {
		for (const auto &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
			freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
		freed |= installed->empty_native();
	} catch (const std::exception &e) {
		TORCH_WARN("terrazzo: memory that PyTorch holds back was not collected: ", e.what());
	}
	return freed;
}

/* Whoever opens the heap holds a lock, and serves without a history rather than not at all. */
void Allocator::opened(int device, trz_heap *heap)
{
	try {
		check(trz_set_oom_callback(heap, collect, nullptr));
		if (installed->watched_ & WATCH_TRACKERS)
			watch_mappings(device, heap);
		history().join(device, heap);
	} catch (const std::exception &e) {
		TORCH_WARN("terrazzo: no history is kept of device ", device, ": ", e.what());
	}
}

/* By the option throw_on_cudamalloc_oom: the limit alone has refused it, and that is counted as something else. */
void Allocator::reject(size_t size, DeviceIndex device, const trz_oom_info &info, const std::string &text)
{
	std::vector<OomRejectionObserver> observers;
	{
		std::lock_guard<std::mutex> guard(lock_);
		rejections_[device]++;
		observers = rejection_observers_;
	}
	for (const auto &observer : observers)
		observer(device, size, info.allocated, info.device_total);
	TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. ", text);
}

void Allocator::refuse(trz_status status, size_t size, DeviceIndex device)
{
	TORCH_CHECK(trz_torch_is_want_of_memory(status), "terrazzo: ", trz_torch_last_error());
	std::string text = trz_torch_oom_text(device, size);
	trz_heap *heap = heap_of(device);
	Statistics now(heap);
	trz_oom_info info = {};
	trz_last_oom(heap, &info);
	if (status == TRZ_ERROR_LIMIT && rejects_at_limit())
		reject(size, device, info, text);
	c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), now["allocated_bytes.all.current"],
	                                 now["reserved_bytes.all.current"], c10::Device(c10::DeviceType::CUDA, device));
	std::vector<cca::OutOfMemoryObserver> observers;
	{
		std::lock_guard<std::mutex> guard(lock_);
		observers = observers_;
	}
	for (const auto &observer : observers)
		observer(device, size, info.limit ? info.limit : info.device_total, info.device_free);
	/* PyTorch's users and their programs look for the first words. */
	TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. ", text);
}

trz_status try_alloc(const Wanted &wanted, bool alone, void **ptr)
{
	if (wanted.address)
		return trz_torch_try_alloc_at(wanted.size, wanted.device, wanted.stream, wanted.address, ptr);
	return alone ? trz_torch_try_alloc_alone(wanted.size, wanted.device, wanted.stream, ptr)
	             : trz_torch_try_alloc(wanted.size, wanted.device, wanted.stream, ptr);
}

trz_status Allocator::alloc_noted(const Wanted &wanted, bool alone, void **ptr)
{
	if (!history().on)
		return try_alloc(wanted, alone, ptr);
	heap_of(wanted.device);  /* so that its history begins before its first note */
	auto context = history().gather(RecordContext::STATE);
	Together hold;
	Noted note(context);
	trz_status status = try_alloc(wanted, alone, ptr);
	if (status == TRZ_OK && *ptr)
		history().hold(reinterpret_cast<uint64_t>(*ptr), std::move(context));
	return status;
}

void *Allocator::alloc_watched(const Wanted &wanted)
{
	auto [size, device, stream, address] = wanted;
	void *ptr = nullptr;
	Server server = watched_ & WATCH_POOLS ? server_for(device, stream) : Server::HEAP;
	if (server == Server::NATIVE) {
		c10::cuda::CUDAGuard guard(device);
		return keep_native(native_->raw_alloc_with_stream(size, stream), device);
	}
	cudaStream_t outer = std::exchange(allocating, stream);  /* trackers may allocate */
	trz_status status = TRZ_OK;
	std::exception_ptr failure = thrown_in([&] {
		status = alloc_noted(wanted, server == Server::HEAP_ALONE, &ptr);
	});
	allocating = outer;
	/* The words of PyTorch's allocator, which programs may look for. */
	TORCH_CHECK(status == TRZ_OK || !address, "Could not allocate CUDA storage at exact address ", address,
	            ": terrazzo: ", trz_torch_last_error());
	if (trz_torch_is_want_of_memory(status))
		if (void *lent = lend(size, device, stream))
			return lent;
	if (status != TRZ_OK)
		refuse(status, size, device);
	if (failure) {
		free_noted(ptr, device);
		std::rethrow_exception(failure);
	}
	tell_profiler(ptr, static_cast<int64_t>(size), device);
	tell_trackers(TraceEntry::ALLOC, device, ptr, size, stream);
	return ptr;
}

void Allocator::free_any(void *ptr)
{
	if (!ptr)
		return;
	const c10::impl::PyInterpreter *tracer = c10::impl::GPUTrace::get_trace();
	if (C10_UNLIKELY(tracer != nullptr))
		(*tracer)->trace_gpu_memory_deallocation(c10::DeviceType::CUDA, reinterpret_cast<uintptr_t>(ptr));
	if (C10_UNLIKELY(installed->watched_ || c10::memoryProfilingEnabled()))
		installed->free_watched(ptr);
	else
		trz_torch_free(ptr, 0, hint(), nullptr);
}

void Allocator::free_noted(void *ptr, DeviceIndex device)
{
	if (!history().on) {
		trz_torch_free(ptr, 0, device, nullptr);
		return;
	}
	auto context = history().gather(RecordContext::ALL);
	Together hold;
	auto made = history().let_go(reinterpret_cast<uint64_t>(ptr));
	Noted note(context ? std::move(context) : std::move(made));
	trz_torch_free(ptr, 0, device, nullptr);
}

void Allocator::free_watched(void *ptr)
{
	if (in_child())
		return;
	if (native_used_) {
		std::unique_lock<std::mutex> held(lock_);
		if (native_pointers_.erase(ptr)) {
			held.unlock();
			native_->raw_delete(ptr);
			return;
		}
	}
	trz_pointer_info info = {};
	trz_heap *owner = trz_torch_owner(ptr);
	if (owner)
		trz_query(owner, ptr, &info);
	auto device = static_cast<DeviceIndex>(info.device);
	if (owner)
		tell_trackers(TraceEntry::FREE_REQUESTED, device, ptr, info.requested, static_cast<cudaStream_t>(info.stream));
	free_noted(ptr, device);
	tell_profiler(ptr, -static_cast<int64_t>(info.requested), device);
	if (!isEnabled())
		trim_noted(nullptr, 0, history().gather(RecordContext::ALL));
}

void Allocator::tell_profiler(void *ptr, int64_t size, DeviceIndex device)
{
	if (!ptr || !c10::memoryProfilingEnabled())
		return;
	Statistics now(heap_of(device));
	c10::reportMemoryUsageToProfiler(ptr, size, now["allocated_bytes.all.current"], now["reserved_bytes.all.current"],
	                                 c10::Device(c10::DeviceType::CUDA, device));
}

/* -- trackers -- */

void Allocator::tell_trackers(const TraceEntry &entry)
{
	std::vector<AllocatorTraceTracker> trackers;
	{
		std::lock_guard<std::mutex> guard(lock_);
		trackers = trackers_;
	}
	for (const auto &tracker : trackers)
		tracker(entry);
}

void Allocator::tell_trackers(TraceEntry::Action action, DeviceIndex device, void *ptr, size_t size,
                              cudaStream_t stream)
{
	auto address = reinterpret_cast<uint64_t>(ptr);
	if ((watched_ & WATCH_TRACKERS) && ptr)
		tell_trackers(trace_entry(action, device, address, size, stream, mappings().pool_at(address),
		                          c10::getApproximateTime()));
}

/* The heap tells it with no lock held, after memory has been mapped and before it is unmapped. */
void Allocator::mapping_changed(void *device, trz_map_event event, void *address, size_t)
{
	auto at = reinterpret_cast<uint64_t>(address);
	bool comes = event == TRZ_MAP;
	Mapping mapping;
	try {
		if (comes ? mappings().add(static_cast<DeviceIndex>(reinterpret_cast<intptr_t>(device)), at, &mapping)
		          : mappings().remove(at, &mapping))
			if (!learning)
				installed->tell_trackers(mapping.entry(at, comes));
	} catch (...) {
		thrown = thrown ? thrown : std::current_exception();
	}
}

/* What is mapped already is learnt, and not told: PyTorch's users take a snapshot for that. */
void Allocator::watch_mappings(int device, trz_heap *heap)
{
	learning = true;
	trz_status status = trz_set_map_callback(heap, mapping_changed, reinterpret_cast<void *>(intptr_t{device}));
	learning = false;
	check(status);
}

void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker)
{
	if (native_used_)
		native_->attachAllocatorTraceTracker(tracker);
	std::unique_lock<std::mutex> guard(lock_);
	bool first = trackers_.empty();
	trackers_.push_back(std::move(tracker));
	watch(WATCH_TRACKERS, true);
	guard.unlock();
	for (int device = 0; first && device < TRZ_TORCH_DEVICES; device++) {
		trz_heap *heap;
		check(trz_torch_heap(device, false, &heap));
		if (heap)
			watch_mappings(device, heap);
	}
}

/* -- statistics -- */

DeviceStats Allocator::getDeviceStats(DeviceIndex device)
{
	trz_heap *heap;
	check(trz_torch_heap(device, false, &heap));
	DeviceStats stats = heap ? read_stats(Statistics(heap)) : DeviceStats();
	std::unique_lock<std::mutex> guard(lock_);
	add_own_counts(stats, device);
	auto base = bases_.find(device);
	if (base != bases_.end())
		subtract(stats, base->second);
	guard.unlock();
	if (heap)
		add_pools(stats, heap, device);
	if (native_used_)
		add(stats, native_->getDeviceStats(device));
	return stats;
}

/* What the heap does not count. lock_ is held. */
void Allocator::add_own_counts(DeviceStats &stats, DeviceIndex device)
{
	stats.num_ooms -= rejections_[device] + lent_[device];
	set_rejections(stats, rejections_[device]);
	stats.num_sync_all_streams = waits_;
}

/* What the readers of statistics have seen of pools, those that have ended too: the heap keeps no more. */
void Allocator::add_pools(DeviceStats &stats, trz_heap *heap, DeviceIndex device)
{
	std::map<MempoolId_t, int64_t> now;
	std::vector<trz_torch_pool_id> ids(trz_torch_pool_list(device, nullptr, 0));
	ids.resize(std::min(ids.size(), trz_torch_pool_list(device, ids.data(), ids.size())));
	for (trz_torch_pool_id id : ids) {
		trz_pool_info info;
		trz_pool *pool = trz_torch_pool_find(device, id);
		if (pool && trz_pool_query(heap, pool, &info) == TRZ_OK)
			now[pool_id(id)] = static_cast<int64_t>(info.reserved);
	}
	std::lock_guard<std::mutex> guard(lock_);
	auto &flows = pool_flows_[device];
	for (const auto &[id, reserved] : now)
		flows.try_emplace(id);
	for (auto &[id, flow] : flows) {
		auto found = now.find(id);
		int64_t change = (found == now.end() ? 0 : found->second) - flow.current;
		if (change > 0)
			flow.increase(static_cast<size_t>(change));
		else if (change < 0)
			flow.decrease(static_cast<size_t>(-change));
		set_pool(stats, id, flow);
	}
}

void Allocator::resetAccumulatedStats(DeviceIndex device)
{
	trz_heap *heap;
	check(trz_torch_heap(device, false, &heap));
	if (native_used_)
		native_->resetAccumulatedStats(device);
	std::lock_guard<std::mutex> guard(lock_);
	if (heap) {
		bases_[device] = read_stats(Statistics(heap));
		add_own_counts(bases_[device], device);
	}
	for (auto &[id, flow] : pool_flows_[device])
		flow.reset_accumulated();
}

void Allocator::resetPeakStats(DeviceIndex device)
{
	trz_heap *heap;
	check(trz_torch_heap(device, false, &heap));
	if (heap)
		check(trz_reset_peaks(heap));
	if (native_used_)
		native_->resetPeakStats(device);
	std::lock_guard<std::mutex> guard(lock_);
	for (auto &[id, flow] : pool_flows_[device])
		flow.reset_peak();
}

/* -- history and snapshots -- */

Walk Allocator::walk(DeviceIndex device, MempoolId_t id, bool all, bool traces)
{
	Walk w = {};
	w.device = device;
	w.wanted = id;
	w.all = all;
	trz_heap *heap;
	check(trz_torch_heap(device, false, &heap));
	if (heap)
		w.run(heap, traces);
	return w;
}

cca::SnapshotInfo Allocator::snapshot(MempoolId_t id, bool include_traces)
{
	cca::SnapshotInfo info;
	bool all = id == MempoolId_t{0, 0};
	std::unique_lock<std::shared_mutex> alone(history().gate);
	info.config_metadata = config_info();
	info.external_annotations = history().sections();
	for (int device = 0; device < device_count_; device++) {
		Walk w = walk(static_cast<DeviceIndex>(device), id, all, include_traces);
		if (include_traces)
			history().add_annotations(w.entries, static_cast<DeviceIndex>(device));
		std::move(w.segments.begin(), w.segments.end(), std::back_inserter(info.segments));
		info.device_traces.push_back(std::move(w.entries));
	}
	if (!native_used_)
		return info;
	cca::SnapshotInfo rest = snapshot_of(*native_, id, include_traces);
	std::move(rest.segments.begin(), rest.segments.end(), std::back_inserter(info.segments));
	std::sort(info.segments.begin(), info.segments.end(),
	          [](const auto &a, const auto &b) { return a.address < b.address; });
	for (size_t i = 0; i < rest.device_traces.size() && i < info.device_traces.size(); i++) {
		auto &to = info.device_traces[i];
		std::move(rest.device_traces[i].begin(), rest.device_traces[i].end(), std::back_inserter(to));
		std::stable_sort(to.begin(), to.end(), [](const auto &a, const auto &b) { return a.time_.t_ < b.time_.t_; });
	}
	return info;
}

void Allocator::annotateMemory(const void *ptr, const std::string &metadata)
{
	trz_pointer_info info;
	trz_heap *owner = trz_torch_owner(ptr);
	if (!history().on)
		return;
	if (!owner && native_used_ && annotate_native(*native_, ptr, metadata))
		return;
	TORCH_CHECK(owner && trz_query(owner, ptr, &info) == TRZ_OK, "annotateMemory: no live allocation at ", ptr);
	TraceEntry entry = trace_entry(annotation<TraceEntry>(0), static_cast<DeviceIndex>(info.device),
	                               reinterpret_cast<size_t>(info.base), info.requested, info.stream, {0, 0});
	set_note(entry, "N/A", metadata);
	entry.time_.t_ = History::now_us();
	history().annotate(std::move(entry));
}

/* -- pools -- */

/* lock_ is held. */
cca::CUDAAllocator *Allocator::use_native_locked()
{
	if (!native_used_) {
		native_->init(device_count_);
		for (const auto &tracker : trackers_)
			native_->attachAllocatorTraceTracker(tracker);
		for (const auto &observer : observers_)
			native_->attachOutOfMemoryObserver(observer);
		native_used_ = true;
	}
	return native_;
}

Server Allocator::server_of(int device, MempoolId_t id)
{
	std::lock_guard<std::mutex> guard(lock_);
	auto found = servers_.find({device, id});
	return found == servers_.end() ? Server::HEAP : found->second;
}

Server Allocator::server_for(int device, cudaStream_t stream)
{
	std::unique_lock<std::mutex> guard(lock_);
	std::vector<Diversion> diversions = diversions_;
	guard.unlock();
	for (auto d = diversions.rbegin(); d != diversions.rend(); ++d)
		if (d->device == device && d->filter(stream))
			return d->server;
	return Server::HEAP;
}

/* Whether the host may wait for the device: not in captures. Where PyTorch does not tell of them, each diversion may be
 * one. */
bool Allocator::may_wait()
{
	if (tells_captures<cca::CUDAAllocator>)
		return captures_ == 0;
	std::lock_guard<std::mutex> guard(lock_);
	return diversions_.empty();
}

/* Gives what the heap has free back to the device, for somebody who cannot have it in the order of a stream; says
 * whether that was anything. The native allocator may hold locks of its own: nothing may wait for the interpreter's. */
bool Allocator::make_room(DeviceIndex device)
{
	trz_heap *heap;
	size_t released = 0;
	if (trz_torch_heap(device, false, &heap) != TRZ_OK || !heap)
		return false;
	std::exception_ptr failure = thrown_in([&] {
		released = trim_noted(heap, 0, nullptr);
		Statistics now(heap);
		if (now["cached_bytes.current"] + now["pending_bytes.current"] == 0 || !may_wait())
			return;
		c10::cuda::CUDAGuard guard(device);
		c10::cuda::device_synchronize();
		waits_++;
		released += trim_noted(heap, 0, nullptr);
	});
	if (failure)
		std::rethrow_exception(failure);
	return released != 0;
}

/* Gives back what native pools that have ended still have free; says whether that was anything. */
bool Allocator::empty_native()
{
	if (!native_used_ || Source::inside || !may_wait())
		return false;
	auto reserved = [this] {
		int64_t sum = 0;
		for (int device = 0; device < device_count_; device++)
			sum += native_->getDeviceStats(static_cast<DeviceIndex>(device)).reserved_bytes[0].current;
		return sum;
	};
	int64_t before = reserved();
	empty_cache(*native_, {0, 0});
	return reserved() < before;
}

void *Allocator::keep_native(void *ptr, DeviceIndex device)
{
	std::lock_guard<std::mutex> held(lock_);
	if (ptr)
		native_pointers_.emplace(ptr, device);
	return ptr;
}

/* What native pools that are there for that have free, when the heap has nothing. */
void *Allocator::lend(size_t size, DeviceIndex device, cudaStream_t stream)
{
	std::unique_lock<std::mutex> guard(lock_);
	auto lenders = lenders_;
	guard.unlock();
	for (const auto &[on, id] : lenders)
		if (void *ptr = on == device ? lend(id, size, device, stream) : nullptr) {
			guard.lock();
			lent_[device]++;
			return ptr;
		}
	return nullptr;
}

void *Allocator::lend(MempoolId_t id, size_t size, DeviceIndex device, cudaStream_t stream)
{
	constexpr size_t SMALL = 1 << 20;  /* the native allocator keeps what is at most as long apart */
	bool fits = false;
	for (const auto &s : snapshot_of(*native_, id, false).segments)
		for (const auto &b : s.blocks)
			fits |= s.device == device && s.owner_private_pool_id == id && s.stream == stream &&
			        s.is_large == (size > SMALL) && !b.active && b.size >= size;
	if (!fits)
		return nullptr;
	void *ptr = nullptr;
	c10::cuda::CUDAGuard guard(device);
	auto thread = std::this_thread::get_id();
	native_->beginAllocateToPool(device, id, [thread](cudaStream_t) { return thread == std::this_thread::get_id(); });
	Source::only_cached = true;
	try {
		ptr = native_->raw_alloc_with_stream(size, stream);
	} catch (const c10::OutOfMemoryError &) {
		/* somebody else has been faster */
	}
	Source::only_cached = false;
	native_->endAllocateToPool(device, id);
	native_->releasePool(device, id);
	return keep_native(ptr, device);
}

void Allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<cca::CUDAAllocator> allocator)
{
	if (!allocator && !is_native(device, id)) {
		check(trz_torch_pool_open(device, pool_id(id)));
		return;
	}
	std::shared_ptr<Source> source;
	if (allocator)
		source = std::make_shared<Source>(std::move(allocator), [this](DeviceIndex on) { return make_room(on); });
	open_pool(*native(), device, id, source);
	std::lock_guard<std::mutex> guard(lock_);
	if (source && !keeps_allocators<cca::CUDAAllocator>)
		borrowed_.push_back(source);
	servers_[{device, id}] = Server::NATIVE;
	watch(WATCH_POOLS, true);
}

void Allocator::setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use)
{
	/* Free memory of our pools is always given up before an allocation fails, unless graphs know its addresses. */
	if (!is_native(device, id))
		return;
	std::lock_guard<std::mutex> guard(lock_);
	if (use)
		lenders_.insert({device, id});
	else
		lenders_.erase({device, id});
	watch(WATCH_POOLS, true);
}

/* Makes a pool of ours PyTorch's, with its references; nothing has been allocated from it. */
void Allocator::hand_over(DeviceIndex device, MempoolId_t id)
{
	if (is_native(device, id))
		return;
	unsigned references = trz_torch_pool_references(device, pool_id(id));
	for (unsigned i = 0; i < references; i++)
		check(trz_torch_pool_close(device, pool_id(id)));
	for (unsigned i = 0; i < references; i++)
		open_pool(*native(), device, id, nullptr);
	std::lock_guard<std::mutex> guard(lock_);
	servers_[{device, id}] = Server::NATIVE;
	watch(WATCH_POOLS, true);
}

void Allocator::setNoSplit(DeviceIndex device, MempoolId_t id)
{
	if (is_native(device, id)) {
		set_no_split(*native_, device, id);
		return;
	}
	std::lock_guard<std::mutex> guard(lock_);
	servers_[{device, id}] = Server::HEAP_ALONE;
	watch(WATCH_POOLS, true);
}

int Allocator::getPoolUseCount(DeviceIndex device, MempoolId_t id)
{
	return is_native(device, id) ? native_->getPoolUseCount(device, id)
	                             : static_cast<int>(trz_torch_pool_references(device, pool_id(id)));
}

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter)
{
	if (brings_allocator(id))
		hand_over(device, id);
	Server server = server_of(device, id);
	if (server == Server::NATIVE) {
		native_->beginAllocateToPool(device, id, filter);
	} else {
		check(trz_torch_pool_open(device, pool_id(id)));
		trz_status status = trz_torch_pool_begin(device, pool_id(id), [filter](trz_stream stream) {
			return filter(static_cast<cudaStream_t>(stream));
		});
		if (status != TRZ_OK)
			trz_torch_pool_close(device, pool_id(id));
		check(status);
	}
	std::lock_guard<std::mutex> guard(lock_);
	diversions_.push_back({device, id, server, std::this_thread::get_id(), std::move(filter)});
}

void Allocator::endAllocateToPool(DeviceIndex device, MempoolId_t id)
{
	if (in_child())
		return;
	bool native = is_native(device, id);
	if (native)
		native_->endAllocateToPool(device, id);
	else
		check(trz_torch_pool_end(device, pool_id(id)));
	std::lock_guard<std::mutex> guard(lock_);
	/* As the plug does: the newest that this thread began, else the newest. */
	auto of_pool = [&](const Diversion &d) { return d.device == device && d.id == id; };
	auto mine = [&](const Diversion &d) { return of_pool(d) && d.thread == std::this_thread::get_id(); };
	auto ended = std::find_if(diversions_.rbegin(), diversions_.rend(), mine);
	if (ended == diversions_.rend())
		ended = std::find_if(diversions_.rbegin(), diversions_.rend(), of_pool);
	if (ended != diversions_.rend())
		diversions_.erase(std::next(ended).base());
}

void Allocator::releasePool(DeviceIndex device, MempoolId_t id)
{
	if (in_child())
		return;
	if (is_native(device, id))
		native_->releasePool(device, id);
	else
		check(trz_torch_pool_close(device, pool_id(id)));
	/* The id may be another pool's later. */
	if (getPoolUseCount(device, id) == 0) {
		std::lock_guard<std::mutex> guard(lock_);
		servers_.erase({device, id});
		lenders_.erase({device, id});
	}
}

std::vector<void *> live(trz_heap *heap, trz_pool *pool)
{
	std::vector<void *> list;
	size_t count = 0;
	do {
		list.resize(count);
		check(trz_pool_live(heap, pool, list.data(), list.size(), &count));
	} while (count > list.size());
	list.resize(count);
	return list;
}

trz_pool *find_pool(DeviceIndex device, MempoolId_t id)
{
	trz_pool *pool = trz_torch_pool_find(device, pool_id(id));
	TORCH_CHECK(pool, "terrazzo: device ", static_cast<int>(device), " has no pool (", id.first, ", ", id.second, ")");
	return pool;
}

bool Allocator::checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                         const std::unordered_set<void *> &expected)
{
	if (is_native(device, id))
		return native_->checkPoolLiveAllocations(device, id, expected);
	std::vector<void *> held = live(heap_of(device), find_pool(device, id));
	return held.size() == expected.size() &&
	       std::all_of(held.begin(), held.end(), [&](void *ptr) { return expected.count(ptr) != 0; });
}

std::shared_ptr<cca::AllocatorState> Allocator::getCheckpointState(DeviceIndex device, MempoolId_t id)
{
	if (is_native(device, id))
		return native_->getCheckpointState(device, id);
	trz_pool_state *state;
	check(trz_pool_checkpoint(heap_of(device), find_pool(device, id), &state));
	return std::make_shared<Checkpoint>(device, id, state);
}

cca::CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex device, std::shared_ptr<cca::AllocatorState> state)
{
	auto *ours = dynamic_cast<Checkpoint *>(state.get());
	if (!ours)
		return native_->setCheckpointPoolState(device, std::move(state));
	trz_heap *heap = heap_of(device);
	trz_pool *pool = find_pool(device, ours->id);
	cca::CheckpointDelta delta;
	delta.ptrs_freed = live(heap, pool);
	trz_status status = trz_pool_restore(heap, pool, ours->state);
	if (status == TRZ_NOT_READY) {
		c10::cuda::CUDAGuard guard(device);
		c10::cuda::device_synchronize();
		status = trz_pool_restore(heap, pool, ours->state);
	}
	TORCH_CHECK(status == TRZ_OK, "terrazzo: ", trz_last_error());
	for (void *ptr : live(heap, pool))
		delta.dataptrs_allocd.push_back({ptr, ptr, &free_any, c10::Device(c10::DeviceType::CUDA, device)});
	return delta;
}

/* -- several processes -- */

/* The handle of a plain allocation, prefixed so that another allocator's is not taken for it. */
constexpr char IPC_PREFIX[] = "terrazzo1";
constexpr size_t IPC_PREFIX_BYTES = sizeof IPC_PREFIX - 1;

cca::ShareableHandle Allocator::share_plain(void *ptr, DeviceIndex device)
{
	cudaIpcMemHandle_t handle;
	auto address = reinterpret_cast<size_t>(ptr);
	for (const auto &s : walk(device, {0, 0}, true, false).segments) {
		if (address - s.address >= s.total_size)
			continue;
		TORCH_CHECK(!s.is_expandable, "terrazzo: this tensor cannot be sent to another process, since the device's driver "
		            "cannot export mapped memory: run with TERRAZZO_CONF=vmm:off, with which all memory can be sent but "
		            "none is moved");
		C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, reinterpret_cast<void *>(s.address)));
		return {static_cast<ptrdiff_t>(address - s.address),
		        IPC_PREFIX + std::string(reinterpret_cast<char *>(&handle), sizeof handle)};
	}
	TORCH_CHECK(false, "terrazzo: ", ptr, " lies in no segment");
}

cca::ShareableHandle Allocator::shareIpcHandle(void *ptr)
{
	trz_pointer_info info;
	trz_heap *owner = trz_torch_owner(ptr);
	if (!owner && native_used_)
		return native_->shareIpcHandle(ptr);
	TORCH_CHECK(owner, "terrazzo: ", ptr, " is not memory of terrazzo");
	size_t offset;
	std::string handle(TRZ_TORCH_HANDLE_BYTES, '\0');
	trz_status status = trz_torch_share(ptr, &offset, handle.data());
	if (status == TRZ_OK)
		return {static_cast<ptrdiff_t>(offset), std::move(handle)};
	TORCH_CHECK(status != TRZ_ERROR_INVALID_ARGUMENT, "terrazzo: this tensor cannot be sent to another process: ",
	            trz_torch_last_error(), ". Allocate it, or a copy of it, inside `with terrazzo.torch.shareable():`, or "
	            "run without exportable:off in TERRAZZO_CONF");
	if (status != TRZ_ERROR_NOT_SUPPORTED)
		check(status);
	check(trz_query(owner, ptr, &info));
	return share_plain(ptr, static_cast<DeviceIndex>(info.device));
}

/* PyTorch waits for the current stream, too, before it tells the other process that the memory is used no more, but
 * only after this: so the mapping has gone by that time, and the other process can give the memory back. */
void close_received(void *ptr, DeviceIndex device, bool plain)
{
	try {
		c10::cuda::CUDAGuard on(device);
		cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
		C10_CUDA_CHECK(cudaStreamSynchronize(stream));
		if (plain) {
			C10_CUDA_CHECK(cudaIpcCloseMemHandle(ptr));
			return;
		}
		trz_heap *heap = heap_of(device);
		check(trz_record_stream(heap, ptr, stream));
		check(trz_torch_try_free(ptr, device));
		check(trz_poll(heap));
	} catch (const c10::Error &e) {
		TORCH_WARN("memory of another process is not given back: ", e.what_without_backtrace());
	}
}

void *open_plain(const std::string &handle)
{
	void *ptr;
	cudaIpcMemHandle_t raw;
	TORCH_CHECK(handle.size() == IPC_PREFIX_BYTES + sizeof raw, "terrazzo: a handle of the wrong length was received");
	memcpy(&raw, handle.data() + IPC_PREFIX_BYTES, sizeof raw);
	C10_CUDA_CHECK(cudaIpcOpenMemHandle(&ptr, raw, cudaIpcMemLazyEnablePeerAccess));
	return ptr;
}

/* Memory of other processes by handle: each is mapped once, as long as some storage lies in it. */
class Received {
public:
	std::shared_ptr<void> get(const std::string &handle, DeviceIndex device)
	{
		std::lock_guard<std::mutex> guard(lock_);
		auto found = open_.find(handle);
		std::shared_ptr<void> known = found == open_.end() ? nullptr : found->second.lock();
		if (known)
			return known;
		bool plain = handle.compare(0, IPC_PREFIX_BYTES, IPC_PREFIX) == 0;
		void *ptr = plain ? open_plain(handle) : nullptr;
		if (!plain)
			check(trz_torch_receive(handle.data(), handle.size(), device,
			                        c10::cuda::getCurrentCUDAStream(device).stream(), &ptr));
		std::shared_ptr<void> made(ptr, [this, handle, device, plain](void *p) { give_back(handle, p, device, plain); });
		open_[handle] = made;
		return made;
	}

private:
	void give_back(const std::string &handle, void *ptr, DeviceIndex device, bool plain)
	{
		close_received(ptr, device, plain);
		std::lock_guard<std::mutex> guard(lock_);
		auto found = open_.find(handle);
		if (found != open_.end() && found->second.expired())  /* else it has been opened anew */
			open_.erase(found);
	}

	std::mutex lock_;
	std::unordered_map<std::string, std::weak_ptr<void>> open_;
};

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle)
{
	static auto *received = new Received;
	if (!trz_torch_is_handle(handle.data(), handle.size()) && handle.compare(0, IPC_PREFIX_BYTES, IPC_PREFIX) != 0)
		return native()->getIpcDevPtr(std::move(handle));
	return received->get(handle, c10::cuda::current_device());
}

} // namespace

/* ---- what Python calls ------------------------------------------------------------------------------------------ */

/* trz_torch_trim, noted while PyTorch records. */
extern "C" TRZ_API size_t trz_torch_shim_trim(size_t keep)
{
	std::shared_ptr<c10::GatheredContext> context;
	try {
		context = history().gather(RecordContext::ALL);
	} catch (const std::exception &e) {
		TORCH_WARN("terrazzo: no stack is known of a trim: ", e.what());
	}
	return trim_noted(nullptr, keep, std::move(context));
}

/* Makes terrazzo PyTorch's allocator. NULL, or why that cannot be; the text lives as long as the process. */
extern "C" TRZ_API const char *trz_torch_shim_install(void)
{
	static std::string *text = new std::string;
	try {
		auto made = std::make_shared<Allocator>(cca::get());
		torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(made);
		made->take_over();
		return nullptr;
	} catch (const c10::Error &e) {
		*text = e.what_without_backtrace();
	} catch (const std::exception &e) {
		*text = e.what();
	}
	return text->c_str();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes of operations by their numbers, the allocator's functions while PyTorch records, and the thread's metadata.
 */
#include "shim_history.hpp"

#include <algorithm>
#include <chrono>

#include "shim_allocator.hpp"

namespace shim {

static thread_local std::vector<std::string> compile_contexts;
static thread_local std::string user_metadata;

/* The number of the note of the thread's current operation; 0: it has none. */
static thread_local uint64_t noted;

/* How deep the thread is inside operations that hold the gate: their callbacks may allocate and free. */
static thread_local unsigned together;

void History::set(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear,
                  const std::vector<std::string> &skip)
{
	std::unique_lock<std::shared_mutex> alone(gate);
	const size_t before = entries_.exchange(std::min<size_t>(std::max<size_t>(entries, 1), MOST_EVENTS));
	recorder_ = enabled ? recorder : nullptr;
	when_ = enabled ? when : RecordContext::NEVER;
	skip_ = {skip.begin(), skip.end()};
	if (!enabled || clear || !on || entries_ > before) {  /* a heap's history has the length that it began with */
		forget();
		check(trz_torch_history(0, nullptr, nullptr));
		for (trz_heap *heap : heaps_)
			if (heap)
				record(heap, enabled);
	}
	on = enabled;
}

void History::tell(cca::CUDAAllocator &native)
{
	Together hold;
	if (on)
		record_history(native, true, recorder_, entries_, when_, false, {skip_.begin(), skip_.end()});
}

void History::join(int device, trz_heap *heap)
{
	std::unique_lock<std::shared_mutex> alone(gate, std::defer_lock);
	if (!together)
		alone.lock();
	heaps_[device] = heap;
	if (on)
		record(heap, true);
}

std::shared_ptr<c10::GatheredContext> History::gather(RecordContext least) const
{
	CreateContextFn recorder = recorder_;  /* another thread may end the recording */
	return recorder && when_ >= least && !together ? recorder() : nullptr;
}

uint64_t History::note(std::shared_ptr<c10::GatheredContext> context)
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

void History::drop(uint64_t number)
{
	std::lock_guard<std::mutex> guard(lock_);
	/* Another thread may have forgotten all notes meanwhile. */
	if (!notes_.empty() && number + 1 == first_ + notes_.size())
		notes_.pop_back();
}

void History::hold(uint64_t address, std::shared_ptr<c10::GatheredContext> context)
{
	if (!context)
		return;
	std::lock_guard<std::mutex> guard(lock_);
	held_[address] = std::move(context);
	holds = true;
}

std::shared_ptr<c10::GatheredContext> History::let_go(uint64_t address)
{
	if (!holds)
		return nullptr;
	std::lock_guard<std::mutex> guard(lock_);
	auto found = held_.extract(address);
	holds = !held_.empty();
	return found ? std::move(found.mapped()) : nullptr;
}

template <typename Entry>
static void push(std::deque<Entry> &list, Entry entry, size_t most)
{
	list.push_back(std::move(entry));
	while (list.size() > most)
		list.pop_front();
}

void History::annotate(TraceEntry entry)
{
	std::lock_guard<std::mutex> guard(lock_);
	push(annotations_, std::move(entry), entries_);
}

void History::note_outsized(DeviceIndex device, size_t size, cudaStream_t stream, uint64_t number)
{
	trz_oom_info info;
	trz_torch_oom_info(device, size, &info);
	TraceEntry entry = trace_entry(TraceEntry::OOM, device, info.device_free, size, stream, {0, 0});
	entry.time_.t_ = now_us();
	complete(entry, number);
	if (!skips("oom"))
		annotate(std::move(entry));
}

void History::annotate_section(DeviceIndex device, const std::vector<std::pair<std::string, std::string>> &metadata)
{
	AnnotationEntry entry(device, 0);
	entry.time_.t_ = now_us();
	for (const auto &[name, value] : metadata)
		entry.recordUserMetadata(name, value);
	std::lock_guard<std::mutex> guard(lock_);
	push(sections_, std::move(entry), entries_);
}

std::vector<AnnotationEntry> History::sections()
{
	std::lock_guard<std::mutex> guard(lock_);
	return {sections_.begin(), sections_.end()};
}

std::shared_ptr<c10::GatheredContext> History::held(uint64_t address)
{
	std::lock_guard<std::mutex> guard(lock_);
	auto found = held_.find(address);
	return found == held_.end() ? nullptr : found->second;
}

void History::complete(TraceEntry &entry, uint64_t number)
{
	std::lock_guard<std::mutex> guard(lock_);
	if (number < first_ || number - first_ >= notes_.size())
		return;
	const Note &n = notes_[number - first_];
	entry.context_ = n.context;
	set_note(entry, n.compile_context, n.user_metadata);
}

time_t History::now_us()
{
	using namespace std::chrono;
	return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

void History::record(trz_heap *heap, bool enabled) const
{
	check_heap(trz_history_stop(heap));
	check_heap(trz_set_frame_callback(heap, enabled ? name_note : nullptr, nullptr, nullptr));
	if (enabled)
		check_heap(trz_history_start(heap, entries_));
}

uint64_t History::name_note(void *)
{
	return noted;
}

void History::forget()
{
	std::lock_guard<std::mutex> guard(lock_);
	first_ += notes_.size();
	notes_.clear();
	annotations_.clear();
	sections_.clear();
}

void History::add_annotations(std::vector<TraceEntry> &entries, DeviceIndex device)
{
	std::lock_guard<std::mutex> guard(lock_);
	for (const TraceEntry &a : annotations_)
		if (a.device_ == device)
			entries.push_back(a);
	std::stable_sort(entries.begin(), entries.end(),
	                 [](const TraceEntry &a, const TraceEntry &b) { return a.time_.t_ < b.time_.t_; });
}

void History::keep_newest(std::vector<TraceEntry> &entries) const
{
	size_t most = entries_;
	if (entries.size() > most)
		entries.erase(entries.begin(), entries.end() - static_cast<ptrdiff_t>(most));
}

History &history()
{
	static History *h = new History;
	return *h;
}

Together::Together()
{
	if (together++ == 0)
		history().gate.lock_shared();
}

Together::~Together()
{
	if (--together == 0)
		history().gate.unlock_shared();
}

Apart::Apart()
	: together_(std::exchange(together, 0))
{
	if (together_)
		history().gate.unlock_shared();
}

Apart::~Apart()
{
	if (together_)
		history().gate.lock_shared();
	together = together_;
}

Noted::Noted(std::shared_ptr<c10::GatheredContext> context)
	: number(history().note(std::move(context))), outer_(std::exchange(noted, number))
{
}

Noted::~Noted()
{
	noted = outer_;
}

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

void Allocator::recordHistory(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear,
                              const std::vector<std::string> &skip_actions)
{
	for (const auto &action : skip_actions)
		parseTraceEntryAction(action);  /* refuses what is none */
	history().set(enabled, recorder, entries, when, clear, skip_actions);
	watch(WATCH_HELD, history().holds);  /* first, so that no free is missed */
	watch(WATCH_HISTORY, enabled);
	bool tell;
	{
		std::lock_guard<std::mutex> guard(lock_);  /* whoever begins to use it later tells it */
		tell = native_used_;
	}
	if (tell)
		record_history(*native_, enabled, recorder, entries, when, clear, skip_actions);
}

bool Allocator::isHistoryEnabled()
{
	return history().on;
}

std::shared_ptr<c10::GatheredContext> Allocator::getContextForPointer(const void *ptr)
{
	auto context = history().held(reinterpret_cast<uint64_t>(ptr));
	return context || !native_used_ ? context : context_of_native(*native_, ptr);
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata)
{
	if (history().on)
		history().annotate_section(c10::cuda::current_device(), metadata);
}

void Allocator::pushCompileContext(std::string &metadata)
{
	compile_contexts.push_back(metadata);
	push_compile_context(*native_, metadata);
}

void Allocator::popCompileContext()
{
	if (compile_contexts.empty())
		return;
	compile_contexts.pop_back();
	pop_compile_context(*native_);
}

bool Allocator::supportsUserMetadata()
{
	return true;
}

void Allocator::setUserMetadata(const std::string &metadata)
{
	user_metadata = metadata;
	set_metadata(*native_, metadata);
}

std::string Allocator::getUserMetadata()
{
	return user_metadata;
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

} // namespace shim

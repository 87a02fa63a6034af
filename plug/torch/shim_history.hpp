/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts about operations that PyTorch wants while it records, beyond the heaps' histories: stacks, the contexts of live
 * allocations, annotations.
 */
#ifndef TRZ_SHIM_HISTORY_HPP
#define TRZ_SHIM_HISTORY_HPP

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "shim_calls.hpp"

namespace shim {

/* Facts about an operation that PyTorch wants beyond the heap's history. The operation's events there have the note's
 * number in place of a stack's. */
struct Note {
	std::shared_ptr<c10::GatheredContext> context;
	std::string compile_context, user_metadata;
};

/* While PyTorch records, each allocation and free runs under a shared hold of `gate`, which a snapshot holds
 * exclusively: so all live memory has its context. */
class History {
public:
	std::atomic<bool> on{false};
	std::atomic<bool> holds{false};  /* contexts of live allocations, which outlast the recording, as in PyTorch */
	std::shared_mutex gate;

	void set(bool enabled, CreateContextFn recorder, size_t entries, RecordContext when, bool clear,
	         const std::vector<std::string> &skip);

	/* Has PyTorch's own allocator, which is used from now on, record as the heaps do. */
	void tell(cca::CUDAAllocator &native);

	/* Adds a heap that has just been opened, perhaps by a tracker inside an operation: then no other thread holds the
	 * gate exclusively, and heaps are opened one at a time. */
	void join(int device, trz_heap *heap);

	/* Takes the interpreter's lock, whose holder may be waiting for the gate: call this before taking the gate. */
	std::shared_ptr<c10::GatheredContext> gather(RecordContext least) const;

	/* Makes a note for the calling thread; returns its number. */
	uint64_t note(std::shared_ptr<c10::GatheredContext> context);

	/* Drops the note of an operation that came to nothing, unless there are newer ones: else programs that often ask in
	 * vain would push out the notes of events. */
	void drop(uint64_t number);

	/* Keeps the context of an allocation while it lives, whether or not the recording goes on. */
	void hold(uint64_t address, std::shared_ptr<c10::GatheredContext> context);

	/* Returns the context of an allocation whose life ends. */
	std::shared_ptr<c10::GatheredContext> let_go(uint64_t address);

	/* Adds an entry that the heap does not have. Like events, only the newest are kept. */
	void annotate(TraceEntry entry);

	/* Adds the failure of an allocation that the heap has refused for its size alone, with the note of this number. */
	void note_outsized(DeviceIndex device, size_t size, cudaStream_t stream, uint64_t number);

	void annotate_section(DeviceIndex device, const std::vector<std::pair<std::string, std::string>> &metadata);

	std::shared_ptr<c10::GatheredContext> held(uint64_t address);

	bool skips(const std::string &action) const
	{
		return skip_.count(action) != 0;
	}

	std::vector<AnnotationEntry> sections();

	/* Gives an entry the facts of the note with this number, if there is one. */
	void complete(TraceEntry &entry, uint64_t number);

	/* Adds a device's annotations to its entries. */
	void add_annotations(std::vector<TraceEntry> &entries, DeviceIndex device);

	/* Keeps the newest entries, as many as were asked for: one of the heap's events may have become two entries. */
	void keep_newest(std::vector<TraceEntry> &entries) const;

	static time_t now_us();

private:
	/* PyTorch's default is unlimited; the heap's ring is made at once (48 bytes an event, touched when used). */
	static constexpr size_t MOST_EVENTS = size_t{1} << 22;

	/* Neither interpreter stacks nor native stacks have numbers like this. */
	static constexpr uint64_t FIRST = uint64_t{1} << 63;

	/* Starts or stops a heap's history. While it runs, the heap's stacks are PyTorch's; a callback that was set before
	 * must be set again afterwards. */
	void record(trz_heap *heap, bool enabled) const;

	static uint64_t name_note(void *);
	void forget();

	trz_heap *heaps_[TRZ_TORCH_DEVICES] = {};
	std::atomic<size_t> entries_{1};  /* the most of the heap's events, and of each list of annotations */
	std::atomic<CreateContextFn> recorder_{nullptr};
	std::atomic<RecordContext> when_{RecordContext::NEVER};
	std::unordered_set<std::string> skip_;

	std::mutex lock_;
	std::deque<Note> notes_;
	uint64_t first_ = FIRST;  /* the number of the oldest note */
	std::unordered_map<uint64_t, std::shared_ptr<c10::GatheredContext>> held_;
	std::deque<TraceEntry> annotations_;
	std::deque<AnnotationEntry> sections_;
};

History &history();

/* A shared hold of the gate, taken once for nested operations. */
class Together {
public:
	Together();
	~Together();
	Together(const Together &) = delete;
};

/* Lets go of the gate while a callback of the program runs inside an operation: the callback may want the gate
 * exclusively, or wait for the interpreter's lock, whose holder wants it. */
class Apart {
public:
	Apart();
	~Apart();
	Apart(const Apart &) = delete;

private:
	const unsigned together_;
};

/* A note for the thread's operation: its events in a heap's history get the note's number. */
class Noted {
public:
	explicit Noted(std::shared_ptr<c10::GatheredContext> context);
	~Noted();
	Noted(const Noted &) = delete;

	const uint64_t number;

private:
	const uint64_t outer_;
};

/* trz_trim of a heap or, without one, trz_torch_trim; returns the bytes returned. */
size_t trim_noted(trz_heap *heap, size_t keep, std::shared_ptr<c10::GatheredContext> context);

} // namespace shim

#endif

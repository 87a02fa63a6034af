/* SPDX-License-Identifier: Apache-2.0
 *
 * A walk over a heap in PyTorch's structures: what snapshots are made of.
 */
#ifndef TRZ_SHIM_SNAPSHOTS_HPP
#define TRZ_SHIM_SNAPSHOTS_HPP

#include <memory>
#include <unordered_map>
#include <vector>

#include "shim_calls.hpp"

namespace shim {

/* Turns the results of trz_walk over one heap into PyTorch's structures. */
struct Walk {
	DeviceIndex device;
	MempoolId_t wanted;
	bool all;
	std::vector<SegmentInfo> segments;
	std::vector<TraceEntry> entries;
	bool in_segment = false;
	/* By address: the notes of the newest free and of the newest mapping. */
	std::unordered_map<uint64_t, uint64_t> freed;
	std::unordered_map<uint64_t, std::shared_ptr<c10::GatheredContext>> mapped;

	MempoolId_t id_of(unsigned number) const;
	void segment(const trz_segment_info &s);
	void block(const trz_block_info &b);

	/* Gives an entry its note. A completed free gets that of its request; unmapped memory gets its mapping's, unless it
	 * has one of its own. */
	void add_note(TraceEntry &entry, const trz_event_info &e);

	void event(const trz_event_info &e);

	void run(trz_heap *heap, bool traces);
};

} // namespace shim

#endif

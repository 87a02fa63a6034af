/* SPDX-License-Identifier: Apache-2.0
 *
 * The statistics of a heap, by name and in PyTorch's structure.
 */
#ifndef TRZ_SHIM_STATISTICS_HPP
#define TRZ_SHIM_STATISTICS_HPP

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "shim_calls.hpp"

namespace shim {

/* What allocated_bytes counts of a request. */
constexpr size_t counted_bytes(size_t requested)
{
	return (requested + 511) / 512 * 512;
}

/* The statistics of a heap by name. Their order never changes in a process. */
class Statistics {
public:
	explicit Statistics(trz_heap *heap);

	int64_t operator[](const std::string &name) const;

private:
	using index = std::unordered_map<std::string, size_t>;

	static const index *make_index(const std::vector<trz_stat_value> &values);

	std::vector<trz_stat_value> values_;
	const index *index_;
};

DeviceStats read_stats(const Statistics &from);

/* Subtracts what reset_accumulated_memory_stats() has set to 0: `base` is how it was then. */
void subtract(DeviceStats &stats, const DeviceStats &base);

void add(DeviceStats &stats, const DeviceStats &other);

} // namespace shim

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap as an allocator for Thrust: for containers, thrust::device_vector<T, terrazzo::thrust_allocator<T>>, and for
 * algorithms' temporary memory, thrust::cuda::par(allocator).on(stream) and par_nosync. Needs Thrust.
 */
#ifndef TERRAZZO_THRUST_HPP
#define TERRAZZO_THRUST_HPP

#include <thrust/device_ptr.h>

#include <limits>
#include <type_traits>

#include <terrazzo.hpp>

namespace terrazzo {

/* Allocates and frees in the order of one stream, the one that the container or the algorithm works on. Copies, of
 * whatever type, are the same allocator: they are equal if heap and stream are. The heap must outlive all of them. */
template <class T> class thrust_allocator {
public:
	using value_type = T;
	using pointer = thrust::device_ptr<T>;
	using const_pointer = thrust::device_ptr<const T>;
	using reference = thrust::device_reference<T>;
	using const_reference = thrust::device_reference<const T>;
	using size_type = std::size_t;
	using difference_type = typename pointer::difference_type;
	using propagate_on_container_copy_assignment = std::true_type;
	using propagate_on_container_move_assignment = std::true_type;
	using propagate_on_container_swap = std::true_type;
	using is_always_equal = std::false_type;
	template <class U> struct rebind {
		using other = thrust_allocator<U>;
	};

	explicit thrust_allocator(heap_ref heap, trz_stream stream = nullptr) noexcept : heap_(heap), stream_(stream) {}
	template <class U>
	thrust_allocator(const thrust_allocator<U> &other) noexcept : heap_(other.heap()), stream_(other.stream())
	{
	}

	heap_ref heap() const noexcept { return heap_; }
	trz_stream stream() const noexcept { return stream_; }

	pointer allocate(size_type count)
	{
		if (count > max_size())
			throw std::bad_array_new_length();
		return pointer(static_cast<T *>(heap_.allocate(count * sizeof(T), stream_)));
	}
	void deallocate(pointer memory, size_type) noexcept
	{
		detail::freed(trz_free_on(heap_.get(), memory.get(), stream_));
	}
	static constexpr size_type max_size() noexcept { return std::numeric_limits<size_type>::max() / sizeof(T); }

	friend bool operator==(const thrust_allocator &a, const thrust_allocator &b) noexcept
	{
		return a.heap_ == b.heap_ && a.stream_ == b.stream_;
	}
	friend bool operator!=(const thrust_allocator &a, const thrust_allocator &b) noexcept { return !(a == b); }

private:
	heap_ref heap_;
	trz_stream stream_;
};

} // namespace terrazzo

#endif

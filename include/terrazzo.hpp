/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo for C++17: heaps, buffers and pools that clean up after themselves, and errors that have types. Header-only,
 * on top of terrazzo.h, whose comments say what each call does. Needs neither CUDA's headers nor its libraries.
 *
 * Further headers, for programs that use these libraries:
 *  - terrazzo/memory_resource.hpp: a memory resource by CCCL's concepts (cuda::mr)
 *  - terrazzo/rmm.hpp: one for RMM
 *  - terrazzo/thrust.hpp: an allocator for Thrust's containers and algorithms
 *  - terrazzo/cub.hpp: one with the interface of cub::CachingDeviceAllocator
 */
#ifndef TERRAZZO_HPP
#define TERRAZZO_HPP

#if __cplusplus < 201703L && (!defined(_MSVC_LANG) || _MSVC_LANG < 201703L)
#error "terrazzo.hpp needs C++17: compile with -std=c++17 or newer"
#endif

#include <terrazzo.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace terrazzo {

/* ---- errors -------------------------------------------------------------------------------------------- */

/* A base of every exception of terrazzo: `catch (const terrazzo::failure &)` catches them all. It does not derive from
 * std::exception, so that each exception has that base only once and `catch (const std::exception &)` works, too. */
class failure {
public:
	trz_status status() const noexcept { return status_; }
	/* One line: the status, what was requested, what to do. */
	const char *message() const noexcept { return message_.c_str(); }

protected:
	explicit failure(trz_status status) : status_(status), message_(text(status)) {}
	failure(trz_status status, const char *message) : status_(status), message_(message) {}
	failure(const failure &) = default;
	failure &operator=(const failure &) = default;
	~failure() = default;

private:
	static std::string text(trz_status status)
	{
		const char *detail = trz_last_error();
		return std::string(trz_status_name(status)) + ": " + (*detail ? detail : trz_status_text(status));
	}

	trz_status status_;
	std::string message_;
};

/* Memory is missing: the device's (which may be too small for the request), the host's, addresses, or room at an
 * address. */
class out_of_memory : public std::bad_alloc, public failure {
public:
	explicit out_of_memory(trz_status status) : failure(status) {}
	const char *what() const noexcept override { return message(); }
};

/* The heap's own limit refuses the request. */
class limit_reached final : public out_of_memory {
public:
	using out_of_memory::out_of_memory;
};

/* The program made a mistake: an argument, a pointer that is not the heap's, a double free, a configuration. */
class invalid_use : public std::invalid_argument, public failure {
public:
	explicit invalid_use(trz_status status) : std::invalid_argument("terrazzo"), failure(status) {}
	const char *what() const noexcept override { return message(); }
};

/* All others: the driver, the device, a capture, a file. */
class error : public std::runtime_error, public failure {
public:
	explicit error(trz_status status) : std::runtime_error("terrazzo"), failure(status) {}
	error(trz_status status, const char *message) : std::runtime_error("terrazzo"), failure(status, message) {}
	const char *what() const noexcept override { return message(); }
};

/* The call is not permitted while a stream is being captured. */
class capture_error final : public error {
public:
	using error::error;
};

/* The device context has failed; the heap is no longer usable. */
class context_dead final : public error {
public:
	using error::error;
};

/* Throws the exception for a status other than TRZ_OK, with the text of trz_last_error(). */
[[noreturn]] inline void throw_status(trz_status status)
{
	switch (status) {
	case TRZ_ERROR_LIMIT:
		throw limit_reached(status);
	case TRZ_ERROR_SIZE:
	case TRZ_ERROR_OUT_OF_MEMORY:
	case TRZ_ERROR_HOST_MEMORY:
	case TRZ_ERROR_ADDRESS_SPACE:
	case TRZ_ERROR_NO_ROOM:
		throw out_of_memory(status);
	case TRZ_ERROR_INVALID_ARGUMENT:
	case TRZ_ERROR_ALIGNMENT:
	case TRZ_ERROR_UNKNOWN_POINTER:
	case TRZ_ERROR_DOUBLE_FREE:
	case TRZ_ERROR_WRONG_DEVICE:
	case TRZ_ERROR_CONFIG_KEY:
	case TRZ_ERROR_CONFIG_VALUE:
		throw invalid_use(status);
	case TRZ_ERROR_CAPTURE:
		throw capture_error(status);
	case TRZ_ERROR_CONTEXT_DEAD:
		throw context_dead(status);
	default:
		throw error(status);
	}
}

/* Throws unless the status is TRZ_OK. */
inline void check(trz_status status)
{
	if (status != TRZ_OK)
		throw_status(status);
}

namespace detail {

/* For frees that must not throw. A free fails only if the program made a mistake, which an assertion shows, or if the
 * host has no memory left: the allocation then stays live. */
inline void freed([[maybe_unused]] trz_status status) noexcept
{
	assert((status == TRZ_OK || status == TRZ_ERROR_HOST_MEMORY) && "terrazzo: a free is wrong; see trz_last_error()");
}

} // namespace detail

/* ---- heaps --------------------------------------------------------------------------------------------- */

/* A heap that somebody else keeps open: a pointer, with the heap's calls as methods, which throw on failure. */
class heap_ref {
public:
	heap_ref(trz_heap *handle) noexcept : handle_(handle) {}

	trz_heap *get() const noexcept { return handle_; }

	/* size 0 gives nullptr. */
	void *allocate(std::size_t size, trz_stream stream = nullptr, std::size_t alignment = 0) const
	{
		void *memory;
		check(trz_alloc(handle_, size, alignment, stream, &memory));
		return memory;
	}

	/* Frees in the order of the allocation's stream, of another one, or when an event has completed. */
	void free(void *memory) const { check(trz_free(handle_, memory)); }
	void free_on(void *memory, trz_stream stream) const { check(trz_free_on(handle_, memory, stream)); }
	void free_after(void *memory, trz_event event) const { check(trz_free_after(handle_, memory, event)); }

	void record_stream(void *memory, trz_stream stream) const { check(trz_record_stream(handle_, memory, stream)); }
	void retire(trz_stream stream) const { check(trz_stream_retire(handle_, stream)); }

	/* false: there is no room behind the allocation; allocate elsewhere and copy. */
	bool grow(void *memory, std::size_t size) const
	{
		trz_status status = trz_grow(handle_, memory, size);
		if (status != TRZ_ERROR_NO_ROOM)
			check(status);
		return status == TRZ_OK;
	}

	/* Facts about an address; empty if it is in none of the heap's live allocations. */
	std::optional<trz_pointer_info> query(const void *address) const
	{
		trz_pointer_info info;
		trz_status status = trz_query(handle_, address, &info);
		if (status == TRZ_ERROR_UNKNOWN_POINTER)
			return std::nullopt;
		check(status);
		return info;
	}

	/* Returns the number of bytes returned to the driver. */
	std::size_t trim(std::size_t keep = 0) const
	{
		std::size_t released;
		check(trz_trim(handle_, keep, &released));
		return released;
	}

	void poll() const { check(trz_poll(handle_)); }
	void step() const { check(trz_step(handle_)); }

	std::size_t largest_block(trz_stream stream = nullptr) const
	{
		std::size_t size;
		check(trz_largest_block(handle_, stream, &size));
		return size;
	}

	/* 0: none. */
	std::size_t limit() const
	{
		std::size_t limit;
		check(trz_get_limit(handle_, &limit));
		return limit;
	}
	void set_limit(std::size_t limit) const { check(trz_set_limit(handle_, limit)); }

	void enable_peer(int device, bool on = true) const { check(trz_enable_peer(handle_, device, on)); }

	/* One statistic of docs/stats.md. */
	std::uint64_t statistic(const char *name) const
	{
		std::uint64_t value;
		check(trz_stat(handle_, name, &value));
		return value;
	}

	void snapshot(const char *path) const { check(trz_snapshot(handle_, path)); }

	/* The report on where memory is and who holds it; `flags`: TRZ_REPORT_*. */
	std::string report(unsigned flags = 0) const
	{
		std::string text;
		check(trz_report(handle_, flags, append, &text));
		return text;
	}

	friend bool operator==(const heap_ref &a, const heap_ref &b) noexcept { return a.handle_ == b.handle_; }
	friend bool operator!=(const heap_ref &a, const heap_ref &b) noexcept { return a.handle_ != b.handle_; }

protected:
	trz_heap *handle_;

private:
	static bool append(void *text, const char *part, std::size_t size)
	{
		try {
			static_cast<std::string *>(text)->append(part, size);
			return true;
		} catch (const std::bad_alloc &) {
			return false;
		}
	}
};

/* A heap that this object owns and closes at its end. Buffers, memory resources and everything else that uses its
 * memory must end before it. */
class heap : public heap_ref {
public:
	explicit heap(int device = 0, const char *config = nullptr) : heap_ref(nullptr)
	{
		trz_open_params params = {};
		params.device = device;
		params.config = config;
		check(trz_open(&params, &handle_));
	}

	explicit heap(const trz_open_params &params) : heap_ref(nullptr) { check(trz_open(&params, &handle_)); }

	/* Takes over an open heap. */
	static heap adopt(trz_heap *handle) noexcept { return heap(handle); }

	heap(heap &&other) noexcept : heap_ref(other.release()) {}
	heap &operator=(heap &&other) noexcept
	{
		if (this != &other) {
			trz_close(handle_);
			handle_ = other.release();
		}
		return *this;
	}
	heap(const heap &) = delete;
	heap &operator=(const heap &) = delete;

	~heap() { trz_close(handle_); }

	/* Closes the heap now, and throws on errors, about which the destructor is silent. The heap is closed in any case,
	 * except in a host function of a stream, where it stays as it was. */
	void close()
	{
		trz_status status = trz_close(handle_);
		if (status != TRZ_ERROR_NOT_PERMITTED)
			release();
		check(status);
	}

	/* Gives up the heap, which stays open: the caller must close it. */
	trz_heap *release() noexcept { return std::exchange(handle_, nullptr); }

	explicit operator bool() const noexcept { return handle_; }

private:
	explicit heap(trz_heap *handle) noexcept : heap_ref(handle) {}
};

/* ---- buffers ------------------------------------------------------------------------------------------- */

/* Device memory that frees itself, in the order of a stream: that of its allocation, or the one set last. Waits for
 * nothing. The heap must outlive the buffer. */
class buffer {
public:
	buffer() noexcept = default;

	buffer(heap_ref heap, std::size_t size, trz_stream stream = nullptr, std::size_t alignment = 0)
		: heap_(heap), data_(heap.allocate(size, stream, alignment)), size_(size), stream_(stream)
	{
	}

	buffer(buffer &&other) noexcept
		: heap_(other.heap_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
		  stream_(other.stream_), moved_to_(std::exchange(other.moved_to_, false))
	{
	}

	buffer &operator=(buffer &&other) noexcept
	{
		buffer taken(std::move(other));
		swap(taken);
		return *this;
	}

	buffer(const buffer &) = delete;
	buffer &operator=(const buffer &) = delete;

	~buffer() { reset(); }

	void *data() const noexcept { return data_; }
	template <class T> T *as() const noexcept { return static_cast<T *>(data_); }
	std::size_t size() const noexcept { return size_; }
	bool empty() const noexcept { return size_ == 0; }
	heap_ref heap() const noexcept { return heap_; }

	/* The stream in whose order the buffer is freed. */
	trz_stream stream() const noexcept { return stream_; }

	/* From now on the buffer is freed in the order of this stream. The caller must order all earlier uses before what
	 * is enqueued there after the free (trz_free_on). */
	void set_stream(trz_stream stream) noexcept
	{
		stream_ = stream;
		moved_to_ = true;
	}

	/* A further stream uses the buffer: the free takes effect only when that stream has passed it, too. */
	void record_stream(trz_stream stream) const
	{
		if (data_)
			heap_.record_stream(data_, stream);
	}

	/* Grows the buffer in place; false: there is no room behind it, and nothing has changed. */
	bool grow(std::size_t size)
	{
		if (size <= size_)
			return true;
		if (!data_ || !heap_.grow(data_, size))
			return false;
		size_ = size;
		return true;
	}

	/* Frees the buffer now. */
	void reset() noexcept
	{
		if (data_)
			detail::freed(moved_to_ ? trz_free_on(heap_.get(), data_, stream_) : trz_free(heap_.get(), data_));
		forget();
	}

	/* Frees the buffer when the event has completed; from now on the event is the heap's (trz_free_after). */
	void free_after(trz_event event)
	{
		heap_.free_after(data_, event);
		forget();
	}

	/* Gives up the memory: the caller must free it. */
	void *release() noexcept
	{
		void *data = data_;
		forget();
		return data;
	}

	void swap(buffer &other) noexcept
	{
		std::swap(heap_, other.heap_);
		std::swap(data_, other.data_);
		std::swap(size_, other.size_);
		std::swap(stream_, other.stream_);
		std::swap(moved_to_, other.moved_to_);
	}
	friend void swap(buffer &a, buffer &b) noexcept { a.swap(b); }

private:
	void forget() noexcept
	{
		data_ = nullptr;
		size_ = 0;
		moved_to_ = false;
	}

	heap_ref heap_ = nullptr;
	void *data_ = nullptr;
	std::size_t size_ = 0;
	trz_stream stream_ = nullptr;
	bool moved_to_ = false;  /* stream_ is not the stream of the allocation, but one set since */
};

/* ---- pools --------------------------------------------------------------------------------------------- */

/* A private pool, and one reference to it. Its allocations are freed like all others, and outlive it. */
class pool {
public:
	explicit pool(heap_ref heap) : heap_(heap) { check(trz_pool_create(heap.get(), &handle_)); }

	pool(pool &&other) noexcept : heap_(other.heap_), handle_(std::exchange(other.handle_, nullptr)) {}
	pool &operator=(pool &&other) noexcept
	{
		std::swap(heap_, other.heap_);
		std::swap(handle_, other.handle_);
		return *this;
	}
	pool(const pool &) = delete;
	pool &operator=(const pool &) = delete;

	~pool()
	{
		if (handle_)
			trz_pool_release(heap_.get(), handle_);
	}

	trz_pool *get() const noexcept { return handle_; }
	heap_ref heap() const noexcept { return heap_; }

	void *allocate(std::size_t size, trz_stream stream = nullptr, std::size_t alignment = 0) const
	{
		void *memory;
		check(trz_pool_alloc(heap_.get(), handle_, size, alignment, stream, &memory));
		return memory;
	}

	trz_pool_info query() const
	{
		trz_pool_info info;
		check(trz_pool_query(heap_.get(), handle_, &info));
		return info;
	}

private:
	heap_ref heap_;
	trz_pool *handle_ = nullptr;
};

/* While this object lives, allocations go to a pool: those of this thread or, with a stream, those of the capture that
 * is about to begin there (trz_pool_begin, trz_pool_begin_capture). */
class pool_scope {
public:
	explicit pool_scope(const pool &to) : heap_(to.heap()), pool_(to.get())
	{
		check(trz_pool_begin(heap_.get(), pool_, nullptr, nullptr));
	}

	pool_scope(const pool &to, trz_stream captured) : heap_(to.heap()), pool_(to.get())
	{
		check(trz_pool_begin_capture(heap_.get(), pool_, captured));
	}

	pool_scope(const pool_scope &) = delete;
	pool_scope &operator=(const pool_scope &) = delete;

	~pool_scope() { trz_pool_end(heap_.get(), pool_); }

private:
	heap_ref heap_;
	trz_pool *pool_;
};

} // namespace terrazzo

#endif

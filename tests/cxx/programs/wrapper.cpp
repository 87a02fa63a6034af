/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo.hpp: ownership, moves and frees, and the types of errors. Needs no CUDA header.
 */
#include <terrazzo.hpp>

#include <cstring>
#include <type_traits>
#include <vector>

#include "check.hpp"

extern "C" int cuInit(unsigned flags);
extern "C" int cuDevicePrimaryCtxRetain(void **context, int device);
extern "C" int cuCtxSetCurrent(void *context);
extern "C" int cuStreamCreate(void **stream, unsigned flags);
extern "C" int cuEventCreate(void **event, unsigned flags);
extern "C" int cuEventRecord(void *event, void *stream);
extern "C" int cuStreamBeginCapture_v2(void *stream, int mode);
extern "C" int cuStreamEndCapture(void *stream, void **graph);

static const std::size_t MIB = 1 << 20;

static_assert(!std::is_copy_constructible_v<terrazzo::heap> && std::is_nothrow_move_constructible_v<terrazzo::heap>);
static_assert(!std::is_copy_constructible_v<terrazzo::buffer> && std::is_nothrow_move_assignable_v<terrazzo::buffer>);
static_assert(std::is_trivially_copyable_v<terrazzo::heap_ref>);

static void *new_stream()
{
	void *stream;
	CHECK(cuStreamCreate(&stream, 1) == 0);
	return stream;
}

static std::size_t live(terrazzo::heap_ref heap)
{
	return heap.statistic("allocation.all.current");
}

static void heaps_close_once()
{
	terrazzo::heap first;
	trz_heap *handle = first.get();
	terrazzo::heap second(std::move(first));
	CHECK(!first && second.get() == handle);
	terrazzo::heap third(0, "small_limit:16KiB");
	third = std::move(second);
	CHECK(third.get() == handle && !second);
	terrazzo::heap fourth = terrazzo::heap::adopt(third.release());
	fourth.close();
	CHECK(!fourth);
	CHECK(throws<terrazzo::invalid_use>([] { terrazzo::heap wrong(0, "no_such_key:1"); }));
	CHECK(throws<terrazzo::error>([] { terrazzo::heap wrong(99); }));
}

static void errors_have_types()
{
	terrazzo::heap heap;
	CHECK(throws<std::bad_alloc>([&] { heap.allocate(std::size_t(1) << 46); }));
	CHECK(throws<terrazzo::out_of_memory>([&] { heap.allocate(std::size_t(1) << 46); }));
	CHECK(throws<std::invalid_argument>([&] { heap.allocate(1, nullptr, 3); }));
	heap.set_limit(MIB);
	CHECK(heap.limit() == MIB);
	CHECK(throws<terrazzo::limit_reached>([&] { heap.allocate(64 * MIB); }));
	heap.set_limit(0);
	void *memory = heap.allocate(MIB);
	heap.free(memory);
	try {
		heap.free(memory);
		CHECK(false);
	} catch (const terrazzo::failure &failed) {
		CHECK(failed.status() == TRZ_ERROR_DOUBLE_FREE);
		CHECK(std::strncmp(failed.message(), "TRZ_ERROR_DOUBLE_FREE: ", 23) == 0);
	}
	try {
		heap.free(&heap);
		CHECK(false);
	} catch (const std::exception &failed) {
		CHECK(std::strncmp(failed.what(), "TRZ_ERROR_UNKNOWN_POINTER: ", 27) == 0);
	}
	void *stream = new_stream(), *graph;
	CHECK(cuStreamBeginCapture_v2(stream, 2) == 0);
	CHECK(throws<terrazzo::capture_error>([&] { heap.allocate(MIB, stream); }));
	CHECK(cuStreamEndCapture(stream, &graph) == 0);
}

static void buffers_free_themselves()
{
	terrazzo::heap heap;
	void *stream = new_stream();
	{
		terrazzo::buffer one(heap, 3 * MIB, stream);
		CHECK(one.data() && one.size() == 3 * MIB && one.stream() == stream && one.heap() == heap);
		CHECK(heap.query(one.as<char>() + 1)->base == one.data());
		terrazzo::buffer two(std::move(one));
		CHECK(one.empty() && !one.data() && two.size() == 3 * MIB);
		terrazzo::buffer three(heap, 100);
		three = std::move(two);
		CHECK(live(heap) == 1 && three.size() == 3 * MIB);
		std::vector<terrazzo::buffer> many;
		for (int i = 1; i <= 20; i++)
			many.emplace_back(heap, i * 1000, stream, 1024);
		CHECK(live(heap) == 21);
		CHECK(reinterpret_cast<std::uintptr_t>(many[7].data()) % 1024 == 0);
		many.erase(many.begin() + 3);
		CHECK(live(heap) == 20);
		swap(many[0], three);
		CHECK(many[0].size() == 3 * MIB && three.size() == 1000);
	}
	CHECK(live(heap) == 0);
	terrazzo::buffer none(heap, 0);
	CHECK(none.empty() && !none.data());
	terrazzo::buffer kept(heap, 5);
	void *memory = kept.release();
	CHECK(!kept.data() && live(heap) == 1);
	heap.free(memory);
	CHECK(!heap.query(memory));
}

static void frees_are_in_the_order_of_streams()
{
	terrazzo::heap heap;
	void *first = new_stream(), *second = new_stream(), *event;
	terrazzo::buffer buffer(heap, 40 * MIB, first);
	void *memory = buffer.data();
	buffer.set_stream(second);
	buffer.reset();
	terrazzo::buffer again(heap, 40 * MIB, second);
	CHECK(again.data() == memory);
	again.record_stream(first);
	again.reset();
	CHECK(cuEventCreate(&event, 2) == 0 && cuEventRecord(event, second) == 0);
	terrazzo::buffer last(heap, 8 * MIB, second);
	last.free_after(event);
	CHECK(last.empty() && live(heap) == 0);
	terrazzo::buffer grown(heap, 4 * MIB, second);
	CHECK(grown.grow(5 * MIB) && grown.size() == 5 * MIB && grown.grow(1) && grown.size() == 5 * MIB);
	heap.retire(first);
	heap.retire(second);
}

static void pools_serve_their_scope()
{
	terrazzo::heap heap;
	terrazzo::pool pool(heap);
	void *direct = pool.allocate(MIB), *diverted, *outside;
	{
		terrazzo::pool_scope scope(pool);
		diverted = heap.allocate(MIB);
	}
	outside = heap.allocate(MIB);
	CHECK(pool.query().allocations == 2 && pool.query().references == 1);
	for (void *memory : {direct, diverted, outside})
		heap.free(memory);
	terrazzo::pool moved(std::move(pool));
	CHECK(!pool.get() && moved.query().allocations == 0);
	void *stream = new_stream(), *graph, *captured;
	{
		terrazzo::pool_scope scope(moved, stream);
		CHECK(cuStreamBeginCapture_v2(stream, 2) == 0);
		captured = heap.allocate(MIB, stream);
		CHECK(cuStreamEndCapture(stream, &graph) == 0);
	}
	CHECK(moved.query().pinned && moved.query().allocations == 1);
	heap.free(captured);
}

static void the_rest_answers()
{
	terrazzo::heap heap;
	void *memory = heap.allocate(10 * MIB);
	CHECK(heap.largest_block() > 10 * MIB);
	CHECK(heap.report().find("allocated") != std::string::npos);
	heap.free(memory);
	heap.poll();
	heap.step();
	CHECK(heap.trim() >= 10 * MIB);
	CHECK(throws<terrazzo::error>([&] { heap.statistic("no.such.name"); }));
	CHECK(throws<terrazzo::error>([&] { heap.enable_peer(7); }));
	CHECK(terrazzo::heap_ref(heap) == heap && terrazzo::heap_ref(heap) != nullptr);
}

int main()
{
	void *context;
	CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0);
	heaps_close_once();
	errors_have_types();
	buffers_free_themselves();
	frees_are_in_the_order_of_streams();
	pools_serve_their_scope();
	the_rest_answers();
	return all_checked();
}

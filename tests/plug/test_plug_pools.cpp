/* SPDX-License-Identifier: Apache-2.0
 *
 * Diversions of captures that a call has broken: PyTorch before 2.14 leaves them behind, with a reference to the pool.
 * The look-alike libraries stand for the driver; a filter that is told what the driver would say stands for PyTorch's.
 */
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "torch/plug_pools.hpp"

static const trz_torch_pool_id id = {7, 0};
static trz_stream const stream = reinterpret_cast<trz_stream>(2);  /* each thread's own */
static bool captured;

static void use_memory()
{
	trz_torch_free(trz_torch_alloc(1 << 20, 0, stream), 1 << 20, 0, stream);
}

#define EXPECT(holds)                                                                                          \
	do {                                                                                                       \
		if (!(holds)) {                                                                                        \
			fprintf(stderr, "%s:%d: %s does not hold\n", __func__, __LINE__, #holds);                          \
			exit(1);                                                                                           \
		}                                                                                                      \
	} while (0)

/* Begins as PyTorch does, and allocates once, if wanted. */
static void begin(bool allocates)
{
	captured = false;
	trz_torch_begin_allocate_to_pool(0, id, [](trz_stream) { return captured; });
	captured = true;
	if (allocates)
		use_memory();
}

static unsigned references()
{
	return trz_torch_pool_references(0, id);
}

static bool end_broken()
{
	int device = -1;
	trz_torch_pool_id ended = {0, 0};
	bool any = trz_torch_pool_end_broken(&device, &ended);
	EXPECT(!any || (device == 0 && ended.first == id.first && ended.second == id.second));
	return any;
}

static void a_capture_under_way_goes_on()
{
	begin(true);
	EXPECT(!end_broken());
	EXPECT(references() == 1);
	trz_torch_end_allocate_to_pool(0, id);
	captured = false;
	EXPECT(!end_broken());
	EXPECT(references() == 1);
	trz_torch_release_pool(0, id);
	EXPECT(references() == 0);
}

static void a_capture_that_is_about_to_begin_goes_on()
{
	begin(false);
	captured = false;
	EXPECT(!end_broken());
	EXPECT(references() == 1);
	trz_torch_end_allocate_to_pool(0, id);
	trz_torch_release_pool(0, id);
}

static void a_broken_one_ends_and_its_pool_with_it()
{
	begin(true);
	captured = false;
	EXPECT(end_broken());
	EXPECT(references() == 0);
	EXPECT(!end_broken());
	EXPECT(trz_torch_pool_end(0, id) == TRZ_ERROR_NOT_FOUND);
}

/* Between the end of a capture and that of its diversion another thread may come by. */
static void only_its_own_ends_it()
{
	begin(true);
	captured = false;
	bool any = true;
	std::thread other([&any] { any = end_broken(); });
	other.join();
	EXPECT(!any);
	EXPECT(references() == 1);
	EXPECT(end_broken());
}

static void other_graphs_of_the_pool_keep_it()
{
	EXPECT(trz_torch_pool_open(0, id) == TRZ_OK);
	begin(true);
	captured = false;
	EXPECT(references() == 2);
	EXPECT(end_broken());
	EXPECT(references() == 1);
	EXPECT(trz_torch_pool_close(0, id) == TRZ_OK);
}

static void the_diversion_of_a_thread_stays()
{
	auto own = std::this_thread::get_id();
	trz_torch_begin_allocate_to_pool(0, id, [own](trz_stream) { return own == std::this_thread::get_id(); });
	use_memory();
	EXPECT(!end_broken());
	trz_torch_end_allocate_to_pool(0, id);
	trz_torch_release_pool(0, id);
}

static void the_hooks_do_so_when_they_are_told()
{
	begin(true);
	captured = false;
	trz_torch_reset();
	EXPECT(references() == 1);
	trz_torch_watch_captures();
	trz_torch_reset();
	EXPECT(references() == 0);
	begin(true);
	begin(true);  /* ends the one before */
	EXPECT(references() == 1);
	captured = false;
	trz_torch_reset();
	EXPECT(references() == 0);
}

int main()
{
	a_capture_under_way_goes_on();
	a_capture_that_is_about_to_begin_goes_on();
	a_broken_one_ends_and_its_pool_with_it();
	only_its_own_ends_it();
	other_graphs_of_the_pool_keep_it();
	the_diversion_of_a_thread_stays();
	the_hooks_do_so_when_they_are_told();
	return 0;
}

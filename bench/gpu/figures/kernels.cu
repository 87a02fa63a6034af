/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of bench/gpu/figures. The build needs no CUDA toolkit: it embeds kernels.ptx, which is this file, compiled:
 *
 *     nvcc -ptx -arch=compute_90 -O3 -o bench/gpu/figures/kernels.ptx bench/gpu/figures/kernels.cu
 *
 * with its version lowered to 8.0, CUDA 12.0's, for older drivers, and without the compiler's comment.
 *
 * Words are 32 bits wide. What word i holds in round `seed` is pattern(i, seed), so that a reader can tell a word of the
 * round before (stale) from one that was never written (wrong).
 */
#include <stdint.h>

typedef unsigned long long count_t;

__device__ __forceinline__ uint32_t pattern(uint64_t i, uint32_t seed)
{
	return (uint32_t)i * 2654435761u + seed * 0x9e3779b9u;
}

__device__ __forceinline__ uint64_t global_thread()
{
	return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ uint64_t all_threads()
{
	return (uint64_t)gridDim.x * blockDim.x;
}

__device__ __forceinline__ uint64_t timer_ns()
{
	uint64_t ns;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

__device__ __forceinline__ void spin_for(uint64_t ns)
{
	for (uint64_t begin = timer_ns(); timer_ns() - begin < ns;)
		;
}

/* ---- time ---------------------------------------------------------------------------------------------- */

/* Runs for `ns`, and touches *word all along. */
extern "C" __global__ void spin(volatile uint32_t *word, uint64_t ns)
{
	for (uint64_t begin = timer_ns(); timer_ns() - begin < ns;)
		*word = *word + 1;
}

/* ---- bandwidth: `count`, of units of 16 bytes or of reads, is a multiple of 4 times the threads ----------------- */

__device__ __forceinline__ uint4 pattern4(uint64_t i, uint32_t seed)
{
	return make_uint4(pattern(4 * i, seed), pattern(4 * i + 1, seed), pattern(4 * i + 2, seed),
	                  pattern(4 * i + 3, seed));
}

extern "C" __global__ void write_all(uint4 *to, uint64_t count, uint32_t seed)
{
	for (uint64_t i = global_thread(); i < count; i += all_threads())
		to[i] = pattern4(i, seed);
}

__device__ __forceinline__ count_t sum4(uint4 v)
{
	return (count_t)v.x + v.y + v.z + v.w;
}

__device__ __forceinline__ void add_to(count_t *total, count_t sum)
{
	for (int lane = 16; lane; lane /= 2)
		sum += __shfl_down_sync(0xffffffffu, sum, lane);
	if (threadIdx.x % 32 == 0)
		atomicAdd(total, sum);
}

extern "C" __global__ void read_all(const uint4 *from, uint64_t count, count_t *total)
{
	const uint64_t step = all_threads();
	count_t sum = 0;
	for (uint64_t i = global_thread(); i < count; i += 4 * step) {
		uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
		sum += sum4(a) + sum4(b) + sum4(c) + sum4(d);
	}
	add_to(total, sum);
}

extern "C" __global__ void copy_all(uint4 *to, const uint4 *from, uint64_t count)
{
	const uint64_t step = all_threads();
	for (uint64_t i = global_thread(); i < count; i += 4 * step) {
		uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
		to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;
	}
}

/* Lanes of a warp, and steps of a thread, each in another 2 MiB: one word of each 128 bytes, so a sector of 32. */
extern "C" __global__ void stride_all(const char *from, uint64_t pages, uint64_t count, count_t *total)
{
	const uint64_t page = 2 << 20, step = all_threads();
	const uint32_t lines = page / 128;
	count_t sum = 0;
	for (uint64_t i = global_thread(); i < count; i += 4 * step)
#pragma unroll
		for (int k = 0; k < 4; k++) {
			uint32_t n = (uint32_t)(i + k * step), at = n % (uint32_t)pages;
			uint32_t line = (n / (uint32_t)pages + at * 37) % lines;
			sum += *(const uint32_t *)(from + at * page + line * 128);
		}
	add_to(total, sum);
}

__device__ __forceinline__ uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull;
	x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44dull;
	return x ^ (x >> 33);
}

/* Sectors of 32 bytes at random places among `sectors`, a pair of threads for each. */
extern "C" __global__ void gather_all(const uint4 *from, uint64_t sectors, uint64_t count, count_t *total)
{
	const uint64_t step = all_threads();
	count_t sum = 0;
	for (uint64_t i = global_thread(); i < count; i += 4 * step)
#pragma unroll
		for (int k = 0; k < 4; k++) {
			uint64_t n = i + k * step;
			sum += sum4(from[2 * ((mix(n / 2) >> 32) * sectors >> 32) + n % 2]);
		}
	add_to(total, sum);
}

/* ---- aliases --------------------------------------------------------------------------------------------- */

/* What a thread has found; added up once at the end, since there may be millions. */
struct found {
	count_t stale, wrong;
};

__device__ __forceinline__ void look_at(struct found *f, uint32_t word, uint64_t i, uint32_t seed)
{
	f->stale += word == pattern(i, seed - 1);
	f->wrong += word != pattern(i, seed) && word != pattern(i, seed - 1);
}

__device__ __forceinline__ void tell(count_t *counters, const struct found *f)
{
	if (f->stale)
		atomicAdd(&counters[0], f->stale);
	if (f->wrong)
		atomicAdd(&counters[1], f->wrong);
}

/* Waits for `ns` before it writes, so that what follows too early is seen. */
extern "C" __global__ void write_late(uint32_t *to, uint64_t words, uint32_t seed, uint64_t ns)
{
	spin_for(ns);
	for (uint64_t i = global_thread(); i < words; i += all_threads())
		to[i] = pattern(i, seed);
}

/* The same, but lets the dependent launch begin first. */
extern "C" __global__ void write_late_trigger(uint32_t *to, uint64_t words, uint32_t seed, uint64_t ns)
{
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
	spin_for(ns);
	for (uint64_t i = global_thread(); i < words; i += all_threads())
		to[i] = pattern(i, seed);
}

/* Counts words that differ from the round's, by ordinary loads, which the first-level cache may serve. */
__device__ __forceinline__ void check_words(const uint32_t *from, uint64_t words, uint32_t seed, count_t *counters)
{
	struct found f = {0, 0};
	for (uint64_t i = global_thread(); i < words; i += all_threads()) {
		uint32_t word;
		asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(&from[i]) : "memory");
		look_at(&f, word, i, seed);
	}
	tell(counters, &f);
}

extern "C" __global__ void check(const uint32_t *from, uint64_t words, uint32_t seed, count_t *counters)
{
	check_words(from, words, seed, counters);
}

/* A dependent launch that waits for its predecessor. */
extern "C" __global__ void check_waits(const uint32_t *from, uint64_t words, uint32_t seed, count_t *counters)
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
	check_words(from, words, seed, counters);
}

/* One that has read everything before it waits. counters[2] and [3]: what it read then, so whether it did begin early. */
extern "C" __global__ void check_reads_waits(const uint32_t *from, uint64_t words, uint32_t seed, count_t *counters)
{
	check_words(from, words, seed, counters + 2);
	asm volatile("griddepcontrol.wait;" ::: "memory");
	check_words(from, words, seed, counters);
}

enum { NO_FENCE, FENCE, ALIAS_FENCE };

template <int fence>
__device__ __forceinline__ void order()
{
	if (fence == FENCE)
		__threadfence();
	if (fence == ALIAS_FENCE)
		asm volatile("fence.proxy.alias;" ::: "memory");
}

/* Each thread reads its words through one address, writes through the other, and reads again. Only a fence between two
 * accesses orders them, if they are by two addresses: so there is one on either side of the write. counters[3]: words
 * that the first read saw as they were only written after it. */
template <int fence>
__device__ __forceinline__ void within(uint32_t *write, uint32_t *read, uint64_t words, uint32_t seed, count_t *counters)
{
	struct found early = {0, 0}, f = {0, 0};
	for (uint64_t i = global_thread(); i < words; i += all_threads()) {
		uint32_t old, word;
		asm volatile("ld.global.u32 %0, [%1];" : "=r"(old) : "l"(&read[i]) : "memory");
		order<fence>();
		asm volatile("st.global.u32 [%0], %1;" ::"l"(&write[i]), "r"(pattern(i, seed)) : "memory");
		order<fence>();
		asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(&read[i]) : "memory");
		look_at(&f, word, i, seed);
		early.wrong += old != pattern(i, seed - 1);
	}
	tell(counters, &f);
	tell(counters + 2, &early);
}

extern "C" __global__ void within_kernel(uint32_t *write, uint32_t *read, uint64_t words, uint32_t seed, count_t *counters)
{
	within<NO_FENCE>(write, read, words, seed, counters);
}

extern "C" __global__ void within_fence(uint32_t *write, uint32_t *read, uint64_t words, uint32_t seed, count_t *counters)
{
	within<FENCE>(write, read, words, seed, counters);
}

extern "C" __global__ void within_alias_fence(uint32_t *write, uint32_t *read, uint64_t words, uint32_t seed,
                                              count_t *counters)
{
	within<ALIAS_FENCE>(write, read, words, seed, counters);
}

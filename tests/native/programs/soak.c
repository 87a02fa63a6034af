/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that allocate and free at random, in all ways: soak OPERATIONS THREADS SEED; OPERATIONS are for each thread.
 * In the end nothing is allocated, and the host holds no more memory than after a tenth of the operations.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "cuda_calls.h"

enum { MOST_THREADS = 64, HELD = 64 };

int cudaMallocAsync(void **ptr, size_t size, void *stream);
int cudaFreeAsync(void *ptr, void *stream);

static long operations;
static pthread_barrier_t tenth, go_on;

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Mostly small, at times large. */
static size_t any_size(uint64_t *state)
{
	uint64_t r = next(state);
	return 1 + (r >> 8) % ((size_t)1 << (6 + r % 256 % (r % 64 ? 12 : 18)));
}

struct block {
	void *ptr;
	bool async;
};

static void give(struct block *b, void *stream, uint64_t *state)
{
	if (b->ptr && (b->async || next(state) % 2))
		MUST(cudaFreeAsync(b->ptr, stream));
	else
		MUST(cudaFree(b->ptr));
	b->ptr = NULL;
}

static void *work(void *seed)
{
	uint64_t state = (uintptr_t)seed * 0x9e3779b97f4a7c15u + 1;
	struct block held[HELD] = {0};
	void *stream;
	MUST(cudaSetDevice(0));
	MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
	for (long i = 0; i < operations; i++) {
		struct block *b = &held[next(&state) % HELD];
		if (i == operations / 10) {
			pthread_barrier_wait(&tenth);
			pthread_barrier_wait(&go_on);
		}
		if (b->ptr) {
			give(b, stream, &state);
			continue;
		}
		b->async = next(&state) % 4 != 0;
		MUST(b->async ? cudaMallocAsync(&b->ptr, any_size(&state), stream) : cudaMalloc(&b->ptr, any_size(&state)));
	}
	for (int i = 0; i < HELD; i++)
		give(&held[i], stream, &state);
	MUST(cudaStreamDestroy(stream));
	return NULL;
}

static size_t host_memory(void)
{
	size_t kib = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "r");
	CHECK(f);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "RssAnon: %zu", &kib) == 1)
			break;
	fclose(f);
	return kib * 1024;
}

int main(int count, char **arguments)
{
	pthread_t threads[MOST_THREADS];
	size_t unused, total, later, early_host;
	CHECK(count == 4);
	const int thread_count = atoi(arguments[2]);
	CHECK(thread_count > 0 && thread_count <= MOST_THREADS);
	operations = atol(arguments[1]) / thread_count;
	pthread_barrier_init(&tenth, NULL, (unsigned)thread_count + 1);
	pthread_barrier_init(&go_on, NULL, (unsigned)thread_count + 1);
	MUST(cudaFree(NULL));
	MUST(cudaMemGetInfo(&unused, &total));
	for (int i = 0; i < thread_count; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)(atoi(arguments[3]) * 100 + i)) == 0);
	pthread_barrier_wait(&tenth);
	early_host = host_memory();
	pthread_barrier_wait(&go_on);
	for (int i = 0; i < thread_count; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	MUST(cudaDeviceSynchronize());
	MUST(cudaMemGetInfo(&later, &total));
	CHECK(later + 32 * MIB >= unused);
	printf("host memory: %zu KiB after a tenth, %zu KiB at the end\n", early_host / KIB, host_memory() / KIB);
	CHECK(host_memory() <= early_host + early_host / 4 + 8 * MIB);
	puts("all right");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that have little more stack than the system demands allocate, free and run out of memory. The argument is how
 * much more, in KiB.
 */
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "cuda_calls.h"

int cudaMallocAsync(void **ptr, size_t size, void *stream);
int cudaFreeAsync(void *ptr, void *stream);

enum { PIECES = 240, CLASSES = 14 };

static size_t size_of(int piece)
{
	return (size_t)(piece % 7 + 1) << (6 + piece % CLASSES);
}

static void *allocate(void *unused)
{
	void *at_once[PIECES], *in_order[PIECES];
	size_t left, total;
	for (int i = 0; i < PIECES; i++) {
		MUST(cudaMalloc(&at_once[i], size_of(i)));
		MUST(cudaMallocAsync(&in_order[i], size_of(PIECES - i), NULL));
	}
	for (int i = 0; i < PIECES; i += 2)
		MUST(cudaFree(at_once[i]));
	for (int i = 0; i < PIECES; i += 2)  /* longer ones, which take what lies scattered */
		MUST(cudaMalloc(&at_once[i], 3 * size_of(i)));
	MUST(cudaMemGetInfo(&left, &total));
	for (int i = 0; i < PIECES; i++) {
		MUST(cudaFreeAsync(in_order[i], NULL));
		MUST(cudaFree(at_once[i]));
	}
	return unused;
}

static void *fail(void *unused)
{
	size_t left, total;
	void *half, *p;
	MUST(cudaMemGetInfo(&left, &total));
	MUST(cudaMalloc(&half, total / 2));
	GIVES(OUT_OF_MEMORY, cudaMalloc(&p, total / 4 * 3));
	GIVES(OUT_OF_MEMORY, cudaMallocAsync(&p, total / 4 * 3, NULL));
	GIVES(OUT_OF_MEMORY, cudaGetLastError());
	MUST(cudaFree(half));
	return unused;
}

static void run(void *(*work)(void *), size_t more)
{
	pthread_attr_t attributes;
	pthread_t thread;
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN + more) == 0);
	CHECK(pthread_create(&thread, &attributes, work, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	pthread_attr_destroy(&attributes);
}

int main(int count, char **arguments)
{
	CHECK(count == 2);
	size_t more = (size_t)atoi(arguments[1]) * KIB;
	run(allocate, more);  /* the process's first calls of CUDA: they open the heap */
	run(fail, more);
	for (int i = 0; i < 3; i++)
		run(allocate, more);
	run(fail, more);
	puts("all right");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that are cancelled while they are inside CUDA's calls, and at any moment: the others go on.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "cuda_calls.h"

int cudaMallocAsync(void **ptr, size_t size, void *stream);
int cudaFreeAsync(void *ptr, void *stream);

enum { THREADS = 60 };

static void *call_cancelled(void *returned)
{
	void *p, *q;
	size_t left, total;
	pthread_cancel(pthread_self());
	MUST(cudaMalloc(&p, 40 * MIB));
	MUST(cudaMallocAsync(&q, MIB, NULL));
	MUST(cudaMemGetInfo(&left, &total));
	GIVES(OUT_OF_MEMORY, cudaMalloc(&(void *){0}, 2 * total));
	MUST(cudaFreeAsync(q, NULL));
	MUST(cudaFree(p));
	*(bool *)returned = true;
	pthread_testcancel();
	return NULL;
}

/* What it holds when it ends is lost, as it would be without terrazzo; at most two pieces. */
static void *allocate_for_ever(void *unused)
{
	for (size_t i = 0;; i++) {
		void *p, *q;
		MUST(cudaMalloc(&p, (i % 9 + 1) * MIB));
		MUST(cudaMallocAsync(&q, (i % 13 + 1) * 100 * KIB, NULL));
		MUST(cudaFree(p));
		MUST(cudaFreeAsync(q, NULL));
		pthread_testcancel();
	}
	return unused;
}

int main(void)
{
	pthread_t thread, other;
	void *result;
	for (int i = 0; i < 2; i++) {
		bool returned = false;
		CHECK(pthread_create(&thread, NULL, call_cancelled, &returned) == 0);
		CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && returned);
	}
	CHECK(pthread_create(&other, NULL, allocate_for_ever, NULL) == 0);
	for (unsigned i = 0; i < THREADS; i++) {
		CHECK(pthread_create(&thread, NULL, allocate_for_ever, NULL) == 0);
		usleep(i * 37 % 1000);
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	}
	CHECK(pthread_cancel(other) == 0 && pthread_join(other, &result) == 0);
	MUST(cudaDeviceReset());
	puts("all right");
	return 0;
}

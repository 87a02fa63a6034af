/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps memory, and asks for more than there is, in functions of its own that the dynamic linker does not know: what a
 * failure's report calls the places that hold memory, and the one that asked.
 */
#include "cuda_calls.h"

int cudaMallocAsync(void **ptr, size_t size, void *stream);
int cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height);

#define OWN __attribute__((noinline)) static

/* All of the program's memory comes through it. */
OWN void *takes(size_t size)
{
	void *ptr = NULL;
	GIVES(0, cudaMalloc(&ptr, size));
	return ptr;
}

OWN void keeps_weights(void)
{
	GIVES(0, takes((size_t)1 << 30) == NULL);
}

OWN void keeps_cache(void)
{
	GIVES(0, takes((size_t)2 << 30) == NULL);
}

OWN void asks_at_once(void)
{
	void *ptr;
	GIVES(OUT_OF_MEMORY, cudaMalloc(&ptr, (size_t)1 << 44));
}

OWN void asks_in_order(void)
{
	void *ptr;
	GIVES(OUT_OF_MEMORY, cudaMallocAsync(&ptr, (size_t)1 << 43, NULL));
}

OWN void asks_for_rows(void)
{
	void *ptr;
	size_t pitch;
	GIVES(OUT_OF_MEMORY, cudaMallocPitch(&ptr, &pitch, (size_t)1 << 21, (size_t)1 << 21));
}

int main(void)
{
	keeps_weights();
	keeps_cache();
	asks_at_once();
	asks_in_order();
	asks_for_rows();
	puts("all right");
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A cache that lives within a budget: the heap has a limit, and asks the program to free something before a request
 * fails. Needs none of CUDA's headers.
 */
#include <stdio.h>
#include <terrazzo.h>

enum { ENTRIES = 64 };

struct cache {
	trz_heap *heap;
	void *entries[ENTRIES];
	unsigned oldest, count, dropped;
};

/* Frees the oldest half of the cache; the heap then tries the request once more. */
static bool give_up_half(void *user, const trz_oom_info *info)
{
	struct cache *cache = user;
	unsigned half = (cache->count + 1) / 2;
	(void)info;
	for (unsigned i = 0; i < half; i++) {
		trz_free(cache->heap, cache->entries[cache->oldest % ENTRIES]);
		cache->oldest++;
	}
	cache->count -= half;
	cache->dropped += half;
	return half > 0;
}

static trz_status add(struct cache *cache, size_t bytes)
{
	void *entry;
	trz_status status = trz_alloc(cache->heap, bytes, 0, NULL, &entry);
	if (status == TRZ_OK)
		cache->entries[(cache->oldest + cache->count++) % ENTRIES] = entry;
	return status;
}

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, trz_last_error());
	return 1;
}

int main(void)
{
	struct cache cache = {0};
	uint64_t reserved;
	if (trz_open(&(trz_open_params){.config = "oom_report:off"}, &cache.heap) != TRZ_OK)
		return fail("no heap");
	trz_set_limit(cache.heap, 256 << 20);
	trz_set_oom_callback(cache.heap, give_up_half, &cache);
	for (unsigned i = 0; i < 200; i++) {
		if (cache.count == ENTRIES)
			give_up_half(&cache, NULL);
		if (add(&cache, (size_t)(1 + i % 7) << 20) != TRZ_OK)
			return fail("an entry does not fit");
	}
	trz_stat(cache.heap, "reserved_bytes.all.peak", &reserved);
	printf("200 entries added, %u dropped to stay within 256 MiB; at most %llu MiB reserved\n", cache.dropped,
	       (unsigned long long)(reserved >> 20));
	return trz_close(cache.heap) == TRZ_OK ? 0 : fail("closing");
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a fuzz harness a program without libFuzzer: a main() that runs it over every file of a folder, and over cuts
 * and bit flips of each.
 */
#ifndef TRZ_TESTS_CORPUS_MAIN_H
#define TRZ_TESTS_CORPUS_MAIN_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef TRZ_LIBFUZZER

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prng.h"

enum { CORPUS_MUTATIONS = 200 };

/* In a heap copy of exactly its size, so that a sanitizer sees reads beyond it. */
static void corpus_try(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);
	if (!copy)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void corpus_mutate(uint8_t *data, size_t size, uint64_t seed)
{
	for (int i = 0; i < CORPUS_MUTATIONS && size > 0; i++) {
		size_t at = prng_below(&seed, size);
		uint8_t old = data[at];
		data[at] = (uint8_t)(prng_below(&seed, 2) ? old ^ 1u << prng_below(&seed, 8) : prng_next(&seed));
		corpus_try(data, size);
		data[at] = old;
		corpus_try(data, prng_below(&seed, size));
	}
}

static int corpus_file(const char *path)
{
	static uint8_t data[1 << 20];
	FILE *from = fopen(path, "rb");
	if (!from) {
		perror(path);
		return 1;
	}
	size_t size = fread(data, 1, sizeof data, from);
	fclose(from);
	corpus_try(data, size);
	corpus_mutate(data, size, size);
	return 0;
}

int main(int argc, char **argv)
{
	struct dirent **entries;
	int count = argc == 2 ? scandir(argv[1], &entries, NULL, alphasort) : -1;
	if (count < 0) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	int failures = 0, files = 0;
	for (int i = 0; i < count; i++) {
		char path[4096];
		snprintf(path, sizeof path, "%s/%s", argv[1], entries[i]->d_name);
		if (entries[i]->d_name[0] != '.') {
			failures += corpus_file(path);
			files++;
		}
		free(entries[i]);
	}
	free(entries);
	printf("%d files, each with %d cuts and flips\n", files, 2 * CORPUS_MUTATIONS);
	return failures > 0 || files == 0;
}

#endif
#endif

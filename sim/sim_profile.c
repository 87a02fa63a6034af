/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the compiled-in profiles.ini, once. The file is the project's own, so an error in it is a bug.
 */
#include "sim_profile.h"

#include <ini.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bits.h"

__asm__(".pushsection .rodata\n"
        ".globl sim_profiles_ini\n"
        ".hidden sim_profiles_ini\n"
        "sim_profiles_ini: .incbin \"profiles.ini\"\n"
        ".byte 0\n"
        ".popsection\n");

#pragma GCC visibility push(hidden)
extern const char sim_profiles_ini[];
#pragma GCC visibility pop

enum { MOST_PROFILES = 32 };

static struct {
	struct sim_profile profile[MOST_PROFILES];
	size_t count;
	pthread_once_t once;
} shipped = {.once = PTHREAD_ONCE_INIT};

static struct sim_profile *section_of(const char *name)
{
	struct sim_profile *last = shipped.count ? &shipped.profile[shipped.count - 1] : NULL;
	if (last && strcmp(last->name, name) == 0)
		return last;
	if (shipped.count == MOST_PROFILES)
		return NULL;
	last = &shipped.profile[shipped.count++];
	snprintf(last->name, sizeof last->name, "%s", name);
	return last;
}

static int read_entry(void *user, const char *section, const char *name, const char *value)
{
	(void)user;
	struct sim_profile *p = section_of(section);
	if (!p)
		return 0;
	if (strcmp(name, "title") == 0)
		return snprintf(p->title, sizeof p->title, "%s", value) > 0;
	if (strcmp(name, "compute") == 0)
		return sscanf(value, "%u.%u", &p->compute_major, &p->compute_minor) == 2;
	char *end;
	unsigned long number = strtoul(value, &end, 10);
	const struct {
		const char *name;
		uint64_t *bytes;
		uint64_t unit;
		unsigned *number;
	} keys[] = {
		{"mib", &p->memory_bytes, MIB(1), NULL}, {"overhead_mib", &p->overhead_bytes, MIB(1), NULL},
		{"shared_kib", &p->shared_bytes, KIB(1), NULL}, {"l2_mib", &p->l2_bytes, MIB(1), NULL},
		{"nccl_peer_mib", &p->nccl_peer_bytes, MIB(1), NULL},
		{"nccl_collective_mib", &p->nccl_collective_bytes, MIB(1), NULL},
		{"sms", NULL, 0, &p->sms}, {"threads", NULL, 0, &p->threads}, {"blocks", NULL, 0, &p->blocks},
		{"bus_bits", NULL, 0, &p->bus_bits}, {"memory_mhz", NULL, 0, &p->memory_mhz},
		{"clock_mhz", NULL, 0, &p->clock_mhz}, {"pcie", NULL, 0, &p->pcie},
	};
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		if (strcmp(name, keys[i].name) != 0)
			continue;
		if (keys[i].bytes)
			*keys[i].bytes = number * keys[i].unit;
		else
			*keys[i].number = (unsigned)number;
		return *end == '\0' && number > 0;
	}
	return 0;
}

static int by_memory(const void *a, const void *b)
{
	const struct sim_profile *p = a, *q = b;
	return (p->memory_bytes > q->memory_bytes) - (p->memory_bytes < q->memory_bytes);
}

static void read_shipped(void)
{
	int line = ini_parse_string(sim_profiles_ini, read_entry, NULL);
	if (line != 0) {
		fprintf(stderr, "sim: profiles.ini:%d: neither a known key nor a number\n", line);
		abort();
	}
	qsort(shipped.profile, shipped.count, sizeof shipped.profile[0], by_memory);
}

const struct sim_profile *sim_profile_at(size_t i)
{
	pthread_once(&shipped.once, read_shipped);
	return i < shipped.count ? &shipped.profile[i] : NULL;
}

const struct sim_profile *sim_profile_find(const char *name)
{
	const struct sim_profile *p;
	for (size_t i = 0; (p = sim_profile_at(i)); i++)
		if (strcasecmp(p->name, name) == 0)
			return p;
	return NULL;
}

/* Two transfers per clock. */
uint64_t sim_profile_memory_rate(const struct sim_profile *p)
{
	return (uint64_t)p->bus_bits / 8 * p->memory_mhz * 2;
}

/* 8 GT/s per lane in the third generation, twice as much in each later one; 128 of 130 bits are payload. */
uint64_t sim_profile_link_rate(const struct sim_profile *p)
{
	const uint64_t third = 16 * 8000 / 8 * 128 / 130;
	return third << (p->pcie - 3);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's figures, kept in DIR/<pid>.live, so that they survive even if the process ends without a report, by a
 * signal or _exit. The report, DIR/<pid>.json, says where each figure is.
 */
#include "driver_lookalike.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_TABLES = 8 };

struct look_live look_live;

static struct {
	pthread_mutex_t lock;
	bool shared;                 /* look_live is the file */
	struct table {
		char **names;            /* copies, since a library may be unloaded */
		size_t count, first;     /* in look_live.others */
	} table[MOST_TABLES];
	size_t tables, used;
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Copies names into one piece of memory with their array. NULL: there is no memory. */
static char **copied(const char *const *names, size_t count)
{
	size_t size = count * sizeof(char *);
	for (size_t i = 0; i < count; i++)
		size += strlen(names[i]) + 1;
	char **copies = malloc(size);
	char *text = (char *)(copies + count);
	for (size_t i = 0; copies && i < count; i++) {
		copies[i] = text;
		text = stpcpy(text, names[i]) + 1;
	}
	return copies;
}

static bool has_names(const struct table *t, const char *const *names, size_t count)
{
	bool same = t->count == count;
	for (size_t i = 0; same && i < count; i++)
		same = strcmp(t->names[i], names[i]) == 0;
	return same;
}

/* The table of these names; a library that is loaded once more, or twice, counts on. NULL: there is no room. */
static const struct table *table_of(const char *const *names, size_t count)
{
	for (size_t t = 0; t < live.tables; t++)
		if (has_names(&live.table[t], names, count))
			return &live.table[t];
	if (live.tables == MOST_TABLES || count > LOOK_OTHERS - live.used)
		return NULL;
	struct table *t = &live.table[live.tables];
	*t = (struct table){.names = copied(names, count), .count = count, .first = live.used};
	if (!t->names)
		return NULL;
	live.tables++;
	live.used += count;
	return t;
}

uint64_t *trz_lookalike_calls(const char *const *names, size_t count)
{
	pthread_mutex_lock(&live.lock);
	const struct table *t = table_of(names, count);
	pthread_mutex_unlock(&live.lock);
	look_report_write(false);
	return t ? look_live.others + t->first : NULL;
}

/* Maps the file over our own pages; where the system's pages are larger than these, writes a copy instead. */
void look_live_write(const char *path)
{
	if (live.shared)
		return;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (pwrite(fd, &look_live, sizeof look_live, 0) == (ssize_t)sizeof look_live && sysconf(_SC_PAGESIZE) <= LOOK_PAGE)
		live.shared = mmap(&look_live, sizeof look_live, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
		              MAP_FAILED;
	close(fd);
}

void look_live_detach(void)
{
	void *copy = live.shared ? mmap(NULL, sizeof look_live, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
	                         : MAP_FAILED;
	if (copy != MAP_FAILED) {
		memcpy(copy, &look_live, sizeof look_live);
		mremap(copy, sizeof look_live, sizeof look_live, MREMAP_MAYMOVE | MREMAP_FIXED, &look_live);
	}
	live.shared = false;
}

/* ---- by name ------------------------------------------------------------ */

/* Calls `visit` with each count of calls. */
static void visit_calls(json_t *list, void (*visit)(json_t *list, const char *name, const uint64_t *value))
{
	for (int i = 0; i < LOOK_CALLS; i++)
		visit(list, look_name((enum look_call)i), &look_live.calls[i]);
	pthread_mutex_lock(&live.lock);
	for (size_t t = 0; t < live.tables; t++)
		for (size_t i = 0; i < live.table[t].count; i++)
			visit(list, live.table[t].names[i], &look_live.others[live.table[t].first + i]);
	pthread_mutex_unlock(&live.lock);
}

static void add_count(json_t *calls, const char *name, const uint64_t *value)
{
	json_int_t before = json_integer_value(json_object_get(calls, name));
	if (*value)
		json_object_set_new(calls, name, json_integer(before + (json_int_t)*value));
}

json_t *look_live_calls(void)
{
	json_t *calls = json_object();
	visit_calls(calls, add_count);
	return calls;
}

static void add_place(json_t *list, const char *path, const uint64_t *value)
{
	json_int_t offset = (const char *)value - (const char *)&look_live;
	json_array_append_new(list, json_pack("[s, I]", path, offset));
}

static void add_call_place(json_t *list, const char *name, const uint64_t *value)
{
	char path[96];
	snprintf(path, sizeof path, "calls/%s", name);
	add_place(list, path, value);
}

static const char *const kind_names[] = {
#define KIND_NAME(kind, name) name,
	STANDIN_KINDS(KIND_NAME)
#undef KIND_NAME
};

json_t *look_live_collectives(void)
{
	json_t *collectives = json_object();
	for (int i = 0; i < STANDIN_KIND_COUNT; i++)
		json_object_set_new(collectives, kind_names[i],
		                    json_pack("{s:I, s:I}", "calls", (json_int_t)look_live.collectives[i].calls,
		                              "bytes", (json_int_t)look_live.collectives[i].bytes));
	return collectives;
}

json_t *look_live_places(void)
{
	json_t *list = json_array();
	char path[64];
	add_place(list, "driver_time_ns", &look_live.sim.driver_time_ns);
	add_place(list, "violations", &look_live.sim.violations);
	add_place(list, "misuses", &look_live.sim.misuses);
	add_place(list, "suspicions", &look_live.sim.suspicions);
	add_place(list, "kernels", &look_live.kernels);
	add_place(list, "library_calls", &look_live.library_calls);
	add_place(list, "graph_launches", &look_live.graph_launches);
	add_place(list, "copies_bytes", &look_live.copied_bytes);
	add_place(list, "blank_reads", &look_live.blank_reads);
	for (int i = 0; i < STANDIN_KIND_COUNT; i++) {
		snprintf(path, sizeof path, "collectives/%s/calls", kind_names[i]);
		add_place(list, path, &look_live.collectives[i].calls);
		snprintf(path, sizeof path, "collectives/%s/bytes", kind_names[i]);
		add_place(list, path, &look_live.collectives[i].bytes);
	}
	for (int i = 0; i < look.devices; i++) {
		snprintf(path, sizeof path, "devices/%d/peak_bytes", i);
		add_place(list, path, &look_live.sim.peak_bytes[i]);
	}
	visit_calls(list, add_call_place);
	return list;
}

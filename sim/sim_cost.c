/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual time: what each driver call costs, by number of handles, bytes and devices. The tables are ini files;
 * those of costs/ are compiled in, so that programs work from any folder. The head of costs/a100.ini explains the
 * format.
 */
#include "sim_machine.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"

/* The shipped tables: X(label, name of the file in costs/). */
#define SIM_COST_TABLES(X) X(h200, "h200") X(a100, "a100") X(slow_create, "slow-create") X(wsl2, "wsl2")

/* The assembler finds the files by the compiler's include path. The labels are global, so that link-time optimisation
 * may move their users elsewhere, and hidden, so that no other library sees them. */
#define EMBED(label, name)             \
	".globl sim_cost_" #label "\n"     \
	".hidden sim_cost_" #label "\n"    \
	"sim_cost_" #label ": .incbin \"costs/" name ".ini\"\n" \
	".byte 0\n"
__asm__(".pushsection .rodata\n" SIM_COST_TABLES(EMBED) ".popsection\n");

#pragma GCC visibility push(hidden)
#define DECLARE(label, name) extern const char sim_cost_##label[];
SIM_COST_TABLES(DECLARE)
#pragma GCC visibility pop

#define NAME(label, name) name,
static const char *const shipped_names[] = {SIM_COST_TABLES(NAME) NULL};

#define LISTED(label, name) ", " name
static const char shipped_list[] = SIM_COST_TABLES(LISTED);  /* begins with ", " */

const char *const *sim_cost_tables(void)
{
	return shipped_names;
}

static const char *shipped_text(const char *name)
{
#define TEXT(label, name) sim_cost_##label,
	const char *const texts[] = {SIM_COST_TABLES(TEXT)};
	for (size_t i = 0; shipped_names[i]; i++)
		if (strcmp(name, shipped_names[i]) == 0)
			return texts[i];
	return NULL;
}

/* ---- reading -------------------------------------------------------------------------------------- */

static bool read_number(const char **text, uint64_t *value)
{
	char *end;
	if (!isdigit((unsigned char)**text))
		return false;
	errno = 0;
	*value = strtoull(*text, &end, 10);
	*text = end;
	return errno == 0;
}

static void skip_spaces(const char **text)
{
	while (isspace((unsigned char)**text))
		++*text;
}

/* "ns" or "MiB:ns, MiB:ns, ..." with ascending sizes. */
static bool read_points(const char *text, struct sim_cost *cost)
{
	uint64_t first, ns;
	cost->points = 0;
	for (;;) {
		skip_spaces(&text);
		if (!read_number(&text, &first) || cost->points == SIM_COST_POINTS)
			return false;
		ns = first;
		if (*text == ':') {
			text++;
			if (!read_number(&text, &ns))
				return false;
		} else if (cost->points > 0 || *text) {
			return false;
		}
		if (cost->points > 0 && first <= cost->point_mib[cost->points - 1])
			return false;
		cost->point_mib[cost->points] = first;
		cost->point_ns[cost->points++] = ns;
		skip_spaces(&text);
		if (*text == '\0')
			return true;
		if (*text++ != ',')
			return false;
	}
}

static bool read_whole_number(const char *text, uint64_t *value)
{
	return read_number(&text, value) && *text == '\0';
}

static sim_slot find_slot(const char *name)
{
	int slot = 0;
	while (slot < SIM_SLOTS && strcmp(name, sim_slot_name((sim_slot)slot)) != 0)
		slot++;
	return (sim_slot)slot;
}

enum { LINES_MOST = 10000 };  /* those shipped have a hundred */

struct reading {
	struct sim_cost_table *table;
	unsigned entries;
};

static int read_entry(void *user, const char *section, const char *name, const char *value)
{
	struct reading *r = user;
	sim_slot slot = find_slot(section);
	if (slot == SIM_SLOTS)
		return 0;
	struct sim_cost *cost = &r->table->slot[slot];
	r->entries++;
	if (strcmp(name, "call_ns") == 0)
		return read_whole_number(value, &cost->call_ns);
	if (strcmp(name, "mib_ns") == 0)
		return read_whole_number(value, &cost->mib_ns);
	if (strcmp(name, "device_percent") == 0)
		return read_whole_number(value, &cost->device_percent);
	if (strcmp(name, "handle_ns") == 0)
		return read_points(value, cost);
	return 0;
}

/* A file, which may have no end. */
struct source {
	FILE *file;
	unsigned lines_left;
	bool too_long;
};

static char *next_line(char *to, int room, void *stream)
{
	struct source *from = stream;
	if (from->lines_left == 0) {
		from->too_long = getc(from->file) != EOF;
		return NULL;
	}
	from->lines_left--;
	return fgets(to, room, from->file);
}

/* Returns inih's result: 0, or the number of a wrong line; -1: the file, or folder, cannot be read, errno says why. */
static int read_file(const char *name, struct reading *r)
{
	FILE *file = fopen(name, "r");
	if (!file)
		return -1;
	struct source from = {.file = file, .lines_left = LINES_MOST};
	errno = 0;
	int line = ini_parse_stream(next_line, &from, read_entry, r), error = ferror(file) ? errno : 0;
	if (from.too_long)
		error = EFBIG;
	fclose(file);
	errno = error;
	return error ? -1 : line;
}

trz_status sim_cost_load(sim *s, const char *name)
{
	struct reading r = {.table = &s->costs[s->cost_tables]};
	memset(r.table, 0, sizeof *r.table);
	const char *text = shipped_text(name);
	int line = text ? ini_parse_string(text, read_entry, &r) : read_file(name, &r);
	if (line < 0)
		return trz_fail(TRZ_ERROR_IO,
		                "cost table %s is neither shipped (%s) nor a file that can be read: %s",
		                name, shipped_list + 2, strerror(errno));
	if (line > 0)
		return trz_fail(TRZ_ERROR_BAD_INPUT,
		                "%s:%d: neither a slot's section nor a known key with a number (see costs/a100.ini)",
		                name, line);
	if (r.entries == 0)
		return trz_fail(TRZ_ERROR_BAD_INPUT,
		                "%s: no cost table: it has no entry, such as \"call_ns = 2000\" below \"[reserve]\" (see "
		                "costs/a100.ini); those shipped are %s", name, shipped_list + 2);
	s->cost_tables++;
	return TRZ_OK;
}

/* ---- charging ------------------------------------------------------------------------------------- */

static uint64_t at_size(const struct sim_cost *c, uint64_t mib)
{
	if (c->points == 0)
		return 0;
	unsigned i = 0;
	while (i < c->points && c->point_mib[i] < mib)
		i++;
	if (i == 0)
		return c->point_ns[0];
	if (i == c->points)
		return c->point_ns[i - 1];
	int64_t low = (int64_t)c->point_ns[i - 1], rise = (int64_t)c->point_ns[i] - low;
	int64_t run = (int64_t)(c->point_mib[i] - c->point_mib[i - 1]);
	return (uint64_t)(low + rise * (int64_t)(mib - c->point_mib[i - 1]) / run);
}

static void charge(sim *s, unsigned table, uint64_t ns)
{
	if (table == 0)
		s->clock_ns += ns;
	if (!s->left_out)
		*(table == 0 ? &s->figures->driver_time_ns : &s->costs[table].time_ns) += ns;
}

void sim_charge_call(sim *s, sim_slot slot)
{
	for (unsigned i = 0; i < s->cost_tables; i++)
		charge(s, i, s->costs[i].slot[slot].call_ns);
}

void sim_charge_handle(sim *s, sim_slot slot, uint64_t size, int devices)
{
	uint64_t mib = size / MIB(1);
	for (unsigned i = 0; i < s->cost_tables; i++) {
		const struct sim_cost *c = &s->costs[i].slot[slot];
		uint64_t ns = at_size(c, mib) + c->mib_ns * mib;
		charge(s, i, ns + ns * c->device_percent / 100 * (uint64_t)(devices - 1));
	}
}

trz_status sim_add_costs(sim *s, const char *name)
{
	pthread_mutex_lock(&s->lock);
	trz_status status = s->cost_tables <= SIM_MORE_COSTS ? sim_cost_load(s, name) :
	                    trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "a simulated machine has no room for more cost tables");
	pthread_mutex_unlock(&s->lock);
	return status;
}

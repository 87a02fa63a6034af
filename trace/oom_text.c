/* SPDX-License-Identifier: Apache-2.0
 *
 * Loggers put words before each line and break lines anywhere, even in words. So lines are sorted by who wrote them,
 * what loggers added and all spaces are left out, and the rest is searched for phrases without spaces.
 */
#include "oom_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_evidence.h"
#include "dump_sites.h"
#include "error.h"
#include "log_names.h"
#include "trace_map.h"
#include "trace_room.h"

enum {
	WINDOW = 3000,             /* an error is at most this long, without spaces */
	FRAMES_MAX = 64,           /* levels of a traceback that are looked at */
	BROKEN = 3,                /* lines that a frame goes on in */
	LINES_BACK = 400,          /* how far above an error its traceback may begin */
	PROCESSES_MAX = 64,
	PREFIX = 160               /* what loggers put before a line is at most this long */
};

/* Memory that nobody in the text has is contexts up to CONTEXT_MAX; if it is more, others have all but
 * CONTEXT_USUAL. */
#define CONTEXT_MAX GIB(1)
#define CONTEXT_USUAL MIB(512)

/* In terrazzo's own error the size comes before this. */
#define OWN_ANCHOR "requestedondevice"

/* Texts write "no limit" and "not available" as sizes from here on: more than any device has. */
#define NO_FIGURE ((double)((uint64_t)1 << 50))

/* Who wrote a line: a rank, or a process if the logger told that, or what a launcher calls it; -1: not known. */
struct writer {
	long rank, process;
	int name;
};

struct line {
	const char *text;          /* behind the prefix */
	size_t size;
	size_t begins;             /* in the searched text */
	uint32_t writer;           /* its number */
};

struct log {
	const char *name;
	struct line *lines;        /* at first in the order of the file, then by writer */
	struct writer *writers;    /* in the order of their first lines */
	struct trace_map numbers;  /* of writers */
	size_t line_count, line_room, writer_count, writer_room;
	struct log_names names;
	char *text;                /* searched: lines of one writer, without spaces */
	size_t size;
};

/* The lines of one writer. */
struct lines {
	struct line *at;
	size_t count;
};

/* ---- lines ------------------------------------------------------------------------------------------ */

static bool starts(const char *at, const char *end, const char *with)
{
	size_t size = strlen(with);
	return (size_t)(end - at) >= size && memcmp(at, with, size) == 0;
}

static long number_at(const char *at, const char *end)
{
	long number = 0;
	for (; at < end && isdigit((unsigned char)*at) && number < 100000000; at++)
		number = 10 * number + (*at - '0');
	return number;
}

/* "rank3", "rank 3", "default3", "trainer3", "1,3" */
static void read_group(const char *at, const char *end, struct writer *w)
{
	static const char *const words[] = { "rank", "Rank", "RANK", "default", "trainer", "worker" };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		if (!starts(at, end, words[i]))
			continue;
		const char *digits = at + strlen(words[i]);
		while (digits < end && (*digits == ' ' || *digits == '=' || *digits == ':' || *digits == '_'))
			digits++;
		if (digits < end && isdigit((unsigned char)*digits))
			w->rank = number_at(digits, end);
		return;
	}
	const char *comma = memchr(at, ',', (size_t)(end - at));
	if (comma && comma > at && comma + 1 < end && isdigit((unsigned char)*at) && isdigit((unsigned char)comma[1]))
		w->rank = number_at(comma + 1, end);
}

/* "[rank3]:", "(Worker pid=12, ip=...)", "2024-05-01 10:00:00,123", "ERROR", "|", "3:": returns the end of one at
 * `at`. */
static const char *skip_group(const char *at, const char *end, struct writer *w)
{
	const char *close = memchr(at, *at == '[' ? ']' : ')', (size_t)min_u64((uint64_t)(end - at), 80));
	if (!close || starts(at, end, "(GPU") || starts(at, end, "(MPS"))
		return at;
	const char *pid = *at == '(' ? memmem(at, (size_t)(close - at), "pid=", 4) : NULL;
	if (*at == '(' && !pid)
		return at;
	if (pid)
		w->process = number_at(pid + 4, close);
	else
		read_group(at + 1, close, w);
	at = close + 1;
	if (starts(at, end, "<stderr>") || starts(at, end, "<stdout>"))
		at += 8;
	return at < end && *at == ':' ? at + 1 : at;
}

static const char *skip_time(const char *at, const char *end)
{
	const char *token = at;
	int separators = 0;
	for (; token < end && (isdigit((unsigned char)*token) || strchr("-:/.,TZ+", *token)); token++)
		separators += *token == '-' || *token == ':' || *token == '/';
	return separators >= 2 && token - at >= 5 ? token : at;
}

static const char *skip_level(const char *at, const char *end)
{
	static const char *const words[] = { "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "DEBUG", "stderr",
	                                     "E ", "root", "- ", "| ", "> " };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		size_t size = strlen(words[i]);
		if (starts(at, end, words[i]) && (at + size == end || strchr(" :-|\t]", at[size]) || words[i][size - 1] == ' '))
			return at + size + (at + size < end && at[size] == ':');
	}
	return at;
}

/* "node-2: [rank17]: ...": whatever launchers put before the rank that PyTorch writes. */
static const char *skip_rank(const char *at, const char *end, struct writer *w)
{
	static const char word[] = "[rank";
	const char *found = memmem(at, (size_t)min_u64((uint64_t)(end - at), 120), word, sizeof word - 1);
	const char *digits = found ? found + sizeof word - 1 : end, *close = digits;
	while (close < end && isdigit((unsigned char)*close))
		close++;
	if (close == digits || !starts(close, end, "]:"))
		return at;
	w->rank = number_at(digits, close);
	return close + 2;
}

static const char *skip_prefix(const char *at, const char *end, struct writer *w)
{
	const char *begin = at, *was = NULL;
	at = skip_rank(at, end, w);
	while (at < end && at != was) {
		was = at;
		at = log_skip_escape(at, end);
		while (at < end && (*at == ' ' || *at == '\t'))
			at++;
		if (at == begin && at < end && isdigit((unsigned char)*at)) {
			const char *digits = at;
			while (digits < end && isdigit((unsigned char)*digits))
				digits++;
			if (digits - at <= 5 && starts(digits, end, ": ")) {
				w->rank = number_at(at, end);
				at = digits + 1;
				continue;
			}
		}
		if (at < end && (*at == '[' || *at == '('))
			at = skip_group(at, end, w);
		at = skip_level(skip_time(at, end), end);
	}
	return at;
}

/* false: no memory. Only a writer without a rank may have a name. */
static bool number_of_writer(struct log *log, const struct writer *w, uint32_t *number)
{
	uint64_t who = w->name >= 0 ? (uint64_t)UINT32_MAX - (uint64_t)w->name : (uint64_t)(w->rank + 1);
	uint64_t key = who << 32 | (uint64_t)(w->process + 1);
	if (map_get(&log->numbers, key, number))
		return true;
	if (!make_room(&log->writers, log->writer_count, &log->writer_room, sizeof *log->writers))
		return false;
	*number = (uint32_t)log->writer_count;
	log->writers[log->writer_count++] = *w;
	return map_set(&log->numbers, key, *number) == TRZ_OK;
}

/* A name may have the rank in it: "logs/rank_3.log:". */
static long rank_in(const char *name)
{
	const char *word = strcasestr(name, "rank"), *digits = word ? word + 4 + strspn(word + 4, " =:_-") : "";
	return isdigit((unsigned char)*digits) ? number_at(digits, digits + strlen(digits)) : -1;
}

/* What stands behind the words before a line. */
static const char *find_writer(const struct log *log, const char *at, const char *end, struct writer *w)
{
	struct writer plain = { -1, -1, -1 };
	const char *behind, *begin = skip_prefix(at, end, &plain);
	*w = plain;
	if (plain.rank >= 0)
		return begin;
	int name = log_names_find(&log->names, at, end, &behind);
	if (name < 0)
		return begin;
	w->rank = rank_in(log->names.name[name]);
	w->name = w->rank < 0 ? name : -1;
	return begin > behind ? begin : skip_prefix(behind, end, &plain);
}

static void learn_names(struct log *log, const char *text, size_t size)
{
	const char *end = text + size;
	for (const char *at = text, *stop; at < end; at = stop + 1) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		struct writer told = { -1, -1, -1 };
		stop = newline ? newline : end;
		skip_prefix(at, stop, &told);
		if (told.rank < 0)
			log_names_learn(&log->names, at, stop);
	}
}

/* The next line of a traceback that a logger wrote as one line; the escaped line end stays before it. */
static const char *inner_line(const char *at, const char *end)
{
	static const char written[] = "\\n  ";
	const char *found = at < end ? memmem(at, (size_t)(end - at), written, sizeof written - 1) : NULL;
	return found ? found + 2 : end;
}

/* A line without a prefix has the writer of the one before it, and so has a line within a line. */
static trz_status split(struct log *log, const char *text, size_t size)
{
	const char *end = text + size;
	struct writer writer = { -1, -1, -1 };
	bool inside = false;
	learn_names(log, text, size);
	for (const char *at = text, *stop; at < end; at = stop + !inside) {
		const char *newline = memchr(at, '\n', (size_t)(end - at)), *line_end = newline ? newline : end;
		struct writer told = { -1, -1, -1 };
		const char *begin = inside ? at : find_writer(log, at, line_end, &told);
		bool bare = told.rank < 0 && told.process < 0 && told.name < 0 && begin == at;
		stop = inner_line(begin, line_end);
		inside = stop < line_end;
		writer = bare ? writer : told;
		struct line line = { .text = begin, .size = (size_t)(stop - begin) };
		if (!make_room(&log->lines, log->line_count, &log->line_room, sizeof line) ||
		    !number_of_writer(log, &writer, &line.writer))
			return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read it", log->name);
		log->lines[log->line_count++] = line;
	}
	return TRZ_OK;
}

static int by_writer(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	if (x->writer != y->writer)
		return x->writer < y->writer ? -1 : 1;
	return (x->text > y->text) - (x->text < y->text);
}

/* ---- the text to be searched ------------------------------------------------------------------------ */

static void append(struct log *log, struct line *line)
{
	const char *end = line->text + line->size;
	line->begins = log->size;
	for (const char *at = line->text; at < end;) {
		const char *behind = log_skip_escape(at, end);
		if (behind != at) {
			at = behind;
		} else if (starts(at, end, "\\n")) {
			at += 2;
		} else {
			if (!isspace((unsigned char)*at) && *at)
				log->text[log->size++] = *at;
			at++;
		}
	}
}

static void gather(struct log *log, const struct lines *lines)
{
	log->size = 0;
	for (size_t i = 0; i < lines->count; i++)
		append(log, &lines->at[i]);
	log->text[log->size] = '\0';
}

/* ---- figures ---------------------------------------------------------------------------------------- */

/* "2.50GiB" at `at`, and how far it may be off; false: there is no size. */
static bool size_at(const char *at, uint64_t *bytes, uint64_t *error)
{
	static const struct {
		const char *text;
		int shift;
	} units[] = { { "bytes", 0 }, { "KiB", 10 }, { "MiB", 20 }, { "GiB", 30 }, { "TiB", 40 },
	              { "KB", 10 },   { "MB", 20 },  { "GB", 30 },  { "TB", 40 },  { "B", 0 } };
	char *unit;
	if (!isdigit((unsigned char)*at))
		return false;
	double number = strtod(at, &unit);
	for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
		if (strncmp(unit, units[i].text, strlen(units[i].text)) != 0)
			continue;
		double value = number * (double)((uint64_t)1 << units[i].shift);
		if (!(value < NO_FIGURE))
			return false;
		*bytes = (uint64_t)(value + 0.5);
		*error = units[i].shift ? ((uint64_t)1 << units[i].shift) / 200 + 1 : 0;
		return true;
	}
	return false;
}

/* The part of the searched text that an error is read from, ended by '\0'. */
struct window {
	char text[WINDOW + 1];
	struct evidence *e;
};

static void set(struct window *w, uint64_t *figure, const char *at)
{
	uint64_t bytes, error;
	if (!size_at(at, &bytes, &error))
		return;
	*figure = bytes;
	w->e->inexact = max_u64(w->e->inexact, error);
}

/* The figure after a phrase. */
static void set_behind(struct window *w, uint64_t *figure, const char *phrase)
{
	const char *found = strstr(w->text, phrase);
	if (found)
		set(w, figure, found + strlen(phrase));
}

/* The figure after a phrase and a colon on the next line, where a logger's words may stand before it. */
static void set_behind_colon(struct window *w, uint64_t *figure, const char *phrase)
{
	const char *found = strstr(w->text, phrase), *end = found ? found + strnlen(found, PREFIX) : NULL;
	for (; found && found < end && !evidence_known(*figure); found++)
		if (*found == ':')
			set(w, figure, found + 1);
}

/* The figure before a phrase. */
static void set_before(struct window *w, uint64_t *figure, const char *phrase)
{
	const char *found = strstr(w->text, phrase), *at = found;
	if (!found)
		return;
	while (at > w->text && isalpha((unsigned char)at[-1]))
		at--;
	while (at > w->text && (isdigit((unsigned char)at[-1]) || at[-1] == '.'))
		at--;
	/* The full stop of the sentence before may touch the figure. */
	set(w, figure, *at == '.' ? at + 1 : at);
}

static uint64_t known_sum(uint64_t a, uint64_t b)
{
	return evidence_or_zero(a) + evidence_or_zero(b);
}

/* (GPU 0; 23.69 GiB total capacity; 21.45 GiB already allocated; 1.89 GiB free; 21.50 GiB reserved in total by PyTorch)
 * or, before 1.4: ...; 37.50 MiB cached), which is the free part of what is reserved. */
static void read_list(struct window *w)
{
	struct evidence *e = w->e;
	uint64_t cached = EVIDENCE_UNKNOWN;
	set_before(w, &e->device_total, "totalcapacity;");
	set_before(w, &e->allocated, "alreadyallocated;");
	set_before(w, &e->device_free, "free;");
	set_before(w, &e->limit, "allowed;");
	set_before(w, &e->reserved, "reservedintotal");
	set_before(w, &cached, "cached)");
	if (!evidence_known(e->reserved) && evidence_known(cached) && evidence_known(e->allocated))
		e->reserved = e->allocated + cached;
	if (evidence_known(e->reserved) && evidence_known(e->allocated))
		e->cached = e->reserved - min_u64(e->reserved, e->allocated);
}

/* Processes by the driver's numbers: in a container the program's differ, so that one of them may be this process. */
static void read_processes(struct window *w, uint64_t own)
{
	struct evidence *e = w->e;
	uint64_t others = 0, mine = EVIDENCE_UNKNOWN;
	int count = 0;
	for (const char *at = w->text; (at = strstr(at, "Process")) && count < PROCESSES_MAX; at++) {
		const char *digits = at + strlen("Process"), *has = digits;
		uint64_t bytes = 0, error;
		while (isdigit((unsigned char)*has))
			has++;
		if (has == digits || strncmp(has, "has", 3) != 0 || !size_at(has + 3, &bytes, &error))
			continue;
		count++;
		others += bytes;
		bool fits = evidence_known(e->reserved) && bytes + error + MIB(8) >= e->reserved;
		if (fits && (!evidence_known(mine) || bytes < mine))
			mine = bytes;
	}
	if (!evidence_known(own) && evidence_known(mine)) {
		own = mine;
		others -= mine;
	}
	if (!evidence_known(own))
		return;
	e->context = evidence_known(e->reserved) ? own - min_u64(own, e->reserved) : EVIDENCE_UNKNOWN;
	uint64_t told = own + others + evidence_or_zero(e->device_free);
	if (evidence_known(e->device_total) && evidence_known(e->device_free) && e->device_total > told + CONTEXT_MAX)
		others += e->device_total - told - CONTEXT_USUAL;
	e->other_processes = others;
}

/* GPU 0 has a total capacity of 23.65 GiB of which 1.20 GiB is free. ... Of the allocated memory 20.00 GiB is allocated
 * by PyTorch, with 1.00 GiB allocated in private pools (e.g., CUDA Graphs), and 1.10 GiB is reserved by PyTorch but
 * unallocated. */
static void read_sentences(struct window *w)
{
	struct evidence *e = w->e;
	uint64_t taken = EVIDENCE_UNKNOWN, cached = EVIDENCE_UNKNOWN, own = EVIDENCE_UNKNOWN;
	set_behind(w, &e->device_total, "totalcapacityof");
	set_behind(w, &e->device_total, "totalcapactyof");
	set_behind(w, &e->device_free, "ofwhich");
	set_before(w, &e->limit, "allowed;");
	set_behind(w, &taken, "Oftheallocatedmemory");
	set_behind(w, &e->free_pools, ",with");
	set_before(w, &cached, "isreservedbyPyTorchbutunallocated");
	set_behind(w, &own, "thisprocesshas");
	if (evidence_known(taken)) {
		e->allocated = taken - min_u64(taken, evidence_or_zero(e->free_pools));
		e->reserved = known_sum(taken, cached);
		e->cached = known_sum(cached, e->free_pools);
	}
	read_processes(w, own);
}

/* The driver's pools return what is free before the device runs out. */
static void read_asynchronous(struct window *w)
{
	struct evidence *e = w->e;
	set_behind(w, &e->requested, "Requested:");
	set_behind(w, &e->allocated, "Currentlyallocated:");
	set_behind(w, &e->device_total, "Devicelimit:");
	set_behind(w, &e->device_free, "Free(accordingtoCUDA):");
	set_behind_colon(w, &e->limit, "memoryfraction)");
	e->reserved = e->allocated;
	e->cached = evidence_known(e->allocated) ? 0 : EVIDENCE_UNKNOWN;
}

static void read_mps(struct window *w)
{
	struct evidence *e = w->e;
	set_behind(w, &e->allocated, "(MPSallocated:");
	set_behind(w, &e->context, "otherallocations:");
	set_behind(w, &e->limit, "maxallowed:");
	set_behind(w, &e->requested, "Triedtoallocate");
	if (!evidence_known(e->allocated))
		return;
	e->reserved = known_sum(e->allocated, e->context);  /* the limit is on both */
	e->cached = 0;
}

/* 600.00 MiB requested on device 0: 324.00 MiB of 1.00 GiB is free there, the heap has a limit of 1.00 GiB; this heap
 * has reserved 700.00 MiB, callers hold 600.00 MiB of it, 100.00 MiB is free (50.00 MiB of that held for graphs in
 * private pools), and 424.00 MiB is the most it could serve now; ... */
static void read_own(struct window *w)
{
	struct evidence *e = w->e;
	char *device = strstr(w->text, OWN_ANCHOR), *colon = device ? strchr(device, ':') : NULL;
	char *total = colon ? strstr(colon, "of") : NULL;
	if (!total)
		return;
	set_before(w, &e->requested, OWN_ANCHOR);
	set(w, &e->device_free, colon + 1);
	set(w, &e->device_total, total + 2);
	set_before(w, &e->withheld, "ofwhichcannotbehad");
	set_behind(w, &e->limit, "theheaphasalimitof");
	set_before(w, &e->limit_held, "ofalimitof");
	set_behind(w, &e->limit, "ofalimitof");
	set_behind(w, &e->reserved, "thisheaphasreserved");
	set_behind(w, &e->allocated, "callershold");
	set_behind(w, &e->cached, "ofit,");
	set_behind(w, &e->free_pools, "isfree(");
	set_before(w, &e->largest, "isthemostitcouldserve");
	uint64_t told = known_sum(e->allocated, e->cached);
	if (evidence_known(e->reserved))
		e->pending = e->reserved - min_u64(e->reserved, told);
}

/* PyTorch 2.3 writes the number as a character: for device 0 the text ends there. */
static int device_of_character(const struct window *w)
{
	const char *found = strstr(w->text, "GPU");
	for (; found; found = strstr(found + 1, "GPU"))
		if (found[3] > 0 && found[3] < ' ' && strncmp(found + 4, "hasatotal", 9) == 0)
			return found[3];
	return -1;
}

static int device_at(const struct window *w)
{
	static const char *const words[] = { "GPU", "Allocationondevice", OWN_ANCHOR };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		for (const char *at = w->text; (at = strstr(at, words[i])); at++)
			if (isdigit((unsigned char)at[strlen(words[i])]))
				return (int)number_at(at + strlen(words[i]), at + strlen(words[i]) + 5);
	return device_of_character(w);
}

/* The error begins where the window does. */
static void read_error(struct window *w)
{
	struct evidence *e = w->e;
	e->failed = true;
	e->device = device_at(w);
	e->joins = strstr(w->text, OWN_ANCHOR) != NULL;
	e->allocator = e->joins ? "terrazzo" : "PyTorch";
	e->too_large = strstr(w->text, "morethan1EBmemory") != NULL;
	if (strstr(w->text, "exceedallowedmemory")) {
		read_asynchronous(w);
		return;
	}
	if (strstr(w->text, "(MPSallocated:")) {
		read_mps(w);
		return;
	}
	set_behind(w, &e->requested, "Triedtoallocate");
	set_behind(w, &e->requested, "Requestedsize:");
	if (strstr(w->text, "totalcapacity;"))
		read_list(w);
	else
		read_sentences(w);
	e->limit_refused = strstr(w->text, "preemptivelyrejected") != NULL;
	e->expandable = strstr(w->text, "expandable_segmentsisenabled") != NULL;
	if (e->expandable && evidence_known(e->requested) && evidence_known(e->device_free))
		e->needed = dump_needed_by_pytorch(e->requested, e->device_free, true);
	read_own(w);
}

/* ---- the traceback ---------------------------------------------------------------------------------- */

/* A line as it was before a logger took it: without colours, and quotes without escapes. */
static void plain_line(const struct line *line, char *text, size_t room)
{
	const char *end = line->text + line->size;
	size_t size = 0;
	for (const char *at = line->text; at < end && size + 1 < room;) {
		const char *behind = log_skip_escape(at, end);
		bool escapes = starts(at, end, "\\\"") || starts(at, end, "\\\\") || starts(at, end, "\"\"");
		bool drop = behind == at && (iscntrl((unsigned char)*at) || escapes);
		if (behind == at && !drop)
			text[size++] = *at;
		at = behind == at ? at + 1 : behind;
	}
	text[size] = '\0';
}

/* Where a function's name ends: "<module>" is one. */
static size_t name_size(const char *name)
{
	size_t size = 0;
	while (isalnum((unsigned char)name[size]) || (name[size] && strchr("_.<>", name[size])) ||
	       (unsigned char)name[size] >= 0x80)
		size++;
	return size;
}

static bool keep_frame(char *store, size_t room, const char *file, long line, const char *name, struct dump_frame *f)
{
	int length = snprintf(store, room, "%s%c%.*s", file, '\0', (int)name_size(name), name);
	if (length < 0 || (size_t)length >= room || !*file)
		return false;
	*f = (struct dump_frame){ .file = store, .name = store + strlen(store) + 1, .line = (uint32_t)line };
	return true;
}

/* What stands behind a word and the spaces before it; NULL: it does not come next. */
static char *behind(char *at, const char *word)
{
	at += strspn(at, " ");
	return strncmp(at, word, strlen(word)) == 0 ? at + strlen(word) : NULL;
}

/* `File "train.py", line 31, in forward`: where the name begins. Spaces may be missing where a line was broken. NULL:
 * no such frame, or not all of it. */
static char *plain_frame_name(char *text, char **file, char **end, long *line)
{
	char *quote = strstr(text, "File \"");
	*end = quote ? strchr(quote + 6, '"') : NULL;
	char *number = *end ? behind(*end + 1, ",") : NULL;
	number = number ? behind(number, "line") : NULL;
	if (!number)
		return NULL;
	char *comma = number + strspn(number, " 0123456789"), *in = behind(comma, ",");
	in = in ? behind(in, "in") : NULL;
	if (!in || comma == number)
		return NULL;
	*file = quote + 6;
	*line = number_at(number + strspn(number, " "), comma);
	return in + strspn(in, " ");
}

static bool plain_frame_at(char *text, char *store, size_t room, struct dump_frame *f)
{
	char *file, *end, *name;
	long line;
	name = plain_frame_name(text, &file, &end, &line);
	if (!name)
		return false;
	*end = '\0';
	return keep_frame(store, room, file, line, name, f);
}

/* Whether a frame, as far as it is in `text`, goes on in the next line: what breaks lines breaks names, too, and begins
 * the next line without a space. */
static bool is_broken(char *text, const struct line *next)
{
	char *file, *end, *name = plain_frame_name(text, &file, &end, &(long){ 0 });
	if (!name)
		return strstr(text, "File \"") != NULL;
	if (name_size(name) != strlen(name) || next->text[-1] != '\n')
		return false;
	for (size_t i = 0; i < next->size; i++)
		if (!isalnum((unsigned char)next->text[i]) && !strchr("_>\r", next->text[i]))
			return false;
	return next->size > 0;
}

/* A line, and what follows of its frame. */
static void frame_text(const struct lines *lines, size_t at, char *text, size_t room)
{
	plain_line(&lines->at[at], text, room);
	size_t most = min_u64(lines->count, at + 1 + BROKEN);
	for (size_t next = at + 1; next < most && is_broken(text, &lines->at[next]); next++) {
		size_t size = strlen(text);
		plain_line(&lines->at[next], text + size, room - size);
	}
}

/* 31 for "----> 31     x = self.fc(x)", below a frame of IPython; else 0. */
static long arrow_at(const char *text)
{
	const char *at = text + strspn(text, " ");
	size_t dashes = strspn(at, "-");
	return dashes && at[dashes] == '>' ? number_at(at + dashes + 1 + strspn(at + dashes + 1, " "), at + strlen(at)) : 0;
}

/* IPython's frames: `File ~/train.py:31, in Net.forward(self, x)`, `Cell In[5], line 3`, and
 * `/srv/train.py in forward(self, x)` with the line number at the arrow below. */
static bool notebook_frame_at(const char *text, long arrow, char *store, size_t room, struct dump_frame *f)
{
	char file[300], name[100] = "<module>";
	long line = arrow;
	bool cell = strncmp(text, "Cell In[", 8) == 0;
	bool found = sscanf(text, "File %299[^:]:%ld, in %99[^(]", file, &line, name) == 3 ||
	             (cell && sscanf(text, "%299[^,], line %ld, in %99[^(]", file, &line, name) >= 2) ||
	             (arrow && sscanf(text, "%299[^ ] in %99[^(]", file, name) == 2 && strpbrk(file, "/<"));
	char *dot = strrchr(name, '.');
	if (!found)
		return false;
	return keep_frame(store, room, file, line, strncmp(name, "<cell", 5) == 0 ? "<module>" : dot ? dot + 1 : name, f);
}

static bool frame_at(char *text, long arrow, char *store, size_t room, struct dump_frame *f)
{
	return plain_frame_at(text, store, room, f) || notebook_frame_at(text, arrow, store, room, f);
}

/* The number of lines that begin at or before a position of the searched text. */
static size_t lines_to(const struct lines *lines, size_t position)
{
	size_t low = 0, high = lines->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (lines->at[middle].begins <= position)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The program's line that made the request, from the traceback above the error. */
static void find_site(const struct lines *lines, size_t begins, struct evidence *e)
{
	static _Thread_local char store[FRAMES_MAX][520];
	struct dump_frame frames[FRAMES_MAX];
	uint32_t order[FRAMES_MAX];
	struct dump_stack stacks[2] = { { 0, 0 }, { 0, 0 } };
	struct dump d = { .stacks = stacks, .stack_frames = order, .frames = frames, .stack_count = 2 };
	char site[DUMP_SITE_BYTES];
	size_t at = lines_to(lines, begins);
	long arrow = 0;
	for (size_t back = 0; at > 0 && back < LINES_BACK && stacks[1].count < FRAMES_MAX; back++) {
		const struct line *line = &lines->at[--at];
		uint32_t count = stacks[1].count;
		char text[512];
		frame_text(lines, at, text, sizeof text);
		if (frame_at(text, arrow, store[count], sizeof store[count], &frames[count])) {
			order[count] = count;
			stacks[1].count++;
			arrow = 0;
		} else if (arrow_at(text)) {
			arrow = arrow_at(text);
		} else if (memmem(line->text, line->size, "Traceback (most recent", 22)) {
			break;
		}
	}
	e->category = dump_category(&d, 1);
	if (dump_site_text(&d, 1, site)) {
		char stack[4 * DUMP_SITE_BYTES];
		e->site = evidence_keep(e, site);
		dump_stack_text(&d, 1, stack, sizeof stack);
		e->stack = *stack ? evidence_keep(e, stack) : NULL;
	}
}

/* ---- finding ---------------------------------------------------------------------------------------- */

/* How errors begin. */
struct anchor {
	const char *text;
	const char *asker;         /* who asked beside the allocator; NULL: the text tells what was asked for */
	bool likely;               /* the error may have another reason */
};

static const struct anchor anchors[] = {
	{ "outofmemory.Triedtoallocate", NULL, false },
	{ "outofmemory.Allocationwaspreemptively", NULL, false },
	{ "wouldexceedallowedmemory", NULL, false },
	{ "backendoutofmemory(MPS", NULL, false },
	{ "largerthan4GB!Triedtoallocate", NULL, false },
	{ OWN_ANCHOR, NULL, false },
	{ "CUDAerror:outofmemory", "a call of CUDA", false },
	{ "HIPerror:outofmemory", "a call of HIP", false },
	{ "CUDAdrivererror:outofmemory", "a call of the driver", false },
	{ "cudaruntimeerror(2):outofmemory", "a call of CUDA", false },
	{ "CUDA_ERROR_OUT_OF_MEMORY", "a call of the driver", false },
	{ "cudaErrorMemoryAllocation", "a call of CUDA", false },
	{ "TritonError[CUDA]:outofmemory", "Triton", false },
	{ "Cudafailure2'outofmemory'", "NCCL", false },
	{ "Cudafailure'outofmemory'", "NCCL", false },
	{ "FailedtoCUDAcalloc", "NCCL", false },
	{ "CUBLAS_STATUS_ALLOC_FAILED", "cuBLAS", false },
	{ "CUBLAS_STATUS_NOT_INITIALIZED", "cuBLAS", true },
	{ "CUDNN_STATUS_ALLOC_FAILED", "cuDNN", false },
	{ "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "cuDNN", false },
	{ "CUDNN_STATUS_NOT_INITIALIZED", "cuDNN", true },
	{ "unabletofindanengine", "cuDNN", true },
	{ "CUSOLVER_STATUS_ALLOC_FAILED", "cuSOLVER", false },
	{ "CUSPARSE_STATUS_ALLOC_FAILED", "cuSPARSE", false },
	{ "CUFFT_ALLOC_FAILED", "cuFFT", false },
};

/* Where each anchor comes next in the searched text; NULL: nowhere. Each search goes on where the last one ended, since
 * a log may have thousands of errors. */
struct ahead {
	char *at[sizeof anchors / sizeof anchors[0]];
};

static void look_ahead(struct ahead *ahead, char *text)
{
	for (size_t i = 0; i < sizeof anchors / sizeof anchors[0]; i++)
		ahead->at[i] = strstr(text, anchors[i].text);
}

/* The next error from `at` on, which never goes back; NULL: none. */
static char *next_error(struct ahead *ahead, char *at)
{
	char *first = NULL;
	for (size_t i = 0; i < sizeof anchors / sizeof anchors[0]; i++) {
		char *found = ahead->at[i];
		if (found && found < at)
			found = ahead->at[i] = strstr(at, anchors[i].text);
		if (found && (!first || found < first))
			first = found;
	}
	return first;
}

/* Of an error at its anchor; NULL: its first words come before. */
static const struct anchor *anchor_of(const char *at)
{
	for (size_t i = 0; i < sizeof anchors / sizeof anchors[0]; i++)
		if (strncmp(at, anchors[i].text, strlen(anchors[i].text)) == 0)
			return &anchors[i];
	return NULL;
}

/* Whether the error at `own` only continues the one at `at`: PyTorch's words come first, then terrazzo's. */
static bool continues(const char *at, const char *own)
{
	size_t back = min_u64((uint64_t)(own - at), 40), size = strlen(OWN_ANCHOR);
	return strncmp(at, OWN_ANCHOR, size) != 0 && strncmp(own, OWN_ANCHOR, size) == 0 &&
	       memmem(own - back, back, "terrazzo:", 9) && own - at < WINDOW;
}

static bool same_error(const struct evidence *a, const struct evidence *b)
{
	return a->requested == b->requested && a->device == b->device && a->device_free == b->device_free &&
	       a->allocated == b->allocated && a->reserved == b->reserved && evidence_same_writer(a, b);
}

/* "[worker-3]:" without what sets it off from the line. */
static const char *keep_name(struct evidence *e, const char *name)
{
	char plain[LOG_NAME_BYTES];
	size_t size = strlen(name), skipped = 0;
	while (size > 1 && strchr(":|>", name[size - 1]))
		size--;
	if (strchr("[(", name[0]) && strchr("])", name[size - 1])) {
		size--;
		skipped = 1;
	}
	snprintf(plain, sizeof plain, "%.*s", (int)(size - skipped), name + skipped);
	return evidence_keep(e, plain);
}

static void read_one(const struct log *log, const char *begin, const char *end, const struct writer *writer,
                     struct evidence *e)
{
	struct window w = { .e = e };
	const struct anchor *how = anchor_of(begin);
	size_t size = min_u64((uint64_t)(end - begin), WINDOW);
	memcpy(w.text, begin, size);
	w.text[size] = '\0';
	evidence_init(e, EVIDENCE_TEXT, log->name);
	e->rank = (int)writer->rank;
	if (writer->process >= 0)
		e->process = (uint64_t)writer->process;
	if (writer->name >= 0)
		e->writer = keep_name(e, log->names.name[writer->name]);
	if (how) {
		e->asker = how->asker;
		e->likely = how->likely;
	}
	read_error(&w);
}

/* The words before an anchor that belong to the error: "Allocation on device 0", "600.00 MiB". */
static char *begin_of(char *text, char *anchor)
{
	size_t back = min_u64((uint64_t)(anchor - text), 24);
	char *begin = anchor - back;
	if (strncmp(anchor, OWN_ANCHOR, strlen(OWN_ANCHOR)) == 0)
		return begin;
	char *device = memmem(begin, back, "Allocationondevice", 18);
	return device ? device : anchor;
}

static void read_writer(struct log *log, const struct lines *lines, struct evidence *list, size_t capacity,
                        size_t *count)
{
	const struct writer *writer = &log->writers[lines->at->writer];
	struct ahead ahead;
	gather(log, lines);
	look_ahead(&ahead, log->text);
	for (char *at = next_error(&ahead, log->text); at && *count < capacity;) {
		char *next = next_error(&ahead, at + 1), *end = log->text + log->size;
		if (next && continues(at, next))
			next = next_error(&ahead, next + 1);
		struct evidence *e = &list[*count];
		bool known = false;
		char *begin = begin_of(log->text, at);
		read_one(log, begin, next ? begin_of(log->text, next) : end, writer, e);
		for (size_t i = 0; i < *count && !known; i++)
			known = same_error(&list[i], e);
		if (!known)
			find_site(lines, (size_t)(begin - log->text), e);
		*count += !known;
		at = next;
	}
}

/* Reads each writer's errors, in the order of their first lines. */
static void read_writers(struct log *log, struct evidence *list, size_t capacity, size_t *count)
{
	if (log->writer_count > 1)
		qsort(log->lines, log->line_count, sizeof *log->lines, by_writer);
	for (size_t i = 0; i < log->line_count;) {
		struct lines lines = { .at = &log->lines[i] };
		while (i < log->line_count && log->lines[i].writer == lines.at->writer) {
			lines.count++;
			i++;
		}
		read_writer(log, &lines, list, capacity, count);
	}
}

trz_status oom_text_read(const char *name, const char *text, size_t size, struct evidence *list, size_t capacity,
                         size_t *count)
{
	struct log *log = calloc(1, sizeof *log);
	*count = 0;
	if (!log)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read it", name);
	log->name = name;
	trz_status status = split(log, text, size);
	log->text = malloc(size + 1);
	if (status == TRZ_OK && !log->text)
		status = trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read it", name);
	if (status == TRZ_OK)
		read_writers(log, list, capacity, count);
	free(log->lines);
	free(log->writers);
	map_free(&log->numbers);
	free(log->text);
	free(log);
	if (status == TRZ_OK && *count == 0)
		status = trz_fail(TRZ_ERROR_NOT_FOUND, "%s: no out-of-memory error of PyTorch or terrazzo is in it", name);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What loggers put before a line, and what of it tells who wrote the line.
 */
#include "log_lines.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "trace_room.h"

bool log_starts(const char *at, const char *end, const char *with)
{
	size_t size = strlen(with);
	return (size_t)(end - at) >= size && memcmp(at, with, size) == 0;
}

long log_number(const char *at, const char *end)
{
	long number = 0;
	for (; at < end && isdigit((unsigned char)*at) && number < 100000000; at++)
		number = 10 * number + (*at - '0');
	return number;
}

static const char *skip_digits(const char *at, const char *end)
{
	while (at < end && isdigit((unsigned char)*at))
		at++;
	return at;
}

/* "rank3", "rank 3", "default3", "trainer3", "1,3"; but not "2024-05-01 10:00:00,123" */
static void read_group(const char *at, const char *end, struct log_writer *w)
{
	static const char *const words[] = { "rank", "Rank", "RANK", "default", "trainer", "worker" };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		if (!log_starts(at, end, words[i]))
			continue;
		const char *digits = at + strlen(words[i]);
		while (digits < end && (*digits == ' ' || *digits == '=' || *digits == ':' || *digits == '_'))
			digits++;
		if (digits < end && isdigit((unsigned char)*digits))
			w->rank = log_number(digits, end);
		return;
	}
	const char *comma = skip_digits(at, end);
	if (comma > at && end - comma > 1 && *comma == ',' && skip_digits(comma + 1, end) == end)
		w->rank = log_number(comma + 1, end);
}

/* "[rank3]:", "(Worker pid=12, ip=...)", "2024-05-01 10:00:00,123", "ERROR", "|", "3:": returns the end of one at
 * `at`. */
static const char *skip_group(const char *at, const char *end, struct log_writer *w)
{
	const char *close = memchr(at, *at == '[' ? ']' : ')', (size_t)min_u64((uint64_t)(end - at), 80));
	if (!close || log_starts(at, end, "(GPU") || log_starts(at, end, "(MPS"))
		return at;
	const char *pid = *at == '(' ? memmem(at, (size_t)(close - at), "pid=", 4) : NULL;
	if (*at == '(' && !pid)
		return at;
	if (pid)
		w->process = log_number(pid + 4, close);
	else
		read_group(at + 1, close, w);
	at = close + 1;
	if (log_starts(at, end, "<stderr>") || log_starts(at, end, "<stdout>"))
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
	static const char *const words[] = { "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "DEBUG",
	                                     "stderr P ", "stderr F ", "stdout P ", "stdout F ", "stderr", "E ", "root",
	                                     "- ", "| ", "> " };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		size_t size = strlen(words[i]);
		if (log_starts(at, end, words[i]) &&
		    (at + size == end || strchr(" :-|\t]", at[size]) || words[i][size - 1] == ' '))
			return at + size + (at + size < end && at[size] == ':');
	}
	return at;
}

/* "node-2: [rank17]: ...": whatever launchers put before the rank that PyTorch writes. */
static const char *skip_rank(const char *at, const char *end, struct log_writer *w)
{
	static const char word[] = "[rank";
	const char *found = memmem(at, (size_t)min_u64((uint64_t)(end - at), 120), word, sizeof word - 1);
	const char *digits = found ? found + sizeof word - 1 : end, *close = skip_digits(digits, end);
	if (close == digits || !log_starts(close, end, "]:"))
		return at;
	w->rank = log_number(digits, close);
	return close + 2;
}

/* srun's labels are as long as the longest: " 3: ", "11: ". */
static const char *skip_padding(const char *at, const char *end)
{
	for (const char *most = at + 4; at < end && at < most && *at == ' '; at++)
		;
	return at;
}

static const char *skip_prefix(const char *at, const char *end, struct log_writer *w)
{
	const char *label = skip_padding(at, end), *was = NULL;
	at = skip_rank(at, end, w);
	while (at < end && at != was) {
		was = at;
		at = log_skip_escape(at, end);
		while (at < end && (*at == ' ' || *at == '\t'))
			at++;
		if (at == label && at < end && isdigit((unsigned char)*at)) {
			const char *digits = skip_digits(at, end);
			if (digits - at <= 5 && log_starts(digits, end, ": ")) {
				w->rank = log_number(at, end);
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
static bool number_of_writer(struct log_lines *log, const struct log_writer *w, uint32_t *number)
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
	return isdigit((unsigned char)*digits) ? log_number(digits, digits + strlen(digits)) : -1;
}

/* What stands behind the words before a line. */
static const char *find_writer(const struct log_lines *log, const char *at, const char *end, struct log_writer *w)
{
	struct log_writer plain = { -1, -1, -1 };
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

static void learn_names(struct log_lines *log, const char *text, size_t size)
{
	const char *end = text + size;
	for (const char *at = text, *stop; at < end; at = stop + 1) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		struct log_writer told = { -1, -1, -1 };
		stop = newline ? newline : end;
		skip_prefix(at, stop, &told);
		if (told.rank < 0)
			log_names_learn(&log->names, at, stop);
	}
}

/* The next line of a traceback that a logger wrote as one line: JSON's line end, or syslog's, and how such a line
 * begins, with spaces, IPython's arrow or a colour. The line end stays before it. In a list of lines, as JSON and
 * Python write it, the next one is in quotes. */
static const char *inner_line(const char *at, const char *end)
{
	static const struct {
		const char *text;
		size_t behind;             /* where the line begins */
	} written[] = { { "\\n  ", 2 },  { "\\n-", 2 },        { "\\n\\u001b[", 2 },
	                { "#012  ", 4 }, { "\"  File ", 1 }, { "'  File ", 1 } };
	for (; at < end; at++)
		for (size_t i = 0; i < sizeof written / sizeof written[0] && strchr("\\#\"'", *at); i++)
			if (log_starts(at, end, written[i].text))
				return at + written[i].behind;
	return end;
}

/* A line without a prefix has the writer of the one before it, and so has a line within a line. */
static trz_status split(struct log_lines *log, const char *text, size_t size)
{
	const char *end = text + size, *line_end = text;
	struct log_writer writer = { -1, -1, -1 };
	bool inside = false;
	learn_names(log, text, size);
	for (const char *at = text, *stop; at < end; at = stop + !inside) {
		const char *newline = inside ? line_end : memchr(at, '\n', (size_t)(end - at));
		line_end = newline ? newline : end;
		struct log_writer told = { -1, -1, -1 };
		const char *begin = inside ? at : find_writer(log, at, line_end, &told);
		bool bare = told.rank < 0 && told.process < 0 && told.name < 0 && begin == at;
		stop = inner_line(begin, line_end);
		inside = stop < line_end;
		writer = bare ? writer : told;
		struct log_line line = { .text = begin, .size = (size_t)(stop - begin) };
		if (!make_room(&log->lines, log->line_count, &log->line_room, sizeof line) ||
		    !number_of_writer(log, &writer, &line.writer))
			return TRZ_ERROR_HOST_MEMORY;
		log->lines[log->line_count++] = line;
	}
	return TRZ_OK;
}

static int by_writer(const void *a, const void *b)
{
	const struct log_line *x = a, *y = b;
	if (x->writer != y->writer)
		return x->writer < y->writer ? -1 : 1;
	return (x->text > y->text) - (x->text < y->text);
}

trz_status log_lines_read(struct log_lines *log, const char *name, const char *text, size_t size)
{
	*log = (struct log_lines){ .name = name };
	trz_status status = split(log, text, size);
	if (status == TRZ_OK && log->writer_count > 1)
		qsort(log->lines, log->line_count, sizeof *log->lines, by_writer);
	return status;
}

void log_lines_free(struct log_lines *log)
{
	free(log->lines);
	free(log->writers);
	map_free(&log->numbers);
}

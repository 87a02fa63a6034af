/* SPDX-License-Identifier: Apache-2.0
 *
 * A name is kept without what differs from line to line: times, levels, and the place in the program that wrote it.
 * What differs in another way, such as a line's number, stands before one line of a traceback alone.
 */
#include "log_names.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "bits.h"

/* A name stands before so many lines of tracebacks and errors at least. */
enum { LINES_LEAST = 2, PREFIX_MAX = 160, LETTERS_LEAST = 2, EPOCH_DIGITS = 10 };

struct word {
	const char *at;
	size_t size;
};

/* Behind the character ESC, which JSON and Python's repr() write in words; `at`: it does not stand there. */
static const char *skip_esc(const char *at, const char *end)
{
	static const char *const written[] = { "\033", "\\u001b", "\\u001B", "\\x1b", "\\033" };
	for (size_t i = 0; i < sizeof written / sizeof written[0]; i++) {
		size_t size = strlen(written[i]);
		if ((size_t)(end - at) >= size && memcmp(at, written[i], size) == 0)
			return at + size;
	}
	return at;
}

const char *log_skip_escape(const char *at, const char *end)
{
	const char *begin = at;
	if (at == end || (*at != '\033' && *at != '\\'))
		return begin;
	at = skip_esc(at, end);
	if (at == begin || at == end || (*at != '[' && *at != ']'))
		return begin;
	bool colours = *at == '[';
	for (at++; at < end && (colours ? !isalpha((unsigned char)*at) : *at != '\a' && *at != '\\'); at++)
		;
	return at < end ? at + 1 : end;
}

/* Escape sequences stand between words, as spaces do. */
static bool next_word(const char **at, const char *end, struct word *w)
{
	for (const char *was = NULL; was != *at;) {
		was = *at;
		*at = log_skip_escape(*at, end);
		while (*at < end && isspace((unsigned char)**at))
			++*at;
	}
	w->at = *at;
	while (*at < end && !isspace((unsigned char)**at) && log_skip_escape(*at, end) == *at)
		++*at;
	w->size = (size_t)(*at - w->at);
	return w->size > 0;
}

/* "2024-05-01", "[10:00:00,123", "11-25" */
static bool is_time(const struct word *w)
{
	size_t separators = 0, digits = 0;
	for (size_t i = 0; i < w->size; i++) {
		separators += w->at[i] == '-' ? 2 : w->at[i] == ':' || w->at[i] == '/';
		digits += isdigit((unsigned char)w->at[i]) != 0;
		if (!isdigit((unsigned char)w->at[i]) && !strchr("-:/.,TZ+[]()", w->at[i]))
			return false;
	}
	return separators >= 2 && digits >= 4;
}

/* "1714557600", "1714557600.123", "[12.005]", "+2.5s": seconds, since the epoch or the start. */
static bool is_seconds(const struct word *w)
{
	size_t digits = 0, points = 0, size = w->size;
	while (size && strchr("]):s", w->at[size - 1]))
		size--;
	for (size_t i = strchr("[(+", *w->at) ? 1 : 0; i < size; i++) {
		digits += isdigit((unsigned char)w->at[i]) != 0;
		points += w->at[i] == '.';
	}
	bool number = digits + points + (strchr("[(+", *w->at) ? 1 : 0) == size;
	return number && points <= 1 && digits >= (points ? 2 : EPOCH_DIGITS);
}

static bool is_level(const struct word *w)
{
	static const char *const levels[] = { "INFO", "WARN", "ERROR", "CRITICAL", "FATAL", "DEBUG", "stderr", "stdout" };
	size_t skipped = w->size && strchr("[(", *w->at);
	for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
		if (w->size - skipped >= strlen(levels[i]) && memcmp(w->at + skipped, levels[i], strlen(levels[i])) == 0)
			return true;
	return false;
}

/* "[core.py:700]" */
static bool is_place(const struct word *w)
{
	const char *found = memmem(w->at, w->size, ".py:", 4);
	return found && found + 4 < w->at + w->size && isdigit((unsigned char)found[4]);
}

/* One letter tells nobody from others either, nor does a bar. */
static bool differs(const struct word *w)
{
	return w->size == 1 || is_time(w) || is_seconds(w) || is_level(w) || is_place(w);
}

/* The words of [at, end) that tell who wrote it. false: none does. */
static bool name_of(const char *at, const char *end, char name[LOG_NAME_BYTES])
{
	struct word w;
	size_t used = 0, letters = 0;
	name[0] = '\0';
	while (next_word(&at, end, &w)) {
		if (differs(&w))
			continue;
		if (used + w.size + 2 > LOG_NAME_BYTES)
			return false;
		used += (size_t)snprintf(name + used, LOG_NAME_BYTES - used, "%s%.*s", used ? " " : "", (int)w.size, w.at);
	}
	for (size_t i = 0; i < used; i++) {
		letters += isalnum((unsigned char)name[i]) != 0;
		if (iscntrl((unsigned char)name[i]))
			return false;
	}
	return letters >= LETTERS_LEAST;
}

/* Where a name is, or may be put: if there is no room, in place of one that was seen once. -1: nowhere. */
static int place_of(struct log_names *names, const char *name)
{
	for (int i = 0; i < names->count; i++)
		if (strcmp(names->name[i], name) == 0)
			return i;
	if (names->count < LOG_NAMES_MAX)
		return names->count++;
	for (int i = 0; i < LOG_NAMES_MAX; i++) {
		names->next = (names->next + 1) % LOG_NAMES_MAX;
		if (names->lines[names->next] < LINES_LEAST)
			return names->next;
	}
	return -1;
}

static void add(struct log_names *names, const char *name)
{
	int at = place_of(names, name);
	if (at < 0)
		return;
	names->lines[at] = strcmp(names->name[at], name) == 0 ? names->lines[at] + 1 : 1;
	snprintf(names->name[at], LOG_NAME_BYTES, "%s", name);
}

/* `  File "train.py", line 31, in forward`: what stands before it; NULL: it is none. */
static const char *frame_in(const char *at, const char *end)
{
	const char *found = memmem(at, (size_t)min_u64((uint64_t)(end - at), PREFIX_MAX), "File \"", 6);
	bool spaced = found && (found == at || isspace((unsigned char)found[-1]));
	return spaced && memmem(found, (size_t)(end - found), "\", line ", 8) ? found : NULL;
}

/* "worker-3: torch.OutOfMemoryError: ...", as a search through logs finds it: one word with a number. */
static const char *error_in(const char *at, const char *end)
{
	static const char *const errors[] = { "torch.OutOfMemoryError: ", "torch.cuda.OutOfMemoryError: ",
	                                      "RuntimeError: CUDA" };
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
		const char *found = memmem(at, (size_t)min_u64((uint64_t)(end - at), PREFIX_MAX), errors[i], strlen(errors[i]));
		if (found)
			return found;
	}
	return NULL;
}

void log_names_learn(struct log_names *names, const char *at, const char *end)
{
	char name[LOG_NAME_BYTES];
	const char *begin = memmem(at, (size_t)min_u64((uint64_t)(end - at), PREFIX_MAX), "Traceback (most", 15);
	const char *frame = begin ? begin : frame_in(at, end), *error = frame ? NULL : error_in(at, end);
	names->has_frames |= frame != NULL;
	if (frame && !memmem(at, (size_t)(frame - at), "Traceback", 9) && name_of(at, frame, name))
		add(names, name);
	if (error && name_of(at, error, name) && !strchr(name, ' ') && strpbrk(name, "0123456789"))
		add(names, name);
}

/* The first words of a line that may be of a name. */
struct words {
	struct word of[LOG_NAME_BYTES / 2];
	size_t count;
};

static void words_of(const char *at, const char *end, struct words *words)
{
	struct word w;
	words->count = 0;
	while (words->count < LOG_NAME_BYTES / 2 && next_word(&at, end, &w))
		if (!differs(&w))
			words->of[words->count++] = w;
}

/* Whether the words of a line begin with those of a name; what follows the last may stand right behind it. */
static bool begins_with(const struct words *line, const char *name, const char **behind)
{
	const char *left = name, *name_end = name + strlen(name);
	struct word w;
	for (size_t i = 0; next_word(&left, name_end, &w); i++) {
		const struct word *of_line = &line->of[i];
		bool last = left == name_end, closes = !isalnum((unsigned char)w.at[w.size - 1]);
		if (i == line->count || of_line->size < w.size || memcmp(of_line->at, w.at, w.size) != 0 ||
		    (of_line->size != w.size && !(last && closes)))
			return false;
		*behind = of_line->at + w.size;
	}
	return true;
}

int log_names_find(const struct log_names *names, const char *at, const char *end, const char **behind)
{
	int longest = -1;
	const char *stop = at;
	struct words line = { .count = 0 };
	if (names->count)
		words_of(at, end, &line);
	for (int i = 0; i < names->count; i++) {
		bool known = names->lines[i] >= LINES_LEAST || !names->has_frames;
		bool longer = longest < 0 || strlen(names->name[i]) > strlen(names->name[longest]);
		if (!known || !longer || !begins_with(&line, names->name[i], &stop))
			continue;
		longest = i;
		*behind = stop;
	}
	return longest;
}

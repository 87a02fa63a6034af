/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames as Python, IPython and Rich write them, and as loggers break them.
 */
#include "log_traceback.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "call_site.h"
#include "log_names.h"

enum {
	FRAMES_MAX = 64,           /* levels of a traceback that are looked at */
	LINE = 512,                /* of a line with a frame, and what follows of it */
	BROKEN = 3,                /* lines that a frame goes on in */
	LINES_BACK = 400           /* how far above an error its traceback may begin */
};

/* A line as it was before a logger took it: without colours, and quotes without escapes. */
static void plain_line(const struct log_line *line, char *text, size_t room)
{
	const char *end = line->text + line->size;
	size_t size = 0;
	for (const char *at = line->text; at < end && size + 1 < room;) {
		const char *behind = log_skip_escape(at, end);
		bool escapes = log_starts(at, end, "\\\"") || log_starts(at, end, "\\\\") || log_starts(at, end, "\"\"");
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

static bool keep_frame(char *store, size_t room, const char *file, long line, const char *name, struct call_frame *f)
{
	int length = snprintf(store, room, "%s%c%.*s", file, '\0', (int)name_size(name), name);
	if (length < 0 || (size_t)length >= room || !*file)
		return false;
	*f = (struct call_frame){ .file = store, .name = store + strlen(store) + 1, .line = (unsigned)line };
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
	*line = log_number(number + strspn(number, " "), comma);
	return in + strspn(in, " ");
}

static bool plain_frame_at(char *text, char *store, size_t room, struct call_frame *f)
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
static bool is_broken(char *text, const struct log_line *next)
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
static void frame_text(const struct log_part *lines, size_t at, char *text, size_t room)
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
	if (!dashes || at[dashes] != '>')
		return 0;
	at += dashes + 1;
	return log_number(at + strspn(at, " "), at + strlen(at));
}

/* IPython's frames: `File ~/train.py:31, in Net.forward(self, x)`, `Cell In[5], line 3`, and
 * `/srv/train.py in forward(self, x)` with the line number at the arrow below. */
static bool notebook_frame_at(const char *text, long arrow, char *store, size_t room, struct call_frame *f)
{
	char file[300], name[100] = "<module>";
	long line = arrow;
	text += strspn(text, " \"");
	bool cell = strncmp(text, "Cell In[", 8) == 0;
	bool found = sscanf(text, "File %299[^:]:%ld, in %99[^(]", file, &line, name) == 3 ||
	             sscanf(text, "File %*1[A-Za-z]:%299[^:]:%ld, in %99[^(]", file, &line, name) == 3 ||
	             (cell && sscanf(text, "%299[^,], line %ld, in %99[^(]", file, &line, name) >= 2) ||
	             (arrow && sscanf(text, "%299[^ ] in %99[^(]", file, name) == 2 && strpbrk(file, "/\\<"));
	char *dot = strrchr(name, '.');
	if (!found)
		return false;
	return keep_frame(store, room, file, line, strncmp(name, "<cell", 5) == 0 ? "<module>" : dot ? dot + 1 : name, f);
}

/* What stands in a line of a box, between its bars; NULL: it is none. */
static char *in_box(char *text)
{
	static const char bar[] = "\xe2\x94\x82";
	char *at = text + strspn(text, " "), *end = strrchr(text, bar[0]);
	if (strncmp(at, bar, strlen(bar)) != 0 || !end || end == at || strncmp(end, bar, strlen(bar)) != 0)
		return NULL;
	while (end > at && end[-1] == ' ')
		end--;
	*end = '\0';
	return at + strlen(bar) + strspn(at + strlen(bar), " ");
}

/* A path from its root on: "/srv/train.py", "C:\train.py", "<stdin>". */
static bool is_whole_path(const char *text)
{
	return strchr("/<", *text) || text[1] == ':';
}

/* Rich's frames: `| /srv/train.py:31 in forward |`, in boxes; what a path does not have room for stands in the line
 * before. */
static bool boxed_frame_at(const struct log_part *lines, size_t at, char *store, size_t room, struct call_frame *f)
{
	char text[LINE], joined[2 * LINE] = "", more[LINE];
	plain_line(&lines->at[at], text, sizeof text);
	char *own = in_box(text), *colon = own ? strstr(own, ".py:") : NULL, *name;
	long line = colon ? strtol(colon + 4, &name, 10) : 0;
	if (line <= 0 || strncmp(name, " in ", 4) != 0)
		return false;
	colon[3] = '\0';
	if (!is_whole_path(own) && at > 0) {
		plain_line(&lines->at[at - 1], more, sizeof more);
		char *before = in_box(more);
		snprintf(joined, sizeof joined, "%s", before && is_whole_path(before) ? before : "");
	}
	snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s", own);
	return keep_frame(store, room, joined, line, name + 4, f);
}

static bool frame_at(const struct log_part *lines, size_t at, char *text, long arrow, char *store, size_t room,
                     struct call_frame *f)
{
	return plain_frame_at(text, store, room, f) || notebook_frame_at(text, arrow, store, room, f) ||
	       boxed_frame_at(lines, at, store, room, f);
}

/* The number of lines that begin at or before a position of the searched text. */
static size_t lines_to(const struct log_part *lines, size_t position)
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

void log_traceback(const struct log_part *lines, size_t from, size_t position, struct evidence *e)
{
	static _Thread_local char store[FRAMES_MAX][520];
	struct call_frame frames[FRAMES_MAX];
	char site[CALL_SITE_BYTES], stack[4 * CALL_SITE_BYTES];
	size_t at = lines_to(lines, position), least = from ? lines_to(lines, from) : 0, count = 0;
	long arrow = 0;
	for (size_t back = 0; at > least && back < LINES_BACK && count < FRAMES_MAX; back++) {
		const struct log_line *line = &lines->at[--at];
		char text[LINE];
		frame_text(lines, at, text, sizeof text);
		if (frame_at(lines, at, text, arrow, store[count], sizeof store[count], &frames[count])) {
			count++;
			arrow = 0;
		} else if (arrow_at(text)) {
			arrow = arrow_at(text);
		} else if (memmem(line->text, line->size, "Traceback (most recent", 22)) {
			break;
		}
	}
	e->category = call_category(frames, count);
	if (call_site_text(frames, count, site)) {
		e->site = evidence_keep(e, site);
		call_stack_text(frames, count, stack, sizeof stack);
		e->stack = *stack ? evidence_keep(e, stack) : NULL;
	}
}

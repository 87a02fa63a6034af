/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo explain
 */
#include <argp.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answer_words.h"
#include "bits.h"
#include "cli.h"
#include "dump_evidence.h"
#include "error.h"
#include "live.h"
#include "oom_report.h"
#include "oom_text.h"
#include "trace_input.h"

enum {
	OPTION_JSON = 256,
	OPTION_DEVICE,
	OPTION_DEVICE_MEMORY,
	OPTION_PEAK,
	RANKS_SHOWN = 16,
	PATHS_MAX = 64,
	FOLDERS_DEEP = 3
};

static const struct argp_option options[] = {
	{ "json", OPTION_JSON, "FILE", 0, "write an object with the verdict and all figures; '-': to standard output, in "
	  "place of the report", 0 },
	{ "device", OPTION_DEVICE, "N", 0, "the device of a snapshot that has several; else the one that failed last, or "
	  "the fullest", 0 },
	{ "device-memory", OPTION_DEVICE_MEMORY, "SIZE", 0, "the memory of the device, which PyTorch's snapshots lack: "
	  "with it, what other processes hold is known", 0 },
	{ "peak", OPTION_PEAK, NULL, 0, "what a snapshot's history shows of the moment at which most was allocated, in "
	  "place of the failure or the end", 0 },
	{ 0 }
};

/* One source of evidence: a snapshot, an error in a log. */
struct case_ {
	struct evidence e;
	struct verdict v;
	char *name;                /* e.source_name */
	struct evidence *fails;    /* a snapshot's: `e` if the program failed later; NULL: there is no other source */
};

struct explain_command {
	const char *paths[PATHS_MAX], *json;
	int path_count, device;
	bool has_others;           /* there may be more than one file */
	bool peak;
	uint64_t device_memory;    /* 0: not told */
	struct case_ **cases;      /* each by itself, since evidence points to its own texts */
	size_t count, room;
	unsigned passed_over;      /* files of folders that could not be read; why the first could not: */
	char reason[CLI_PATH_SIZE];
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct explain_command *c = state->input;
	switch (key) {
	case OPTION_JSON:
		c->json = arg;
		return 0;
	case OPTION_DEVICE:
		c->device = option_device(state, arg);
		return 0;
	case OPTION_DEVICE_MEMORY:
		if (!size_parse(arg, &c->device_memory) || c->device_memory == 0)
			argp_error(state, "--device-memory: '%s' is not a size", arg);
		return 0;
	case OPTION_PEAK:
		c->peak = true;
		return 0;
	case ARGP_KEY_ARG:
		if (c->path_count == PATHS_MAX)
			argp_error(state, "too many files; name their folder");
		c->paths[c->path_count++] = arg;
		return 0;
	case ARGP_KEY_END:
		for (int i = 0; i < c->path_count; i++)
			option_not_input(state, "--json", c->json, c->paths[i]);
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "a file, a folder or '-' is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- cases ------------------------------------------------------------------------------------------ */

static trz_status no_memory(void)
{
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to read that many snapshots");
}

/* Adds a case at the end. NULL: no memory. */
static struct case_ *add_case(struct explain_command *c, const char *name)
{
	if (c->count == c->room) {
		size_t room = c->room ? 2 * c->room : 8;
		struct case_ **grown = realloc(c->cases, room * sizeof *grown);
		if (!grown)
			return NULL;
		c->cases = grown;
		c->room = room;
	}
	struct case_ *added = malloc(sizeof *added);
	char *copy = strdup(name);
	if (!added || !copy) {
		free(added);
		free(copy);
		return NULL;
	}
	added->name = copy;
	added->fails = NULL;
	c->cases[c->count++] = added;
	return added;
}

static void free_case(struct case_ *k)
{
	free(k->name);
	free(k->fails);
	free(k);
}

static void remove_last_case(struct explain_command *c)
{
	free_case(c->cases[--c->count]);
}

/* "snapshot_rank3.pickle", "rank-3/oom.json": -1 if the name does not tell. */
static int rank_of_name(const char *name)
{
	int rank = -1;
	for (const char *at = name; (at = strcasestr(at, "rank")); at++) {
		const char *digits = at + 4 + strspn(at + 4, "_-. =");
		long number = isdigit((unsigned char)*digits) ? strtol(digits, NULL, 10) : LONG_MAX;
		if (number <= INT_MAX)
			rank = (int)number;
	}
	return rank;
}

static trz_status read_peak(struct explain_command *c, const struct dump *d, const char *name, struct evidence *e)
{
	trz_status status = dump_evidence_at_peak(d, name, c->device, e);
	if (status == TRZ_OK && !e->has_history)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: --peak: the snapshot has no history; begin one before the peak "
		                "(torch.cuda.memory._record_memory_history)", name);
	return status;
}

static trz_status read_dump(struct explain_command *c, const char *name, const struct dump *d)
{
	struct case_ *added = add_case(c, name);
	if (!added)
		return no_memory();
	/* A text among other files may tell that the program failed after the snapshot. */
	if (c->has_others && !(added->fails = malloc(sizeof *added->fails))) {
		remove_last_case(c);
		return no_memory();
	}
	trz_status status = c->peak ? read_peak(c, d, added->name, &added->e)
	                            : dump_evidence(d, added->name, c->device, &added->e, added->fails);
	if (status != TRZ_OK) {
		remove_last_case(c);
	} else if (added->e.rank < 0) {
		added->e.rank = rank_of_name(name);
	}
	return status;
}

/* Whether an error tells nothing of memory: "CUDA error: out of memory". */
static bool is_bare(const struct evidence *t)
{
	bool figures = evidence_known(t->requested) || evidence_known(t->reserved) || evidence_known(t->device_free);
	return !figures && !t->too_large && !t->limit_refused;
}

/* If a program failed, tried again and failed again, its last error counts, unless that tells nothing. */
static bool replaces(const struct evidence *older, const struct evidence *newer)
{
	bool bare = is_bare(older) || is_bare(newer);
	return evidence_same_writer(older, newer) && (bare || older->device == newer->device);
}

static trz_status read_text(struct explain_command *c, const char *name, const char *text, size_t size)
{
	size_t count, first = c->count;
	if (c->peak)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: --peak: a text has no history; give a snapshot", name);
	struct evidence *list = malloc(OOM_TEXTS_MAX * sizeof *list);
	if (!list)
		return no_memory();
	trz_status status = oom_text_read(name, text, size, list, OOM_TEXTS_MAX, &count);
	for (size_t i = 0; i < count && status == TRZ_OK; i++) {
		struct case_ *to = NULL;
		for (size_t k = first; k < c->count && !to; k++)
			to = replaces(&c->cases[k]->e, &list[i]) ? c->cases[k] : NULL;
		if (to && is_bare(&list[i]) && !is_bare(&to->e))
			continue;
		to = to ? to : add_case(c, name);
		if (!to) {
			status = no_memory();
			break;
		}
		evidence_copy(&to->e, &list[i]);
		to->e.source_name = to->name;
	}
	free(list);
	return status;
}

/* ---- files ------------------------------------------------------------------------------------------ */

/* The most that is read of a log, or through a pipe, which may have no end. */
#define INPUT_MOST GIB(1)

/* Reads all of an input, unpacked. */
static trz_status read_input(struct trace_input *in, char **text, size_t *size)
{
	size_t room = 0;
	*text = NULL;
	*size = 0;
	for (;;) {
		trz_status status = input_fill(in, 1);
		size_t got = (size_t)(in->end - in->at);
		if (status != TRZ_OK || got == 0)
			return status;
		if (got > INPUT_MOST - *size)
			return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: of a log, and through a pipe, no more than 1 GiB is read; pass "
			                "the end of the log (tail -c 1G), or name the snapshot's file", in->name);
		if (room - *size < got) {
			room = 2 * room + INPUT_WINDOW;
			char *grown = realloc(*text, room);
			if (!grown)
				return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read it", in->name);
			*text = grown;
		}
		memcpy(*text + *size, in->at, got);
		*size += got;
		in->at = in->end;
	}
}

/* The first of the characters from `at` on that is no space; size: none. */
static size_t behind_spaces(const char *text, size_t size, size_t at)
{
	while (at < size && isspace((unsigned char)text[at]))
		at++;
	return at;
}

/* Whether it is a text: no snapshot begins like this, in JSON neither like "[rank0]: " nor "[2024-05-01". */
static bool is_text(const char *text, size_t size)
{
	size_t at = behind_spaces(text, size, 0);
	if (at < size && (text[at] == '{' || text[at] == '[')) {
		size_t next = behind_spaces(text, size, at + 1);
		return next < size && !strchr("\"{[}]", text[next]);
	}
	return at < size && (isprint((unsigned char)text[at]) || text[at] == '\033');
}

/* Reads a snapshot or a text. A log may begin like JSON, too. NOT_FOUND: it tells of no failure. */
static trz_status read_bytes(struct explain_command *c, const char *name, const char *bytes, size_t size)
{
	struct dump d;
	char error[640];
	if (is_text(bytes, size)) {
		trz_status status = read_text(c, name, bytes, size);
		return status != TRZ_ERROR_NOT_FOUND ? status :
		       trz_fail(TRZ_ERROR_NOT_FOUND, "%.200s: neither a memory snapshot nor a text with an out-of-memory error "
		                "of PyTorch or terrazzo", name);
	}
	trz_status status = dump_load_memory(name, bytes, size, &d);
	if (status == TRZ_OK) {
		status = read_dump(c, name, &d);
		dump_free(&d);
		return status;
	}
	snprintf(error, sizeof error, "%s", trz_last_error());
	if (status == TRZ_ERROR_BAD_INPUT && read_text(c, name, bytes, size) == TRZ_OK)
		return TRZ_OK;
	return trz_fail(status, "%s", error);
}

static trz_status read_file(struct explain_command *c, const char *path)
{
	char *bytes;
	size_t size;
	struct dump d;
	char error[640];
	/* Large snapshots are read without a copy. */
	trz_status status = strcmp(path, "-") == 0 ? TRZ_ERROR_BAD_INPUT : dump_load(path, &d);
	if (status == TRZ_OK) {
		status = read_dump(c, path, &d);
		dump_free(&d);
		return status;
	}
	if (status != TRZ_ERROR_BAD_INPUT)
		return status;
	struct trace_input in;
	status = input_open(&in, path);
	if (status != TRZ_OK)
		return status;
	const char *name = in.name;
	snprintf(error, sizeof error, "%s", trz_last_error());
	status = read_input(&in, &bytes, &size);
	input_close(&in);
	if (status == TRZ_OK)
		status = read_bytes(c, name, bytes, size);
	else if (status == TRZ_ERROR_BAD_INPUT && strcmp(path, "-") != 0 && !is_text(bytes, size))
		status = trz_fail(status, "%s", error);  /* too long for a log, and damaged as a snapshot */
	free(bytes);
	return status;
}

static int no_hidden(const struct dirent *entry)
{
	size_t length = strlen(entry->d_name);
	return entry->d_name[0] != '.' && !(length > 5 && strcmp(entry->d_name + length - 5, ".part") == 0);
}

static trz_status read_folder(struct explain_command *c, const char *path, int depth);

static void pass_over(struct explain_command *c)
{
	if (c->passed_over++ == 0)
		snprintf(c->reason, sizeof c->reason, "%s", trz_last_error());
}

/* Reads a file, or a folder, as some programs make one for each rank. Keeps the first error. */
static void read_entry(struct explain_command *c, const char *path, int depth, trz_status *status)
{
	struct stat s;
	trz_status read = TRZ_OK;
	if (stat(path, &s) == 0 && S_ISDIR(s.st_mode) && depth < FOLDERS_DEEP)
		read = read_folder(c, path, depth + 1);
	else if (stat(path, &s) == 0 && S_ISREG(s.st_mode))
		read = read_file(c, path);
	if (read != TRZ_OK && read != TRZ_ERROR_NOT_FOUND && !S_ISDIR(s.st_mode))
		pass_over(c);
	*status = *status == TRZ_OK ? read : *status;
}

/* Passes over files that cannot be used, unless none can. Those that tell of no failure are not worth a word. */
static trz_status read_folder(struct explain_command *c, const char *path, int depth)
{
	struct dirent **entries;
	int count = scandir(path, &entries, no_hidden, versionsort);
	trz_status status = TRZ_OK;
	if (count < 0)
		return trz_fail(TRZ_ERROR_IO, "%s: cannot be read: %s", path, strerror(errno));
	c->has_others |= count > 1;
	for (int i = 0; i < count; i++) {
		char entry[CLI_PATH_SIZE];
		if (snprintf(entry, sizeof entry, "%s/%s", path, entries[i]->d_name) < (int)sizeof entry)
			read_entry(c, entry, depth, &status);
		free(entries[i]);
	}
	free(entries);
	if (c->count)
		return TRZ_OK;
	return status != TRZ_OK || depth ? status : trz_fail(TRZ_ERROR_BAD_INPUT, "%s: there is no file in it", path);
}

static trz_status read_path(struct explain_command *c, const char *path)
{
	struct stat s;
	if (strcmp(path, "-") != 0 && stat(path, &s) == 0 && S_ISDIR(s.st_mode))
		return read_folder(c, path, 0);
	return read_file(c, path);
}

/* Passes over a file that tells nothing, such as a log that ends before the error, if others tell something. */
static trz_status read_paths(struct explain_command *c)
{
	trz_status status = TRZ_OK, useless = TRZ_OK;
	char error[CLI_PATH_SIZE] = "";
	c->has_others = c->path_count > 1;
	for (int i = 0; i < c->path_count && status == TRZ_OK; i++) {
		status = read_path(c, c->paths[i]);
		if (status != TRZ_ERROR_BAD_INPUT && status != TRZ_ERROR_NOT_FOUND)
			continue;
		if (useless == TRZ_OK)
			snprintf(error, sizeof error, "%s", trz_last_error());
		useless = status;
		status = TRZ_OK;
	}
	if (status == TRZ_OK && !c->count)
		return trz_fail(useless, "%s", error);
	if (status == TRZ_OK && useless != TRZ_OK)
		fprintf(stderr, "terrazzo: passed over: %s\n", error);
	if (status == TRZ_OK && c->passed_over)
		fprintf(stderr, "terrazzo: passed over %u file%s, the first: %s\n", c->passed_over,
		        c->passed_over == 1 ? "" : "s", c->reason);
	return status;
}

/* ---- a snapshot and the error's text ------------------------------------------------------------------ */

static bool near(uint64_t a, uint64_t b, uint64_t by)
{
	return evidence_known(a) && evidence_known(b) && (a > b ? a - b : b - a) <= by;
}

/* The text tells the request's segment; pages of expandable segments may need more than that. */
static bool same_request(const struct evidence *s, const struct evidence *t)
{
	bool known = evidence_known(s->requested) && evidence_known(s->needed) && evidence_known(t->requested);
	return known && t->requested + t->inexact >= s->requested && t->requested <= s->needed + t->inexact;
}

static bool may_be_one_rank(const struct evidence *a, const struct evidence *b)
{
	return a->rank < 0 || b->rank < 0 || a->rank == b->rank;
}

/* Whether a snapshot of PyTorch and an error are of one failure. PyTorch 2.3's error on device 0 ends after the
 * request, and a logger may have cut others off. */
static bool same_failure(const struct evidence *s, const struct evidence *t)
{
	bool kinds = s->source == EVIDENCE_PICKLE && t->source == EVIDENCE_TEXT && s->failed;
	bool left = !evidence_known(t->device_free) || near(s->device_free, t->device_free, t->inexact);
	return kinds && same_request(s, t) && left && may_be_one_rank(s, t);
}

/* Adds what the text tells and the snapshot cannot: the device, the limit, other processes. PyTorch 2.4.1's text tells
 * no limit: then one that was inferred from the snapshot stays. */
static void add_text(struct evidence *s, const struct evidence *t)
{
	if (evidence_known(t->device_total)) {
		s->device_total = t->device_total;
		s->too_large = false;
	}
	if (evidence_known(t->limit) || !s->limit_inferred) {
		s->limit = t->limit;
		s->limit_held = t->limit_held;
		s->limit_inferred = false;
	}
	s->other_processes = t->other_processes;
	s->context = t->context;
	s->rank = s->rank < 0 ? t->rank : s->rank;
}

/* Whether a snapshot that shows no failure, for lack of a history, was taken after the error's: as much is reserved as
 * then or, if there is nothing but the two (`only`), no more. */
static bool after_failure(const struct evidence *s, const struct evidence *t, bool only)
{
	bool kinds = s->source == EVIDENCE_PICKLE && t->source == EVIDENCE_TEXT && !s->failed && t->failed;
	bool devices = s->device < 0 || t->device < 0 || s->device == t->device;
	if (!kinds || !may_be_one_rank(s, t) || !devices)
		return false;
	return near(s->reserved, t->reserved, t->inexact) ||
	       (only && (!evidence_known(t->reserved) || evidence_or_zero(s->reserved) <= t->reserved + t->inexact));
}

/* What a history tells up to the failure takes the place of the snapshot's evidence. */
static void take_what_led_to_it(struct case_ *k)
{
	int rank = k->e.rank;
	evidence_copy(&k->e, k->fails);
	k->e.rank = rank;
}

/* That there was a failure, whose and where; `t` tells. */
static void set_failure(struct evidence *s, const struct evidence *t)
{
	s->failed = true;
	s->rank = s->rank < 0 ? t->rank : s->rank;
	s->process = t->process;
	s->category = t->category;
	s->site = t->site ? evidence_keep(s, t->site) : NULL;
	s->stack = t->stack ? evidence_keep(s, t->stack) : NULL;
}

/* Adds the failure that the text tells, and takes what grew for what led to it. If nothing has been freed since, the
 * snapshot tells how memory lay then; otherwise it only tells who held what is left. */
static void add_failure(struct case_ *k, const struct evidence *t)
{
	struct evidence *s = &k->e;
	if (s->has_history)
		take_what_led_to_it(k);
	bool same = near(s->reserved, t->reserved, t->inexact) && near(s->allocated, t->allocated, t->inexact);
	uint64_t peaks[] = { s->peak_allocated, s->peak_reserved };
#define TAKE_FIGURE(name, what) s->name = same && evidence_known(s->name) ? s->name : t->name;
	EVIDENCE_FIGURES(TAKE_FIGURE)
#undef TAKE_FIGURE
	/* The text tells the segment of a small request, which pieces of other segments would not have served. */
	if (t->requested <= MIB(2))
		s->largest_free = s->largest_streams = s->largest_pools = EVIDENCE_UNKNOWN;
	s->peak_allocated = max_u64(peaks[0], evidence_or_zero(s->allocated));
	s->peak_reserved = max_u64(peaks[1], evidence_or_zero(s->reserved));
	s->inexact = t->inexact;
	s->limit_refused = t->limit_refused;
	s->too_large = t->too_large;
	set_failure(s, t);
}

/* Of a failure without figures what the snapshot tells stays, but for a leak that has led to it. */
static void add_bare_failure(struct case_ *k, const struct evidence *t)
{
	struct evidence *s = &k->e;
	if (s->has_history && verdict_leak(k->fails)) {
		take_what_led_to_it(k);
		set_failure(s, t);
	}
	s->asker = t->asker;
	s->likely = t->likely;
}

static bool is_told_by_snapshot(struct explain_command *c, const struct case_ *text)
{
	bool told = false;
	for (size_t i = 0; i < c->count; i++) {
		struct evidence *s = &c->cases[i]->e;
		bool failed = s->source == EVIDENCE_PICKLE && s->failed;
		if (is_bare(&text->e) && failed && may_be_one_rank(s, &text->e)) {
			told = true;
		} else if (same_failure(s, &text->e)) {
			add_text(s, &text->e);
			told = true;
		} else if (!told && after_failure(s, &text->e, c->count == 2)) {
			if (is_bare(&text->e))
				add_bare_failure(c->cases[i], &text->e);
			else
				add_failure(c->cases[i], &text->e);
			told = true;
		}
	}
	return told;
}

static void join_texts(struct explain_command *c)
{
	for (size_t i = 0; i < c->count;) {
		struct case_ *k = c->cases[i];
		if (!is_told_by_snapshot(c, k)) {
			i++;
			continue;
		}
		memmove(&c->cases[i], &c->cases[i + 1], (--c->count - i) * sizeof *c->cases);
		free_case(k);
	}
}

/* ---- reports ---------------------------------------------------------------------------------------- */

/* The fullest first, by what is live, since only that cannot be had back. */
static int fullest_first(const void *a, const void *b)
{
	const struct evidence *x = &(*(struct case_ *const *)a)->e, *y = &(*(struct case_ *const *)b)->e;
	uint64_t full_x = evidence_or_zero(x->allocated), full_y = evidence_or_zero(y->allocated);
	if (full_x != full_y)
		return full_x > full_y ? -1 : 1;
	if (x->failed != y->failed)
		return x->failed ? -1 : 1;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

static void judge(struct explain_command *c)
{
	for (size_t i = 0; i < c->count; i++) {
		struct case_ *k = c->cases[i];
		if (c->device_memory && !evidence_known(k->e.device_total)) {
			k->e.device_total = c->device_memory;
			k->e.too_large = false;  /* it was inferred for lack of the total */
		}
	}
	qsort(c->cases, c->count, sizeof *c->cases, fullest_first);
	for (size_t i = 0; i < c->count; i++)
		verdict_find(&c->cases[i]->e, &c->cases[i]->v);
}

/* One line each, the fullest first. */
static void print_ranks(const struct explain_command *c, FILE *to)
{
	size_t failed = 0;
	for (size_t i = 0; i < c->count; i++)
		failed += c->cases[i]->e.failed;
	fprintf(to, "%zu of %zu ran out of memory; the fullest first:\n", failed, c->count);
	fprintf(to, "%6s %6s  %-13s %14s %14s  %s\n", "rank", "device", "verdict", "allocated", "asked for", "source");
	for (size_t i = 0; i < c->count && i < RANKS_SHOWN; i++) {
		const struct case_ *k = c->cases[i];
		char rank[16] = "?", device[16] = "?", allocated[SIZE_TEXT_BYTES] = "?", asked[SIZE_TEXT_BYTES] = "";
		if (k->e.rank >= 0)
			snprintf(rank, sizeof rank, "%d", k->e.rank);
		if (k->e.device >= 0)
			snprintf(device, sizeof device, "%d", k->e.device);
		if (evidence_known(k->e.allocated))
			size_text(k->e.allocated, allocated);
		if (evidence_known(k->e.requested))
			size_text(k->e.requested, asked);
		fprintf(to, "%6s %6s  %-13s %14s %14s  %s%s%s\n", rank, device, verdict_name(k->v.kind), allocated, asked,
		        k->name, k->e.writer ? ", " : "", k->e.writer ? k->e.writer : "");
	}
	if (c->count > RANKS_SHOWN)
		fprintf(to, "%6s and %zu more\n", "", c->count - RANKS_SHOWN);
	fprintf(to, "\n");
}

static bool print_report(const struct explain_command *c, FILE *to)
{
	if (c->count > 1)
		print_ranks(c, to);
	return oom_report_text(&c->cases[0]->e, &c->cases[0]->v, output_sink, to);
}

/* Writes the object of the fullest rank; if there are several, its `ranks` has all of them, the fullest first. */
static bool write_json(const struct explain_command *c, FILE *to)
{
	char buffer[JSONW_BUFFER];
	struct jsonw json = {.sink = output_sink, .owner = to, .buffer = buffer, .room = sizeof buffer}, *j = &json;
	if (c->count == 1) {
		oom_report_object(j, &c->cases[0]->e, &c->cases[0]->v);
	} else {
		jsonw_open(j, '{');
		oom_report_members(j, &c->cases[0]->e, &c->cases[0]->v);
		jsonw_key(j, "ranks");
		jsonw_open(j, '[');
		for (size_t i = 0; i < c->count; i++)
			oom_report_object(j, &c->cases[i]->e, &c->cases[i]->v);
		jsonw_close(j, ']');
		jsonw_close(j, '}');
	}
	jsonw_byte(j, '\n');
	jsonw_flush(j);
	return !j->failed;
}

static int print_all(const struct explain_command *c)
{
	bool to_stdout = c->json && strcmp(c->json, "-") == 0;
	if (!to_stdout && !print_report(c, stdout))
		return cli_fail(trz_fail(TRZ_ERROR_IO, "standard output cannot be written"));
	if (!c->json)
		return CLI_OK;
	struct output o;
	trz_status status = output_begin(&o, c->json);
	if (status == TRZ_OK)
		status = output_end(&o, write_json(c, o.to) ? TRZ_OK : output_failed(c->json));
	return status == TRZ_OK ? CLI_OK : cli_fail(status);
}

/* A running process makes its own reports. */
static int explain_process(const struct explain_command *c, int process)
{
	if (c->peak)
		return cli_fail(trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "--peak: a process tells of now; give a snapshot"));
	bool to_stdout = c->json && strcmp(c->json, "-") == 0;
	trz_status status = to_stdout ? TRZ_OK : live_report(process, ANSWER_TEXT, c->device, stdout);
	if (status != TRZ_OK || !c->json)
		return status == TRZ_OK ? CLI_OK : cli_fail(status);
	struct output o;
	status = output_begin(&o, c->json);
	if (status != TRZ_OK)
		return cli_fail(status);
	status = live_report(process, ANSWER_JSON, c->device, o.to);
	if (status == TRZ_OK && putc('\n', o.to) == EOF)
		status = output_failed(c->json);
	status = output_end(&o, status);
	return status == TRZ_OK ? CLI_OK : cli_fail(status);
}

int cli_explain(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "FILE...|FOLDER|PID|-",
		.doc = "Says why memory ran out, by how much, who holds it, and what each remedy would give.\v"
		       "FILE: a memory snapshot of terrazzo or of PyTorch (torch.cuda.memory._dump_snapshot, any version), "
		       "or a text with PyTorch's or terrazzo's out-of-memory error in it, such as a log. FOLDER: such "
		       "files, one for each rank, for one report, the fullest rank first. A snapshot of PyTorch and the error "
		       "of the same failure make one report, too. PID: a running process that was started with "
		       "TERRAZZO_CONF=answer:on. '-': standard input. docs/oom.md has the verdicts and their arithmetic.",
	};
	struct explain_command c = { .device = DUMP_ANY_DEVICE };
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	int process = c.path_count == 1 && access(c.paths[0], F_OK) != 0 ? live_process(c.paths[0]) : 0;
	if (process)
		return explain_process(&c, process);
	trz_status status = read_paths(&c);
	int code = CLI_OK;
	if (status == TRZ_OK) {
		join_texts(&c);
		judge(&c);
		code = print_all(&c);
	} else {
		code = cli_fail(status);
	}
	while (c.count)
		remove_last_case(&c);
	free(c.cases);
	return code;
}

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
#include "error.h"
#include "log_lines.h"
#include "log_traceback.h"

enum {
	WINDOW = 3000,             /* an error is at most this long, without spaces */
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

/* ---- the text to be searched ------------------------------------------------------------------------ */

/* Lines of one writer, without spaces. */
struct searched {
	char *text;
	size_t size;
};

static void append(struct searched *s, struct log_line *line)
{
	const char *end = line->text + line->size;
	line->begins = s->size;
	for (const char *at = line->text; at < end;) {
		const char *behind = log_skip_escape(at, end);
		if (behind != at) {
			at = behind;
		} else if (log_starts(at, end, "\\n")) {
			at += 2;
		} else if (log_starts(at, end, "#012")) {
			at += 4;
		} else {
			if (!isspace((unsigned char)*at) && *at)
				s->text[s->size++] = *at;
			at++;
		}
	}
}

static void gather(struct searched *s, const struct log_part *lines)
{
	s->size = 0;
	for (size_t i = 0; i < lines->count; i++)
		append(s, &lines->at[i]);
	s->text[s->size] = '\0';
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
				return (int)log_number(at + strlen(words[i]), at + strlen(words[i]) + 5);
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

/* ---- finding ---------------------------------------------------------------------------------------- */

/* cudaMallocAsync's error, and what programs leave of it. */
#define ASYNC_ANCHOR "wouldexceedallowedmemory"
#define ASYNC_BARE_ANCHOR "OutOfMemoryError:Allocationondevice"

/* How errors begin. */
struct anchor {
	const char *text;
	const char *asker;         /* who asked beside the allocator; NULL: the text tells what was asked for */
	bool likely;               /* the error may have another reason */
};

static const struct anchor anchors[] = {
	{ "outofmemory.Triedtoallocate", NULL, false },
	{ "outofmemory.Allocationwaspreemptively", NULL, false },
	{ ASYNC_ANCHOR, NULL, false },
	{ ASYNC_BARE_ANCHOR, NULL, false },
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

static bool begins(const char *at, const char *anchor)
{
	return strncmp(at, anchor, strlen(anchor)) == 0;
}

/* Of an error at its anchor; NULL: its first words come before. */
static const struct anchor *anchor_of(const char *at)
{
	for (size_t i = 0; i < sizeof anchors / sizeof anchors[0]; i++)
		if (begins(at, anchors[i].text))
			return &anchors[i];
	return NULL;
}

/* Whether the error at `own` only continues the one at `at`: PyTorch's words come first, then terrazzo's. */
static bool continues(const char *at, const char *own)
{
	if (begins(at, ASYNC_BARE_ANCHOR) && begins(own, ASYNC_ANCHOR))
		return own - at < (long)sizeof ASYNC_BARE_ANCHOR + 4;
	size_t back = min_u64((uint64_t)(own - at), 40);
	return !begins(at, OWN_ANCHOR) && begins(own, OWN_ANCHOR) &&
	       memmem(own - back, back, "terrazzo:", 9) && own - at < WINDOW;
}

/* Whether `again` says no other figure than `told`. */
static bool repeats(uint64_t told, uint64_t again)
{
	return told == again || !evidence_known(again);
}

static bool has_writer(const struct evidence *e)
{
	return e->writer || e->rank >= 0 || evidence_known(e->process);
}

/* Whether one of two errors of the same figures is of a launcher or a logger that tells a named process's error again:
 * Ray raises a worker's in its driver. */
static bool is_passed_on(const struct evidence *a, const struct evidence *b)
{
	return has_writer(a) != has_writer(b) && a->device == b->device && evidence_known(b->device_free) &&
	       a->device_free == b->device_free && a->allocated == b->allocated && evidence_known(b->reserved) &&
	       a->reserved == b->reserved;
}

/* Whether `b` is the error `a` told again, perhaps cut off, as in pytest's summary. */
static bool same_error(const struct evidence *a, const struct evidence *b)
{
	return a->requested == b->requested && (a->device == b->device || b->device < 0) &&
	       repeats(a->device_free, b->device_free) && repeats(a->allocated, b->allocated) &&
	       repeats(a->reserved, b->reserved) && (evidence_same_writer(a, b) || is_passed_on(a, b));
}

/* An error is the writer's that has a name. */
static void take_writer(struct evidence *e, const struct evidence *from)
{
	if (has_writer(e) || !has_writer(from))
		return;
	e->writer = from->writer ? evidence_keep(e, from->writer) : NULL;
	e->rank = from->rank;
	e->process = from->process;
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

static void read_one(const struct log_lines *log, const char *begin, const char *end, const struct log_writer *writer,
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
	if (begins(anchor, OWN_ANCHOR))
		return begin;
	char *device = memmem(begin, back, "Allocationondevice", 18);
	return device ? device : anchor;
}

static void read_writer(const struct log_lines *log, const struct log_part *lines, struct searched *s,
                        struct evidence *list, size_t capacity, size_t *count)
{
	const struct log_writer *writer = &log->writers[lines->at->writer];
	struct ahead ahead;
	gather(s, lines);
	look_ahead(&ahead, s->text);
	size_t last = 0;
	for (char *at = next_error(&ahead, s->text); at && *count < capacity;) {
		char *next = next_error(&ahead, at + 1), *end = s->text + s->size;
		if (next && continues(at, next))
			next = next_error(&ahead, next + 1);
		struct evidence *e = &list[*count];
		size_t same = 0;
		char *begin = begin_of(s->text, at);
		read_one(log, begin, next ? begin_of(s->text, next) : end, writer, e);
		while (same < *count && !same_error(&list[same], e))
			same++;
		/* A program may tell the error before it tells where it happened. */
		if (!list[same].site)
			log_traceback(lines, same < *count ? last : 0, (size_t)(begin - s->text), &list[same]);
		take_writer(&list[same], e);
		*count += same == *count;
		last = (size_t)(at - s->text);
		at = next;
	}
}

/* Reads each writer's errors, in the order of their first lines. */
static void read_writers(const struct log_lines *log, struct searched *s, struct evidence *list, size_t capacity,
                         size_t *count)
{
	for (size_t i = 0; i < log->line_count;) {
		struct log_part lines = { .at = &log->lines[i] };
		while (i < log->line_count && log->lines[i].writer == lines.at->writer) {
			lines.count++;
			i++;
		}
		read_writer(log, &lines, s, list, capacity, count);
	}
}

trz_status oom_text_read(const char *name, const char *text, size_t size, struct evidence *list, size_t capacity,
                         size_t *count)
{
	struct log_lines *log = malloc(sizeof *log);
	struct searched s = { .text = malloc(size + 1) };
	trz_status status = log && s.text ? log_lines_read(log, name, text, size) : TRZ_ERROR_HOST_MEMORY;
	*count = 0;
	if (status == TRZ_OK)
		read_writers(log, &s, list, capacity, count);
	if (log && s.text)
		log_lines_free(log);
	free(log);
	free(s.text);
	if (status == TRZ_OK && *count == 0)
		return trz_fail(TRZ_ERROR_NOT_FOUND, "%s: no out-of-memory error of PyTorch or terrazzo is in it", name);
	return status == TRZ_OK ? TRZ_OK : trz_fail(status, "%s: no memory to read it", name);
}

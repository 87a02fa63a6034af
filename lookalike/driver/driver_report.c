/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a process: DIR/<pid>.json, written when it opens the device, each time that memory runs out, and when
 * it ends. The figures of a process that ends without a report are in DIR/<pid>.live (driver_live.c).
 */
#include "driver_lookalike.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/uncancelled.h"
#include "base/utf8.h"

enum { MOST_OOMS = 64 };

struct look_oom_event {
	char call[64];
	uint64_t bytes, free_bytes, total_bytes;
	uint64_t number;             /* counts them, from 1 */
};

static struct {
	pthread_mutex_t lock;
	pid_t pid;                   /* the process that opened the machine; a fork of it reports nothing */
	struct look_oom_event oom[MOST_OOMS];
	size_t listed;               /* of them */
	uint64_t ooms;               /* how many there were, even more than fit */
	uint64_t numbers;
	int rank, ranks;             /* 0 ranks: no communicator has told them */
	bool ended;
} report = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void write_last(void)
{
	look_report_write(true);
}

void look_report_open(void)
{
	report.pid = getpid();
	if (look.report && access(look.report, F_OK) != 0)
		fprintf(stderr, "terrazzo: no report can be written into %s: %s\n", look.report, strerror(errno));
	atexit(write_last);
	look_report_write(false);
}

/* The request that the thread made last, if it found no memory. */
static _Thread_local struct look_oom_event refused;

/* Whether it is made again: by any call, or as a whole after a piece, as terrazzo does. */
static bool is_asked_again(const char *call, uint64_t bytes)
{
	bool whole = strcmp(refused.call, "cuMemCreate") == 0 && strcmp(call, "cuMemCreate") != 0;
	return refused.number && (bytes == refused.bytes || (whole && bytes > refused.bytes));
}

static struct look_oom_event *listed_locked(uint64_t number)
{
	for (size_t i = 0; i < report.listed; i++)
		if (report.oom[i].number == number)
			return &report.oom[i];
	return NULL;
}

static void add_locked(bool again)
{
	struct look_oom_event *e = again ? listed_locked(refused.number) : NULL;
	if (!again) {
		report.ooms++;
		refused.number = ++report.numbers;
	}
	if (!e && !again && report.listed < MOST_OOMS)
		e = &report.oom[report.listed++];
	if (e)
		*e = refused;
}

void look_oom(const char *call, uint64_t bytes, int device)
{
	uint64_t used = device >= 0 ? sim_device_used(look.sim, device) : 0;
	bool again = is_asked_again(call, bytes);
	pthread_mutex_lock(&report.lock);
	refused.bytes = bytes;
	refused.free_bytes = look.capacity_bytes - used;
	refused.total_bytes = look.capacity_bytes;
	snprintf(refused.call, sizeof refused.call, "%s", call);
	add_locked(again);
	pthread_mutex_unlock(&report.lock);
	look_report_write(false);
}

/* Takes a refused request off the list, since the thread has made room, asked again and got its memory. */
static void withdraw(void)
{
	pthread_mutex_lock(&report.lock);
	struct look_oom_event *e = listed_locked(refused.number);
	report.ooms--;
	if (e) {
		report.listed--;
		memmove(e, e + 1, (size_t)(&report.oom[report.listed] - e) * sizeof *e);
	}
	pthread_mutex_unlock(&report.lock);
	look_report_write(false);
}

void look_answered(const char *call, uint64_t bytes, int device, cuda_result result)
{
	if (result == TRZ_CUDA_ERROR_OUT_OF_MEMORY) {
		look_oom(call, bytes, device);
	} else if (result == TRZ_CUDA_SUCCESS && refused.number) {
		if (is_asked_again(call, bytes))
			withdraw();
		refused.number = 0;
	}
}

void trz_lookalike_oom(const char *call, uint64_t bytes)
{
	trz_context context = look_context();
	look_oom(call, bytes, context ? sim_context_device(look.sim, context) : -1);
}

/* ---- short reads ------------------------------------------------------------ */

static lookalike_blank_read *blank_read_observer;

void trz_lookalike_on_blank_read(lookalike_blank_read *observer)
{
	__atomic_store_n(&blank_read_observer, observer, __ATOMIC_RELEASE);
}

/* Whether no process of the run has reported a short read yet: the first makes a file. */
static bool is_first_of_run(void)
{
	char *path;
	if (!look.report || asprintf(&path, "%s/blank-read", look.report) < 0)
		return false;
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	free(path);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void look_blank_read(uint64_t bytes)
{
	if (__atomic_fetch_add(&look_live.blank_reads, 1, __ATOMIC_RELAXED) != 0)
		return;
	bool is_news = is_first_of_run();
	lookalike_blank_read *observer = __atomic_load_n(&blank_read_observer, __ATOMIC_ACQUIRE);
	if (observer)
		observer(bytes, is_news);
	else if (is_news)
		fprintf(stderr, "terrazzo: a read of %llu bytes from the device gives 0, as reads of up to 16 do here: "
		        "kernels compute nothing (--scalars real: what lies there). The report counts them\n",
		        (unsigned long long)bytes);
}

/* ---- writing ------------------------------------------------------------ */

static json_t *program(void)
{
	enum { LONGEST = 4096 };
	char *word = NULL;
	json_t *words = json_array();
	FILE *f = fopen("/proc/self/cmdline", "r");
	size_t room = 0, size = 0;
	while (f && size < LONGEST && getdelim(&word, &room, '\0', f) > 0) {
		size += strlen(word) + 1;
		json_array_append_new(words, json_string(utf8_clean(word)));
	}
	if (f)
		fclose(f);
	free(word);
	return words;
}

static json_t *devices(void)
{
	json_t *list = json_array();
	for (int i = 0; i < look.devices; i++)
		json_array_append_new(list, json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I}", "name", look.profile->title,
		                                      "number", look.number[i],
		                                      "capacity_bytes", (json_int_t)look.capacity_bytes,
		                                      "overhead_bytes", (json_int_t)look.overhead_bytes,
		                                      "peak_bytes", (json_int_t)sim_process_peak(look.sim, i),
		                                      "machine_peak_bytes", (json_int_t)sim_device_peak(look.sim, i),
		                                      "used_bytes", (json_int_t)sim_device_used(look.sim, i)));
	return list;
}

static json_t *ooms(void)
{
	json_t *list = json_array();
	for (size_t i = 0; i < report.listed; i++) {
		const struct look_oom_event *e = &report.oom[i];
		json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "call", e->call, "bytes", (json_int_t)e->bytes,
		                                      "free_bytes", (json_int_t)e->free_bytes,
		                                      "total_bytes", (json_int_t)e->total_bytes));
	}
	return list;
}

/* What a launcher's variable says, in case no communicator has told. */
static int from_environment(const char *const *names)
{
	for (; *names; names++) {
		const char *text = getenv(*names);
		if (text && *text >= '0' && *text <= '9')
			return atoi(text);
	}
	return -1;
}

void trz_lookalike_rank(int rank, int ranks)
{
	pthread_mutex_lock(&report.lock);
	bool larger = ranks > report.ranks;
	report.rank = larger ? rank : report.rank;
	report.ranks = larger ? ranks : report.ranks;
	pthread_mutex_unlock(&report.lock);
	if (larger)
		look_report_write(false);
}

static bool holds_memory(void)
{
	bool holds = false;
	for (int i = 0; i < look.devices; i++)
		holds = holds || sim_process_peak(look.sim, i);
	return holds;
}

/* Processes that a rank starts, like the compilers of torch.compile, inherit its variables. Without device memory or a
 * communicator they are no ranks. */
static void add_rank(json_t *root)
{
	static const char *const ranks[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
	static const char *const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", NULL};
	int rank = report.ranks ? report.rank : from_environment(ranks);
	int size = report.ranks ? report.ranks : from_environment(sizes);
	if (rank < 0 || size < 2 || !root || (!report.ranks && !holds_memory()))
		return;
	json_object_set_new(root, "rank", json_integer(rank));
	json_object_set_new(root, "ranks", json_integer(size));
	json_object_set_new(root, "collectives", look_live_collectives());
}

static json_t *everything(void)
{
	json_t *root = json_pack("{s:I, s:o, s:s, s:o, s:o, s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s?, s:I, s:s?, "
	                 "s:I, s:s?, s:I, s:o}", "pid", (json_int_t)report.pid, "program", program(),
	                 "profile", look.profile->name,
	                 "devices", devices(), "calls", look_live_calls(), "live", look_live_places(),
	                 "ended", (int)report.ended,
	                 "driver_time_ns", (json_int_t)sim_driver_time_ns(look.sim),
	                 "kernels", (json_int_t)look_live.kernels, "library_calls", (json_int_t)look_live.library_calls,
	                 "graph_launches", (json_int_t)look_live.graph_launches,
	                 "copies_bytes", (json_int_t)look_live.copied_bytes,
	                 "blank_reads", (json_int_t)look_live.blank_reads,
	                 "violations", (json_int_t)sim_violations(look.sim),
	                 "first_violation", sim_first_violation(look.sim),
	                 "misuses", (json_int_t)sim_misuses(look.sim), "first_misuse", sim_first_misuse(look.sim),
	                 "suspicions", (json_int_t)sim_suspicions(look.sim),
	                 "first_suspicion", sim_first_suspicion(look.sim),
	                 "oom_events", (json_int_t)report.ooms, "oom", ooms());
	add_rank(root);
	if (root && getenv("TERRAZZO_SIM_NODE"))
		json_object_set_new(root, "node", json_integer(look.node));
	return root;
}

/* This process's file of that kind. NULL: there is no memory. */
static char *path_of(const char *kind)
{
	char *path;
	return asprintf(&path, "%s/%d.%s", look.report, (int)report.pid, kind) < 0 ? NULL : path;
}

/* Writes it under a temporary name first, so that a reader never sees half a report. */
static bool write_locked(const char *path, const char *made, const char *live)
{
	if (!path || !made || !live)
		return false;
	look_live_write(live);
	json_t *root = everything();
	bool written = root && json_dump_file(root, made, JSON_INDENT(1) | JSON_SORT_KEYS) == 0 && rename(made, path) == 0;
	json_decref(root);
	return written;
}

void look_report_write(bool ended)
{
	if (!look.sim || !look.report || report.pid != getpid())
		return;
	int cancel = uncancelled_begin();
	pthread_mutex_lock(&report.lock);
	report.ended = report.ended || ended;
	char *path = path_of("json"), *made = path_of("json.new"), *live = path_of("live");
	bool written = write_locked(path, made, live);
	if (!written && access(look.report, F_OK) == 0)  /* a process may outlive the run, whose folder goes */
		fprintf(stderr, "terrazzo: no report can be written into %s\n", look.report);
	free(path);
	free(made);
	free(live);
	pthread_mutex_unlock(&report.lock);
	uncancelled_end(cancel);
}

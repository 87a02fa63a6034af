/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots that options ask for: where their memory and their names come from, and which are kept.
 */
#include "observe/dump.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "observe/frames.h"
#include "observe/inspect.h"
#include "rank.h"
#include "snapshot_file.h"

enum { DUMPS_MOST = 64, RESERVE_BYTES = 1 << 20, RESERVE_EVENTS = 4096 };

/* A file that this heap has written. */
struct dump {
	uint64_t epoch_ns, bytes;
	unsigned number;
};

/* Guarded by `busy`. Invariant: kept[0 .. kept_count), the oldest first, kept_count <= DUMPS_MOST. */
struct dumps {
	atomic_bool busy;
	bool ended;                /* the snapshot at the end has been tried */
	bool told;                 /* the user knows that a failure's snapshot could not be written */
	unsigned number;           /* failures so far that asked for a file */
	unsigned kept_count;
	struct dump kept[DUMPS_MOST];
	char rank[32];
	char path[SNAPSHOT_PATH], old_path[SNAPSHOT_PATH];  /* of the file that is being written; of one before it */
	bool reserve_taken;
	_Alignas(64) char reserve[RESERVE_BYTES];
};

trz_status dump_open(trz_heap *h)
{
	if (!h->config.oom_snapshot[0] && !h->config.exit_snapshot[0])
		return TRZ_OK;
	h->dumps = meta_alloc(&h->meta, sizeof *h->dumps);
	if (!h->dumps)
		return meta_exhausted();
	const char *rank = rank_text();
	if (strlen(rank) < sizeof h->dumps->rank)
		strcpy(h->dumps->rank, rank);
	memset(h->dumps->reserve, 1, sizeof h->dumps->reserve);  /* the host gives the pages now */
	return TRZ_OK;
}

/* ---- names ---- */

static bool is_folder(const char *option)
{
	size_t length = strlen(option);
	return !strchr(option, '%') && (length < 5 || strcmp(option + length - 5, ".json") != 0);
}

static bool name_of(const trz_heap *h, const char *option, const struct dump *d, char path[SNAPSHOT_PATH])
{
	char in_folder[CONFIG_TEXT_BYTES + 16];
	const struct snapshot_name name = {.process = (int)getpid(),
	                                   .device = h->driver.device,
	                                   .rank = h->dumps->rank,
	                                   .number = d->number,
	                                   .epoch_ns = d->epoch_ns};
	if (is_folder(option)) {
		snprintf(in_folder, sizeof in_folder, "%s/%%p-%%d.json", option);
		option = in_folder;
	}
	return snapshot_path(option, &name, path);
}

/* ---- limits ---- */

static void forget_oldest(struct dumps *d)
{
	memmove(d->kept, d->kept + 1, --d->kept_count * sizeof *d->kept);
}

/* Keeps the newest snapshot, `new`, and as many others as the limits allow. One at the same path has been replaced. */
static void keep(trz_heap *h, const struct dump *new)
{
	struct dumps *d = h->dumps;
	uint64_t most = h->config.oom_snapshot_bytes, bytes = new->bytes;
	unsigned left = 0;
	for (unsigned i = 0; i < d->kept_count; i++)
		if (!name_of(h, h->config.oom_snapshot, &d->kept[i], d->old_path) || strcmp(d->old_path, d->path) != 0) {
			bytes += d->kept[i].bytes;
			d->kept[left++] = d->kept[i];
		}
	d->kept_count = left;
	while (d->kept_count && (d->kept_count >= h->config.oom_snapshots || (most && bytes > most))) {
		if (name_of(h, h->config.oom_snapshot, &d->kept[0], d->old_path))
			unlink(d->old_path);
		bytes -= d->kept[0].bytes;
		forget_oldest(d);
	}
	d->kept[d->kept_count++] = *new;
}

/* ---- memory ---- */

static void *reserve_alloc(void *owner, size_t size)
{
	struct dumps *d = owner;
	if (d->reserve_taken || size > sizeof d->reserve)
		return NULL;
	d->reserve_taken = true;
	return d->reserve;
}

static void reserve_free(void *owner, void *memory)
{
	struct dumps *d = owner;
	if (memory == d->reserve)
		d->reserve_taken = false;
}

/* Takes a snapshot with as much of the history as the host has memory for, at last in the reserve. The caller frees it,
 * also on an error. */
static trz_status take(trz_heap *h, struct snapshot *s)
{
	*s = inspect_empty(h);
	trz_status status = inspect_take(h, s);
	for (size_t events = s->event_most; status == TRZ_ERROR_HOST_MEMORY && events / 4 > RESERVE_EVENTS; events /= 4) {
		snapshot_free(s);
		*s = inspect_empty(h);
		s->event_limit = events / 4;
		status = inspect_take(h, s);
	}
	for (size_t events = RESERVE_EVENTS; status == TRZ_ERROR_HOST_MEMORY && events; events /= 16) {
		snapshot_free(s);
		*s = inspect_empty(h);
		s->memory = (struct snapshot_memory){reserve_alloc, reserve_free, h->dumps};
		s->event_limit = events;
		status = inspect_take(h, s);
	}
	return status;
}

/* ---- */

/* Writes a snapshot to where an option says. The caller holds `busy`. */
static trz_status write_by(trz_heap *h, const char *option, struct dump *d, snapshot_report *report)
{
	struct snapshot s;
	struct frames_teller teller = frames_teller(h);
	trz_status status = take(h, &s);
	s.frames = frames_tell;
	s.frames_owner = &teller;
	s.report = report;
	s.report_owner = h;
	d->epoch_ns = s.clock.epoch_ns;
	d->bytes = h->config.oom_snapshot_bytes ? h->config.oom_snapshot_bytes : SNAPSHOT_ANY_SIZE;
	if (status == TRZ_OK && !name_of(h, option, d, h->dumps->path))
		status = trz_fail(TRZ_ERROR_IO, "%.100s gives no file name", option);
	if (status == TRZ_OK)
		status = snapshot_to_file(&s, h->dumps->path, &d->bytes);
	snapshot_free(&s);
	return status;
}

static trz_status write_failure(trz_heap *h, snapshot_report *report)
{
	struct dump d = {.number = ++h->dumps->number};
	trz_status status = write_by(h, h->config.oom_snapshot, &d, report);
	if (status == TRZ_OK)
		keep(h, &d);
	return status;
}

trz_status dump_failure(trz_heap *h, trz_status failure, snapshot_report *report)
{
	char text[ERROR_TEXT_BYTES], reason[ERROR_TEXT_BYTES];
	if (!h->config.oom_snapshot[0])
		return failure;
	snprintf(text, sizeof text, "%s", trz_last_error());
	if (atomic_exchange(&h->dumps->busy, true))
		return trz_fail(failure, "%s; no snapshot: that of another failure is being written", text);
	int cancel = uncancelled_begin();
	if (write_failure(h, report) == TRZ_OK) {
		failure = trz_fail(failure, "%s; a snapshot is in %s", text, h->dumps->path);
	} else {
		snprintf(reason, sizeof reason, "%s", trz_last_error());
		failure = trz_fail(failure, "%s; no snapshot: %s", text, reason);
		/* A program of CUDA sees a number alone. */
		if (!h->dumps->told)
			trz_tell("oom_snapshot: %s", reason);
		h->dumps->told = true;
	}
	atomic_store(&h->dumps->busy, false);
	uncancelled_end(cancel);
	return failure;
}

void dump_end(trz_heap *h)
{
	struct dump d = {0};
	if (!h->config.exit_snapshot[0] || atomic_exchange(&h->dumps->busy, true))
		return;
	int cancel = uncancelled_begin();
	if (!h->dumps->ended && write_by(h, h->config.exit_snapshot, &d, NULL) != TRZ_OK)
		trz_tell("exit_snapshot: %s", trz_last_error());
	h->dumps->ended = true;
	atomic_store(&h->dumps->busy, false);
	uncancelled_end(cancel);
}

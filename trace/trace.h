/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace: a program's requests to its device allocator, in order, as one array in memory. Owns the event
 * kinds and the entry points that read and write traces:
 *  - PyTorch snapshot pickles (protocols 2 to 5),
 *  - logs of RMM's logging adaptor (CSV) and of STAlloc's tracer,
 *  - the project's own compact format (trace_compact.c),
 *  - what `terrazzo sim --record` noted of a process (trace_recording.c), by a function of its own,
 * each plain or packed by xz, gzip or zstd.
 */
#ifndef TRZ_TRACE_H
#define TRZ_TRACE_H

#include <stddef.h>
#include <stdio.h>

#include "terrazzo.h"

/* Values are those of the compact format: never renumber. 0 is its end record. */
enum trace_kind {
	TRACE_ALLOC = 1,           /* id: the allocation; size: requested bytes; stream; pool */
	TRACE_FREE = 2,            /* id: the allocation; stream: in whose order it is freed */
	TRACE_FREE_COMPLETED = 3,  /* id: the allocation; the traced allocator could now reuse its memory */
	TRACE_RECORD_STREAM = 4,   /* id: the allocation; stream: another user of it */
	TRACE_EVENT_RECORD = 5,    /* id: the event; stream */
	TRACE_STREAM_WAIT = 6,     /* id: the event; stream: the one that waits */
	TRACE_CAPTURE_BEGIN = 7,   /* id: the capture; stream; pool */
	TRACE_CAPTURE_END = 8,     /* id: the capture; stream */
	TRACE_POOL_BEGIN = 9,      /* pool: allocations of `stream` go there from now on */
	TRACE_POOL_END = 10,       /* pool; stream */
	TRACE_POOL_RELEASE = 11,   /* pool; the graphs that were captured into it end, too */
	TRACE_MARKER = 12,         /* id: a number that the program chose, such as its training step */
	TRACE_GRAPH_LAUNCH = 13,   /* id: the capture; stream: where the graph is launched */
	TRACE_STREAM_SYNC = 14,    /* the host has waited for `stream` */
	TRACE_EVENT_SYNC = 15,     /* id: the event that the host has waited for */
	TRACE_DEVICE_SYNC = 16,    /* the host has waited for all streams */
	TRACE_STREAM_BLOCKING = 17,  /* stream: always ordered with the default stream, as CUDA's blocking streams are */
	TRACE_DEFAULT_WORK = 18,   /* work on the default stream, ordered with that of all blocking streams */
	TRACE_KINDS
};

/* Invariants of a loaded trace: allocation ids count up from 0 in the order of the TRACE_ALLOC events;
 * TRACE_FREE and TRACE_RECORD_STREAM name a live allocation, and no allocation is freed twice; stream <
 * trace.streams. */
struct trace_event {
	uint64_t size;
	uint32_t id;
	uint32_t pool;    /* dense; 0: the default pool */
	uint16_t stream;  /* dense; 0: the default stream */
	uint8_t kind;
};

enum { TRACE_STREAMS_MAX = 4096, TRACE_DEVICES_MAX = 1024 };

/* A larger request, which no device could ever serve, means a damaged trace. */
#define TRACE_SIZE_MAX ((uint64_t)1 << 56)

struct trace {
	struct trace_event *events;
	size_t count;
	size_t capacity;
	uint32_t allocs;         /* TRACE_ALLOC events */
	uint32_t streams;        /* 1 + the highest stream index */
	uint32_t device;         /* ordinal of the device that it was recorded on, < TRACE_DEVICES_MAX */
	uint64_t unknown_frees;  /* frees of memory allocated before the trace began: left out */
	uint64_t implied_frees;  /* frees that the recording lost: the address was allocated again */
	uint64_t failed_allocs;  /* requests that got no memory when they were recorded: left out */
};

/* `device` of trace_load: the device with the most events. */
enum { TRACE_ANY_DEVICE = -1 };

/* Loads the trace at `path` ("-": standard input), in any of these formats; trace_free() it. Errors: IO,
 * BAD_INPUT (the message says where), INVALID_ARGUMENT (the trace has no such device), HOST_MEMORY; *out is
 * then empty. */
trz_status trace_load(const char *path, int device, struct trace *out);

/* As trace_load, from memory, not compressed; `name` stands for the path in messages. */
trz_status trace_load_memory(const char *name, const void *data, size_t size, int device, struct trace *out);

/* Reads a recording of `terrazzo sim --record` (sim/sim_recording.h): the part of the device on which the process made
 * most requests. Without any request the trace has no allocations. Errors: IO, BAD_INPUT, HOST_MEMORY. */
trz_status trace_load_recording(const char *path, struct trace *out);

/* Writes the compact format; path "-" is standard output. A file that cannot be written whole is not there, and one
 * that had the name before stays. Errors: IO, HOST_MEMORY. */
trz_status trace_save(const struct trace *trace, const char *path);
trz_status trace_write(const struct trace *trace, FILE *to);

/* Appends an event and keeps `streams` and `allocs`. Errors: HOST_MEMORY. */
trz_status trace_add(struct trace *trace, const struct trace_event *event);

void trace_free(struct trace *trace);

#endif

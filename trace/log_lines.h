/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of a log and who wrote each: ranks of a program write to one log, and loggers put words before each line.
 * Private to trace/.
 */
#ifndef TRZ_TRACE_LOG_LINES_H
#define TRZ_TRACE_LOG_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log_names.h"
#include "terrazzo.h"
#include "trace_map.h"

/* A rank, or a process if the logger told that, or what a launcher calls it; -1: not known. */
struct log_writer {
	long rank, process;
	int name;
};

struct log_line {
	const char *text;          /* behind what loggers put before it */
	size_t size;
	size_t begins;             /* for the reader: where the line begins in what it has made of the log */
	uint32_t writer;           /* its number */
};

struct log_lines {
	const char *name;
	struct log_line *lines;    /* by writer */
	struct log_writer *writers;  /* in the order of their first lines */
	struct trace_map numbers;  /* of writers */
	size_t line_count, line_room, writer_count, writer_room;
	struct log_names names;
};

/* The lines of one writer. */
struct log_part {
	struct log_line *at;
	size_t count;
};

/* Reads a text, which must outlive the log. Errors: HOST_MEMORY. */
trz_status log_lines_read(struct log_lines *log, const char *name, const char *text, size_t size);
void log_lines_free(struct log_lines *log);

/* The number in the digits at `at`; 0: there are none. */
long log_number(const char *at, const char *end);
bool log_starts(const char *at, const char *end, const char *with);

#endif

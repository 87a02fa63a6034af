/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of processes in a log: the words that a launcher has put before each line of one, such as a pod's or a node's.
 * They are learnt from the lines of tracebacks, which are alike but for those words. Private to trace/.
 */
#ifndef TRZ_TRACE_LOG_NAMES_H
#define TRZ_TRACE_LOG_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { LOG_NAMES_MAX = 256, LOG_NAME_BYTES = 96 };

struct log_names {
	char name[LOG_NAMES_MAX][LOG_NAME_BYTES];
	unsigned lines[LOG_NAMES_MAX];  /* that it was learnt from */
	int count, next;           /* next: where one that was seen once was replaced last */
	bool has_frames;           /* else lone errors are all that names are learnt from */
};

/* ESC [ ... letter: colours; ESC ] ... BEL or ESC \: links and titles. Returns the end of one at `at`, or `at`. */
const char *log_skip_escape(const char *at, const char *end);

/* Learns the name before a line [at, end), if it is one of a traceback, or an error without one. */
void log_names_learn(struct log_names *names, const char *at, const char *end);

/* The number of the longest name that a line begins with, and *behind it; -1: none. */
int log_names_find(const struct log_names *names, const char *at, const char *end, const char **behind);

#endif

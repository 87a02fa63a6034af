/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress bar.
 */
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { BAR_CELLS = 40 };

#define DELAY_NS UINT64_C(1000000000)
#define REDRAW_NS UINT64_C(100000000)

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void progress_start(struct progress *progress, const char *label)
{
	*progress = (struct progress){ .label = label, .start_ns = now_ns(), .terminal = isatty(STDERR_FILENO) };
}

void progress_step(void *arg, uint64_t done, uint64_t total)
{
	struct progress *progress = arg;
	if (!progress->terminal)
		return;
	uint64_t now = now_ns();
	if (now - progress->start_ns < DELAY_NS || now - progress->drawn_ns < REDRAW_NS)
		return;
	progress->drawn_ns = now;
	int filled = (int)((double)done / (double)total * BAR_CELLS);
	fprintf(stderr, "\r%-20s [", progress->label);
	for (int i = 0; i < BAR_CELLS; i++)
		fputc(i < filled ? '#' : '.', stderr);
	fprintf(stderr, "] %3.0f %%", 100 * (double)done / (double)total);
}

void progress_end(struct progress *progress)
{
	if (progress->drawn_ns != 0)
		fputs("\r\x1b[K", stderr);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress bar.
 */
#include <unistd.h>

#include "cli.h"
#include "ticks.h"

enum { BAR_CELLS = 40 };

#define DELAY_NS UINT64_C(1000000000)
#define REDRAW_NS UINT64_C(100000000)

void progress_start(struct progress *progress, const char *label)
{
	*progress = (struct progress){ .label = label, .start_ns = monotonic_ns(), .terminal = isatty(STDERR_FILENO) };
}

void progress_step(void *arg, uint64_t done, uint64_t total)
{
	struct progress *progress = arg;
	if (!progress->terminal)
		return;
	uint64_t now = monotonic_ns();
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's rank in its job, as launchers tell it.
 */
#ifndef TRZ_BASE_RANK_H
#define TRZ_BASE_RANK_H

#include <stdlib.h>

/* As the launcher wrote it; "" in a process that has none. */
static inline const char *rank_text(void)
{
	static const char *const names[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
	const char *rank = NULL;
	for (size_t i = 0; i < sizeof names / sizeof *names && !rank; i++)
		rank = getenv(names[i]);
	return rank ? rank : "";
}

#endif

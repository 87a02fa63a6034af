/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots in files, and the names of the files.
 */
#ifndef TRZ_STATS_SNAPSHOT_FILE_H
#define TRZ_STATS_SNAPSHOT_FILE_H

#include "snapshot.h"

/* What the letters of a pattern stand for. */
struct snapshot_name {
	int process;               /* %p */
	int device;                /* %d */
	const char *rank;          /* %r; NULL, empty or not part of a file's name: "0" */
	unsigned number;           /* %n */
	uint64_t epoch_ns;         /* %t: "20261123T003158.123Z" */
};

/* Makes a path from a pattern, in which %% is a percent sign. false: a letter stands for nothing, the path is too long,
 * or it names a folder. */
bool snapshot_path(const char *pattern, const struct snapshot_name *n, char path[SNAPSHOT_PATH]);
/* Whether it makes a path of any name. */
bool snapshot_pattern_is_good(const char *pattern);

#define SNAPSHOT_ANY_SIZE UINT64_MAX

/* Writes a sealed snapshot into a file that is complete when it appears; on an error an older file of that name stays.
 * When this returns, the disk has it. *size: at the call the most bytes that the file may have, for which the snapshot
 * drops its oldest events; afterwards what it has. Removes what killed writers have left in the same folder. Errors:
 * IO. */
trz_status snapshot_to_file(struct snapshot *s, const char *path, uint64_t *size);

#endif

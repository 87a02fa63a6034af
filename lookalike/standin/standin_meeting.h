/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stand-in for NCCL and the look-alike driver tell each other about collectives. It becomes struct sim_meeting
 * of sim/sim.h; see there. A stand-in is compiled where that header is not at hand.
 */
#ifndef TRZ_STANDIN_MEETING_H
#define TRZ_STANDIN_MEETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The kinds of what ranks do together, with their names in reports. */
#define STANDIN_KINDS(X)                                                                                       \
	X(ALL_REDUCE, "all_reduce") X(REDUCE, "reduce") X(REDUCE_SCATTER, "reduce_scatter") X(BROADCAST, "broadcast") \
	X(ALL_GATHER, "all_gather") X(ALL_TO_ALL, "all_to_all") X(GATHER, "gather") X(SCATTER, "scatter")             \
	X(SEND, "send") X(RECEIVE, "recv")
enum standin_kind {
#define STANDIN_KIND_ENUM(kind, name) STANDIN_##kind,
	STANDIN_KINDS(STANDIN_KIND_ENUM)
#undef STANDIN_KIND_ENUM
	STANDIN_KIND_COUNT
};

enum standin_meet_state { STANDIN_AWAITS, STANDIN_COMPLETE, STANDIN_FAILED };

struct standin_use {
	uint64_t address, size;
	bool write;
};

struct standin_meeting {
	const char *name;
	const struct standin_use *uses;
	size_t count;
	uint64_t real_bytes;
	bool (*can_arrive)(void *arg);
	void (*arrive)(void *arg);
	int (*met)(void *arg);
	int (*finish)(void *arg, char *text, size_t size);
	void (*drop)(void *arg);
	void *(*again)(void *arg, char *text, size_t size);
	uint32_t (*mark)(void);
	void *(*tell)(void *arg);
	void (*wait)(void *ticket, uint32_t mark);
	void *arg;
};

#endif

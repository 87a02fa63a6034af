/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the look-alike libcuda.so.1: its list of functions, its state, and what its files share. Every
 * exported function is a thin translation onto the simulator's driver table or sim.h.
 */
#ifndef DRIVER_LOOKALIKE_H
#define DRIVER_LOOKALIKE_H

#include <stdbool.h>

#include "driver_abi.h"
#include "driver_symbols.h"
#include "lookalike/lookalike.h"
#include "sim/sim.h"
#include "sim/sim_profile.h"

#pragma GCC visibility push(hidden)

enum { LOOK_DEVICES = 16 };

/* When enqueued work runs. */
enum look_work { LOOK_NOW, LOOK_LATE, LOOK_BLOCKED };

/* The machine; all zero until cuInit has succeeded. */
struct look_machine {
	sim *sim;
	const trz_driver *table;
	const struct sim_profile *profile;
	enum look_work work;
	bool real_scalars, abort_on_violation;
	bool violated;               /* set atomically */
	uint64_t kernel_ns, overhead_bytes, capacity_bytes, seed;
	int devices;
	const char *report;          /* folder; NULL: none */
	uint64_t kernels, library_calls, graph_launches, copied_bytes;  /* grown atomically */
};
extern struct look_machine look;

/* Exported functions by place in LOOKALIKE_DRIVER_SYMBOLS, for the count of calls. */
enum look_call {
#define LOOK_CALL_ENUM(name, exported, version, parameters) LOOK_CALL_##exported,
	LOOKALIKE_DRIVER_SYMBOLS(LOOK_CALL_ENUM)
#undef LOOK_CALL_ENUM
	LOOK_CALLS
};
extern uint64_t look_calls[LOOK_CALLS];

/* driver_machine.c */
/* The one place where a status becomes a driver's result; ends the process where a rule was broken and that is
 * asked for. */
cuda_result look_result(trz_status status);
/* What cuGetErrorName says; NULL: an unknown value. */
int look_version(void);
/* CUDA_ERROR_NOT_INITIALIZED; says why where it is fork's doing. */
cuda_result look_not_open(void);
const char *look_name(enum look_call call);

/* driver_context.c: the calling thread's current context, NULL without one; that of a stream or an event. */
trz_context look_context(void);
trz_context look_stream_context(void *stream);
trz_context look_event_context(void *event);

/* driver_stream.c: after each call that enqueues or asks: runs what the mode of work says. */
void look_progress(void);
cuda_result look_enqueued(trz_status status);

/* driver_host.c: whether a host address is pinned, and its flags. */
bool look_pinned(const void *address, uint64_t *start, uint64_t *size, unsigned *flags);

/* driver_report.c */
void look_report_open(void);
void look_report_write(void);
void look_oom(const char *call, uint64_t bytes, int device);

/* driver_pool.c: what the pools of a device keep beyond their thresholds, or all, is given back as far as work is
 * done with it; true: there was something. */
bool look_pools_trim(int device, bool all);
/* Frees what a pool gave; false: it was not from a pool. */
bool look_pool_free(cuda_addr address);

#pragma GCC visibility pop

/* Begins every function: counts the call; without cuInit it goes no further. */
#define LOOK_COUNT(name) __atomic_fetch_add(&look_calls[LOOK_CALL_##name], 1, __ATOMIC_RELAXED)
#define LOOK_ENTER(name)                                \
	do {                                                \
		LOOK_COUNT(name);                               \
		if (!look.sim)                                  \
			return look_not_open();                     \
	} while (0)
#define LOOK_NEED(condition, error)     \
	do {                                \
		if (!(condition))               \
			return TRZ_CUDA_ERROR_##error; \
	} while (0)

/* Calls a slot of the simulator's table. */
#define LOOK_SLOT(slot, ...) look_result(look.table->slot(look.table->self, __VA_ARGS__))

#endif

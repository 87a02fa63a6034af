/* SPDX-License-Identifier: Apache-2.0
 *
 * Contract tests of the driver seam: each case is written once and holds for every table. Three programs run them: over
 * the simulator, over driver_cuda with the look-alike libcuda, and over driver_cuda with a GPU.
 */
#ifndef CONTRACT_H
#define CONTRACT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "terrazzo_driver.h"

/* What a case needs besides the table. No function returns a status: each asserts that it succeeded. */
struct contract_ops {
	/* Makes a context of the user's own; it is not current afterwards. */
	trz_context (*context_create)(void *self, int device);
	void (*context_destroy)(void *self, trz_context context);

	/* The calling thread's current context. */
	trz_context (*context_current)(void *self);
	void (*context_set)(void *self, trz_context context);

	/* Makes a stream that does not wait for the legacy stream. */
	trz_stream (*stream_create)(void *self, trz_context context);
	void (*stream_destroy)(void *self, trz_context context, trz_stream stream);
	void (*stream_sync)(void *self, trz_context context, trz_stream stream);

	/* Work: enqueued here, done when the stream gets to it. */
	void (*fill)(void *self, trz_context c, trz_stream s, trz_addr address, uint64_t size, uint8_t value);
	void (*read)(void *self, trz_context c, trz_stream s, void *to, trz_addr from, uint64_t size);

	/* Capture the stream. capture_end returns the graph, ready for launches, or NULL if the capture was
	 * invalidated; the capture is over in either case. */
	void (*capture_begin)(void *self, trz_context context, trz_stream stream, trz_capture_mode mode);
	void *(*capture_end)(void *self, trz_context context, trz_stream stream);
	void (*graph_launch)(void *self, trz_context context, void *graph, trz_stream stream);
	void (*graph_destroy)(void *self, trz_context context, void *graph);

	/* Keeps the stream busy until *flag is not 0. While it does, a case calls nothing that may block. */
	void (*hold)(void *self, trz_context context, trz_stream stream, uint32_t *flag);

	/* Enqueues a host function. */
	void (*call_back)(void *self, trz_context context, trz_stream stream, void (*function)(void *), void *arg);
};

/* Where a case runs. */
struct contract_env {
	const trz_driver *driver;
	const struct contract_ops *ops;
	void *self; /* of ops */
	int device;
	trz_device_info info;
	trz_context context; /* retained; current in no thread when a case begins */
	uint32_t *held;      /* the case's own flag for `hold`: 0, and set when the case ends */
};

struct contract_case {
	const char *name;
	void (*run)(struct contract_env *env);
	const char *confirmed; /* the GPU and driver on which it has passed; printed by the runner */
};

#define NEVER_ON_GPU "never run on a GPU"
#define ON_H200 "passed on an NVIDIA H200, driver 580.159.04"

/* Each list ends with a name of NULL. */
extern const struct contract_case contract_device_cases[];
extern const struct contract_case contract_memory_cases[];
extern const struct contract_case contract_stream_cases[];
extern const struct contract_case contract_capture_cases[];

/* Runs all cases against a table, on device 0; returns the number of those that failed. */
int contract_run(const char *title, const trz_driver *driver, const struct contract_ops *ops, void *self);

/* The simulator as ops; self is the `sim`. */
extern const struct contract_ops contract_sim_ops;

/* The library that serves libcuda.so.1 as ops; self is NULL. NULL: it cannot be loaded. */
const struct contract_ops *contract_cuda_ops(void);

/* Calls a slot or one of the ops. */
#define SLOT(env, slot, ...) (env)->driver->slot((env)->driver->self, __VA_ARGS__)
#define OPS(env, function, ...) (env)->ops->function((env)->self, __VA_ARGS__)

/* Asserts that a status is as expected; if not, prints the driver's own words. */
void contract_expect(trz_status got, trz_status expected, const char *what, const char *file, int line);
#define expect_status(call, status) contract_expect((call), (status), #call, __FILE__, __LINE__)
#define expect_ok(call) expect_status(call, TRZ_OK)

/* Asserts a refusal, of any kind, that leaves the context alive. */
void contract_refused(trz_status got, const char *what, const char *file, int line);
#define expect_refused(call) contract_refused((call), #call, __FILE__, __LINE__)

#endif

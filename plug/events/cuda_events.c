/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of the CUDA runtime that concern events, with reports to the heaps around them.
 *
 * What a heap knows of an event is used only while all of its records are seen. An object loaded since the last look at
 * the imports may have recorded any event. So before a wait is reported, after the runtime's call, this asks whether
 * objects have been loaded; if so, all events are forgotten, and the wait goes unreported.
 */
#include "cuda_events.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "event_order.h"
#include "relink.h"
#include "terrazzo.h"

enum {
	CREATED_INTERPROCESS = 4,         /* cudaEventInterprocess */
	VAIN_SCANS = 100                  /* after more than so many scans in a row without a clean one we give up */
};

/* cudaStreamPerThread */
#define PER_THREAD ((void *)2)

struct ipc_handle {
	char bytes[64];
};

struct launch_config {
	unsigned grid[3], block[3];
	size_t shared;
	void *stream;
	const struct event_order_attribute *attributes;
	unsigned attribute_count;
};

/* The calls: name, parameters. Each is called `on_NAME` here. */
#define CALLS(X)                                                                                                  \
	X(cudaEventCreate, (void **event))                                                                            \
	X(cudaEventCreateWithFlags, (void **event, unsigned flags))                                                   \
	X(cudaIpcOpenEventHandle, (void **event, struct ipc_handle handle))                                           \
	X(cudaEventDestroy, (void *event))                                                                            \
	X(cudaEventRecord, (void *event, void *stream))                                                               \
	X(cudaEventRecord_ptsz, (void *event, void *stream))                                                          \
	X(cudaEventRecordWithFlags, (void *event, void *stream, unsigned flags))                                      \
	X(cudaEventRecordWithFlags_ptsz, (void *event, void *stream, unsigned flags))                                 \
	X(cudaStreamWaitEvent, (void *stream, void *event, unsigned flags))                                           \
	X(cudaStreamWaitEvent_ptsz, (void *stream, void *event, unsigned flags))                                      \
	X(cudaEventSynchronize, (void *event))                                                                        \
	X(cudaEventQuery, (void *event))                                                                              \
	X(cudaStreamSynchronize, (void *stream))                                                                      \
	X(cudaStreamSynchronize_ptsz, (void *stream))                                                                 \
	X(cudaStreamQuery, (void *stream))                                                                            \
	X(cudaStreamQuery_ptsz, (void *stream))                                                                       \
	X(cudaDeviceSynchronize, (void))                                                                              \
	X(cudaDeviceReset, (void))                                                                                    \
	X(cudaGraphAddEventRecordNode,                                                                                \
	  (void **node, void *graph, const void *dependencies, size_t count, void *event))                            \
	X(cudaGraphAddNode, (void *a, void *b, void *c, void *d, void *e, void *f))                                   \
	X(cudaGraphAddNode_v2, (void *a, void *b, void *c, void *d, void *e, void *f))                                \
	X(cudaGraphEventRecordNodeSetEvent, (void *node, void *event))                                                \
	X(cudaGraphExecEventRecordNodeSetEvent, (void *exec, void *node, void *event))                                \
	X(cudaGraphNodeSetParams, (void *node, struct event_order_node *params))                                      \
	X(cudaGraphExecNodeSetParams, (void *exec, void *node, struct event_order_node *params))                      \
	X(cudaLaunchKernelExC, (const struct launch_config *config, const void *kernel, void **arguments))            \
	X(cudaLaunchKernelExC_ptsz, (const struct launch_config *config, const void *kernel, void **arguments))

#define DECLARE(name, parameters)                                                                                 \
	typedef int type_##name parameters;                                                                           \
	static type_##name on_##name;
CALLS(DECLARE)

#define INDEX(name, parameters) AT_##name,
enum { CALLS(INDEX) CALL_COUNT };

/* `real` is set before any import leads here. */
#define ENTRY(call, parameters) {.name = #call, .replacement = (relink_function *)on_##call},
static struct relink calls[CALL_COUNT] = {CALLS(ENTRY)};

#define REAL(name) ((type_##name *)calls[AT_##name].real)

/* relink_loaded() at the last scan, if that found nothing to do; else 0. */
static _Atomic(uint64_t) clean;

/* Held for each scan; guards `vain_scans`, `imports`. */
static pthread_mutex_t scan_lock = PTHREAD_MUTEX_INITIALIZER;
static int vain_scans;
static size_t imports;

/* ---- what is seen ---- */

static void scan_locked(void)
{
	struct relink_scan scan = relink_all(calls, CALL_COUNT);
	imports = scan.done + scan.replaced;
	bool done = !scan.replaced && !scan.unready && !scan.strange;
	vain_scans = done ? 0 : vain_scans + 1;
	atomic_store(&clean, done ? scan.loaded : 0);
	if (scan.strange || vain_scans > VAIN_SCANS)
		event_order_give_up();
}

/* Whether all records so far have been seen. If not, all events are forgotten. */
static bool saw_all(void)
{
	if (relink_loaded() == atomic_load(&clean))
		return true;
	if (pthread_mutex_trylock(&scan_lock) == 0) {
		if (!atomic_load(&event_order_given_up))
			scan_locked();
		pthread_mutex_unlock(&scan_lock);
	}
	event_order_forget_all();
	return false;
}

/* ---- the calls ---- */

static int on_cudaEventCreate(void **event)
{
	int error = REAL(cudaEventCreate)(event);
	if (!error)
		event_order_forget(*event);
	return error;
}

static int on_cudaEventCreateWithFlags(void **event, unsigned flags)
{
	int error = REAL(cudaEventCreateWithFlags)(event, flags);
	if (!error)
		event_order_forget(*event);
	if (!error && flags & CREATED_INTERPROCESS)
		event_order_make_foreign(*event);
	return error;
}

static int on_cudaIpcOpenEventHandle(void **event, struct ipc_handle handle)
{
	int error = REAL(cudaIpcOpenEventHandle)(event, handle);
	if (!error)
		event_order_make_foreign(*event);
	return error;
}

static int on_cudaEventDestroy(void *event)
{
	event_order_forget(event);
	return REAL(cudaEventDestroy)(event);
}

static void *per_thread(void *stream)
{
	return stream ? stream : PER_THREAD;
}

static int on_cudaEventRecord(void *event, void *stream)
{
	return event_order_record(REAL(cudaEventRecord), event, stream, stream);
}

static int on_cudaEventRecord_ptsz(void *event, void *stream)
{
	return event_order_record(REAL(cudaEventRecord_ptsz), event, stream, per_thread(stream));
}

static int on_cudaEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
	return event_order_record_with(REAL(cudaEventRecordWithFlags), event, stream, flags, stream);
}

static int on_cudaEventRecordWithFlags_ptsz(void *event, void *stream, unsigned flags)
{
	return event_order_record_with(REAL(cudaEventRecordWithFlags_ptsz), event, stream, flags, per_thread(stream));
}

static int on_cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	return event_order_wait(REAL(cudaStreamWaitEvent), stream, event, flags, stream, saw_all);
}

static int on_cudaStreamWaitEvent_ptsz(void *stream, void *event, unsigned flags)
{
	return event_order_wait(REAL(cudaStreamWaitEvent_ptsz), stream, event, flags, per_thread(stream), saw_all);
}

/* ---- waits by the host ---- */

static int on_cudaEventSynchronize(void *event)
{
	return event_order_finish(REAL(cudaEventSynchronize), event, saw_all);
}

static int on_cudaEventQuery(void *event)
{
	return event_order_finish(REAL(cudaEventQuery), event, saw_all);
}

static int on_cudaStreamSynchronize(void *stream)
{
	return event_order_finish_stream(REAL(cudaStreamSynchronize), stream, stream);
}

static int on_cudaStreamSynchronize_ptsz(void *stream)
{
	return event_order_finish_stream(REAL(cudaStreamSynchronize_ptsz), stream, per_thread(stream));
}

static int on_cudaStreamQuery(void *stream)
{
	return event_order_finish_stream(REAL(cudaStreamQuery), stream, stream);
}

static int on_cudaStreamQuery_ptsz(void *stream)
{
	return event_order_finish_stream(REAL(cudaStreamQuery_ptsz), stream, per_thread(stream));
}

/* cuCtxGetCurrent; NULL: the driver is not loaded yet. */
typedef int current_context_function(void **context);
static _Atomic(current_context_function *) current_context;

static int on_cudaDeviceSynchronize(void)
{
	void *context = NULL;
	current_context_function *current = atomic_load(&current_context);
	if (!event_order_is_reporting() || !current || current(&context) != 0)
		context = NULL;
	return event_order_finish_all(REAL(cudaDeviceSynchronize), context);
}

static int on_cudaDeviceReset(void)
{
	event_order_forget_all();
	return REAL(cudaDeviceReset)();
}

/* ---- what else records events ---- */

static int on_cudaGraphAddEventRecordNode(void **node, void *graph, const void *dependencies, size_t count, void *event)
{
	event_order_make_foreign(event);
	return REAL(cudaGraphAddEventRecordNode)(node, graph, dependencies, count, event);
}

static int on_cudaGraphEventRecordNodeSetEvent(void *node, void *event)
{
	event_order_make_foreign(event);
	return REAL(cudaGraphEventRecordNodeSetEvent)(node, event);
}

static int on_cudaGraphExecEventRecordNodeSetEvent(void *exec, void *node, void *event)
{
	event_order_make_foreign(event);
	return REAL(cudaGraphExecEventRecordNodeSetEvent)(exec, node, event);
}

/* Has five parameters until CUDA 12, six from 13 on; the last describes the node. */
static int runtime_version;

static int on_cudaGraphAddNode(void *a, void *b, void *c, void *d, void *e, void *f)
{
	event_order_note_node(runtime_version >= 13000 ? f : e);
	return REAL(cudaGraphAddNode)(a, b, c, d, e, f);
}

static int on_cudaGraphAddNode_v2(void *a, void *b, void *c, void *d, void *e, void *f)
{
	event_order_note_node(f);
	return REAL(cudaGraphAddNode_v2)(a, b, c, d, e, f);
}

static int on_cudaGraphNodeSetParams(void *node, struct event_order_node *params)
{
	event_order_note_node(params);
	return REAL(cudaGraphNodeSetParams)(node, params);
}

static int on_cudaGraphExecNodeSetParams(void *exec, void *node, struct event_order_node *params)
{
	event_order_note_node(params);
	return REAL(cudaGraphExecNodeSetParams)(exec, node, params);
}

static void note_launch(const struct launch_config *config)
{
	if (config)
		event_order_note_attributes(config->attributes, config->attribute_count);
}

static int on_cudaLaunchKernelExC(const struct launch_config *config, const void *kernel, void **arguments)
{
	note_launch(config);
	return REAL(cudaLaunchKernelExC)(config, kernel, arguments);
}

static int on_cudaLaunchKernelExC_ptsz(const struct launch_config *config, const void *kernel, void **arguments)
{
	note_launch(config);
	return REAL(cudaLaunchKernelExC_ptsz)(config, kernel, arguments);
}

/* ---- beginning ---- */

static int find_runtime(struct dl_phdr_info *info, size_t size, void *path)
{
	const char *slash = strrchr(info->dlpi_name, '/');
	(void)size;
	if (strncmp(slash ? slash + 1 : info->dlpi_name, "libcudart.so", 12) != 0)
		return 0;
	size_t length = strlen(info->dlpi_name);
	if (length >= PATH_MAX)
		return 0;
	memcpy(path, info->dlpi_name, length + 1);
	return 1;
}

/* A child cannot use the device if the parent has, whose heaps have been told of events. Otherwise it may open heaps of
 * its own; if another thread of the parent was looking at the imports, the child looks again. */
static void note_fork(void)
{
	if (event_order_is_reporting()) {
		atomic_store(&event_order_reporting, false);
		atomic_store(&event_order_given_up, true);
	}
	pthread_mutex_init(&scan_lock, NULL);
	event_order_begin_anew();
	atomic_store(&clean, 0);
}

static void find_driver(void)
{
	void *driver = atomic_load(&current_context) ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (driver)
		atomic_store(&current_context, (current_context_function *)dlsym(driver, "cuCtxGetCurrent"));
}

/* What the loaded runtime has. */
struct runtime {
	relink_function *calls[CALL_COUNT];
	int version;
};

/* The runtime and the driver stay loaded, since nothing drops what dlopen() gives here. */
static bool look_for_runtime(struct runtime *r)
{
	char *path = malloc(PATH_MAX);
	void *library = path && dl_iterate_phdr(find_runtime, path) ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	free(path);
	if (!library)
		return false;
	for (int i = 0; i < CALL_COUNT; i++)
		r->calls[i] = (relink_function *)dlsym(library, calls[i].name);
	int (*version)(int *) = (int (*)(int *))dlsym(library, "cudaRuntimeGetVersion");
	r->version = 0;
	if (version)
		version(&r->version);
	return true;
}

static void note_runtime_locked(const struct runtime *r)
{
	for (int i = 0; i < CALL_COUNT; i++)
		calls[i].real = r->calls[i];
	runtime_version = r->version;
	pthread_atfork(NULL, NULL, note_fork);
}

/* Several threads may look at the same time, since no lock is held while the dynamic linker is asked
 * (docs/lock-order.md). */
static bool find_calls(void)
{
	static atomic_bool found;
	struct runtime r;
	if (atomic_load(&found))
		return true;
	if (!look_for_runtime(&r))
		return false;
	pthread_mutex_lock(&scan_lock);
	if (!atomic_load(&found))
		note_runtime_locked(&r);
	atomic_store(&found, true);
	pthread_mutex_unlock(&scan_lock);
	return true;
}

size_t cuda_events_follow(bool report)
{
	size_t found = 0;
	if (atomic_load(&event_order_given_up))
		return 0;
	if (find_calls()) {
		find_driver();
		pthread_mutex_lock(&scan_lock);
		scan_locked();
		if (report && !atomic_load(&event_order_given_up))
			atomic_store(&event_order_reporting, true);
		found = atomic_load(&event_order_given_up) ? 0 : imports;
		pthread_mutex_unlock(&scan_lock);
	}
	event_order_forget_all();
	return found;
}

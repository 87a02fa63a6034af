/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of the CUDA runtime that concern events, with reports to the heaps around them.
 *
 * What a heap knows of an event is used only while all its records are seen. An object that has been loaded since the
 * last look at the imports may have recorded any event. So each wait that would teach something asks first, after the
 * runtime's call, whether objects have come; then all events are forgotten, and the wait goes unreported.
 *
 * An event that something else than cudaEventRecord records (a launched graph, another process, a kernel's launch) is
 * foreign until it is destroyed: it is never reported.
 */
#include "cuda_events.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "relink.h"
#include "terrazzo.h"

enum {
	CREATED_INTERPROCESS = 4,         /* cudaEventInterprocess */
	NODE_EVENT_RECORD = 7,            /* cudaGraphNodeTypeEventRecord */
	LAUNCH_PROGRAMMATIC_EVENT = 7,    /* cudaLaunchAttributeProgrammaticEvent */
	LAUNCH_COMPLETION_EVENT = 12,     /* cudaLaunchAttributeLaunchCompletionEvent */
	VAIN_SCANS = 100                  /* without a clean one between them: the process is beyond us */
};

/* cudaStreamPerThread */
#define PER_THREAD ((void *)2)

struct ipc_handle {
	char bytes[64];
};

struct node_params {
	int type, reserved[3];
	void *event;
};

struct launch_attribute {
	int id, padding;
	union {
		void *event;
		char bytes[64];
	} value;
};

struct launch_config {
	unsigned grid[3], block[3];
	size_t shared;
	void *stream;
	const struct launch_attribute *attributes;
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
	X(cudaGraphNodeSetParams, (void *node, struct node_params *params))                                           \
	X(cudaGraphExecNodeSetParams, (void *exec, void *node, struct node_params *params))                           \
	X(cudaLaunchKernelExC, (const struct launch_config *config, const void *kernel, void **arguments))            \
	X(cudaLaunchKernelExC_ptsz, (const struct launch_config *config, const void *kernel, void **arguments))

#define DECLARE(name, parameters)                                                                                 \
	typedef int type_##name parameters;                                                                           \
	static type_##name on_##name;
CALLS(DECLARE)

#define INDEX(name, parameters) AT_##name,
enum { CALLS(INDEX) CALL_COUNT };

/* `real` is written before anything leads here. */
#define ENTRY(call, parameters) {.name = #call, .replacement = (relink_function *)on_##call},
static struct relink calls[CALL_COUNT] = {CALLS(ENTRY)};

#define REAL(name) ((type_##name *)calls[AT_##name].real)

static atomic_bool reporting;

/* relink_loaded() of the last scan that found nothing to do; 0: none. */
static _Atomic(uint64_t) clean;

/* Held for each scan; guards `vain_scans`, `imports`. */
static pthread_mutex_t scan_lock = PTHREAD_MUTEX_INITIALIZER;
static int vain_scans;
static size_t imports;

static atomic_bool given_up;

static bool is_reporting(void)
{
	return atomic_load_explicit(&reporting, memory_order_relaxed);
}

static void forget_all(void)
{
	if (is_reporting())
		trz_event_forget(NULL, NULL);
}

static void give_up(void)
{
	atomic_store(&given_up, true);
	forget_all();
	atomic_store(&reporting, false);
}

/* ---- foreign events ---- */

/* Sets of few, by a hash of the event. A full one: nothing is reported any more. */
enum { FOREIGN_SETS = 1024, FOREIGN_WAYS = 8 };
static _Atomic(void *) foreign[FOREIGN_SETS][FOREIGN_WAYS];
static atomic_size_t foreign_count;
static pthread_mutex_t foreign_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic(void *) *foreign_set(const void *event)
{
	return foreign[(uintptr_t)event * 0x9e3779b97f4a7c15u >> 54];
}

static _Atomic(void *) *find_foreign(const void *event, void *what)
{
	_Atomic(void *) *set = foreign_set(event);
	for (int i = 0; i < FOREIGN_WAYS; i++)
		if (atomic_load_explicit(&set[i], memory_order_acquire) == what)
			return &set[i];
	return NULL;
}

static bool is_foreign(void *event)
{
	return atomic_load_explicit(&foreign_count, memory_order_acquire) &&
	       !atomic_load_explicit(&given_up, memory_order_relaxed) && find_foreign(event, event);
}

static void make_foreign(void *event)
{
	if (!event || atomic_load_explicit(&given_up, memory_order_relaxed))
		return;
	pthread_mutex_lock(&foreign_lock);
	_Atomic(void *) *place = find_foreign(event, event) ? NULL : find_foreign(event, NULL);
	bool full = !place && !find_foreign(event, event);
	if (place) {
		atomic_store_explicit(place, event, memory_order_release);
		atomic_fetch_add(&foreign_count, 1);
	}
	pthread_mutex_unlock(&foreign_lock);
	if (full)
		give_up();
	else if (is_reporting())
		trz_event_forget(NULL, event);
}

/* An event is new, or about to be destroyed. */
static void forget(void *event)
{
	if (is_foreign(event)) {
		pthread_mutex_lock(&foreign_lock);
		_Atomic(void *) *place = find_foreign(event, event);
		if (place) {
			atomic_store_explicit(place, NULL, memory_order_release);
			atomic_fetch_sub(&foreign_count, 1);
		}
		pthread_mutex_unlock(&foreign_lock);
	}
	if (event && is_reporting())
		trz_event_forget(NULL, event);
}

/* ---- what is seen ---- */

static void scan_locked(void)
{
	struct relink_scan scan = relink_all(calls, CALL_COUNT);
	imports = scan.done + scan.replaced;
	bool done = !scan.replaced && !scan.unready && !scan.strange;
	vain_scans = done ? 0 : vain_scans + 1;
	atomic_store(&clean, done ? scan.loaded : 0);
	if (scan.strange || vain_scans > VAIN_SCANS)
		give_up();
}

/* Whether all records until now have been seen. If not, they are all forgotten. */
static bool saw_all(void)
{
	if (relink_loaded() == atomic_load(&clean))
		return true;
	if (pthread_mutex_trylock(&scan_lock) == 0) {
		if (!atomic_load(&given_up))
			scan_locked();
		pthread_mutex_unlock(&scan_lock);
	}
	forget_all();
	return false;
}

/* ---- the calls ---- */

static int on_cudaEventCreate(void **event)
{
	int error = REAL(cudaEventCreate)(event);
	if (!error)
		forget(*event);
	return error;
}

static int on_cudaEventCreateWithFlags(void **event, unsigned flags)
{
	int error = REAL(cudaEventCreateWithFlags)(event, flags);
	if (!error)
		forget(*event);
	if (!error && flags & CREATED_INTERPROCESS)
		make_foreign(*event);
	return error;
}

static int on_cudaIpcOpenEventHandle(void **event, struct ipc_handle handle)
{
	int error = REAL(cudaIpcOpenEventHandle)(event, handle);
	if (!error)
		make_foreign(*event);
	return error;
}

static int on_cudaEventDestroy(void *event)
{
	forget(event);
	return REAL(cudaEventDestroy)(event);
}

/* `order`: the stream's handle in which NULL is the legacy default stream. */
static int record(type_cudaEventRecord *real, void *event, void *stream, void *order)
{
	if (!is_reporting() || is_foreign(event))
		return real(event, stream);
	uint64_t token = trz_event_record_begin(NULL, event, order);
	int error = real(event, stream);
	trz_event_record_end(NULL, event, order, token, error == 0);
	return error;
}

static int record_with(type_cudaEventRecordWithFlags *real, void *event, void *stream, unsigned flags, void *order)
{
	if (flags)
		make_foreign(event);
	if (!is_reporting() || is_foreign(event))
		return real(event, stream, flags);
	uint64_t token = trz_event_record_begin(NULL, event, order);
	int error = real(event, stream, flags);
	trz_event_record_end(NULL, event, order, token, error == 0);
	return error;
}

static int await(type_cudaStreamWaitEvent *real, void *stream, void *event, unsigned flags, void *order)
{
	uint64_t token = is_reporting() && !flags ? trz_stream_wait_begin(NULL, order, event) : 0;
	int error = real(stream, event, flags);
	if (token)
		trz_stream_wait_end(NULL, order, event, token, error == 0 && saw_all());
	return error;
}

static void *per_thread(void *stream)
{
	return stream ? stream : PER_THREAD;
}

static int on_cudaEventRecord(void *event, void *stream)
{
	return record(REAL(cudaEventRecord), event, stream, stream);
}

static int on_cudaEventRecord_ptsz(void *event, void *stream)
{
	return record(REAL(cudaEventRecord_ptsz), event, stream, per_thread(stream));
}

static int on_cudaEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
	return record_with(REAL(cudaEventRecordWithFlags), event, stream, flags, stream);
}

static int on_cudaEventRecordWithFlags_ptsz(void *event, void *stream, unsigned flags)
{
	return record_with(REAL(cudaEventRecordWithFlags_ptsz), event, stream, flags, per_thread(stream));
}

static int on_cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	return await(REAL(cudaStreamWaitEvent), stream, event, flags, stream);
}

static int on_cudaStreamWaitEvent_ptsz(void *stream, void *event, unsigned flags)
{
	return await(REAL(cudaStreamWaitEvent_ptsz), stream, event, flags, per_thread(stream));
}

/* ---- waits by the host ---- */

/* In one of these calls: a heap knows one for each thread. */
static _Thread_local bool waiting;

static int finish_event(type_cudaEventSynchronize *real, void *event)
{
	uint64_t token = is_reporting() ? trz_event_sync_begin(NULL, event) : 0;
	int error = real(event);
	if (token)
		trz_event_sync_end(NULL, event, token, error == 0 && saw_all());
	return error;
}

static int on_cudaEventSynchronize(void *event)
{
	return finish_event(REAL(cudaEventSynchronize), event);
}

static int on_cudaEventQuery(void *event)
{
	return finish_event(REAL(cudaEventQuery), event);
}

static int finish_stream(type_cudaStreamSynchronize *real, void *stream, void *order)
{
	if (!is_reporting() || waiting)
		return real(stream);
	waiting = true;
	uint64_t token = trz_stream_sync_begin(NULL, order);
	int error = real(stream);
	trz_sync_end(NULL, token, error == 0);
	waiting = false;
	return error;
}

static int on_cudaStreamSynchronize(void *stream)
{
	return finish_stream(REAL(cudaStreamSynchronize), stream, stream);
}

static int on_cudaStreamSynchronize_ptsz(void *stream)
{
	return finish_stream(REAL(cudaStreamSynchronize_ptsz), stream, per_thread(stream));
}

static int on_cudaStreamQuery(void *stream)
{
	return finish_stream(REAL(cudaStreamQuery), stream, stream);
}

static int on_cudaStreamQuery_ptsz(void *stream)
{
	return finish_stream(REAL(cudaStreamQuery_ptsz), stream, per_thread(stream));
}

/* cuCtxGetCurrent; NULL: the driver is not loaded yet. */
typedef int current_context_function(void **context);
static _Atomic(current_context_function *) current_context;

static int on_cudaDeviceSynchronize(void)
{
	void *context = NULL;
	current_context_function *current = atomic_load(&current_context);
	if (!is_reporting() || waiting || !current || current(&context) != 0 || !context)
		return REAL(cudaDeviceSynchronize)();
	waiting = true;
	uint64_t token = trz_context_sync_begin(NULL, context);
	int error = REAL(cudaDeviceSynchronize)();
	trz_sync_end(NULL, token, error == 0);
	waiting = false;
	return error;
}

static int on_cudaDeviceReset(void)
{
	forget_all();
	return REAL(cudaDeviceReset)();
}

/* ---- what else records events ---- */

static int on_cudaGraphAddEventRecordNode(void **node, void *graph, const void *dependencies, size_t count, void *event)
{
	make_foreign(event);
	return REAL(cudaGraphAddEventRecordNode)(node, graph, dependencies, count, event);
}

static int on_cudaGraphEventRecordNodeSetEvent(void *node, void *event)
{
	make_foreign(event);
	return REAL(cudaGraphEventRecordNodeSetEvent)(node, event);
}

static int on_cudaGraphExecEventRecordNodeSetEvent(void *exec, void *node, void *event)
{
	make_foreign(event);
	return REAL(cudaGraphExecEventRecordNodeSetEvent)(exec, node, event);
}

static void note_params(const struct node_params *params)
{
	if (params && params->type == NODE_EVENT_RECORD)
		make_foreign(params->event);
}

/* Of five parameters until CUDA 12, of six from 13 on; the last says what the node does. */
static int runtime_version;

static int on_cudaGraphAddNode(void *a, void *b, void *c, void *d, void *e, void *f)
{
	note_params(runtime_version >= 13000 ? f : e);
	return REAL(cudaGraphAddNode)(a, b, c, d, e, f);
}

static int on_cudaGraphAddNode_v2(void *a, void *b, void *c, void *d, void *e, void *f)
{
	note_params(f);
	return REAL(cudaGraphAddNode_v2)(a, b, c, d, e, f);
}

static int on_cudaGraphNodeSetParams(void *node, struct node_params *params)
{
	note_params(params);
	return REAL(cudaGraphNodeSetParams)(node, params);
}

static int on_cudaGraphExecNodeSetParams(void *exec, void *node, struct node_params *params)
{
	note_params(params);
	return REAL(cudaGraphExecNodeSetParams)(exec, node, params);
}

static void note_attributes(const struct launch_config *config)
{
	for (unsigned i = 0; config && config->attributes && i < config->attribute_count; i++) {
		const struct launch_attribute *a = &config->attributes[i];
		if (a->id == LAUNCH_PROGRAMMATIC_EVENT || a->id == LAUNCH_COMPLETION_EVENT)
			make_foreign(a->value.event);
	}
}

static int on_cudaLaunchKernelExC(const struct launch_config *config, const void *kernel, void **arguments)
{
	note_attributes(config);
	return REAL(cudaLaunchKernelExC)(config, kernel, arguments);
}

static int on_cudaLaunchKernelExC_ptsz(const struct launch_config *config, const void *kernel, void **arguments)
{
	note_attributes(config);
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

/* In the child the parent's locks may be held; it cannot use the device. */
static void note_fork(void)
{
	atomic_store(&reporting, false);
	atomic_store(&given_up, true);
}

static void find_driver(void)
{
	void *driver = atomic_load(&current_context) ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (driver)
		atomic_store(&current_context, (current_context_function *)dlsym(driver, "cuCtxGetCurrent"));
}

/* The runtime and the driver stay loaded, since nothing drops what dlopen() gives here. */
static bool find_calls(void)
{
	static bool found;
	char path[PATH_MAX];
	if (found || !dl_iterate_phdr(find_runtime, path))
		return found;
	void *runtime = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	if (!runtime)
		return false;
	for (int i = 0; i < CALL_COUNT; i++)
		calls[i].real = (relink_function *)dlsym(runtime, calls[i].name);
	int (*version)(int *) = (int (*)(int *))dlsym(runtime, "cudaRuntimeGetVersion");
	if (version)
		version(&runtime_version);
	pthread_atfork(NULL, NULL, note_fork);
	found = true;
	return true;
}

size_t cuda_events_follow(bool report)
{
	size_t found = 0;
	if (atomic_load(&given_up))
		return 0;
	pthread_mutex_lock(&scan_lock);
	if (find_calls()) {
		find_driver();
		scan_locked();
		if (report && !atomic_load(&given_up))
			atomic_store(&reporting, true);
		found = atomic_load(&given_up) ? 0 : imports;
	}
	pthread_mutex_unlock(&scan_lock);
	forget_all();
	return found;
}

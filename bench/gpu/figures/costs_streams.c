/* SPDX-License-Identifier: Apache-2.0
 *
 * What the small calls cost: events, streams, questions. They take less than reading the clock is sure of, so a sample
 * is the mean of a batch. Batches that enqueue work are short, lest the queue of the device fills up.
 */
#include "gpu.h"

enum { SAMPLES = 50, BATCH = 200 };

static trz_event events[BATCH];
static trz_event one;
static trz_stream other;
static struct series took;

/* Calls that differ only in their answers. */
static trz_status create_event(int i)
{
	return gpu.driver->event_create(gpu.self, gpu.context, &events[i]);
}

static trz_status destroy_event(int i)
{
	return gpu.driver->event_destroy(gpu.self, gpu.context, events[i]);
}

static trz_status record_one(int i)
{
	(void)i;
	return gpu.driver->event_record(gpu.self, gpu.context, one, gpu.stream);
}

static trz_status record_each(int i)
{
	return gpu.driver->event_record(gpu.self, gpu.context, events[i], gpu.stream);
}

static trz_status record_context(int i)
{
	(void)i;
	return gpu.driver->context_record(gpu.self, gpu.context, one);
}

static trz_status query_done(int i)
{
	(void)i;
	return gpu.driver->event_query(gpu.self, gpu.context, one);
}

static trz_status query_not_done(int i)
{
	trz_status status = query_done(i);
	return status == TRZ_NOT_READY ? TRZ_OK : status;
}

static trz_status sync_done(int i)
{
	(void)i;
	return gpu.driver->event_sync(gpu.self, gpu.context, one);
}

static trz_status wait_same(int i)
{
	(void)i;
	return gpu.driver->stream_wait(gpu.self, gpu.context, gpu.stream, one);
}

static trz_status wait_other(int i)
{
	(void)i;
	return gpu.driver->stream_wait(gpu.self, gpu.context, other, one);
}

static trz_status ask_id(int i)
{
	uint64_t id;
	(void)i;
	return gpu.driver->stream_id(gpu.self, gpu.context, gpu.stream, &id);
}

static trz_status ask_context(int i)
{
	trz_context of;
	(void)i;
	return gpu.driver->stream_context(gpu.self, gpu.context, gpu.stream, &of);
}

static trz_status ask_capture(int i)
{
	trz_capture_status status;
	uint64_t id;
	(void)i;
	return gpu.driver->stream_capture(gpu.self, gpu.context, gpu.stream, &status, &id);
}

static trz_status exchange_mode(int i)
{
	static trz_capture_mode mode = TRZ_CAPTURE_RELAXED;
	(void)i;
	return gpu.driver->capture_mode(gpu.self, &mode);
}

static trz_status ask_memory(int i)
{
	uint64_t free_bytes, total;
	(void)i;
	return gpu.driver->mem_info(gpu.self, gpu.context, &free_bytes, &total);
}

static void batch(trz_status (*call)(int i))
{
	uint64_t from = now_ns();
	for (int i = 0; i < BATCH; i++)
		table_must(call(i));
	series_add(&took, ((double)(now_ns() - from) - clock_cost_ns) / BATCH);
}

static void report(const char *slot, const char *what)
{
	result_figure(slot, what, 0, BATCH, 0, &took);
	series_clear(&took);
}

static void on_idle_device(const char *slot, const char *what, trz_status (*call)(int i))
{
	for (int i = 0; i < SAMPLES; i++) {
		batch(call);
		gpu_must(gpu.cuda.synchronize());
	}
	report(slot, what);
}

/* Behind a kernel that runs longer than the batch takes; `one` is recorded behind it, too. */
static void behind_a_kernel(const char *slot, const char *what, trz_addr at, trz_status (*call)(int i))
{
	for (int i = 0; i < SAMPLES / 5; i++) {
		gpu_must(gpu.cuda.synchronize());
		gpu_spin(gpu.stream, at, 5000000);
		table_must(record_one(0));
		batch(call);
		if (gpu.computes && call != record_each && gpu.cuda.event_query(one) != GPU_NOT_READY)
			took.count--;  /* the host has slept longer than the kernel ran */
	}
	gpu_must(gpu.cuda.synchronize());
	report(slot, what);
}

void part_small(void)
{
	trz_addr at;
	gpu_open();
	gpu_must(gpu.cuda.mem_alloc(&at, MIB(2)));
	for (int i = 0; i < SAMPLES; i++) {
		batch(create_event);
		if (i < SAMPLES - 1)
			for (int n = 0; n < BATCH; n++)
				table_must(destroy_event(n));
	}
	report("event_create", "");
	other = gpu_new_stream();
	table_must(gpu.driver->event_create(gpu.self, gpu.context, &one));
	on_idle_device("event_record", "one event, idle", record_one);
	on_idle_device("event_record", "idle", record_each);
	behind_a_kernel("event_record", "behind a kernel", at, record_each);
	if (gpu.driver->context_record(gpu.self, gpu.context, one) == TRZ_OK) {
		on_idle_device("context_record", "2 streams, idle", record_context);
		for (int i = 0; i < 8; i++)
			gpu_launch(gpu.kernel.write_all, 1, gpu_new_stream(), (void *[]){&at, &(uint64_t){0}, &(uint32_t){0}});
		on_idle_device("context_record", "10 streams, idle", record_context);
	}
	on_idle_device("event_query", "done", query_done);
	behind_a_kernel("event_query", "not done", at, query_not_done);
	table_must(record_one(0));
	gpu_must(gpu.cuda.synchronize());
	on_idle_device("event_sync", "done", sync_done);
	on_idle_device("stream_wait", "done", wait_other);
	behind_a_kernel("stream_wait", "not done", at, wait_other);
	behind_a_kernel("stream_wait", "not done, own stream", at, wait_same);
	on_idle_device("stream_id", "", ask_id);
	on_idle_device("stream_context", "", ask_context);
	on_idle_device("stream_capture", "", ask_capture);
	on_idle_device("capture_mode", "", exchange_mode);
	on_idle_device("mem_info", "batch", ask_memory);
	for (int i = 0; i < SAMPLES; i++) {
		batch(destroy_event);
		for (int n = 0; n < BATCH && i < SAMPLES - 1; n++)
			table_must(create_event(n));
	}
	report("event_destroy", "");
}

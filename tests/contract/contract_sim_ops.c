/* SPDX-License-Identifier: Apache-2.0
 *
 * Contract ops over the simulator; self is the `sim`.
 */
#include "contract.h"
#include "sim/sim.h"

static trz_context sim_ops_context_create(void *self, int device)
{
	trz_context context = NULL;
	expect_ok(sim_context_create(self, device, &context));
	return context;
}

static void sim_ops_context_destroy(void *self, trz_context context)
{
	expect_ok(sim_context_destroy(self, context));
}

static trz_context sim_ops_context_current(void *self)
{
	return sim_context_current(self);
}

static void sim_ops_context_set(void *self, trz_context context)
{
	sim_context_set_current(self, context);
}

static trz_stream sim_ops_stream_create(void *self, trz_context context)
{
	trz_stream stream = NULL;
	expect_ok(sim_stream_create(self, context, false, &stream));
	return stream;
}

static void sim_ops_stream_destroy(void *self, trz_context context, trz_stream stream)
{
	expect_ok(sim_stream_destroy(self, context, stream));
}

static void sim_ops_stream_sync(void *self, trz_context context, trz_stream stream)
{
	expect_ok(sim_stream_sync(self, context, stream));
}

static void sim_ops_fill(void *self, trz_context c, trz_stream s, trz_addr address, uint64_t size,
                         uint8_t value)
{
	expect_ok(sim_fill(self, c, s, address, size, value));
}

static void sim_ops_read(void *self, trz_context c, trz_stream s, void *to, trz_addr from, uint64_t size)
{
	expect_ok(sim_copy(self, c, s, (uintptr_t)to, from, size));
}

static void sim_ops_hold(void *self, trz_context context, trz_stream stream, uint32_t *flag)
{
	expect_ok(sim_spin(self, context, stream, flag));
}

static void sim_ops_call_back(void *self, trz_context context, trz_stream stream, void (*function)(void *), void *arg)
{
	expect_ok(sim_host(self, context, stream, function, arg));
}

static void sim_ops_capture_begin(void *self, trz_context context, trz_stream stream, trz_capture_mode mode)
{
	expect_ok(sim_capture_begin(self, context, stream, mode));
}

static void *sim_ops_capture_end(void *self, trz_context context, trz_stream stream)
{
	sim_graph graph = 0;
	trz_status status = sim_capture_end(self, context, stream, &graph);
	if (status != TRZ_ERROR_CAPTURE)
		expect_ok(status);
	return (void *)(uintptr_t)graph;
}

static void sim_ops_graph_launch(void *self, trz_context context, void *graph, trz_stream stream)
{
	expect_ok(sim_graph_launch(self, context, (uintptr_t)graph, stream));
}

static void sim_ops_graph_destroy(void *self, trz_context context, void *graph)
{
	expect_ok(sim_graph_destroy(self, context, (uintptr_t)graph));
}

const struct contract_ops contract_sim_ops = {
	.context_create = sim_ops_context_create,
	.context_destroy = sim_ops_context_destroy,
	.context_current = sim_ops_context_current,
	.context_set = sim_ops_context_set,
	.stream_create = sim_ops_stream_create,
	.stream_destroy = sim_ops_stream_destroy,
	.stream_sync = sim_ops_stream_sync,
	.fill = sim_ops_fill,
	.read = sim_ops_read,
	.capture_begin = sim_ops_capture_begin,
	.capture_end = sim_ops_capture_end,
	.graph_launch = sim_ops_graph_launch,
	.graph_destroy = sim_ops_graph_destroy,
	.hold = sim_ops_hold,
	.call_back = sim_ops_call_back,
};

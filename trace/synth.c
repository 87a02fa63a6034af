/* SPDX-License-Identifier: Apache-2.0
 *
 * The shapes of synthetic traces. Each stream has one event, of its own number, which it records again and again.
 */
#include "synth.h"

#include <stdlib.h>

#include "bits.h"
#include "error.h"
#include "prng.h"

enum {
	RING_BUFFERS = 4,      /* in use per stream */
	FSDP_LAYERS = 12,
	FSDP_ACTIVATIONS = 3,  /* per layer */
	RANDOM_LIVE = 1024     /* the most live blocks */
};

struct synth {
	const struct synth_params *params;
	struct trace *trace;
	uint64_t rng;
	trz_status status;
};

/* A live allocation. Invariant: `user`'s future work is ordered after all uses by `owner` and by earlier
 * users. */
struct synth_block {
	uint32_t id;
	uint16_t owner;
	uint16_t user;  /* the newest; the owner if the block is not shared */
};

static bool is_done(const struct synth *s)
{
	return s->status != TRZ_OK || s->trace->count >= s->params->events;
}

/* -- a program's operations, which do nothing once there are enough events -------------------------------- */

static void emit_event(struct synth *s, const struct trace_event *event)
{
	if (!is_done(s))
		s->status = trace_add(s->trace, event);
}

static void emit(struct synth *s, enum trace_kind kind, uint32_t id, uint16_t stream, uint64_t size)
{
	emit_event(s, &(struct trace_event){ .kind = (uint8_t)kind, .id = id, .stream = stream, .size = size });
}

static void emit_pool(struct synth *s, enum trace_kind kind, uint32_t id, uint16_t stream, uint32_t pool)
{
	emit_event(s, &(struct trace_event){ .kind = (uint8_t)kind, .id = id, .stream = stream, .pool = pool });
}

static struct synth_block allocate(struct synth *s, uint64_t size, uint16_t stream)
{
	struct synth_block block = { s->trace->allocs, stream, stream };
	emit(s, TRACE_ALLOC, block.id, stream, size);
	return block;
}

static void hand_over(struct synth *s, uint16_t from, uint16_t to)
{
	if (from == to)
		return;
	emit(s, TRACE_EVENT_RECORD, from, from, 0);
	emit(s, TRACE_STREAM_WAIT, from, to, 0);
}

static void share(struct synth *s, struct synth_block *block, uint16_t user)
{
	hand_over(s, block->user, user);
	if (s->params->record_stream && user != block->owner)
		emit(s, TRACE_RECORD_STREAM, block->id, user, 0);
	block->user = user;
}

static void release(struct synth *s, const struct synth_block *block)
{
	emit(s, TRACE_FREE, block->id, s->params->record_stream ? block->owner : block->user, 0);
}

/* A size from `least` to twice that, in units of 512 B. */
static uint64_t pick_size(struct synth *s, uint64_t least)
{
	return align_up(least + prng_below(&s->rng, least), 512);
}

/* -- ring ------------------------------------------------------------------------------------------------ */

static void make_ring(struct synth *s, struct synth_block *buffers, size_t count)
{
	uint16_t streams = (uint16_t)s->params->streams;
	uint64_t scratch_size = pick_size(s, MIB(1));
	for (uint64_t turn = 0; !is_done(s); turn++) {
		struct synth_block *buffer = &buffers[turn % count];
		uint16_t stage = (uint16_t)(turn % streams);
		if (turn % count == 0)
			emit(s, TRACE_MARKER, (uint32_t)(turn / count), 0, 0);
		if (turn >= count)
			release(s, buffer);
		struct synth_block scratch = allocate(s, scratch_size, stage);
		*buffer = allocate(s, pick_size(s, MIB(4)), stage);
		release(s, &scratch);
		share(s, buffer, (uint16_t)((stage + 1) % streams));
	}
}

/* -- training with sharded parameters -------------------------------------------------------------------- */

struct fsdp {
	struct synth *synth;
	uint64_t gathered[FSDP_LAYERS];
	uint64_t activation[FSDP_LAYERS];
	struct synth_block weights[2];  /* of this layer and the next */
	struct synth_block activations[FSDP_LAYERS][FSDP_ACTIVATIONS];
	uint16_t gather;
	uint16_t reduce;
};

enum { COMPUTE = 0 };

static void gather_layer(struct fsdp *f, int layer)
{
	if (layer < 0 || layer >= FSDP_LAYERS)
		return;
	f->weights[layer % 2] = allocate(f->synth, f->gathered[layer], f->gather);
	share(f->synth, &f->weights[layer % 2], COMPUTE);
}

/* With four streams and more, the others copy activations to the host. */
static void copy_out(struct fsdp *f, struct synth_block *activation, int layer)
{
	uint32_t streams = f->synth->params->streams;
	if (streams > 3)
		share(f->synth, activation, (uint16_t)(3 + (uint32_t)layer % (streams - 3)));
}

static void forward(struct fsdp *f, int layer)
{
	struct synth *s = f->synth;
	gather_layer(f, layer + 1);
	struct synth_block scratch = allocate(s, f->activation[layer] / 2, COMPUTE);
	for (int i = 0; i < FSDP_ACTIVATIONS; i++)
		f->activations[layer][i] = allocate(s, f->activation[layer], COMPUTE);
	release(s, &scratch);
	copy_out(f, &f->activations[layer][0], layer);
	if (layer < FSDP_LAYERS - 1)
		release(s, &f->weights[layer % 2]);
}

static void backward(struct fsdp *f, int layer)
{
	struct synth *s = f->synth;
	gather_layer(f, layer - 1);
	struct synth_block gradient = allocate(s, f->gathered[layer], COMPUTE);
	for (int i = FSDP_ACTIVATIONS - 1; i >= 0; i--) {
		hand_over(s, f->activations[layer][i].user, COMPUTE);
		f->activations[layer][i].user = COMPUTE;
		release(s, &f->activations[layer][i]);
	}
	release(s, &f->weights[layer % 2]);
	share(s, &gradient, f->reduce);
	struct synth_block shard = allocate(s, f->gathered[layer] / 8, f->reduce);
	release(s, &gradient);
	share(s, &shard, COMPUTE);
	release(s, &shard);
}

static void make_fsdp(struct synth *s)
{
	uint16_t last = (uint16_t)(s->params->streams - 1);
	struct fsdp f = { .synth = s, .gather = last < 1 ? last : 1, .reduce = last < 2 ? last : 2 };
	for (int layer = 0; layer < FSDP_LAYERS; layer++) {
		f.gathered[layer] = pick_size(s, MIB(96));
		f.activation[layer] = pick_size(s, MIB(24));
	}
	for (uint32_t step = 0; !is_done(s); step++) {
		emit(s, TRACE_MARKER, step, 0, 0);
		hand_over(s, COMPUTE, f.gather);
		gather_layer(&f, 0);
		for (int layer = 0; layer < FSDP_LAYERS; layer++)
			forward(&f, layer);
		for (int layer = FSDP_LAYERS - 1; layer >= 0; layer--)
			backward(&f, layer);
	}
}

/* -- graphs --------------------------------------------------------------------------------------------- */

enum { GRAPHS = 4, GRAPH_STREAM = 1, GRAPH_POOL = 1, OWN_POOL = 2, GRAPH_STEPS = 40 };

/* A graph has temporaries on one stream or two, and an output that is kept. */
static struct synth_block capture_graph(struct synth *s, uint32_t number)
{
	uint16_t side = (uint16_t)(s->params->streams > 2 ? 2 : GRAPH_STREAM);
	emit_pool(s, TRACE_CAPTURE_BEGIN, number, GRAPH_STREAM, GRAPH_POOL);
	struct synth_block output = allocate(s, pick_size(s, MIB(2)), GRAPH_STREAM);
	struct synth_block first = allocate(s, pick_size(s, MIB(20)), GRAPH_STREAM);
	hand_over(s, GRAPH_STREAM, side);
	struct synth_block second = allocate(s, pick_size(s, MIB(10)), side);
	release(s, &second);
	hand_over(s, side, GRAPH_STREAM);
	release(s, &first);
	struct synth_block third = allocate(s, pick_size(s, MIB(16)), GRAPH_STREAM);
	release(s, &third);
	emit(s, TRACE_CAPTURE_END, number, GRAPH_STREAM, 0);
	return output;
}

static void launch_graphs(struct synth *s)
{
	for (uint32_t i = 0; i < GRAPHS; i++) {
		struct synth_block input = allocate(s, pick_size(s, MIB(4)), COMPUTE);
		share(s, &input, GRAPH_STREAM);
		emit(s, TRACE_GRAPH_LAUNCH, i, GRAPH_STREAM, 0);
		hand_over(s, GRAPH_STREAM, COMPUTE);
		input.user = COMPUTE;
		release(s, &input);
	}
	emit_pool(s, TRACE_POOL_BEGIN, 0, COMPUTE, OWN_POOL);
	struct synth_block own = allocate(s, pick_size(s, MIB(6)), COMPUTE);
	emit_pool(s, TRACE_POOL_END, 0, COMPUTE, OWN_POOL);
	release(s, &own);
}

/* Now and then all graphs are captured again, as for new shapes of a model's input. */
static void make_graphs(struct synth *s)
{
	struct synth_block outputs[GRAPHS];
	for (uint32_t round = 0; !is_done(s); round++) {
		for (uint32_t i = 0; i < GRAPHS; i++)
			outputs[i] = capture_graph(s, i);
		for (uint32_t step = 0; step < GRAPH_STEPS; step++) {
			emit(s, TRACE_MARKER, round * GRAPH_STEPS + step, 0, 0);
			launch_graphs(s);
		}
		for (uint32_t i = 0; i < GRAPHS; i++)
			release(s, &outputs[i]);
		emit_pool(s, TRACE_POOL_RELEASE, 0, 0, GRAPH_POOL);
	}
}

/* -- random ---------------------------------------------------------------------------------------------- */

static uint16_t any_stream(struct synth *s)
{
	return (uint16_t)prng_below(&s->rng, s->params->streams);
}

static struct synth_block random_block(struct synth *s)
{
	uint64_t size = 1 + prng_below(&s->rng, (uint64_t)512 << prng_below(&s->rng, 18));
	struct synth_block block = allocate(s, size, any_stream(s));
	while (prng_below(&s->rng, 4) == 0)
		share(s, &block, any_stream(s));
	return block;
}

static void make_random(struct synth *s, struct synth_block *live, size_t most)
{
	size_t count = 0;
	while (!is_done(s)) {
		if (count < most && (count == 0 || prng_below(&s->rng, 100) < 52)) {
			live[count++] = random_block(s);
		} else {
			size_t which = prng_below(&s->rng, count);
			release(s, &live[which]);
			live[which] = live[--count];
		}
	}
}

trz_status synth_trace(const struct synth_params *params, struct trace *out)
{
	*out = (struct trace){ .streams = params->streams };
	struct synth s = { .params = params, .trace = out, .rng = params->seed };
	size_t count = params->shape == SYNTH_RANDOM ? RANDOM_LIVE : (size_t)RING_BUFFERS * params->streams;
	struct synth_block *blocks = calloc(count, sizeof *blocks);
	if (!blocks)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a trace of %u streams", params->streams);
	if (params->shape == SYNTH_RING)
		make_ring(&s, blocks, count);
	else if (params->shape == SYNTH_FSDP)
		make_fsdp(&s);
	else if (params->shape == SYNTH_GRAPHS)
		make_graphs(&s);
	else
		make_random(&s, blocks, count);
	free(blocks);
	if (s.status != TRZ_OK)
		trace_free(out);
	return s.status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The formulas. Rules of thumb from practitioners' guides, unless a comment names another source.
 */
#include "estimate.h"

/* Bytes that a layer keeps for backward, per token and unit of hidden size, in units of the weights' size. Guides
 * say 10 to 30 without checkpointing; 24 was measured for Hugging Face's LLaMA with SDPA (docs/sim.md). */
#define KEPT_PER_LAYER 24.0

static void add(struct estimate *e, const char *name, const char *formula, double bytes)
{
	if (bytes > 0)
		e->terms[e->count++] = (struct estimate_term){ name, formula, bytes };
}

/* Per trained parameter. Adam has two moments, momentum SGD one; a master copy adds 4 bytes. 8-bit Adam has two
 * moments of one byte. Adafactor keeps rows and columns only: next to nothing. */
static double state_bytes(const struct estimate_model *m)
{
	double moments = m->optimizer == ESTIMATE_ADAMW ? 2 : m->optimizer == ESTIMATE_MOMENTUM ? 1 : 0;
	double bytes = moments * (m->states == ESTIMATE_STATES_AS_WEIGHTS ? m->weight_bytes : 4);
	if (m->optimizer == ESTIMATE_ADAMW8BIT)
		bytes = 2;
	return bytes + (m->states == ESTIMATE_STATES_MASTER ? 4 : 0);
}

/* PyTorch's documentation of torch.optim: the "foreach" implementation, its default on CUDA, needs about the size
 * of the parameters more at its peak. Plain SGD works in place. */
static double step_bytes(const struct estimate_model *m)
{
	return m->optimizer == ESTIMATE_SGD ? 0 : m->weight_bytes;
}

static double max_of(double a, double b)
{
	return a > b ? a : b;
}

static void run_inference(const struct estimate_model *m, double logits, struct estimate *e)
{
	double cache = 2 * m->layers * m->kv_heads * (m->heads ? m->hidden / m->heads : 0) * m->batch * m->seq
	               * m->weight_bytes;
	add(e, "kv_cache", "2 x layers x kv heads x head size x batch x seq x bytes", cache);
	add(e, "logits", "batch x seq x vocabulary x bytes", logits);
	e->peak_at = "the end of the sequence";
	e->allocated_bytes = m->params * m->weight_bytes + cache + logits;
}

/* Gradients grow in backward while activations go: the sum is largest at one end, the start of backward or the
 * optimizer's step. */
static void run_training(const struct estimate_model *m, double logits, struct estimate *e)
{
	double gradients = m->trainable * m->weight_bytes;
	double states = m->trainable * state_bytes(m);
	double step = m->trainable * step_bytes(m);
	double layer = m->batch * m->seq * m->hidden * m->weight_bytes;
	double matrix = m->flash ? 0 : m->batch * m->heads * m->seq * m->seq * m->weight_bytes;
	double kept = m->checkpointing ? layer * (m->layers + KEPT_PER_LAYER) : layer * m->layers * KEPT_PER_LAYER;
	double attention = m->checkpointing ? matrix : matrix * m->layers;
	/* The loss is taken in fp32: a copy of the logits, and its gradient. */
	double loss = logits + 2 * logits / m->weight_bytes * 4;
	add(e, "gradients", "trained params x bytes", gradients);
	add(e, "optimizer_states", "trained params x bytes of the states", states);
	add(e, "activations", m->checkpointing ? "batch x seq x hidden x bytes x (layers + 24)"
	                                       : "batch x seq x hidden x bytes x layers x 24", kept);
	add(e, "attention_matrix", m->checkpointing ? "batch x heads x seq^2 x bytes"
	                                            : "batch x heads x seq^2 x bytes x layers", attention);
	add(e, "logits_and_loss", "batch x seq x vocabulary x (bytes + 4 + 4)", loss);
	add(e, "optimizer_step", "trained params x bytes, of PyTorch's foreach", step);
	double backward = kept + attention + loss, stepping = gradients + step;
	e->peak_at = backward > stepping ? "the start of backward" : "the optimizer's step";
	e->allocated_bytes = m->params * m->weight_bytes + states + max_of(backward, stepping);
}

void estimate_run(const struct estimate_model *m, struct estimate *out)
{
	double logits = m->batch * m->seq * m->vocabulary * m->weight_bytes;
	*out = (struct estimate){ .count = 0 };
	add(out, "weights", "params x bytes", m->params * m->weight_bytes);
	if (m->inference)
		run_inference(m, logits, out);
	else
		run_training(m, logits, out);
	add(out, "context", "outside the allocator, by the device", m->context_bytes);
	out->device_bytes = out->allocated_bytes + m->context_bytes;
}

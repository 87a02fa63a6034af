/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's recurrent layers, by the interface of version 8. The sizes of weights follow from their shapes; their layout
 * has what PyTorch relies on: of each layer and direction the matrices for its input lie together, then those for its
 * state, then the projection, and behind the matrices of all layers the biases in the same order. What a layer keeps
 * for its backward pass, and its workspace, are estimates from the same shapes.
 */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

/* Numbers from the library's binary interface. */
enum cell { RELU, TANH, LSTM, GRU };
enum bias { NO_BIAS, INPUT_BIAS, BOTH_BIASES, STATE_BIAS };
enum { SKIP_INPUT = 1, TRAINING = 1, TENSOR_DIMS = 8 };

struct tensor {
	int type;
	int dims;
	int sizes[TENSOR_DIMS];
	int strides[TENSOR_DIMS];
};

struct layers {
	int cell;
	int bias;
	int directions;
	int skips_input;
	int type;
	size_t input, state, output; /* elements of a step; output: what a direction passes on, after the projection */
	int count;
};

struct sequence {
	size_t steps, batch;
};

/* A part of the weights: first element, shape; empty if there is none. */
struct part {
	size_t first, rows, columns;
};

STANDIN_DESCRIPTOR_OF(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor, sizeof(struct tensor))
STANDIN_DESCRIPTOR_OF(cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor, sizeof(struct layers))
STANDIN_DESCRIPTOR_OF(cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor, sizeof(struct sequence))

static size_t size_of(int type)
{
	switch (type) {
	case 1: /* double */
		return 8;
	case 2: /* half */
	case 9: /* bfloat16 */
		return 2;
	default:
		return 4;
	}
}

int cudnnSetTensorNdDescriptor(struct tensor *t, int type, int dims, const int *sizes, const int *strides)
{
	if (dims < 0 || dims > TENSOR_DIMS)
		return STANDIN_INVALID_VALUE;
	*t = (struct tensor){ .type = type, .dims = dims };
	memcpy(t->sizes, sizes, (size_t)dims * sizeof *sizes);
	memcpy(t->strides, strides, (size_t)dims * sizeof *strides);
	return 0;
}

int cudnnGetTensorNdDescriptor(const struct tensor *t, int wanted, int *type, int *dims, int *sizes, int *strides)
{
	int count = t->dims < wanted ? t->dims : wanted;
	*type = t->type;
	*dims = t->dims;
	memcpy(sizes, t->sizes, (size_t)(count > 0 ? count : 0) * sizeof *sizes);
	memcpy(strides, t->strides, (size_t)(count > 0 ? count : 0) * sizeof *strides);
	return 0;
}

int cudnnSetRNNDescriptor_v8(struct layers *l, int algorithm, int cell, int bias, int bidirectional, int input_mode,
                             int type, int precision, int math, int input, int state, int projected, int count,
                             void *dropout, unsigned flags)
{
	(void)algorithm, (void)precision, (void)math, (void)dropout, (void)flags;
	if (cell < RELU || cell > GRU || input < 1 || state < 1 || projected < 0 || count < 1)
		return STANDIN_INVALID_VALUE;
	*l = (struct layers){
		.cell = cell, .bias = bias, .directions = bidirectional ? 2 : 1, .skips_input = input_mode == SKIP_INPUT,
		.type = type, .input = (size_t)input, .state = (size_t)state,
		.output = (size_t)(projected > 0 && projected < state ? projected : state), .count = count
	};
	return 0;
}

int cudnnSetRNNDataDescriptor(struct sequence *s, int type, int layout, int steps, int batch, int elements,
                              const int *lengths, void *padding)
{
	(void)type, (void)layout, (void)lengths, (void)padding;
	if (steps < 1 || batch < 1 || elements < 1)
		return STANDIN_INVALID_VALUE;
	*s = (struct sequence){ .steps = (size_t)steps, .batch = (size_t)batch };
	return 0;
}

/* ---- weights ---- */

static size_t gates(const struct layers *l)
{
	return l->cell == LSTM ? 4 : l->cell == GRU ? 3 : 1;
}

/* A pseudo-layer is one direction of a layer. */
static size_t pseudo_layers(const struct layers *l)
{
	return (size_t)l->count * (size_t)l->directions;
}

static size_t input_columns(const struct layers *l, size_t pseudo)
{
	if (pseudo >= (size_t)l->directions)
		return l->output * (size_t)l->directions;
	return l->skips_input ? 0 : l->input;
}

static int projects(const struct layers *l)
{
	return l->output < l->state;
}

static size_t matrix_elements(const struct layers *l, size_t pseudo)
{
	return gates(l) * l->state * (input_columns(l, pseudo) + l->output) + (projects(l) ? l->output * l->state : 0);
}

static size_t bias_elements(const struct layers *l)
{
	return gates(l) * l->state * (l->bias == NO_BIAS ? 0 : l->bias == BOTH_BIASES ? 2 : 1);
}

static size_t matrices_before(const struct layers *l, size_t pseudo)
{
	size_t elements = 0;
	for (size_t i = 0; i < pseudo; i++)
		elements += matrix_elements(l, i);
	return elements;
}

/* `id`: the gates' matrices for the input, then those for the state, then the projection's. */
static struct part matrix(const struct layers *l, size_t pseudo, size_t id)
{
	size_t columns = input_columns(l, pseudo), first = matrices_before(l, pseudo);
	if (id < gates(l))
		return (struct part){ first + id * l->state * columns, columns ? l->state : 0, columns };
	first += gates(l) * l->state * columns;
	if (id < 2 * gates(l))
		return (struct part){ first + (id - gates(l)) * l->state * l->output, l->state, l->output };
	first += gates(l) * l->state * l->output;
	return projects(l) ? (struct part){ first, l->output, l->state } : (struct part){ 0 };
}

static struct part bias(const struct layers *l, size_t pseudo, size_t id)
{
	size_t first = matrices_before(l, pseudo_layers(l)) + pseudo * bias_elements(l);
	int for_input = id < gates(l);
	if (id >= 2 * gates(l) || l->bias == NO_BIAS || l->bias == (for_input ? STATE_BIAS : INPUT_BIAS))
		return (struct part){ 0 };
	size_t place = for_input || l->bias == BOTH_BIASES ? id : id - gates(l);
	return (struct part){ first + place * l->state, l->state, 1 };
}

int cudnnGetRNNWeightSpaceSize(void *handle, const struct layers *l, size_t *bytes)
{
	(void)handle;
	size_t elements = matrices_before(l, pseudo_layers(l)) + pseudo_layers(l) * bias_elements(l);
	*bytes = elements * size_of(l->type);
	return 0;
}

/* Tells where a part is; nothing if the caller has no descriptor or no place for the address. */
static void tell_part(const struct layers *l, struct part part, const char *weights, struct tensor *t, void **address)
{
	if (!t || !address)
		return;
	const int rows = (int)part.rows, columns = (int)part.columns;
	*t = (struct tensor){
		.type = l->type, .dims = 3, .sizes = { rows ? 1 : 0, rows, columns }, .strides = { rows * columns, columns, 1 }
	};
	*address = rows ? (void *)(weights + part.first * size_of(l->type)) : NULL;
}

int cudnnGetRNNWeightParams(void *handle, const struct layers *l, int pseudo, size_t bytes, const void *weights, int id,
                            struct tensor *matrix_told, void **matrix_address, struct tensor *bias_told,
                            void **bias_address)
{
	size_t needed;
	cudnnGetRNNWeightSpaceSize(handle, l, &needed);
	if (bytes < needed || pseudo < 0 || (size_t)pseudo >= pseudo_layers(l) || id < 0 || (size_t)id > 2 * gates(l))
		return STANDIN_INVALID_VALUE;
	tell_part(l, matrix(l, (size_t)pseudo, (size_t)id), weights, matrix_told, matrix_address);
	tell_part(l, bias(l, (size_t)pseudo, (size_t)id), weights, bias_told, bias_address);
	return 0;
}

/* ---- work ---- */

/* Values that a cell keeps of a step and an element of its state: its gates' and, for an LSTM, the cell's; for a GRU,
 * the state's part of the new value; and its output. */
static size_t kept_values(const struct layers *l)
{
	return gates(l) + (l->cell == LSTM || l->cell == GRU) + 1;
}

/* Workspace: what all steps of a layer have for input, after its matrices. */
int cudnnGetRNNTempSpaceSizes(void *handle, const struct layers *l, int mode, const struct sequence *s, size_t *work,
                              size_t *reserve)
{
	(void)handle;
	size_t values = s->steps * s->batch * l->state * (size_t)l->directions;
	if (work)
		*work = values * gates(l) * size_of(l->type);
	if (reserve)
		*reserve = mode == TRAINING ? values * kept_values(l) * (size_t)l->count * size_of(l->type) : 0;
	return 0;
}

#define WORK(...) \
	const uint64_t words[] = { __VA_ARGS__ }; \
	return standin_handle_work(__func__, handle, words, sizeof words / sizeof words[0])
#define AT(pointer) (uintptr_t)(pointer)

int cudnnRNNForward(void *handle, void *l, int mode, void *lengths, void *x_desc, void *x, void *y_desc, void *y,
                    void *h_desc, void *hx, void *hy, void *c_desc, void *cx, void *cy, size_t weight_bytes,
                    void *weights, size_t work_bytes, void *work, size_t reserve_bytes, void *reserve)
{
	(void)l, (void)mode, (void)x_desc, (void)y_desc, (void)h_desc, (void)c_desc;
	(void)weight_bytes, (void)work_bytes, (void)reserve_bytes;
	WORK(AT(lengths), AT(x), AT(y), AT(hx), AT(hy), AT(cx), AT(cy), AT(weights), AT(work), AT(reserve));
}

int cudnnRNNBackwardData_v8(void *handle, void *l, void *lengths, void *y_desc, void *y, void *dy, void *x_desc,
                            void *dx, void *h_desc, void *hx, void *dhy, void *dhx, void *c_desc, void *cx, void *dcy,
                            void *dcx, size_t weight_bytes, void *weights, size_t work_bytes, void *work,
                            size_t reserve_bytes, void *reserve)
{
	(void)l, (void)y_desc, (void)x_desc, (void)h_desc, (void)c_desc;
	(void)weight_bytes, (void)work_bytes, (void)reserve_bytes;
	WORK(AT(lengths), AT(y), AT(dy), AT(dx), AT(hx), AT(dhy), AT(dhx), AT(cx), AT(dcy), AT(dcx), AT(weights), AT(work),
	     AT(reserve));
}

int cudnnRNNBackwardWeights_v8(void *handle, void *l, int adds, void *lengths, void *x_desc, void *x, void *h_desc,
                               void *hx, void *y_desc, void *y, size_t weight_bytes, void *dweights, size_t work_bytes,
                               void *work, size_t reserve_bytes, void *reserve)
{
	(void)l, (void)adds, (void)x_desc, (void)h_desc, (void)y_desc;
	(void)weight_bytes, (void)work_bytes, (void)reserve_bytes;
	WORK(AT(lengths), AT(x), AT(hx), AT(y), AT(dweights), AT(work), AT(reserve));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's graph interface: descriptors are bags of attributes, which read back as they were set. Every graph has one
 * engine. A plan's workspace holds what its convolution copies into another layout, and is WORKSPACE bytes at least.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"
#include "standin_cudnn.h"

/* Numbers from the library's binary interface. */
enum attribute_name {
	ENGINEHEUR_GRAPH = 201, ENGINEHEUR_RESULTS = 202, ENGINECFG_ENGINE = 300, ENGINECFG_WORKSPACE_SIZE = 303,
	PLAN_ENGINE_CONFIG = 401, PLAN_WORKSPACE_SIZE = 402, FORWARD_W = 703, FORWARD_X = 704, BACKWARD_DATA_W = 709,
	BACKWARD_DATA_DX = 710, BACKWARD_FILTER_DW = 715, BACKWARD_FILTER_X = 716, GRAPH_ENGINE_COUNT = 802,
	TENSOR_DATA_TYPE = 901, TENSOR_DIMENSIONS = 902, TENSOR_STRIDES = 903, VARIANT_PACK_DATA_POINTERS = 1001
};
enum descriptor_type {
	CONVOLUTION_FORWARD = 10, CONVOLUTION_BACKWARD_FILTER = 11, CONVOLUTION_BACKWARD_DATA = 12, TENSOR = 17
};
enum { DATA_HALF = 2, DATA_BFLOAT16 = 9, SPATIAL = 2 /* the first dimension behind the channels' */ };
enum attribute_type {
	TYPE_HANDLE = 0, TYPE_BOOLEAN = 2, TYPE_INT64 = 3, TYPE_DOUBLE = 5, TYPE_POINTER = 6, TYPE_DESCRIPTOR = 15,
	TYPE_CHAR = 24, TYPE_FRACTION = 26
};

struct attribute {
	int name;
	int type;
	int64_t count;
	void *values;
	struct attribute *next;
};

/* Attributes hold the descriptors that they name: callers destroy these once they are set. */
struct descriptor {
	int type;
	atomic_int holders;
	struct attribute *attributes;
};

static size_t size_of(int type)
{
	switch (type) {
	case TYPE_BOOLEAN:
	case TYPE_CHAR:
		return 1;
	case TYPE_HANDLE:
	case TYPE_INT64:
	case TYPE_DOUBLE:
	case TYPE_POINTER:
	case TYPE_DESCRIPTOR:
	case TYPE_FRACTION:
		return 8;
	default:
		return 4;
	}
}

static struct attribute *find(const struct descriptor *d, int name)
{
	struct attribute *a = d->attributes;
	while (a && a->name != name)
		a = a->next;
	return a;
}

int cudnnBackendCreateDescriptor(int type, void **made)
{
	int failed = standin_make_descriptor(made, sizeof(struct descriptor));
	if (failed)
		return failed;
	struct descriptor *d = *made;
	d->type = type;
	d->holders = 1;
	return 0;
}

/* The `i`th of the descriptors that an attribute names; NULL if it names none, or no more. */
static struct descriptor *named(const struct attribute *a, int64_t i)
{
	return a && a->type == TYPE_DESCRIPTOR && i < a->count ? ((struct descriptor **)a->values)[i] : NULL;
}

static void let_go(struct descriptor *d);

static void empty(struct attribute *a)
{
	for (int64_t i = 0; i < a->count; i++)
		let_go(named(a, i));
	free(a->values);
}

static void let_go(struct descriptor *d)
{
	if (!d || atomic_fetch_sub(&d->holders, 1) > 1)
		return;
	for (struct attribute *a = d->attributes, *next; a; a = next) {
		next = a->next;
		empty(a);
		free(a);
	}
	free(d);
}

int cudnnBackendDestroyDescriptor(void *descriptor)
{
	let_go(descriptor);
	return 0;
}

int cudnnBackendFinalize(void *descriptor)
{
	(void)descriptor;
	return 0;
}

int cudnnBackendSetAttribute(void *descriptor, int name, int type, int64_t count, const void *values)
{
	struct descriptor *d = descriptor;
	if (!d || count < 0 || (count > 0 && !values))
		return STANDIN_INVALID_VALUE;
	struct attribute *a = find(d, name);
	if (!a) {
		a = standin_descriptor(sizeof *a);
		a->name = name;
		a->next = d->attributes;
		d->attributes = a;
	} else {
		empty(a);
	}
	a->type = type;
	a->count = count;
	a->values = standin_descriptor((size_t)count * size_of(type) + 1);
	if (count > 0)
		memcpy(a->values, values, (size_t)count * size_of(type));
	for (int64_t i = 0; i < count; i++)
		if (named(a, i))
			atomic_fetch_add(&named(a, i)->holders, 1);
	return 0;
}

/* ---- workspaces ---- */

static int64_t number(const struct descriptor *tensor, int name, int64_t i)
{
	const struct attribute *a = find(tensor, name);
	return a && a->type == TYPE_INT64 && i < a->count ? ((int64_t *)a->values)[i] : 1;
}

/* Tensor cores take 16-bit numbers with a pixel's channels side by side. cuDNN copies a tensor that has them elsewhere,
 * into its workspace or, a result, from there. 0: this one need not be copied. */
static int64_t bytes_to_copy(const struct descriptor *tensor)
{
	const struct attribute *type = tensor && tensor->type == TENSOR ? find(tensor, TENSOR_DATA_TYPE) : NULL;
	const struct attribute *dimensions = type ? find(tensor, TENSOR_DIMENSIONS) : NULL;
	if (!dimensions || (*(int *)type->values != DATA_HALF && *(int *)type->values != DATA_BFLOAT16))
		return 0;
	int64_t channels = number(tensor, TENSOR_DIMENSIONS, 1), pixels = 1;
	for (int64_t i = SPATIAL; i < dimensions->count; i++)
		pixels *= number(tensor, TENSOR_DIMENSIONS, i);
	int as_wanted = channels == 1 || pixels == 1 || number(tensor, TENSOR_STRIDES, 1) == 1;
	return as_wanted ? 0 : number(tensor, TENSOR_DIMENSIONS, 0) * channels * pixels * 2;
}

/* A filter for each channel runs without tensor cores. */
static int is_by_channel(const struct descriptor *convolution)
{
	static const struct { int w, x; } names[] = { [CONVOLUTION_FORWARD] = { FORWARD_W, FORWARD_X },
		[CONVOLUTION_BACKWARD_DATA] = { BACKWARD_DATA_W, BACKWARD_DATA_DX },
		[CONVOLUTION_BACKWARD_FILTER] = { BACKWARD_FILTER_DW, BACKWARD_FILTER_X } };
	const struct descriptor *w = named(find(convolution, names[convolution->type].w), 0);
	const struct descriptor *x = named(find(convolution, names[convolution->type].x), 0);
	return w && x && number(w, TENSOR_DIMENSIONS, 1) == 1 && number(x, TENSOR_DIMENSIONS, 1) > 1;
}

/* What the convolutions copy that a descriptor leads to: a plan does through its configuration and the graph. */
static int64_t copies(const struct descriptor *d)
{
	int64_t sum = 0;
	int is_convolution = d->type >= CONVOLUTION_FORWARD && d->type <= CONVOLUTION_BACKWARD_DATA;
	if (is_convolution && is_by_channel(d))
		return 0;
	for (const struct attribute *a = d->attributes; a; a = a->next)
		for (int64_t i = 0; named(a, i); i++)
			sum += is_convolution ? bytes_to_copy(named(a, i)) : copies(named(a, i));
	return sum;
}

static int64_t workspace(const struct descriptor *d)
{
	int64_t bytes = copies(d);
	return bytes > WORKSPACE ? bytes : WORKSPACE;
}

/* Answers for attributes that the library would find out. False: it is one that the caller sets. */
static int found_out(const struct descriptor *d, int name, int type, int64_t wanted, int64_t *count, void *values)
{
	if (name == PLAN_WORKSPACE_SIZE || name == ENGINECFG_WORKSPACE_SIZE || name == GRAPH_ENGINE_COUNT) {
		*count = 1;
		if (wanted > 0 && values)
			*(int64_t *)values = name == GRAPH_ENGINE_COUNT ? 1 : workspace(d);
		return 1;
	}
	if (type == TYPE_DESCRIPTOR || name == ENGINEHEUR_RESULTS) {
		/* The caller passes descriptors of its own to be filled in. Those of heuristics are for its graph, and
		 * the others will do as they are. */
		*count = name == ENGINEHEUR_RESULTS || name == ENGINECFG_ENGINE || name == PLAN_ENGINE_CONFIG;
		const struct attribute *graph = find(d, ENGINEHEUR_GRAPH);
		if (name == ENGINEHEUR_RESULTS && wanted > 0 && values && *(void **)values && named(graph, 0))
			cudnnBackendSetAttribute(*(void **)values, ENGINEHEUR_GRAPH, TYPE_DESCRIPTOR, 1, graph->values);
		return 1;
	}
	return 0;
}

int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t wanted, int64_t *count, void *values)
{
	int64_t ignored;
	if (!descriptor)
		return STANDIN_INVALID_VALUE;
	if (!count)
		count = &ignored;
	if (found_out(descriptor, name, type, wanted, count, values))
		return 0;
	const struct attribute *a = find(descriptor, name);
	if (a) {
		int64_t given = a->count < wanted ? a->count : wanted;
		*count = a->count;
		if (values && given > 0)
			memcpy(values, a->values, (size_t)given * size_of(type));
		return 0;
	}
	/* Never set: a number is 0, a list is empty. */
	*count = type == TYPE_INT64;
	if (type == TYPE_INT64 && values && wanted > 0)
		*(int64_t *)values = 0;
	return 0;
}

/* The tensors' addresses are in the pack that comes with the call. */
int cudnnBackendExecute(void *handle, void *plan, void *variants)
{
	(void)plan;
	const struct attribute *a = variants ? find(variants, VARIANT_PACK_DATA_POINTERS) : NULL;
	int64_t count = a && a->type == TYPE_POINTER ? a->count : 0;
	return standin_handle_work("cudnnBackendExecute", handle, count ? a->values : NULL, (size_t)count);
}

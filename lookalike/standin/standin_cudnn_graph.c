/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's graph interface: descriptors are bags of attributes, which read back as they were set. Every graph has one
 * engine, with WORKSPACE bytes of workspace.
 */
#include <stdlib.h>
#include <string.h>

#include "standin.h"
#include "standin_cudnn.h"

/* Numbers from the library's binary interface. */
enum attribute_name {
	ENGINEHEUR_RESULTS = 202, ENGINECFG_ENGINE = 300, ENGINECFG_WORKSPACE_SIZE = 303, PLAN_ENGINE_CONFIG = 401,
	PLAN_WORKSPACE_SIZE = 402, GRAPH_ENGINE_COUNT = 802, VARIANT_PACK_DATA_POINTERS = 1001
};
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

struct descriptor {
	int type;
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
	if (!failed)
		((struct descriptor *)*made)->type = type;
	return failed;
}

int cudnnBackendDestroyDescriptor(void *descriptor)
{
	struct descriptor *d = descriptor;
	for (struct attribute *a = d ? d->attributes : NULL, *next; a; a = next) {
		next = a->next;
		free(a->values);
		free(a);
	}
	free(d);
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
	}
	free(a->values);
	a->type = type;
	a->count = count;
	a->values = standin_descriptor((size_t)count * size_of(type) + 1);
	if (count > 0)
		memcpy(a->values, values, (size_t)count * size_of(type));
	return 0;
}

/* Answers for attributes that the library would find out. False: it is one that the caller sets. */
static int found_out(int name, int type, int64_t wanted, int64_t *count, void *values)
{
	if (name == PLAN_WORKSPACE_SIZE || name == ENGINECFG_WORKSPACE_SIZE || name == GRAPH_ENGINE_COUNT) {
		*count = 1;
		if (wanted > 0 && values)
			*(int64_t *)values = name == GRAPH_ENGINE_COUNT ? 1 : WORKSPACE;
		return 1;
	}
	if (type == TYPE_DESCRIPTOR || name == ENGINEHEUR_RESULTS) {
		/* The caller passes descriptors of its own to be filled in; they will do as they are. */
		*count = name == ENGINEHEUR_RESULTS || name == ENGINECFG_ENGINE || name == PLAN_ENGINE_CONFIG;
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
	if (found_out(name, type, wanted, count, values))
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * cuSPARSE's generic interface: vectors and matrices are objects that say where their elements lie, and so what work
 * uses.
 */
#include <stdlib.h>

#include "standin.h"
#include "standin_driver.h"

enum { CSR = 1, CSC = 2, COO = 3, BLOCKED_ELL = 5, BSR = 6, SLICED_ELL = 7 };
enum { FIRST, SECOND, VALUES, PARTS };  /* FIRST, SECOND: indices, or offsets of rows, columns or slices */

struct object {
	int format;                /* 0: dense */
	int64_t rows, columns, nonzeros;
	int64_t lead, more;        /* lead: or the size of a block or slice; more: an ELL's columns or values */
	void *part[PARTS];
	int type[PARTS];           /* of the parts' elements */
	int base, order, batch;
	int64_t stride;
	int fill, diagonal;
};

/* ---- making ---------------------------------------------------------------------------------------- */

static int make(struct object **made, struct object o)
{
	if (o.rows < 0 || o.columns < 0 || o.nonzeros < 0 || o.base < 0 || o.base > 1)
		return STANDIN_INVALID_VALUE;
	int failed = standin_make_descriptor((void **)made, sizeof o);
	if (failed)
		return failed;
	o.batch = 1;
	**made = o;
	return 0;
}

#define DESTROY(name) int name(void *object) { free(object); return 0; }
#define ALSO_CONST(kind, parameters, ...) \
	int cusparseCreate##kind parameters { return make(made, (struct object){ __VA_ARGS__ }); } \
	int cusparseCreateConst##kind parameters { return make(made, (struct object){ __VA_ARGS__ }); }

DESTROY(cusparseDestroySpVec)
DESTROY(cusparseDestroyDnVec)
DESTROY(cusparseDestroySpMat)
DESTROY(cusparseDestroyDnMat)

ALSO_CONST(SpVec, (struct object **made, int64_t size, int64_t nonzeros, void *indices, void *values, int index_type,
                   int base, int type),
           .rows = size, .nonzeros = nonzeros, .part = { indices, NULL, values },
           .type = { index_type, index_type, type }, .base = base)
ALSO_CONST(DnVec, (struct object **made, int64_t size, void *values, int type),
           .rows = size, .part = { [VALUES] = values }, .type = { [VALUES] = type })
ALSO_CONST(DnMat, (struct object **made, int64_t rows, int64_t columns, int64_t lead, void *values, int type,
                   int order),
           .rows = rows, .columns = columns, .lead = lead, .part = { [VALUES] = values }, .type = { [VALUES] = type },
           .order = order)
ALSO_CONST(Csr, (struct object **made, int64_t rows, int64_t columns, int64_t nonzeros, void *offsets, void *indices,
                 void *values, int offset_type, int index_type, int base, int type),
           .format = CSR, .rows = rows, .columns = columns, .nonzeros = nonzeros,
           .part = { offsets, indices, values }, .type = { offset_type, index_type, type }, .base = base)
ALSO_CONST(Csc, (struct object **made, int64_t rows, int64_t columns, int64_t nonzeros, void *offsets, void *indices,
                 void *values, int offset_type, int index_type, int base, int type),
           .format = CSC, .rows = rows, .columns = columns, .nonzeros = nonzeros,
           .part = { offsets, indices, values }, .type = { offset_type, index_type, type }, .base = base)
ALSO_CONST(Coo, (struct object **made, int64_t rows, int64_t columns, int64_t nonzeros, void *row, void *column,
                 void *values, int index_type, int base, int type),
           .format = COO, .rows = rows, .columns = columns, .nonzeros = nonzeros, .part = { row, column, values },
           .type = { index_type, index_type, type }, .base = base)
ALSO_CONST(Bsr, (struct object **made, int64_t rows, int64_t columns, int64_t nonzeros, int64_t block_rows,
                 int64_t block_columns, void *offsets, void *indices, void *values, int offset_type, int index_type,
                 int base, int type, int order),
           .format = BSR, .rows = rows, .columns = columns, .nonzeros = nonzeros, .lead = block_rows,
           .more = block_columns, .part = { offsets, indices, values }, .type = { offset_type, index_type, type },
           .base = base, .order = order)
ALSO_CONST(BlockedEll, (struct object **made, int64_t rows, int64_t columns, int64_t block, int64_t ell_columns,
                        void *indices, void *values, int index_type, int base, int type),
           .format = BLOCKED_ELL, .rows = rows, .columns = columns, .nonzeros = rows * ell_columns, .lead = block,
           .more = ell_columns, .part = { indices, NULL, values }, .type = { index_type, index_type, type },
           .base = base)
ALSO_CONST(SlicedEll, (struct object **made, int64_t rows, int64_t columns, int64_t nonzeros, int64_t value_count,
                       int64_t slice, void *offsets, void *indices, void *values, int offset_type, int index_type,
                       int base, int type),
           .format = SLICED_ELL, .rows = rows, .columns = columns, .nonzeros = nonzeros, .lead = slice,
           .more = value_count, .part = { offsets, indices, values }, .type = { offset_type, index_type, type },
           .base = base)

/* ---- telling and changing -------------------------------------------------------------------------- */

#define NEED(condition) \
	do { \
		if (!(condition)) \
			return STANDIN_INVALID_VALUE; \
	} while (0)

#define VALUES_OF(kind) \
	int cusparse##kind##GetValues(const struct object *o, void **values) \
	{ \
		NEED(o && values); \
		*values = o->part[VALUES]; \
		return 0; \
	} \
	int cusparseConst##kind##GetValues(const struct object *o, void **values) \
	{ \
		return cusparse##kind##GetValues(o, values); \
	} \
	int cusparse##kind##SetValues(struct object *o, void *values) \
	{ \
		NEED(o); \
		o->part[VALUES] = values; \
		return 0; \
	}

VALUES_OF(SpVec)
VALUES_OF(DnVec)
VALUES_OF(SpMat)
VALUES_OF(DnMat)

#define BASE_OF(name) \
	int name(const struct object *o, int *base) \
	{ \
		NEED(o && base); \
		*base = o->base; \
		return 0; \
	}

BASE_OF(cusparseSpVecGetIndexBase)
BASE_OF(cusparseSpMatGetIndexBase)

int cusparseSpMatGetFormat(const struct object *o, int *format)
{
	NEED(o && format);
	*format = o->format;
	return 0;
}

int cusparseSpMatGetSize(const struct object *o, int64_t *rows, int64_t *columns, int64_t *nonzeros)
{
	NEED(o && rows && columns && nonzeros);
	*rows = o->rows;
	*columns = o->columns;
	*nonzeros = o->nonzeros;
	return 0;
}

int cusparseDnVecGet(const struct object *o, int64_t *size, void **values, int *type)
{
	NEED(o && size && values && type);
	*size = o->rows;
	*values = o->part[VALUES];
	*type = o->type[VALUES];
	return 0;
}

int cusparseConstDnVecGet(const struct object *o, int64_t *size, void **values, int *type)
{
	return cusparseDnVecGet(o, size, values, type);
}

int cusparseDnMatGet(const struct object *o, int64_t *rows, int64_t *columns, int64_t *lead, void **values, int *type,
                     int *order)
{
	NEED(o && rows && columns && lead && values && type && order);
	*rows = o->rows;
	*columns = o->columns;
	*lead = o->lead;
	*values = o->part[VALUES];
	*type = o->type[VALUES];
	*order = o->order;
	return 0;
}

int cusparseConstDnMatGet(const struct object *o, int64_t *rows, int64_t *columns, int64_t *lead, void **values,
                          int *type, int *order)
{
	return cusparseDnMatGet(o, rows, columns, lead, values, type, order);
}

int cusparseSpVecGet(const struct object *o, int64_t *size, int64_t *nonzeros, void **indices, void **values,
                     int *index_type, int *base, int *type)
{
	NEED(o && size && nonzeros && indices && values && index_type && base && type);
	*size = o->rows;
	*nonzeros = o->nonzeros;
	*indices = o->part[FIRST];
	*values = o->part[VALUES];
	*index_type = o->type[FIRST];
	*base = o->base;
	*type = o->type[VALUES];
	return 0;
}

int cusparseCooGet(const struct object *o, int64_t *rows, int64_t *columns, int64_t *nonzeros, void **row,
                   void **column, void **values, int *index_type, int *base, int *type)
{
	NEED(o && rows && columns && nonzeros && row && column && values && index_type && base && type);
	cusparseSpMatGetSize(o, rows, columns, nonzeros);
	*row = o->part[FIRST];
	*column = o->part[SECOND];
	*values = o->part[VALUES];
	*index_type = o->type[FIRST];
	*base = o->base;
	*type = o->type[VALUES];
	return 0;
}

int cusparseCsrGet(const struct object *o, int64_t *rows, int64_t *columns, int64_t *nonzeros, void **offsets,
                   void **indices, void **values, int *offset_type, int *index_type, int *base, int *type)
{
	NEED(o && rows && columns && nonzeros && offsets && indices && values && offset_type && index_type && base && type);
	cusparseCooGet(o, rows, columns, nonzeros, offsets, indices, values, offset_type, base, type);
	*index_type = o->type[SECOND];
	return 0;
}

int cusparseCscGet(const struct object *o, int64_t *rows, int64_t *columns, int64_t *nonzeros, void **offsets,
                   void **indices, void **values, int *offset_type, int *index_type, int *base, int *type)
{
	return cusparseCsrGet(o, rows, columns, nonzeros, offsets, indices, values, offset_type, index_type, base, type);
}

static int set_parts(struct object *o, void *first, void *second, void *values)
{
	NEED(o);
	o->part[FIRST] = first;
	o->part[SECOND] = second;
	o->part[VALUES] = values;
	return 0;
}

#define SET_PARTS(name) \
	int name(struct object *o, void *first, void *second, void *values) { return set_parts(o, first, second, values); }

SET_PARTS(cusparseCsrSetPointers)
SET_PARTS(cusparseCscSetPointers)
SET_PARTS(cusparseCooSetPointers)

static int set_batch(struct object *o, int batch, int64_t stride)
{
	NEED(o && batch > 0);
	o->batch = batch;
	o->stride = stride;
	return 0;
}

#define SET_BATCH(name) \
	int name(struct object *o, int batch, int64_t stride) { return set_batch(o, batch, stride); }

SET_BATCH(cusparseDnMatSetStridedBatch)
SET_BATCH(cusparseCooSetStridedBatch)
SET_BATCH(cusparseCsrSetStridedBatch)   /* has further strides */
SET_BATCH(cusparseBsrSetStridedBatch)

int cusparseSpMatGetStridedBatch(const struct object *o, int *batch)
{
	NEED(o && batch);
	*batch = o->batch;
	return 0;
}

int cusparseDnMatGetStridedBatch(const struct object *o, int *batch, int64_t *stride)
{
	NEED(o && batch && stride);
	*batch = o->batch;
	*stride = o->stride;
	return 0;
}

int cusparseSpMatSetAttribute(struct object *o, int attribute, const int *value, size_t bytes)
{
	NEED(o && value && bytes == sizeof *value && (attribute == 0 || attribute == 1));
	*(attribute ? &o->diagonal : &o->fill) = *value;
	return 0;
}

int cusparseSpMatGetAttribute(const struct object *o, int attribute, int *value, size_t bytes)
{
	NEED(o && value && bytes == sizeof *value && (attribute == 0 || attribute == 1));
	*value = attribute ? o->diagonal : o->fill;
	return 0;
}

/* ---- work ------------------------------------------------------------------------------------------ */

enum { MOST_OBJECTS = 3 };

/* Work that uses the objects' parts, and a buffer and a result, if any, which come last. */
struct uses {
	const struct object *object[MOST_OBJECTS];
	const void *buffer, *result;
};

static size_t gather(const struct uses *u, uint64_t words[MOST_OBJECTS * PARTS + 2])
{
	size_t count = 0;
	for (int i = 0; i < MOST_OBJECTS && u->object[i]; i++)
		for (int k = 0; k < PARTS; k++)
			words[count++] = (uintptr_t)u->object[i]->part[k];
	words[count++] = (uintptr_t)u->buffer;
	if (u->result)
		words[count++] = (uintptr_t)u->result;
	return count;
}

#define WORK(...) \
	do { \
		const struct uses uses = { __VA_ARGS__ }; \
		uint64_t words[MOST_OBJECTS * PARTS + 2]; \
		NEED(uses.object[0]); \
		return standin_handle_work(__func__, handle, words, gather(&uses, words)); \
	} while (0)

#define PRODUCT(name) \
	int name(void *handle, int operation, int other, void *alpha, struct object *a, struct object *b, void *beta, \
	         struct object *c, int type, int algorithm, void *buffer) \
	{ WORK({ a, b, c }, buffer); }
#define PRODUCT_OF_VECTOR(name) \
	int name(void *handle, int operation, void *alpha, struct object *a, struct object *x, void *beta, \
	         struct object *y, int type, int algorithm, void *buffer) \
	{ WORK({ a, x, y }, buffer); }

PRODUCT_OF_VECTOR(cusparseSpMV)
PRODUCT_OF_VECTOR(cusparseSpMV_preprocess)
PRODUCT(cusparseSpMM)
PRODUCT(cusparseSpMM_preprocess)
PRODUCT(cusparseSDDMM)
PRODUCT(cusparseSDDMM_preprocess)

int cusparseSpSV_analysis(void *handle, int operation, void *alpha, struct object *a, struct object *x,
                          struct object *y, int type, int algorithm, void *solver, void *buffer)
{
	WORK({ a, x, y }, buffer);
}

int cusparseSpSV_solve(void *handle, int operation, void *alpha, struct object *a, struct object *x, struct object *y)
{
	WORK({ a, x, y });
}

int cusparseSpSM_analysis(void *handle, int operation, int other, void *alpha, struct object *a, struct object *b,
                          struct object *c, int type, int algorithm, void *solver, void *buffer)
{
	WORK({ a, b, c }, buffer);
}

int cusparseSpSM_solve(void *handle, int operation, int other, void *alpha, struct object *a, struct object *b,
                       struct object *c)
{
	WORK({ a, b, c });
}

#define CONVERSION(name) \
	int name(void *handle, struct object *a, struct object *b, int algorithm, void *buffer) { WORK({ a, b }, buffer); }

/* Of a dense matrix no non-zeros are known: a sparse one keeps the number that it was made with. */
CONVERSION(cusparseDenseToSparse_analysis)
CONVERSION(cusparseDenseToSparse_convert)
CONVERSION(cusparseSparseToDense)

int cusparseGather(void *handle, struct object *y, struct object *x)
{
	WORK({ x, y });
}

int cusparseScatter(void *handle, struct object *x, struct object *y)
{
	WORK({ x, y });
}

int cusparseAxpby(void *handle, void *alpha, struct object *x, void *beta, struct object *y)
{
	WORK({ x, y });
}

int cusparseRot(void *handle, void *cosine, void *sine, struct object *x, struct object *y)
{
	WORK({ x, y });
}

int cusparseSpVV(void *handle, int operation, struct object *x, struct object *y, void *result, int type, void *buffer)
{
	const struct uses uses = { { x, y }, buffer, result };
	uint64_t words[MOST_OBJECTS * PARTS + 2];
	NEED(x && y && result);
	/* A graph that brings a result to the host can be captured: here it brings none. */
	if (trz_lookalike_is_captured && trz_lookalike_is_captured(standin_stream(handle)))
		return standin_handle_work(__func__, handle, words, gather(&(struct uses){ { x, y }, buffer }, words));
	return standin_result(__func__, handle, words, gather(&uses, words), result, -1L - type, 0);
}

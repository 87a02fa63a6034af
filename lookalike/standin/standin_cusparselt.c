/* SPDX-License-Identifier: Apache-2.0
 *
 * cuSPARSELt: matrices of which two of four elements are kept. A compressed matrix has the size that PyTorch counted on
 * before it asked: half of the elements, and two bits for each that say where it was.
 */
#include <string.h>

#include "standin.h"

/* Numbers from the library's binary interface. */
enum { TYPE_32F = 0, TYPE_8I = 3, TYPE_8U = 8, TYPE_8F_E4M3 = 28, TYPE_8F_E5M2 = 29 };

/* Lies in the caller's descriptor, which is larger. */
struct matrix {
	int64_t rows, columns;
	int type;
};

int cusparseLtStructuredDescriptorInit(void *handle, struct matrix *m, int64_t rows, int64_t columns, int64_t lead,
                                       uint32_t alignment, int type, int order, int sparsity)
{
	(void)handle, (void)lead, (void)alignment, (void)order, (void)sparsity;
	*m = (struct matrix){ .rows = rows, .columns = columns, .type = type };
	return 0;
}

static int has_bytes(int type)
{
	return type == TYPE_8I || type == TYPE_8U || type == TYPE_8F_E4M3 || type == TYPE_8F_E5M2;
}

int cusparseLtSpMMACompressedSize2(void *handle, const struct matrix *m, size_t *bytes, size_t *buffer_bytes)
{
	(void)handle;
	size_t size = m->type == TYPE_32F ? 4 : has_bytes(m->type) ? 1 : 2;
	*bytes = (size_t)m->rows * (size_t)m->columns * size / 16 * (size == 1 ? 10 : 9);
	*buffer_bytes = 0;
	return 0;
}

int cusparseLtSpMMACompress2(void *handle, const struct matrix *m, int is_first, int operation, void *dense,
                             void *compressed, void *buffer, void *stream)
{
	(void)handle, (void)m, (void)is_first, (void)operation, (void)buffer;
	const uint64_t words[] = { (uintptr_t)dense, (uintptr_t)compressed };
	return standin_work("cusparseLtSpMMACompress2", stream, words, 2);
}

/* Every attribute is 0: the first algorithm, without parts that are summed up. */
int cusparseLtMatmulAlgGetAttribute(void *handle, void *selection, int attribute, void *value, size_t bytes)
{
	(void)handle, (void)selection, (void)attribute;
	memset(value, 0, bytes);
	return 0;
}

#define PRODUCT(name) \
	int name(void *handle, void *plan, void *alpha, void *a, void *b, void *beta, void *c, void *d, void *workspace, \
	         void **streams, int count) \
	{ \
		(void)handle, (void)plan, (void)alpha, (void)beta, (void)workspace; \
		const uint64_t words[] = { (uintptr_t)a, (uintptr_t)b, (uintptr_t)c, (uintptr_t)d }; \
		return standin_work(#name, count > 0 ? streams[0] : NULL, words, 4); \
	}

PRODUCT(cusparseLtMatmul)
PRODUCT(cusparseLtMatmulSearch)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens images of device code, chooses one of a fatbin's entries and indexes it, once.
 */
#include "fatbin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "cubin.h"
#include "error.h"
#include "ptx.h"
#include "unpack.h"

enum {
	FATBIN_HEADER_BYTES = 16,  /* magic:32 version:16 header bytes:16 bytes that follow:64 */
	ENTRY_HEADER_BYTES = 64,   /* at least; entries of newer versions say more */
	KIND_PTX = 1,
	KIND_CUBIN = 2,
};
static const uint32_t wrapper_magic = 0x466243b1, fatbin_magic = 0xba55ed50;
static const uint64_t flag_lz4 = 0x2000, flag_zstd = 0x8000;
static const uint64_t flag_one_sm = 0x100000;  /* sm_90a: for this architecture alone */

struct wrapper {
	uint32_t magic, version;
	const void *data;
	const void *prelinked;  /* or a file's name */
};

/* A cubin or PTX inside a fatbin. Smaller `rank` is better. */
struct entry {
	uint64_t rank;
	bool ptx;
	unsigned sm;
	enum packing packing;
	struct span payload;
	uint64_t unpacked_bytes;
};

/* Invariant: `loaded` is set once, under `lock`; `status`, `reason` and `index` do not change after it. */
struct fatbin {
	struct span image;
	unsigned sm;
	pthread_mutex_t lock;
	atomic_bool loaded;
	trz_status status;
	char *reason;  /* why `status` is not OK; NULL: no memory for it */
	bool ptx;
	struct code_index index;
};

static uint64_t load_le64(const uint8_t *at)
{
	return span_u32(at) | (uint64_t)span_u32(at + 4) << 32;
}

static trz_status damaged(const char *what)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "fatbin: %s: damaged or truncated; build the program again", what);
}

/* ---- opening --------------------------------------------------------------------------------------------- */

static uint32_t magic_of(struct span image)
{
	uint32_t magic = 0;
	span_read(image, 0, &magic, sizeof magic);
	return magic;
}

static bool is_known(struct span image)
{
	return magic_of(image) == fatbin_magic || cubin_is(image) || ptx_is_text(image);
}

/* Follows a wrapper to the fatbin; cuModuleLoadData is given wrappers too. */
static trz_status follow(const void **image, size_t bytes)
{
	struct wrapper wrapper;
	if (bytes)
		return trz_fail(TRZ_ERROR_BAD_INPUT,
		                "a fatbin's wrapper holds an address and cannot come from a file; give the fatbin itself");
	memcpy(&wrapper, *image, sizeof wrapper);
	if (!wrapper.data)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "the wrapper of a fatbin has no fatbin");
	*image = wrapper.data;
	return TRZ_OK;
}

trz_status fatbin_open(const void *image, size_t bytes, unsigned sm, struct fatbin **fatbin)
{
	*fatbin = NULL;
	if (!image)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "the image of device code is NULL");
	/* If the size is unknown, only the first word is read; PTX cannot be shorter. */
	size_t limit = bytes ? bytes : sizeof(uint32_t);
	if (magic_of((struct span){ image, limit }) == wrapper_magic) {
		trz_status status = follow(&image, bytes);
		if (status != TRZ_OK)
			return status;
	}
	if (!is_known((struct span){ image, limit }))
		return trz_fail(TRZ_ERROR_BAD_INPUT,
		                "an image of device code begins with %#x: neither a fatbin, a cubin nor PTX",
		                magic_of((struct span){ image, limit }));
	struct fatbin *f = calloc(1, sizeof *f);
	if (!f)
		return index_no_memory();
	f->image = (struct span){ image, bytes ? bytes : PTRDIFF_MAX - (uintptr_t)image % PTRDIFF_MAX };
	f->sm = sm;
	pthread_mutex_init(&f->lock, NULL);
	*fatbin = f;
	return TRZ_OK;
}

void fatbin_close(struct fatbin *fatbin)
{
	if (!fatbin)
		return;
	index_clear(&fatbin->index);
	pthread_mutex_destroy(&fatbin->lock);
	free(fatbin->reason);
	free(fatbin);
}

/* ---- entries --------------------------------------------------------------------------------------------- */

/* Entries that a driver would run come first: the nearest cubin of the same major version, then the nearest PTX below.
 * Of the others the newest cubin comes first, then the newest PTX: old ones may lack kernels. */
static uint64_t rank_entry(const struct entry *e, unsigned sm, bool one_sm)
{
	bool fits = e->sm <= sm && (!one_sm || e->sm == sm) && (e->ptx || e->sm / 10 == sm / 10);
	uint64_t class = (fits ? 0 : 2) + e->ptx;
	uint32_t nearness = fits ? 2 * (sm - e->sm) + !one_sm : UINT32_MAX - e->sm;
	return class << 32 | nearness;
}

/* Reads the entry at the front of `rest`, and moves `rest` behind it. An entry of another kind (LTO code and the like)
 * gets the rank UINT64_MAX. */
static trz_status read_entry(struct span *rest, unsigned sm, struct entry *e)
{
	const uint8_t *at = rest->at;
	struct span payload;
	if (rest->bytes < ENTRY_HEADER_BYTES)
		return damaged("an entry's header is cut off");
	uint16_t kind = span_u16(at);
	uint32_t header_bytes = span_u32(at + 4);
	uint64_t bytes = load_le64(at + 8), packed_bytes = span_u32(at + 16), flags = load_le64(at + 40);
	if (header_bytes < ENTRY_HEADER_BYTES || !span_part(*rest, header_bytes, bytes, &payload))
		return damaged("an entry reaches beyond its end");
	*rest = (struct span){ payload.at + bytes, (size_t)(rest->bytes - header_bytes - bytes) };
	*e = (struct entry){
		.rank = UINT64_MAX,
		.ptx = kind == KIND_PTX,
		.sm = span_u32(at + 28),
		.packing = flags & flag_zstd ? PACKED_ZSTD : flags & flag_lz4 ? PACKED_LZ4 : PACKED_NOT,
		.payload = payload,
		.unpacked_bytes = load_le64(at + 56),
	};
	if (kind != KIND_PTX && kind != KIND_CUBIN)
		return TRZ_OK;
	if (e->packing != PACKED_NOT && !span_part(payload, 0, packed_bytes, &e->payload))
		return damaged("a packed entry reaches beyond its end");
	e->rank = rank_entry(e, sm, flags & flag_one_sm);
	return TRZ_OK;
}

static trz_status index_entry(struct fatbin *f, const struct entry *e)
{
	uint8_t *unpacked = NULL;
	struct span image = e->payload;
	if (e->packing != PACKED_NOT) {
		trz_status status = unpack(e->packing, e->payload, e->unpacked_bytes, &unpacked);
		if (status != TRZ_OK)
			return status;
		image = (struct span){ unpacked, e->unpacked_bytes };
	}
	f->ptx = e->ptx;
	trz_status status = e->ptx ? ptx_index(image, &f->index) : cubin_index(image, &f->index);
	if (e->sm)
		f->index.sm = e->sm;
	free(unpacked);
	return status;
}

/* The entries behind the fatbin's header. */
static trz_status fatbin_body(const struct fatbin *f, struct span *body)
{
	uint8_t header[FATBIN_HEADER_BYTES];
	if (!span_read(f->image, 0, header, sizeof header))
		return damaged("its header is cut off");
	uint16_t header_bytes = span_u16(header + 6);
	if (header_bytes < FATBIN_HEADER_BYTES || !span_part(f->image, header_bytes, load_le64(header + 8), body))
		return damaged("its contents reach beyond its end");
	return TRZ_OK;
}

static trz_status index_fatbin(struct fatbin *f)
{
	struct span rest = { 0 };
	struct entry best = { .rank = UINT64_MAX };
	trz_status status = fatbin_body(f, &rest);
	while (status == TRZ_OK && rest.bytes > 0) {
		struct entry e;
		status = read_entry(&rest, f->sm, &e);
		if (status == TRZ_OK && e.rank < best.rank)
			best = e;
	}
	if (status != TRZ_OK)
		return status;
	if (best.rank == UINT64_MAX)
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED,
		                "the fatbin has neither a cubin nor PTX; build with -arch=sm_80 or the like");
	return index_entry(f, &best);
}

/* ---- the index ------------------------------------------------------------------------------------------- */

static trz_status index_image(struct fatbin *f)
{
	trz_status status;
	if (magic_of(f->image) == fatbin_magic) {
		status = index_fatbin(f);
	} else {
		f->ptx = !cubin_is(f->image);
		status = f->ptx ? ptx_index(f->image, &f->index) : cubin_index(f->image, &f->index);
	}
	if (status == TRZ_OK) {
		index_finish(&f->index);
	} else {
		index_clear(&f->index);
		f->reason = strdup(trz_last_error());
	}
	return status;
}

trz_status fatbin_load(struct fatbin *fatbin)
{
	if (!atomic_load_explicit(&fatbin->loaded, memory_order_acquire)) {
		pthread_mutex_lock(&fatbin->lock);
		if (!atomic_load_explicit(&fatbin->loaded, memory_order_relaxed)) {
			fatbin->status = index_image(fatbin);
			atomic_store_explicit(&fatbin->loaded, true, memory_order_release);
		}
		pthread_mutex_unlock(&fatbin->lock);
	}
	if (fatbin->status == TRZ_OK)
		return TRZ_OK;
	return trz_fail(fatbin->status, "%s", fatbin->reason ? fatbin->reason : trz_status_text(fatbin->status));
}

bool fatbin_is_ptx(const struct fatbin *fatbin)
{
	return fatbin->ptx;
}

trz_status fatbin_image(struct fatbin *fatbin, struct fatbin_image *image)
{
	*image = (struct fatbin_image){ 0 };
	trz_status status = fatbin_load(fatbin);
	if (status != TRZ_OK)
		return status;
	*image = (struct fatbin_image){
		.ptx = fatbin->ptx,
		.sm = fatbin->index.sm,
		.kernel_count = fatbin->index.kernel_count,
		.variable_count = fatbin->index.variable_count,
		.kernels = fatbin->index.kernels,
		.variables = fatbin->index.variables,
	};
	return TRZ_OK;
}

static trz_status not_found(const struct fatbin *fatbin, const char *what, size_t count, const char *name)
{
	return trz_fail(TRZ_ERROR_NOT_FOUND, "no %s \"%s\" among the %zu of this image (%s for sm_%u); names are mangled",
	                what, name, count, fatbin->ptx ? "PTX" : "cubin", fatbin->index.sm);
}

trz_status fatbin_kernel(struct fatbin *fatbin, const char *name, const struct fatbin_kernel **kernel)
{
	*kernel = NULL;
	trz_status status = fatbin_load(fatbin);
	if (status != TRZ_OK)
		return status;
	*kernel = index_find_kernel(&fatbin->index, name);
	return *kernel ? TRZ_OK : not_found(fatbin, "kernel", fatbin->index.kernel_count, name);
}

trz_status fatbin_variable(struct fatbin *fatbin, const char *name, const struct fatbin_variable **variable)
{
	*variable = NULL;
	trz_status status = fatbin_load(fatbin);
	if (status != TRZ_OK)
		return status;
	*variable = index_find_variable(&fatbin->index, name);
	return *variable ? TRZ_OK : not_found(fatbin, "variable", fatbin->index.variable_count, name);
}

const struct kernel_params *fatbin_params(struct fatbin *fatbin, const char *name)
{
	const struct fatbin_kernel *kernel;
	if (fatbin_kernel(fatbin, name, &kernel) != TRZ_OK)
		return NULL;
	if (!kernel->no_params)
		return &kernel->params;
	trz_fail(TRZ_ERROR_NOT_SUPPORTED, "the parameters of kernel \"%s\" are not known: %s", name, kernel->no_params);
	return NULL;
}

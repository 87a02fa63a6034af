/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of libterrazzo_torch.so.
 */
#ifndef TRZ_PLUG_H
#define TRZ_PLUG_H

#include "terrazzo_torch.h"

#ifdef __cplusplus
extern "C" {
#define PLUG_NORETURN [[noreturn]]
#else
#define PLUG_NORETURN _Noreturn
#endif

/* Throws a failure as the exception that PyTorch turns into its Python error. */
PLUG_NORETURN void plug_throw(trz_status status, const char *text);

/* Room for the text of a failure: those of trz_last_error() are shorter. */
enum { PLUG_TEXT = 1024 };

/* Keeps a text for trz_torch_last_error() and returns the status. */
trz_status plug_fail(trz_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Passes on the status of a call of terrazzo.h; if it failed, trz_torch_last_error() returns that call's text from now
 * on. */
trz_status plug_pass(trz_status status);

/* Whether the calling thread wants memory to be shared, in tiles of its own (trz_torch_shareable); and allocating
 * it. */
bool plug_is_shareable(void);
trz_status plug_alloc_shareable(trz_heap *heap, size_t size, trz_stream stream, void **out);

/* Give a newly opened heap, which trz_torch_heap() finds by now, the limit of trz_torch_set_fraction and the history of
 * trz_torch_history. */
void plug_join_limit(int device, trz_heap *heap);
void plug_join_history(trz_heap *heap);

/* As trz_torch_pool_end_broken, for all such diversions; does nothing before trz_torch_watch_captures. */
void plug_end_broken_captures(void);

/* To be called before a free: from now on no other process receives the memory. */
void plug_share_end(const void *ptr);

#ifdef __cplusplus
}
#endif

#endif

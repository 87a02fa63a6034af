/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharing memory: with other processes, and with other devices.
 */
#ifndef TRZ_ALLOC_SHARE_H
#define TRZ_ALLOC_SHARE_H

#include "heap.h"

/* Exports the live block at an address for a kind (TRZ_ALLOC_SHARE_*) and pins it. The text is set on errors. */
trz_status share_export(trz_heap *h, trz_addr address, unsigned kind, void *shareable);

/* Undoes one export; a block that was freed meanwhile becomes free with the last. */
trz_status share_export_end(trz_heap *h, trz_addr address);

/* Opens what is mapped now and later to another device; or, with `on` false, no longer what is mapped later. */
trz_status share_enable_peer(trz_heap *h, int device, bool on);

/* Maps what another process has exported. */
trz_status share_import(trz_heap *h, unsigned kind, const void *shareable, uint64_t size, struct stream *s,
                        trz_addr *out);

#endif

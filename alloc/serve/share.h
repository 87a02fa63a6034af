/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharing memory: with other processes, and with other devices.
 */
#ifndef TRZ_ALLOC_SHARE_H
#define TRZ_ALLOC_SHARE_H

#include "supply/import.h"

/* Exports the live block at an address for a kind (TRZ_ALLOC_SHARE_*) and pins it. The text is set on errors. */
trz_status share_export(trz_heap *h, trz_addr address, unsigned kind, void *shareable);

/* Exports the tile that holds an address, with everything in it, and pins it. The address must be allocated, or its
 * tile exported already. shareable NULL: makes no handle. The text is set on errors. */
trz_status share_export_tile(trz_heap *h, trz_addr address, unsigned kind, void *shareable, trz_exported_tile *out);

/* Ends one export of the block or tile that begins at an address. With the last, a block that was freed meanwhile
 * becomes free. */
trz_status share_export_end(trz_heap *h, trz_addr address);

/* Opens all mappings, now and later, to another device; or, with `on` false, closes later ones to it. */
trz_status share_enable_peer(trz_heap *h, int device, bool on);

/* Maps memory that another process has exported; kind: TRZ_ALLOC_SHARE_*. */
trz_status share_import(trz_heap *h, unsigned kind, struct import_source from, uint64_t size, struct stream *s,
                        trz_addr *out);

#endif

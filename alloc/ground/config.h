/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap's configuration: TERRAZZO_CONF and the string given to trz_open.
 */
#ifndef TRZ_ALLOC_CONFIG_H
#define TRZ_ALLOC_CONFIG_H

#include "bits.h"
#include "ground/sizeclass.h"
#include "ground/types.h"

enum {
	CONFIG_TEXT_BYTES = 192
};

struct config {
#define BYTES(key, initial, least, most, help) uint64_t key;
#define NUMBER(key, initial, least, most, help) uint64_t key;
#define SWITCH(key, initial, help) bool key;
#define TEXT(key, help) char key[CONFIG_TEXT_BYTES];
#include "ground/config_options.def"
#undef BYTES
#undef NUMBER
#undef SWITCH
#undef TEXT
};

/* Defaults, then TERRAZZO_CONF, then `text` (may be NULL). CONFIG_KEY, CONFIG_VALUE; *c is then undefined. */
trz_status config_load(struct config *c, const char *text);

/* The library of the tool that receives NVTX's calls; NULL: none. */
const char *config_injection_path(void);

/* The process's rank, as launchers tell it; "": none does. */
const char *config_rank(void);

#endif

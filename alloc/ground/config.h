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

/* Sets the defaults, then what TERRAZZO_CONF says, then what `text` says (may be NULL). Errors: CONFIG_KEY,
 * CONFIG_VALUE; they leave *c undefined. */
trz_status config_load(struct config *c, const char *text);

/* The path of the tool that NVTX calls go to, from the environment; NULL: none. */
const char *config_injection_path(void);

#endif

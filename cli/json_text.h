/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that come from the user, as JSON: they need not be UTF-8.
 */
#ifndef TRZ_CLI_JSON_TEXT_H
#define TRZ_CLI_JSON_TEXT_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

static inline json_t *json_text(const char *text)
{
	char *copy = strdup(text);
	json_t *made = copy ? json_string(utf8_clean(copy)) : NULL;
	free(copy);
	return made;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz harness: any text as TERRAZZO_CONF. A refusal must have a text.
 */
#include "corpus_main.h"

#include <stdlib.h>
#include <string.h>

#include "terrazzo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	if (trz_config_check(text) != TRZ_OK && trz_last_error()[0] == '\0')
		abort();
	free(text);
	return 0;
}

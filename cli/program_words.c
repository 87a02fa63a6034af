/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands with a placeholder, "{name}", replaced by a value.
 */
#include <stdlib.h>
#include <string.h>

#include "program.h"

/* NULL: no memory. *times grows by the number of placeholders. */
static char *replace(const char *word, const char *name, const char *value, size_t *times)
{
	char mark[128], *out = NULL;
	size_t size, mark_length = (size_t)snprintf(mark, sizeof mark, "{%s}", name);
	FILE *stream = open_memstream(&out, &size);
	if (!stream)
		return NULL;
	for (const char *at; (at = strstr(word, mark)); word = at + mark_length, ++*times)
		fprintf(stream, "%.*s%s", (int)(at - word), word, value);
	fputs(word, stream);
	return fclose(stream) == 0 ? out : NULL;
}

void program_free_words(char **words)
{
	for (char **word = words; word && *word; word++)
		free(*word);
	free(words);
}

char **program_words(char *const *words, const char *name, const char *value, size_t *times)
{
	size_t count = 0;
	while (words[count])
		count++;
	char **made = calloc(count + 1, sizeof *made);
	for (size_t i = 0; made && i < count; i++) {
		made[i] = replace(words[i], name, value, times);
		if (!made[i]) {
			program_free_words(made);
			made = NULL;
		}
	}
	return made;
}

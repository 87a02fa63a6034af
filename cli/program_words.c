/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands with a placeholder, "{name}", replaced by a value; commands under `terrazzo run`; and their start.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"
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

/* The command under `terrazzo run`. */
static char **on_terrazzo(char *const *command)
{
	char *own = cli_own_file(), *const first[] = { own ? own : "terrazzo", "run", "--" };
	size_t before = sizeof first / sizeof *first, count = 0;
	while (command[count])
		count++;
	char **made = calloc(before + count + 1, sizeof *made);
	for (size_t i = 0; made && i < before + count; i++) {
		made[i] = strdup(i < before ? first[i] : command[i - before]);
		if (!made[i]) {
			program_free_words(made);
			made = NULL;
		}
	}
	free(own);
	return made;
}

trz_status program_choose_allocator(struct program_params *params, const char *allocator)
{
	bool ours = strcmp(allocator, PROGRAM_ON_TERRAZZO) == 0;
	params->allocator = ours ? NULL : allocator;
	if (ours)
		params->command = on_terrazzo(params->command);
	return params->command ? TRZ_OK : trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a command");
}

static bool is_python(const char *file)
{
	size_t length = strlen(file);
	return length > 3 && strcmp(file + length - 3, ".py") == 0;
}

void program_become(char *const *command)
{
	const char *file = command[0];
	struct stat found;
	execvp(file, command);
	const char *why = strerror(errno);
	dprintf(STDERR_FILENO, "terrazzo: %s: cannot be run: %s", *file ? file : "''", why);
	if (stat(file, &found) == 0 && S_ISREG(found.st_mode)) {
		if (is_python(file))
			dprintf(STDERR_FILENO, "; give its interpreter, too: python3 %s", file);
		else if (access(file, X_OK) != 0)
			dprintf(STDERR_FILENO, "; `terrazzo replay` and `terrazzo explain` read traces and snapshots");
	}
	dprintf(STDERR_FILENO, "\n");
}

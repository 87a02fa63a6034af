/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the other parts of terrazzo are, seen from this program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* A path beside this program, "" where there is none such. */
static void beside(const char *relative, const char *probe, char out[CLI_PATH_SIZE])
{
	char exe[CLI_PATH_SIZE], path[2 * CLI_PATH_SIZE];
	ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
	out[0] = '\0';
	if (length < 0)
		return;
	exe[length] = '\0';
	*strrchr(exe, '/') = '\0';
	snprintf(path, sizeof path, "%s/%s/%s", exe, relative, probe);
	if (access(path, R_OK) != 0)
		return;
	snprintf(path, sizeof path, "%s/%s", exe, relative);
	char *real = realpath(path, NULL);
	snprintf(out, CLI_PATH_SIZE, "%s", real ? real : "");
	free(real);
}

const char *cli_first_of(const char *const *places, const char *probe, char out[CLI_PATH_SIZE])
{
	for (int i = 0; places[i]; i++) {
		beside(places[i], probe, out);
		if (out[0])
			return out;
	}
	return NULL;
}

const char *cli_plug_libraries(char out[CLI_PATH_SIZE])
{
	static const char *const places[] = { "../lib", NULL };
	const char *given = getenv("TERRAZZO_LIBRARIES");
	return given && *given ? NULL : cli_first_of(places, "libterrazzo_torch.so", out);
}

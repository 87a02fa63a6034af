/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the other parts of terrazzo are, seen from this program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "cli.h"

char *cli_own_file(void)
{
	char *file = realpath("/proc/self/exe", NULL);
	const char *named = file ? NULL : (const char *)getauxval(AT_EXECFN);
	return named ? realpath(named, NULL) : file;
}

/* A folder relative to this program's; "" if it does not have the file `probe`. */
static void beside(const char *relative, const char *probe, char out[CLI_PATH_SIZE])
{
	char path[2 * CLI_PATH_SIZE], *exe = cli_own_file();
	out[0] = '\0';
	if (!exe)
		return;
	int length = (int)(strrchr(exe, '/') - exe);
	snprintf(path, sizeof path, "%.*s/%s/%s", length, exe, relative, probe);
	bool is_there = access(path, R_OK) == 0;
	snprintf(path, sizeof path, "%.*s/%s", length, exe, relative);
	free(exe);
	if (!is_there)
		return;
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

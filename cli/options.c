/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of options that several commands take.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "special_file.h"
#include "trace.h"

const char *const option_schedules[] = { "random", "fifo", "lifo", "starve", NULL };

uint64_t option_number(struct argp_state *state, const char *option, const char *text, uint64_t least,
                       uint64_t most)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
	if (is_number && value >= least && value <= most)
		return value;
	argp_error(state, "--%s: '%s' is not a whole number from %llu to %llu", option, text,
	           (unsigned long long)least, (unsigned long long)most);
	return least;
}

int option_device(struct argp_state *state, const char *text)
{
	return (int)option_number(state, "device", text, 0, TRACE_DEVICES_MAX - 1);
}

int option_choice(struct argp_state *state, const char *option, const char *text, const char *const *names)
{
	char list[128] = "";
	for (int i = 0; names[i]; i++) {
		if (strcmp(text, names[i]) == 0)
			return i;
		size_t used = strlen(list);
		snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
	}
	argp_error(state, "--%s: unknown choice '%s'; choices: %s", option, text, list);
	return 0;
}

static bool is_same_file(const char *out, const char *other)
{
	struct stat a, b;
	return stat(out, &a) == 0 && S_ISREG(a.st_mode) && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

void option_not_input(struct argp_state *state, const char *option, const char *out, const char *in)
{
	if (out && is_same_file(out, in))
		argp_error(state, "%s: '%s' is the input, which would be lost; name another file", option, out);
}

void option_not_in_command(struct argp_state *state, const char *option, const char *out, char *const *command)
{
	for (; out && command && *command; command++)
		if (is_same_file(out, *command))
			argp_error(state, "%s: '%s' is a file that the command names, which would be lost; name another file",
			           option, out);
}

const char *option_file(struct argp_state *state, const char *option, const char *out)
{
	if (strcmp(out, "-") == 0)
		argp_error(state, "%s: cannot go to standard output, which has other text; for a file named '-' write './-'",
		           option);
	return out;
}

void option_not_twice(struct argp_state *state, const char *option, const char *out, const char *other,
                      const char *other_out)
{
	if (out && other_out && strcmp(out, other_out) == 0 && !is_special_file(out))
		argp_error(state, "%s and %s: '%s' cannot be both; name another file", option, other, out);
}

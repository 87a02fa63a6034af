/* SPDX-License-Identifier: Apache-2.0
 *
 * A locale whose numbers have a decimal comma. The machine need not have one installed: this writes its file, as
 * glibc's localedef would.
 */
#ifndef TRZ_TESTS_COMMA_LOCALE_H
#define TRZ_TESTS_COMMA_LOCALE_H

#include <locale.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes a locale's file: the category's mark, the number of items, where each begins, and the items. */
static inline bool comma_locale_write(const char *path)
{
	enum { ITEMS = 6, BEGIN = 4 * (2 + ITEMS) };
	static const struct {
		uint32_t mark, items, at[ITEMS];
		char point[2], separator[1], grouping[1], wide[8], codeset[8];
	} file = {0x20031115 ^ LC_NUMERIC, ITEMS, {BEGIN, BEGIN + 2, BEGIN + 3, BEGIN + 4, BEGIN + 8, BEGIN + 12},
	          {','}, {'\0'}, {'\0'}, {',', '\0', '\0', '\0', '\0', '\0', '\0', '\0'}, {'U', 'T', 'F', '-', '8'}};
	FILE *to = fopen(path, "wb");
	bool written = to && fwrite(&file, sizeof file, 1, to) == 1;
	return to && fclose(to) == 0 && written;
}

/* Sets the locale, until setlocale(LC_ALL, "C"). false: the C library cannot. */
static inline bool comma_locale_begin(void)
{
	char folder[] = "/tmp/terrazzo-locale-XXXXXX", path[64], text[8];
	bool set = mkdtemp(folder) && setenv("LOCPATH", folder, 1) == 0;
	snprintf(path, sizeof path, "%s/xx_XX", folder);
	set = set && mkdir(path, 0700) == 0;
	snprintf(path, sizeof path, "%s/xx_XX/LC_NUMERIC", folder);
	set = set && comma_locale_write(path) && setlocale(LC_NUMERIC, "xx_XX");
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
	rmdir(folder);
	unsetenv("LOCPATH");
	snprintf(text, sizeof text, "%.1f", 1.5);
	return set && strcmp(text, "1,5") == 0;
}

#endif

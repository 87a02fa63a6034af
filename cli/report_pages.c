/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages of a run: one of each snapshot that its processes have left in a folder (python/terrazzo/pages.py,
 * plug/native/preload_pages.c). A file's name begins with its process's rank.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"

static bool is_snapshot(const char *name)
{
	const char *dot = strrchr(name, '.');
	return dot && (strcmp(dot, ".json") == 0 || strcmp(dot, ".pickle") == 0);
}

static int chosen(const struct dirent *entry)
{
	return is_snapshot(entry->d_name);
}

/* By rank; those without one, by process. */
static int in_order(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static bool have_ranks(struct dirent **files, int count)
{
	for (int i = 0; i < count; i++) {
		size_t digits = strspn(files[i]->d_name, "0123456789");
		if (!digits || files[i]->d_name[digits] != '-')
			return false;
		if (i && strncmp(files[i]->d_name, files[i - 1]->d_name, digits + 1) == 0)
			return false;
	}
	return true;
}

/* page.html becomes page.3.html. */
static void name_of(char *path, const char *output, int number)
{
	const char *slash = strrchr(output, '/'), *dot = strrchr(slash ? slash : output, '.');
	size_t length = dot ? (size_t)(dot - output) : strlen(output);
	snprintf(path, CLI_PATH_SIZE, "%.*s.%d%s", (int)length, output, number, output + length);
}

/* "python train.py --batch 8, rank 3 (process 1234)" */
static void title_of(char *title, size_t size, char **command, const char *file)
{
	size_t used = 0;
	title[0] = '\0';
	for (char **word = command; *word && used < size; word++)
		used += (size_t)snprintf(title + used, size - used, "%s%s", word > command ? " " : "", *word);
	used = used < size ? used : size - 1;
	int digits = (int)strspn(file, "0123456789");
	const char *process = strchr(file, '-');
	if (digits)
		used += (size_t)snprintf(title + used, size - used, ", rank %.*s", digits, file);
	if (process && used < size)
		snprintf(title + used, size - used, " (process %.*s)", (int)strspn(process + 1, "0123456789"), process + 1);
}

static trz_status make_page(const char *folder, const struct dirent *file, char **command, const char *output)
{
	char path[CLI_PATH_SIZE], title[512];
	title_of(title, sizeof title, command, file->d_name);
	snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
	trz_status status = report_page(path, title, -1, false, output);
	if (status == TRZ_OK)
		fprintf(stderr, "terrazzo: %s: the page of %s\n", output, title);
	return status;
}

trz_status report_pages(const char *folder, char **command, const char *output)
{
	struct dirent **files;
	char path[CLI_PATH_SIZE];
	trz_status status = TRZ_OK;
	int count = scandir(folder, &files, chosen, in_order);
	if (count < 0)
		return trz_fail(TRZ_ERROR_IO, "%s: cannot be read: %s", folder, strerror(errno));
	if (count == 0)
		status = trz_fail(TRZ_ERROR_NOT_FOUND, "%s: there is no page: no process of the command used GPU memory "
		                  "of PyTorch's or terrazzo's, or all were killed", output);
	bool ranks = have_ranks(files, count);
	for (int i = 0; i < count; i++) {
		if (count > 1)
			name_of(path, output, ranks ? atoi(files[i]->d_name) : i);
		if (status == TRZ_OK)
			status = make_page(folder, files[i], command, count > 1 ? path : output);
	}
	for (int i = 0; i < count; i++)
		free(files[i]);
	free(files);
	return status;
}

trz_status report_make_folder(char folder[CLI_PATH_SIZE])
{
	const char *base = getenv("TMPDIR");
	trz_status status = report_can_draw();
	if (status != TRZ_OK)
		return status;
	snprintf(folder, CLI_PATH_SIZE, "%s/terrazzo-pages-XXXXXX", base && *base ? base : "/tmp");
	return mkdtemp(folder) ? TRZ_OK
	                       : trz_fail(TRZ_ERROR_IO, "%s: cannot be created: %s", folder, strerror(errno));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the machine's devices this process sees, and in which order: CUDA_VISIBLE_DEVICES. Inside the process a
 * device is its place among the visible ones; its number is the machine's, as NVML tells it.
 */
#include "driver_lookalike.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UUID_TEXT = sizeof "GPU-00000000-0000-0000-0000-000000000000" };

/* A UUID tells apart the devices of a machine, and those of different nodes. */
void trz_lookalike_uuid(int number, unsigned char uuid[16])
{
	memcpy(uuid, "terrazzo sim gp", 15);
	uuid[14] = (unsigned char)(uuid[14] + look.node);
	uuid[15] = (unsigned char)number;
}

static void uuid_text(int number, char text[UUID_TEXT])
{
	unsigned char b[16];
	size_t at = (size_t)snprintf(text, UUID_TEXT, "GPU");
	trz_lookalike_uuid(number, b);
	for (int i = 0; i < 16; i++) {
		bool begins_group = i == 0 || (i >= 4 && i <= 10 && i % 2 == 0);
		at += (size_t)snprintf(text + at, UUID_TEXT - at, "%s%02x", begins_group ? "-" : "", b[i]);
	}
}

/* The one device whose UUID begins like this; -1: there is none, or several. */
static int by_uuid(const char *begin, size_t length)
{
	int found = -1;
	char text[UUID_TEXT];
	for (int i = 0; i < look.all_devices; i++) {
		uuid_text(i, text);
		if (strncmp(text, begin, length) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}

/* "2" or "2nd"; -1: not a number, or a negative one. */
static int by_index(const char *text, const char *end)
{
	char *after;
	long index = strtol(text, &after, 10);
	return after == text || after > end || index < 0 ? -1 : index < look.all_devices ? (int)index : look.all_devices;
}

/* The list ends before the first element that names no device. If one is named twice, no device is visible. */
static int read_list(const char *list, int order[LOOK_DEVICES])
{
	bool uuids = strncmp(list, "GPU-", 4) == 0;
	int count = 0;
	for (const char *at = list, *end; *at; at = *end ? end + 1 : end) {
		end = at + strcspn(at, ",");
		int number = uuids ? by_uuid(at, (size_t)(end - at)) : by_index(at, end);
		if (number == look.all_devices || (uuids && number < 0))
			fprintf(stderr, "terrazzo: CUDA_VISIBLE_DEVICES=%s: '%.*s' names none of the %d devices, which hides what "
			        "comes after it\n", list, (int)(end - at), at, look.all_devices);
		if (number < 0 || number == look.all_devices)
			break;
		for (int i = 0; i < count; i++)
			if (order[i] == number)
				return 0;
		order[count++] = number;
	}
	return count;
}

/* Appends the hidden devices, since another process may pass on memory of theirs. */
static void append_hidden(int order[LOOK_DEVICES], int count)
{
	bool taken[LOOK_DEVICES] = {false};
	for (int i = 0; i < count; i++)
		taken[order[i]] = true;
	for (int number = 0; number < look.all_devices; number++)
		if (!taken[number])
			order[count++] = number;
}

int look_visible(int order[LOOK_DEVICES])
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	int count = list ? read_list(list, order) : 0;
	append_hidden(order, count);
	return list ? count : look.all_devices;
}

int look_device_of(int number)
{
	int device = 0;
	while (device < look.all_devices && look.number[device] != number)
		device++;
	return device < look.all_devices ? device : -1;
}

int trz_lookalike_device_number(int device)
{
	bool known = device >= 0 && device < look.all_devices;
	return look.node * LOOK_DEVICES + (known ? look.number[device] : device);
}

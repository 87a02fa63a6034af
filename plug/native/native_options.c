/* SPDX-License-Identifier: Apache-2.0
 *
 * TERRAZZO_NATIVE, and the counts of what was served.
 */
#include "native.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct native_options native_options = {.on = true};

static const struct {
	const char *text;
	size_t at;
	bool value;
} settings[] = {
	{"on:on", offsetof(struct native_options, on), true},
	{"on:off", offsetof(struct native_options, on), false},
	{"free:wait", offsetof(struct native_options, free_in_order), false},
	{"free:order", offsetof(struct native_options, free_in_order), true},
	{"ipc:auto", offsetof(struct native_options, classic), false},
	{"ipc:auto", offsetof(struct native_options, refuse_ipc), false},
	{"ipc:classic", offsetof(struct native_options, classic), true},
	{"ipc:classic", offsetof(struct native_options, refuse_ipc), false},
	{"ipc:refuse", offsetof(struct native_options, classic), false},
	{"ipc:refuse", offsetof(struct native_options, refuse_ipc), true},
	{"report:off", offsetof(struct native_options, report), false},
	{"report:on", offsetof(struct native_options, report), true},
};

/* Sets an option; of several words for one option the last counts. An unknown word must not end a program that does not
 * know of terrazzo. */
static void set(const char *word, size_t length)
{
	bool known = false;
	for (; length > 0 && *word == ' '; length--)
		word++;
	while (length > 0 && word[length - 1] == ' ')
		length--;
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
		if (strlen(settings[i].text) == length && memcmp(settings[i].text, word, length) == 0) {
			memcpy((char *)&native_options + settings[i].at, &settings[i].value, sizeof(bool));
			known = true;
		}
	if (length > 0 && !known)
		fprintf(stderr, "terrazzo: TERRAZZO_NATIVE: '%.*s' is unknown, and ignored: there are on:on|off, "
		        "free:wait|order, ipc:auto|classic|refuse and report:on|off\n", (int)length, word);
}

static void read_words(void)
{
	for (const char *word = getenv("TERRAZZO_NATIVE"); word; word = strchr(word, ',')) {
		word += *word == ',';
		set(word, strcspn(word, ","));
	}
	if (!native_options.on)
		native_stop();
}

void native_read_options(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, read_words);
}

/* ---- counts ---------------------------------------------------------------------------------------------------- */

static _Atomic(uint64_t) counts[NATIVE_CALLS][NATIVE_OUTCOMES];

void native_count_slow(enum native_call call, enum native_outcome outcome)
{
	atomic_fetch_add_explicit(&counts[call][outcome], 1, memory_order_relaxed);
}

bool native_report(void)
{
	static const char *const names[] = {
#define NATIVE_NAME(name) #name,
		NATIVE_COUNTED(NATIVE_NAME)
#undef NATIVE_NAME
	};
	bool some = false;
	for (int i = 0; i < NATIVE_CALLS; i++) {
		const uint64_t served = counts[i][NATIVE_SERVED], passed = counts[i][NATIVE_PASSED],
		               refused = counts[i][NATIVE_REFUSED];
		some = some || served + passed + refused > 0;
		if (served + passed + refused > 0)
			fprintf(stderr, "terrazzo: %s: %" PRIu64 " served, %" PRIu64 " passed on, %" PRIu64 " refused\n", names[i],
			        served, passed, refused);
	}
	return some;
}

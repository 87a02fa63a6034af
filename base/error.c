/* SPDX-License-Identifier: Apache-2.0
 *
 * Status names and texts, and the per-thread last-error lines.
 */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "held_signals.h"
#include "terrazzo_driver.h"

static _Thread_local char last_error[ERROR_TEXT_BYTES];
static _Thread_local char driver_error[ERROR_TEXT_BYTES];

trz_status trz_fail(trz_status status, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(last_error, sizeof last_error, format, args);
	va_end(args);
	return status;
}

void trz_tell(const char *format, ...)
{
	static const char begin[] = "terrazzo: ";
	char line[sizeof begin + ERROR_TEXT_BYTES];
	va_list args;
	memcpy(line, begin, sizeof begin);
	va_start(args, format);
	vsnprintf(line + sizeof begin - 1, ERROR_TEXT_BYTES, format, args);
	va_end(args);
	size_t size = strlen(line);
	line[size++] = '\n';
	trz_tell_text(line, size);
}

void trz_tell_text(const char *text, size_t size)
{
	struct held_signals held;
	ssize_t written = 0;
	held_signals_begin(&held);
	while (size && (written >= 0 || errno == EINTR)) {
		written = write(STDERR_FILENO, text, size);
		text += written > 0 ? written : 0;
		size -= written > 0 ? (size_t)written : 0;
	}
	held_signals_end(&held);
}

const char *trz_last_error(void)
{
	return last_error;
}

void trz_driver_note(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(driver_error, sizeof driver_error, format, args);
	va_end(args);
}

const char *trz_driver_last_error(void)
{
	return driver_error;
}

const char *trz_status_name(trz_status status)
{
	switch (status) {
#define STATUS_NAME(name, value, text) \
	case TRZ_##name:                   \
		return "TRZ_" #name;
		TRZ_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
	}
	return "TRZ_UNKNOWN";
}

const char *trz_status_text(trz_status status)
{
	switch (status) {
#define STATUS_TEXT(name, value, text) \
	case TRZ_##name:                   \
		return text;
		TRZ_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
	}
	return "unknown status";
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing options. The only file of alloc/ that reads the environment.
 */
#include "ground/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decimal.h"
#include "error.h"
#include "snapshot_file.h"

enum option_type { TYPE_BYTES, TYPE_NUMBER, TYPE_SWITCH, TYPE_TEXT };

struct option {
	const char *key;
	enum option_type type;
	size_t offset;
	uint64_t initial, least, most;
	const char *help;
};

static const struct option options[] = {
#define BYTES(key, initial, least, most, help) \
	{#key, TYPE_BYTES, offsetof(struct config, key), initial, least, most, help},
#define NUMBER(key, initial, least, most, help) \
	{#key, TYPE_NUMBER, offsetof(struct config, key), initial, least, most, help},
#define SWITCH(key, initial, help) {#key, TYPE_SWITCH, offsetof(struct config, key), initial, 0, 1, help},
#define TEXT(key, help) {#key, TYPE_TEXT, offsetof(struct config, key), 0, 0, CONFIG_TEXT_BYTES - 1, help},
#include "ground/config_options.def"
#undef BYTES
#undef NUMBER
#undef SWITCH
#undef TEXT
};

enum { OPTION_COUNT = sizeof options / sizeof *options, TEXT_BYTES = 64 };

#define WHITE " \t\r\n"

static const char *const type_names[] = {"bytes", "count", "bool", "text"};

/* A size as people write it: the largest unit that divides it. */
static const char *bytes_text(uint64_t bytes, char *text)
{
	static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
	unsigned unit = 0;
	while (bytes && unit < 4 && bytes % 1024 == 0) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, TEXT_BYTES, "%" PRIu64 "%s", bytes, units[unit]);
	return text;
}

static const char *value_text(const struct option *o, uint64_t value, char *text)
{
	if (o->type == TYPE_BYTES)
		return bytes_text(value, text);
	if (o->type == TYPE_SWITCH)
		return value ? "on" : "off";
	if (o->type == TYPE_TEXT)
		return "none";
	snprintf(text, TEXT_BYTES, "%" PRIu64, value);
	return text;
}

static const char *choices_text(const struct option *o, char *text, size_t size)
{
	char least[TEXT_BYTES], most[TEXT_BYTES];
	if (o->type == TYPE_SWITCH)
		snprintf(text, size, "on, off");
	else if (o->type == TYPE_TEXT)
		snprintf(text, size, "none, or up to %" PRIu64 " characters without comma or space", o->most);
	else
		snprintf(text, size, "%s to %s", value_text(o, o->least, least), value_text(o, o->most, most));
	return text;
}

static void store(struct config *c, const struct option *o, uint64_t value)
{
	char *field = (char *)c + o->offset;
	if (o->type == TYPE_TEXT)
		*field = '\0';
	else if (o->type == TYPE_SWITCH)
		*(bool *)field = value != 0;
	else
		*(uint64_t *)(void *)field = value;
}

static bool store_text(struct config *c, const struct option *o, const char *text)
{
	size_t length = strlen(text);
	if (strcmp(text, "none") == 0)
		length = 0;
	if (length > o->most)
		return false;
	memcpy((char *)c + o->offset, text, length);
	((char *)c + o->offset)[length] = '\0';
	return true;
}

/* "12", "1.5GiB": digits; for bytes also a decimal fraction and a unit. A fraction without a unit is rejected, and so
 * is less than one byte: truncated, it would become 0, which means something else. */
static bool parse_amount(const struct option *o, const char *text, uint64_t *value)
{
	static const struct {
		const char *name;
		unsigned shift;
	} units[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
	const char *unit;
	double amount = decimal_read(text, &unit);
	if (unit == text)
		return false;
	if (text[strspn(text, "0123456789")] == '\0') {
		errno = 0;
		*value = strtoull(text, NULL, 10);
		return errno == 0;
	}
	for (size_t i = 0; o->type == TYPE_BYTES && i < sizeof units / sizeof *units; i++) {
		double bytes = amount * (double)((uint64_t)1 << units[i].shift);
		if (strcmp(unit, units[i].name) == 0 && bytes < 9e18 && (bytes >= 1 || bytes == 0)) {
			*value = (uint64_t)bytes;
			return true;
		}
	}
	return false;
}

static bool parse_value(const struct option *o, const char *text, uint64_t *value)
{
	if (o->type != TYPE_SWITCH)
		return parse_amount(o, text, value) && *value >= o->least && *value <= o->most;
	*value = strcmp(text, "on") == 0;
	return *value || strcmp(text, "off") == 0;
}

static trz_status unknown_key(const char *source, const char *key)
{
	char keys[640] = "";
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		size_t length = strlen(keys);
		snprintf(keys + length, sizeof keys - length, "%s%s", i ? ", " : "", options[i].key);
	}
	return trz_fail(TRZ_ERROR_CONFIG_KEY, "%s: there is no option \"%.60s\"; the options are %s", source, key,
	                keys);
}

/* White space inside a value is an error. Dropping it would make a path name another file, and two numbers one. */
static trz_status set_option(struct config *c, const struct option *o, const char *source, const char *text)
{
	char choices[2 * TEXT_BYTES + 8];
	uint64_t value = 0;
	bool white = strpbrk(text, WHITE) != NULL;
	if (!white && o->type == TYPE_TEXT && store_text(c, o, text))
		return TRZ_OK;
	if (white || o->type == TYPE_TEXT || !parse_value(o, text, &value))
		return trz_fail(TRZ_ERROR_CONFIG_VALUE, "%s: %s does not take \"%.60s\"%s; it takes %s", source, o->key, text,
		                white ? ", which contains white space" : "", choices_text(o, choices, sizeof choices));
	store(c, o, value);
	return TRZ_OK;
}

/* The length of the text without white space at its end. */
static size_t trimmed(const char *text, size_t length)
{
	while (length && strchr(WHITE, text[length - 1]))
		length--;
	return length;
}

static trz_status parse_pair(struct config *c, const char *source, char *pair)
{
	char *colon = strchr(pair, ':');
	if (!colon)
		return trz_fail(TRZ_ERROR_CONFIG_VALUE, "%s: \"%.60s\" is not of the form key:value", source, pair);
	pair[trimmed(pair, (size_t)(colon - pair))] = '\0';
	for (size_t i = 0; i < OPTION_COUNT; i++)
		if (strcmp(options[i].key, pair) == 0)
			return set_option(c, &options[i], source, colon + 1 + strspn(colon + 1, WHITE));
	return unknown_key(source, pair);
}

/* Parses pair by pair, ignoring white space around each. */
static trz_status parse(struct config *c, const char *source, const char *text)
{
	char pair[256];
	while (*text) {
		text += strspn(text, WHITE);
		size_t all = strcspn(text, ","), length = trimmed(text, all);
		if (length >= sizeof pair)
			return trz_fail(TRZ_ERROR_CONFIG_VALUE, "%s: an entry is longer than %zu characters", source,
			                sizeof pair - 1);
		memcpy(pair, text, length);
		pair[length] = '\0';
		text += all + (text[all] == ',');
		trz_status status = length ? parse_pair(c, source, pair) : TRZ_OK;
		if (status != TRZ_OK)
			return status;
	}
	return TRZ_OK;
}

static trz_status check_patterns(const struct config *c)
{
	const char *const patterns[] = {c->oom_snapshot, c->exit_snapshot};
	for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
		if (strchr(patterns[i], '%') && !snapshot_pattern_is_good(patterns[i]))
			return trz_fail(TRZ_ERROR_CONFIG_VALUE, "%s: \"%s\" is not a pattern for file names: it may have %%p, %%d, "
			                "%%r, %%t, %%n and %%%%, and must not end in /",
			                i ? "exit_snapshot" : "oom_snapshot", patterns[i]);
	return TRZ_OK;
}

static trz_status check_aids(const struct config *c)
{
	if (c->vmm || !(c->guard || c->unmap_on_free))
		return TRZ_OK;
	return trz_fail(TRZ_ERROR_CONFIG_VALUE, "%s needs virtual memory management, which vmm:off switches off",
	                c->guard ? "guard" : "unmap_on_free");
}

trz_status config_load(struct config *c, const char *text)
{
	memset(c, 0, sizeof *c);
	for (size_t i = 0; i < OPTION_COUNT; i++)
		store(c, &options[i], options[i].initial);
	const char *environment = getenv("TERRAZZO_CONF");
	trz_status status = environment ? parse(c, "TERRAZZO_CONF", environment) : TRZ_OK;
	if (status == TRZ_OK && text)
		status = parse(c, "configuration", text);
	if (status == TRZ_OK && c->tile_size_max < c->tile_size)
		c->tile_size_max = c->tile_size;
	if (status == TRZ_OK)
		status = check_patterns(c);
	return status == TRZ_OK ? check_aids(c) : status;
}

const char *config_injection_path(void)
{
	const char *path = getenv("NVTX_INJECTION64_PATH");
	return path && *path ? path : NULL;
}

trz_status trz_config_check(const char *text)
{
	struct config c;
	return config_load(&c, text);
}

trz_status trz_option(size_t i, trz_option_info *out)
{
	static _Thread_local char initial[TEXT_BYTES], choices[2 * TEXT_BYTES + 8];
	if (!out)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "trz_option: out is NULL");
	if (i >= OPTION_COUNT)
		return trz_fail(TRZ_ERROR_NOT_FOUND, "there are %d options, numbered from 0; %zu is out of range",
		                OPTION_COUNT, i);
	const struct option *o = &options[i];
	const char *text = value_text(o, o->initial, initial);
	*out = (trz_option_info){o->key, type_names[o->type], choices_text(o, choices, sizeof choices), text,
	                         o->help};
	return TRZ_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of a command that differ in one thing, several at a time: the value of a placeholder, or the allocator.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "cli.h"
#include "error.h"
#include "json_text.h"
#include "program.h"

enum { MOST_VALUES = 256, MOST_JOBS = 64 };

struct trial {
	struct program_params params;
	const char *value;
	json_t *result;    /* NULL: it could not be run */
	char error[256];
};

struct sweep {
	char *name;        /* of the placeholder; the values' text follows it in the same memory */
	struct trial trials[MOST_VALUES];
	bool fit;          /* each run is a search for the smallest device */
	size_t count;
	size_t next;       /* under lock */
	pthread_mutex_t lock;
};

/* ---- the commands ------------------------------------------------------------------------------------- */

static trz_status make_command(struct trial *trial, char *const *command, const char *name)
{
	size_t times = 0;
	char **made = program_words(command, name, trial->value, &times);
	trial->params.command = made;
	if (!made)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a command");
	return times ? TRZ_OK : trz_fail(TRZ_ERROR_BAD_INPUT, "--sweep: the command does not contain '{%s}'", name);
}

static struct trial *add_trial(struct sweep *s, const struct program_params *params)
{
	struct trial *trial = &s->trials[s->count++];
	trial->params = *params;
	trial->params.silent = true;
	return trial;
}

/* Splits "name=value,value". */
static trz_status parse(struct sweep *s, const struct program_params *params, const char *text)
{
	s->name = strdup(text);
	char *values = s->name ? strchr(s->name, '=') : NULL;
	if (!values || values == s->name || strlen(text) > 4000 || values - s->name > 100)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "--sweep: '%s' is not of the form name=value,value,...", text);
	*values++ = '\0';
	for (char *value; (value = strsep(&values, ","));) {
		if (!*value || s->count == MOST_VALUES)
			return trz_fail(TRZ_ERROR_BAD_INPUT, "--sweep: %s", *value ? "more than 256 values" : "an empty value");
		add_trial(s, params)->value = value;
	}
	return TRZ_OK;
}

/* ---- the runs ------------------------------------------------------------------------------------------- */

/* Searches without a word, as several searches may go on at a time. */
static trz_status find_smallest(struct trial *trial)
{
	char *text = NULL;
	size_t size;
	FILE *unseen = open_memstream(&text, &size);
	trz_status status = unseen ? program_fit(&trial->params, false, &trial->result, unseen)
	                           : trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a search");
	if (unseen)
		fclose(unseen);
	free(text);
	return status;
}

static void *work(void *arg)
{
	struct sweep *s = arg;
	for (;;) {
		pthread_mutex_lock(&s->lock);
		struct trial *trial = s->next < s->count ? &s->trials[s->next++] : NULL;
		pthread_mutex_unlock(&s->lock);
		if (!trial)
			return NULL;
		trz_status status = s->fit ? find_smallest(trial) : program_run(&trial->params, &trial->result);
		if (status != TRZ_OK)
			snprintf(trial->error, sizeof trial->error, "%s", trz_last_error());
	}
}

static void run_all(struct sweep *s, unsigned jobs)
{
	pthread_t threads[MOST_JOBS];
	unsigned started = 0;
	while (started + 1 < jobs && started < MOST_JOBS && started < s->count
	       && pthread_create(&threads[started], NULL, work, s) == 0)
		started++;
	work(s);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

/* ---- the table -------------------------------------------------------------------------------------------- */

static double gib(const json_t *result, const char *key)
{
	return (double)program_number(result, key) / (double)GIB(1);
}

static void print_trial(const struct trial *t, bool by_allocator, FILE *to)
{
	fprintf(to, "%-12s  ", t->value);
	if (!t->result) {
		fprintf(to, "%s\n", t->error);
		return;
	}
	char status[40];
	snprintf(status, sizeof status, "status %d", program_exit_status(t->result));
	const char *words[] = { [PROGRAM_FITS] = "fits", [PROGRAM_OUT_OF_MEMORY] = "out of memory",
		                    [PROGRAM_FAILED] = status, [PROGRAM_NO_DEVICE] = "no device" };
	fprintf(to, "%-13s  %9.2f  %8.2f  %17.2f", words[program_outcome(t->result)],
	        gib(t->result, "peak_allocated_bytes"), gib(t->result, "peak_reserved_bytes"),
	        gib(t->result, "device_peak_bytes"));
	const json_t *fit = json_object_get(t->result, "fit");
	if (program_number(fit, "memory_bytes"))
		fprintf(to, "  %15.4f", gib(fit, "memory_bytes"));
	const char *served = json_string_value(json_object_get(t->result, "allocator"));
	if (by_allocator && served && strcmp(served, t->value) != 0)
		fprintf(to, "  (the program chose another: %s)", served);
	fprintf(to, "\n");
}

static void print_trials(const struct sweep *s, bool by_allocator, FILE *to)
{
	fprintf(to, "%-12s  %-13s  allocated  reserved  device used, peak%s, GiB\n", s->name, "",
	        s->fit ? "  smallest device" : "");
	for (size_t i = 0; i < s->count; i++)
		print_trial(&s->trials[i], by_allocator, to);
}

/* The results of all that could be run, each with what it was run with. */
static json_t *list_results(struct sweep *s)
{
	json_t *rows = json_array();
	for (size_t i = 0; i < s->count; i++) {
		struct trial *t = &s->trials[i];
		if (!t->result)
			continue;
		json_object_set_new(t->result, "value", json_text(t->value));
		json_array_append(rows, t->result);
	}
	return json_pack("{s:o, s:o}", "sweep", json_text(s->name), "runs", rows);
}

/* Values are in the user's order: the largest that fits is the last one before the first that does not. */
static json_t *sum_up(struct sweep *s, FILE *to)
{
	json_t *sum = list_results(s);
	const char *largest = NULL;
	const json_t *found = NULL;
	print_trials(s, false, to);
	for (size_t i = 0; i < s->count; i++) {
		const struct trial *t = &s->trials[i];
		if (!t->result || program_outcome(t->result) != PROGRAM_FITS)
			break;
		largest = t->value;
		found = t->result;
	}
	if (largest) {
		fprintf(to, "largest %s that fits: %s\n", s->name, largest);
		program_print_ranks(found, to);
	} else if (s->trials[0].result && program_outcome(s->trials[0].result) == PROGRAM_OUT_OF_MEMORY) {
		fprintf(to, "not even %s %s fits\n", s->name, s->trials[0].value);
	}
	json_object_set_new(sum, "largest", largest ? json_text(largest) : json_null());
	return sum;
}

static trz_status first_problem(const struct sweep *s)
{
	for (size_t i = 0; i < s->count; i++) {
		const struct trial *t = &s->trials[i];
		if (!t->result)
			return trz_fail(TRZ_ERROR_IO, "%s=%s: %s", s->name, t->value, t->error);
		if (program_outcome(t->result) == PROGRAM_FAILED)
			return trz_fail(TRZ_ERROR_IO, "%s=%s: the command ends with status %d for a reason other than memory",
			                s->name, t->value, program_exit_status(t->result));
		if (program_outcome(t->result) == PROGRAM_NO_DEVICE)
			return trz_fail(TRZ_ERROR_BAD_INPUT, "%s=%s: the command used no simulated device, so whether it fits "
			                "cannot be told", s->name, t->value);
	}
	return TRZ_OK;
}

/* The first calls that look for this program's other parts must not come from threads. */
static trz_status begin(struct sweep **sweep)
{
	if (!program_libraries() || !program_python())
		return TRZ_ERROR_NOT_FOUND;
	*sweep = calloc(1, sizeof **sweep);
	if (!*sweep)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a sweep");
	pthread_mutex_init(&(*sweep)->lock, NULL);
	return TRZ_OK;
}

static void end(struct sweep *s, const struct program_params *params)
{
	for (size_t i = 0; i < s->count; i++) {
		if (s->trials[i].params.command != params->command)
			program_free_words(s->trials[i].params.command);
		json_decref(s->trials[i].result);
	}
	pthread_mutex_destroy(&s->lock);
	free(s->name);
	free(s);
}

trz_status program_sweep(const struct program_params *params, const char *text, unsigned jobs, json_t **result,
                         FILE *to)
{
	*result = NULL;
	struct sweep *s;
	trz_status status = begin(&s);
	if (status != TRZ_OK)
		return status;
	status = parse(s, params, text);
	for (size_t i = 0; status == TRZ_OK && i < s->count; i++)
		status = make_command(&s->trials[i], params->command, s->name);
	if (status == TRZ_OK) {
		run_all(s, jobs);
		*result = sum_up(s, to);
		status = first_problem(s);
	}
	end(s, params);
	return status;
}

trz_status program_compare(const struct program_params *params, const char *const *allocators, bool fit, unsigned jobs,
                           json_t **result, FILE *to)
{
	*result = NULL;
	struct sweep *s;
	trz_status status = begin(&s);
	if (status != TRZ_OK)
		return status;
	s->fit = fit;
	s->name = strdup("allocator");
	status = s->name ? TRZ_OK : trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a comparison");
	for (size_t i = 0; status == TRZ_OK && allocators[i]; i++) {
		struct trial *trial = add_trial(s, params);
		trial->value = allocators[i];
		status = program_choose_allocator(&trial->params, allocators[i]);
	}
	if (status == TRZ_OK) {
		run_all(s, jobs);
		print_trials(s, true, to);
		*result = list_results(s);
		status = first_problem(s);
	}
	end(s, params);
	return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine as a whole: opening and closing, its lock, state per thread, violations, counters, the summary of leaks.
 */
#include "sim_machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bits.h"
#include "error.h"
#include "prng.h"

/* ---- threads and calls ---------------------------------------------------------------------------- */

static void thread_end(void *arg)
{
	struct sim_thread *t = arg;
	pthread_mutex_lock(&t->machine->lock);
	LIST_REMOVE(t, link);
	pthread_mutex_unlock(&t->machine->lock);
	free(t);
}

/* Called without the lock. Aborts if there is no memory: a thread needs its state. */
static struct sim_thread *thread_begin(sim *s)
{
	struct sim_thread *t = calloc(1, sizeof *t);
	if (!t || pthread_setspecific(s->thread_key, t)) {
		fputs("sim: no host memory for a thread's state\n", stderr);
		abort();
	}
	t->machine = s;
	pthread_mutex_lock(&s->lock);
	t->number = ++s->thread_count;
	LIST_INSERT_HEAD(&s->threads, t, link);
	pthread_mutex_unlock(&s->lock);
	return t;
}

struct sim_thread *sim_thread_here(sim *s)
{
	struct sim_thread *t = pthread_getspecific(s->thread_key);
	return t ? t : thread_begin(s);
}

struct sim_call sim_enter(sim *s, sim_slot slot)
{
	bool in_slot = slot != SIM_SLOTS;
	uint64_t now = in_slot && s->config.timed ? ticks_read_in_order(&s->ticks) : 0;
	struct sim_call call = {.s = s, .thread = sim_thread_here(s), .slot = slot, .started = now, .status = TRZ_OK};
	call.thread->depth += in_slot;
	pthread_mutex_lock(&s->lock);
	call.thread->reason[0] = '\0';
	call.thread->result = 0;
	if (in_slot) {
		s->left_out = call.thread->left_out;
		s->calls[slot] += !s->left_out;
		sim_charge_call(s, slot);
		if (slot != SIM_SLOT_clock_ns && call.thread->called_back && sim_enforces(s, SIM_RULE_HOST_CALLS))
			call.status = sim_refuse(s, TRZ_ERROR_NOT_PERMITTED, "this thread runs a host function of a stream");
		if (call.status == TRZ_OK)
			call.status = sim_fault_strike(s, slot);
		if (call.status == TRZ_OK && !LIST_EMPTY(&s->captures))
			call.status = sim_capture_guard(s, call.thread, slot);
	}
	return call;
}

trz_status sim_leave(struct sim_call *call)
{
	struct sim_thread *t = call->thread;
	pthread_mutex_unlock(&call->s->lock);
	bool failed = call->status != TRZ_OK && call->status != TRZ_NOT_READY;
	if (call->slot == SIM_SLOTS)
		return failed ? trz_fail(call->status, "%s", t->reason) : call->status;
	if (failed)
		trz_driver_note("%s from the simulated %s: %s", trz_status_name(call->status), sim_slot_name(call->slot),
		                t->reason);
	if (--t->depth == 0 && call->s->config.timed)
		t->host_ticks += ticks_read_in_order(&call->s->ticks) - call->started + call->s->timing_ticks;
	return call->status;
}

/* Writes the reason of the thread's failure. */
#define SAY(reason, format)                                  \
	do {                                                     \
		va_list args;                                        \
		va_start(args, format);                              \
		vsnprintf((reason), SIM_TEXT_BYTES, (format), args); \
		va_end(args);                                        \
	} while (0)

trz_status sim_refuse(sim *s, trz_status status, const char *format, ...)
{
	SAY(sim_thread_here(s)->reason, format);
	return status;
}

static void count_violation(sim *s, const char *reason)
{
	if (s->figures->violations++ == 0)
		memcpy(s->first_violation, reason, SIM_TEXT_BYTES);
	if (s->config.on_violation)
		s->config.on_violation(reason);
	if (!s->config.continue_on_violation) {
		fprintf(stderr, "sim: violation: %s\n", reason);
		abort();
	}
}

trz_status sim_violate(sim *s, trz_status status, const char *format, ...)
{
	char *reason = sim_thread_here(s)->reason;
	SAY(reason, format);
	count_violation(s, reason);
	return status;
}

trz_status sim_answer(sim *s, trz_status status, int result, const char *format, ...)
{
	struct sim_thread *t = sim_thread_here(s);
	SAY(t->reason, format);
	t->result = result;
	return status;
}

trz_status sim_misuse(sim *s, trz_status status, int result, const char *format, ...)
{
	struct sim_thread *t = sim_thread_here(s);
	SAY(t->reason, format);
	t->result = result;
	if (!s->config.answer_misuse)
		count_violation(s, t->reason);
	else if (s->figures->misuses++ == 0)
		memcpy(s->first_misuse, t->reason, SIM_TEXT_BYTES);
	return status;
}

int sim_result(sim *s)
{
	return sim_thread_here(s)->result;
}

void sim_suspect(sim *s, const char *text)
{
	if (s->figures->suspicions++ == 0)
		snprintf(s->first_suspicion, SIM_TEXT_BYTES, "%s", text);
}

bool sim_enforces(const sim *s, enum sim_rule rule)
{
	return !(s->config.lenient_rules & (unsigned)rule);
}

bool sim_called_back(sim *s)
{
	return sim_thread_here(s)->called_back && sim_enforces(s, SIM_RULE_HOST_CALLS);
}

/* ---- opening and closing -------------------------------------------------------------------------- */

static void fill_defaults(sim_config *c)
{
	if (c->devices == 0)
		c->devices = 1;
	if (c->capacity == 0)
		c->capacity = GIB(80);
	if (c->granularity == 0)
		c->granularity = MIB(2);
	if (!c->costs)
		c->costs = SIM_DEFAULT_COSTS;
}

static trz_status check_config(const sim_config *c)
{
	if (c->devices < 1 || c->devices > SIM_MAX_DEVICES)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "%d simulated devices requested; 1 to %d are possible", c->devices,
		                SIM_MAX_DEVICES);
	if (!is_power_of_two(c->granularity) || c->granularity < KIB(64))
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "granularity %llu is not a power of two from 64 KiB on",
		                (unsigned long long)c->granularity);
	if (c->va_bytes % c->granularity)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "va_bytes is not a multiple of the granularity");
	if (c->schedule >= SIM_SCHEDULES)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "there is no schedule %d", (int)c->schedule);
	if (c->lenient_rules & ~(unsigned)SIM_RULES_ALL)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "lenient_rules has bits that name no rule");
	return TRZ_OK;
}

static void init_registries(sim *s)
{
	bool reuse = sim_enforces(s, SIM_RULE_HANDLE_REUSE);
	s->memory = (struct sim_registry){.kind = SIM_KIND_MEMORY};
	s->contexts = (struct sim_registry){.kind = SIM_KIND_CONTEXT};
	s->streams = (struct sim_registry){.kind = SIM_KIND_STREAM, .reuse = reuse};
	s->events = (struct sim_registry){.kind = SIM_KIND_EVENT, .reuse = reuse};
	s->graphs = (struct sim_registry){.kind = SIM_KIND_GRAPH, .reuse = reuse};
}

/* What a call takes outside of the two clock readings that time it: the least of some rounds, since the host
 * interrupts. Leaves the counters as they were. */
static uint64_t measure_timing(sim *s)
{
	enum { ROUNDS = 8, CALLS = 100 };
	struct sim_thread *t = sim_thread_here(s);
	uint64_t least = UINT64_MAX;
	for (int round = 0; round < ROUNDS; round++) {
		int count;
		t->host_ticks = 0;
		uint64_t begin = ticks_read_in_order(&s->ticks);
		for (int i = 0; i < CALLS; i++)
			s->table.device_count(s, &count);
		least = min_u64(least, ticks_read_in_order(&s->ticks) - begin - t->host_ticks);
	}
	t->host_ticks = 0;
	s->clock_ns = s->figures->driver_time_ns = 0;
	s->calls[SIM_SLOT_device_count] = 0;
	return least / CALLS;
}

trz_status sim_open(const sim_config *config, sim **out)
{
	sim_config c = *config;
	fill_defaults(&c);
	trz_status status = check_config(&c);
	if (status != TRZ_OK)
		return status;
	sim *s = calloc(1, sizeof *s);
	if (!s)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for a simulated machine");
	s->config = c;
	s->figures = c.figures ? c.figures : &s->own_figures;
	s->config.costs = NULL; /* the caller's string is not kept */
	s->schedule_seed = prng_mix(c.seed);
	s->sync_seed = prng_mix(c.seed + 1);
	s->fault_seed = prng_mix(c.seed + 2);
	s->generation = 1;
	init_registries(s);
	s->table = sim_table;
	s->table.self = s;
	status = sim_cost_load(s, c.costs);
	if (status == TRZ_OK)
		status = sim_memory_open(s);
	if (status != TRZ_OK) {
		free(s);
		return status;
	}
	if (pthread_key_create(&s->thread_key, thread_end)) {
		sim_memory_close(s);
		free(s);
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "the process has no thread-specific key left: close other machines");
	}
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->progress, NULL);
	ticks_init(&s->ticks);
	if (c.timed)
		s->timing_ticks = measure_timing(s);
	*out = s;
	return TRZ_OK;
}

void sim_close(sim *s)
{
	if (!s)
		return;
	sim_graphs_close(s);
	sim_streams_close(s);
	sim_contexts_close(s);
	sim_memory_close(s);
	pthread_key_delete(s->thread_key);
	while (!LIST_EMPTY(&s->threads)) {
		struct sim_thread *t = LIST_FIRST(&s->threads);
		LIST_REMOVE(t, link);
		free(t);
	}
	pthread_cond_destroy(&s->progress);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

uint64_t sim_now_ns(const sim *s)
{
	return s->clock_ns + s->tick * 1000 + s->clock_readings;
}

const trz_driver *sim_driver(sim *s)
{
	return &s->table;
}

/* ---- counters ------------------------------------------------------------------------------------- */

static uint64_t read_locked(sim *s, const uint64_t *value)
{
	pthread_mutex_lock(&s->lock);
	uint64_t v = *value;
	pthread_mutex_unlock(&s->lock);
	return v;
}

uint64_t sim_calls(sim *s, sim_slot slot)
{
	return slot < SIM_SLOTS ? read_locked(s, &s->calls[slot]) : 0;
}

void sim_reset_calls(sim *s)
{
	pthread_mutex_lock(&s->lock);
	memset(s->calls, 0, sizeof s->calls);
	pthread_mutex_unlock(&s->lock);
}

uint64_t sim_driver_time_ns(sim *s)
{
	return read_locked(s, &s->figures->driver_time_ns);
}

uint64_t sim_driver_time_by(sim *s, unsigned i)
{
	return i < SIM_MORE_COSTS ? read_locked(s, &s->costs[1 + i].time_ns) : 0;
}

void sim_leave_out(sim *s, bool on)
{
	sim_thread_here(s)->left_out = on;
}

uint64_t sim_host_ticks(sim *s)
{
	return sim_thread_here(s)->host_ticks;
}

uint64_t sim_faults(sim *s)
{
	return read_locked(s, &s->faults);
}

uint64_t sim_violations(sim *s)
{
	return read_locked(s, &s->figures->violations);
}

const char *sim_first_violation(sim *s)
{
	return sim_violations(s) ? s->first_violation : NULL;
}

uint64_t sim_misuses(sim *s)
{
	return read_locked(s, &s->figures->misuses);
}

const char *sim_first_misuse(sim *s)
{
	return sim_misuses(s) ? s->first_misuse : NULL;
}

uint64_t sim_suspicions(sim *s)
{
	return read_locked(s, &s->figures->suspicions);
}

const char *sim_first_suspicion(sim *s)
{
	return sim_suspicions(s) ? s->first_suspicion : NULL;
}

uint64_t sim_unfinished(sim *s)
{
	return read_locked(s, &s->unfinished);
}

uint64_t sim_device_used(sim *s, int device)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	uint64_t used = device >= 0 && device < s->config.devices ? sim_memory_used(s, device) : 0;
	sim_leave(&call);
	return used;
}

uint64_t sim_device_peak(sim *s, int device)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	uint64_t peak = device >= 0 && device < s->config.devices ? sim_memory_peak(s, device) : 0;
	sim_leave(&call);
	return peak;
}

uint64_t sim_process_peak(sim *s, int device)
{
	return device >= 0 && device < s->config.devices ? read_locked(s, &s->figures->peak_bytes[device]) : 0;
}

uint64_t sim_leaks(sim *s, char *text, size_t text_size)
{
	pthread_mutex_lock(&s->lock);
	const struct {
		const char *one, *many;
		uint64_t count;
	} kinds[] = {
		{"handle", "handles", s->live_handles},
		{"mapping", "mappings", s->mapping_count},
		{"reservation", "reservations", s->reservation_count - s->plain_reservations},
		{"plain allocation", "plain allocations", s->plain_count},
		{"event", "events", s->live_events},
		{"retained context", "retained contexts", s->context_retains},
	};
	pthread_mutex_unlock(&s->lock);
	uint64_t total = 0;
	size_t at = 0;
	if (text && text_size > 0)
		text[0] = '\0';
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		if (kinds[i].count == 0)
			continue;
		if (text && at < text_size)
			at += (size_t)snprintf(text + at, text_size - at, "%s%llu %s", total ? ", " : "",
			                       (unsigned long long)kinds[i].count,
			                       kinds[i].count == 1 ? kinds[i].one : kinds[i].many);
		total += kinds[i].count;
	}
	return total;
}

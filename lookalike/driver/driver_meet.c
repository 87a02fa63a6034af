/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives among ranks: what the stand-in for NCCL needs from the driver.
 */
#include "driver_lookalike.h"

#include <stdlib.h>

_Static_assert((int)STANDIN_AWAITS == (int)SIM_MEET_AWAITS && (int)STANDIN_FAILED == (int)SIM_MEET_FAILED,
               "states pass through as they are");

static struct sim_use *copy_uses(const struct standin_meeting *m)
{
	struct sim_use *uses = calloc(m->count + 1, sizeof *uses);
	for (size_t i = 0; uses && i < m->count; i++)
		uses[i] = (struct sim_use){m->uses[i].address, m->uses[i].size, m->uses[i].write};
	return uses;
}

int trz_lookalike_meet(void *stream, const struct standin_meeting *m)
{
	trz_context context = look.sim && !sim_called_back(look.sim) ? look_stream_context(stream) : NULL;
	struct sim_use *uses = context ? copy_uses(m) : NULL;
	if (!uses) {
		m->drop(m->arg);
		return context ? TRZ_CUDA_ERROR_OUT_OF_MEMORY : TRZ_CUDA_ERROR_INVALID_CONTEXT;
	}
	const struct sim_meeting meeting = {
		.name = m->name, .uses = uses, .count = m->count, .real_bytes = m->real_bytes, .cost_ns = look.kernel_ns,
		.can_arrive = m->can_arrive, .arrive = m->arrive, .met = m->met, .finish = m->finish, .drop = m->drop,
		.again = m->again, .mark = m->mark, .tell = m->tell, .wait = m->wait, .arg = m->arg,
	};
	__atomic_store_n(&look.has_met, true, __ATOMIC_RELAXED);
	look_note_work(context, stream);
	cuda_result result = look_enqueued(sim_meet(look.sim, context, stream, &meeting));
	free(uses);
	return result;
}

bool trz_lookalike_is_captured(void *stream)
{
	bool may_be = look.sim && __atomic_load_n(&look.has_captured, __ATOMIC_RELAXED);
	trz_context context = may_be ? look_stream_context(stream) : NULL;
	return context && sim_capture_of(look.sim, context, stream) != 0;
}

uint64_t trz_lookalike_progress(bool push)
{
	enum { PORTION = 16 };
	if (!look.sim)
		return 0;
	uint64_t ran = 0;
	if (push)
		sim_wake(look.sim);
	if (look.work == LOOK_NOW)
		ran = sim_nudge(look.sim, UINT64_MAX);
	else if (push)
		ran = sim_nudge(look.sim, PORTION);
	look_result(TRZ_OK);
	return ran;
}

int trz_lookalike_violation(const char *text)
{
	return look.sim ? look_result(sim_report(look.sim, text)) : TRZ_CUDA_ERROR_NOT_INITIALIZED;
}

void trz_lookalike_told(void)
{
	__atomic_store_n(&look.told, true, __ATOMIC_RELAXED);
}

void trz_lookalike_collective(int kind, uint64_t bytes)
{
	__atomic_fetch_add(&look_live.collectives[kind].calls, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&look_live.collectives[kind].bytes, bytes, __ATOMIC_RELAXED);
}

bool trz_lookalike_take_for_nccl(int device, bool peer, uint64_t *bytes)
{
	*bytes = 0;
	uint64_t wanted = look.sim && look.nccl_memory ? peer ? look.profile->nccl_peer_bytes
	                                                      : look.profile->nccl_collective_bytes : 0;
	if (!wanted)
		return true;
	if (sim_take(look.sim, device, wanted) != TRZ_OK) {
		look_oom(peer ? "NCCL, for messages" : "NCCL, for collectives", wanted, device);
		return false;
	}
	*bytes = wanted;
	return true;
}

void trz_lookalike_give_for_nccl(int device, uint64_t bytes)
{
	if (look.sim && bytes)
		sim_give(look.sim, device, bytes);
}

static _Thread_local bool sends_objects;

bool trz_lookalike_sends_objects(bool sends)
{
	bool before = sends_objects;
	sends_objects = sends;
	return before;
}

uint64_t trz_lookalike_collective_bytes(void)
{
	return sends_objects ? LOOK_MOST_COLLECTIVE_BYTES : look.collective_bytes;
}

uint64_t trz_lookalike_timeout(void)
{
	return look.timeout;
}

static lookalike_place *place_observer;

void trz_lookalike_on_place(lookalike_place *observer)
{
	__atomic_store_n(&place_observer, observer, __ATOMIC_RELEASE);
}

void trz_lookalike_place(char *text, size_t size)
{
	lookalike_place *observer = __atomic_load_n(&place_observer, __ATOMIC_ACQUIRE);
	text[0] = '\0';
	if (observer)
		observer(text, size);
}

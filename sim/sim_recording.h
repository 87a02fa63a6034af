/* SPDX-License-Identifier: Apache-2.0
 *
 * What the look-alike libraries note of a process's requests, for `terrazzo sim --record`: a file of these entries in
 * the order in which they happened, which grows in whole chunks; the first entry of kind 0 ends it.
 */
#ifndef TRZ_SIM_RECORDING_H
#define TRZ_SIM_RECORDING_H

#include <assert.h>
#include <stdint.h>

enum sim_recorded_kind {
	SIM_RECORDED_END,
	SIM_RECORDED_ALLOC,           /* key: address; value: requested bytes; stream; pool */
	SIM_RECORDED_FREE,            /* key: address; stream: in whose order, or SIM_RECORDED_OWN_STREAM */
	SIM_RECORDED_USE,             /* key: address; stream: another user of it */
	SIM_RECORDED_EVENT,           /* key: the event, recorded on stream */
	SIM_RECORDED_EVENT_END,       /* key: the event: its handle may become another's */
	SIM_RECORDED_WAIT,            /* key: the event; stream: the one that waits */
	SIM_RECORDED_STREAM_SYNC,     /* the host has waited for the stream */
	SIM_RECORDED_EVENT_SYNC,      /* ... for the event key */
	SIM_RECORDED_DEVICE_SYNC,     /* ... for the device */
	SIM_RECORDED_BLOCKING,        /* stream: it is ordered with the legacy default stream */
	SIM_RECORDED_DEFAULT_WORK,    /* work on the legacy default stream, while there are blocking streams */
	SIM_RECORDED_CAPTURE_BEGIN,   /* key: the capture; stream */
	SIM_RECORDED_CAPTURE_END,     /* stream */
	SIM_RECORDED_LAUNCH,          /* key: the capture whose graph is launched; stream */
	SIM_RECORDED_POOL_OPEN,       /* pool: one more holder of it */
	SIM_RECORDED_POOL_RELEASE,    /* pool: one holder less; it ends with the last */
	SIM_RECORDED_POOL_BEGIN,      /* pool: allocations go there from now on */
	SIM_RECORDED_POOL_END,        /* pool */
	SIM_RECORDED_KINDS
};

/* A stream's value is its number in the process; a legacy default stream has 0. OWN_STREAM: the allocation's. */
#define SIM_RECORDED_OWN_STREAM UINT64_MAX

enum { SIM_RECORDED_CHUNK = 1 << 20 };

/* `device` is the memory's or the stream's. */
struct sim_recorded {
	uint64_t key;
	uint64_t value;
	uint64_t stream;
	uint32_t pool;   /* 0: none */
	uint16_t device;
	uint16_t kind;
};

static_assert(SIM_RECORDED_CHUNK % sizeof(struct sim_recorded) == 0, "a chunk holds whole entries");

#endif

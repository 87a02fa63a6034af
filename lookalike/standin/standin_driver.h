/* SPDX-License-Identifier: Apache-2.0
 *
 * What the look-alike driver offers the stand-ins; part of lookalike.h, which is not at hand where a stand-in is
 * compiled. There the functions are weak, so that a stand-in also loads beside another driver.
 */
#ifndef TRZ_STANDIN_DRIVER_H
#define TRZ_STANDIN_DRIVER_H

#include "standin_meeting.h"

#ifndef STANDIN_DRIVER
#define STANDIN_DRIVER __attribute__((weak))
#endif

/* A library's call that puts work on a stream: takes the time of a kernel there and, like a kernel, names the
 * device addresses among `words`. A driver's result. `name` is not copied. The calling thread has a context. */
STANDIN_DRIVER int trz_lookalike_library_call(void *stream, const char *name, const uint64_t *words, size_t count);

/* The same for a collective among ranks (standin_meeting.h). */
STANDIN_DRIVER int trz_lookalike_meet(void *stream, const struct standin_meeting *meeting);
STANDIN_DRIVER bool trz_lookalike_is_captured(void *stream);

/* Lets work run that can, without a call of the program's: all in the mode `now`, some in the others where `push` says
 * that other ranks wait. Returns how many items ran. */
STANDIN_DRIVER uint64_t trz_lookalike_progress(bool push);

/* A violation that another library has found; and that it has told the one to come in its own words. */
STANDIN_DRIVER int trz_lookalike_violation(const char *text);
STANDIN_DRIVER void trz_lookalike_told(void);

/* Whether the host has sent what lies there, as far as is known, so that a short read may give it; and to say so. */
STANDIN_DRIVER bool trz_lookalike_is_known(uint64_t address, uint64_t size);
STANDIN_DRIVER void trz_lookalike_note_known(uint64_t address, uint64_t size, bool known);

/* Counts a collective by its kind, an enum standin_kind, and the bytes that this rank put into it. */
STANDIN_DRIVER void trz_lookalike_collective(int kind, uint64_t bytes);

/* What NCCL takes of a device for a communicator: for its collectives, or (peer) for each rank that it exchanges
 * messages with. True: it has been taken, or none is. */
STANDIN_DRIVER bool trz_lookalike_take_for_nccl(int device, bool peer, uint64_t *bytes);
STANDIN_DRIVER void trz_lookalike_give_for_nccl(int device, uint64_t bytes);

/* Which rank the process is, of how many, as the largest communicator says. */
STANDIN_DRIVER void trz_lookalike_rank(int rank, int ranks);

/* What tells a device of this process from all others of the run, on whichever node. */
STANDIN_DRIVER int trz_lookalike_device_number(int device);

/* Where in its program the calling thread is, as lookalike_place tells. */
STANDIN_DRIVER void trz_lookalike_place(char *text, size_t size);

#endif

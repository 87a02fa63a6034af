/* SPDX-License-Identifier: Apache-2.0
 *
 * What the look-alike driver offers the stand-ins. It belongs to lookalike.h, but that is not at hand where a stand-in
 * is compiled. There the functions are weak, so that a stand-in also loads beside another driver.
 */
#ifndef TRZ_STANDIN_DRIVER_H
#define TRZ_STANDIN_DRIVER_H

#include "standin_meeting.h"

#ifndef STANDIN_DRIVER
#define STANDIN_DRIVER __attribute__((weak))
#endif

/* A library's call that puts work on a stream: it takes the time of a kernel and, like a kernel, uses the device
 * addresses among `words`. Returns a driver's result. `name` is not copied. */
STANDIN_DRIVER int trz_lookalike_library_call(void *stream, const char *name, const uint64_t *words, size_t count);

/* Initialises the driver, and gives a thread without a context the first device's, as the runtime does. Returns a
 * driver's result. */
STANDIN_DRIVER int trz_lookalike_bind(void);

/* Whether what a context takes of a device counts, and so what a library's context does: not where the user has said
 * how much memory programs have. */
STANDIN_DRIVER bool trz_lookalike_counts_contexts(void);

/* Waits for a stream whose work has a result for the host, which was not computed and is 0: `bytes` of it. Returns a
 * driver's result. */
STANDIN_DRIVER int trz_lookalike_library_result(void *stream, size_t bytes);

/* The same for a collective among ranks (standin_meeting.h). */
STANDIN_DRIVER int trz_lookalike_meet(void *stream, const struct standin_meeting *meeting);
STANDIN_DRIVER bool trz_lookalike_is_captured(void *stream);

/* Runs work that can run, without a call of the program's: all of it in the mode `now`, some in the others if other
 * ranks wait (`push`). Returns how many items ran. */
STANDIN_DRIVER uint64_t trz_lookalike_progress(bool push);

/* Reports a violation that another library has found; says that the library has told the next one itself. */
STANDIN_DRIVER int trz_lookalike_violation(const char *text);
STANDIN_DRIVER void trz_lookalike_told(void);

/* Whether the host is known to have sent what lies there, so that a short read may give it; notes that a collective has
 * brought such bytes, or others. */
STANDIN_DRIVER bool trz_lookalike_is_known(uint64_t address, uint64_t size);
STANDIN_DRIVER void trz_lookalike_note_brought(uint64_t address, uint64_t size, bool known);

/* Counts a collective by its kind, an enum standin_kind, and the bytes that this rank put into it. */
STANDIN_DRIVER void trz_lookalike_collective(int kind, uint64_t bytes);

/* Takes the device memory that NCCL would for a communicator: for its collectives, or (`peer`) for a rank that it
 * exchanges messages with. True: it is taken, or none is needed. */
STANDIN_DRIVER bool trz_lookalike_take_for_nccl(int device, bool peer, uint64_t *bytes);
STANDIN_DRIVER void trz_lookalike_give_for_nccl(int device, uint64_t bytes);

/* What the environment says of ranks, once cuInit has read it: up to how many bytes a rank collectives move real bytes,
 * and after how many seconds a rank stops waiting for others; 0: never. */
STANDIN_DRIVER uint64_t trz_lookalike_collective_bytes(void);
STANDIN_DRIVER uint64_t trz_lookalike_timeout(void);

/* Says which rank the process is, of how many, in the largest communicator. */
STANDIN_DRIVER void trz_lookalike_rank(int rank, int ranks);

/* The number of a device of this process, which no other device of the run has, on any node. */
STANDIN_DRIVER int trz_lookalike_device_number(int device);

/* Tells where in its program the calling thread is, as lookalike_place does. */
STANDIN_DRIVER void trz_lookalike_place(char *text, size_t size);

#endif

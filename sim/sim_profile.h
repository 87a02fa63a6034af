/* SPDX-License-Identifier: Apache-2.0
 *
 * Device profiles: properties of real GPUs, from profiles.ini, which says how exact each figure is.
 */
#ifndef TRZ_SIM_PROFILE_H
#define TRZ_SIM_PROFILE_H

#include <stddef.h>
#include <stdint.h>

struct sim_profile {
	char name[24];               /* "h100" */
	char title[64];              /* the driver's name of the device */
	uint64_t memory_bytes;       /* as programs see it: typical */
	uint64_t overhead_bytes;     /* of a context: typical */
	unsigned compute_major, compute_minor;
	unsigned sms, threads, blocks;             /* the latter two per multiprocessor */
	uint64_t shared_bytes, l2_bytes;           /* shared memory of a multiprocessor */
	unsigned bus_bits, memory_mhz, clock_mhz;
	unsigned pcie;               /* generation of the link to the host, of 16 lanes */
	uint64_t nccl_peer_bytes, nccl_collective_bytes;  /* of a communicator; 0: unknown */
};

/* A profile by its name, in any case of letters; NULL: there is none. Thread-safe, as is the next. */
const struct sim_profile *sim_profile_find(const char *name);

/* The i-th profile, from the smallest memory to the largest; NULL: past the last. */
const struct sim_profile *sim_profile_at(size_t i);

/* Bytes per microsecond, at best: of the device's memory, and of its link to the host in one direction. */
uint64_t sim_profile_memory_rate(const struct sim_profile *p);
uint64_t sim_profile_link_rate(const struct sim_profile *p);

#endif

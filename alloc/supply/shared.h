/* SPDX-License-Identifier: Apache-2.0
 *
 * A limit that several processes share, and that something before the driver enforces; the program has told of it
 * (trz_set_shared_limit).
 */
#ifndef TRZ_SUPPLY_SHARED_H
#define TRZ_SUPPLY_SHARED_H

#include "terrazzo.h"

/* For all heaps of the process. */
void shared_set(trz_shared_limit_callback *callback, void *user);

/* Asks the program's callback, which may call the driver. Without a limit all members are 0. */
void shared_ask(int device, trz_shared_limit *out);

#endif

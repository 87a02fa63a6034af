/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeping the callback, and asking it.
 */
#include "supply/shared.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static trz_shared_limit_callback *teller;
static void *teller_user;

void shared_set(trz_shared_limit_callback *callback, void *user)
{
	pthread_mutex_lock(&lock);
	teller = callback;
	teller_user = user;
	pthread_mutex_unlock(&lock);
}

void shared_ask(int device, trz_shared_limit *out)
{
	pthread_mutex_lock(&lock);
	trz_shared_limit_callback *callback = teller;
	void *user = teller_user;
	pthread_mutex_unlock(&lock);
	memset(out, 0, sizeof *out);
	if (callback && !callback(user, device, out))
		memset(out, 0, sizeof *out);
	if (out->process_count > TRZ_LIMIT_PROCESSES)
		out->process_count = TRZ_LIMIT_PROCESSES;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A shared object that imports functions in three ways: for calls, for their address, in a table. It is built several
 * times, with imports that the loader looks up when it loads the object, or at the first call.
 */
#include <unistd.h>

pid_t call_import(void);
pid_t call_address(void);
pid_t call_table(void);

static pid_t (*const table[])(void) = {getppid};

pid_t call_import(void)
{
	return getpgrp();
}

pid_t call_address(void)
{
	pid_t (*volatile address)(void) = getppid;
	return address();
}

pid_t call_table(void)
{
	pid_t (*const *volatile entry)(void) = table;
	return (*entry)();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds a preloaded program's memory. All its calls come from CUDA's runtime, so only stacks tell: Python's, if the
 * program is one of Python, and native ones.
 *
 * What reads Python's stacks is compiled for the interpreter that runs (python/terrazzo/native.py). It is wanted once
 * the program uses the driver, in the midst of a call, on any thread, perhaps with locks of the program's held, so
 * Python cannot be entered: its main thread is asked to import that module, which it does between two of its
 * instructions. Until then stacks are native.
 */
#include <dlfcn.h>

#include "call_sites.h"
#include "native.h"
#include "preload.h"

/* Runs in Python's main thread. A Python that lacks the package goes on without. */
static int import_native(void *unused)
{
	void *(*import)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "PyImport_ImportModule");
	void (*clear)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "PyErr_Clear");
	(void)unused;
	if (import && clear && !import("terrazzo.native"))
		clear();
	return 0;
}

void preload_ask_python(void)
{
	int (*is_running)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
	int (*call_later)(int (*)(void *), void *) =
		(int (*)(int (*)(void *), void *))dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
	if (is_running && call_later && is_running() && !preload_in_pytorch())
		call_later(import_native, NULL);
}

void preload_tell_sites(struct native_heap *h)
{
	sites_join(h->heap, native_config != NULL);
}

static void join(struct native_heap *h, void *unused)
{
	(void)unused;
	preload_tell_sites(h);
}

TRZ_API void trz_native_set_python(trz_frame_callback *stack, trz_frame_text_callback *text);

/* Sets the callbacks for call sites of all heaps (trz_set_site_callback), also of those opened later. `stack` gives
 * numbers below 2^62; where it gives 0, call sites are native stacks, if libunwind is installed. */
void trz_native_set_python(trz_frame_callback *stack, trz_frame_text_callback *text)
{
	if (!sites_set_python(stack, text))
		return;
	native_enter();
	native_each(join, NULL);
	native_leave();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A library's constructor allocates inside dlopen, holding the dynamic linker's lock, while another thread opens the
 * first heap, which asks the linker for the driver, the runtime's events and a tool: neither waits for ever. Each case
 * is a process of its own.
 */
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "terrazzo_driver.h"
#include "terrazzo_torch.h"

extern "C" __attribute__((visibility("default"))) void in_constructor();

static std::thread other;

static bool use_memory()
{
	void *ptr = nullptr;
	bool ok = trz_torch_try_alloc(1 << 20, 0, nullptr, &ptr) == TRZ_OK;
	return trz_torch_try_free(ptr, 0) == TRZ_OK && ok;
}

void in_constructor()
{
	static std::atomic<bool> calling;
	other = std::thread([] {
		calling = true;
		if (!use_memory())
			_exit(1);
	});
	while (!calling)
		usleep(1000);
	usleep(100000);  /* now it waits for the linker */
	if (!use_memory())
		_exit(1);
}

/* The runtime is there, so that its events are followed. With a tool the driver is loaded before the thread comes. */
static int run(const std::string &tool)
{
	std::string build = getenv("TRZ_BUILD_DIR"), runtime = getenv("TRZ_LOOKALIKE_DIR");
	const trz_driver *loaded;
	alarm(20);
	if (!tool.empty()) {
		if (trz_driver_cuda(&loaded) != TRZ_OK)
			return 1;
		setenv("TERRAZZO_CONF", "nvtx:on", 1);
		setenv("NVTX_INJECTION64_PATH", (build + tool).c_str(), 1);
	}
	if (!dlopen((runtime + "/libcudart.so.13").c_str(), RTLD_NOW | RTLD_GLOBAL) ||
	    !dlopen((build + "/tests/native/programs/constructed.so").c_str(), RTLD_NOW)) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	other.join();
	return use_memory() ? 0 : 1;
}

static bool passes(const char *tool)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(run(tool));
	waitpid(child, &status, 0);
	if (status)
		fprintf(stderr, "with \"%s\": status %x\n", tool, static_cast<unsigned>(status));
	return status == 0;
}

int main()
{
	return passes("") && passes("/tests/nvtx/libfakenvtx.so") ? 0 : 1;
}

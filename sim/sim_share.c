/* SPDX-License-Identifier: Apache-2.0
 *
 * Export and import of physical memory within one process. What is exported is a small file that names the
 * memory; it does not keep the memory alive, as a real export would.
 */
#include "sim_machine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The exported file's whole content. */
struct passport {
	char magic[8];
	int64_t process;
	uint64_t window, serial;  /* the window's base tells machines of one process apart */
};

static const char passport_magic[8] = "simphys";

trz_status sim_export(sim *s, trz_handle handle, unsigned kind, void *shareable)
{
	const struct sim_phys *p = sim_registry_get(&s->memory, handle);
	if (!p)
		return sim_violate(s, TRZ_ERROR_INVALID_ARGUMENT,
		                   "export of handle %#llx, which is dead or was never made",
		                   (unsigned long long)handle);
	if (kind != TRZ_EXPORT_FD)
		return sim_refuse(s, TRZ_ERROR_NOT_SUPPORTED, "export kind %u: only file descriptors can be had",
		                  kind);
	if (!(p->export_kinds & kind))
		return sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "the memory was not created for export");
	struct passport pass = {.process = getpid(), .window = s->window, .serial = p->serial};
	memcpy(pass.magic, passport_magic, sizeof pass.magic);
	int fd = memfd_create("sim-export", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, &pass, sizeof pass, 0) != (ssize_t)sizeof pass) {
		if (fd >= 0)
			close(fd);
		return sim_refuse(s, TRZ_ERROR_DRIVER, "the host has no file descriptor left");
	}
	memcpy(shareable, &fd, sizeof fd);
	return TRZ_OK;
}

trz_status sim_import(sim *s, unsigned kind, const void *shareable, trz_handle *handle)
{
	if (kind != TRZ_EXPORT_FD)
		return sim_refuse(s, TRZ_ERROR_NOT_SUPPORTED, "export kind %u: only file descriptors can be had",
		                  kind);
	int fd;
	memcpy(&fd, shareable, sizeof fd);
	struct passport pass;
	if (pread(fd, &pass, sizeof pass, 0) != (ssize_t)sizeof pass ||
	    memcmp(pass.magic, passport_magic, sizeof pass.magic) || pass.process != getpid() ||
	    pass.window != s->window)
		return sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "file descriptor %d is no export of this machine",
		                  fd);
	struct sim_phys *p;
	LIST_FOREACH(p, &s->physical, link)
		if (p->serial == pass.serial)
			break;
	if (!p)
		return sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "the exported memory is gone");
	uint64_t value = sim_registry_add(&s->memory, p);
	if (!value)
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a handle");
	p->handles++;
	s->live_handles++;
	*handle = value;
	return TRZ_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Export and import of physical memory, within a process and between processes of one machine. What is exported is a
 * descriptor of the memory file, whose position is the memory's offset; it keeps the memory alive.
 */
#include "sim_machine.h"

#include <string.h>

static trz_status check_kind(sim *s, unsigned kind)
{
	if (kind == TRZ_EXPORT_FD)
		return TRZ_OK;
	return sim_refuse(s, TRZ_ERROR_NOT_SUPPORTED, "export kind %u: only file descriptors are supported", kind);
}

trz_status sim_export(sim *s, trz_handle handle, unsigned kind, void *shareable)
{
	struct sim_phys *p = sim_registry_get(&s->memory, handle);
	if (!p)
		return sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, 0,
		                  "export of handle %#llx, which is dead or was never made",
		                   (unsigned long long)handle);
	trz_status status = check_kind(s, kind);
	if (status == TRZ_OK && !(p->export_kinds & kind))
		status = sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "the memory was not created for export");
	if (status == TRZ_OK && p->shared < 0)
		status = sim_ledger_share(s, p);
	if (status != TRZ_OK)
		return status;
	int fd = sim_ledger_hold(s, p);
	if (fd < 0)
		return sim_refuse(s, TRZ_ERROR_DRIVER, "the host has no file descriptor left");
	memcpy(shareable, &fd, sizeof fd);
	return TRZ_OK;
}

/* A new handle of shared memory that this process holds already. */
static trz_status new_handle(sim *s, int shared, trz_handle *handle)
{
	struct sim_phys *p = sim_phys_adopt(s, shared);
	uint64_t value = p ? sim_registry_add(&s->memory, p) : 0;
	if (!value) {
		if (p)
			sim_phys_drop(s, p);
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a handle");
	}
	p->handles++;
	s->live_handles++;
	*handle = value;
	return TRZ_OK;
}

trz_status sim_import(sim *s, unsigned kind, const void *shareable, trz_handle *handle)
{
	trz_status status = check_kind(s, kind);
	if (status != TRZ_OK)
		return status;
	int fd;
	memcpy(&fd, shareable, sizeof fd);
	int shared = sim_ledger_find(s, fd);
	if (shared < 0)
		return sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "file descriptor %d is not an export of this machine", fd);
	return new_handle(s, shared, handle);
}

/* ---- plain memory ----------------------------------------------------------------------------------- */

trz_status sim_plain_export(sim *s, trz_addr address, struct sim_token *token)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_mapping *m = sim_mapping_at(s, address);
	if (!m || !m->chunk)
		call.status = sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "%#llx lies in no plain memory",
		                         (unsigned long long)address);
	else if (m->phys->shared < 0)
		call.status = sim_ledger_share(s, m->phys);
	if (call.status == TRZ_OK)
		*token = (struct sim_token){sim_ledger_number(s), m->phys->offset, m->phys->size, address - m->address};
	return sim_leave(&call);
}

trz_status sim_plain_import(sim *s, const struct sim_token *token, trz_handle *handle)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	int shared = token->machine == sim_ledger_number(s) ? sim_ledger_find_at(s, token->offset) : -1;
	call.status = shared >= 0 ? new_handle(s, shared, handle)
	                          : sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT,
	                                       "the memory belongs to another machine, or is gone");
	return sim_leave(&call);
}

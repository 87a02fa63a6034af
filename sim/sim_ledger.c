/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory file, and the state after its end that a machine's processes share: capacity and exported memory.
 *
 * Everything that must end with its holder is a file lock of the kernel, which belongs to an open file
 * description: it is passed on with a descriptor, and ends with the last descriptor. Each of the machine's
 * processes opens the file anew. There are locks
 *  - on the ledger: held during a change;
 *  - on one byte per process's place: held while that process lives;
 *  - on the range of exported memory: held by each process that has it, and by each exported descriptor, whose
 *    file position says which memory it stands for.
 * The next process that looks gives back memory whose last holder is gone.
 */
#include "sim_machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bits.h"
#include "error.h"
#include "sim_file.h"

/* Each device has a sixteenth of the file, and each process a part of that. The file is sparse, so this is free. */
#define MEMORY_BYTES (1ull << 60)
static const uint64_t device_bytes = MEMORY_BYTES / SIM_MAX_DEVICES;
static const uint64_t process_bytes = MEMORY_BYTES / SIM_MAX_DEVICES / SIM_MAX_PROCESSES;

static const uint64_t ledger_at = MEMORY_BYTES;
static const uint64_t places_at = MEMORY_BYTES + MIB(1);

_Static_assert(sizeof(struct sim_ledger) < MIB(1), "the places of processes lie behind the ledger");

static const char ledger_magic[8] = "simgpu2";

static uint64_t ledger_bytes(void)
{
	return align_up(sizeof(struct sim_ledger), (uint64_t)sysconf(_SC_PAGESIZE));
}

/* ---- file locks ----------------------------------------------------------------------------------------- */

static bool lock_range(int fd, int command, short type, uint64_t start, uint64_t size)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)size};
	int result, cancel = uncancelled_begin();
	do
		result = fcntl(fd, command, &lock);
	while (result < 0 && errno == EINTR);
	uncancelled_end(cancel);
	return result == 0;
}

/* Whether anyone but this process's own descriptor has a lock on the range. */
static bool is_held(int fd, uint64_t start, uint64_t size)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)size};
	return fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

/* A new descriptor of the file, with its own locks and position. */
static int open_anew(int fd)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* ---- opening and closing -------------------------------------------------------------------------------- */

static int new_file(void)
{
	int fd = memfd_create("sim-device-memory", MFD_CLOEXEC);
	off_t start = (off_t)ledger_at, size = (off_t)ledger_bytes();
	if (fd < 0 || (ftruncate(fd, start + size) == 0 && fallocate(fd, 0, start, size) == 0))
		return fd;
	close(fd);
	return -1;
}

int sim_machine_make(void)
{
	int fd = new_file();
	if (fd >= 0)
		lseek(fd, (off_t)ledger_at, SEEK_SET);  /* the place of no memory */
	return fd;
}

/* The first process to attach configures a machine that was only made. */
static bool is_undescribed(const sim *s)
{
	return s->ledger->magic[0] == '\0';
}

static void fill_ledger(sim *s)
{
	struct sim_ledger *l = s->ledger;
	memcpy(l->magic, ledger_magic, sizeof l->magic);
	l->bytes = sizeof *l;
	l->devices = s->config.devices;
	l->capacity = s->config.capacity;
	l->withheld = s->config.withheld;
	l->granularity = s->config.granularity;
}

static void take_over(sim *s)
{
	s->config.devices = s->ledger->devices;
	s->config.capacity = s->ledger->capacity;
	s->config.withheld = s->ledger->withheld;
	s->config.granularity = s->ledger->granularity;
}

static void punch(const sim *s, uint64_t start, uint64_t end)
{
	if (start < end)
		sim_file_punch(s->memory_fd, start, end - start);
}

/* Gives the host back the pages of a range of the file, except those of exported memory. */
static void discard(const sim *s, uint64_t start, uint64_t end)
{
	const struct sim_ledger *l = s->ledger;
	while (start < end) {
		const struct sim_shared *next = NULL;
		for (int i = 0; i < l->shared_count; i++) {
			const struct sim_shared *e = &l->shared[i];
			if (e->size && e->offset >= start && e->offset < end && (!next || e->offset < next->offset))
				next = e;
		}
		punch(s, start, next ? next->offset : end);
		start = next ? next->offset + next->size : end;
	}
}

static uint64_t first_offset(int device, int place)
{
	return (uint64_t)device * device_bytes + (uint64_t)place * process_bytes;
}

/* Gives back the memory that the row's last owner had and did not export. */
static void bury(sim *s, int place)
{
	struct sim_ledger_row *row = &s->ledger->row[place];
	memset(row->used, 0, sizeof row->used);
	for (int i = 0; i < SIM_MAX_DEVICES && row->pid; i++)
		discard(s, first_offset(i, place), row->next_offset[i]);
	row->pid = 0;
}

/* Takes a place that no living process has. The last owner's offsets are not reused: memory that it exported may
 * exist. */
static bool take_place(sim *s)
{
	struct sim_ledger *l = s->ledger;
	int place = 0;
	while (place < SIM_MAX_PROCESSES &&
	       !lock_range(s->memory_fd, F_OFD_SETLK, F_WRLCK, places_at + (uint64_t)place, 1))
		place++;
	if (place == SIM_MAX_PROCESSES)
		return false;
	struct sim_ledger_row *row = &l->row[place];
	bury(s, place);
	row->pid = (uint64_t)getpid();
	for (int i = 0; i < SIM_MAX_DEVICES; i++) {
		row->next_offset[i] = max_u64(row->next_offset[i], first_offset(i, place));
		s->number[i] = i;
	}
	l->processes = place < l->processes ? l->processes : place + 1;
	s->process = place;
	return true;
}

static uint64_t file_bytes(int fd)
{
	struct stat st;
	return fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* The other process may be of another build: only the beginning of its ledger can be read for certain. */
static bool is_machine(int fd)
{
	return file_bytes(fd) > ledger_at;
}

static bool is_of_this_build(const sim *s)
{
	const struct sim_ledger *l = s->ledger;
	return file_bytes(s->memory_fd) == ledger_at + ledger_bytes() &&
	       (is_undescribed(s) || (memcmp(l->magic, ledger_magic, sizeof l->magic) == 0 && l->bytes == sizeof *l));
}

static void lock_ledger(sim *s)
{
	lock_range(s->memory_fd, F_OFD_SETLKW, F_WRLCK, ledger_at, sizeof *s->ledger);
}

static void unlock_ledger(sim *s)
{
	lock_range(s->memory_fd, F_OFD_SETLK, F_UNLCK, ledger_at, sizeof *s->ledger);
}

static trz_status join(sim *s)
{
	lock_ledger(s);
	bool ours = is_of_this_build(s), placed = false;
	if (ours) {
		if (is_undescribed(s))
			fill_ledger(s);
		else
			take_over(s);
		placed = take_place(s);
	}
	unlock_ledger(s);
	if (!ours)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "attach_fd belongs to a machine of another build of the simulator: "
		                "all its processes must use the libraries of one build");
	return placed ? TRZ_OK : trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "attach_fd is a machine with %d processes already",
	                                  SIM_MAX_PROCESSES);
}

trz_status sim_ledger_open(sim *s)
{
	bool attach = s->config.attach_fd > 0;
	s->memory_fd = attach ? open_anew(s->config.attach_fd) : new_file();
	if (attach && !is_machine(s->memory_fd)) {
		if (s->memory_fd >= 0)
			close(s->memory_fd);
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "attach_fd %d did not come from sim_machine_fd",
		                s->config.attach_fd);
	}
	void *ledger = MAP_FAILED;
	if (s->memory_fd >= 0)
		ledger = mmap(NULL, ledger_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, s->memory_fd, (off_t)ledger_at);
	if (ledger == MAP_FAILED) {
		trz_status status = trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for the simulated device: %s",
		                             strerror(errno));
		if (s->memory_fd >= 0)
			close(s->memory_fd);
		return status;
	}
	s->ledger = ledger;
	trz_status status = join(s);
	if (status != TRZ_OK)
		sim_ledger_close(s);
	return status;
}

/* The locks end with the descriptor. */
void sim_ledger_close(sim *s)
{
	munmap(s->ledger, ledger_bytes());
	close(s->memory_fd);
}

int sim_machine_fd(sim *s)
{
	int fd = open_anew(s->memory_fd);
	if (fd >= 0)
		lseek(fd, (off_t)ledger_at, SEEK_SET);  /* the place of no memory */
	return fd;
}

uint64_t sim_resident_bytes(sim *s)
{
	struct stat st;
	return fstat(s->memory_fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 - ledger_bytes() : 0;
}

/* ---- devices ------------------------------------------------------------------------------------------ */

void sim_order_devices(sim *s, const int *order)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	for (int i = 0; i < s->config.devices; i++)
		s->number[i] = order[i];
	sim_leave(&call);
}

int sim_ledger_device(const sim *s, int number)
{
	int device = 0;
	while (s->number[device] != number)
		device++;
	return device;
}

uint64_t sim_ledger_offset(sim *s, int device, uint64_t size)
{
	uint64_t *next = &s->ledger->row[s->process].next_offset[s->number[device]], offset = *next;
	*next += size;
	return offset;
}

/* ---- capacity ------------------------------------------------------------------------------------------- */

/* Gives back the memory of dead processes and of exports without holders. */
static void reap(sim *s)
{
	struct sim_ledger *l = s->ledger;
	for (int i = 0; i < l->processes; i++)
		if (i != s->process && !is_held(s->memory_fd, places_at + (uint64_t)i, 1))
			bury(s, i);
	for (int i = 0; i < l->shared_count; i++) {
		struct sim_shared *e = &l->shared[i];
		if (e->size == 0 || s->holds[i] || is_held(s->memory_fd, e->offset, e->size))
			continue;
		punch(s, e->offset, e->offset + e->size);
		e->size = 0;
	}
}

static uint64_t total(const sim *s, int device)
{
	const struct sim_ledger *l = s->ledger;
	uint64_t sum = 0;
	for (int i = 0; i < l->processes; i++)
		sum += l->row[i].used[s->number[device]];
	for (int i = 0; i < l->shared_count; i++)
		if (l->shared[i].device == s->number[device])
			sum += l->shared[i].size;
	return sum;
}

uint64_t sim_memory_used(sim *s, int device)
{
	lock_ledger(s);
	reap(s);
	uint64_t used = total(s, device);
	unlock_ledger(s);
	return used;
}

/* This process's memory, with the exported memory that it holds. */
static uint64_t own_total(const sim *s, int device)
{
	const struct sim_ledger *l = s->ledger;
	uint64_t sum = l->row[s->process].used[s->number[device]];
	for (int i = 0; i < l->shared_count; i++)
		if (s->holds[i] && l->shared[i].device == s->number[device])
			sum += l->shared[i].size;
	return sum;
}

static void note_own_peak(sim *s, int device)
{
	s->figures->peak_bytes[device] = max_u64(s->figures->peak_bytes[device], own_total(s, device));
}

uint64_t sim_memory_peak(sim *s, int device)
{
	lock_ledger(s);
	uint64_t peak = s->ledger->peak[s->number[device]];
	unlock_ledger(s);
	return peak;
}

unsigned sim_processes(sim *s, int device, struct sim_process *out, unsigned room)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	unsigned count = 0;
	lock_ledger(s);
	reap(s);
	for (int i = 0; i < s->ledger->processes; i++) {
		const struct sim_ledger_row *row = &s->ledger->row[i];
		if (device < 0 || device >= s->config.devices || !row->used[s->number[device]])
			continue;
		if (count < room)
			out[count] = (struct sim_process){row->pid, row->used[s->number[device]]};
		count++;
	}
	unlock_ledger(s);
	sim_leave(&call);
	return count;
}

/* With the ledger's lock: moves this process's managed memory to the host, as far as needed, if that makes room for so
 * many bytes more. */
static void move_managed(sim *s, int device, uint64_t bytes)
{
	struct sim_phys *p;
	uint64_t all = 0;
	LIST_FOREACH(p, &s->physical, link)
		all += p->managed && !p->on_host && p->device == device && p->shared < 0 ? p->size : 0;
	for (p = all >= bytes ? LIST_FIRST(&s->physical) : NULL; p && bytes > 0; p = LIST_NEXT(p, link)) {
		if (!p->managed || p->on_host || p->device != device || p->shared >= 0)
			continue;
		p->on_host = true;
		s->ledger->row[s->process].used[s->number[device]] -= p->size;
		bytes -= min_u64(bytes, p->size);
	}
}

bool sim_memory_take(sim *s, int device, uint64_t bytes)
{
	lock_ledger(s);
	reap(s);
	uint64_t left = s->config.capacity - total(s, device), usable = left - min_u64(left, s->config.withheld);
	if (bytes > usable)
		move_managed(s, device, bytes - usable);
	uint64_t used = total(s, device);
	left = s->config.capacity - used;
	bool fits = bytes <= left - min_u64(left, s->config.withheld);
	if (fits) {
		uint64_t *peak = &s->ledger->peak[s->number[device]];
		s->ledger->row[s->process].used[s->number[device]] += bytes;
		*peak = max_u64(*peak, used + bytes);
		note_own_peak(s, device);
	}
	unlock_ledger(s);
	if (!fits)
		sim_refuse(s, TRZ_ERROR_OUT_OF_MEMORY, "device %d has %llu of %llu bytes left, %llu are needed", device,
		           (unsigned long long)left, (unsigned long long)s->config.capacity, (unsigned long long)bytes);
	return fits;
}

void sim_memory_give(sim *s, int device, uint64_t bytes)
{
	lock_ledger(s);
	s->ledger->row[s->process].used[s->number[device]] -= bytes;
	unlock_ledger(s);
}

uint64_t sim_machine_peak(int fd)
{
	uint64_t most = 0;
	const struct sim_ledger *l = mmap(NULL, ledger_bytes(), PROT_READ, MAP_SHARED, fd, (off_t)ledger_at);
	if (l == MAP_FAILED)
		return 0;
	for (int i = 0; i < l->devices; i++)
		most = max_u64(most, l->peak[i]);
	munmap((void *)l, ledger_bytes());
	return most;
}

/* ---- exported memory ------------------------------------------------------------------------------------ */

static void hold(sim *s, int place)
{
	const struct sim_shared *e = &s->ledger->shared[place];
	lock_range(s->memory_fd, F_OFD_SETLKW, F_RDLCK, e->offset, e->size);
	s->holds[place] = true;
	note_own_peak(s, sim_ledger_device(s, e->device));
}

trz_status sim_ledger_share(sim *s, struct sim_phys *p)
{
	struct sim_ledger *l = s->ledger;
	sim_stamps_settle(s, p);
	lock_ledger(s);
	reap(s);
	int place = 0;
	while (place < SIM_MAX_SHARED && l->shared[place].size)
		place++;
	if (place < SIM_MAX_SHARED) {
		l->shared[place] = (struct sim_shared){p->offset, p->size, s->number[p->device], p->export_kinds};
		l->shared_count = place < l->shared_count ? l->shared_count : place + 1;
		l->row[s->process].used[s->number[p->device]] -= p->size;
		p->shared = place;
		hold(s, place);
	}
	unlock_ledger(s);
	if (place < SIM_MAX_SHARED)
		return TRZ_OK;
	return sim_refuse(s, TRZ_ERROR_DRIVER, "a simulated machine exports at most %d allocations", SIM_MAX_SHARED);
}

int sim_ledger_hold(sim *s, const struct sim_phys *p)
{
	int fd = open_anew(s->memory_fd);
	if (fd < 0)
		return -1;
	if (lock_range(fd, F_OFD_SETLKW, F_RDLCK, p->offset, p->size) && lseek(fd, (off_t)p->offset, SEEK_SET) >= 0)
		return fd;
	close(fd);
	return -1;
}

int sim_ledger_find_at(sim *s, uint64_t offset)
{
	lock_ledger(s);
	reap(s);
	int place = s->ledger->shared_count;
	while (--place >= 0)
		if (s->ledger->shared[place].size && s->ledger->shared[place].offset == offset)
			break;
	if (place >= 0)
		hold(s, place);
	unlock_ledger(s);
	return place;
}

int sim_ledger_find(sim *s, int fd)
{
	struct stat own, other;
	if (fstat(s->memory_fd, &own) != 0 || fstat(fd, &other) != 0 || own.st_ino != other.st_ino ||
	    own.st_dev != other.st_dev)
		return -1;
	return sim_ledger_find_at(s, (uint64_t)lseek(fd, 0, SEEK_CUR));
}

uint64_t sim_ledger_number(const sim *s)
{
	struct stat own;
	return fstat(s->memory_fd, &own) == 0 ? (uint64_t)own.st_ino : 0;
}

void sim_ledger_drop(sim *s, const struct sim_phys *p)
{
	lock_ledger(s);
	lock_range(s->memory_fd, F_OFD_SETLK, F_UNLCK, p->offset, p->size);
	s->holds[p->shared] = false;
	reap(s);
	unlock_ledger(s);
}

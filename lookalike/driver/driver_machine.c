/* SPDX-License-Identifier: Apache-2.0
 *
 * The library itself: reads the machine's configuration from the environment, opens it, and finds functions by name.
 */
#include "driver_lookalike.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "decimal.h"
#include "uncancelled.h"

struct look_machine look;

static const uint64_t MOST_BYTES = UINT64_C(4) << 40, LEAST_MEMORY = UINT64_C(2) << 20;

static pthread_once_t open_once = PTHREAD_ONCE_INIT, init_once = PTHREAD_ONCE_INIT;
static cuda_result open_result;

/* ---- the environment ------------------------------------------------------------ */

/* Runs no exit handlers: one that calls CUDA would wait for the cuInit that this is called in. */
static _Noreturn void give_up(void)
{
	fflush(stdout);
	_exit(2);
}

static _Noreturn void refuse(const char *variable, const char *text, const char *wanted)
{
	fprintf(stderr, "terrazzo: %s=%s: %s\n", variable, text, wanted);
	give_up();
}

static const char *read_text(const char *variable)
{
	const char *text = getenv(variable);
	return text && *text ? text : NULL;
}

static uint64_t read_number(const char *variable, uint64_t initial, uint64_t most)
{
	const char *text = read_text(variable);
	char *end, wanted[64];
	if (!text)
		return initial;
	errno = 0;
	uint64_t number = strtoull(text, &end, 0);
	if (errno || !decimal_is_digit(*text) || *end || number > most) {
		snprintf(wanted, sizeof wanted, "a whole number from 0 to %" PRIu64 " is expected", most);
		refuse(variable, text, wanted);
	}
	return number;
}

/* Bytes with a unit: 40GiB, 512M, 1.5g; a bare number is bytes. */
static uint64_t read_bytes(const char *variable, uint64_t initial)
{
	static const char units[] = "KkMmGgTt";
	const char *text = read_text(variable), *end;
	if (!text)
		return initial;
	double number = decimal_read(text, &end);
	bool good = end > text;
	const char *unit = *end ? strchr(units, *end) : NULL;
	if (unit) {
		number *= (double)(1ull << (10 * ((unit - units) / 2 + 1)));
		end++;
	}
	good = good && (!*end || strcasecmp(end, "B") == 0 || strcasecmp(end, "iB") == 0);
	if (!good || number > (double)MOST_BYTES || (number > 0 && number < 1))
		refuse(variable, text, "a size up to 4TiB is expected, such as 40GiB, 512M or 1.5G");
	return (uint64_t)number;
}

/* The memory of a device; 0: the variable is not set. */
static uint64_t read_memory(void)
{
	const char *variable = "TERRAZZO_SIM_MEMORY", *text = read_text(variable);
	uint64_t memory = read_bytes(variable, 0);
	if (text && memory < LEAST_MEMORY)
		refuse(variable, text, "a device has at least 2MiB");
	return memory;
}

/* The place of the variable's value among `choices`, which '|' separates; 0 if it is not set. */
static int read_choice(const char *variable, const char *choices)
{
	const char *text = read_text(variable);
	char wanted[160];
	int place = 0;
	if (!text)
		return 0;
	for (const char *at = choices;; at++) {
		size_t length = strcspn(at, "|");
		if (strlen(text) == length && strncmp(at, text, length) == 0)
			return place;
		at += length;
		if (!*at)
			break;
		place++;
	}
	snprintf(wanted, sizeof wanted, "choices: %s", choices);
	refuse(variable, text, wanted);
}

static const struct sim_profile *read_profile(void)
{
	const char *text = read_text("TERRAZZO_SIM_DEVICE");
	const struct sim_profile *p = sim_profile_find(text ? text : "h100");
	if (!p) {
		char wanted[600] = "no such device; there are";
		for (size_t i = 0; sim_profile_at(i); i++) {
			size_t used = strlen(wanted);
			snprintf(wanted + used, sizeof wanted - used, " %s", sim_profile_at(i)->name);
		}
		refuse("TERRAZZO_SIM_DEVICE", text, wanted);
	}
	return p;
}

int look_version(void)
{
	return (int)read_number("TERRAZZO_SIM_DRIVER_VERSION", 13020, 99999);
}

static const char machine_variable[] = "TERRAZZO_SIM_MACHINE_FD";

/* Reads a descriptor of ours, or PID:FD, one of another process that lives as long as the machine is wanted. Then the
 * caller closes *opened. */
static int read_machine(int *opened)
{
	const char *text = read_text(machine_variable);
	char path[64];
	unsigned pid, fd;
	int end = 0;
	*opened = -1;
	if (!text || !strchr(text, ':'))
		return (int)read_number(machine_variable, 0, INT32_MAX);
	if (sscanf(text, "%u:%u%n", &pid, &fd, &end) != 2 || text[end])
		refuse(machine_variable, text, "a descriptor's number is expected, or PID:FD");
	snprintf(path, sizeof path, "/proc/%u/fd/%u", pid, fd);
	*opened = open(path, O_RDWR | O_CLOEXEC);
	if (*opened < 0)
		refuse(machine_variable, text, "the process that keeps the devices has ended, or cannot be reached");
	return *opened;
}

/* ---- the machine ------------------------------------------------------------ */

/* Prints a violation; if the process ends for it, only the first, unless it has been told already. */
static void on_violation(const char *text)
{
	bool is_first = !__atomic_exchange_n(&look.violated, true, __ATOMIC_RELAXED);
	if ((is_first && !__atomic_load_n(&look.told, __ATOMIC_RELAXED)) || !look.abort_on_violation)
		fprintf(stderr, "terrazzo: violation: %s\n", text);
}

/* Work that completes at once cannot run in a wrong order; only that of collectives varies, with the ranks' timing. */
static unsigned lenient_rules(void)
{
	unsigned rules = look.work == LOOK_BLOCKED ? 0 : SIM_RULE_SYNC_MAYBE | SIM_RULE_CREATE_IN_CAPTURE;
	return rules | (look.work == LOOK_NOW ? SIM_RULE_TOUCH_RACE : 0);
}

/* Programs rely on this: a plain free waits for the device, an unmap never does, and memory may be created in a
 * capture. With work that runs only when the host blocks, the machine is as strict as possible. */
static sim_config read_config(int *opened)
{
	uint64_t memory = read_memory();
	look.profile = read_profile();
	look.overhead_bytes = read_bytes("TERRAZZO_SIM_OVERHEAD", memory ? 0 : look.profile->overhead_bytes);
	look.capacity_bytes = memory ? memory : look.profile->memory_bytes;
	look.all_devices = (int)read_number("TERRAZZO_SIM_DEVICES", 1, LOOK_DEVICES);
	look.node = (int)read_number("TERRAZZO_SIM_NODE", 0, LOOK_NODES - 1);
	look.work = (enum look_work)read_choice("TERRAZZO_SIM_WORK", "now|late|blocked");
	look.real_scalars = read_choice("TERRAZZO_SIM_SCALARS", "computed|zero|real") == 2;
	look.abort_on_violation = read_choice("TERRAZZO_SIM_VIOLATIONS", "abort|count") == 0;
	look.nccl_memory = read_choice("TERRAZZO_SIM_NCCL_MEMORY", "yes|no") == 0;
	look.collective_bytes = read_bytes("TERRAZZO_SIM_COLLECTIVE_BYTES", UINT64_C(1) << 20);
	look.timeout = read_number("TERRAZZO_SIM_TIMEOUT", 0, 1000000);
	look.memory_needs_context = read_choice("TERRAZZO_SIM_MEMORY_CONTEXT", "no|yes") == 1;
	look.kernel_ns = read_number("TERRAZZO_SIM_KERNEL_NS", 5000, UINT32_MAX);
	look.report = read_text("TERRAZZO_SIM_REPORT");
	look.seed = read_number("TERRAZZO_SIM_SEED", 0, UINT64_MAX);
	(void)look_version();  /* a program may never ask for it */
	int peers = read_choice("TERRAZZO_SIM_PEERS", "yes|no|full");
	return (sim_config){
		.devices = look.all_devices,
		.capacity = look.capacity_bytes,
		.context_overhead = look.overhead_bytes,
		.withheld = read_bytes("TERRAZZO_SIM_WITHHELD", 0),
		.no_vmm = read_choice("TERRAZZO_SIM_VMM", "yes|no") == 1,
		.no_peers = peers == 1,
		.peers_full = peers == 2,
		.attach_fd = read_machine(opened),
		.host_faults = true,
		.continue_on_violation = true,
		.answer_misuse = true,
		.lenient_rules = lenient_rules(),
		.schedule = (sim_schedule)read_choice("TERRAZZO_SIM_SCHEDULE", "random|fifo|lifo|starve"),
		.seed = look.seed,
		.costs = read_text("TERRAZZO_SIM_COSTS"),
		.memory_rate = sim_profile_memory_rate(look.profile),
		.link_rate = sim_profile_link_rate(look.profile),
		.on_violation = on_violation,
		.figures = &look_live.sim,
	};
}

/* As with a real driver, a child of fork() has no device if its parent has opened one, other than for NVML. */
static bool is_forked;

static void after_fork(void)
{
	look_live_detach();
	look_recording_detach();
	look.machine = NULL;
	open_once = (pthread_once_t)PTHREAD_ONCE_INIT;
	if (!look.sim)
		return;
	look.sim = NULL;
	open_result = TRZ_CUDA_ERROR_NOT_INITIALIZED;
	is_forked = true;
}

cuda_result look_not_open(void)
{
	static int said;
	if (is_forked && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
		fprintf(stderr, "terrazzo: process %d was made by fork() from one that uses CUDA, and cannot use it: start it "
		        "anew, as multiprocessing does by 'spawn'\n", (int)getpid());
	return TRZ_CUDA_ERROR_NOT_INITIALIZED;
}

static void open_machine(void)
{
	static bool has_handler;
	int opened;
	const sim_config config = read_config(&opened);
	sim *machine = NULL;
	trz_status status = config.devices ? sim_open(&config, &machine) : TRZ_OK;
	if (opened >= 0)
		close(opened);
	if (config.devices == 0)
		return;
	if (status != TRZ_OK) {
		fprintf(stderr, "terrazzo: the simulated device cannot be opened: %s\n", trz_last_error());
		give_up();
	}
	look.machine = machine;
	look.table = sim_driver(machine);
	trz_device_info info;
	if (look.table->device_info(look.table->self, 0, &info) == TRZ_OK)
		look.capacity_bytes = info.total_bytes;
	look.table->device_count(look.table->self, &look.all_devices);  /* the machine that we join may have others */
	for (int i = 0; i < LOOK_DEVICES; i++)
		look.number[i] = i;
	if (!has_handler)
		pthread_atfork(NULL, NULL, after_fork);
	has_handler = true;
}

int trz_lookalike_open(void)
{
	int cancel = uncancelled_begin();
	pthread_once(&open_once, open_machine);
	uncancelled_end(cancel);
	return look.machine ? look.all_devices : 0;
}

/* Which devices the process sees is decided here, not when only NVML is used. */
static cuda_result init(void)
{
	if (trz_lookalike_open() == 0)
		return TRZ_CUDA_ERROR_NO_DEVICE;
	look.devices = look_visible(look.number);
	sim_order_devices(look.machine, look.number);
	if (look.devices == 0)
		return TRZ_CUDA_ERROR_NO_DEVICE;
	look.sim = look.machine;
	look_report_open();
	look_recording_open(look.report);
	look_idle_open();
	return TRZ_CUDA_SUCCESS;
}

static void init_machine(void)
{
	open_result = init();
}

cuda_result cuInit(unsigned flags)
{
	LOOK_COUNT(cuInit);
	LOOK_NEED(flags == 0, INVALID_VALUE);
	pthread_once(&init_once, init_machine);
	return open_result;
}

cuda_result cuDriverGetVersion(int *version)
{
	LOOK_COUNT(cuDriverGetVersion);
	LOOK_NEED(version, INVALID_VALUE);
	*version = look_version();
	return TRZ_CUDA_SUCCESS;
}

/* The driver keeps no log, so it never calls the function. */
cuda_result cuLogsRegisterCallback(void *function, void *argument, void **handle)
{
	LOOK_COUNT(cuLogsRegisterCallback);
	(void)argument;
	if (handle)
		*handle = function;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuLogsUnregisterCallback(void *handle)
{
	LOOK_COUNT(cuLogsUnregisterCallback);
	(void)handle;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuProfilerStart(void)
{
	LOOK_COUNT(cuProfilerStart);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuProfilerStop(void)
{
	LOOK_COUNT(cuProfilerStop);
	return TRZ_CUDA_SUCCESS;
}

/* ---- the functions by name ------------------------------------------------------------ */

static const struct look_symbol {
	const char *name;
	int version;
	void *function;
} symbols[] = {
#define SYMBOL_ROW(name, exported, version, parameters) {#name, version, (void *)exported},
	LOOKALIKE_DRIVER_SYMBOLS(SYMBOL_ROW)
#undef SYMBOL_ROW
#define SYMBOL_ROW(name, exported, version, parameters, call) {#name, version, (void *)exported},
	LOOKALIKE_DRIVER_FORMS(SYMBOL_ROW)
#undef SYMBOL_ROW
#define SYMBOL_ROW(name, exported, version) {#name, version, (void *)exported},
	LOOKALIKE_DRIVER_ALIASES(SYMBOL_ROW)
#undef SYMBOL_ROW
#define X(name, exported) {#name, 0, (void *)exported},  /* forms that exist come first */
#include "driver_missing.def"
#undef X
};

const char *look_name(enum look_call call)
{
	return symbols[call].name;
}

/* Whether a program that asks for `name` means this function; the name may be that of one of its forms. */
static bool is_named(const struct look_symbol *symbol, const char *name)
{
	size_t length = strlen(symbol->name);
	if (strncmp(symbol->name, name, length) != 0)
		return false;
	return !name[length] || (name[length] == '_' && name[length + 1] == 'v' && name[length + 2] && !name[length + 3]);
}

/* The newest form of a function that `version` knows; `why` may be NULL. */
cuda_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *why)
{
	enum { PER_THREAD = 2 };  /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
	const struct look_symbol *best = NULL;
	bool too_new = false;
	LOOK_COUNT(cuGetProcAddress_v2);
	LOOK_NEED(name && function, INVALID_VALUE);
	*function = NULL;
	LOOK_NEED(version <= look_version(), INVALID_VALUE);
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		const struct look_symbol *symbol = &symbols[i];
		if (!is_named(symbol, name))
			continue;
		too_new = too_new || symbol->version > version;
		if (symbol->version <= version && (!best || symbol->version >= best->version))
			best = symbol;
	}
	if (best)
		*function = flags & PER_THREAD ? look_per_thread(best->function) : best->function;
	else if (!too_new && *name)
		trz_lookalike_missing(name);
	if (why)
		*why = best ? 0 : too_new ? 2 : 1;
	return best ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_NOT_FOUND;
}

cuda_result cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

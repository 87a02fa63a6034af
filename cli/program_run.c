/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts a command with the look-alike libraries in front, on one node or several, and waits for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bits.h"
#include "cli.h"
#include "error.h"
#include "json_text.h"
#include "program.h"
#include "sim.h"

enum { NOT_STARTED = 127, BY_SIGNAL = 128, MOST_NODES = PROGRAM_MOST_RANKS };

/* ---- where things are ---------------------------------------------------------------------------------- */

const char *program_libraries(void)
{
	static const char *const places[] = { "../lib/sim", TRZ_INSTALLED_SIM, NULL };
	static char found[CLI_PATH_SIZE];
	if (found[0] || cli_first_of(places, "libcuda.so.1", found))
		return found;
	trz_fail(TRZ_ERROR_NOT_FOUND, "the look-alike libcuda.so.1 is missing: it is neither in ../lib/sim nor in "
	         TRZ_INSTALLED_SIM ", relative to this program; build or install all of terrazzo");
	return NULL;
}

const char *program_python(void)
{
	static const char *const places[] = { "../sim", "../share/terrazzo/python/terrazzo/sim", NULL };
	static char found[CLI_PATH_SIZE];
	if (found[0] || cli_first_of(places, "inject/sitecustomize.py", found))
		return found;
	trz_fail(TRZ_ERROR_NOT_FOUND, "the Python part of terrazzo is missing: it is not in "
	         "../share/terrazzo/python, relative to this program; install all of terrazzo");
	return NULL;
}

/* ---- the command's environment ------------------------------------------------------------------------ */

enum { MOST_CHANGES = 48 };

/* Variables that differ from this process's environment. */
struct changes {
	char *text[MOST_CHANGES];  /* "NAME=value" */
	int count;
	bool failed;               /* host memory */
};

static void change(struct changes *c, const char *name, const char *value)
{
	char *text;
	if (c->failed || c->count == MOST_CHANGES || asprintf(&text, "%s=%s", name, value) < 0)
		c->failed = true;
	else
		c->text[c->count++] = text;
}

/* Puts `value` before what the variable has. */
static void change_front(struct changes *c, const char *name, const char *value, const char *separator)
{
	const char *old = getenv(name);
	char *text;
	if (asprintf(&text, "%s%s%s", value, old && *old ? separator : "", old ? old : "") < 0) {
		c->failed = true;
		return;
	}
	change(c, name, text);
	free(text);
}

static void change_number(struct changes *c, const char *name, uint64_t value)
{
	char text[24];
	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	change(c, name, text);
}

static void change_if(struct changes *c, const char *name, const char *value)
{
	if (value)
		change(c, name, value);
}

/* Adds to PyTorch's own setting: what the user has there stays, and of two equal keys the last counts. */
static void change_allocator(struct changes *c, const char *allocator)
{
	const char *name = "PYTORCH_CUDA_ALLOC_CONF", *old = getenv(name);
	if (!old)
		old = getenv("PYTORCH_ALLOC_CONF");  /* which `name` will override */
	const char *value = strcmp(allocator, "native") == 0 ? "expandable_segments:False" : "expandable_segments:True";
	char *text;
	if (asprintf(&text, "%s%s%s", old ? old : "", old && *old ? "," : "", value) < 0) {
		c->failed = true;
		return;
	}
	change(c, name, text);
	free(text);
}

static void change_env(struct changes *c, const char *env)
{
	char path[CLI_PATH_SIZE];
	snprintf(path, sizeof path, "%s/bin", env);
	change(c, "VIRTUAL_ENV", env);
	change_front(c, "PATH", path, ":");
}

/* The command's processes share a machine's devices, and a hall where ranks meet. This process keeps both files open;
 * the others may close what they inherit, so they open this process's descriptors. */
static void change_file(struct changes *c, const char *name, int file)
{
	char text[48];
	snprintf(text, sizeof text, "%d:%d", (int)getpid(), file);
	change(c, name, text);
}

/* NVIDIA's own runtime in a program leads to the look-alike. Blanks and colons end an entry of LD_PRELOAD: in such a
 * folder the library is found by LD_LIBRARY_PATH. */
static void change_preload(struct changes *c)
{
	static const char library[] = "libterrazzo_redirect.so";
	const char *folder = program_libraries();
	char path[CLI_PATH_SIZE + sizeof library + 1];
	if (!folder || snprintf(path, sizeof path, "%s/%s", folder, library) < 0 || access(path, R_OK) != 0)
		return;
	change_front(c, "LD_PRELOAD", strpbrk(folder, " :") ? library : path, ":");
	change_front(c, "ASAN_OPTIONS", "verify_asan_link_order=0", ":");  /* it interposes nothing, and may come first */
}

/* Where the processes leave snapshots; "": nowhere. */
static const char *snapshot_folder(const struct program_params *p, const char *folder)
{
	return p->pages ? p->pages : p->holders ? folder : "";
}

static void make_changes(const struct program_params *p, const char *folder, struct changes *c)
{
	char inject[CLI_PATH_SIZE + sizeof "/inject"], libraries[CLI_PATH_SIZE];
	snprintf(inject, sizeof inject, "%s/inject", program_python());
	change_front(c, "LD_LIBRARY_PATH", program_libraries(), ":");
	change_preload(c);
	change_front(c, "PYTHONPATH", inject, ":");
	change_if(c, "TERRAZZO_LIBRARIES", cli_plug_libraries(libraries));
	change(c, "TRITON_LIBCUDA_PATH", program_libraries());
	change(c, "USE_PYTORCH_KERNEL_CACHE", "0");  /* kernels that do nothing must stay out of it */
	change(c, "TERRAZZO_SIM_REPORT", folder);
	change(c, "TERRAZZO_SIM_DEVICE", p->device);
	change_number(c, "TERRAZZO_SIM_DEVICES", p->devices);
	if (p->memory_bytes)
		change_number(c, "TERRAZZO_SIM_MEMORY", p->memory_bytes);
	change_if(c, "TERRAZZO_SIM_WORK", p->work);
	change_if(c, "TERRAZZO_SIM_SEED", p->seed);
	change_if(c, "TERRAZZO_SIM_SCHEDULE", p->schedule);
	change_if(c, "TERRAZZO_SIM_COSTS", p->costs);
	change_if(c, "TERRAZZO_SIM_SCALARS", p->scalars);
	change_if(c, "TERRAZZO_SIM_TIMEOUT", p->timeout);
	change_if(c, "TERRAZZO_SIM_NCCL_MEMORY", p->nccl_memory);
	if (p->has_collective_bytes)
		change_number(c, "TERRAZZO_SIM_COLLECTIVE_BYTES", p->collective_bytes);
	change(c, "TERRAZZO_SIM_RECORD", p->record ? "1" : "");
	change(c, "TERRAZZO_PAGES", snapshot_folder(p, folder));
	change(c, "TERRAZZO_SIM_HOLDERS", p->holders ? "1" : "");
	change(c, "TERRAZZO_SIM_ALLOCATOR", p->allocator ? p->allocator : "");
	if (p->allocator)
		change_allocator(c, p->allocator);
	if (p->env)
		change_env(c, p->env);
}

static void drop_changes(struct changes *c, int first)
{
	for (int i = first; i < c->count; i++)
		free(c->text[i]);
}

/* In the child, which is about to be another program: putenv may keep the strings. */
static void apply(const struct changes *c)
{
	for (int i = 0; i < c->count; i++)
		putenv(c->text[i]);
}

/* ---- signals -------------------------------------------------------------------------------------------- */

enum { MOST_RUNNING = 64 };

/* Signals that end this process, and are passed on to the commands. */
static const int ends[] = {SIGTERM, SIGHUP};
enum { ENDS = sizeof ends / sizeof *ends };

/* Commands that are waited for, and the signal that told this process to end; 0: none. */
static _Atomic pid_t running[MOST_RUNNING];
static atomic_int stopped;

/* The user has pressed Ctrl-C, or Ctrl-\: the commands that run decide what they do, but none is started any more. */
static atomic_bool interrupted;

/* What this process was started with, for the commands. */
static struct sigaction old_of_children;

static void pass_on(int number)
{
	atomic_store(&stopped, number);
	for (int i = 0; i < MOST_RUNNING; i++)
		if (atomic_load(&running[i]) > 0)
			kill(atomic_load(&running[i]), number);
}

static void note_interrupt(int number)
{
	(void)number;
	atomic_store(&interrupted, true);
}

void program_pass_signals_on(void)
{
	/* While SIGCHLD is ignored, the kernel keeps no exit status. */
	const struct sigaction usual = { .sa_handler = SIG_DFL };
	sigaction(SIGCHLD, &usual, &old_of_children);
	/* The command gets the terminal's signals, too. */
	const struct sigaction interrupt = { .sa_handler = note_interrupt, .sa_flags = SA_RESTART };
	sigaction(SIGINT, &interrupt, NULL);
	sigaction(SIGQUIT, &interrupt, NULL);
	struct sigaction old, action = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
	for (int i = 0; i < ENDS; i++)
		if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)  /* as under nohup */
			sigaction(ends[i], &action, NULL);
}

/* Puts `new` in the place of `old`; 0: none. A command for which there is no place gets no signals from here. */
static void note_running(pid_t old, pid_t new)
{
	for (int i = 0; i < MOST_RUNNING; i++) {
		pid_t expected = old;
		if (atomic_compare_exchange_strong(&running[i], &expected, new))
			return;
	}
}

/* Keeps signals that end this process pending in this thread, and in the child that it is about to make. */
static void hold_ends(sigset_t *old)
{
	sigset_t set;
	sigemptyset(&set);
	for (int i = 0; i < ENDS; i++)
		sigaddset(&set, ends[i]);
	pthread_sigmask(SIG_BLOCK, &set, old);
}

/* A command that starts while another thread is told to end gets the signal, too. */
static void note_started(pid_t pid, const sigset_t *mask)
{
	note_running(0, pid);
	int number = atomic_load(&stopped);
	if (number)
		kill(pid, number);
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}

/* ---- the run -------------------------------------------------------------------------------------------- */

/* In the child the parent's handler would take the signal that is meant to end it. */
static void drop_handlers(const sigset_t *mask)
{
	struct sigaction old;
	sigaction(SIGCHLD, &old_of_children, NULL);
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	for (int i = 0; i < ENDS; i++)
		if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler == pass_on)
			signal(ends[i], SIG_DFL);
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}

static _Noreturn void child(const struct program_params *p, const struct changes *c)
{
	apply(c);
	if (p->silent) {
		int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (nothing >= 0 && dup2(nothing, STDOUT_FILENO) >= 0)
			dup2(nothing, STDERR_FILENO);
	}
	program_become(p->command);
	_exit(NOT_STARTED);
}

/* How a command ended. */
struct ending {
	int exit_status, by_signal;
};

/* The command answers the terminal's signals, which this process ignores meanwhile. */
static trz_status start(const struct program_params *p, const struct changes *c, pid_t *pid)
{
	sigset_t mask;
	fflush(NULL);
	hold_ends(&mask);
	*pid = fork();
	if (*pid < 0) {
		pthread_sigmask(SIG_SETMASK, &mask, NULL);
		return trz_fail(TRZ_ERROR_IO, "%s: cannot be started: %s", p->command[0], strerror(errno));
	}
	if (*pid == 0) {
		drop_handlers(&mask);
		child(p, c);
	}
	note_started(*pid, &mask);
	return TRZ_OK;
}

static trz_status await(pid_t pid, struct ending *ending)
{
	int status;
	pid_t ended;
	while ((ended = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
		;
	note_running(pid, 0);
	if (ended < 0)
		return trz_fail(TRZ_ERROR_IO, "the command's end cannot be awaited: %s", strerror(errno));
	int by_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	*ending = (struct ending){ by_signal ? BY_SIGNAL + by_signal : WEXITSTATUS(status), by_signal };
	return TRZ_OK;
}

static trz_status start_and_wait(const struct program_params *p, const struct changes *c, struct ending *ending)
{
	pid_t pid;
	trz_status status = start(p, c, &pid);
	return status == TRZ_OK ? await(pid, ending) : status;
}

static json_t *describe(const struct program_params *p, struct ending ending)
{
	json_t *command = json_array();
	for (char **word = p->command; *word; word++)
		json_array_append_new(command, json_text(*word));
	json_t *result = json_pack("{s:o, s:s, s:i, s:i}", "command", command, "device", p->device, "devices",
	                           (int)p->devices, "exit_status", ending.exit_status);
	if (result && ending.by_signal)
		json_object_set_new(result, "signal", json_integer(ending.by_signal));
	if (result && p->nodes)
		json_object_set_new(result, "nodes", json_integer((json_int_t)p->nodes));
	if (result && p->memory_bytes)
		json_object_set_new(result, "memory_bytes", json_integer((json_int_t)p->memory_bytes));
	if (result && p->allocator)
		json_object_set_new(result, "allocator_asked", json_string(p->allocator));
	if (result && p->world)
		json_object_set_new(result, "world_size", json_integer((json_int_t)p->world));
	if (result)
		json_object_set_new(result, "costs", json_text(p->costs ? p->costs : SIM_DEFAULT_COSTS));
	return result;
}

/* Runs the command as one rank of a world whose others are absent, on a node with all the devices. */
static trz_status start_rank(const struct program_params *p, const struct changes *c, unsigned rank,
                             struct ending *ending)
{
	struct changes changes = *c;
	int first = c->count;
	change_number(&changes, "RANK", rank);
	change_number(&changes, "LOCAL_RANK", rank % p->devices);
	change_number(&changes, "GROUP_RANK", rank / p->devices);
	change_number(&changes, "WORLD_SIZE", p->world);
	change_number(&changes, "LOCAL_WORLD_SIZE", p->devices);
	change(&changes, "MASTER_ADDR", "localhost");
	change(&changes, "MASTER_PORT", "1");
	change(&changes, "TERRAZZO_SIM_ALONE", "1");
	change(&changes, "TORCH_NCCL_ENABLE_MONITORING", "0");
	trz_status status = changes.failed ? trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for an environment")
	                                   : start_and_wait(p, &changes, ending);
	drop_changes(&changes, first);
	return status;
}

/* Runs the ranks one after the other; the first that fails gives the exit status. */
static trz_status start_ranks(const struct program_params *p, const struct changes *c, struct ending *ending)
{
	*ending = (struct ending){ 0 };
	for (size_t i = 0; i < p->rank_count; i++) {
		struct ending one;
		trz_status status = start_rank(p, c, p->ranks[i], &one);
		if (status != TRZ_OK)
			return status;
		*ending = ending->exit_status ? *ending : one;
	}
	return TRZ_OK;
}

/* ---- nodes ---------------------------------------------------------------------------------------------- */

enum { FAILED_GRACE_MS = 10000 };

/* The devices of each node, and the hall where all ranks meet. */
struct places {
	int machine[MOST_NODES], hall;
	unsigned nodes;
};

/* A node's command, and a descriptor that tells when it has ended; -1: it has. */
struct node {
	pid_t pid;
	int ended_fd;
};

/* A port that is free now. */
static unsigned free_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool found = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
	             getsockname(fd, (struct sockaddr *)&address, &size) == 0;
	if (fd >= 0)
		close(fd);
	return found ? ntohs(address.sin_port) : 29500;
}

/* Says which node it is to programs and to torchrun, whose options PET_... stand for. */
static void change_node(struct changes *c, const struct places *places, unsigned node, unsigned port)
{
	const char *address = getenv("MASTER_ADDR") ? getenv("MASTER_ADDR") : "localhost";
	change_file(c, "TERRAZZO_SIM_MACHINE_FD", places->machine[node]);
	change_number(c, "TERRAZZO_SIM_NODE", node);
	change_number(c, "NODE_RANK", node);
	change_number(c, "NNODES", places->nodes);
	change_number(c, "PET_NODE_RANK", node);
	change_number(c, "PET_NNODES", places->nodes);
	change(c, "MASTER_ADDR", address);
	change(c, "PET_MASTER_ADDR", address);
	change_number(c, "MASTER_PORT", port);
	change_number(c, "PET_MASTER_PORT", port);
}

static trz_status start_node(const struct program_params *p, const struct changes *c, const struct places *places,
                             unsigned number, unsigned port, struct node *node)
{
	struct changes changes = *c;
	struct program_params own = *p;
	char value[16];
	size_t times = 0;
	int first = c->count;
	change_node(&changes, places, number, port);
	snprintf(value, sizeof value, "%u", number);
	own.command = program_words(p->command, "node", value, &times);
	trz_status status = changes.failed || !own.command ? trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a command")
	                                                   : start(&own, &changes, &node->pid);
	node->ended_fd = status == TRZ_OK ? (int)syscall(SYS_pidfd_open, node->pid, 0) : -1;
	if (status == TRZ_OK && node->ended_fd < 0) {
		status = trz_fail(TRZ_ERROR_IO, "the end of a node's command cannot be awaited: %s", strerror(errno));
		kill(node->pid, SIGTERM);
		waitpid(node->pid, NULL, 0);
		note_running(node->pid, 0);
	}
	program_free_words(own.command);
	drop_changes(&changes, first);
	return status;
}

static void end_nodes(const struct node *nodes, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (nodes[i].ended_fd >= 0)
			kill(nodes[i].pid, SIGTERM);
}

/* Waits for a node's command, of which ended_fd has told the end. */
static trz_status await_node(struct node *node, struct ending *first)
{
	struct ending one = { .exit_status = NOT_STARTED };
	trz_status status = await(node->pid, &one);
	*first = first->exit_status ? *first : one;
	close(node->ended_fd);
	node->ended_fd = -1;
	return status;
}

/* Waits until a command ends, or for `ms`. Needs no descriptor, of which there may be none left. Returns how many have
 * ended; < 0: a signal came. */
static int wait_for_nodes(const struct node *nodes, unsigned count, int ms, struct pollfd *ended)
{
	for (unsigned i = 0; i < count; i++)
		ended[i] = (struct pollfd){ .fd = nodes[i].ended_fd, .events = POLLIN };
	return poll(ended, count, ms);
}

/* The first to fail gives the exit status. The others may then say what they miss, before they are ended, too. */
static trz_status await_nodes(struct node *nodes, unsigned count, struct ending *first)
{
	struct pollfd ended[MOST_NODES];
	trz_status status = TRZ_OK;
	bool told = false;
	*first = (struct ending){ 0 };
	for (unsigned left = count; left;) {
		int ready = wait_for_nodes(nodes, count, first->exit_status && !told ? FAILED_GRACE_MS : -1, ended);
		if (ready == 0) {
			end_nodes(nodes, count);
			told = true;
		}
		for (unsigned i = 0; ready > 0 && i < count; i++) {
			if (!ended[i].revents)
				continue;
			trz_status awaited = await_node(&nodes[i], first);
			status = status == TRZ_OK ? awaited : status;
			left--;
		}
	}
	return status;
}

/* The environment's MASTER_PORT, else a free one. */
static trz_status choose_port(unsigned *port)
{
	const char *text = getenv("MASTER_PORT");
	char *end = NULL;
	unsigned long given = text && *text ? strtoul(text, &end, 10) : free_port();
	if (end && (*text < '0' || *text > '9' || *end || given == 0 || given > UINT16_MAX))
		return trz_fail(TRZ_ERROR_BAD_INPUT, "MASTER_PORT: '%s' is not a port from 1 to %d; unset it, and a free one "
		                "is chosen", text, UINT16_MAX);
	*port = (unsigned)given;
	return TRZ_OK;
}

static trz_status start_nodes(const struct program_params *p, const struct changes *c, const struct places *places,
                              struct ending *ending)
{
	unsigned started = 0, port = 0;
	struct node nodes[MOST_NODES];
	trz_status status = choose_port(&port);
	while (status == TRZ_OK && started < places->nodes) {
		status = start_node(p, c, places, started, port, &nodes[started]);
		started += status == TRZ_OK;
	}
	if (status != TRZ_OK)
		end_nodes(nodes, started);
	trz_status awaited = await_nodes(nodes, started, ending);
	return status == TRZ_OK ? awaited : status;
}

static trz_status start_all(const struct program_params *p, const struct changes *c, const struct places *places,
                            struct ending *ending)
{
	if (c->failed)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for an environment");
	if (p->world)
		return start_ranks(p, c, ending);
	return p->nodes ? start_nodes(p, c, places, ending) : start_and_wait(p, c, ending);
}

static void close_places(struct places *places)
{
	for (unsigned i = 0; i < places->nodes; i++)
		if (places->machine[i] >= 0)
			close(places->machine[i]);
	if (places->hall >= 0)
		close(places->hall);
}

static bool open_places(const struct program_params *p, struct places *places)
{
	bool made = true;
	places->nodes = p->nodes ? p->nodes : 1;
	for (unsigned i = 0; i < places->nodes; i++) {
		places->machine[i] = sim_machine_make();
		made = made && places->machine[i] >= 0;
	}
	places->hall = memfd_create("sim-hall", MFD_CLOEXEC);
	if (!made || places->hall < 0)
		close_places(places);
	return made && places->hall >= 0;
}

static trz_status check_env(const char *env)
{
	char path[CLI_PATH_SIZE];
	snprintf(path, sizeof path, "%s/bin/python", env ? env : "");
	if (!env || access(path, X_OK) == 0)
		return TRZ_OK;
	return trz_fail(TRZ_ERROR_NOT_FOUND, "%s: not a virtual environment (it has no bin/python); make one by: "
	                "terrazzo sim --setup %s", env, env);
}

static trz_status run_in(const struct program_params *p, const char *folder, json_t **result)
{
	struct changes changes = { .count = 0 };
	struct ending ending = { .exit_status = NOT_STARTED };
	struct places places;
	const char *snapshots = snapshot_folder(p, folder);
	uint64_t peak = 0;
	if (!open_places(p, &places))
		return trz_fail(TRZ_ERROR_IO, "no file for the simulated devices: %s", strerror(errno));
	make_changes(p, folder, &changes);
	change_file(&changes, "TERRAZZO_SIM_MACHINE_FD", places.machine[0]);
	change_file(&changes, "TERRAZZO_SIM_HALL_FD", places.hall);
	trz_status status = start_all(p, &changes, &places, &ending);
	for (unsigned i = 0; i < places.nodes; i++)
		peak = max_u64(peak, sim_machine_peak(places.machine[i]));
	close_places(&places);
	drop_changes(&changes, 0);
	if (status != TRZ_OK)
		return status;
	*result = describe(p, ending);
	if (!*result)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no host memory for its report", p->command[0]);
	json_object_set_new(*result, "device_peak_bytes", json_integer((json_int_t)peak));
	status = program_collect(folder, p->holders ? snapshots : NULL, *result);
	if (status != TRZ_OK)
		json_decref(*result);
	return status == TRZ_OK && p->record ? program_record_traces(folder, p->record, *result) : status;
}

trz_status program_run(const struct program_params *params, json_t **result)
{
	*result = NULL;
	if (!program_libraries() || !program_python())
		return TRZ_ERROR_NOT_FOUND;
	if (atomic_load(&stopped) || atomic_load(&interrupted))
		return trz_fail(TRZ_ERROR_IO, "not started: a signal came");
	trz_status status = check_env(params->env);
	if (status != TRZ_OK)
		return status;
	const char *base = getenv("TMPDIR");
	char folder[CLI_PATH_SIZE];
	snprintf(folder, sizeof folder, "%s/terrazzo-sim-XXXXXX", base && *base ? base : "/tmp");
	if (!mkdtemp(folder))
		return trz_fail(TRZ_ERROR_IO, "%s: cannot be created: %s", folder, strerror(errno));
	status = run_in(params, folder, result);
	program_remove(folder);
	return status;
}

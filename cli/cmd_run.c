/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo run: runs a program, unchanged, with terrazzo as PyTorch's allocator or in CUDA's place.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"
#include "program.h"

#define PRELOAD_LIBRARY "libterrazzo_preload.so"

enum { OPTION_CONF = 'c', OPTION_REPORT = 256, OPTION_LIMIT, OPTION_LIMIT_EACH };

static const struct argp_option options[] = {
	{ "conf", OPTION_CONF, "KEY:VALUE,...", 0, "TERRAZZO_CONF for the program; 'terrazzo config' lists the keys", 0 },
	{ "report", OPTION_REPORT, "FILE", 0,
	  "make a page of the memory over time (docs/report.md), for which terrazzo keeps a history with call stacks; "
	  "several processes make one each, with the rank's number in its name", 0 },
	{ "limit", OPTION_LIMIT, "SIZE", 0,
	  "how much device memory, such as 10GiB, the program and all that it starts may hold together, over all devices "
	  "(docs/native.md)", 0 },
	{ "limit-each", OPTION_LIMIT_EACH, "SIZE", 0, "how much each process by itself may hold", 0 },
	{ 0 }
};

struct run_command {
	const char *conf, *report;
	uint64_t limit;              /* 0: none */
	bool each;
	char ledger[CLI_PATH_SIZE];  /* the file that the processes share; "": none */
	char **argv;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct run_command *c = state->input;
	switch (key) {
	case OPTION_CONF:
		unsetenv("TERRAZZO_CONF");  /* this one takes its place */
		if (trz_config_check(arg) != TRZ_OK)
			argp_error(state, "%s", trz_last_error());
		c->conf = arg;
		return 0;
	case OPTION_REPORT:
		c->report = option_file(state, "--report", arg);
		return 0;
	case OPTION_LIMIT:
	case OPTION_LIMIT_EACH:
		if (!size_parse(arg, &c->limit) || c->limit == 0)
			argp_error(state, "--%s: '%s' is not a size, such as 10GiB",
			           key == OPTION_LIMIT ? "limit" : "limit-each", arg);
		c->each = key == OPTION_LIMIT_EACH;
		return 0;
	case ARGP_KEY_ARG:
		c->argv = state->argv + state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "a command is missing, such as: terrazzo run -- python train.py");
		return 0;
	case ARGP_KEY_END:
		option_not_in_command(state, "--report", c->report, c->argv);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Finds the folder of the sitecustomize module that activates terrazzo, in a wheel, installation or source tree. */
static trz_status find_inject(char path[CLI_PATH_SIZE])
{
	static const char *const places[] = { "../torch/inject", "../share/terrazzo/python/terrazzo/torch/inject",
	                                      "../../python/terrazzo/torch/inject", NULL };
	if (cli_first_of(places, "sitecustomize.py", path))
		return TRZ_OK;
	return trz_fail(TRZ_ERROR_NOT_FOUND, "the Python part of terrazzo is missing: it is not in "
	                "../share/terrazzo/python, relative to this program; install all of terrazzo");
}

/* `terrazzo sim --allocator` asks for PyTorch's own allocator, and --record records that. */
static trz_status check_simulation(void)
{
	const char *asked = getenv("TERRAZZO_SIM_ALLOCATOR"), *record = getenv("TERRAZZO_SIM_RECORD");
	if (record && *record)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "'terrazzo sim --record' records the requests to PyTorch's own "
		                "allocator, but 'terrazzo run' puts terrazzo in its place: leave one of the two out");
	if (!asked || !*asked)
		return TRZ_OK;
	return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "'terrazzo sim --allocator %s' asks for PyTorch's own allocator, but "
	                "'terrazzo run' puts terrazzo in its place: leave one of the two out", asked);
}

static bool find_preload(char folder[CLI_PATH_SIZE])
{
	static const char *const places[] = { "../lib", TRZ_INSTALLED_LIB, NULL };
	return cli_first_of(places, PRELOAD_LIBRARY, folder);
}

/* Makes it larger than the library needs, to find out now whether /dev/shm is full. */
static bool make_ledger_in(const char *folder, char ledger[CLI_PATH_SIZE])
{
	enum { ROOM = 64 << 10 };
	snprintf(ledger, CLI_PATH_SIZE, "%s/terrazzo-limit-XXXXXX", folder);
	int file = mkstemp(ledger);
	int error = file < 0 ? errno : posix_fallocate(file, 0, ROOM);
	if (file >= 0)
		close(file);
	if (file >= 0 && error)
		unlink(ledger);
	errno = error;
	return !error;
}

static trz_status make_ledger(struct run_command *c)
{
	if (make_ledger_in("/dev/shm", c->ledger) || make_ledger_in("/tmp", c->ledger))
		return TRZ_OK;
	c->ledger[0] = '\0';
	return trz_fail(TRZ_ERROR_IO, "cannot make the file in /dev/shm or /tmp that the processes "
	                "under the limit share: %s", strerror(errno));
}

/* Sets a variable for the program. putenv keeps the string, so it is not freed. false: no host memory. */
__attribute__((format(printf, 1, 2)))
static bool put(const char *format, ...)
{
	char *entry;
	va_list args;
	va_start(args, format);
	bool ok = vasprintf(&entry, format, args) >= 0 && putenv(entry) == 0;
	va_end(args);
	return ok;
}

static trz_status set_limit(struct run_command *c)
{
	char folder[CLI_PATH_SIZE];
	if (!c->limit)
		return TRZ_OK;
	if (!find_preload(folder))
		return trz_fail(TRZ_ERROR_NOT_FOUND, PRELOAD_LIBRARY ", which enforces the limit, is not in ../lib, relative "
		                "to this program; install all of terrazzo");
	trz_status status = c->each ? TRZ_OK : make_ledger(c);
	if (status != TRZ_OK)
		return status;
	bool ok = put("TERRAZZO_LIMIT=%llu %s", (unsigned long long)c->limit, c->each ? "-" : c->ledger);
	return ok ? TRZ_OK : trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for the program's environment");
}

/* Puts an entry before those that a variable has. false: no host memory. */
static bool put_before(const char *variable, const char *folder, const char *name)
{
	const char *old = getenv(variable);
	return put("%s=%s%s%s%s", variable, folder, name, old && *old ? ":" : "", old ? old : "");
}

/* Preloads the library, if it is installed, for programs without PyTorch. A blank ends an entry of LD_PRELOAD: if the
 * folder has one, the entry is the library's name alone, and LD_LIBRARY_PATH finds it. */
static trz_status set_preload(void)
{
	char folder[CLI_PATH_SIZE];
	if (!find_preload(folder))
		return TRZ_OK;
	bool blank = strchr(folder, ' ');
	if (strchr(folder, ':') || (blank && strchr(folder, ';')))
		return trz_fail(TRZ_ERROR_NOT_FOUND, "%s: a library in a folder with this name cannot be preloaded; install "
		                "terrazzo in one without colons and semicolons", folder);
	bool ok = blank ? put_before("LD_LIBRARY_PATH", folder, "") && put_before("LD_PRELOAD", "", PRELOAD_LIBRARY)
	                : put_before("LD_PRELOAD", folder, "/" PRELOAD_LIBRARY);
	return ok ? TRZ_OK : trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for the program's environment");
}

static trz_status set_environment(const struct run_command *c, const char *inject)
{
	char libraries[CLI_PATH_SIZE];
	bool ok = put_before("PYTHONPATH", inject, "") && put("TERRAZZO=1");
	if (ok && cli_plug_libraries(libraries))
		ok = put("TERRAZZO_LIBRARIES=%s", libraries);
	if (ok && c->conf)
		ok = put("TERRAZZO_CONF=%s", c->conf);
	return ok ? set_preload() : trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for the program's environment");
}

/* ---- waiting ------------------------------------------------------------------------------------------------ */

static volatile pid_t child;

/* What this process was started with, for the program. */
static sigset_t old_mask;
static struct sigaction old_of_children;

/* Holds signals that would end this process until it can pass them on, so that nothing is left behind. While SIGCHLD is
 * ignored, the kernel keeps no exit status. */
static void take_signals(void)
{
	const struct sigaction usual = { .sa_handler = SIG_DFL };
	sigset_t ends;
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, &old_mask);
	sigaction(SIGCHLD, &usual, &old_of_children);
}

static void pass_on(int number)
{
	if (child > 0)
		kill(child, number);
}

/* The terminal's signals reach the program, too. Others that would end this process are passed on, for the pages. */
static int wait_for(pid_t program)
{
	const struct sigaction action = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
	int status;
	pid_t ended;
	child = program;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	sigprocmask(SIG_SETMASK, &old_mask, NULL);
	while ((ended = waitpid(program, &status, 0)) < 0 && errno == EINTR) {}
	child = 0;
	if (ended < 0)
		return cli_fail(trz_fail(TRZ_ERROR_IO, "cannot wait for the program: %s", strerror(errno)));
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int start(char **argv)
{
	sigaction(SIGCHLD, &old_of_children, NULL);
	sigprocmask(SIG_SETMASK, &old_mask, NULL);
	program_become(argv);
	return CLI_BAD_INPUT;
}

/* Returns the program's exit status. */
static int start_and_wait(char **argv)
{
	pid_t program = fork();
	if (program == 0)
		_exit(start(argv));
	return program < 0 ? cli_fail(trz_fail(TRZ_ERROR_IO, "cannot start a process: %s", strerror(errno)))
	                   : wait_for(program);
}

/* Returns the program's exit status; a page that cannot be made is reported, but is no failure of the program. */
static int run_with_pages(const struct run_command *c)
{
	char folder[CLI_PATH_SIZE];
	trz_status status = report_make_folder(folder);
	if (status != TRZ_OK)
		return cli_fail(status);
	static char pages[CLI_PATH_SIZE + 16];  /* putenv keeps it */
	snprintf(pages, sizeof pages, "TERRAZZO_PAGES=%s", folder);
	putenv(pages);
	int code = start_and_wait(c->argv);
	if (report_pages(folder, c->argv, c->report) != TRZ_OK)
		fprintf(stderr, "terrazzo: %s\n", trz_last_error());
	program_remove(folder);
	return code;
}

int cli_run(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "[--] COMMAND [ARGUMENT...]",
		.doc = "Runs a program, and the programs that it starts, with terrazzo as the allocator of GPU memory: "
		       "PyTorch's, or else that of CUDA itself.\vThe program needs no change; where terrazzo cannot be "
		       "PyTorch's allocator it says why, and the program runs on PyTorch's own. The exit status is the "
		       "program's.",
	};
	struct run_command c = {0};
	char inject[CLI_PATH_SIZE];
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &c);
	take_signals();
	trz_status status = c.conf ? TRZ_OK : trz_config_check(NULL);  /* the environment's, which the program gets */
	if (status == TRZ_OK && c.report)
		status = output_check(c.report);
	if (status == TRZ_OK)
		status = check_simulation();
	if (status == TRZ_OK)
		status = find_inject(inject);
	if (status == TRZ_OK)
		status = set_environment(&c, inject);
	if (status == TRZ_OK)
		status = set_limit(&c);
	if (status != TRZ_OK)
		return cli_fail(status);
	int code = c.report ? run_with_pages(&c) : c.ledger[0] ? start_and_wait(c.argv) : start(c.argv);
	if (c.ledger[0])
		unlink(c.ledger);
	return code;
}

/* tokenringd: options, signals, the log, and the exit code; everything else is daemon.c.
 *
 * Exit codes: 0 stopped as asked; 1 could not start, with one sentence on standard error. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "daemon/control/config.h"
#include "daemon/control/log.h"
#include "daemon/control/sd_notify.h"
#include "daemon/daemon.h"
#include "daemon/keeper.h"

enum {
	POLL_MS = 20,          /* how often the loading is looked at, if it takes long */
	POLL_SHARE = 32,       /* of the time so far that a look may come late */
	REPORT_MS = 2000,      /* how often its progress is told */
	DRAIN_GRACE_MS = 5000, /* beyond drain_ms: the longest step, and channels to end */
	STACK_BYTES = 1 << 20  /* of a thread, at least */
};

struct program_arguments {
	int argc;
	char **argv;
	struct config *config; /* of main; follows reloads */
};

static int fail(const char *why)
{
	log_event(LOG_LEVEL_ERROR, "start-failed", "%s", why);
	return 1;
}

static void block_signals(sigset_t *set)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, usual = {.sa_handler = SIG_DFL};

	sigemptyset(set);
	sigaddset(set, SIGCHLD);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
	/* Before any thread starts: all inherit the mask, and main takes the signals one by one. */
	sigprocmask(SIG_BLOCK, set, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	/* Whoever starts the daemon may ignore it, and then none would come. */
	sigaction(SIGCHLD, &usual, NULL);
}

/* The signal that arrived, or 0 after `timeout_ms`. */
static int next_signal(const sigset_t *set, uint64_t timeout_ms)
{
	struct timespec wait = {.tv_sec = (time_t)(timeout_ms / 1000),
				.tv_nsec = (long)(timeout_ms % 1000) * 1000000};
	int number = sigtimedwait(set, NULL, &wait);

	return number > 0 ? number : 0;
}

static void reload(struct daemon *daemon, const struct program_arguments *arguments)
{
	static struct config fresh;
	char why[1024], kept[512];
	enum config_action action;
	unsigned changed;

	notify_reloading();
	if (config_load(&fresh, &action, arguments->argc, arguments->argv, why, sizeof(why))) {
		log_event(LOG_LEVEL_WARNING, "reload-failed", "%s; the options in use stay", why);
		notify_ready();
		return;
	}
	changed = daemon_reload(daemon, &fresh, kept, sizeof(kept));
	config_reload(arguments->config, &fresh, kept, sizeof(kept));
	log_set_level(fresh.log_level);
	log_event(LOG_LEVEL_INFO, "reloaded", "%u option%s changed%s%s", changed, changed == 1 ? "" : "s",
		  *kept ? "; restart to change " : "", kept);
	notify_ready();
}

static void warn_without_keeper(int error)
{
	log_event(LOG_LEVEL_WARNING, "no-keeper",
		  "cannot start the process that keeps the memory for a moment after a crash: %s; clients "
		  "may learn of one late",
		  strerror(-error));
}

static void tend_keeper(void)
{
	int result = keeper_tend();

	if (result < 0)
		warn_without_keeper(result);
	else if (result)
		log_event(LOG_LEVEL_WARNING, "keeper",
			  "somebody ended the process that keeps the memory for a moment after a crash; "
			  "another one runs");
}

static void report_loading(double share)
{
	notify_status("loading weights: %.0f %%", 100 * share);
	log_event(LOG_LEVEL_INFO, "loading", "%.0f %% of the weights are loaded", 100 * share);
}

static void report_ready(const struct daemon *daemon)
{
	char text[512], phases[256];

	daemon_describe(daemon, text, sizeof(text));
	daemon_describe_start(daemon, phases, sizeof(phases));
	log_event(LOG_LEVEL_INFO, "ready", "%s; %s", text, phases);
	notify_status("serving %s", text);
	notify_ready();
}

/* Short at first: a start waits for the look after its end. */
static uint64_t next_pause_ms(uint64_t waited_ms)
{
	uint64_t pause = waited_ms / POLL_SHARE;

	return pause < 1 ? 1 : pause > POLL_MS ? POLL_MS : pause;
}

/* Until a signal says stop or the model fails; returns the exit code. */
static int serve(struct daemon *daemon, const struct program_arguments *arguments, const sigset_t *signals)
{
	enum daemon_state state = DAEMON_LOADING;
	uint64_t waited_ms = 0, report_ms = REPORT_MS;

	for (;;) {
		uint64_t pause_ms = next_pause_ms(waited_ms);
		int number = next_signal(signals, state == DAEMON_LOADING ? pause_ms : 3600000);
		double share;

		if (number == SIGHUP)
			reload(daemon, arguments);
		else if (number == SIGCHLD)
			tend_keeper();
		else if (number)
			return 0;
		if (state != DAEMON_LOADING)
			continue;
		waited_ms += pause_ms;
		state = daemon_poll(daemon, &share);
		if (state == DAEMON_FAILED)
			return fail(daemon_why(daemon));
		if (state == DAEMON_READY) {
			report_ready(daemon);
		} else if (waited_ms >= report_ms) {
			report_loading(share);
			report_ms += REPORT_MS;
		}
	}
}

/* Lets requests finish within the bound; a second signal ends them at once. False: a thread hangs. */
static bool stop(struct daemon *daemon, uint64_t drain_ms, const sigset_t *signals)
{
	uint64_t waited_ms = 0;

	notify_stopping();
	log_event(LOG_LEVEL_INFO, "stopping", "requests that run have %llu ms to finish",
		  (unsigned long long)drain_ms);
	daemon_drain(daemon, drain_ms);
	while (!daemon_drained(daemon, POLL_MS)) {
		int number = next_signal(signals, 0);

		waited_ms += POLL_MS;
		if (number == SIGTERM || number == SIGINT)
			daemon_drain(daemon, 0);
		if (waited_ms > drain_ms + DRAIN_GRACE_MS)
			return false;
	}
	return true;
}

static int serve_until_told(const struct program_arguments *arguments, const sigset_t *signals)
{
	const struct config *config = arguments->config;
	struct daemon *daemon;
	char why[1024];
	int code;

	if (daemon_start(&daemon, config, why, sizeof(why)))
		return fail(why);
	log_event(LOG_LEVEL_INFO, "listening", "on %s; loading %s", daemon_socket(daemon), config->model);
	code = serve(daemon, arguments, signals);
	if (!stop(daemon, code ? 0 : (uint64_t)config->drain_ms, signals)) {
		log_event(LOG_LEVEL_ERROR, "stop-failed",
			  "the engine did not end in time; leaving without it");
		_exit(1);
	}
	daemon_free(daemon);
	log_event(LOG_LEVEL_INFO, "stopped", "bye");
	return code;
}

/* A channel takes two descriptors; shells and service managers leave 1,024 for the sake of programs that call
 * select(), which this one does not. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* Of this thread and of all that it starts. False: it is too small to work on. */
static bool raise_stack_limit(void)
{
	struct rlimit limit;
	pthread_attr_t attributes;

	if (getrlimit(RLIMIT_STACK, &limit) < 0 || limit.rlim_cur >= STACK_BYTES)
		return true;
	limit.rlim_cur = STACK_BYTES;
	if (limit.rlim_max < STACK_BYTES)
		limit.rlim_max = STACK_BYTES;
	if (setrlimit(RLIMIT_STACK, &limit) < 0)
		return false;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	pthread_setattr_default_np(&attributes);
	pthread_attr_destroy(&attributes);
	return true;
}

static int run(const struct program_arguments *arguments)
{
	sigset_t signals;
	int code, error;

	raise_descriptor_limit();
	if (!*arguments->config->model)
		return fail("no model is named; give --model FILE (a GGUF file)");
	block_signals(&signals);
	error = keeper_start();
	if (error < 0)
		warn_without_keeper(error);
	code = serve_until_told(arguments, &signals);
	keeper_stop();
	return code;
}

/* A standard stream that the caller closed would lend its number to a socket or an event descriptor, and log
 * lines would go there. What holds the number instead can neither be read nor written. */
static void hold_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/", O_PATH | O_CLOEXEC) < 0)
			return; /* nothing else could be opened either */
}

static int flush_output(void)
{
	if (fflush(stdout) || ferror(stdout))
		return fail("standard output cannot be written");
	return 0;
}

int main(int argc, char **argv)
{
	static struct config config;
	struct program_arguments arguments = {argc, argv, &config};
	enum config_action action;
	char why[1024];

	hold_streams();
	if (!raise_stack_limit())
		return fail("the limit of the stack is under 1 MiB; raise LimitSTACK or ulimit -s");
	if (config_load(&config, &action, argc, argv, why, sizeof(why)))
		return fail(why);
	switch (action) {
	case CONFIG_HELP:
		config_print_help(stdout);
		return flush_output();
	case CONFIG_VERSION:
		printf("tokenringd %s\n", TOKENRING_VERSION);
		return flush_output();
	case CONFIG_PRINT:
		config_print(&config, stdout);
		return flush_output();
	case CONFIG_RUN:
		break;
	}
	if (log_open(config.log_target, config.log_level, why, sizeof(why)))
		return fail(why);
	return run(&arguments);
}

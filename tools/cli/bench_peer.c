#include "tools/cli/bench_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct peer {
	pid_t pid;
	FILE *to, *from;
	char name[256];
};

/* The child's standard input and output are the far ends of two pipes. */
static int spawn(struct peer *peer, const char *const *argv, const int to[2], const int from[2])
{
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
	int r = posix_spawnp(&peer->pid, argv[0], &actions, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -r;
}

static int open_pipes(struct peer *peer, int to[2], int from[2])
{
	if (pipe2(to, O_CLOEXEC))
		return -errno;
	if (pipe2(from, O_CLOEXEC)) {
		int error = -errno;
		close(to[0]);
		close(to[1]);
		return error;
	}
	peer->to = fdopen(to[1], "w");
	peer->from = fdopen(from[0], "r");
	return peer->to && peer->from ? 0 : -ENOMEM;
}

static enum exit_code read_line(struct peer *peer, char *line, size_t bytes)
{
	if (!fgets(line, (int)bytes, peer->from))
		return complain("the peer ended; what it said is above");
	line[strcspn(line, "\n")] = 0;
	return EXIT_DONE;
}

/* PREFIX/share/tokenring beside PREFIX/bin: an installation may be moved or staged as a whole. */
static void installed_script(char *path, size_t bytes)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = 0;
	snprintf(path, bytes, "%s/../share/tokenring/llama_peer.py", dirname(self));
}

static enum exit_code launch(struct peer *peer, const struct bench *b)
{
	char prompt[24], threads[24], line[sizeof peer->name];
	char installed[PATH_MAX];
	const char *script = b->options->peer_script ? b->options->peer_script : installed;
	installed_script(installed, sizeof installed);
	snprintf(prompt, sizeof prompt, "%llu", (unsigned long long)b->options->prompt);
	snprintf(threads, sizeof threads, "%u", b->threads < 2 ? 1u : 2u);
	const char *const argv[] = {b->options->peer_python, script,  "--prompt",    prompt,
				    "--max-threads",         threads, b->model_path, NULL};
	int to[2], from[2];
	int r = open_pipes(peer, to, from);
	if (!r) {
		r = spawn(peer, argv, to, from);
		close(to[0]);
		close(from[1]);
	}
	if (r)
		return complain("cannot start the peer with %s: %s", b->options->peer_python, strerror(-r));
	enum exit_code code = read_line(peer, line, sizeof line);
	if (!code && strncmp(line, "ready ", 6) != 0)
		code = complain("the peer answered \"%s\" instead of \"ready\"", line);
	if (!code)
		snprintf(peer->name, sizeof peer->name, "%s", line + 6);
	return code;
}

enum exit_code peer_start(const struct bench *bench, struct peer **ret)
{
	if (!bench->model_path[0])
		return complain("the peer needs the model's file: give it with --model");
	struct peer *peer = calloc(1, sizeof *peer);
	if (!peer)
		return complain("no memory for the peer");
	enum exit_code code = launch(peer, bench);
	if (code)
		peer_stop(peer);
	else
		*ret = peer;
	return code;
}

enum exit_code peer_decode(struct peer *peer, unsigned n, double *ret_rate)
{
	char line[64];
	char *end;
	fprintf(peer->to, "decode 1 %u\n", n);
	fflush(peer->to);
	enum exit_code code = read_line(peer, line, sizeof line);
	if (code)
		return code;
	double rate = strtod(line, &end);
	if (end == line || rate <= 0)
		return complain("the peer answered \"%s\" instead of a rate", line);
	*ret_rate = rate;
	return EXIT_DONE;
}

const char *peer_name(const struct peer *peer)
{
	return peer->name;
}

void peer_stop(struct peer *peer)
{
	if (!peer)
		return;
	if (peer->to)
		fclose(peer->to); /* the end of its input ends it */
	if (peer->from)
		fclose(peer->from);
	if (peer->pid > 0)
		waitpid(peer->pid, NULL, 0);
	free(peer);
}

/* tokenring bench peer: hands over to a script, for what it starts and installs are Python packages. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/verb.h"

enum { ARGUMENTS_MAX = 64, NUMBER_BYTES = 24 };

struct peer_options {
	struct common common; /* the socket is not used: each file gets a daemon of its own */
	bool json, install, install_native;
	uint64_t rounds, threads;
	const char *model, *daemon, *cache, *script, *save;
	struct option_list formats, only, pythons, peers;
};

struct command {
	const char *text[ARGUMENTS_MAX];
	unsigned n;
	char numbers[2][NUMBER_BYTES];
	char self[PATH_MAX], script[PATH_MAX + 64];
};

static void add(struct command *c, const char *text)
{
	if (c->n < ARGUMENTS_MAX - 1) /* the last stays NULL */
		c->text[c->n++] = text;
}

static void add_text(struct command *c, const char *name, const char *value)
{
	if (!value)
		return;
	add(c, name);
	add(c, value);
}

static void add_list(struct command *c, const char *name, const struct option_list *list)
{
	if (list->n)
		add(c, name);
	for (size_t i = 0; i < list->n; i++)
		add(c, list->text[i]);
}

static void add_number(struct command *c, unsigned slot, const char *name, uint64_t value)
{
	if (!value)
		return;
	snprintf(c->numbers[slot], NUMBER_BYTES, "%llu", (unsigned long long)value);
	add_text(c, name, c->numbers[slot]);
}

/* PREFIX/share/tokenring beside PREFIX/bin: an installation may be moved or staged as a whole. */
static const char *find_script(struct command *c, const struct peer_options *o)
{
	char folder[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", c->self, sizeof c->self - 1);
	c->self[n > 0 ? n : 0] = 0;
	snprintf(folder, sizeof folder, "%s", c->self);
	snprintf(c->script, sizeof c->script, "%s/../share/tokenring/bench_peer.py", dirname(folder));
	return o->script ? o->script : c->script;
}

static enum exit_code run_bench_peer(const void *options, const struct positionals *arguments)
{
	static struct command c;
	const struct peer_options *o = options;
	const char *python = getenv("PYTHON");
	c.n = 0;
	add(&c, python && *python ? python : "python3");
	add(&c, find_script(&c, o));
	add_text(&c, "--tokenring", c.self);
	add_text(&c, "--model", o->model);
	add_text(&c, "--daemon", o->daemon);
	add_text(&c, "--cache", o->cache);
	add_text(&c, "--save", o->save);
	add_number(&c, 0, "--rounds", o->rounds);
	add_number(&c, 1, "--threads", o->threads);
	add_list(&c, "--format", &o->formats);
	add_list(&c, "--only", &o->only);
	add_list(&c, "--peer", &o->peers);
	add_list(&c, "--peer-python", &o->pythons);
	if (o->json)
		add(&c, "--json");
	if (o->install || o->install_native)
		add(&c, o->install_native ? "--install-native" : "--install");
	execvp(c.text[0], (char *const *)c.text);
	return complain("cannot run %s: %s", c.text[0], strerror(errno));
}

#define FIELD(name) offsetof(struct peer_options, name)
static const struct option_row rows[] = {
    {"install", 0, OPTION_FLAG, FIELD(install), NULL, 0, 0,
     "first installs the peers into the cache: llama.cpp, built for this machine in some minutes, "
     "ik_llama.cpp and OpenVINO GenAI"},
    {"install-native", 0, OPTION_FLAG, FIELD(install_native), NULL, 0, 0,
     "also builds ik_llama.cpp for this machine, and llama.cpp for AVX2"},
    {"model", 'm', OPTION_TEXT, FIELD(model), "FILE", 0, 0, "GGUF file; the formats are made from it"},
    {"format", 'f', OPTION_LIST, FIELD(formats), "FORMAT", 0, 0,
     "q4_1, q4_0, q8_0, q4_k_m, bf16, or file for the file as it is; may be given again; else all five"},
    {"only", 0, OPTION_LIST, FIELD(only), "WHAT", 0, 0,
     "decode, prefill, streams, best, avx2 or start; may be given again"},
    {"peer", 0, OPTION_LIST, FIELD(peers), "PEER", 0, 0,
     "llama, ik, ik-repacked or openvino; may be given again"},
    {"rounds", 'r', OPTION_NUMBER, FIELD(rounds), "N", 1, 1000, "of each, after one that warms up"},
    {"threads", 0, OPTION_NUMBER, FIELD(threads), "N", 1, 256, "of each engine; else one for each CPU"},
    {"json", 0, OPTION_FLAG, FIELD(json), NULL, 0, 0, "one JSON object a line; remarks go to standard error"},
    {"save", 0, OPTION_TEXT, FIELD(save), "FILE", 0, 0, "appends the JSON lines to a file, too"},
    {"cache", 0, OPTION_TEXT, FIELD(cache), "FOLDER", 0, 0,
     "of peers and files; else $XDG_CACHE_HOME/tokenring/peers"},
    {"peer-python", 0, OPTION_LIST, FIELD(pythons), "PATH", 0, 0,
     "a python that has some of the peers already; may be given again"},
    {"daemon", 0, OPTION_TEXT, FIELD(daemon), "PATH", 0, 0, "tokenringd; else the one beside this program"},
    {"peer-script", 0, OPTION_TEXT, FIELD(script), "FILE", 0, 0, "bench_peer.py, if it is not installed"},
    COMMON_OPTIONS,
};

const struct verb verb_bench_peer = {
    .name = "bench peer",
    .arguments = "",
    .summary = "the same model files in llama.cpp, ik_llama.cpp and OpenVINO, in turns",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct peer_options){.rounds = 5},
    .bytes = sizeof(struct peer_options),
    .handler = run_bench_peer,
};

/* The daemon's options: from defaults, a file and flags, in that order; the later wins.
 *
 * Thread rule: plain values; one owner. Nothing here is kept between calls. Failures return -EINVAL (or the
 * errno of reading the file) with one sentence: where, which option, which value, what is allowed, the
 * remedy. */
#ifndef TOKENRING_DAEMON_CONTROL_CONFIG_H
#define TOKENRING_DAEMON_CONTROL_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/control/config_options.h"

enum {
	CONFIG_PATH_BYTES = 4096,
	CONFIG_CHOICE_BYTES = 16,
	CONFIG_CPUS_MAX = 256,
	CONFIG_UIDS_MAX = 64,
};

struct config_cpus {
	uint32_t n;
	int cpu[CONFIG_CPUS_MAX]; /* in the order written, none twice */
};

struct config_uids {
	uint32_t n;
	uint32_t uid[CONFIG_UIDS_MAX];
};

#define CONFIG_FIELD_path(name)   char name[CONFIG_PATH_BYTES];
#define CONFIG_FIELD_choice(name) char name[CONFIG_CHOICE_BYTES]; /* one of the choices */
#define CONFIG_FIELD_number(name) int64_t name;
#define CONFIG_FIELD_bytes(name)  int64_t name;
#define CONFIG_FIELD_octal(name)  int64_t name;
#define CONFIG_FIELD_cpus(name)   struct config_cpus name;
#define CONFIG_FIELD_uids(name)   struct config_uids name;

struct config {
#define X(kind, name, unit, lower, upper, initial, choices, reload, help) CONFIG_FIELD_##kind(name)
	CONFIG_OPTIONS(X)
#undef X
};

enum config_index {
#define X(kind, name, unit, lower, upper, initial, choices, reload, help) CONFIG_INDEX_##name,
	CONFIG_OPTIONS(X)
#undef X
	    CONFIG_OPTION_COUNT
};

enum config_kind {
	CONFIG_KIND_path,
	CONFIG_KIND_choice,
	CONFIG_KIND_number,
	CONFIG_KIND_bytes,
	CONFIG_KIND_octal,
	CONFIG_KIND_cpus,
	CONFIG_KIND_uids,
};

struct config_option {
	const char *name;
	enum config_kind kind;
	const char *unit;
	int64_t lower, upper;
	const char *initial; /* the default, as it would be written */
	const char *choices; /* "a|b|c" */
	int reload;
	const char *help;
	size_t offset, bytes; /* of the value in struct config */
};

/* One row an option, in the order of the table. */
extern const struct config_option config_options[CONFIG_OPTION_COUNT];

/* What the command line asks for besides options. */
enum config_action { CONFIG_RUN, CONFIG_HELP, CONFIG_VERSION, CONFIG_PRINT };

void config_defaults(struct config *);

/* The option of this name, or NULL. */
const struct config_option *config_find(const char *name);

/* Sets one option from text. `where` begins the sentence: "tokenring.conf:3" or "command line". `config` may
 * be NULL if there is no such option. */
int config_set(struct config *, const char *where, const char *name, const char *value, char *why,
	       size_t why_bytes);

/* An ini text; `name` stands for it in sentences. Pure: reads (text, bytes) and nothing else. */
int config_read_text(struct config *, const char *name, const char *text, size_t bytes, char *why,
		     size_t why_bytes);

int config_read_file(struct config *, const char *path, char *why, size_t why_bytes);

/* Defaults, the file of --config, the other flags, then the check of what belongs together. Flags are
 * --name VALUE and --name=VALUE, with - or _ in names. With CONFIG_HELP and CONFIG_VERSION no
 * file is read and *ret holds the defaults. */
int config_load(struct config *ret, enum config_action *ret_action, int argc, char *const argv[], char *why,
		size_t why_bytes);

/* What no single option can know: powers of two, rings and in-flight numbers that fit each other. */
int config_check(const struct config *, char *why, size_t why_bytes);

/* Takes from `fresh` what may change while running. `kept` receives the names of other options that differ,
 * separated by ", " and cut off with "..." when there is no room; it is empty if there are none. Returns how
 * many options changed. */
unsigned config_reload(struct config *, const struct config *fresh, char *kept, size_t kept_bytes);

/* The value as it would be written in a file; returns its length as snprintf does. */
int config_format(const struct config *, enum config_index, char *text, size_t bytes);

void config_print_help(FILE *);

/* A complete file: each option with its help; commented out where `config` has the default. */
void config_print(const struct config *, FILE *);

#endif

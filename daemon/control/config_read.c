/* Options from a file and from the command line. */
#include "daemon/control/config.h"

#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_FILE_BYTES_MAX = 1 << 20, NAME_BYTES = 64 };

/* The library counts no lines for its handler and cuts long lines in two without a word, so that its reader
 * is ours. */
struct ini_walk {
	struct config *config;
	const char *name;
	const char *at, *end;
	int line;
	int line_of[CONFIG_OPTION_COUNT]; /* where an option was set, 0: not yet */
	bool failed;
	char *why;
	size_t why_bytes;
};

static int fail_at(struct ini_walk *walk, int line, const char *sentence)
{
	if (!walk->failed)
		snprintf(walk->why, walk->why_bytes, "%s:%d: %s", walk->name, line, sentence);
	walk->failed = true;
	return 0;
}

/* fgets over the text. */
static char *next_line(char *line, int room, void *data)
{
	struct ini_walk *walk = data;
	size_t left = (size_t)(walk->end - walk->at);

	if (walk->failed || !left || room < 2)
		return NULL;
	const char *newline = memchr(walk->at, '\n', left);
	size_t bytes = newline ? (size_t)(newline - walk->at) + 1 : left;
	walk->line++;
	if (bytes >= (size_t)room) {
		fail_at(walk, walk->line, "the line is too long; give such a value as a flag");
		return NULL;
	}
	if (memchr(walk->at, '\0', bytes)) {
		fail_at(walk, walk->line, "a zero byte: this is no text file");
		return NULL;
	}
	memcpy(line, walk->at, bytes);
	line[bytes] = '\0';
	walk->at += bytes;
	return line;
}

/* Called for each "name = value"; 0 stops counting this line as good. */
static int take_pair(void *data, const char *section, const char *name, const char *value)
{
	struct ini_walk *walk = data;
	const struct config_option *option = config_find(name);
	char text[256];

	if (walk->failed)
		return 0;
	if (*section) {
		snprintf(text, sizeof(text), "there are no sections; remove [%.64s]", section);
		return fail_at(walk, walk->line, text);
	}
	if (option && walk->line_of[option - config_options]) {
		snprintf(text, sizeof(text), "%s is already set in line %d; remove one of the two", name,
			 walk->line_of[option - config_options]);
		return fail_at(walk, walk->line, text);
	}
	if (option)
		walk->line_of[option - config_options] = walk->line;
	snprintf(text, sizeof(text), "%.200s:%d", walk->name, walk->line);
	if (config_set(walk->config, text, name, value, walk->why, walk->why_bytes) == 0)
		return 1;
	walk->failed = true;
	return 0;
}

int config_read_text(struct config *config, const char *name, const char *text, size_t bytes, char *why,
		     size_t why_bytes)
{
	struct config parsed = *config;
	struct ini_walk walk = {.config = &parsed,
				.name = name,
				.at = text,
				.end = text + bytes,
				.why = why,
				.why_bytes = why_bytes};
	int bad_line = ini_parse_stream(next_line, &walk, take_pair, &walk);

	if (bad_line && !walk.failed)
		fail_at(&walk, bad_line > 0 ? bad_line : walk.line, "this is no \"name = value\"");
	if (walk.failed)
		return -EINVAL;
	*config = parsed;
	return 0;
}

int config_read_file(struct config *config, const char *path, char *why, size_t why_bytes)
{
	FILE *file = fopen(path, "re");
	char *text = file ? malloc(CONFIG_FILE_BYTES_MAX) : NULL;
	size_t bytes = text ? fread(text, 1, CONFIG_FILE_BYTES_MAX, file) : 0;
	int result = !file || !text || ferror(file) ? -(errno ? errno : EIO) : 0;

	if (result)
		snprintf(why, why_bytes, "cannot read the configuration %s: %s", path, strerror(-result));
	else if (bytes == CONFIG_FILE_BYTES_MAX) {
		snprintf(why, why_bytes, "%s is larger than 1 MiB: this is no configuration", path);
		result = -EFBIG;
	} else
		result = config_read_text(config, path, text, bytes, why, why_bytes);
	free(text);
	if (file)
		fclose(file);
	return result;
}

/* The words of a command line, sorted but not yet parsed. */
struct command_line {
	enum config_action action;
	const char *file;
	const char *value[CONFIG_OPTION_COUNT]; /* NULL: not given */
};

/* "--max-queue=5" and "--max_queue" both name max_queue. Returns what follows the "=", or NULL. */
static const char *split_flag(const char *word, char name[static NAME_BYTES])
{
	size_t bytes = strcspn(word, "=");

	snprintf(name, NAME_BYTES, "%.*s", (int)(bytes < NAME_BYTES ? bytes : NAME_BYTES), word);
	for (char *c = name; *c; c++)
		if (*c == '-')
			*c = '_';
	return word[bytes] ? word + bytes + 1 : NULL;
}

static bool take_action(const char *name, enum config_action *ret)
{
	static const struct {
		const char *name;
		enum config_action action;
	} actions[] = {{"help", CONFIG_HELP}, {"version", CONFIG_VERSION}, {"print_config", CONFIG_PRINT}};

	for (size_t i = 0; i < sizeof(actions) / sizeof(*actions); i++)
		if (strcmp(name, actions[i].name) == 0) {
			*ret = actions[i].action;
			return true;
		}
	return false;
}

/* Takes the flag at argv[*at] and moves *at to its last word. */
static int take_flag(struct command_line *line, int argc, char *const argv[], int *at, char *why,
		     size_t why_bytes)
{
	const char *word = argv[*at];
	char name[NAME_BYTES];

	if (strncmp(word, "--", 2) != 0 || !word[2]) {
		snprintf(why, why_bytes, "command line: \"%.64s\" is no option; tokenringd --help lists them",
			 word);
		return -EINVAL;
	}
	const char *value = split_flag(word + 2, name);
	if (!value && take_action(name, &line->action))
		return 0;
	const struct config_option *option = config_find(name);
	const char **place = option ? &line->value[option - config_options] : &line->file;
	if (!option && strcmp(name, "config") != 0)
		return config_set(NULL, "command line", name, "", why, why_bytes); /* names the nearest */
	if (!value && ++*at == argc) {
		snprintf(why, why_bytes, "command line: %s needs a value", word);
		return -EINVAL;
	}
	if (*place) {
		snprintf(why, why_bytes, "command line: --%s is given twice; remove one of the two", name);
		return -EINVAL;
	}
	*place = value ? value : argv[*at];
	return 0;
}

static int apply(struct config *config, const struct command_line *line, char *why, size_t why_bytes)
{
	int result = line->file ? config_read_file(config, line->file, why, why_bytes) : 0;

	for (size_t i = 0; i < CONFIG_OPTION_COUNT && result == 0; i++)
		if (line->value[i])
			result = config_set(config, "command line", config_options[i].name, line->value[i],
					    why, why_bytes);
	return result ? result : config_check(config, why, why_bytes);
}

int config_load(struct config *ret, enum config_action *ret_action, int argc, char *const argv[], char *why,
		size_t why_bytes)
{
	struct command_line line = {.action = CONFIG_RUN};
	struct config config;
	int result = 0;

	for (int i = 1; i < argc && result == 0; i++)
		result = take_flag(&line, argc, argv, &i, why, why_bytes);
	config_defaults(&config);
	if (result == 0 && (line.action == CONFIG_RUN || line.action == CONFIG_PRINT))
		result = apply(&config, &line, why, why_bytes);
	if (result)
		return result;
	*ret = config;
	*ret_action = line.action;
	return 0;
}

/* Options as text: for a file, for --help, for people. */
#include "daemon/control/config.h"

#include <string.h>

enum { WRAP_COLUMNS = 96, VALUE_BYTES = 4096 };

static int64_t scalar(const void *value)
{
	int64_t number;

	memcpy(&number, value, sizeof(number));
	return number;
}

static int format_bytes(int64_t bytes, char *text, size_t room)
{
	static const char suffixes[] = {'\0', 'K', 'M', 'G'};
	int steps = 0;

	while (steps < 3 && bytes && bytes % 1024 == 0) {
		bytes /= 1024;
		steps++;
	}
	return snprintf(text, room, "%lld%.1s", (long long)bytes, &suffixes[steps]);
}

/* "0-3,6" from its members; neighbours become a range. */
static int format_cpus(const struct config_cpus *list, char *text, size_t room)
{
	int used = 0;

	if (room)
		text[0] = '\0';
	for (uint32_t i = 0, last; i < list->n; i = last + 1) {
		for (last = i; last + 1 < list->n && list->cpu[last + 1] == list->cpu[last] + 1;)
			last++;
		size_t left = (size_t)used < room ? room - (size_t)used : 0;
		used += snprintf(left ? text + used : NULL, left, last > i ? "%s%d-%d" : "%s%d", i ? "," : "",
				 list->cpu[i], list->cpu[last]);
	}
	return used;
}

static int format_uids(const struct config_uids *list, char *text, size_t room)
{
	int used = 0;

	if (room)
		text[0] = '\0';
	for (uint32_t i = 0; i < list->n; i++) {
		size_t left = (size_t)used < room ? room - (size_t)used : 0;
		used += snprintf(left ? text + used : NULL, left, "%s%u", i ? "," : "", list->uid[i]);
	}
	return used;
}

int config_format(const struct config *config, enum config_index index, char *text, size_t bytes)
{
	const struct config_option *option = &config_options[index];
	const void *value = (const char *)config + option->offset;

	switch (option->kind) {
	case CONFIG_KIND_path:
	case CONFIG_KIND_choice:
		return snprintf(text, bytes, "%s", (const char *)value);
	case CONFIG_KIND_octal:
		return snprintf(text, bytes, "%04llo", (unsigned long long)scalar(value));
	case CONFIG_KIND_bytes:
		return format_bytes(scalar(value), text, bytes);
	case CONFIG_KIND_cpus:
		return format_cpus(value, text, bytes);
	case CONFIG_KIND_uids:
		return format_uids(value, text, bytes);
	case CONFIG_KIND_number:
		break;
	}
	return snprintf(text, bytes, "%lld", (long long)scalar(value));
}

/* Prints words in lines that begin with `indent`. */
static void print_wrapped(FILE *file, const char *indent, const char *text)
{
	size_t column = 0;

	for (size_t bytes; *text; text += bytes + (text[bytes] == ' ')) {
		bytes = strcspn(text, " ");
		if (column && column + 1 + bytes > WRAP_COLUMNS) {
			fputc('\n', file);
			column = 0;
		}
		column += (size_t)fprintf(file, "%s%.*s", column ? " " : indent, (int)bytes, text);
	}
	fputc('\n', file);
}

/* "1 to 65536 tokens; default 512; SIGHUP takes a new value". */
static void describe(const struct config_option *option, char *text, size_t room)
{
	char range[128] = "", lower[32], upper[32];

	if (option->kind == CONFIG_KIND_choice)
		snprintf(range, sizeof(range), "%s; ", option->choices);
	else if (option->kind == CONFIG_KIND_number)
		snprintf(range, sizeof(range), "%lld to %lld%s%s; ", (long long)option->lower,
			 (long long)option->upper, *option->unit ? " " : "", option->unit);
	else if (option->kind == CONFIG_KIND_bytes && option->upper < INT64_MAX) {
		format_bytes(option->lower, lower, sizeof(lower));
		format_bytes(option->upper, upper, sizeof(upper));
		snprintf(range, sizeof(range), "%s to %s bytes; ", lower, upper);
	} else if (option->kind == CONFIG_KIND_bytes)
		snprintf(range, sizeof(range), "bytes; ");
	snprintf(text, room, "%sdefault %s%s", range, *option->initial ? option->initial : "empty",
		 option->reload ? "; SIGHUP takes a new value" : "");
}

void config_print_help(FILE *file)
{
	fputs("tokenringd: serves a language model to the programs of this host through rings in shared "
	      "memory.\n"
	      "\n"
	      "usage: tokenringd --model FILE [--config FILE] [--OPTION VALUE]...\n"
	      "       tokenringd --help | --version | --print-config\n"
	      "\n"
	      "Options are read from the file of --config, then from flags, which win. --print-config prints "
	      "a\n"
	      "complete file. Sizes take K, M and G.\n",
	      file);
	for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
		const struct config_option *option = &config_options[i];
		char facts[256], flag[64];
		snprintf(flag, sizeof(flag), "%s", option->name);
		for (char *c = flag; *c; c++)
			if (*c == '_')
				*c = '-';
		describe(option, facts, sizeof(facts));
		fprintf(file, "\n  --%s\n", flag);
		print_wrapped(file, "      ", option->help);
		print_wrapped(file, "      ", facts);
	}
}

void config_print(const struct config *config, FILE *file)
{
	fputs("# Configuration of tokenringd. A line that begins with # is a remark; what is commented out "
	      "is the\n"
	      "# default. The same options work as flags: --max-queue 2048.\n",
	      file);
	for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
		const struct config_option *option = &config_options[i];
		char facts[256], value[VALUE_BYTES], initial[VALUE_BYTES];
		struct config defaults;
		config_defaults(&defaults);
		config_format(config, (enum config_index)i, value, sizeof(value));
		config_format(&defaults, (enum config_index)i, initial, sizeof(initial));
		describe(option, facts, sizeof(facts));
		fputc('\n', file);
		print_wrapped(file, "# ", option->help);
		print_wrapped(file, "# ", facts);
		fprintf(file, "%s%s =%s%s\n", strcmp(value, initial) ? "" : "#", option->name,
			*value ? " " : "", value);
	}
}

/* The table of options, and a value from text. */
#include "daemon/control/config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct config_option config_options[CONFIG_OPTION_COUNT] = {
#define X(kind, name, unit, lower, upper, initial, choices, reload, help) \
	{#name,                                                           \
	 CONFIG_KIND_##kind,                                              \
	 unit,                                                            \
	 lower,                                                           \
	 upper,                                                           \
	 initial,                                                         \
	 choices,                                                         \
	 reload,                                                          \
	 help,                                                            \
	 offsetof(struct config, name),                                   \
	 sizeof(((struct config *)0)->name)},
    CONFIG_OPTIONS(X)
#undef X
};

/* What a value may be, for sentences. */
static void describe_allowed(const struct config_option *option, char *text, size_t bytes)
{
	const char *space = *option->unit ? " " : "";

	switch (option->kind) {
	case CONFIG_KIND_path:
		snprintf(text, bytes, "a path of at most %lld bytes", (long long)option->upper);
		break;
	case CONFIG_KIND_choice:
		snprintf(text, bytes, "one of %s", option->choices);
		break;
	case CONFIG_KIND_octal:
		snprintf(text, bytes, "an octal number up to %04llo", (unsigned long long)option->upper);
		break;
	case CONFIG_KIND_cpus:
		snprintf(text, bytes, "at most %lld CPU numbers and ranges such as 0-3,6, none twice",
			 (long long)option->upper);
		break;
	case CONFIG_KIND_uids:
		snprintf(text, bytes, "at most %lld user numbers such as 991,1000", (long long)option->upper);
		break;
	case CONFIG_KIND_bytes:
		snprintf(text, bytes, "%lld to %lld bytes (K, M and G may follow the number)",
			 (long long)option->lower, (long long)option->upper);
		break;
	case CONFIG_KIND_number:
		snprintf(text, bytes, "%lld to %lld%s%s", (long long)option->lower, (long long)option->upper,
			 space, option->unit);
		break;
	}
}

/* A whole number that fills the text up to `*end`; the sign only if lower bounds may be negative. */
static bool parse_number(const char *text, int base, const char **end, int64_t *ret)
{
	const char *digits = *text == '-' ? text + 1 : text;
	if (*digits < '0' || *digits > '9')
		return false;
	char *stop;
	errno = 0;
	long long number = strtoll(text, &stop, base);
	if (errno)
		return false;
	*end = stop;
	*ret = number;
	return true;
}

static bool parse_bytes(const char *text, int64_t *ret)
{
	const char *end;
	int64_t number;
	int shift = 0;

	if (!parse_number(text, 10, &end, &number))
		return false;
	switch (*end) {
	case 'G':
		shift += 10; /* fall through */
	case 'M':
		shift += 10; /* fall through */
	case 'K':
		shift += 10;
		end++;
		break;
	default:
		break;
	}
	return !*end && !__builtin_mul_overflow(number, (int64_t)1 << shift, ret);
}

static bool parse_plain(const char *text, int base, int64_t *ret)
{
	const char *end;

	return parse_number(text, base, &end, ret) && !*end;
}

static bool is_choice(const char *choices, const char *text)
{
	size_t bytes = strlen(text), length;

	for (const char *choice = choices;; choice += length + 1) {
		length = strcspn(choice, "|");
		if (length == bytes && memcmp(choice, text, bytes) == 0)
			return true;
		if (!choice[length])
			return false;
	}
}

static bool add_cpus(struct config_cpus *list, int64_t first, int64_t last)
{
	for (int64_t cpu = first; cpu <= last; cpu++) {
		for (uint32_t i = 0; i < list->n; i++)
			if (list->cpu[i] == cpu)
				return false;
		if (list->n == CONFIG_CPUS_MAX)
			return false;
		list->cpu[list->n++] = (int)cpu;
	}
	return first <= last;
}

static bool parse_cpus(const char *text, struct config_cpus *ret)
{
	struct config_cpus list = {0};
	int64_t first, last;

	for (const char *at = text; *at; at += *at == ',') {
		if (!parse_number(at, 10, &at, &first) || first < 0 || first > 8191)
			return false;
		last = first;
		if (*at == '-' && !parse_number(at + 1, 10, &at, &last))
			return false;
		if (last > 8191 || !add_cpus(&list, first, last) || (*at && (*at != ',' || !at[1])))
			return false;
	}
	*ret = list;
	return true;
}

static bool parse_uids(const char *text, struct config_uids *ret)
{
	struct config_uids list = {0};
	int64_t uid;

	for (const char *at = text; *at; at += *at == ',') {
		if (!parse_number(at, 10, &at, &uid) || uid < 0 || uid >= UINT32_MAX ||
		    list.n == CONFIG_UIDS_MAX)
			return false;
		if (*at && (*at != ',' || !at[1]))
			return false;
		list.uid[list.n++] = (uint32_t)uid;
	}
	*ret = list;
	return true;
}

static bool parse_scalar(const struct config_option *option, const char *text, int64_t *ret)
{
	int64_t number;
	bool parsed = option->kind == CONFIG_KIND_bytes
			  ? parse_bytes(text, &number)
			  : parse_plain(text, option->kind == CONFIG_KIND_octal ? 8 : 10, &number);

	if (!parsed || number < option->lower || number > option->upper)
		return false;
	*ret = number;
	return true;
}

/* The bytes after the text are zero too, so that equal values are equal bytes. */
static bool set_text(char *ret, size_t bytes, const char *text)
{
	memset(ret, 0, bytes);
	snprintf(ret, bytes, "%s", text);
	return true;
}

static bool parse_value(const struct config_option *option, const char *text, void *ret)
{
	switch (option->kind) {
	case CONFIG_KIND_path:
		if (strlen(text) > (size_t)option->upper)
			return false;
		return set_text(ret, option->bytes, text);
	case CONFIG_KIND_choice:
		return is_choice(option->choices, text) && set_text(ret, option->bytes, text);
	case CONFIG_KIND_cpus:
		return parse_cpus(text, ret);
	case CONFIG_KIND_uids:
		return parse_uids(text, ret);
	case CONFIG_KIND_number:
	case CONFIG_KIND_bytes:
	case CONFIG_KIND_octal:
		return parse_scalar(option, text, ret);
	}
	return false;
}

/* Damerau's distance without transpositions, bounded by the lengths of option names. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[64];
	size_t a_bytes = strlen(a), b_bytes = strlen(b);

	if (a_bytes >= 64 || b_bytes >= 64)
		return UINT32_MAX;
	for (size_t j = 0; j <= b_bytes; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= a_bytes; i++) {
		unsigned diagonal = row[0];
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_bytes; j++) {
			unsigned above = row[j], least = diagonal + (a[i - 1] != b[j - 1]);
			if (above + 1 < least)
				least = above + 1;
			if (row[j - 1] + 1 < least)
				least = row[j - 1] + 1;
			diagonal = above;
			row[j] = least;
		}
	}
	return row[b_bytes];
}

static const struct config_option *nearest_option(const char *name)
{
	const struct config_option *nearest = NULL;
	unsigned least = 4; /* further away it is no typing mistake */

	for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
		unsigned far = distance(name, config_options[i].name);
		if (far < least) {
			least = far;
			nearest = &config_options[i];
		}
	}
	return nearest;
}

const struct config_option *config_find(const char *name)
{
	for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++)
		if (strcmp(config_options[i].name, name) == 0)
			return &config_options[i];
	return NULL;
}

int config_set(struct config *config, const char *where, const char *name, const char *value, char *why,
	       size_t why_bytes)
{
	const struct config_option *option = config_find(name);
	char allowed[160];

	if (!option) {
		const struct config_option *nearest = nearest_option(name);
		snprintf(why, why_bytes, "%s: there is no option \"%.64s\"%s%s%s", where, name,
			 nearest ? "; did you mean " : "; tokenringd --help lists them",
			 nearest ? nearest->name : "", nearest ? "?" : "");
		return -EINVAL;
	}
	if (parse_value(option, value, (char *)config + option->offset))
		return 0;
	describe_allowed(option, allowed, sizeof(allowed));
	snprintf(why, why_bytes, "%s: %s = \"%.64s\" is not allowed: give %s", where, name, value, allowed);
	return -EINVAL;
}

void config_defaults(struct config *config)
{
	memset(config, 0, sizeof(*config));
	for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++)
		parse_value(&config_options[i], config_options[i].initial,
			    (char *)config + config_options[i].offset);
}

static bool is_power_of_two(int64_t number)
{
	return number > 0 && (number & (number - 1)) == 0;
}

int config_check(const struct config *config, char *why, size_t why_bytes)
{
	const struct {
		const char *name;
		int64_t slots;
	} rings[] = {{"sq_slots", config->sq_slots}, {"cq_slots", config->cq_slots}};

	for (size_t i = 0; i < 2; i++)
		if (!is_power_of_two(rings[i].slots)) {
			snprintf(why, why_bytes, "%s = %lld is not a power of two; 256 and 1024 are",
				 rings[i].name, (long long)rings[i].slots);
			return -EINVAL;
		}
	if (config->cq_slots < 2 * config->max_inflight) {
		snprintf(why, why_bytes,
			 "cq_slots = %lld is less than twice max_inflight = %lld; raise the one or lower the "
			 "other",
			 (long long)config->cq_slots, (long long)config->max_inflight);
		return -EINVAL;
	}
	if (config->max_context_tokens && config->max_prompt_tokens > config->max_context_tokens) {
		snprintf(why, why_bytes,
			 "max_prompt_tokens = %lld is more than max_context_tokens = %lld; a prompt is part "
			 "of the context",
			 (long long)config->max_prompt_tokens, (long long)config->max_context_tokens);
		return -EINVAL;
	}
	return 0;
}

unsigned config_reload(struct config *config, const struct config *fresh, char *kept, size_t kept_bytes)
{
	unsigned changed = 0;
	size_t used = 0;

	if (kept_bytes)
		kept[0] = '\0';
	for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
		const struct config_option *option = &config_options[i];
		char *mine = (char *)config + option->offset;
		const char *theirs = (const char *)fresh + option->offset;
		if (memcmp(mine, theirs, option->bytes) == 0)
			continue;
		if (option->reload) {
			memcpy(mine, theirs, option->bytes);
			changed++;
		} else if (used < kept_bytes) {
			int length =
			    snprintf(kept + used, kept_bytes - used, "%s%s", used ? ", " : "", option->name);
			used += length > 0 ? (size_t)length : 0;
			if (used >= kept_bytes && kept_bytes > 3)
				memcpy(kept + kept_bytes - 4, "...", 4);
		}
	}
	return changed;
}

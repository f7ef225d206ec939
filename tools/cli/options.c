#include "tools/cli/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parse {
	const struct option_table *table;
	char *fields;
	int argc, next, kept;
	const char **argv;
	char *why;
	size_t why_bytes;
};

__attribute__((format(printf, 2, 3))) static int usage(struct parse *p, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(p->why, p->why_bytes, format, args);
	va_end(args);
	return -EINVAL;
}

static const struct option_row *find(const struct option_table *table, const char *name, size_t length)
{
	for (size_t i = 0; i < table->n; i++) {
		const struct option_row *row = &table->rows[i];
		if (strlen(row->name) == length && !memcmp(row->name, name, length))
			return row;
	}
	return NULL;
}

static const struct option_row *find_letter(const struct option_table *table, char letter)
{
	for (size_t i = 0; i < table->n; i++)
		if (table->rows[i].letter == letter)
			return &table->rows[i];
	return NULL;
}

static int set_number(struct parse *p, const struct option_row *row, const char *value)
{
	char *end;
	errno = 0;
	unsigned long long number = strtoull(value, &end, 10);
	bool digits = value[0] >= '0' && value[0] <= '9';
	if (!digits || *end || errno || (double)number < row->min || (double)number > row->max)
		return usage(p, "--%s wants a whole number from %.0f to %" PRIu64 ", not \"%s\"", row->name,
			     row->min, row->max < 0x1p64 ? (uint64_t)row->max : UINT64_MAX, value);
	uint64_t field = number;
	memcpy(p->fields + row->offset, &field, sizeof field);
	return 0;
}

static int set_real(struct parse *p, const struct option_row *row, const char *value)
{
	char *end;
	double number = strtod(value, &end);
	if (end == value || *end || !isfinite(number) || number < row->min || number > row->max)
		return usage(p, "--%s wants a number from %g to %g, not \"%s\"", row->name, row->min,
			     row->max, value);
	memcpy(p->fields + row->offset, &number, sizeof number);
	return 0;
}

static int add_text(struct parse *p, const struct option_row *row, const char *value)
{
	struct option_list *list = (void *)(p->fields + row->offset);
	if (list->n == OPTIONS_LIST_MAX)
		return usage(p, "--%s may be given %d times at most", row->name, OPTIONS_LIST_MAX);
	list->text[list->n++] = value;
	return 0;
}

static int set(struct parse *p, const struct option_row *row, const char *value)
{
	switch (row->type) {
	case OPTION_FLAG:
		*(bool *)(p->fields + row->offset) = true;
		return 0;
	case OPTION_NUMBER:
		return set_number(p, row, value);
	case OPTION_REAL:
		return set_real(p, row, value);
	case OPTION_TEXT:
		*(const char **)(p->fields + row->offset) = value;
		return 0;
	case OPTION_LIST:
		return add_text(p, row, value);
	}
	return -EINVAL;
}

/* `attached` is the value after "=" or after the letter, NULL if there is none. */
static int take(struct parse *p, const struct option_row *row, const char *attached)
{
	if (row->type == OPTION_FLAG)
		return attached ? usage(p, "--%s takes no value", row->name) : set(p, row, "");
	if (!attached && p->next == p->argc)
		return usage(p, "--%s wants a value: %s", row->name, row->value);
	return set(p, row, attached ? attached : p->argv[p->next++]);
}

static int take_long(struct parse *p, const char *word)
{
	const char *equals = strchr(word, '=');
	size_t length = equals ? (size_t)(equals - word) : strlen(word);
	const struct option_row *row = find(p->table, word, length);
	if (!row)
		return usage(p, "there is no option --%.*s", (int)length, word);
	return take(p, row, equals ? equals + 1 : NULL);
}

static int take_letter(struct parse *p, const char *word)
{
	const struct option_row *row = find_letter(p->table, word[0]);
	if (!row)
		return usage(p, "there is no option -%s", word);
	return take(p, row, word[1] ? word + 1 : NULL);
}

int options_parse(const struct option_table *table, void *fields, int argc, const char **argv,
		  struct positionals *ret_positionals, char *why, size_t why_bytes)
{
	struct parse p = {
	    .table = table, .fields = fields, .argc = argc, .argv = argv, .why = why, .why_bytes = why_bytes};
	bool only_positionals = false;
	while (p.next < argc) {
		const char *word = argv[p.next++];
		int r = 0;
		if (only_positionals || word[0] != '-' || !word[1])
			argv[p.kept++] = word;
		else if (!strcmp(word, "--"))
			only_positionals = true;
		else
			r = word[1] == '-' ? take_long(&p, word + 2) : take_letter(&p, word + 1);
		if (r)
			return r;
	}
	*ret_positionals = (struct positionals){.n = (size_t)p.kept, .text = argv};
	return 0;
}

size_t options_help(const struct option_table *table, char *text, size_t bytes)
{
	size_t used = 0;
	for (size_t i = 0; i < table->n; i++) {
		const struct option_row *row = &table->rows[i];
		char left[64], letter[8] = "";
		if (row->letter)
			snprintf(letter, sizeof letter, "-%c, ", row->letter);
		snprintf(left, sizeof left, "%s--%s%s%s", letter, row->name, row->value ? " " : "",
			 row->value ? row->value : "");
		size_t room = used < bytes ? bytes - used : 0;
		int n = snprintf(room ? text + used : NULL, room, "  %-24s %s\n", left, row->help);
		used += n > 0 ? (size_t)n : 0;
	}
	return used;
}

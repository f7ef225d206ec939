#include "tools/cli/json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_space(const char *at)
{
	return at + strspn(at, " \t\r\n");
}

/* Past the closing quote of the string that begins at `at`; NULL if it has none. */
static const char *skip_string(const char *at)
{
	for (at++; *at && *at != '"'; at++)
		if (*at == '\\' && at[1])
			at++;
	return *at ? at + 1 : NULL;
}

/* The value of the first `key` that is followed by a colon. */
static const char *find_value(const char *json, const char *key)
{
	size_t length = strlen(key);
	for (const char *at = json; at && *at;) {
		if (*at != '"') {
			at++;
			continue;
		}
		const char *end = skip_string(at);
		if (!end)
			return NULL;
		bool same = (size_t)(end - at) == length + 2 && !memcmp(at + 1, key, length);
		at = skip_space(end);
		if (same && *at == ':')
			return skip_space(at + 1);
	}
	return NULL;
}

bool json_number(const char *json, const char *key, double *ret)
{
	const char *value = find_value(json, key);
	if (!value || (*value != '-' && !isdigit((unsigned char)*value)))
		return false;
	*ret = strtod(value, NULL);
	return true;
}

/* The byte that an escape stands for, past the backslash at `*at`; of \uXXXX only ASCII is kept. */
static char unescape(const char **at)
{
	static const char letters[] = "n\nt\tr\rb\bf\f";
	const char *found = strchr(letters, **at);
	if (**at == 'u') {
		char digits[5] = {0};
		for (int i = 0; i < 4 && isxdigit((unsigned char)(*at)[1]); i++)
			digits[i] = *++*at;
		unsigned long code = strtoul(digits, NULL, 16);
		return code < 0x80 ? (char)code : '?';
	}
	return found && (found - letters) % 2 == 0 ? found[1] : **at;
}

bool json_text(const char *json, const char *key, char *ret, size_t bytes)
{
	const char *value = find_value(json, key);
	const char *end = value && *value == '"' ? skip_string(value) : NULL;
	if (!end || (size_t)(end - value) - 1 > bytes)
		return false;
	size_t n = 0;
	for (const char *at = value + 1; at < end - 1; at++) {
		if (*at == '\\' && at++)
			ret[n++] = unescape(&at);
		else
			ret[n++] = *at;
	}
	ret[n] = 0;
	return true;
}

/* Past the value at `at`; NULL if it does not end. */
static const char *skip_value(const char *at)
{
	int depth = 0;
	do {
		if (*at == '"') {
			at = skip_string(at);
			if (!at)
				return NULL;
			continue;
		}
		depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
		at++;
	} while (*at && (depth > 0 || (depth == 0 && !strchr(",]}", *at))));
	return depth == 0 ? at : NULL;
}

bool json_elements(const char *json, const char *key, void (*each)(void *context, const char *element),
		   void *context)
{
	const char *at = find_value(json, key);
	if (!at || *at != '[')
		return false;
	for (at = skip_space(at + 1); *at && *at != ']'; at = skip_space(at + (*at == ','))) {
		const char *end = skip_value(at);
		char *element = end ? strndup(at, (size_t)(end - at)) : NULL;
		if (!element)
			return false;
		each(context, element);
		free(element);
		at = end;
	}
	return *at == ']';
}

void json_print_text(FILE *file, const char *text)
{
	fputc('"', file);
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;
		if (byte == '"' || byte == '\\')
			fprintf(file, "\\%c", byte);
		else if (byte < 0x20)
			fprintf(file, "\\u%04x", byte);
		else
			fputc(byte, file);
	}
	fputc('"', file);
}

struct printer {
	FILE *file;
	const char *at;
	unsigned depth;
	char path[256];
};

enum { DEPTH_MAX = 16 };

static bool print_value(struct printer *p);

static bool print_scalar(struct printer *p)
{
	const char *end = *p->at == '"' ? skip_string(p->at) : p->at + strcspn(p->at, ",]} \t\r\n");
	if (!end || end == p->at)
		return false;
	bool text = *p->at == '"';
	fprintf(p->file, "%-28s %.*s\n", p->path, (int)(end - p->at) - 2 * text, p->at + text);
	p->at = end;
	return true;
}

/* Prints the member whose name is appended to the path while it is printed. */
static bool print_member(struct printer *p, const char *name, size_t bytes)
{
	size_t length = strlen(p->path);
	snprintf(p->path + length, sizeof p->path - length, "%s%.*s", length ? "." : "", (int)bytes, name);
	bool good = print_value(p);
	p->path[length] = 0;
	p->at = skip_space(p->at);
	return good;
}

static bool print_members(struct printer *p, char close)
{
	unsigned index = 0;
	for (p->at = skip_space(p->at + 1); *p->at != close; p->at = skip_space(p->at)) {
		char number[16];
		const char *name = number;
		size_t bytes = (size_t)snprintf(number, sizeof number, "%u", index++);
		if (close == '}') {
			const char *end = *p->at == '"' ? skip_string(p->at) : NULL;
			if (!end || *skip_space(end) != ':')
				return false;
			name = p->at + 1;
			bytes = (size_t)(end - p->at) - 2;
			p->at = skip_space(end) + 1;
		}
		if (!print_member(p, name, bytes) || (*p->at != ',' && *p->at != close))
			return false;
		p->at += *p->at == ',';
	}
	p->at++;
	return true;
}

static bool print_value(struct printer *p)
{
	p->at = skip_space(p->at);
	if (*p->at != '{' && *p->at != '[')
		return print_scalar(p);
	if (p->depth == DEPTH_MAX)
		return false;
	p->depth++;
	bool good = print_members(p, *p->at == '{' ? '}' : ']');
	p->depth--;
	return good;
}

bool json_print_lines(FILE *file, const char *json)
{
	struct printer p = {.file = file, .at = json};
	return print_value(&p) && !*skip_space(p.at);
}

/* The 10,000 lines of the tokenizer's golden values: the generator of tests/golden/make_tokenizer_golden.py
 * in C. */
#ifndef TOKENRING_TESTS_TOKENIZER_LINES_H
#define TOKENRING_TESTS_TOKENIZER_LINES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_LINES = 10000, MAX_FRAGMENTS = 4096, MAX_LINE_BYTES = 1 << 14 };

struct fragments {
	char *text[MAX_FRAGMENTS];
	size_t bytes[MAX_FRAGMENTS];
	size_t n;
};

static inline const char *golden_path(const char *name)
{
	static char path[1024];
	const char *root = getenv("TOKENRING_SOURCE_ROOT");
	snprintf(path, sizeof path, "%s/tests/golden/tokenizer/%s", root ? root : ".", name);
	return path;
}

static inline size_t unescape(const char *line, char *out)
{
	size_t n = 0;
	unsigned byte;
	for (; *line && *line != '\n'; n++) {
		if (sscanf(line, "\\x%2x", &byte) == 1) {
			out[n] = (char)byte;
			line += 4;
		} else {
			out[n] = *line++;
		}
	}
	return n;
}

/* False if the file is missing. */
static inline int fragments_read(struct fragments *f)
{
	static char line[1 << 14], bytes[1 << 14];
	FILE *file = fopen(golden_path("fragments.txt"), "r");
	if (!file)
		return 0;
	f->n = 0;
	while (f->n < MAX_FRAGMENTS && fgets(line, sizeof line, file)) {
		size_t n = unescape(line, bytes);
		f->text[f->n] = malloc(n + 1);
		memcpy(f->text[f->n], bytes, n);
		f->bytes[f->n++] = n;
	}
	fclose(file);
	return f->n > 0;
}

static inline void fragments_free(struct fragments *f)
{
	while (f->n)
		free(f->text[--f->n]);
}

static inline uint64_t splitmix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Line `number` into `out` (MAX_LINE_BYTES); returns its bytes. */
static inline size_t compose_line(const struct fragments *f, uint64_t number, char *out)
{
	size_t bytes = 0;
	uint64_t state = number;
	unsigned parts = number ? 1 + (unsigned)(splitmix(&state) % 10) : 0;
	for (unsigned i = 0; i < parts; i++) {
		uint64_t r = splitmix(&state);
		size_t k = (uint32_t)r % f->n;
		if (r >> 40 & 1)
			out[bytes++] = ' ';
		memcpy(out + bytes, f->text[k], f->bytes[k]);
		bytes += f->bytes[k];
	}
	return bytes;
}

static inline uint32_t fnv_bytes(uint32_t h, const void *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		h = (h ^ ((const uint8_t *)data)[i]) * 0x01000193u;
	return h;
}

#define FNV_START 0x811c9dc5u

/* The numbers of a golden file; NULL if it is missing or has not exactly n. */
static inline uint32_t *golden_read(const char *name, size_t n)
{
	FILE *file = fopen(golden_path(name), "rb");
	uint32_t *numbers = malloc((n + 1) * sizeof *numbers);
	size_t got = file ? fread(numbers, sizeof *numbers, n + 1, file) : 0;
	if (file)
		fclose(file);
	if (got == n)
		return numbers;
	free(numbers);
	return NULL;
}

#endif

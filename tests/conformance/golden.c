#include "tests/conformance/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	const uint8_t *at, *end;
	uint8_t *copies; /* members are copied here, each aligned to 8 bytes */
};

static void *take(struct reader *reader, size_t bytes)
{
	void *copy = reader->copies;

	assert_true((size_t)(reader->end - reader->at) >= bytes);
	memcpy(copy, reader->at, bytes);
	reader->at += bytes;
	reader->copies += (bytes + 7) / 8 * 8;
	return copy;
}

static uint32_t take_u32(struct reader *reader)
{
	return *(const uint32_t *)take(reader, sizeof(uint32_t));
}

static void read_prompt(struct reader *r, const struct golden *golden, struct golden_prompt *p)
{
	p->n = take_u32(r);
	p->whole = take_u32(r);
	assert_true(p->n && p->n < 4096 && p->whole <= p->n);
	p->ids = take(r, p->n * sizeof *p->ids);
	p->log_sum = take(r, p->n * sizeof *p->log_sum);
	p->top = take(r, (size_t)p->n * golden->top * sizeof *p->top);
	p->top_logits = take(r, (size_t)p->n * golden->top * sizeof(float));
	p->fixed_logits = take(r, (size_t)p->n * golden->fixed * sizeof(float));
	p->bucket_sums = take(r, (size_t)p->n * golden->buckets * sizeof(float));
	p->llama_divergence = take(r, p->n * sizeof(float));
	if (p->whole < p->n)
		p->whole_logits = take(r, golden->vocab * sizeof *p->whole_logits);
	p->greedy = take_u32(r);
	p->greedy_ids = take(r, p->greedy * sizeof(uint32_t));
	p->greedy_gaps = take(r, p->greedy * sizeof(float));
}

static size_t read_file(const char *path, uint8_t **ret)
{
	FILE *file = fopen(path, "rb");

	if (!file)
		fail_msg("cannot open %s", path);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	long bytes = ftell(file);
	rewind(file);
	*ret = malloc((size_t)bytes);
	assert_non_null(*ret);
	assert_int_equal(fread(*ret, 1, (size_t)bytes, file), bytes);
	fclose(file);
	return (size_t)bytes;
}

void golden_open(struct golden *golden, const char *path)
{
	uint8_t *file;
	size_t bytes = read_file(path, &file);

	*golden = (struct golden){.data = malloc(bytes + 8 * 16 * GOLDEN_PROMPTS_MAX)};
	assert_non_null(golden->data);
	struct reader reader = {file, file + bytes, golden->data};
	assert_memory_equal(take(&reader, 8), "TRGOLD1\n", 8);
	golden->prompts = take_u32(&reader);
	golden->vocab = take_u32(&reader);
	golden->top = take_u32(&reader);
	golden->fixed = take_u32(&reader);
	golden->buckets = take_u32(&reader);
	take_u32(&reader);
	assert_true(golden->prompts <= GOLDEN_PROMPTS_MAX);
	golden->llama_divergence = *(const double *)take(&reader, sizeof(double));
	golden->fixed_ids = take(&reader, golden->fixed * sizeof(uint32_t));
	for (uint32_t i = 0; i < golden->prompts; i++)
		read_prompt(&reader, golden, &golden->prompt[i]);
	assert_ptr_equal(reader.at, reader.end);
	free(file);
}

void golden_close(struct golden *golden)
{
	free(golden->data);
}

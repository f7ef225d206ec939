#include "kernels/ref/ref.h"

#include <errno.h>
#include <stdlib.h>

static void shape(const struct tape_weight *from, bool f32, struct ref_weight *ret)
{
	*ret = (struct ref_weight){.type = from->type, .experts = from->experts, .n = from->n, .k = from->k};
	ret->floats = f32 || !weight_type_quantised(from->type);
	ret->blocks = ret->floats ? 0 : from->k / BLOCK_COLUMNS;
	ret->panels = (from->n + REF_PANEL - 1) / REF_PANEL;
}

uint64_t ref_weight_bytes(const struct tape_weight *from, bool f32)
{
	struct ref_weight weight;

	shape(from, f32, &weight);
	uint64_t rows = (uint64_t)weight.experts * weight.n;
	if (weight.floats)
		return (uint64_t)weight.experts * weight.panels * weight.k * REF_PANEL * sizeof(float);
	uint64_t block_bytes = sizeof(float) + (weight_type_has_min(from->type) ? sizeof(float) + 2 : 0);
	return rows * weight.k * sizeof(int16_t) + rows * weight.blocks * block_bytes;
}

int ref_weight_create(const struct tape_weight *from, bool f32, struct ref_weight *ret)
{
	shape(from, f32, ret);
	size_t rows = (size_t)ret->experts * ret->n, blocks = rows * ret->blocks;

	if (ret->floats) {
		ret->panel = calloc((size_t)ret->experts * ret->panels * ret->k, REF_PANEL * sizeof(float));
		return ret->panel ? 0 : -ENOMEM;
	}
	ret->q = calloc(rows, ret->k * sizeof *ret->q);
	ret->d = calloc(blocks, sizeof *ret->d);
	if (weight_type_has_min(ret->type)) {
		ret->m = calloc(blocks, sizeof *ret->m);
		ret->min = calloc(blocks, sizeof *ret->min);
	}
	if (!ret->q || !ret->d || (weight_type_has_min(ret->type) && (!ret->m || !ret->min)))
		return -ENOMEM;
	return 0;
}

void ref_weight_destroy(struct ref_weight *weight)
{
	free(weight->q);
	free(weight->d);
	free(weight->m);
	free(weight->min);
	free(weight->panel);
}

static int load_integers(struct ref_weight *weight, size_t row, const void *raw)
{
	struct weight_block block;
	int err = 0;

	for (uint32_t b = 0; b < weight->blocks; b++) {
		size_t at = row * weight->blocks + b;
		if (weight_block_decode(weight->type, raw, b, &block) < 0)
			err = -EDOM;
		for (int j = 0; j < BLOCK_COLUMNS; j++)
			weight->q[at * BLOCK_COLUMNS + (size_t)j] =
			    (int16_t)(block.scale[j / 16] * block.q[j]);
		weight->d[at] = block.d;
		if (block.has_min) {
			weight->m[at] = block.m;
			memcpy(weight->min[at], block.min, sizeof block.min);
		}
	}
	return err;
}

static int load_floats(struct ref_weight *weight, size_t row, const void *raw)
{
	float *values = malloc((size_t)weight->k * sizeof *values);
	size_t expert = row / weight->n, n = row % weight->n;
	float *panel = weight->panel + (expert * weight->panels + n / REF_PANEL) * weight->k * REF_PANEL;
	bool quantised = weight_type_quantised(weight->type), finite = true;

	if (!values)
		return -ENOMEM;
	weight_dequantise(weight->type, raw, weight->k, values);
	for (uint32_t k = 0; k < weight->k; k++) {
		finite = finite && float_finite(values[k]);
		panel[(size_t)k * REF_PANEL + n % REF_PANEL] = values[k];
	}
	free(values);
	return finite || !quantised ? 0 : -EDOM;
}

int ref_weight_load(struct ref_weight *weight, uint32_t row, uint32_t rows, const void *raw)
{
	uint64_t row_bytes = weight_type_bytes(weight->type, weight->k);
	int err = 0;

	for (uint32_t r = 0; r < rows && !err; r++) {
		const uint8_t *from = (const uint8_t *)raw + r * row_bytes;
		err = weight->floats ? load_floats(weight, row + r, from)
				     : load_integers(weight, row + r, from);
	}
	return err;
}

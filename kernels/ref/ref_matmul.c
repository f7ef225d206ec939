#include "kernels/ref/ref.h"

enum { ROWS_TOGETHER = 4 }; /* rows that share a pass over a float panel */

static void quantise_row(struct ref_rows *input, uint32_t row, uint32_t blocks, uint8_t *bad)
{
	int8_t q[BLOCK_COLUMNS];

	for (uint32_t b = 0; b < blocks; b++) {
		size_t at = (size_t)row * blocks + b;
		int32_t sum[2] = {0, 0};
		const float *x = input->x + (size_t)row * input->stride + (size_t)b * BLOCK_COLUMNS;
		if (contract_quantise(x, q, &input->s[at]) && bad)
			*bad = 1;
		for (int j = 0; j < BLOCK_COLUMNS; j++) {
			input->q[at * BLOCK_COLUMNS + (size_t)j] = q[j];
			sum[j / 16] += q[j];
		}
		memcpy(input->sum[at], sum, sizeof sum);
	}
}

static int32_t dot(const int16_t *w, const int16_t *x)
{
	int32_t sum = 0;

	for (int j = 0; j < BLOCK_COLUMNS; j++)
		sum += (int32_t)w[j] * x[j];
	return sum;
}

static float dot_row(const struct ref_weight *w, size_t n, const struct ref_rows *input, uint32_t row)
{
	const int16_t *wq = w->q + n * w->k, *xq = input->q + (size_t)row * w->k;
	const float *d = w->d + n * w->blocks, *s = input->s + (size_t)row * w->blocks;
	float acc = 0;

	for (uint32_t b = 0; b < w->blocks; b++)
		acc = contract_block(acc, d[b], 0, 0, s[b],
				     dot(wq + b * BLOCK_COLUMNS, xq + b * BLOCK_COLUMNS), 0);
	return acc;
}

static float dot_row_min(const struct ref_weight *w, size_t n, const struct ref_rows *input, uint32_t row)
{
	const int16_t *wq = w->q + n * w->k, *xq = input->q + (size_t)row * w->k;
	size_t at = n * w->blocks, from = (size_t)row * w->blocks;
	float acc = 0;

	for (uint32_t b = 0; b < w->blocks; b++) {
		const int8_t *min = w->min[at + b];
		int32_t sum = min[0] * input->sum[from + b][0] + min[1] * input->sum[from + b][1];
		acc = contract_block(acc, w->d[at + b], w->m[at + b], 1, input->s[from + b],
				     dot(wq + b * BLOCK_COLUMNS, xq + b * BLOCK_COLUMNS), sum);
	}
	return acc;
}

static void matmul_integers(struct ref_program *program, const struct ref_weight *w, uint32_t expert,
			    float *y, uint32_t y_stride)
{
	const struct ref_rows *input = &program->input;

	for (uint32_t n = 0; n < w->n; n++) {
		size_t row = (size_t)expert * w->n + n;
		for (uint32_t r = 0; r < input->rows; r++)
			y[(size_t)r * y_stride + n] =
			    w->m ? dot_row_min(w, row, input, r) : dot_row(w, row, input, r);
		if (n % REF_PANEL == 0)
			ref_poll(program);
	}
}

/* Up to ROWS_TOGETHER rows times a panel: k ascending, one fma a term. */
static void panel_rows(const float *panel, uint32_t k, const float *const x[ROWS_TOGETHER],
		       float acc[ROWS_TOGETHER][REF_PANEL])
{
	float a[REF_PANEL] = {0}, b[REF_PANEL] = {0}, c[REF_PANEL] = {0}, d[REF_PANEL] = {0};

	for (uint32_t j = 0; j < k; j++) {
		const float *w = panel + (size_t)j * REF_PANEL;
		for (int i = 0; i < REF_PANEL; i++) {
			a[i] = fmaf(w[i], x[0][j], a[i]);
			b[i] = fmaf(w[i], x[1][j], b[i]);
			c[i] = fmaf(w[i], x[2][j], c[i]);
			d[i] = fmaf(w[i], x[3][j], d[i]);
		}
	}
	memcpy(acc[0], a, sizeof a);
	memcpy(acc[1], b, sizeof b);
	memcpy(acc[2], c, sizeof c);
	memcpy(acc[3], d, sizeof d);
}

static void matmul_floats(struct ref_program *program, const struct ref_weight *w, uint32_t expert, float *y,
			  uint32_t y_stride)
{
	const struct ref_rows *input = &program->input;
	const float *x[ROWS_TOGETHER];
	float acc[ROWS_TOGETHER][REF_PANEL];

	for (uint32_t p = 0; p < w->panels; p++) {
		const float *panel = w->panel + ((size_t)expert * w->panels + p) * w->k * REF_PANEL;
		uint32_t wide = w->n - p * REF_PANEL < REF_PANEL ? w->n - p * REF_PANEL : REF_PANEL;
		for (uint32_t r = 0; r < input->rows; r += ROWS_TOGETHER) {
			uint32_t rows = input->rows - r < ROWS_TOGETHER ? input->rows - r : ROWS_TOGETHER;
			for (uint32_t i = 0; i < ROWS_TOGETHER; i++)
				x[i] = input->x + (size_t)(r + (i < rows ? i : 0)) * input->stride;
			panel_rows(panel, w->k, x, acc);
			for (uint32_t i = 0; i < rows; i++)
				memcpy(y + (size_t)(r + i) * y_stride + p * REF_PANEL, acc[i],
				       wide * sizeof(float));
		}
		ref_poll(program);
	}
}

static uint8_t any_not_finite(const float *x, uint32_t n)
{
	uint32_t largest = 0;

	for (uint32_t k = 0; k < n; k++) {
		uint32_t bits = float_bits(x[k]) & 0x7fffffffu;
		largest = bits > largest ? bits : largest;
	}
	return largest >= 0x7f800000u;
}

void ref_matmul(struct ref_program *program, const struct ref_weight *w, uint32_t expert,
		const struct ref_weight *bias, const float *x, uint32_t x_stride, uint32_t rows, float *y,
		uint32_t y_stride, uint8_t *bad)
{
	program->input.x = x;
	program->input.rows = rows;
	program->input.stride = x_stride;
	for (uint32_t r = 0; r < rows; r++)
		if (!w->floats)
			quantise_row(&program->input, r, w->blocks, bad ? bad + r : NULL);
		else if (bad && any_not_finite(x + (size_t)r * x_stride, w->k))
			bad[r] = 1;
	if (w->floats)
		matmul_floats(program, w, expert, y, y_stride);
	else
		matmul_integers(program, w, expert, y, y_stride);
	for (uint32_t r = 0; bias && r < rows; r++)
		for (uint32_t n = 0; n < w->n; n++)
			y[(size_t)r * y_stride + n] = y[(size_t)r * y_stride + n] + ref_vector_at(bias, n);
}

#include <string.h>

#include "kernels/contract.h"
#include "kernels/cpu/program.h"

static uint32_t tile_rows(uint32_t rows)
{
	return rows >= 8 ? 8 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
}

static int tile_index(uint32_t rows)
{
	return rows == 8 ? 3 : rows == 4 ? 2 : (int)rows - 1;
}

/* The first row of the tile that holds `row`: rows are cut into eights, then 4, 2, 1. */
static uint32_t tile_of(uint32_t row, uint32_t rows, uint32_t *ret_size)
{
	uint32_t at = row / TILE_ROWS * TILE_ROWS;

	while (row >= at + tile_rows(rows - at))
		at += tile_rows(rows - at);
	*ret_size = tile_rows(rows - at);
	return at;
}

bool prepare_row(const struct cpu_program *program, const struct cpu_weight *weight, const float *x,
		 uint8_t *input, uint32_t row, uint32_t rows)
{
	if (!panel_quantised(weight->kind)) {
		memcpy(input + panel_input_bytes(weight->kind, weight->k, row), x, weight->k * sizeof *x);
		return program->isa->finite(x, weight->k);
	}
	uint32_t size, at = tile_of(row, rows, &size);
	return program->isa->quantise(x, weight->k, input + panel_input_bytes(weight->kind, weight->k, at),
				      row - at, size);
}

/* A last panel of fewer than 32 rows: its zero rows must not reach the output. */
static void multiply_partial(matmul_panel *multiply, const uint8_t *panel, uint32_t k, const uint8_t *input,
			     uint32_t tile, uint32_t columns, float *y, size_t ldy)
{
	_Alignas(64) float all[TILE_ROWS * PANEL_ROWS];

	multiply(panel, k, input, all, PANEL_ROWS);
	for (uint32_t t = 0; t < tile; t++)
		memcpy(y + t * ldy, all + t * PANEL_ROWS, columns * sizeof *y);
}

void multiply_panel(const struct cpu_program *program, struct team_thread *self,
		    const struct cpu_weight *weight, uint32_t expert, uint32_t p, uint32_t rows,
		    const uint8_t *input, float *y, size_t ldy)
{
	const uint8_t *panel = weight_panel(weight, expert, p);
	uint32_t columns = weight->n - p * PANEL_ROWS;

	for (uint32_t row = 0, size; row < rows; row += size) {
		size = tile_rows(rows - row);
		matmul_panel *multiply = program->isa->matmul[weight->kind][tile_index(size)];
		const uint8_t *tile = input + panel_input_bytes(weight->kind, weight->k, row);
		if (columns >= PANEL_ROWS)
			multiply(panel, weight->k, tile, y + row * ldy, ldy);
		else
			multiply_partial(multiply, panel, weight->k, tile, size, columns, y + row * ldy, ldy);
		pool_work(self, (uint64_t)size * PANEL_ROWS * weight->k);
	}
}

void multiply_panels(const struct cpu_program *program, struct team_thread *self,
		     const struct cpu_weight *weight, uint32_t expert, uint32_t first, uint32_t end,
		     uint32_t rows, const uint8_t *input, float *y, size_t ldy)
{
	for (uint32_t p = first; p < end; p++)
		multiply_panel(program, self, weight, expert, p, rows, input, y + (size_t)p * PANEL_ROWS,
			       ldy);
}

/* The f32 row that a matmul step reads: its input's, or the norm's of it. `row` counts rows of the output. */
static const float *input_row(const struct cpu_program *program, const struct cpu_step *step, uint32_t row,
			      float *normed)
{
	if (!step->norm)
		return buffer_row(program, step->op->in[0], row);
	uint16_t in = step->norm->in[0];
	bool gathers = program->buffers[in].rows != program->buffers[step->norm->out[0]].rows;
	const float *x = buffer_row(program, in, gathers ? program->batch->output_row[row] : row);
	norm_row(program, step->norm, x, normed);
	return normed;
}

/* The batch's row behind row `row` of a buffer of this kind. */
static uint32_t token_row(const struct batch *batch, uint8_t rows, uint32_t row)
{
	if (rows == ROW_OUTPUT)
		return batch->output_row[row];
	return rows == ROW_SEQUENCE ? batch->seq[row].first_row + batch->seq[row].rows - 1 : row;
}

static void prepare_chunk(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self,
			  uint8_t kind, uint32_t row, uint32_t rows)
{
	const struct cpu_private *mine = &program->private[self->index];
	bool reports = rows_split(program, kind) == SPLIT_ROWS || self->index == 0;

	for (uint32_t i = 0; i < rows; i++) {
		const float *x = input_row(program, step, row + i, mine->row);
		if (!prepare_row(program, step->matmul[0].weight, x, mine->input, i, rows) && reports)
			store_fault(program, token_row(program->batch, kind, row + i));
		pool_work(self, step->matmul[0].weight->k);
	}
}

static void add_bias(const struct cpu_program *program, const float *bias, uint32_t rows, uint32_t column,
		     uint32_t column_end, float *y, size_t ldy)
{
	for (uint32_t i = 0; i < rows; i++)
		program->isa->add(y + i * ldy + column, bias + column, column_end - column,
				  y + i * ldy + column);
}

static void multiply_chunk(struct cpu_program *program, const struct cpu_matmul *matmul, uint8_t kind,
			   struct team_thread *self, uint32_t row, uint32_t rows)
{
	const struct cpu_weight *weight = matmul->weight;
	struct span span = own_span(SPLIT_COLUMNS, 0, weight->n, self);
	size_t ldy = program->buffers[matmul->out].stride;
	float *y = buffer_row(program, matmul->out, row);

	if (rows_split(program, kind) == SPLIT_ROWS)
		span = (struct span){0, 0, 0, weight->n};
	multiply_panels(program, self, weight, 0, span.column / PANEL_ROWS, panel_count(span.column_end),
			rows, program->private[self->index].input, y, ldy);
	if (matmul->bias)
		add_bias(program, matmul->bias, rows, span.column, span.column_end, y, ldy);
}

void run_matmul(struct cpu_program *program, const struct cpu_step *step, struct team_thread *self)
{
	uint16_t in = step->norm ? step->norm->out[0] : step->op->in[0];
	uint8_t kind = program->buffers[in].rows;
	struct span span =
	    own_span(rows_split(program, kind), batch_rows(program->batch, kind), PANEL_ROWS, self);

	for (uint32_t row = span.row, rows; row < span.row_end; row += rows) {
		rows = span.row_end - row < CHUNK_ROWS ? span.row_end - row : CHUNK_ROWS;
		prepare_chunk(program, step, self, kind, row, rows);
		for (uint32_t i = 0; i < step->n_matmuls; i++)
			multiply_chunk(program, &step->matmul[i], kind, self, row, rows);
	}
}

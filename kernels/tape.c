#include "kernels/tape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES_MAX = 65534 };

/* Room for one more entry: arrays grow at powers of two. */
static int grow(void **array, uint32_t n, size_t entry_bytes)
{
	if (n >= ENTRIES_MAX)
		return -EOVERFLOW;
	if (n & (n - 1)) /* not a power of two: there is room */
		return 0;
	void *grown = realloc(*array, (n ? 2 * (size_t)n : 1) * entry_bytes);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	return 0;
}

int tape_add_buffer(struct tape *tape, enum row_kind rows, uint32_t width)
{
	void *buffers = tape->buffers;
	int err = grow(&buffers, tape->n_buffers, sizeof *tape->buffers);

	if (err < 0)
		return err;
	tape->buffers = buffers;
	tape->buffers[tape->n_buffers] =
	    (struct tape_buffer){.parent = TAPE_NONE, .rows = (uint8_t)rows, .width = width};
	return (int)tape->n_buffers++;
}

int tape_add_view(struct tape *tape, uint16_t parent, uint32_t column, uint32_t width)
{
	uint8_t rows = parent < tape->n_buffers ? tape->buffers[parent].rows : ROW_TOKEN;
	int index = tape_add_buffer(tape, (enum row_kind)rows, width);

	if (index < 0)
		return index;
	tape->buffers[index].parent = parent;
	tape->buffers[index].column = column;
	return index;
}

int tape_add_weight(struct tape *tape, const char *name, enum weight_type type, uint32_t experts, uint32_t n,
		    uint32_t k)
{
	void *weights = tape->weights;
	int err = grow(&weights, tape->n_weights, sizeof *tape->weights);

	if (err < 0)
		return err;
	tape->weights = weights;
	struct tape_weight *weight = &tape->weights[tape->n_weights];
	*weight = (struct tape_weight){.type = type, .experts = experts, .n = n, .k = k};
	memcpy(weight->name, name, strnlen(name, sizeof weight->name - 1));
	return (int)tape->n_weights++;
}

int tape_add_table(struct tape *tape, const float *values, uint32_t n)
{
	void *tables = tape->tables;
	int err = grow(&tables, tape->n_tables, sizeof *tape->tables);

	if (err < 0)
		return err;
	tape->tables = tables;
	float *copy = malloc((size_t)n * sizeof *copy + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, values, (size_t)n * sizeof *copy);
	tape->tables[tape->n_tables] = (struct tape_table){copy, n};
	return (int)tape->n_tables++;
}

int tape_add_op(struct tape *tape, const struct tape_op *op)
{
	void *ops = tape->ops;
	int err = grow(&ops, tape->n_ops, sizeof *tape->ops);

	if (err < 0)
		return err;
	tape->ops = ops;
	tape->ops[tape->n_ops] = *op;
	return (int)tape->n_ops++;
}

void tape_free(struct tape *tape)
{
	for (uint32_t i = 0; i < tape->n_tables; i++)
		free(tape->tables[i].values);
	free(tape->ops);
	free(tape->buffers);
	free(tape->weights);
	free(tape->tables);
	memset(tape, 0, sizeof *tape);
}

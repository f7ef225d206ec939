/* The tape's builders and its check: a good tape passes, and every way to spoil it is refused with a sentence
 * that names the operation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "kernels/tape.h"

enum { EMBED, NORM, Q, K, V, ROPE, WRITE, ATTN, OUT, ADD, ACT, ROUTE, EXPERTS, LAST, LOGITS, POOL, OPS };
enum { B_X, B_H, B_QKV, B_Q, B_K, B_V, B_A, B_R, B_LAST, B_POOLED };

static void op(struct tape *tape, enum tape_op_kind kind, uint16_t in0, uint16_t in1, uint16_t out,
	       uint16_t weight)
{
	struct tape_op op = {.kind = (uint8_t)kind,
			     .in = {in0, in1},
			     .out = {out},
			     .weight = weight,
			     .bias = TAPE_NONE,
			     .weights = {TAPE_NONE, TAPE_NONE, TAPE_NONE}};

	if (kind == TAPE_NORM)
		op.u.norm.groups = 1;
	if (kind == TAPE_MATMUL)
		op.u.matmul.heads = 1;
	if (kind == TAPE_EMBED)
		op.u.embed.scale = 1;
	if (kind == TAPE_ROPE) {
		op.u.rope.heads = 2;
		op.u.rope.head_dim = op.u.rope.dims = 16;
	}
	if (kind == TAPE_ATTN || kind == TAPE_KV_WRITE) {
		op.u.attn.sinks = TAPE_NONE;
		op.u.attn.heads = 2;
	}
	if (kind == TAPE_ROUTE || kind == TAPE_EXPERTS) {
		op.u.route.experts = 4;
		op.u.route.used = 2;
	}
	int index = tape_add_op(tape, &op);
	assert_int_equal(index, tape->n_ops - 1);
}

static int matrix(struct tape *tape, uint32_t experts, uint32_t n, uint32_t k)
{
	return tape_add_weight(tape, "matrix", n == 1 ? TYPE_F32 : TYPE_Q8_0, experts, n, k);
}

static void build_buffers(struct tape *tape)
{
	assert_int_equal(tape_add_buffer(tape, ROW_TOKEN, 32), B_X);
	assert_int_equal(tape_add_buffer(tape, ROW_TOKEN, 32), B_H);
	assert_int_equal(tape_add_buffer(tape, ROW_TOKEN, 64), B_QKV);
	assert_int_equal(tape_add_view(tape, B_QKV, 0, 32), B_Q);
	assert_int_equal(tape_add_view(tape, B_QKV, 32, 16), B_K);
	assert_int_equal(tape_add_view(tape, B_QKV, 48, 16), B_V);
	assert_int_equal(tape_add_buffer(tape, ROW_TOKEN, 32), B_A);
	assert_int_equal(tape_add_buffer(tape, ROW_TOKEN, 4), B_R);
	assert_int_equal(tape_add_buffer(tape, ROW_OUTPUT, 32), B_LAST);
	assert_int_equal(tape_add_buffer(tape, ROW_SEQUENCE, 32), B_POOLED);
}

static void build(struct tape *tape)
{
	static const float frequencies[8] = {1, 0.5f};

	*tape = (struct tape){.vocab = 50, .context = 64, .width = 32, .n_groups = 1};
	tape->groups[0] =
	    (struct tape_group){.kind = KV_FULL, .layers = 1, .kv_heads = 1, .dk = 16, .dv = 16};
	build_buffers(tape);
	assert_int_equal(tape_add_table(tape, frequencies, 8), 0);
	op(tape, TAPE_EMBED, TAPE_NONE, TAPE_NONE, B_X, (uint16_t)matrix(tape, 1, 50, 32));
	op(tape, TAPE_NORM, B_X, TAPE_NONE, B_H, (uint16_t)matrix(tape, 1, 1, 32));
	op(tape, TAPE_MATMUL, B_H, TAPE_NONE, B_Q, (uint16_t)matrix(tape, 1, 32, 32));
	op(tape, TAPE_MATMUL, B_H, TAPE_NONE, B_K, (uint16_t)matrix(tape, 1, 16, 32));
	op(tape, TAPE_MATMUL, B_H, TAPE_NONE, B_V, (uint16_t)matrix(tape, 1, 16, 32));
	op(tape, TAPE_ROPE, B_Q, TAPE_NONE, B_Q, TAPE_NONE);
	op(tape, TAPE_KV_WRITE, B_K, B_V, TAPE_NONE, TAPE_NONE);
	op(tape, TAPE_ATTN, B_Q, TAPE_NONE, B_A, TAPE_NONE);
	op(tape, TAPE_MATMUL, B_A, TAPE_NONE, B_H, (uint16_t)matrix(tape, 1, 32, 32));
	op(tape, TAPE_ADD, B_X, B_H, B_X, TAPE_NONE);
	op(tape, TAPE_ACT, B_X, TAPE_NONE, B_H, TAPE_NONE);
	op(tape, TAPE_ROUTE, B_H, TAPE_NONE, B_R, (uint16_t)matrix(tape, 1, 4, 32));
	op(tape, TAPE_EXPERTS, B_H, B_R, B_A, TAPE_NONE);
	for (int i = 0; i < 3; i++)
		tape->ops[EXPERTS].weights[i] = (uint16_t)matrix(tape, 4, i == 2 ? 32 : 64, i == 2 ? 64 : 32);
	op(tape, TAPE_NORM, B_A, TAPE_NONE, B_LAST, (uint16_t)matrix(tape, 1, 1, 32));
	op(tape, TAPE_LOGITS, B_LAST, TAPE_NONE, TAPE_NONE, 0);
	op(tape, TAPE_POOL, B_A, TAPE_NONE, B_POOLED, TAPE_NONE);
}

static void a_good_tape_passes(void **state)
{
	struct tape tape;
	char why[256] = "";

	build(&tape);
	if (tape_check(&tape, why, sizeof why) < 0)
		fail_msg("%s", why);
	assert_int_equal(tape.n_ops, OPS);
	assert_string_equal(tape.weights[0].name, "matrix");
	assert_true(tape.tables[0].values[1] == 0.5f);
	tape_free(&tape);
	assert_null(tape.ops);
	tape_free(&tape);
}

#define SPOIL(statement, said)                                             \
	do {                                                               \
		struct tape t_, *t = &t_;                                  \
		char why[256] = "";                                        \
		build(t);                                                  \
		statement;                                                 \
		assert_int_equal(tape_check(t, why, sizeof why), -EINVAL); \
		if (!strstr(why, said))                                    \
			fail_msg("%s: said '%s'", #statement, why);        \
		tape_free(t);                                              \
	} while (0)

static void bad_buffers_are_refused(void **state)
{
	SPOIL(t->buffers[B_X].width = 0, "buffer 0 has a width of 0");
	SPOIL(t->buffers[B_Q].parent = B_Q, "does not come before it");
	SPOIL(t->buffers[B_V].column = 49, "reaches past");
	SPOIL(t->buffers[B_V].column = UINT32_MAX, "reaches past");
	SPOIL(t->buffers[B_V].rows = ROW_OUTPUT, "other rows than its parent");
	SPOIL(t->buffers[B_X].rows = 9, "unknown rows");
	SPOIL(t->buffers[B_X].column = 3, "no parent");
}

static void bad_weights_and_groups_are_refused(void **state)
{
	SPOIL(t->weights[0].type = TYPE_COUNT, "unknown type");
	SPOIL(t->weights[0].k = 33, "not a multiple of the 32 of a Q8_0 block");
	SPOIL(t->weights[0].experts = 0, "shape (0, 50, 32)");
	SPOIL(t->weights[0].experts = 1u << 31, "too many rows");
	SPOIL(memset(t->weights[0].name, 'x', TAPE_NAME_BYTES), "has no end");
	SPOIL(t->n_groups = TAPE_GROUPS_MAX + 1, "9 cache groups");
	SPOIL(t->groups[0].kind = KV_WINDOW, "needs a window");
	SPOIL(t->groups[0].window = 5, "needs a window");
	SPOIL(t->groups[0].kv_heads = 0, "is empty");
	SPOIL(t->tables[0].values[3] = NAN, "table 0 is not finite at 3");
	SPOIL(t->vocab = 0, "is 0");
}

static void bad_operands_are_refused(void **state)
{
	SPOIL(t->ops[NORM].in[0] = 99, "operation 1 (NORM, layer 0): input 0 is buffer 99 of 10.");
	SPOIL(t->ops[NORM].in[0] = B_A, "input 0, buffer 6, has not been written");
	SPOIL(t->ops[NORM].out[0] = TAPE_NONE, "the output is buffer 65535");
	SPOIL(t->ops[Q].weight = TAPE_NONE, "needs weight 65535");
	SPOIL(t->ops[Q].weight = t->ops[K].weight, "has the shape (1, 16, 32), wanted (1, 32, 32)");
	SPOIL(t->ops[ADD].in[1] = B_K, "has 16 columns, the output 32");
	SPOIL(t->ops[ATTN].out[0] = B_Q, "the output overlaps input 0");
	SPOIL(t->ops[OUT].in[0] = B_H, "the output overlaps input 0");
	SPOIL(t->ops[Q].segment = 2, "segment 2 follows segment 0");
	SPOIL(t->ops[Q].kind = TAPE_OP_COUNT, "unknown kind 14");
	SPOIL(t->ops[Q].kind = TAPE_SCAN, "recurrent");
}

static void bad_parameters_are_refused(void **state)
{
	SPOIL(t->ops[EMBED].u.embed.scale = INFINITY, "not finite");
	SPOIL(t->vocab = 51, "wanted at least (51, 32)");
	SPOIL(t->ops[NORM].u.norm.groups = 3, "do not make 3 groups");
	SPOIL(t->ops[NORM].u.norm.eps = -1, "epsilon");
	SPOIL(t->weights[t->ops[NORM].weight].type = TYPE_Q8_0, "quantised type Q8_0");
	SPOIL(t->ops[Q].u.matmul.heads = 5, "5 heads do not divide");
	SPOIL(t->ops[ROPE].u.rope.dims = 18, "cannot turn");
	SPOIL(t->ops[ROPE].u.rope.first = UINT32_MAX, "cannot turn");
	SPOIL(t->ops[ROPE].u.rope.dims = 14, "table of 7 frequencies");
	SPOIL(t->ops[ROPE].out[0] = B_H, "in place");
	SPOIL(t->ops[WRITE].u.attn.group = 1, "cache group 1 of 1");
	SPOIL(t->ops[WRITE].u.attn.layer = 1, "layer 1 of cache group 0");
	SPOIL(t->ops[WRITE].in[0] = B_Q, "wanted 16");
	SPOIL(t->ops[ATTN].u.attn.heads = 3, "do not make");
	SPOIL(t->groups[0].kv_heads = 3; t->ops[WRITE].kind = TAPE_ADD; t->ops[WRITE].in[0] = B_K;
	      t->ops[WRITE].out[0] = B_K, "no multiple of 3");
	SPOIL(t->ops[ACT].u.act.kind = 7, "unknown activation 7");
	SPOIL(t->ops[ACT].u.act.limit = -1, "limit");
	SPOIL(t->ops[ACT].u.act.gated = true, "input 1 is buffer 65535");
	SPOIL(t->ops[ROUTE].u.route.used = 5, "cannot choose 5 of 4 experts");
	SPOIL(t->ops[ROUTE].u.route.used = 1, "the output has 4 columns, wanted 2");
	SPOIL(t->ops[ROUTE].u.route.groups = 3, "cannot choose 0 of 3 groups");
	SPOIL(t->ops[EXPERTS].weights[1] = t->ops[EXPERTS].weights[2], "wanted (4, 64, 32)");
	SPOIL(t->ops[EXPERTS].in[1] = B_X, "input 1 has 32 columns");
	SPOIL(t->ops[LAST].in[0] = B_LAST, "has not been written");
	SPOIL(t->ops[LOGITS].in[0] = B_A, "rows of the wrong kind");
	SPOIL(t->ops[POOL] = t->ops[LOGITS], "one LOGITS operation");
	SPOIL(t->ops[POOL].u.pool.kind = 2, "unknown pooling");
}

static void counts_past_the_index_are_refused(void **state)
{
	struct tape tape = {0};

	for (uint32_t i = 0; i < 65534; i++)
		assert_int_equal(tape_add_buffer(&tape, ROW_TOKEN, 1), i);
	assert_int_equal(tape_add_buffer(&tape, ROW_TOKEN, 1), -EOVERFLOW);
	assert_int_equal(tape.n_buffers, 65534);
	tape_free(&tape);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_good_tape_passes),
	    cmocka_unit_test(bad_buffers_are_refused),
	    cmocka_unit_test(bad_weights_and_groups_are_refused),
	    cmocka_unit_test(bad_operands_are_refused),
	    cmocka_unit_test(bad_parameters_are_refused),
	    cmocka_unit_test(counts_past_the_index_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

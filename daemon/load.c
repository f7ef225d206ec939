#include "daemon/load.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/log.h"
#include "daemon/engine/front.h"
#include "daemon/engine/kv.h"
#include "daemon/load_internal.h"

enum { USUAL_TOKENS = 512 /* of a request, prompt and answer */ };

/* Release: pairs with the acquire in load_progress. */
static void enter(struct load *load, enum load_phase phase)
{
	store_release_u32(&load->phase, phase);
}

enum load_phase load_progress(const struct load *load, double *ret_share)
{
	enum load_phase phase = load_acquire_u32(&load->phase);

	if (ret_share)
		*ret_share = phase == LOAD_READING ? 0.0
						   : (double)load_relaxed_u64(&load->bytes_done) /
							 (double)(load->model.bytes + 1);
	return phase;
}

const struct load_model *load_model(const struct load *load)
{
	return &load->model;
}

const struct load_times *load_times(const struct load *load)
{
	return &load->times;
}

const char *load_why(const struct load *load)
{
	return load->why;
}

/* ---- what the file says ---- */

static void copy_text(char *to, size_t capacity, struct gguf_text text)
{
	snprintf(to, capacity, "%.*s", (int)(text.bytes < capacity ? text.bytes : capacity - 1), text.data);
}

/* A model without a tokenizer still serves tokens. */
static void *open_tokenizer(void *data)
{
	struct load *load = data;
	int error = tokenizer_open(model_gguf(load->model.file), &load->model.tokenizer, load->tokenizer_why,
				   sizeof(load->tokenizer_why));

	load->tokenizer_error = error == -ENOENT ? 0 : error;
	if (load->tokenizer_error)
		store_relaxed_u32(&load->cancelled, 1);
	return NULL;
}

/* Beside memory and weights, on a thread of its own if there is one to be had. */
static void start_tokenizer(struct load *load)
{
	load->has_tokenizer_thread = !pthread_create(&load->tokenizer_thread, NULL, open_tokenizer, load);
	if (load->has_tokenizer_thread)
		pthread_setname_np(load->tokenizer_thread, "tokenizer");
	else
		open_tokenizer(load);
}

/* Of two errors the tokenizer's counts: it ends the reading. */
static int join_tokenizer(struct load *load, int error)
{
	if (load->has_tokenizer_thread)
		pthread_join(load->tokenizer_thread, NULL);
	if (!load->tokenizer_error)
		return error;
	memcpy(load->why, load->tokenizer_why, sizeof(load->why));
	return load->tokenizer_error;
}

static int read_file(struct load *load)
{
	struct load_model *model = &load->model;
	struct model_description description;
	int error = model_open(load->config.config->model, &model->file, load->why, sizeof(load->why));

	if (error)
		return error;
	start_tokenizer(load);
	model->tape = model_tape(model->file);
	model_describe(model_gguf(model->file), &description);
	copy_text(model->name, sizeof(model->name), description.name);
	copy_text(model->architecture, sizeof(model->architecture), description.architecture);
	model->parameters = description.parameters;
	model->bytes = model_weight_bytes(model->file);
	return 0;
}

static int open_backend(struct load *load)
{
	const struct config *config = load->config.config;
	const struct plan *placement = load->config.placement;
	struct backend_config backend = {
	    .kind = config->backend,
	    .isa = config->isa,
	    .threads = placement->threads,
	    .cpus = placement->cpus,
	    .poll = loop_poll,
	    .poll_data = load->config.loop,
	    .memory = &load->config.memory->hooks,
	};

	return backend_open(&backend, &load->model.backend, load->why, sizeof(load->why));
}

/* ---- sizes ---- */

static const struct {
	const char *name;
	enum weight_type type;
} kv_types[] = {{"f16", TYPE_F16}, {"bf16", TYPE_BF16}, {"q8", TYPE_Q8_0}, {"f32", TYPE_F32}};

enum { KV_TYPES = sizeof kv_types / sizeof kv_types[0] };

static enum weight_type kv_type(const struct config *config)
{
	for (unsigned i = 0; i < KV_TYPES; i++)
		if (!strcmp(config->kv_type, kv_types[i].name))
			return kv_types[i].type;
	return strcmp(config->backend, "ref-f32") ? TYPE_F16 : TYPE_F32;
}

const char *load_kv_type(const struct load_model *model)
{
	unsigned i = 0;

	while (i + 1 < KV_TYPES && kv_types[i].type != model->limits.kv_type)
		i++;
	return kv_types[i].name;
}

static void set_blocks(struct load_model *model, uint64_t blocks)
{
	for (uint32_t g = 0; g < model->tape->n_groups; g++)
		model->limits.blocks[g] = (uint32_t)blocks + 1; /* and the null block */
}

static int measure(struct load *load)
{
	struct load_model *model = &load->model;
	struct program_bytes bytes;
	int error = program_measure(model->backend, model->tape, &model->limits, &bytes);

	if (error) {
		snprintf(load->why, sizeof(load->why), "the backend cannot run a model of this shape: %s",
			 strerror(-error));
		return error;
	}
	model->demand = (struct demand){.weights = bytes.weights,
					.kv = bytes.kv,
					.scratch = bytes.scratch,
					.channels = load->config.channels_bytes};
	return 0;
}

/* Without kv_tokens: a context for every sequence, but at most half of what memory is left, and one context.
 */
static int choose_blocks(struct load *load)
{
	const struct config *config = load->config.config;
	struct load_model *model = &load->model;
	uint64_t context = kv_blocks_for(model->limits.context), blocks = context * model->limits.sequences,
		 left, block;
	int error;

	set_blocks(model, 1);
	error = measure(load);
	if (error)
		return error;
	if (config->kv_tokens) {
		blocks = kv_blocks_for((uint64_t)config->kv_tokens);
	} else {
		blocks = (uint64_t)model->limits.sequences * kv_blocks_for(USUAL_TOKENS);
		block = model->demand.kv / 2 + 1; /* two were measured, with the null block */
		left = model->budget.bytes - (demand_total(&model->demand) < model->budget.bytes
						  ? demand_total(&model->demand)
						  : model->budget.bytes);
		if (blocks > left / 2 / block)
			blocks = left / 2 / block;
		if (blocks < context)
			blocks = context;
	}
	if (blocks >= UINT32_MAX)
		blocks = UINT32_MAX - 1;
	set_blocks(model, blocks);
	return measure(load);
}

static uint32_t smaller(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

/* Reserved huge pages are no part of the memory that the kernel calls available. */
static void add_reserved(struct load *load)
{
	struct load_model *model = &load->model;

	if (!load->config.config->memory_limit)
		model->budget.bytes +=
		    memory_reserved_for(load->config.memory, PLAN_WEIGHTS, model->demand.weights);
}

static int choose_limits(struct load *load)
{
	const struct config *config = load->config.config;
	struct load_model *model = &load->model;
	struct tape_limits *limits = &model->limits;
	int error =
	    budget_read("", (uint64_t)config->memory_limit, &model->budget, load->why, sizeof(load->why));

	if (error)
		return error;
	*limits = (struct tape_limits){.rows = (uint32_t)config->max_batch_tokens,
				       .sequences = (uint32_t)config->max_batch_sequences,
				       .context = model->tape->context,
				       .kv_type = kv_type(config)};
	if (config->max_context_tokens)
		limits->context = smaller((uint64_t)config->max_context_tokens, model->tape->context);
	if (limits->sequences > limits->rows)
		limits->sequences = limits->rows;
	limits->outputs = limits->rows;
	limits->logits =
	    smaller((uint64_t)limits->sequences + 16, limits->rows); /* 16: scored rows beside them */
	error = choose_blocks(load);
	if (!error)
		add_reserved(load);
	return error ? error : budget_check(&model->budget, &model->demand, load->why, sizeof(load->why));
}

/* ---- the thread ---- */

static int hand_over(struct load *load)
{
	struct load_model *model = &load->model;
	const struct config *config = load->config.config;
	struct engine_model engine = {.program = model->program,
				      .tape = model->tape,
				      .limits = model->limits,
				      .max_prompt = model->limits.context};
	size_t n_ends = 0;
	const uint32_t *ends = model->tokenizer ? tokenizer_ends(model->tokenizer, &n_ends) : NULL;
	int error;

	if (config->max_prompt_tokens)
		engine.max_prompt = smaller((uint64_t)config->max_prompt_tokens, model->limits.context);
	for (size_t i = 0; i < n_ends && engine.n_eos < 32; i++)
		engine.eos[engine.n_eos++] = ends[i];
	front_settle(load->config.front);
	error = engine_set_model(load->config.engine, &engine, load->why, sizeof(load->why));
	loop_ring(load->config.loop);
	return error;
}

static int map_and_copy(struct load *load)
{
	struct load_model *model = &load->model;
	char advice[MEMORY_NOTE_BYTES];
	int error = open_backend(load);

	if (!error)
		error = choose_limits(load);
	if (error)
		return error;
	front_fill(load->config.front);
	error = program_compile(model->backend, model->tape, &model->limits, &model->program, load->why,
				sizeof(load->why));
	if (error)
		return error;
	load->times.mapped_ns = load->config.clock();
	if (memory_advice(load->config.memory, advice, sizeof(advice)))
		log_event(LOG_LEVEL_INFO, "huge-pages", "%s", advice);
	enter(load, LOAD_COPYING);
	return load_copy_weights(load);
}

static int run(struct load *load)
{
	int error;

	load->times.began_ns = load->config.clock();
	error = read_file(load);
	if (error)
		return error;
	load->times.opened_ns = load->config.clock();
	error = join_tokenizer(load, map_and_copy(load));
	load->times.copied_ns = load->config.clock();
	return error ? error : hand_over(load);
}

/* Memory that cannot be bound lies at least where it is written first. */
static void run_on_node(const struct topology *topology, int node)
{
	int cpus[TOPOLOGY_CPUS_MAX];
	uint32_t n = topology_cpus_of(topology, node, cpus);
	cpu_set_t set;
	int error;

	CPU_ZERO(&set);
	for (uint32_t i = 0; i < n; i++)
		CPU_SET(cpus[i], &set); /* ignores those above 1023 */
	error = CPU_COUNT(&set) ? pthread_setaffinity_np(pthread_self(), sizeof(set), &set) : 0;
	if (error)
		log_event(LOG_LEVEL_WARNING, "placement", "the loading thread cannot run on node %d: %s",
			  node, strerror(error));
}

static void *run_thread(void *data)
{
	struct load *load = data;

	run_on_node(load->config.topology, load->config.placement->loader_node);
	if (run(load)) {
		enter(load, LOAD_FAILED);
		engine_fail_model(load->config.engine);
		loop_ring(load->config.loop);
	} else {
		enter(load, LOAD_WARMING);
	}
	return NULL;
}

int load_start(struct load **ret, const struct load_config *config)
{
	struct load *load = calloc(1, sizeof(*load));
	int error;

	if (!load)
		return -ENOMEM;
	load->config = *config;
	error = -pthread_create(&load->thread, NULL, run_thread, load);
	if (error) {
		free(load);
		return error;
	}
	pthread_setname_np(load->thread, "loader");
	*ret = load;
	return 0;
}

void load_stop(struct load *load)
{
	if (!load || load->joined)
		return;
	store_relaxed_u32(&load->cancelled, 1);
	pthread_join(load->thread, NULL);
	load->joined = true;
}

void load_free(struct load *load)
{
	if (!load)
		return;
	load_stop(load);
	stream_close(load->stream);
	program_close(load->model.program);
	backend_close(load->model.backend);
	tokenizer_close(load->model.tokenizer);
	model_close(load->model.file);
	free(load);
}

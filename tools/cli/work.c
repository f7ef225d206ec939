#include "tools/cli/work.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/model/model.h"

static bool is_named(const struct gguf_tensor *tensor, const char *name)
{
	return tensor->name.bytes == strlen(name) && !memcmp(tensor->name.data, name, tensor->name.bytes);
}

static bool holds_experts(const struct gguf_tensor *tensor)
{
	return memmem(tensor->name.data, tensor->name.bytes, "_exps", 5);
}

/* The share of the experts that one token uses; 1 without experts. */
static double used_share(const struct gguf *model)
{
	char key[128];
	struct gguf_text arch;
	uint32_t experts, used;
	if (gguf_string(model, "general.architecture", &arch))
		return 1;
	snprintf(key, sizeof key, "%.*s.expert_count", (int)arch.bytes, arch.data);
	if (gguf_u32(model, key, &experts) || !experts)
		return 1;
	snprintf(key, sizeof key, "%.*s.expert_used_count", (int)arch.bytes, arch.data);
	if (gguf_u32(model, key, &used) || used > experts)
		return 1;
	return (double)used / experts;
}

static uint64_t n_weights(const struct gguf_tensor *tensor)
{
	uint64_t n = 1;
	for (unsigned i = 0; i < tensor->n_dims; i++)
		n *= tensor->dims[i];
	return n;
}

static bool type_of(const char *kv_type, enum weight_type *ret)
{
	static const struct {
		const char *name;
		enum weight_type type;
	} types[] = {{"f16", TYPE_F16}, {"bf16", TYPE_BF16}, {"q8", TYPE_Q8_0}, {"f32", TYPE_F32}};

	for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].name, kv_type)) {
			*ret = types[i].type;
			return true;
		}
	return false;
}

uint64_t work_of_context(const char *path, const char *kv_type, uint32_t context)
{
	char why[512];
	struct model *model;
	enum weight_type type;
	uint64_t bytes = 0;
	if (!type_of(kv_type, &type) || model_open(path, &model, why, sizeof why))
		return 0;
	for (uint32_t g = 0; g < model_tape(model)->n_groups; g++) {
		const struct tape_group *group = &model_tape(model)->groups[g];
		uint64_t keys = group->window && group->window < context ? group->window : context;
		bytes += (kv_row_bytes(type, group->dk) + kv_row_bytes(type, group->dv)) * group->kv_heads *
			 group->layers * keys;
	}
	model_close(model);
	return bytes;
}

void work_of_model(const struct gguf *model, struct work *ret)
{
	struct work work = {.file_bytes = gguf_file_bytes(model)};
	bool tied = !gguf_find_tensor(model, "output.weight");
	double share = used_share(model);
	for (size_t i = 0; i < gguf_n_tensors(model); i++) {
		const struct gguf_tensor *tensor = gguf_tensor(model, i);
		uint64_t n = n_weights(tensor);
		double used = holds_experts(tensor) ? share : 1;
		bool is_table = is_named(tensor, "token_embd.weight");
		bool is_output = is_named(tensor, "output.weight") || (is_table && tied);
		work.parameters += n;
		if (is_table && !tied)
			continue;
		work.decode_bytes += (uint64_t)(used * (double)tensor->bytes);
		if (tensor->n_dims < 2)
			continue;
		work.decode_multiplies += (uint64_t)(used * (double)n);
		if (!is_output)
			work.prefill_multiplies += (uint64_t)(used * (double)n);
	}
	*ret = work;
}

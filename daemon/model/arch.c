#include "daemon/model/arch.h"

#include <string.h>

static const struct arch archs[] = {
    {"gemma3", arch_gemma3_build}, {"gpt2", arch_gpt2_build},   {"llama", arch_llama_build},
    {"qwen2", arch_qwen2_build},   {"qwen3", arch_qwen3_build},
};

const struct arch *arch_find(struct gguf_text name)
{
	for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
		if (strlen(archs[i].name) == name.bytes && memcmp(archs[i].name, name.data, name.bytes) == 0)
			return &archs[i];
	return NULL;
}

const char *arch_names(void)
{
	return "gemma3, gpt2, llama, qwen2, qwen3";
}

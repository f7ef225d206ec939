#include "tools/cli/chat.h"

#include <ctype.h>
#include <string.h>

/* From the chat templates (tokenizer.chat_template) of the models named. */
static const struct chat_format formats[] = {
    {
	.name = "smollm2",
	.models = "smollm2 smollm",
	.default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
	.before_system = "<|im_start|>system\n",
	.after_system = "<|im_end|>\n",
	.before_user = "<|im_start|>user\n",
	.after_user = "<|im_end|>\n<|im_start|>assistant\n",
	.end_of_turn = "<|im_end|>",
    },
    {
	.name = "chatml",
	.models = "qwen chatml",
	.architecture = "qwen2",
	.before_system = "<|im_start|>system\n",
	.after_system = "<|im_end|>\n",
	.before_user = "<|im_start|>user\n",
	.after_user = "<|im_end|>\n<|im_start|>assistant\n",
	.end_of_turn = "<|im_end|>",
    },
    {
	.name = "gemma", /* the system text is the head of the user's turn */
	.models = "gemma",
	.architecture = "gemma3",
	.before_system = "<start_of_turn>user\n",
	.after_system = "\n\n",
	.before_user = "<start_of_turn>user\n",
	.after_user = "<end_of_turn>\n<start_of_turn>model\n",
	.end_of_turn = "<end_of_turn>",
    },
};

enum { N_FORMATS = sizeof formats / sizeof formats[0] };

const struct chat_format *chat_find(const char *name)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		if (!strcmp(formats[i].name, name))
			return &formats[i];
	return NULL;
}

static bool names_model(const char *models, const char *model)
{
	char lower[128];
	size_t n = 0;
	for (; model[n] && n + 1 < sizeof lower; n++)
		lower[n] = (char)tolower((unsigned char)model[n]);
	lower[n] = 0;
	while (*models) {
		size_t length = strcspn(models, " ");
		if (memmem(lower, n, models, length))
			return true;
		models += length + (models[length] == ' ');
	}
	return false;
}

const struct chat_format *chat_for_model(const char *model, const char *architecture)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		if (names_model(formats[i].models, model))
			return &formats[i];
	for (size_t i = 0; i < N_FORMATS; i++)
		if (formats[i].architecture && !strcmp(formats[i].architecture, architecture))
			return &formats[i];
	return NULL;
}

const char *chat_names(void)
{
	static char names[128];
	if (!names[0])
		for (size_t i = 0; i < N_FORMATS; i++) {
			strcat(names, i ? ", " : "");
			strcat(names, formats[i].name);
		}
	return names;
}

static size_t add(struct chat_part *parts, size_t n, const char *text, bool marks)
{
	parts[n] = (struct chat_part){text, marks};
	return n + 1;
}

size_t chat_prompt(const struct chat_format *f, const char *system, const char *user, struct chat_part *parts)
{
	size_t n = 0;
	if (!system)
		system = f->default_system;
	bool shared_turn = system && !strcmp(f->before_system, f->before_user);
	if (system) {
		n = add(parts, n, f->before_system, true);
		n = add(parts, n, system, false);
		n = add(parts, n, f->after_system, true);
	}
	if (!shared_turn)
		n = add(parts, n, f->before_user, true);
	n = add(parts, n, user, false);
	return add(parts, n, f->after_user, true);
}

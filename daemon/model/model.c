#include "daemon/model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/model/arch.h"

struct model {
	struct gguf *gguf;
	struct tape tape;
	struct model_weight *weights;
	uint64_t weight_bytes;
};

static int read_floats(void *context, const struct gguf_tensor *t, float *out)
{
	int fd = open(context, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int error = 0;
	for (uint64_t done = 0; done < t->bytes && !error;) {
		ssize_t got = pread(fd, (char *)out + done, t->bytes - done, (off_t)(t->offset + done));
		if (got > 0)
			done += (uint64_t)got;
		else if (got == 0 || errno != EINTR)
			error = got == 0 ? -EIO : -errno;
	}
	close(fd);
	return error;
}

static int build(struct model *m, const char *path, char *why, size_t why_bytes)
{
	struct gguf_text name;
	struct arch_source source = {m->gguf, read_floats, (void *)path};
	if (gguf_string(m->gguf, "general.architecture", &name)) {
		snprintf(why, why_bytes, "key 'general.architecture' is absent or no string");
		return -EINVAL;
	}
	const struct arch *arch = arch_find(name);
	if (!arch) {
		snprintf(why, why_bytes, "architecture '%.*s' is not supported; known are %s",
			 name.bytes < 60 ? (int)name.bytes : 60, name.data, arch_names());
		return -ENOTSUP;
	}
	int error = arch->build(&source, &m->tape, why, why_bytes);
	return error ? error : tape_check(&m->tape, why, why_bytes);
}

static int place_weights(struct model *m, char *why, size_t why_bytes)
{
	m->weights = calloc(m->tape.n_weights + 1, sizeof *m->weights);
	if (!m->weights) {
		snprintf(why, why_bytes, "no memory for %u weights", m->tape.n_weights);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < m->tape.n_weights; i++) {
		const struct tape_weight *w = &m->tape.weights[i];
		const struct gguf_tensor *t = gguf_find_tensor(m->gguf, w->name);
		m->weights[i] = (struct model_weight){t->offset, t->bytes, weight_type_bytes(w->type, w->k)};
		m->weight_bytes += t->bytes;
	}
	return 0;
}

int model_open(const char *path, struct model **ret, char *why, size_t why_bytes)
{
	char reason[512] = "";
	struct model *m = calloc(1, sizeof *m);
	if (!m) {
		snprintf(why, why_bytes, "no memory to open '%s'", path);
		return -ENOMEM;
	}
	int error = gguf_open(path, &m->gguf, why, why_bytes);
	if (!error) {
		error = build(m, path, reason, sizeof reason);
		if (!error)
			error = place_weights(m, reason, sizeof reason);
		if (error)
			snprintf(why, why_bytes, "'%s': %s", path, reason);
	}
	if (error) {
		model_close(m);
		return error;
	}
	*ret = m;
	return 0;
}

void model_close(struct model *m)
{
	if (!m)
		return;
	tape_free(&m->tape);
	gguf_close(m->gguf);
	free(m->weights);
	free(m);
}

const struct gguf *model_gguf(const struct model *m)
{
	return m->gguf;
}

const struct tape *model_tape(const struct model *m)
{
	return &m->tape;
}

const struct model_weight *model_weights(const struct model *m)
{
	return m->weights;
}

uint64_t model_weight_bytes(const struct model *m)
{
	return m->weight_bytes;
}

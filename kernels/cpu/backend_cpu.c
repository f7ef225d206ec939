#include "kernels/cpu/backend_cpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/contract.h"
#include "kernels/cpu/detect.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/program.h"

static int cpu_open(const struct backend_config *config, struct backend **ret, char *why, size_t why_bytes)
{
	struct pool_config pool = {
	    .threads = config->threads,
	    .cpus = config->cpus,
	    .poll = config->poll,
	    .poll_data = config->poll_data,
	};
	struct cpu_backend *backend = calloc(1, sizeof *backend);

	if (!backend) {
		snprintf(why, why_bytes, "No memory for a backend.");
		return -ENOMEM;
	}
	backend->base.ops = &backend_cpu_ops;
	backend->memory = config->memory ? config->memory : &memory_own;
	int r = detect_isa(config->isa, &backend->isa, why, why_bytes);
	if (r == 0) {
		pool.work_per_us = backend->isa->macs_per_us;
		r = pool_open(&pool, &backend->pool, why, why_bytes);
	}
	if (r < 0) {
		free(backend);
		return r;
	}
	*ret = &backend->base;
	return 0;
}

static void cpu_close(struct backend *base)
{
	struct cpu_backend *backend = (struct cpu_backend *)base;

	pool_close(backend->pool);
	free(backend);
}

static const char *cpu_isa_name(const struct backend *base)
{
	return ((const struct cpu_backend *)base)->isa->name;
}

static const char *cpu_numerics(const struct backend *base)
{
	return CONTRACT_VERSION;
}

const struct backend_ops backend_cpu_ops = {
    .kind = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .isa = cpu_isa_name,
    .numerics = cpu_numerics,
    .measure = cpu_program_measure,
    .compile = cpu_program_compile,
    .close_program = cpu_program_close,
    .load = cpu_program_load,
    .step = cpu_program_step,
    .paths = cpu_program_paths,
    .logits = cpu_program_logits,
    .best = cpu_program_best,
    .hidden = cpu_program_hidden,
    .faults = cpu_program_faults,
    .fill_block = cpu_program_fill_block,
};

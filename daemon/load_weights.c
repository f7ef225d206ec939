/* Weights on their way from the file to the program, which repacks them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/load_internal.h"

enum { READERS_LEAST = 4, READERS_MOST = 16 };

struct weight_part {
	uint32_t weight, first_row; /* the part is one expert of it */
};

struct copying {
	struct load *load;
	const struct weight_part *parts; /* (extents) */
	pthread_mutex_t lock;            /* guards load->why: several readers may fail at once */
	bool explained;
};

static void explain(struct copying *copying, uint32_t weight, int error)
{
	struct load *load = copying->load;

	pthread_mutex_lock(&copying->lock);
	if (!copying->explained)
		snprintf(load->why, sizeof(load->why), "tensor %s: %s",
			 load->model.tape->weights[weight].name,
			 error == -EDOM ? "a scale is not a finite number; the file is damaged"
					: strerror(-error));
	copying->explained = true;
	pthread_mutex_unlock(&copying->lock);
}

/* On the readers' threads. */
static int copy_piece(void *context, const struct stream_piece *piece)
{
	struct copying *copying = context;
	struct load *load = copying->load;
	const struct weight_part *part = &copying->parts[piece->extent];
	uint64_t row_bytes = model_weights(load->model.file)[part->weight].row_bytes;
	int error = program_load(load->model.program, part->weight,
				 part->first_row + (uint32_t)(piece->at / row_bytes),
				 (uint32_t)(piece->bytes / row_bytes), piece->data);

	if (error)
		explain(copying, part->weight, error);
	else if (load_relaxed_u32(&load->cancelled))
		error = -ECANCELED;
	add_relaxed_u64(&load->bytes_done, piece->bytes);
	return error;
}

static size_t count_parts(const struct tape *tape)
{
	size_t n = 0;

	for (uint32_t w = 0; w < tape->n_weights; w++)
		n += tape->weights[w].experts;
	return n;
}

/* One extent an expert, in granules that program_load takes. */
static void list_parts(const struct load_model *model, struct stream_extent *extents,
		       struct weight_part *parts)
{
	const struct model_weight *places = model_weights(model->file);
	size_t n = 0;

	for (uint32_t w = 0; w < model->tape->n_weights; w++) {
		const struct tape_weight *weight = &model->tape->weights[w];
		uint64_t expert_bytes = weight->n * places[w].row_bytes;

		for (uint32_t e = 0; e < weight->experts; e++, n++) {
			parts[n] = (struct weight_part){.weight = w, .first_row = e * weight->n};
			extents[n] =
			    (struct stream_extent){.offset = places[w].offset + e * expert_bytes,
						   .bytes = expert_bytes,
						   .granule_bytes = PROGRAM_LOAD_ROWS * places[w].row_bytes};
		}
	}
}

/* They repack what they read: as many as compute later, and enough for a drive that answers late. */
static unsigned readers(const struct plan *placement)
{
	uint32_t n = placement->threads;

	return n < READERS_LEAST ? READERS_LEAST : n > READERS_MOST ? READERS_MOST : n;
}

static int open_stream(struct load *load)
{
	int cpus[TOPOLOGY_CPUS_MAX];
	struct stream_options options = {
	    .readers = readers(load->config.placement),
	    .cpus = cpus,
	    .n_cpus = topology_cpus_of(load->config.topology, load->config.placement->reader_node, cpus),
	};

	return stream_open(load->config.config->model, &options, &load->stream, load->why, sizeof(load->why));
}

int load_copy_weights(struct load *load)
{
	size_t n = count_parts(load->model.tape);
	struct stream_extent *extents = calloc(n + 1, sizeof(*extents));
	struct weight_part *parts = calloc(n + 1, sizeof(*parts));
	struct copying copying = {.load = load, .parts = parts, .lock = PTHREAD_MUTEX_INITIALIZER};
	int error = -ENOMEM;

	snprintf(load->why, sizeof(load->why), "no memory for the list of tensors");
	if (extents && parts) {
		list_parts(&load->model, extents, parts);
		error = open_stream(load);
	}
	if (!error)
		error =
		    stream_read(load->stream, extents, n, copy_piece, &copying, load->why, sizeof(load->why));
	free(extents);
	free(parts);
	return error;
}

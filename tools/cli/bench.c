#include "tools/cli/bench.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench_floor.h"
#include "tools/cli/connect.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/json.h"

static unsigned allowed_cpus(void)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set))
		return 1;
	int n = CPU_COUNT(&set);
	return n < 1 ? 1 : n > FLOOR_THREADS_MAX ? FLOOR_THREADS_MAX : (unsigned)n;
}

/* What the daemon's options were; where the status does not say, the defaults. */
static void read_status(struct bench *b)
{
	int error;
	double number;
	char *json = connect_status(b->client, &error);
	b->threads = allowed_cpus();
	b->sq_slots = 256;
	b->cq_slots = 1024;
	if (!json)
		return;
	if (json_number(json, "threads", &number) && number >= 1 && number <= FLOOR_THREADS_MAX)
		b->threads = (unsigned)number;
	if (json_number(json, "sq_slots", &number) && number >= 8 && number <= 65536)
		b->sq_slots = (uint32_t)number;
	if (json_number(json, "cq_slots", &number) && number >= 8 && number <= 65536)
		b->cq_slots = (uint32_t)number;
	if (!json_text(json, "file", b->model_path, sizeof b->model_path))
		b->model_path[0] = 0;
	if (!json_text(json, "type", b->kv_type, sizeof b->kv_type))
		b->kv_type[0] = 0;
	free(json);
}

enum exit_code bench_read_work(struct bench *b)
{
	char why[512];
	struct gguf *file;
	if (b->options->model)
		snprintf(b->model_path, sizeof b->model_path, "%s", b->options->model);
	if (b->model_path[0] && !gguf_open(b->model_path, &file, why, sizeof why)) {
		work_of_model(file, &b->work);
		gguf_close(file);
		return EXIT_DONE;
	}
	if (b->options->model)
		return complain("%s", why);
	b->work = (struct work){.parameters = b->model.parameters,
				.decode_bytes = b->model.bytes,
				.decode_multiplies = b->model.parameters,
				.prefill_multiplies = b->model.parameters};
	bench_note(
	    b,
	    "the model's file is not known (--model FILE): all %llu parameters count as used for each token",
	    (unsigned long long)b->model.parameters);
	return EXIT_DONE;
}

enum exit_code bench_open(const struct bench_options *options, struct bench *ret)
{
	struct bench b = {.options = options};
	interrupt_watch();
	enum exit_code code = connect_ready(options->common.socket, &b.client, &b.model);
	if (code)
		return code;
	read_status(&b);
	if (options->threads)
		b.threads = (unsigned)options->threads;
	*ret = b;
	return EXIT_DONE;
}

void bench_close(struct bench *bench)
{
	tr_close(bench->client);
}

static void print_json(const struct bench *b, const struct figure *f)
{
	printf("{\"bench\":\"%s\",\"metric\":\"%s\",\"unit\":\"%s\",\"p50\":%.6g,\"p90\":%.6g,\"p99\":%.6g,"
	       "\"p999\":%.6g,\"p9999\":%.6g,\"max\":%.6g,\"n\":%llu,",
	       f->bench, f->metric, f->unit, f->p50, f->p90, f->p99, f->p999, f->p9999, f->max,
	       (unsigned long long)f->n);
	if (f->floor > 0)
		printf("\"floor\":%.6g,\"ratio\":%.4g,", f->floor, f->p50 / f->floor);
	else
		printf("\"floor\":null,\"ratio\":null,");
	printf("\"isa\":");
	json_print_text(stdout, b->model.isa);
	printf(",\"threads\":%u}\n", b->threads);
}

static void print_row(const struct figure *f)
{
	static bool headed;
	if (!headed)
		printf("%-8s %-34s %-9s %9s %9s %9s %9s %9s %9s %8s %9s %7s\n", "bench", "metric", "unit",
		       "p50", "p90", "p99", "p99.9", "p99.99", "max", "n", "floor", "p50/fl.");
	headed = true;
	printf("%-8s %-34s %-9s %9.5g %9.5g %9.5g %9.5g %9.5g %9.5g %8llu", f->bench, f->metric, f->unit,
	       f->p50, f->p90, f->p99, f->p999, f->p9999, f->max, (unsigned long long)f->n);
	if (f->floor > 0)
		printf(" %9.5g %7.3f\n", f->floor, f->p50 / f->floor);
	else
		printf(" %9s %7s\n", "-", "-");
}

void bench_print(const struct bench *b, const struct figure *f)
{
	if (b->options->json)
		print_json(b, f);
	else
		print_row(f);
	fflush(stdout);
}

void bench_note(const struct bench *b, const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	fprintf(b->options->json ? stderr : stdout, "%s\n", text);
}

struct figure figure_of_histogram(const struct histogram *h)
{
	return (struct figure){
	    .p50 = (double)histogram_percentile(h, 0.5),
	    .p90 = (double)histogram_percentile(h, 0.9),
	    .p99 = (double)histogram_percentile(h, 0.99),
	    .p999 = (double)histogram_percentile(h, 0.999),
	    .p9999 = (double)histogram_percentile(h, 0.9999),
	    .max = (double)h->max,
	    .n = h->n,
	};
}

int series_add(struct series *s, double value)
{
	if (s->n == s->capacity) {
		size_t capacity = s->capacity ? 2 * s->capacity : 64;
		double *grown = realloc(s->value, capacity * sizeof *grown);
		if (!grown)
			return -ENOMEM;
		s->value = grown;
		s->capacity = capacity;
	}
	s->value[s->n++] = value;
	return 0;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static void sort(struct series *s)
{
	if (s->n)
		qsort(s->value, s->n, sizeof *s->value, ascending);
}

/* Of a sorted series: rank ceil(fraction * n) from the low end. */
static double at(const struct series *s, double fraction)
{
	if (!s->n)
		return 0;
	size_t rank = (size_t)ceil(fraction * (double)s->n);
	return s->value[rank ? rank - 1 : 0];
}

double series_median(struct series *s)
{
	sort(s);
	return at(s, 0.5);
}

struct figure figure_of_rates(struct series *s)
{
	sort(s);
	return (struct figure){.p50 = at(s, 0.5),
			       .p90 = at(s, 0.1),
			       .p99 = at(s, 0.01),
			       .p999 = at(s, 0.001),
			       .p9999 = at(s, 0.0001),
			       .max = at(s, 1),
			       .n = s->n};
}

struct figure figure_of_times(struct series *s)
{
	sort(s);
	return (struct figure){.p50 = at(s, 0.5),
			       .p90 = at(s, 0.9),
			       .p99 = at(s, 0.99),
			       .p999 = at(s, 0.999),
			       .p9999 = at(s, 0.9999),
			       .max = at(s, 1),
			       .n = s->n};
}

void series_free(struct series *s)
{
	free(s->value);
	*s = (struct series){0};
}

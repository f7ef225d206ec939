#include "daemon/model/gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/model/gguf_internal.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF values are read in place: this file needs a little-endian host"
#endif

enum {
	MIN_ENTRY_BYTES = 8 + 1 + 4 + 1, /* key length, key, type, value */
	MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
};

struct reader {
	const uint8_t *data;
	size_t bytes;
	size_t at;
	char *why;
	size_t why_bytes;
};

__attribute__((format(printf, 3, 4))) static int fail(const struct reader *r, int error, const char *format,
						      ...)
{
	if (r->why && r->why_bytes) {
		va_list args;
		va_start(args, format);
		vsnprintf(r->why, r->why_bytes, format, args);
		va_end(args);
	}
	return error;
}

size_t gguf_scalar_bytes(enum gguf_type type)
{
	static const uint8_t bytes[GGUF_TYPE_COUNT] = {
	    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
	    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
	};
	return (unsigned)type < GGUF_TYPE_COUNT ? bytes[type] : 0;
}

int gguf_text_compare(struct gguf_text a, struct gguf_text b)
{
	size_t common = a.bytes < b.bytes ? a.bytes : b.bytes;
	int order = common ? memcmp(a.data, b.data, common) : 0;
	if (order)
		return order;
	return (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

/* Takes `n` bytes, or explains which field of what ends beyond the header. */
static int take(struct reader *r, size_t n, const char *field, const uint8_t **ret)
{
	if (n > r->bytes - r->at)
		return fail(r, -EINVAL, "the file ends at byte %zu inside %s, which starts at byte %zu",
			    r->bytes, field, r->at);
	*ret = r->data + r->at;
	r->at += n;
	return 0;
}

static int take_u32(struct reader *r, const char *field, uint32_t *ret)
{
	const uint8_t *p;
	int error = take(r, sizeof *ret, field, &p);
	if (!error)
		memcpy(ret, p, sizeof *ret);
	return error;
}

static int take_u64(struct reader *r, const char *field, uint64_t *ret)
{
	const uint8_t *p;
	int error = take(r, sizeof *ret, field, &p);
	if (!error)
		memcpy(ret, p, sizeof *ret);
	return error;
}

static int take_text(struct reader *r, const char *field, struct gguf_text *ret)
{
	uint64_t n;
	size_t start = r->at;
	int error = take_u64(r, field, &n);
	if (error)
		return error;
	if (n > r->bytes - r->at)
		return fail(r, -EINVAL, "%s at byte %zu has %" PRIu64 " bytes, but only %zu are left", field,
			    start, n, r->bytes - r->at);
	*ret = (struct gguf_text){(const char *)r->data + r->at, (size_t)n};
	r->at += (size_t)n;
	return 0;
}

/* Names are printed in messages and compared with C strings: printable ASCII only. */
static int take_name(struct reader *r, const char *field, size_t limit, struct gguf_text *ret)
{
	size_t start = r->at;
	struct gguf_text name;
	int error = take_text(r, field, &name);
	if (error)
		return error;
	if (name.bytes == 0 || name.bytes > limit)
		return fail(r, -EINVAL, "%s at byte %zu has %zu bytes; 1 to %zu are allowed", field, start,
			    name.bytes, limit);
	for (size_t i = 0; i < name.bytes; i++)
		if (name.data[i] <= ' ' || name.data[i] > '~')
			return fail(r, -EINVAL,
				    "%s at byte %zu holds the byte 0x%02x, which is not printable ASCII",
				    field, start, (unsigned char)name.data[i]);
	*ret = name;
	return 0;
}

static int skip_strings(struct reader *r, const char *what, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		struct gguf_text text;
		int error = take_text(r, what, &text);
		if (error)
			return error;
	}
	return 0;
}

static int check_bools(struct reader *r, const char *what, const uint8_t *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (data[i] > 1)
			return fail(r, -EINVAL, "%s at byte %zu: a truth value is %u, not 0 or 1", what,
				    (size_t)(data + i - r->data), data[i]);
	return 0;
}

static int take_array(struct reader *r, const char *what, struct gguf_array *ret)
{
	uint32_t type;
	uint64_t n;
	size_t start = r->at;
	int error = take_u32(r, what, &type);
	if (error || (error = take_u64(r, what, &n)))
		return error;
	if (type == GGUF_ARRAY)
		return fail(r, -ENOTSUP, "%s at byte %zu is an array of arrays, which is not supported", what,
			    start);
	size_t each = type == GGUF_STRING ? 8 : gguf_scalar_bytes((enum gguf_type)type);
	if (each == 0)
		return fail(r, -EINVAL, "%s at byte %zu: element type %u does not exist", what, start, type);
	if (n > (r->bytes - r->at) / each)
		return fail(r, -EINVAL,
			    "%s at byte %zu has %" PRIu64 " elements, more than the file can hold", what,
			    start, n);
	const uint8_t *data = r->data + r->at;
	if (type == GGUF_STRING)
		error = skip_strings(r, what, n);
	else
		error = take(r, (size_t)n * each, what, &data);
	if (!error && type == GGUF_BOOL)
		error = check_bools(r, what, data, (size_t)n);
	if (error)
		return error;
	*ret = (struct gguf_array){(enum gguf_type)type, n, data, (size_t)(r->data + r->at - data)};
	return 0;
}

static int take_value(struct reader *r, const char *what, struct gguf_entry *entry)
{
	if (entry->type == GGUF_ARRAY)
		return take_array(r, what, &entry->array);
	if (entry->type == GGUF_STRING) {
		struct gguf_text text;
		int error = take_text(r, what, &text);
		if (error)
			return error;
		entry->data = (const uint8_t *)text.data;
		entry->bytes = text.bytes;
		return 0;
	}
	int error = take(r, gguf_scalar_bytes(entry->type), what, &entry->data);
	if (!error && entry->type == GGUF_BOOL)
		error = check_bools(r, what, entry->data, 1);
	return error;
}

static int take_entry(struct reader *r, size_t i, struct gguf_entry *entry)
{
	char what[160];
	uint32_t type;
	snprintf(what, sizeof what, "the name of key %zu", i);
	int error = take_name(r, what, GGUF_MAX_KEY_BYTES, &entry->key);
	if (error)
		return error;
	int shown = entry->key.bytes < 100 ? (int)entry->key.bytes : 100;
	snprintf(what, sizeof what, "key %zu '%.*s'", i, shown, entry->key.data);
	size_t start = r->at;
	error = take_u32(r, what, &type);
	if (error)
		return error;
	if (type >= GGUF_TYPE_COUNT)
		return fail(r, -EINVAL, "%s at byte %zu: value type %u does not exist", what, start, type);
	entry->type = (enum gguf_type)type;
	return take_value(r, what, entry);
}

static int tensor_size(struct reader *r, const char *what, size_t start, struct gguf_tensor *t)
{
	uint64_t weights = 1;
	for (unsigned d = 0; d < t->n_dims; d++) {
		if (t->dims[d] == 0)
			return fail(r, -EINVAL, "%s at byte %zu: dimension %u is 0", what, start, d);
		if (__builtin_mul_overflow(weights, t->dims[d], &weights))
			return fail(r, -EINVAL, "%s at byte %zu: the product of its dimensions overflows",
				    what, start);
	}
	const struct weight_type_info *info = &weight_type_info[t->type];
	if (t->dims[0] % info->block_weights)
		return fail(r, -EINVAL,
			    "%s at byte %zu: %" PRIu64
			    " columns are no multiple of the %u weights of a %s block",
			    what, start, t->dims[0], info->block_weights, info->name);
	if (__builtin_mul_overflow(weights / info->block_weights, (uint64_t)info->block_bytes, &t->bytes))
		return fail(r, -EINVAL, "%s at byte %zu: its size in bytes overflows", what, start);
	return 0;
}

static int take_tensor(struct reader *r, size_t i, struct gguf_tensor *t)
{
	char what[GGUF_MAX_NAME_BYTES + 64];
	uint32_t n_dims, type;
	size_t start = r->at;
	snprintf(what, sizeof what, "the name of tensor %zu", i);
	int error = take_name(r, what, GGUF_MAX_NAME_BYTES, &t->name);
	if (error)
		return error;
	snprintf(what, sizeof what, "tensor %zu '%.*s'", i, (int)t->name.bytes, t->name.data);
	error = take_u32(r, what, &n_dims);
	if (error)
		return error;
	if (n_dims == 0 || n_dims > GGUF_MAX_DIMS)
		return fail(r, -EINVAL, "%s at byte %zu: %u dimensions; 1 to %d are allowed", what, start,
			    n_dims, GGUF_MAX_DIMS);
	t->n_dims = n_dims;
	for (unsigned d = 0; d < GGUF_MAX_DIMS; d++) {
		t->dims[d] = 1;
		if (d < n_dims && (error = take_u64(r, what, &t->dims[d])))
			return error;
	}
	if ((error = take_u32(r, what, &type)) || (error = take_u64(r, what, &t->offset)))
		return error;
	t->type = weight_type_from_gguf(type);
	if (t->type == TYPE_COUNT)
		return fail(r, -ENOTSUP, "%s at byte %zu: type %u is not supported", what, start, type);
	return tensor_size(r, what, start, t);
}

static int compare_entries(const void *a, const void *b, void *gguf)
{
	const struct gguf_entry *entries = ((struct gguf *)gguf)->entries;
	return gguf_text_compare(entries[*(const uint32_t *)a].key, entries[*(const uint32_t *)b].key);
}

static int compare_tensors(const void *a, const void *b, void *gguf)
{
	const struct gguf_tensor *tensors = ((struct gguf *)gguf)->tensors;
	return gguf_text_compare(tensors[*(const uint32_t *)a].name, tensors[*(const uint32_t *)b].name);
}

static int compare_offsets(const void *a, const void *b, void *gguf)
{
	const struct gguf_tensor *tensors = ((struct gguf *)gguf)->tensors;
	uint64_t x = tensors[*(const uint32_t *)a].offset, y = tensors[*(const uint32_t *)b].offset;
	return (x > y) - (x < y);
}

static uint32_t *sorted(struct gguf *g, size_t n, int (*compare)(const void *, const void *, void *))
{
	uint32_t *order = calloc(n + 1, sizeof *order);
	if (!order)
		return NULL;
	for (size_t i = 0; i < n; i++)
		order[i] = (uint32_t)i;
	qsort_r(order, n, sizeof *order, compare, g);
	return order;
}

static int read_entries(struct reader *r, struct gguf *g)
{
	g->entries = calloc(g->n_entries + 1, sizeof *g->entries);
	if (!g->entries)
		return fail(r, -ENOMEM, "no memory for %zu keys", g->n_entries);
	for (size_t i = 0; i < g->n_entries; i++) {
		int error = take_entry(r, i, &g->entries[i]);
		if (error)
			return error;
	}
	g->entry_order = sorted(g, g->n_entries, compare_entries);
	if (!g->entry_order)
		return fail(r, -ENOMEM, "no memory for %zu keys", g->n_entries);
	for (size_t i = 1; i < g->n_entries; i++) {
		struct gguf_text key = g->entries[g->entry_order[i]].key;
		if (compare_entries(&g->entry_order[i - 1], &g->entry_order[i], g) == 0)
			return fail(r, -EINVAL, "key '%.*s' at byte %zu occurs twice",
				    key.bytes < 100 ? (int)key.bytes : 100, key.data,
				    (size_t)((const uint8_t *)key.data - r->data));
	}
	return 0;
}

static int read_tensors(struct reader *r, struct gguf *g)
{
	g->tensors = calloc(g->n_tensors + 1, sizeof *g->tensors);
	if (!g->tensors)
		return fail(r, -ENOMEM, "no memory for %zu tensors", g->n_tensors);
	for (size_t i = 0; i < g->n_tensors; i++) {
		int error = take_tensor(r, i, &g->tensors[i]);
		if (error)
			return error;
	}
	g->tensor_order = sorted(g, g->n_tensors, compare_tensors);
	if (!g->tensor_order)
		return fail(r, -ENOMEM, "no memory for %zu tensors", g->n_tensors);
	for (size_t i = 1; i < g->n_tensors; i++) {
		struct gguf_text name = g->tensors[g->tensor_order[i]].name;
		if (compare_tensors(&g->tensor_order[i - 1], &g->tensor_order[i], g) == 0)
			return fail(r, -EINVAL, "tensor '%.*s' at byte %zu occurs twice", (int)name.bytes,
				    name.data, (size_t)((const uint8_t *)name.data - r->data));
	}
	return 0;
}

static int read_alignment(struct reader *r, struct gguf *g, uint64_t *ret)
{
	uint32_t alignment = 32;
	int error = gguf_u32(g, "general.alignment", &alignment);
	if (error && error != -ENOENT)
		return fail(r, -EINVAL, "key 'general.alignment' is not an unsigned integer of 32 bits");
	if (alignment < 8 || alignment > GGUF_MAX_ALIGNMENT || (alignment & (alignment - 1)))
		return fail(r, -EINVAL,
			    "key 'general.alignment' is %u; a power of two from 8 to %u is needed", alignment,
			    GGUF_MAX_ALIGNMENT);
	*ret = alignment;
	return 0;
}

/* Makes offsets absolute; every tensor must lie inside the file. */
static int place_tensors(struct reader *r, struct gguf *g, uint64_t alignment)
{
	g->data_offset = (r->at + alignment - 1) / alignment * alignment;
	for (size_t i = 0; i < g->n_tensors; i++) {
		struct gguf_tensor *t = &g->tensors[i];
		uint64_t start, end;
		if (t->offset % alignment)
			return fail(r, -EINVAL,
				    "tensor %zu '%.*s': its data offset %" PRIu64
				    " is no multiple of the alignment %" PRIu64,
				    i, (int)t->name.bytes, t->name.data, t->offset, alignment);
		if (__builtin_add_overflow(g->data_offset, t->offset, &start) ||
		    __builtin_add_overflow(start, t->bytes, &end))
			return fail(r, -EINVAL, "tensor %zu '%.*s': its data offset %" PRIu64 " overflows", i,
				    (int)t->name.bytes, t->name.data, t->offset);
		if (end > g->file_bytes)
			return fail(r, -EINVAL,
				    "tensor %zu '%.*s' ends at byte %" PRIu64
				    ", but the file has only %" PRIu64 " bytes; it is truncated",
				    i, (int)t->name.bytes, t->name.data, end, g->file_bytes);
		t->offset = start;
	}
	return 0;
}

static int check_overlaps(struct reader *r, struct gguf *g)
{
	uint32_t *order = sorted(g, g->n_tensors, compare_offsets);
	if (!order)
		return fail(r, -ENOMEM, "no memory for %zu tensors", g->n_tensors);
	int error = 0;
	for (size_t i = 1; i < g->n_tensors && !error; i++) {
		const struct gguf_tensor *a = &g->tensors[order[i - 1]], *b = &g->tensors[order[i]];
		if (a->offset + a->bytes > b->offset)
			error = fail(r, -EINVAL, "tensors '%.*s' and '%.*s' overlap at byte %" PRIu64,
				     (int)a->name.bytes, a->name.data, (int)b->name.bytes, b->name.data,
				     b->offset);
	}
	free(order);
	return error;
}

static int check_magic(struct reader *r, uint32_t *ret_version)
{
	uint32_t magic, version;
	int error = take_u32(r, "the magic", &magic);
	if (error)
		return error;
	if (memcmp(&magic, "GGUF", 4))
		return fail(r, -EINVAL,
			    "not a GGUF file: byte 0 holds %02x %02x %02x %02x instead of the magic 'GGUF'",
			    r->data[0], r->data[1], r->data[2], r->data[3]);
	error = take_u32(r, "the version", &version);
	if (error)
		return error;
	if (version && !(version & 0xffff))
		return fail(r, -ENOTSUP,
			    "the version at byte 4 is big-endian; only little-endian files are read");
	if (version != 2 && version != 3)
		return fail(r, -ENOTSUP, "the version at byte 4 is %u; versions 2 and 3 are read", version);
	*ret_version = version;
	return 0;
}

static int take_count(struct reader *r, const char *field, size_t each, size_t *ret)
{
	uint64_t n;
	size_t start = r->at;
	int error = take_u64(r, field, &n);
	if (error)
		return error;
	if (n > r->bytes / each || n > UINT32_MAX)
		return fail(r, -EINVAL,
			    "%s at byte %zu is %" PRIu64 ", more than %zu bytes of header can hold", field,
			    start, n, r->bytes);
	*ret = (size_t)n;
	return 0;
}

static int parse(struct reader *r, struct gguf *g)
{
	uint64_t alignment = 0;
	int error = check_magic(r, &g->version);
	if (error || (error = take_count(r, "the number of tensors", MIN_TENSOR_BYTES, &g->n_tensors)) ||
	    (error = take_count(r, "the number of keys", MIN_ENTRY_BYTES, &g->n_entries)) ||
	    (error = read_entries(r, g)) || (error = read_alignment(r, g, &alignment)) ||
	    (error = read_tensors(r, g)) || (error = place_tensors(r, g, alignment)))
		return error;
	return check_overlaps(r, g);
}

int gguf_parse(const void *data, size_t bytes, uint64_t file_bytes, struct gguf **ret, char *why,
	       size_t why_bytes)
{
	struct reader r = {.data = data, .bytes = bytes, .why = why, .why_bytes = why_bytes};
	struct gguf *g = calloc(1, sizeof *g);
	if (!g)
		return fail(&r, -ENOMEM, "no memory for the model's directory");
	g->file_bytes = file_bytes;
	int error = parse(&r, g);
	if (error) {
		gguf_close(g);
		return error;
	}
	*ret = g;
	return 0;
}

void gguf_close(struct gguf *g)
{
	if (!g)
		return;
	free(g->entries);
	free(g->entry_order);
	free(g->tensors);
	free(g->tensor_order);
	free(g->image);
	free(g);
}

#include <errno.h>
#include <string.h>

#include "daemon/model/gguf.h"
#include "daemon/model/gguf_internal.h"

/* A scalar widened without loss: integers to sign and magnitude, reals to double. */
struct number {
	bool real;
	bool negative;
	uint64_t magnitude;
	double value;
};

static struct number from_signed(int64_t v)
{
	return (struct number){.negative = v < 0, .magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v};
}

#define LOAD(type, p)                        \
	({                                   \
		type v_;                     \
		memcpy(&v_, (p), sizeof v_); \
		v_;                          \
	})

static int load_number(enum gguf_type type, const uint8_t *p, struct number *ret)
{
	switch (type) {
	case GGUF_U8:
		*ret = (struct number){.magnitude = *p};
		return 0;
	case GGUF_U16:
		*ret = (struct number){.magnitude = LOAD(uint16_t, p)};
		return 0;
	case GGUF_U32:
		*ret = (struct number){.magnitude = LOAD(uint32_t, p)};
		return 0;
	case GGUF_U64:
		*ret = (struct number){.magnitude = LOAD(uint64_t, p)};
		return 0;
	case GGUF_I8:
		*ret = from_signed(LOAD(int8_t, p));
		return 0;
	case GGUF_I16:
		*ret = from_signed(LOAD(int16_t, p));
		return 0;
	case GGUF_I32:
		*ret = from_signed(LOAD(int32_t, p));
		return 0;
	case GGUF_I64:
		*ret = from_signed(LOAD(int64_t, p));
		return 0;
	case GGUF_F32:
		*ret = (struct number){.real = true, .value = (double)LOAD(float, p)};
		return 0;
	case GGUF_F64:
		*ret = (struct number){.real = true, .value = LOAD(double, p)};
		return 0;
	default:
		return -EINVAL;
	}
}

static int load_unsigned(enum gguf_type type, const uint8_t *p, uint64_t limit, uint64_t *ret)
{
	struct number n;
	int error = load_number(type, p, &n);
	if (error || n.real)
		return -EINVAL;
	if (n.negative || n.magnitude > limit)
		return -ERANGE;
	*ret = n.magnitude;
	return 0;
}

static int load_float(enum gguf_type type, const uint8_t *p, float *ret)
{
	struct number n;
	int error = load_number(type, p, &n);
	if (error || !n.real)
		return -EINVAL;
	*ret = (float)n.value;
	return 0;
}

static const struct gguf_entry *find(const struct gguf *g, const char *key)
{
	struct gguf_text wanted = {key, strlen(key)};
	size_t low = 0, high = g->n_entries;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct gguf_entry *entry = &g->entries[g->entry_order[middle]];
		int order = gguf_text_compare(wanted, entry->key);
		if (order == 0)
			return entry;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

int gguf_u64(const struct gguf *g, const char *key, uint64_t *ret)
{
	const struct gguf_entry *entry = find(g, key);
	return entry ? load_unsigned(entry->type, entry->data, UINT64_MAX, ret) : -ENOENT;
}

int gguf_u32(const struct gguf *g, const char *key, uint32_t *ret)
{
	const struct gguf_entry *entry = find(g, key);
	uint64_t value;
	int error = entry ? load_unsigned(entry->type, entry->data, UINT32_MAX, &value) : -ENOENT;
	if (!error)
		*ret = (uint32_t)value;
	return error;
}

int gguf_f32(const struct gguf *g, const char *key, float *ret)
{
	const struct gguf_entry *entry = find(g, key);
	return entry ? load_float(entry->type, entry->data, ret) : -ENOENT;
}

int gguf_bool(const struct gguf *g, const char *key, bool *ret)
{
	const struct gguf_entry *entry = find(g, key);
	if (!entry)
		return -ENOENT;
	if (entry->type != GGUF_BOOL)
		return -EINVAL;
	*ret = *entry->data != 0;
	return 0;
}

int gguf_string(const struct gguf *g, const char *key, struct gguf_text *ret)
{
	const struct gguf_entry *entry = find(g, key);
	if (!entry)
		return -ENOENT;
	if (entry->type != GGUF_STRING)
		return -EINVAL;
	*ret = (struct gguf_text){(const char *)entry->data, entry->bytes};
	return 0;
}

int gguf_array(const struct gguf *g, const char *key, struct gguf_array *ret)
{
	const struct gguf_entry *entry = find(g, key);
	if (!entry)
		return -ENOENT;
	if (entry->type != GGUF_ARRAY)
		return -EINVAL;
	*ret = entry->array;
	return 0;
}

static const uint8_t *element(const struct gguf_array *array, uint64_t i)
{
	return i < array->n ? array->data + i * gguf_scalar_bytes(array->type) : NULL;
}

int gguf_array_u32(const struct gguf_array *array, uint64_t i, uint32_t *ret)
{
	const uint8_t *p = element(array, i);
	uint64_t value;
	int error = p ? load_unsigned(array->type, p, UINT32_MAX, &value) : -ERANGE;
	if (!error)
		*ret = (uint32_t)value;
	return error;
}

int gguf_array_i32(const struct gguf_array *array, uint64_t i, int32_t *ret)
{
	const uint8_t *p = element(array, i);
	struct number n;
	int error = p ? load_number(array->type, p, &n) : -ERANGE;
	if (error || n.real)
		return error ? error : -EINVAL;
	if (n.magnitude > (uint64_t)INT32_MAX + n.negative)
		return -ERANGE;
	*ret = n.negative ? (int32_t)-(int64_t)n.magnitude : (int32_t)n.magnitude;
	return 0;
}

int gguf_array_f32(const struct gguf_array *array, uint64_t i, float *ret)
{
	const uint8_t *p = element(array, i);
	return p ? load_float(array->type, p, ret) : -ERANGE;
}

bool gguf_array_next_string(const struct gguf_array *array, size_t *cursor, struct gguf_text *ret)
{
	if (array->type != GGUF_STRING || *cursor >= array->bytes)
		return false;
	uint64_t n = LOAD(uint64_t, array->data + *cursor); /* the parser has checked every length */
	*ret = (struct gguf_text){(const char *)array->data + *cursor + 8, (size_t)n};
	*cursor += 8 + (size_t)n;
	return true;
}

uint32_t gguf_version(const struct gguf *g)
{
	return g->version;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
	return g->file_bytes;
}

uint64_t gguf_data_offset(const struct gguf *g)
{
	return g->data_offset;
}

size_t gguf_n_keys(const struct gguf *g)
{
	return g->n_entries;
}

struct gguf_text gguf_key(const struct gguf *g, size_t i, enum gguf_type *ret_type)
{
	if (ret_type)
		*ret_type = g->entries[i].type;
	return g->entries[i].key;
}

size_t gguf_n_tensors(const struct gguf *g)
{
	return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, size_t i)
{
	return &g->tensors[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
	struct gguf_text wanted = {name, strlen(name)};
	size_t low = 0, high = g->n_tensors;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct gguf_tensor *tensor = &g->tensors[g->tensor_order[middle]];
		int order = gguf_text_compare(wanted, tensor->name);
		if (order == 0)
			return tensor;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

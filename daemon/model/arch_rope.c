/* RoPE frequencies and their scalings.  Sources: Su et al. 2021 (RoPE); Chen et al. 2023 (linear
 * interpolation); Peng et al. 2023 (YaRN, "NTK by parts"); Llama 3.1's per-frequency factors, which the file
 * stores as rope_freqs.weight. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/model/arch_build.h"

enum { MAX_PAIRS = 2048 };

static void read_factors(struct arch_builder *b, uint32_t pairs, float *factors)
{
	const struct gguf_tensor *t = arch_tensor(b, "rope_freqs.weight");
	for (uint32_t i = 0; i < pairs; i++)
		factors[i] = 1.0f;
	if (!t || b->error)
		return;
	b->n_used++;
	if (t->type != TYPE_F32 || t->dims[0] != pairs || t->dims[1] != 1 || t->dims[2] != 1 ||
	    t->dims[3] != 1) {
		arch_fail(b, -EINVAL, "tensor 'rope_freqs.weight' is not a vector of %u floats", pairs);
		return;
	}
	int error = b->source->read_floats(b->source->context, t, factors);
	if (error)
		arch_fail(b, error, "cannot read tensor 'rope_freqs.weight': %s", strerror(-error));
	for (uint32_t i = 0; i < pairs && !b->error; i++)
		if (!(factors[i] > 0 && isfinite(factors[i])))
			arch_fail(b, -EINVAL, "tensor 'rope_freqs.weight' has the factor %g at %u",
				  (double)factors[i], i);
}

/* The pair that turns `rotations` times over the original context. */
static double yarn_pair(double rotations, double base, uint32_t dims, double original)
{
	return dims * log(original / (rotations * 2 * M_PI)) / (2 * log(base));
}

/* Slow pairs are interpolated, fast ones kept, those between blended. */
static void scale_yarn(struct arch_builder *b, double base, uint32_t dims, double factor, double *frequencies,
		       float *ret_magnitude)
{
	uint32_t original = arch_need_u32(b, "rope.scaling.original_context_length", 1, 1u << 30);
	arch_refuse_key(b, "rope.scaling.yarn_log_multiplier");
	double fast = arch_f32(b, "rope.scaling.yarn_beta_fast", 32, 1, 1000);
	double slow = arch_f32(b, "rope.scaling.yarn_beta_slow", 1, 1e-3f, 1000);
	double magnitude = arch_f32(b, "rope.scaling.attn_factor", 1, 1e-3f, 1000);
	double low = fmax(floor(yarn_pair(fast, base, dims, original)), 0);
	double high = fmin(ceil(yarn_pair(slow, base, dims, original)), dims - 1);
	double span = high > low ? high - low : 0.001;
	for (uint32_t i = 0; i < dims / 2; i++) {
		double interpolated = fmin(fmax((i - low) / span, 0), 1);
		frequencies[i] *= interpolated / factor + (1 - interpolated);
	}
	*ret_magnitude = (float)(magnitude * (factor > 1 ? 0.1 * log(factor) + 1 : 1));
}

static void scale(struct arch_builder *b, double base, uint32_t dims, double *frequencies,
		  float *ret_magnitude)
{
	struct gguf_text type = {"", 0};
	char key[128];
	snprintf(key, sizeof key, "%s.rope.scaling.type", b->prefix);
	if (gguf_string(b->source->gguf, key, &type) == -EINVAL)
		arch_fail(b, -EINVAL, "key '%s' is no string", key);
	double legacy = arch_f32(b, "rope.scale_linear", 1, 1e-3f, 1e6f);
	double factor = arch_f32(b, "rope.scaling.factor", (float)legacy, 1e-3f, 1e6f);
	if (type.bytes == 4 && memcmp(type.data, "none", 4) == 0)
		return;
	if (type.bytes == 4 && memcmp(type.data, "yarn", 4) == 0) {
		scale_yarn(b, base, dims, factor, frequencies, ret_magnitude);
	} else if (type.bytes == 0 || (type.bytes == 6 && memcmp(type.data, "linear", 6) == 0)) {
		for (uint32_t i = 0; i < dims / 2; i++)
			frequencies[i] /= factor;
	} else {
		arch_fail(b, -ENOTSUP, "key '%s' is '%.*s'; none, linear and yarn are supported", key,
			  type.bytes < 40 ? (int)type.bytes : 40, type.data);
	}
}

uint16_t arch_rope_table(struct arch_builder *b, double base, uint32_t dims, float *ret_magnitude)
{
	double frequencies[MAX_PAIRS];
	float factors[MAX_PAIRS], values[MAX_PAIRS];
	if (dims % 2 || dims == 0 || dims / 2 > MAX_PAIRS)
		arch_fail(b, -EINVAL, "%u rotated dimensions are not an even number up to %d", dims,
			  2 * MAX_PAIRS);
	if (b->error)
		return TAPE_NONE;
	for (uint32_t i = 0; i < dims / 2; i++)
		frequencies[i] = pow(base, -2.0 * i / dims);
	if (ret_magnitude) {
		*ret_magnitude = 1.0f;
		read_factors(b, dims / 2, factors);
		for (uint32_t i = 0; i < dims / 2; i++)
			frequencies[i] /= (double)factors[i];
		scale(b, base, dims, frequencies, ret_magnitude);
	}
	for (uint32_t i = 0; i < dims / 2; i++)
		values[i] = (float)frequencies[i];
	return arch_table(b, values, dims / 2);
}

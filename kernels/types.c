#include "kernels/types.h"

const struct weight_type_info weight_type_info[TYPE_COUNT] = {
#define X(name, text, gguf, weights, bytes) [name] = {text, gguf, weights, bytes},
    WEIGHT_TYPES(X)
#undef X
};

enum weight_type weight_type_from_gguf(uint32_t gguf)
{
	for (unsigned type = 0; type < TYPE_COUNT; type++)
		if (weight_type_info[type].gguf == gguf)
			return (enum weight_type)type;
	return TYPE_COUNT;
}

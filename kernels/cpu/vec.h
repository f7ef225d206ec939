/* The vector type of the instruction set that the including file is compiled for (meson.build gives the
 * flags). The one place that asks which it is. */
#ifndef TOKENRING_KERNELS_CPU_VEC_H
#define TOKENRING_KERNELS_CPU_VEC_H

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "kernels/cpu/vec_avx512vnni.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "kernels/cpu/vec_avx2.h"
#else
#include "kernels/cpu/vec_generic.h"
#endif

#endif

#include "kernels/cpu/isa_rows.h"

const struct cpu_isa cpu_isa_avx2 = ISA_TABLE("avx2", 20000);

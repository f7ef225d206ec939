#include "kernels/cpu/isa_rows.h"

const struct cpu_isa cpu_isa_avx512vnni = ISA_TABLE("avx512vnni", 40000);

#include "kernels/cpu/isa_rows.h"

const struct cpu_isa cpu_isa_generic = ISA_TABLE("generic", 500);

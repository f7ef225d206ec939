/* cpu with instruction set avx512vnni against ref-int8. */
#include "tests/conformance/conformance.h"

int main(void)
{
	return conformance_main("cpu", "avx512vnni");
}

/* cpu with instruction set avx2 against ref-int8. */
#include "tests/conformance/conformance.h"

int main(void)
{
	return conformance_main("cpu", "avx2");
}

/* cpu with instruction set generic against ref-int8. */
#include "tests/conformance/conformance.h"

int main(void)
{
	return conformance_main("cpu", "generic");
}

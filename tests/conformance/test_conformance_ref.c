/* ref-int8 against itself: chunks, mates, stale memory and faults. */
#include "tests/conformance/conformance.h"

int main(void)
{
	return conformance_main("ref-int8", "auto");
}

/* A target with a known bug: it must crash within seconds.  If it does not, the fuzzers find nothing
 * anywhere. */
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size >= 4 && data[0] == 'G' && data[1] == 'G' && data[2] == 'U' && data[3] == 'F')
		__builtin_trap();
	return 0;
}

/* Any bytes as a configuration file: an answer or a sentence, and no half-applied values. */
#include <stdlib.h>
#include <string.h>

#include "daemon/control/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config config, before;
	char why[256] = "";

	config_defaults(&config);
	before = config;
	if (config_read_text(&config, "fuzz", (const char *)data, size, why, sizeof(why)) < 0 &&
	    (!*why || memcmp(&config, &before, sizeof(config)) != 0))
		abort();
	return 0;
}

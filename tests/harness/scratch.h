/* Names for files that a test makes: below TMPDIR, which tools/check removes whatever becomes of the test. */
#ifndef TOKENRING_TESTS_HARNESS_SCRATCH_H
#define TOKENRING_TESTS_HARNESS_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fills `path` with a template for mkstemp or mkdtemp and returns it. A folder too long for `bytes`, or for
 * the address of a socket below it, gives way to /tmp. */
static inline char *scratch_path(char *path, size_t bytes, const char *name)
{
	const char *folder = getenv("TMPDIR");
	size_t rest = strlen(name) + sizeof "/-XXXXXX";

	if (!folder || !*folder || strlen(folder) + rest > (bytes < 80 ? bytes : 80))
		folder = "/tmp";
	snprintf(path, bytes, "%s/%s-XXXXXX", folder, name);
	return path;
}

#endif

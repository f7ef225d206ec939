/* Machines that are folders: unpacks tests/unit/topologies/NAME below a scratch folder that stands for /.
 *
 * A line is "path: text", one a line of the file, or "path -> target" for a link, whose target folder is made
 * if it is not there; # begins a comment. */
#ifndef TOKENRING_TESTS_HARNESS_MACHINE_H
#define TOKENRING_TESTS_HARNESS_MACHINE_H

#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/harness/scratch.h"

static char machine_root[64];

static inline int machine_setup(void **state)
{
	return mkdtemp(scratch_path(machine_root, sizeof(machine_root), "tokenring-topology")) ? 0 : -1;
}

static inline int machine_teardown(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", machine_root);
	return system(command);
}

static inline void machine_make_folders(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(path, 0700);
		*slash = '/';
	}
}

/* Writes a file, or appends a line to it. */
static inline void machine_write(const char *path, const char *text, const char *mode)
{
	char full[PATH_MAX];
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", machine_root, path);
	machine_make_folders(full);
	file = fopen(full, mode);
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static inline void machine_put(const char *path, const char *text)
{
	machine_write(path, text, "w");
}

static inline void machine_link(const char *path, const char *target)
{
	char full[PATH_MAX], folder[2 * PATH_MAX];

	snprintf(full, sizeof(full), "%s/%s", machine_root, path);
	machine_make_folders(full);
	assert_int_equal(symlink(target, full), 0);
	snprintf(folder, sizeof(folder), "%.*s/%s/", (int)(strrchr(full, '/') - full), full, target);
	machine_make_folders(folder);
}

static inline void machine_unpack(const char *name)
{
	char path[PATH_MAX], line[1024];
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/unit/topologies/%s", getenv("TOKENRING_SOURCE_ROOT"), name);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		char *text = strstr(line, ": "), *target = strstr(line, " -> ");

		if (*line == '#')
			continue;
		if (target) {
			target[strcspn(target, "\n")] = 0;
			*target = 0;
			machine_link(line, target + strlen(" -> "));
			continue;
		}
		assert_non_null(text);
		*text = 0;
		machine_write(line, text + 2, "a");
	}
	fclose(file);
}

#endif

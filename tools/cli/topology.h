/* The daemon's answer about its topology, for people. */
#ifndef TOKENRING_TOOLS_CLI_TOPOLOGY_H
#define TOKENRING_TOOLS_CLI_TOPOLOGY_H

#include <stdbool.h>
#include <stdio.h>

/* Prints machine, plan and reality; a line on which they differ begins with "!". False: the text is not such
 * an answer. Pure but for the file. */
bool topology_print(FILE *file, const char *json);

#endif

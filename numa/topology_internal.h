/* The parts of topology_read, one file each. */
#ifndef TOKENRING_NUMA_TOPOLOGY_INTERNAL_H
#define TOKENRING_NUMA_TOPOLOGY_INTERNAL_H

#include "numa/parse.h"
#include "numa/topology.h"

enum { TEXT_BYTES = 16384 /* longer files are cut */ };

/* Reads a whole small file; false: it is not there or empty. The text ends with a NUL. */
bool read_text(char text[TEXT_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, understood as a list or a number. *ret stays untouched on failure. */
bool read_list(struct id_set *ret, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool read_number(int64_t *ret, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* topology_cgroup.c: the smallest limit of the process's groups and everything above them, 0 where there is
 * none; and the CPUs that its cpuset leaves it (version 2), false where there is none. */
double read_quota(const char *root);
bool read_cpuset(const char *root, struct id_set *ret);

/* topology_node.c: nodes, and the node of each CPU in `topology`. */
void read_nodes(const char *root, struct topology *topology);

/* topology_pci.c */
void read_devices(const char *root, struct topology *topology);

#endif

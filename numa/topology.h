/* What a machine is made of, as far as it matters for placement: CPUs that the process may use and how they
 * share cores, caches, packages and nodes; nodes with their memory, huge pages and distances; PCI devices.
 *
 * Thread rule: any thread; reads files of /proc and /sys, so not for the hot path. Every file is bounded and
 * may say anything: what cannot be read or understood counts as unknown. Sources: Linux
 * Documentation/admin-guide/cputopology.rst, ABI/stable/sysfs-devices-node, ABI/testing/sysfs-bus-pci,
 * cgroup-v2.rst (cpu.max, cpuset), sched-bwc.rst (cgroup v1). */
#ifndef TOKENRING_NUMA_TOPOLOGY_H
#define TOKENRING_NUMA_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	TOPOLOGY_CPUS_MAX = 1024,
	TOPOLOGY_NODES_MAX = 64, /* ids below it; further nodes are not looked at */
	TOPOLOGY_DEVICES_MAX = 256,
};

/* Sizes of reserved huge pages that are of use here. */
enum topology_page { TOPOLOGY_PAGE_2M, TOPOLOGY_PAGE_1G, TOPOLOGY_PAGES };

struct topology_cpu {
	int id;
	int core;        /* lowest CPU id of its SMT siblings, be they allowed or not */
	int node;        /* 0 where the kernel names none */
	int package;     /* -1: unknown */
	int cache;       /* lowest CPU id of those that share its last-level cache; -1: unknown */
	bool efficiency; /* a slower core of a hybrid processor */
};

struct topology_node {
	int id;
	bool allowed;          /* the process may have memory there */
	uint32_t cores;        /* with CPUs that the process may use */
	uint64_t memory_bytes; /* 0: unknown, or a node without memory */
	uint64_t free_bytes;
	uint64_t pages[TOPOLOGY_PAGES], free_pages[TOPOLOGY_PAGES]; /* reserved huge pages */
	uint16_t distance[TOPOLOGY_NODES_MAX];                      /* by node id; 10: itself; 0: unknown */
};

enum topology_kind { TOPOLOGY_NETWORK, TOPOLOGY_NVME, TOPOLOGY_ACCELERATOR };

/* A network card, an NVMe drive or an accelerator; others are not kept. */
struct topology_device {
	char address[16]; /* 0000:3b:00.0 */
	enum topology_kind kind;
	uint32_t class_code; /* as PCI says: 0x010802 */
	int node;            /* -1: unknown */
};

struct topology {
	uint32_t n_cpus, n_cores; /* of those that the process may use and that are online */
	uint32_t n_nodes;         /* online, 1 at least */
	uint32_t n_devices;
	uint32_t n_offline; /* CPUs that are there but not online */
	double quota_cpus;  /* CPU time a second by the cgroups' limits; 0: no limit */
	struct topology_cpu cpu[TOPOLOGY_CPUS_MAX];          /* (n_cpus) ascending by id */
	struct topology_node node[TOPOLOGY_NODES_MAX];       /* (n_nodes) ascending by id */
	struct topology_device device[TOPOLOGY_DEVICES_MAX]; /* (n_devices) ascending by address */
};

/* `root`: "" for this machine, or a folder that stands for / (tests). -ENOENT: no list of allowed CPUs, or
 * none of them is online; -E2BIG: more CPUs than TOPOLOGY_CPUS_MAX; -ENOMEM. */
int topology_read(const char *root, struct topology *ret);

/* The node of this id, or NULL. */
const struct topology_node *topology_find_node(const struct topology *, int id);

/* The CPUs of a node in ascending order; ret: (TOPOLOGY_CPUS_MAX). Returns how many; 0 for node -1. */
uint32_t topology_cpus_of(const struct topology *, int node, int *ret);

/* The PCI device that holds a block device, through partitions and one level of mapped devices: its node, and
 * its address. -ENOENT: it has none, or it cannot be told. *ret_node may be -1. */
int topology_storage(const char *root, unsigned block_major, unsigned block_minor, int *ret_node,
		     char *ret_address, size_t address_bytes);

#endif

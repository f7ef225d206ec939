/* PCI devices that placement looks at, and the one behind a block device. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numa/topology_internal.h"

/* 0000:3b:00.0, as the kernel names PCI functions. */
static bool is_address(const char *name, size_t length)
{
	static const char form[] = "xxxx:xx:xx.x";

	if (length != sizeof(form) - 1)
		return false;
	for (size_t i = 0; i < length; i++)
		if (form[i] == 'x' ? !isxdigit((unsigned char)name[i]) : name[i] != form[i])
			return false;
	return true;
}

/* PCI Code and ID Assignment: base class, subclass, programming interface. */
static bool kind_of(uint32_t class_code, enum topology_kind *ret)
{
	if (class_code >> 16 == 0x02)
		*ret = TOPOLOGY_NETWORK;
	else if (class_code >> 8 == 0x0108)
		*ret = TOPOLOGY_NVME;
	else if (class_code >> 8 == 0x0302 || class_code >> 16 == 0x12) /* 3D controller; accelerator */
		*ret = TOPOLOGY_ACCELERATOR;
	else
		return false;
	return true;
}

static int node_of(const char *root, const char *address)
{
	int64_t node;

	return read_number(&node, "%s/sys/bus/pci/devices/%s/numa_node", root, address) && node >= 0 &&
		       node < TOPOLOGY_NODES_MAX
		   ? (int)node
		   : -1;
}

static void read_device(const char *root, const char *address, struct topology *topology)
{
	struct topology_device *device = &topology->device[topology->n_devices];
	enum topology_kind kind;
	int64_t code;

	if (!read_number(&code, "%s/sys/bus/pci/devices/%s/class", root, address) || code < 0 ||
	    code > 0xffffff || !kind_of((uint32_t)code, &kind))
		return;
	*device = (struct topology_device){
	    .kind = kind, .class_code = (uint32_t)code, .node = node_of(root, address)};
	snprintf(device->address, sizeof(device->address), "%.12s", address);
	topology->n_devices++;
}

static int by_address(const void *a, const void *b)
{
	return strcmp(((const struct topology_device *)a)->address,
		      ((const struct topology_device *)b)->address);
}

void read_devices(const char *root, struct topology *topology)
{
	char path[PATH_MAX];
	const struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices", root);
	folder = opendir(path);
	if (!folder)
		return;
	while (topology->n_devices < TOPOLOGY_DEVICES_MAX && (entry = readdir(folder)) != NULL)
		if (is_address(entry->d_name, strlen(entry->d_name)))
			read_device(root, entry->d_name, topology);
	closedir(folder);
	qsort(topology->device, topology->n_devices, sizeof(topology->device[0]), by_address);
}

/* ---- block devices ---- */

/* The last PCI function in a path of /sys/devices. */
static bool last_address(const char *path, char *ret, size_t bytes)
{
	bool found = false;

	for (const char *at = path; at; at = strchr(at, '/')) {
		at += *at == '/';
		size_t length = strcspn(at, "/");
		if (!is_address(at, length))
			continue;
		snprintf(ret, bytes, "%.*s", (int)length, at);
		found = true;
	}
	return found;
}

/* The first device below a mapped one (LVM, encryption, RAID). */
static bool first_slave(char path[PATH_MAX])
{
	size_t length = strlen(path);
	const struct dirent *entry;
	char link[PATH_MAX];
	bool found = false;
	DIR *folder;

	snprintf(path + length, PATH_MAX - length, "/slaves");
	folder = opendir(path);
	if (!folder)
		return false;
	while (!found && (entry = readdir(folder)) != NULL)
		if (entry->d_name[0] != '.' &&
		    (size_t)snprintf(link, sizeof(link), "%s/%s", path, entry->d_name) < sizeof(link))
			found = realpath(link, path) != NULL;
	closedir(folder);
	return found;
}

int topology_storage(const char *root, unsigned block_major, unsigned block_minor, int *ret_node,
		     char *ret_address, size_t address_bytes)
{
	char link[PATH_MAX], path[PATH_MAX], address[16];

	snprintf(link, sizeof(link), "%s/sys/dev/block/%u:%u", root, block_major, block_minor);
	if (!realpath(link, path))
		return -ENOENT;
	if (!last_address(path, address, sizeof(address)) &&
	    (!first_slave(path) || !last_address(path, address, sizeof(address))))
		return -ENOENT;
	*ret_node = node_of(root, address);
	snprintf(ret_address, address_bytes, "%s", address);
	return 0;
}

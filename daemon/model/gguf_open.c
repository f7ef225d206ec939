#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/model/gguf.h"
#include "daemon/model/gguf_internal.h"

static int check_file(int fd, const char *path, size_t *ret_bytes, char *why, size_t why_bytes)
{
	struct stat st;
	if (fstat(fd, &st)) {
		int error = -errno;
		snprintf(why, why_bytes, "cannot look at '%s': %s", path, strerror(-error));
		return error;
	}
	if (S_ISDIR(st.st_mode)) {
		snprintf(why, why_bytes, "'%s' is a directory; name the .gguf file in it", path);
		return -EISDIR;
	}
	if (!S_ISREG(st.st_mode)) {
		snprintf(why, why_bytes, "'%s' is not a regular file", path);
		return -EINVAL;
	}
	if (st.st_size == 0) {
		snprintf(why, why_bytes, "'%s' is empty", path);
		return -ENODATA;
	}
	*ret_bytes = (size_t)st.st_size;
	return 0;
}

/* Maps the whole file: only the pages that the parser reads are brought in, and the tail is unmapped after
 * it. */
static int map_and_parse(int fd, const char *path, size_t bytes, struct gguf **ret, char *why,
			 size_t why_bytes)
{
	char reason[512] = "";
	struct gguf *g;
	void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED) {
		int error = -errno;
		snprintf(why, why_bytes, "cannot map '%s': %s", path, strerror(-error));
		return error;
	}
	int error = gguf_parse(map, bytes, bytes, &g, reason, sizeof reason);
	if (error) {
		snprintf(why, why_bytes, "'%s': %s", path, reason);
		munmap(map, bytes);
		return error;
	}
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t keep = (g->data_offset + page - 1) / page * page;
	if (keep < bytes)
		munmap((char *)map + keep, bytes - keep);
	g->map = map;
	g->map_bytes = keep < bytes ? keep : bytes;
	*ret = g;
	return 0;
}

int gguf_open(const char *path, struct gguf **ret, char *why, size_t why_bytes)
{
	size_t bytes = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
	if (fd < 0) {
		int error = -errno;
		snprintf(why, why_bytes, "cannot open '%s': %s", path, strerror(-error));
		return error;
	}
	int error = check_file(fd, path, &bytes, why, why_bytes);
	if (!error)
		error = map_and_parse(fd, path, bytes, ret, why, why_bytes);
	close(fd);
	return error;
}

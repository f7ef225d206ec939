#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/model/gguf.h"
#include "daemon/model/gguf_internal.h"

enum {
	HEADER_BYTES_USUAL = 8 << 20,
	HEADER_BYTES_MAX = 512 << 20, /* vocabularies of today take up to 20 MiB */
};

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

static int read_prefix(int fd, void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = pread(fd, (char *)data + done, bytes - done, (off_t)done);
		if (n > 0)
			done += (size_t)n;
		else if (n == 0)
			return -EIO; /* it was longer a moment ago */
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

static int parse_prefix(int fd, const char *path, size_t bytes, size_t file_bytes, struct gguf **ret,
			char *why, size_t why_bytes)
{
	char reason[512] = "";
	void *image = malloc(bytes);
	int error = image ? read_prefix(fd, image, bytes) : -ENOMEM;
	if (error) {
		snprintf(why, why_bytes, "cannot read '%s': %s", path, strerror(-error));
		free(image);
		return error;
	}
	error = gguf_parse(image, bytes, file_bytes, ret, reason, sizeof reason);
	if (error) {
		snprintf(why, why_bytes, "'%s': %s", path, reason);
		free(image);
		return error;
	}
	(*ret)->image = image;
	return 0;
}

/* Into private memory: a mapping of a file that somebody truncates ends in a SIGBUS. Only parsing tells how
 * long the header is; one that does not fit is read again, four times as long. */
static int read_and_parse(int fd, const char *path, size_t file_bytes, struct gguf **ret, char *why,
			  size_t why_bytes)
{
	size_t most = file_bytes < HEADER_BYTES_MAX ? file_bytes : HEADER_BYTES_MAX;
	size_t bytes = most < HEADER_BYTES_USUAL ? most : HEADER_BYTES_USUAL;
	int error = parse_prefix(fd, path, bytes, file_bytes, ret, why, why_bytes);
	while (error == -EINVAL && bytes < most) {
		bytes = most / 4 < bytes ? most : bytes * 4;
		error = parse_prefix(fd, path, bytes, file_bytes, ret, why, why_bytes);
	}
	return error;
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
		error = read_and_parse(fd, path, bytes, ret, why, why_bytes);
	close(fd);
	return error;
}

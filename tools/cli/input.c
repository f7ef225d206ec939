#include "tools/cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/interrupt.h"

enum { INPUT_BYTES_MAX = 64 << 20 };

static enum exit_code read_all(int fd, const char *name, struct input *in)
{
	size_t capacity = 0;
	for (;;) {
		if (in->bytes + 1 >= capacity) {
			capacity = capacity ? 2 * capacity : 65536;
			char *text =
			    capacity <= 2 * (size_t)INPUT_BYTES_MAX ? realloc(in->text, capacity) : NULL;
			if (!text)
				return complain("%s is longer than 64 MiB", name);
			in->text = text;
		}
		ssize_t n = read(fd, in->text + in->bytes, capacity - in->bytes - 1);
		if (n < 0 && errno == EINTR && !interrupt_count())
			continue;
		if (n < 0 && errno == EINTR)
			return complain("interrupted");
		if (n < 0)
			return complain("cannot read %s: %m", name);
		if (n == 0)
			break;
		in->bytes += (size_t)n;
	}
	in->text[in->bytes] = 0;
	return EXIT_DONE;
}

enum exit_code input_read(const char *argument, struct input *ret)
{
	struct input in = {0};
	enum exit_code code = EXIT_DONE;
	if (!argument || !strcmp(argument, "-")) {
		code = read_all(STDIN_FILENO, "standard input", &in);
	} else {
		in.text = strdup(argument);
		in.bytes = strlen(argument);
		if (!in.text)
			code = complain("no memory for the text");
	}
	if (code)
		free(in.text);
	else
		*ret = in;
	return code;
}

enum exit_code input_read_file(const char *path, struct input *ret)
{
	struct input in = {0};
	if (!strcmp(path, "-"))
		return input_read(NULL, ret);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return complain("cannot open %s: %m", path);
	enum exit_code code = read_all(fd, path, &in);
	close(fd);
	if (code)
		free(in.text);
	else
		*ret = in;
	return code;
}

void input_free(struct input *input)
{
	free(input->text);
	input->text = NULL;
}

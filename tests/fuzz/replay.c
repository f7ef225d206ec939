/* Runs a fuzz target once over every file of the folders and files named on the command line, and over
 * nothing. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (!file) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return 0;
	}
	size_t size = 0, room = 1 << 16;
	uint8_t *data = malloc(room);
	for (size_t got; data && (got = fread(data + size, 1, room - size, file)) > 0;) {
		size += got;
		if (size == room)
			data = realloc(data, room *= 2);
	}
	fclose(file);
	if (!data)
		return 0;
	/* An exact allocation lets AddressSanitizer see a read one byte past the input. */
	uint8_t *exact = realloc(data, size ? size : 1);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	return 1;
}

static int replay_folder(const char *path)
{
	DIR *folder = opendir(path);
	if (!folder)
		return 0;
	int files = 0;
	for (struct dirent *entry; (entry = readdir(folder));) {
		char name[4096];
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		files += replay_file(name);
	}
	closedir(folder);
	return files;
}

int main(int argc, char **argv)
{
	int files = 0;
	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	for (int i = 1; i < argc; i++) {
		struct stat st;
		if (stat(argv[i], &st) == 0)
			files += S_ISDIR(st.st_mode) ? replay_folder(argv[i]) : replay_file(argv[i]);
	}
	printf("%d inputs\n", files);
	if (!files)
		fprintf(stderr, "no inputs: the corpus folder of this target is missing or empty\n");
	return files ? 0 : 1;
}

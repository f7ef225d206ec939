#include "tests/harness/one_mapping.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>

enum { MAPPINGS = 256 };

struct mapping {
	unsigned char *base; /* NULL: a free entry */
	uint64_t bytes;
	dev_t device;
	ino_t file;
	unsigned users;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct mapping mappings[MAPPINGS];
static unsigned shared;

static struct mapping *find_base(const unsigned char *base)
{
	for (int i = 0; i < MAPPINGS; i++)
		if (mappings[i].base == base)
			return &mappings[i];
	return NULL;
}

static struct mapping *find_file(const struct stat *status)
{
	for (int i = 0; i < MAPPINGS; i++)
		if (mappings[i].base && mappings[i].device == status->st_dev &&
		    mappings[i].file == status->st_ino)
			return &mappings[i];
	return NULL;
}

int __wrap_segment_create(struct segment *ret, struct segment_layout *layout, enum segment_pages pages,
			  char *why, size_t why_bytes)
{
	int error = __real_segment_create(ret, layout, pages, why, why_bytes);
	struct mapping *entry;
	struct stat status;

	if (error < 0 || fstat(ret->fd, &status) < 0)
		return error;
	pthread_mutex_lock(&mutex);
	entry = find_base(NULL);
	if (entry)
		*entry = (struct mapping){ret->base, ret->bytes, status.st_dev, status.st_ino, 1};
	pthread_mutex_unlock(&mutex);
	return 0;
}

int __wrap_segment_map(struct segment *ret, int fd, uint64_t bytes, char *why, size_t why_bytes)
{
	struct mapping *entry;
	struct stat status;
	int error = -EPROTO;

	(void)why;
	(void)why_bytes;
	if (fstat(fd, &status) < 0)
		return error;
	pthread_mutex_lock(&mutex);
	entry = find_file(&status);
	if (entry && entry->bytes == bytes) {
		*ret = (struct segment){.fd = -1, .base = entry->base, .bytes = bytes};
		entry->users++;
		shared++;
		error = 0;
	}
	pthread_mutex_unlock(&mutex);
	return error;
}

void __wrap_segment_destroy(struct segment *segment)
{
	struct mapping *entry;

	pthread_mutex_lock(&mutex);
	entry = segment->base ? find_base(segment->base) : NULL;
	if (entry && --entry->users)
		segment->base = NULL; /* another end still uses it */
	else if (entry)
		*entry = (struct mapping){0};
	__real_segment_destroy(segment);
	pthread_mutex_unlock(&mutex);
}

unsigned one_mapping_shared(void)
{
	unsigned n;

	pthread_mutex_lock(&mutex);
	n = shared;
	pthread_mutex_unlock(&mutex);
	return n;
}

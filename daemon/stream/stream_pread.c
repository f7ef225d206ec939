/* A team of threads that call pread: works on every file system, needs no privilege. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/stream/stream.h"

enum { ALIGNMENT = 4096 };

/* One buffer of the ring: piece number p uses slot p % n_slots. */
struct slot {
	char *buffer;
	size_t extent;
	uint64_t at;
	size_t bytes;
	int error;       /* of the read */
	uint64_t failed; /* byte of the file where it failed */
	bool ready;
};

struct stream {
	char *path;
	int fd;
	unsigned readers;
	unsigned n_slots;
	cpu_set_t cpus; /* of the readers; none: any */

	pthread_mutex_t lock; /* guards all below while stream_read runs */
	pthread_cond_t room;  /* a slot was freed, or it ends */
	pthread_cond_t ready; /* a slot was filled, or it ends */
	bool cancelled;
	bool stopping;
	const struct stream_extent *extents;
	size_t n_extents;
	size_t extent; /* the next piece to claim */
	uint64_t at;
	uint64_t claimed, delivered; /* pieces */
	struct slot *slots;
};

__attribute__((format(printf, 4, 5))) static int explain(int error, char *why, size_t why_bytes,
							 const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(why, why_bytes, format, args);
	va_end(args);
	return error;
}

static int open_file(struct stream *s, const char *path, char *why, size_t why_bytes)
{
	struct stat st;
	s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (s->fd < 0) {
		int error = -errno;
		return explain(error, why, why_bytes, "cannot open '%s': %s", path, strerror(-error));
	}
	if (fstat(s->fd, &st) == 0 && S_ISDIR(st.st_mode))
		return explain(-EISDIR, why, why_bytes, "'%s' is a directory", path);
	s->path = strdup(path);
	return s->path ? 0 : explain(-ENOMEM, why, why_bytes, "no memory to read '%s'", path);
}

int stream_open(const char *path, const struct stream_options *options, struct stream **ret, char *why,
		size_t why_bytes)
{
	unsigned readers = options && options->readers ? options->readers : 4;
	unsigned ahead = options && options->ahead ? options->ahead : 2 * readers;
	if (readers > STREAM_READERS_MAX || ahead > 4 * STREAM_READERS_MAX)
		return explain(-EINVAL, why, why_bytes,
			       "%u readers, %u pieces ahead: at most %d and %d are allowed", readers, ahead,
			       STREAM_READERS_MAX, 4 * STREAM_READERS_MAX);
	struct stream *s = calloc(1, sizeof *s);
	if (!s)
		return explain(-ENOMEM, why, why_bytes, "no memory to read '%s'", path);
	s->fd = -1;
	s->readers = readers;
	s->n_slots = ahead;
	for (unsigned i = 0; options && i < options->n_cpus; i++)
		CPU_SET(options->cpus[i], &s->cpus); /* ignores those above 1023 */
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->room, NULL);
	pthread_cond_init(&s->ready, NULL);
	int error = open_file(s, path, why, why_bytes);
	if (error) {
		stream_close(s);
		return error;
	}
	*ret = s;
	return 0;
}

void stream_close(struct stream *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	pthread_cond_destroy(&s->ready);
	pthread_cond_destroy(&s->room);
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s);
}

void stream_cancel(struct stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->cancelled = true;
	pthread_cond_broadcast(&s->room);
	pthread_cond_broadcast(&s->ready);
	pthread_mutex_unlock(&s->lock);
}

/* Bytes of this extent's pieces: as many granules as fit, at least one. */
static uint64_t piece_bytes(const struct stream_extent *extent)
{
	uint64_t granules = STREAM_PIECE_BYTES / extent->granule_bytes;
	return granules ? granules * extent->granule_bytes : extent->granule_bytes;
}

static int check_extents(const struct stream *s, const struct stream_extent *extents, size_t n,
			 size_t *ret_largest, char *why, size_t why_bytes)
{
	size_t largest = 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t end;
		if (__builtin_add_overflow(extents[i].offset, extents[i].bytes, &end) || end > INT64_MAX ||
		    extents[i].granule_bytes == 0 || extents[i].granule_bytes > STREAM_GRANULE_MAX_BYTES)
			return explain(-EINVAL, why, why_bytes,
				       "extent %zu of '%s' (offset %" PRIu64 ", %" PRIu64
				       " bytes, granule %" PRIu64 ") is out of range",
				       i, s->path, extents[i].offset, extents[i].bytes,
				       extents[i].granule_bytes);
		uint64_t piece = piece_bytes(&extents[i]);
		if (piece > extents[i].bytes)
			piece = extents[i].bytes;
		if (piece > largest)
			largest = (size_t)piece;
	}
	*ret_largest = largest;
	return 0;
}

/* Takes the next piece if there is one and a free slot for it.  The lock is held. */
static struct slot *claim(struct stream *s, bool *ret_end)
{
	while (s->extent < s->n_extents && s->at == s->extents[s->extent].bytes) {
		s->extent++;
		s->at = 0;
	}
	*ret_end = s->extent == s->n_extents || s->stopping || s->cancelled;
	if (*ret_end || s->claimed - s->delivered == s->n_slots)
		return NULL;
	const struct stream_extent *extent = &s->extents[s->extent];
	uint64_t left = extent->bytes - s->at, piece = piece_bytes(extent);
	struct slot *slot = &s->slots[s->claimed++ % s->n_slots];
	slot->extent = s->extent;
	slot->at = s->at;
	slot->bytes = (size_t)(left < piece ? left : piece);
	slot->ready = false;
	s->at += slot->bytes;
	return slot;
}

/* Reads all of a piece through short reads and signals. */
static void fill(const struct stream *s, struct slot *slot)
{
	uint64_t offset = s->extents[slot->extent].offset + slot->at;
	slot->error = 0;
	for (size_t done = 0; done < slot->bytes;) {
		size_t want = slot->bytes - done;
		if (want > STREAM_REQUEST_BYTES)
			want = STREAM_REQUEST_BYTES;
		ssize_t got = pread(s->fd, slot->buffer + done, want, (off_t)(offset + done));
		if (got > 0) {
			done += (size_t)got;
		} else if (got == 0 || errno != EINTR) {
			slot->error = got == 0 ? -ENODATA : -errno;
			slot->failed = offset + done;
			return;
		}
	}
}

static void *reader(void *context)
{
	struct stream *s = context;
	bool end = false;
	pthread_setname_np(pthread_self(), "reader");
	pthread_mutex_lock(&s->lock);
	while (!end) {
		struct slot *slot = claim(s, &end);
		if (slot) {
			pthread_mutex_unlock(&s->lock);
			fill(s, slot);
			pthread_mutex_lock(&s->lock);
			slot->ready = true;
			pthread_cond_signal(&s->ready);
		} else if (!end) {
			pthread_cond_wait(&s->room, &s->lock);
		}
	}
	pthread_cond_broadcast(&s->ready); /* the owner may be waiting for a piece that does not exist */
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* Waits for the next piece in order; *ret stays NULL after the last. */
static int next_piece(struct stream *s, struct slot **ret, char *why, size_t why_bytes)
{
	int error = 0;
	struct slot *slot = &s->slots[s->delivered % s->n_slots];
	pthread_mutex_lock(&s->lock);
	while (!s->cancelled && !(s->claimed > s->delivered && slot->ready) &&
	       !(s->claimed == s->delivered && s->extent == s->n_extents))
		pthread_cond_wait(&s->ready, &s->lock);
	bool last = s->claimed == s->delivered;
	bool cancelled = s->cancelled;
	pthread_mutex_unlock(&s->lock);
	if (cancelled)
		return explain(-ECANCELED, why, why_bytes, "reading '%s' was cancelled", s->path);
	if (last)
		return 0;
	if (slot->error == -ENODATA)
		error =
		    explain(-EIO, why, why_bytes, "'%s' ends at byte %" PRIu64 " though more was expected",
			    s->path, slot->failed);
	else if (slot->error)
		error = explain(-EIO, why, why_bytes, "cannot read '%s' at byte %" PRIu64 ": %s", s->path,
				slot->failed, strerror(-slot->error));
	else
		*ret = slot;
	return error;
}

static int deliver_all(struct stream *s, int (*deliver)(void *, const struct stream_piece *), void *context,
		       char *why, size_t why_bytes)
{
	for (;;) {
		struct slot *slot = NULL;
		int error = next_piece(s, &slot, why, why_bytes);
		if (error || !slot)
			return error;
		error = deliver(context,
				&(struct stream_piece){slot->extent, slot->at, slot->bytes, slot->buffer});
		if (error)
			return error;
		pthread_mutex_lock(&s->lock);
		s->delivered++;
		pthread_cond_signal(&s->room);
		pthread_mutex_unlock(&s->lock);
	}
}

static void stop(struct stream *s, pthread_t *threads, unsigned n)
{
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	pthread_cond_broadcast(&s->room);
	pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

/* Signals are the business of the threads that asked for them. */
static int start(struct stream *s, pthread_t *threads, unsigned *ret_n)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	int error = 0;
	pthread_attr_init(&attributes);
	if (CPU_COUNT(&s->cpus))
		pthread_attr_setaffinity_np(&attributes, sizeof s->cpus, &s->cpus);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (*ret_n = 0; *ret_n < s->readers && !error; *ret_n += !error)
		error = pthread_create(&threads[*ret_n], &attributes, reader, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return *ret_n ? 0 : -error; /* a smaller team is slower, not wrong */
}

static int allocate(struct stream *s, size_t buffer_bytes)
{
	s->slots = calloc(s->n_slots, sizeof *s->slots);
	if (!s->slots)
		return -ENOMEM;
	for (unsigned i = 0; i < s->n_slots; i++)
		if (posix_memalign((void **)&s->slots[i].buffer, ALIGNMENT, buffer_bytes + 1))
			return -ENOMEM;
	return 0;
}

static void release(struct stream *s)
{
	for (unsigned i = 0; s->slots && i < s->n_slots; i++)
		free(s->slots[i].buffer);
	free(s->slots);
	s->slots = NULL;
}

int stream_read(struct stream *s, const struct stream_extent *extents, size_t n,
		int (*deliver)(void *context, const struct stream_piece *), void *context, char *why,
		size_t why_bytes)
{
	pthread_t threads[STREAM_READERS_MAX];
	unsigned started = 0;
	size_t largest = 0;
	int error = check_extents(s, extents, n, &largest, why, why_bytes);
	if (error)
		return error;
	s->extents = extents;
	s->n_extents = n;
	s->extent = 0;
	s->at = s->claimed = s->delivered = 0;
	s->stopping = false;
	error = allocate(s, largest);
	if (!error)
		error = start(s, threads, &started);
	if (error)
		explain(error, why, why_bytes, "cannot start to read '%s': %s", s->path, strerror(-error));
	else
		error = deliver_all(s, deliver, context, why, why_bytes);
	stop(s, threads, started);
	release(s);
	return error;
}

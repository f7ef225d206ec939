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

/* A reader's buffer, and what is in it. */
struct seat {
	struct stream *stream;
	pthread_t thread;
	char *buffer;
	size_t extent;
	uint64_t at;
	size_t bytes;
	int error;       /* of the read */
	uint64_t failed; /* byte of the file where it failed */
};

struct stream {
	char *path;
	int fd;
	unsigned readers;
	cpu_set_t cpus; /* of the readers; none: any */

	/* ---- while stream_read runs ---- */
	const struct stream_extent *extents;
	size_t n_extents;
	int (*deliver)(void *, const struct stream_piece *);
	void *context;
	struct seat *seats; /* (readers) */

	pthread_mutex_t lock; /* guards all below */
	bool cancelled;
	size_t extent; /* the next piece to read */
	uint64_t at;
	int error;                 /* the first */
	const struct seat *failed; /* whose read it was; NULL: the callback's */
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
	if (readers > STREAM_READERS_MAX)
		return explain(-EINVAL, why, why_bytes, "%u readers: at most %d are allowed", readers,
			       STREAM_READERS_MAX);
	struct stream *s = calloc(1, sizeof *s);
	if (!s)
		return explain(-ENOMEM, why, why_bytes, "no memory to read '%s'", path);
	s->fd = -1;
	s->readers = readers;
	for (unsigned i = 0; options && i < options->n_cpus; i++)
		CPU_SET(options->cpus[i], &s->cpus); /* ignores those above 1023 */
	pthread_mutex_init(&s->lock, NULL);
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
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s);
}

void stream_cancel(struct stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->cancelled = true;
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

/* Takes the next piece. False: there is none, or it ends. */
static bool take(struct stream *s, struct seat *seat)
{
	pthread_mutex_lock(&s->lock);
	while (s->extent < s->n_extents && s->at == s->extents[s->extent].bytes) {
		s->extent++;
		s->at = 0;
	}
	bool taken = s->extent < s->n_extents && !s->cancelled && !s->error;
	if (taken) {
		const struct stream_extent *extent = &s->extents[s->extent];
		uint64_t left = extent->bytes - s->at, piece = piece_bytes(extent);
		seat->extent = s->extent;
		seat->at = s->at;
		seat->bytes = (size_t)(left < piece ? left : piece);
		s->at += seat->bytes;
	}
	pthread_mutex_unlock(&s->lock);
	return taken;
}

/* Reads all of a piece through short reads and signals. */
static void fill(const struct stream *s, struct seat *seat)
{
	uint64_t offset = s->extents[seat->extent].offset + seat->at;
	seat->error = 0;
	for (size_t done = 0; done < seat->bytes;) {
		size_t want = seat->bytes - done;
		if (want > STREAM_REQUEST_BYTES)
			want = STREAM_REQUEST_BYTES;
		ssize_t got = pread(s->fd, seat->buffer + done, want, (off_t)(offset + done));
		if (got > 0) {
			done += (size_t)got;
		} else if (got == 0 || errno != EINTR) {
			seat->error = got == 0 ? -ENODATA : -errno;
			seat->failed = offset + done;
			return;
		}
	}
}

static void note_error(struct stream *s, const struct seat *seat, int error)
{
	pthread_mutex_lock(&s->lock);
	if (!s->error) {
		s->error = error;
		s->failed = seat->error ? seat : NULL;
	}
	pthread_mutex_unlock(&s->lock);
}

static void *reader(void *context)
{
	struct seat *seat = context;
	struct stream *s = seat->stream;
	pthread_setname_np(pthread_self(), "reader");
	while (take(s, seat)) {
		fill(s, seat);
		int error = seat->error;
		if (!error)
			error = s->deliver(s->context, &(struct stream_piece){seat->extent, seat->at,
									      seat->bytes, seat->buffer});
		if (error)
			note_error(s, seat, error);
	}
	return NULL;
}

static int result(const struct stream *s, char *why, size_t why_bytes)
{
	const struct seat *failed = s->failed;
	if (!s->error)
		return s->cancelled
			   ? explain(-ECANCELED, why, why_bytes, "reading '%s' was cancelled", s->path)
			   : 0;
	if (!failed)
		return s->error;
	if (failed->error == -ENODATA)
		return explain(-EIO, why, why_bytes, "'%s' ends at byte %" PRIu64 " though more was expected",
			       s->path, failed->failed);
	return explain(-EIO, why, why_bytes, "cannot read '%s' at byte %" PRIu64 ": %s", s->path,
		       failed->failed, strerror(-failed->error));
}

/* Signals are the business of the threads that asked for them. */
static int start(struct stream *s, unsigned *ret_n)
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
		error = pthread_create(&s->seats[*ret_n].thread, &attributes, reader, &s->seats[*ret_n]);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return *ret_n ? 0 : -error; /* a smaller team is slower, not wrong */
}

static int allocate(struct stream *s, size_t buffer_bytes)
{
	s->seats = calloc(s->readers, sizeof *s->seats);
	if (!s->seats)
		return -ENOMEM;
	for (unsigned i = 0; i < s->readers; i++) {
		s->seats[i].stream = s;
		if (posix_memalign((void **)&s->seats[i].buffer, ALIGNMENT, buffer_bytes + 1))
			return -ENOMEM;
	}
	return 0;
}

static void release(struct stream *s)
{
	for (unsigned i = 0; s->seats && i < s->readers; i++)
		free(s->seats[i].buffer);
	free(s->seats);
	s->seats = NULL;
}

int stream_read(struct stream *s, const struct stream_extent *extents, size_t n,
		int (*deliver)(void *context, const struct stream_piece *), void *context, char *why,
		size_t why_bytes)
{
	unsigned started = 0;
	size_t largest = 0;
	int error = check_extents(s, extents, n, &largest, why, why_bytes);
	if (error)
		return error;
	s->extents = extents;
	s->n_extents = n;
	s->deliver = deliver;
	s->context = context;
	s->extent = 0;
	s->at = 0;
	s->error = 0;
	s->failed = NULL;
	error = allocate(s, largest);
	if (!error)
		error = start(s, &started);
	for (unsigned i = 0; i < started; i++)
		pthread_join(s->seats[i].thread, NULL);
	if (error)
		explain(error, why, why_bytes, "cannot start to read '%s': %s", s->path, strerror(-error));
	else
		error = result(s, why, why_bytes);
	release(s);
	return error;
}

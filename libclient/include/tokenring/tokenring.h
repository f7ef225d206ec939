/* tokenring: submit tokens to the inference daemon of this host and poll the answers out of shared memory.
 *
 * One client object is one connection, one channel and one thread: all calls on a client must come from one
 * thread at a time; different clients are independent. tr_strerror, tr_strreason, tr_reason_errno and
 * tr_version may run anywhere. Calls return 0 or a count, or a negative errno. Nothing here logs, exits,
 * aborts or installs a signal handler. Out-parameters are untouched on failure. Every public struct but
 * tr_bias and tr_scored begins with `size`, which the caller sets to its sizeof; it is also the stride of
 * arrays, and bytes beyond what the library knows must be zero.
 *
 * Errors that any call on a client may return:
 *   -ECONNRESET    the daemon closed the channel or died; tr_reconnect opens a new one
 *   -ECONNABORTED  the daemon ended the channel for a protocol error; tr_end_reason says which
 *   -EHOSTDOWN     the daemon's heartbeat is stale: it hangs; later calls may succeed again
 *   -ESTALE        called in a child after fork; only tr_close is allowed there
 *   -EINVAL        an argument is out of range, a struct's size is not known, or a byte that must be zero is
 * not
 */
#ifndef TOKENRING_H
#define TOKENRING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TR_API __attribute__((visibility("default")))

#define TR_VERSION_MAJOR 0
#define TR_VERSION_MINOR 1
#define TR_INLINE_TOKENS 8 /* tokens that travel inside a ring slot, both ways */
#define TR_NO_TOKEN      UINT32_MAX

struct tr_client;

/* Options of tr_open; NULL means all zero. */
struct tr_open_options {
	uint32_t size;
	uint32_t spin_ns;    /* how long tr_wait polls before it sleeps, less after waits that were longer; 0:
			      * 50,000; UINT32_MAX: never sleeps */
	uint32_t timeout_ms; /* for the connection and the set-up; 0: 5,000 */
	uint32_t flags;      /* none defined: zero */
	char *why; /* (why_bytes) NULL, or where tr_open puts a sentence when it fails; its to write until it
		    * returns. Of another version of the channel it names both. */
	size_t why_bytes;
};

enum tr_op {
	TR_GENERATE = 1, /* stream up to max_new tokens */
	TR_SCORE = 2, /* one forward pass: logits of `candidates`, or log-probabilities of `continuations` */
	TR_EMBED =
	    3, /* the hidden state before the logits, after the final norm: of the last token or the mean */
	TR_ECHO = 4, /* return the tokens: measures the path that every request takes */
};

/* Sampling parameters in the order in which they apply: penalty, bias, allowed set, temperature, top-k,
 * top-p, min-p. The token at position p is drawn by inverse CDF from Philox4x32-10 with key = seed, counter =
 * p. */
struct tr_sampling {
	uint32_t size;
	uint32_t top_k; /* 0: off */
	uint64_t seed;
	float temperature;   /* 0: greedy, ties to the lowest id */
	float top_p;         /* (0, 1]; 1: off */
	float min_p;         /* [0, 1]; 0: off */
	float penalty;       /* repetition, over the whole context; 1: off; (0, 10] */
	uint32_t ignore_eos; /* 1: the model's end-of-generation ids do not stop the stream */
	uint32_t reserved;   /* zero */
};

struct tr_bias {
	uint32_t id;
	float bias; /* added to the logit; -INFINITY forbids the id */
};

/* What does not fit a ring slot. All arrays are read during tr_submit and belong to the caller again after
 * it. */
struct tr_request_extra {
	uint32_t size;
	uint32_t n_tokens;
	const uint32_t *tokens;             /* (n_tokens) the prompt; replaces the inline tokens */
	const struct tr_sampling *sampling; /* NULL: that of tr_request.profile */
	const uint32_t *stop_ids;   /* (n_stop_ids) beside the model's own; the id is the last delivered */
	const struct tr_bias *bias; /* (n_bias) */
	const uint32_t *allowed;    /* (n_allowed) strictly ascending; nothing else is sampled */
	const uint32_t *candidates; /* (n_candidates) TR_SCORE: whose logits at the last position */
	const uint32_t *continuation_lengths; /* (n_continuations) TR_SCORE */
	const uint32_t *continuations;        /* (sum of the lengths) their tokens, one after the other */
	uint32_t n_stop_ids, n_bias, n_allowed, n_candidates, n_continuations;
	uint32_t n_logprobs; /* TR_GENERATE: this many top ids with log-probabilities a token beside the
			      * chosen one's; see `logprobs` */
	uint32_t logprobs;   /* 1: log-probabilities are asked */
	uint32_t session;    /* zero: none */
	uint32_t
	    tenant; /* zero: the uid itself; others only where configuration lets this uid speak for them */
	uint32_t adapter; /* zero: none */
	uint32_t max_new; /* replaces tr_request.max_new when not zero */
	uint32_t pool;    /* TR_EMBED: enum tr_pool */
	uint32_t
	    n_embedding;   /* TR_EMBED: floats that there is to be room for: tr_model_info.width, or more */
	uint32_t reserved; /* zero */
};

/* Which hidden states make an embedding. It has the same bits whatever else the daemon computes; it is not
 * normalised. */
enum tr_pool {
	TR_POOL_LAST = 0, /* that of the last token */
	TR_POOL_MEAN = 1, /* the mean of all, added in f32 in their order */
};

/* A request. With extra == NULL it travels in one cache line and its sampling is that of `profile`. */
struct tr_request {
	uint32_t size;
	uint8_t op;       /* enum tr_op */
	uint8_t n_tokens; /* inline: 0 to TR_INLINE_TOKENS */
	uint8_t priority; /* 0 (most urgent) to 7 */
	uint8_t profile;  /* 0: greedy; others from tr_profile */
	const struct tr_request_extra *extra;
	uint64_t deadline_ns; /* absolute CLOCK_MONOTONIC; 0: none */
	uint32_t reserved;    /* zero */
	uint16_t model;       /* 0: the first model */
	uint16_t max_new;     /* 0: the profile's */
	uint32_t tokens[TR_INLINE_TOKENS];
};

enum tr_event_kind {
	TR_EVENT_ECHO = 1,    /* terminal */
	TR_EVENT_TOKENS = 2,  /* more will come */
	TR_EVENT_FINAL = 3,   /* terminal; may carry the last tokens */
	TR_EVENT_REFUSED = 4, /* terminal; nothing was computed; `reason` says why */
	TR_EVENT_SESSION = 5, /* terminal */
};

enum tr_finish {
	TR_FINISH_NONE = 0,
	TR_FINISH_STOP = 1,
	TR_FINISH_LENGTH = 2,
	TR_FINISH_CANCELLED = 3,
	TR_FINISH_DEADLINE = 4,
	TR_FINISH_STALL = 5,
	TR_FINISH_ERROR = 6,
	TR_FINISH_SHUTDOWN = 7,
	TR_FINISH_DONE = 8, /* score, embed */
};

/* A record of a reply: a log-probability or a logit of a token id. */
struct tr_scored {
	uint32_t id;
	float value;
};

struct tr_event {
	uint32_t size;
	uint8_t kind;     /* enum tr_event_kind */
	uint8_t n_tokens; /* in tokens[] */
	uint8_t finish;   /* enum tr_finish; FINAL only */
	uint8_t reserved;
	uint64_t id;     /* what tr_submit returned */
	uint32_t first;  /* index of tokens[0] in the answer */
	int32_t status;  /* 0 or a negative errno */
	uint32_t reason; /* a number for tr_strreason; 0: none */
	uint32_t
	    since_ns_100; /* time since the daemon picked the request up, in units of 100 ns; 0: same turn */
	uint32_t tokens[TR_INLINE_TOKENS];
	/* (n_scored) records: with TOKENS those of tokens[], with FINAL those of the whole answer (see
	 * tr_request_extra.logprobs, candidates, continuations). The library's until the next tr_poll,
	 * tr_wait or tr_close. */
	const struct tr_scored *scored;
	uint32_t n_scored;
	uint32_t scored_stride; /* records a token: 1 + n_logprobs; 1 else */
	uint64_t predicted_ns,
	    retry_ns;          /* REFUSED: when it would finish; how long to wait before trying again */
	uint32_t asked, limit; /* REFUSED for a size: the numbers */
	/* (n_embedding) FINAL of TR_EMBED; NULL else. Whose and until when: as `scored`. */
	const float *embedding;
	uint32_t n_embedding;
	uint32_t reserved_2;
};

struct tr_profile {
	uint32_t size;
	uint32_t max_new;                   /* 1 to 65,535 */
	const struct tr_sampling *sampling; /* NULL: greedy */
	const uint32_t *stop_ids;           /* (n_stop_ids), at most 64 */
	uint32_t n_stop_ids;
	uint32_t reserved; /* zero */
};

enum tr_model_state { TR_MODEL_LOADING = 0, TR_MODEL_READY = 1, TR_MODEL_FAILED = 2 };

struct tr_model_info {
	uint32_t size;
	uint32_t state;    /* enum tr_model_state; the fields below are zero while loading */
	uint32_t vocab;    /* token ids are below it */
	uint32_t context;  /* tokens of prompt and answer together */
	uint32_t bos, eos; /* TR_NO_TOKEN: none */
	uint64_t bytes, parameters;
	char name[64], architecture[32], numerics[32], isa[32];
	uint32_t n_stop_ids; /* end-of-generation ids */
	uint32_t stop_ids[32];
	uint32_t width; /* floats of an embedding */
};

enum { TR_TEXT_BOS = 1, TR_TEXT_SPECIAL = 2 };

/* Connects to `address`: a socket path, or NULL for $TOKENRING_SOCKET, else /run/tokenring/socket, else
 * $XDG_RUNTIME_DIR/tokenring/socket. Blocks up to timeout_ms; allocates. The client belongs to the caller
 * until tr_close. -ENOENT no socket, -ECONNREFUSED no daemon behind it, -ETIMEDOUT, -EPROTONOSUPPORT another
 * version (options->why names both), -EPROTO a channel whose header does not add up, -EUSERS too many
 * channels, -EDQUOT this user's channels hold the memory allowed, -EACCES or -EPERM this user may not,
 * -EMFILE or -ENFILE no descriptor is left here or there, -ENOMEM. While too many of this user's channels are
 * being set up at once it tries again until timeout_ms, then -EUSERS. */
TR_API int tr_open(struct tr_client **ret, const char *address, const struct tr_open_options *options);

/* Closes the connection, unmaps the channel (except in a forked child) and frees the client; requests in
 * flight are cancelled by the daemon. NULL is allowed. Never blocks. */
TR_API void tr_close(struct tr_client *client);

/* Replaces a dead channel by a new one to the same address; requests in flight are lost, profiles must be
 * registered again. Blocks like tr_open and returns its errors; the client stays closed but valid on failure.
 */
TR_API int tr_reconnect(struct tr_client *client);

/* Submits a request. Wait-free: no system call unless the daemon sleeps (then one). No allocation. `*ret_id`
 * names the request in events. -EAGAIN: tr_max_inflight are in flight, or the arena is full; nothing was
 * submitted; poll and try again. -E2BIG: the request can never fit the arena. */
TR_API int tr_submit(struct tr_client *client, const struct tr_request *request, uint64_t *ret_id);

/* Submits up to n requests; returns how many (the first ones), or the first one's error. ret_ids: (n). */
TR_API int tr_submit_many(struct tr_client *client, const struct tr_request *requests, unsigned n,
			  uint64_t *ret_ids);

/* Collects up to `max` events (events[0].size is the stride; the library fills it in for all); returns how
 * many. Never blocks. Replies of the previous call (`scored`, `embedding`) are released. */
TR_API int tr_poll(struct tr_client *client, struct tr_event *events, unsigned max);

/* Like tr_poll, but waits for the first event: spins, then sleeps. timeout_ns < 0: for ever; 0: like tr_poll.
 * Returns 0 on timeout, -EINTR when a signal arrived. */
TR_API int tr_wait(struct tr_client *client, struct tr_event *events, unsigned max, int64_t timeout_ns);

/* Prepares for epoll on tr_fd: 0 = armed, the descriptor becomes readable with the next event; 1 = events are
 * waiting, poll first. tr_poll, tr_submit, tr_cancel and tr_flush keep it armed; tr_wait and the calls over
 * the control socket do not. Arm again after each wake-up, or epoll returns at once for ever. Call tr_poll at
 * least once a second too, to see a hung daemon. One or two system calls; never blocks. */
TR_API int tr_arm(struct tr_client *client);

/* Makes the daemon see what was submitted at once (a submit alone is seen within 100 ms even if nothing else
 * is called). Never blocks; at most one system call. */
TR_API int tr_flush(struct tr_client *client);

/* Asks for the end of a request; it ends with its own terminal event. An id that is not in flight is ignored.
 * Wait-free. -EAGAIN: the ring has no slot but those that requests may need; try again. */
TR_API int tr_cancel(struct tr_client *client, uint64_t id);

/* The descriptor for epoll (EPOLLIN); owned by the client, never read or close it. */
TR_API int tr_fd(const struct tr_client *client);

/* Requests that may be in flight at once on this channel. */
TR_API uint32_t tr_max_inflight(const struct tr_client *client);

/* The reason of the channel's end (for tr_strreason), 0 while it lives. */
TR_API uint32_t tr_end_reason(const struct tr_client *client);

/* A sentence for an error that a call returned or that an event carries in `status` (negative or positive):
 * what it means here and what to do; static, never NULL. */
TR_API const char *tr_strerror(int error);

/* A sentence for a reason number; static, never NULL. */
TR_API const char *tr_strreason(uint32_t reason);

/* The errno (positive) that belongs to a reason number; 0 for none or unknown. */
TR_API int tr_reason_errno(uint32_t reason);

/* "0.1.0"; static. */
TR_API const char *tr_version(void);

/* ---- over the control socket: these block for a round trip through the daemon's control thread, at most
 * timeout_ms of tr_open (-ETIMEDOUT); events that arrive meanwhile stay in the ring ---- */

/* Registers sampling parameters under a number (1 to 255) for tr_request.profile. -ENOSPC: none left. */
TR_API int tr_profile(struct tr_client *client, const struct tr_profile *profile, uint8_t *ret_profile);

/* What the daemon says of a model. -ENOENT: no such number. */
TR_API int tr_model_info(struct tr_client *client, uint16_t model, struct tr_model_info *ret_info);

/* Text to tokens; flags: TR_TEXT_BOS, TR_TEXT_SPECIAL. -ENOSPC with *ret_n = the number needed when capacity
 * is too small. -EMSGSIZE above 1 MiB. -EAGAIN while the model is not loaded. */
TR_API int tr_tokenize(struct tr_client *client, uint16_t model, const char *text, size_t bytes,
		       uint32_t flags, uint32_t *tokens, size_t capacity, size_t *ret_n);

/* Tokens to bytes (which may end inside a UTF-8 character); flags: TR_TEXT_SPECIAL. Not NUL-terminated. */
TR_API int tr_detokenize(struct tr_client *client, uint16_t model, const uint32_t *tokens, size_t n,
			 uint32_t flags, char *text, size_t capacity, size_t *ret_bytes);

/* The daemon's state as one JSON object, NUL-terminated; *ret_bytes without the NUL. -ENOSPC as above. */
TR_API int tr_status(struct tr_client *client, char *json, size_t capacity, size_t *ret_bytes);

/* The machine, the daemon's plan of threads and memory, and what the kernel says of both, in the same form.
 * The daemon looks at most once a second: it walks its page tables. -ENOSPC as above. */
TR_API int tr_topology(struct tr_client *client, char *json, size_t capacity, size_t *ret_bytes);

/* Sessions keep a context in the daemon between requests. -EOPNOTSUPP in this version. */
TR_API int tr_session_open(struct tr_client *client, uint16_t model, uint32_t *ret_session);
TR_API int tr_session_close(struct tr_client *client, uint32_t session);
TR_API int tr_session_fork(struct tr_client *client, uint32_t session, uint64_t *ret_id);

#ifdef __cplusplus
}
#endif

#endif

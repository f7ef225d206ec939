/* The layout of a channel and of its control messages: every constant that two processes must agree on.
 *
 * A channel is one sealed memfd: a header page, a submission ring (client to daemon), a completion ring
 * (daemon to client) and an arena that only the client allocates from. Little-endian; no pointers, only
 * offsets from the start of the memfd. A number is never reused. docs/channel.md has the protocol.
 *
 * Thread rule: definitions only. Who writes a field stands beside it: D the daemon, C the client. */
#ifndef TOKENRING_SHM_WIRE_H
#define TOKENRING_SHM_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "shm/atomics.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the layout is little-endian");

/* Header word 0: "TRNG" in the low half, then the major and the minor version. */
enum { WIRE_MAJOR = 1, WIRE_MINOR = 0 };
#define WIRE_MAGIC (0x474e5254ULL | (uint64_t)WIRE_MAJOR << 32 | (uint64_t)WIRE_MINOR << 48)

enum {
	WIRE_SLOT_BYTES = 64,
	WIRE_SLOT_TOKENS = 8,      /* tokens that travel inside a slot */
	WIRE_RINGS_OFFSET = 4096,  /* rings start here plus 64 x colour */
	WIRE_MAX_SLOTS = 65536,    /* a ring's size: a power of two, 8 at least */
	WIRE_MAX_INFLIGHT = 32768, /* cq_slots >= 2 x max_inflight */
	WIRE_BLOCK_BYTES_MAX = 4 << 20,
	WIRE_CONTROL_BYTES_MAX = 4096, /* one control message, header included */
	WIRE_TEXT_BYTES_MAX = 1 << 20, /* one text or token list over the control socket, all its parts */
	WIRE_HEARTBEAT_NS = 100000000, /* the daemon's period, even while idle */
	WIRE_STALE_NS = 1000000000,    /* an older heartbeat is a hung daemon */
};

/* A slot is one cache line of eight words. Word 0 carries the sequence number in its low half and is stored
 * and polled as one u64; a slot of index i is published when that half equals (u32)(i + 1). */
struct wire_slot {
	_Alignas(WIRE_SLOT_BYTES) shared_u64 word[8];
};

struct wire_header {
	shared_u64 magic; /* D, release, last: nothing else is valid before it */
	uint64_t epoch;   /* differs between starts of the daemon */
	uint64_t bytes;   /* of the memfd */
	uint32_t sq_off, cq_off, sq_slots, cq_slots;
	uint64_t arena_off, arena_bytes;
	uint32_t max_inflight, features;
	uint64_t first_index;                  /* of both rings; 0 except in tests of the wrap */
	_Alignas(128) shared_u64 sq_consumed;  /* D: slots below it are copied */
	_Alignas(128) shared_u32 daemon_sleep; /* D: odd = asleep */
	shared_u32 state, reason;              /* D: enum wire_state, enum wire_reason of an end */
	uint32_t zero;
	shared_u64 heartbeat_ns;               /* D: CLOCK_MONOTONIC */
	_Alignas(128) shared_u64 cq_consumed;  /* C */
	_Alignas(128) shared_u32 client_sleep; /* C: odd = asleep */
};

_Static_assert(offsetof(struct wire_header, sq_off) == 24, "layout");
_Static_assert(offsetof(struct wire_header, arena_off) == 40, "layout");
_Static_assert(offsetof(struct wire_header, first_index) == 64, "layout");
_Static_assert(offsetof(struct wire_header, sq_consumed) == 128, "layout");
_Static_assert(offsetof(struct wire_header, daemon_sleep) == 256, "layout");
_Static_assert(offsetof(struct wire_header, heartbeat_ns) == 272, "layout");
_Static_assert(offsetof(struct wire_header, cq_consumed) == 384, "layout");
_Static_assert(offsetof(struct wire_header, client_sleep) == 512, "layout");

enum wire_state { WIRE_STATE_SETUP = 0, WIRE_STATE_LIVE = 1, WIRE_STATE_ENDED = 2 };

enum wire_op {
	WIRE_OP_GENERATE = 1,
	WIRE_OP_SCORE = 2,
	WIRE_OP_EMBED = 3,
	WIRE_OP_ECHO = 4,
	WIRE_OP_CANCEL = 5,
	WIRE_OP_SESSION_FORK = 6,
};

/* Flags of a submission: the low three bits are the priority class, 0 the most urgent; the rest is zero. */
enum { WIRE_FLAG_PRIORITY = 7 };

enum wire_kind {
	WIRE_KIND_ECHO = 1,    /* terminal */
	WIRE_KIND_TOKENS = 2,  /* some tokens of a stream */
	WIRE_KIND_FINAL = 3,   /* terminal; may carry the last tokens */
	WIRE_KIND_REFUSED = 4, /* terminal; nothing was computed */
	WIRE_KIND_SESSION = 5, /* terminal; the answer of a fork */
};

enum wire_finish {
	WIRE_FINISH_NONE = 0,
	WIRE_FINISH_STOP = 1,   /* a stop id; that id is the last token delivered */
	WIRE_FINISH_LENGTH = 2, /* max_new tokens */
	WIRE_FINISH_CANCELLED = 3,
	WIRE_FINISH_DEADLINE = 4, /* hopeless or past; status -ETIME */
	WIRE_FINISH_STALL = 5,    /* the client did not consume its tokens; status -ENOBUFS */
	WIRE_FINISH_ERROR = 6,    /* aux holds the reason */
	WIRE_FINISH_SHUTDOWN = 7,
	WIRE_FINISH_DONE = 8, /* score, embed: complete */
};

/* X(number, name, errno, sentence): why a request was refused, failed, or a channel ended. */
#define WIRE_REASONS(X)                                                                                   \
	X(0, NONE, 0, "no reason")                                                                        \
	X(1, BAD_OP, EINVAL, "the operation is unknown")                                                  \
	X(2, BAD_FLAG, EINVAL, "a flag that is not defined is set")                                       \
	X(3, BAD_PADDING, EINVAL, "a byte that must be zero is not")                                      \
	X(4, BAD_PROFILE, EINVAL, "the profile is not registered on this channel")                        \
	X(5, BAD_MODEL, ENOENT, "the model is not loaded under this number")                              \
	X(6, BAD_TOKEN, EINVAL, "a token is not below the vocabulary size")                               \
	X(7, BAD_MAX_NEW, EINVAL, "max_new is zero or above the limit")                                   \
	X(8, BAD_PARAMETER, EINVAL, "a sampling parameter is not a number or out of range")               \
	X(9, BAD_TLV, EINVAL, "an option in the request block is unknown or misshapen")                   \
	X(10, BAD_BLOCK, EINVAL, "the request block does not lie in the arena or its sizes disagree")     \
	X(11, BAD_REPLY, EINVAL, "the reply area does not lie in the arena or is too small")              \
	X(12, NO_TOKENS, EINVAL, "the request has no tokens")                                             \
	X(13, PROMPT_TOO_LONG, EMSGSIZE, "the prompt is longer than max_prompt_tokens")                   \
	X(14, CONTEXT, EMSGSIZE, "prompt and answer do not fit the model's context")                      \
	X(15, KV_NEVER_FITS, ENOMEM, "prompt and answer can never fit the KV pool")                       \
	X(16, QUEUE_FULL, EAGAIN, "the queue is full; try again later")                                   \
	X(17, DEADLINE, ETIME, "the deadline is past or cannot be met")                                   \
	X(18, NOT_SUPPORTED, EOPNOTSUPP, "this daemon does not support the operation")                    \
	X(19, TENANT, EPERM, "configuration does not let this user name a tenant")                        \
	X(20, SHUTDOWN, ESHUTDOWN, "the daemon is stopping")                                              \
	X(21, MODEL_FAILED, EIO, "the model could not be loaded")                                         \
	X(22, NUMERIC, EDOM, "an activation is not a number, infinite or too large for the KV cache")     \
	X(23, CLIENT_STALL, ENOBUFS, "the client did not consume its tokens in time")                     \
	X(24, CANCELLED, ECANCELED, "the request was cancelled")                                          \
	X(25, USER_QUEUE, EAGAIN, "this user's requests fill its share of the queue, max_queue_per_uid")  \
	X(26, TENANT_QUEUE, EAGAIN, "this tenant's requests fill its share, max_queue_per_tenant")        \
	X(27, USER_BLOCKS, EAGAIN, "prompts of this user fill its share of the memory for them")          \
	X(28, TENANT_BLOCKS, EAGAIN, "prompts of this tenant fill its share of the memory for them")      \
	X(32, ID_IN_USE, EPROTO, "the id's table index is in use")                                        \
	X(33, ID_INDEX, EPROTO, "the id's table index is not below max_inflight")                         \
	X(34, ID_ORDER, EPROTO, "the id does not rise")                                                   \
	X(35, BAD_CONSUMED, EPROTO, "cq_consumed is not between what was consumed and what was produced") \
	X(36, BAD_CONTROL, EPROTO, "a control message is malformed")                                      \
	X(37, MAP_TIMEOUT, ETIMEDOUT, "the client did not map the channel in time")                       \
	X(38, TOO_MANY_CHANNELS, EUSERS,                                                                  \
	  "channels are at max_clients, or this user's at max_clients_per_uid")                           \
	X(39, TOO_MANY_HALF_OPEN, EUSERS, "too many half-open channels of this user")                     \
	X(40, BAD_SEALS, EPROTO, "the channel could not be sealed")                                       \
	X(41, UNMAPPED_UID, EACCES,                                                                       \
	  "the peer's user is 65534: nobody, or one not mapped in the daemon's user namespace")           \
	X(42, NO_MEMORY, ENOMEM, "the daemon has no memory for another channel")                          \
	X(43, PEER_GONE, ECONNRESET, "the peer's process is gone")                                        \
	X(44, MEMORY_LIMIT, EDQUOT, "channels of this user's processes already hold the memory allowed")  \
	X(45, BAD_COMPLETION, EPROTO, "the daemon published an answer that does not add up")              \
	X(46, USER_DENIED, EACCES, "configuration does not let this user connect; see access")            \
	X(47, NO_DESCRIPTORS, ENFILE, "the daemon has no descriptor left; its LimitNOFILE limits them")

enum wire_reason {
#define X(number, name, error, sentence) WIRE_REASON_##name = number,
	WIRE_REASONS(X)
#undef X
};

enum { WIRE_REASON_LIMIT = 64 }; /* all numbers lie below it: the size of tables by reason */

/* A submission slot as plain bytes, the copy that the daemon validates. C */
struct wire_submission {
	uint32_t seq;
	uint8_t op, n_tok, flags, profile; /* n_tok <= 8; 0 with a block */
	uint64_t id;                       /* low 16 bits: table index; high 48: strictly rising. Cancel: 0 */
	uint64_t deadline_ns;              /* absolute CLOCK_MONOTONIC, 0 = none */
	uint32_t block;                    /* offset / 64 from the memfd's start, 0 = none */
	uint16_t model, max_new;           /* max_new 0: the profile's */
	uint32_t tok[WIRE_SLOT_TOKENS];    /* fork: tok[0] the session; cancel: tok[0..1] the target id */
};

/* A completion slot as plain bytes. D */
struct wire_completion {
	uint32_t seq;
	uint8_t kind, n_tok, finish, flags;
	uint64_t id;
	uint32_t first; /* index of tok[0] in the stream */
	int32_t status; /* 0 or a negative errno */
	uint32_t aux;   /* REFUSED, FINAL with an error: enum wire_reason; FINAL else, TOKENS: bytes in the
			   reply area */
	uint32_t since; /* since pickup, in 100 ns; 0 when answered in the turn of pickup */
	uint32_t tok[WIRE_SLOT_TOKENS];
	/* REFUSED: tok[0..1] predicted ns, tok[2..3] retry ns, tok[4] asked, tok[5] limit */
};

_Static_assert(sizeof(struct wire_submission) == WIRE_SLOT_BYTES, "one line");
_Static_assert(sizeof(struct wire_completion) == WIRE_SLOT_BYTES, "one line");
_Static_assert(offsetof(struct wire_submission, tok) == 32 && offsetof(struct wire_completion, tok) == 32,
	       "layout");

enum { WIRE_BLOCK_VERSION = 1 };

/* A request block in the arena, 64-aligned. Options (TLVs) fill [72, tokens_off), tokens end within bytes. C
 */
struct wire_block {
	uint32_t bytes, version, n_tokens,
	    tokens_off; /* tokens_off: bytes from the block's start, 4-aligned */
	uint32_t max_new, session, tenant, adapter;
	uint64_t seed;
	float temperature, top_p, min_p,
	    penalty;                   /* temperature 0: greedy; top_p 1, min_p 0, penalty 1: off */
	uint32_t top_k, n_logprobs;    /* top_k 0: off; n_logprobs: top ids beside the chosen one */
	uint32_t reply_off, reply_cap; /* reply_off: offset / 64 from the memfd's start; bytes */
};

_Static_assert(sizeof(struct wire_block) == 72, "layout");

/* An option: this header, `bytes` of payload, padded with zeros to a multiple of 8. */
struct wire_tlv {
	uint16_t type, zero;
	uint32_t bytes;
};

enum wire_tlv_type {
	WIRE_TLV_STOP_IDS = 1,      /* u32 ids, beside the model's own end-of-generation ids */
	WIRE_TLV_BIAS = 2,          /* {u32 id, f32 bias} */
	WIRE_TLV_ALLOWED = 3,       /* u32 ids, strictly ascending: nothing else may be sampled */
	WIRE_TLV_CANDIDATES = 4,    /* score: u32 ids whose logits at the last position are asked */
	WIRE_TLV_CONTINUATIONS = 5, /* score: u32 count, u32 length of each, then all tokens */
	WIRE_TLV_FLAGS = 6,         /* u32: WIRE_BLOCK_* below */
};

enum {
	WIRE_BLOCK_IGNORE_EOS = 1, /* the model's end-of-generation ids do not stop the stream */
	WIRE_BLOCK_MEAN = 2,       /* embed: of all tokens, not of the last */
};

enum { WIRE_LOGPROBS_MAX = 32, WIRE_LIST_MAX = 4096 /* entries of one option */ };

/* The reply area: this header, then `count` records of `stride` bytes. D, before its completion's release. */
struct wire_reply {
	uint32_t kind, count, stride, bytes;
};

enum wire_reply_kind {
	/* Records {u32 id, f32 log-probability}. Generate: 1 + n_logprobs a token, the chosen one first, then
	 * the most likely in descending order. Score with continuations: one a continuation token, in order.
	 */
	WIRE_REPLY_LOGPROBS = 1,
	/* Records {u32 id, f32 logit}, in the order of the candidates asked. */
	WIRE_REPLY_LOGITS = 2,
	WIRE_REPLY_EMBEDDING = 3, /* records f32: the model's width of them */
};

struct wire_scored {
	uint32_t id;
	float value;
};

/* ---- control messages: a Unix SOCK_SEQPACKET; one byte is a wake-up, more is this header and a payload ----
 */
struct wire_control {
	uint16_t type;   /* enum wire_control_type; a reply has the type of its request */
	uint16_t flags;  /* WIRE_CONTROL_* */
	uint32_t serial; /* chosen by the client, repeated in the reply */
	int32_t status;  /* replies: 0 or a negative errno with a sentence as payload */
	uint32_t bytes;  /* of payload in this message */
};

enum {
	WIRE_CONTROL_MORE = 1,  /* another part of the same payload follows */
	WIRE_CONTROL_REPLY = 2, /* D */
};

enum wire_control_type {
	WIRE_CONTROL_OFFER = 1,   /* D: struct wire_offer and the memfd */
	WIRE_CONTROL_MAPPED = 2,  /* C */
	WIRE_CONTROL_LIVE = 3,    /* D */
	WIRE_CONTROL_END = 4,     /* D: struct wire_end */
	WIRE_CONTROL_PROFILE = 5, /* C: struct wire_profile; reply: u32 its number */
	WIRE_CONTROL_MODEL =
	    6, /* C: u32 model; reply: struct wire_model and its end-of-generation ids (u32) */
	WIRE_CONTROL_TOKENIZE = 7,   /* C: struct wire_text and UTF-8; reply: u32 tokens */
	WIRE_CONTROL_DETOKENIZE = 8, /* C: struct wire_text and u32 tokens; reply: bytes */
	WIRE_CONTROL_STATUS = 9,     /* C: nothing; reply: one JSON object */
	WIRE_CONTROL_TOPOLOGY = 10,  /* C: nothing; reply: one JSON object */
};

/* The first message of every version, so that each can name the other: the header and these fields keep their
 * places; more may follow. Of another minor version a peer sends nothing that the lower of the two does not
 * know.
 */
struct wire_offer {
	uint64_t bytes; /* of the memfd to map */
	uint32_t major, minor;
};

struct wire_end {
	uint32_t reason, zero;
	char sentence[112]; /* NUL-terminated */
};

struct wire_profile {
	uint64_t seed;
	float temperature, top_p, min_p, penalty;
	uint32_t top_k, max_new, flags, n_stop; /* flags: WIRE_BLOCK_IGNORE_EOS; n_stop u32 ids follow */
};

struct wire_model {
	uint32_t vocab, context, bos, eos; /* UINT32_MAX: none */
	uint32_t state, n_stop;            /* enum wire_model_state; n_stop u32 ids follow */
	uint64_t bytes, parameters;
	char name[64], architecture[32], numerics[32], isa[32];
	uint32_t width, zero; /* floats of an embedding */
};

enum wire_model_state { WIRE_MODEL_LOADING = 0, WIRE_MODEL_READY = 1, WIRE_MODEL_FAILED = 2 };

struct wire_text {
	uint32_t model, flags; /* WIRE_TEXT_* */
};

enum {
	WIRE_TEXT_BOS = 1,     /* tokenize: begin with the model's BOS where it has one */
	WIRE_TEXT_SPECIAL = 2, /* tokenize: read special tokens; detokenize: print them */
};

#endif

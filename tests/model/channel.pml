/* A channel: the client's library and the daemon's front, each load, store and fence of their handshakes.
 *
 * docs/proof.md says what is proved.  A step carries a tag, [R3], with the file and the function that hold the same
 * tag; check_tags compares them.  Every number that rises without end does so modulo a small one: sequence words modulo
 * twice the ring, indices modulo LAPS rings.  Messages never end, so that a proof covers any number of laps.  An atomic
 * block touches shared memory once at most: a store only enters its end's buffer.
 *
 * Bounds: SQ, CQ slots (powers of two), INFLIGHT ids, DEPTH of a store buffer, SOCKET_BYTES, LAPS.
 * Parts, each on or off:
 *   LINES     a line and its sequence word are two stores (else a slot arrives whole)
 *   LATE_SQ LATE_CQ   `consumed` of that ring is published late; the daemon reads it when its ring seems full (else it knows)
 *   SLEEP     ends sleep and wake each other (else they poll)
 *   ARM FLUSH CANCEL   tr_arm with the caller's epoll, tr_flush, tr_cancel (with LATE_SQ and SQ > INFLIGHT)
 *   GENERATE  requests that stream, beside echoes     PARK   the channel may be parked
 *   DEATH=CLIENT or DAEMON   SIGKILL of that end at any step   STARVE the kernel may have no memory for a wake byte
 *   WEAK      memory.pml
 * M_...: mutants, one mistake each; all must fail.
 *
 * check_model puts memory.pml, channel.pml, client.pml, daemon.pml and around.pml together, in this order. */

#define ECHO_OP     0
#define GENERATE_OP 1
#define CANCEL_OP   2
#define TERMINAL    0
#define TOKENS      1

#define FREE    0
#define RUNNING 1
#define BLOCKED 2 /* a token waits for room */

/* ---- the client ---- */
byte c_sq_index, c_cq_index;
#ifdef LATE_SQ
byte d_sq_published;
#endif
#ifdef CANCEL
byte c_cancels, c_cancels_end; /* not known to be copied, and the index after the last */
#endif
#ifdef LATE_CQ
byte d_cq_limit, c_cq_published;
#endif
bit c_flight[INFLIGHT]; /* ids in flight, by table index */
byte c_inflight;
bit c_owed;   /* fence_owed */
byte c_asleep; /* the private sleep word; 0: awake */
byte c_waits; /* for the monitor: 1 in ppoll, 2 in the caller's epoll */
bit c_closed, c_left, c_failed;

/* ---- the daemon ---- */
byte d_sq_index, d_cq_index;
byte d_table[INFLIGHT];
byte d_inflight; /* ids that hold a reserved completion slot */
bit d_unwoken, d_did, d_pickup_waits, d_parked, d_over, d_failed;
byte d_asleep;
byte d_sleeps; /* for the monitor: 1 until the next beat, 2 a millisecond at most */

/* ---- between them ---- */
byte bytes[2];         /* in each end's socket */
byte woken[2], seen[2]; /* of each end's waker: the value noted, the value just read */
bit dead[2];
bit beat;    /* the daemon's timer fires */
bit excused; /* a byte could not be sent: the next beat must repair it */

/* What was published and not yet copied, as a perfect channel would hold it. */
chan submitted = [SQ] of { byte };
chan completed = [CQ] of { byte };

/* The kernel reports a death after the dead end's last stores have arrived. */
#define HUNG_UP(who) (dead[who] && stores[who].n == 0)
#define OTHER(who)   (1 - (who))

#define SQ_NEXT(i, n) (((i) + (n)) % (LAPS * SQ))
#define CQ_NEXT(i, n) (((i) + (n)) % (LAPS * CQ))
#define SQ_SEQ(i)     (((i) + 1) % (2 * SQ))
#define CQ_SEQ(i)     (((i) + 1) % (2 * CQ))
#ifdef M_WRONG_SLOT
#define TO_SQ         (c_sq_index + 1)
#else
#define TO_SQ         c_sq_index
#endif
#ifdef M_WRONG_INDEX
#define WRITTEN       (c_sq_index + 2 * SQ - 1)
#else
#define WRITTEN       c_sq_index
#endif
#ifdef M_OLD_LAP
#define SQ_READY      (memory[SQ_WORD(d_sq_index)] % SQ == SQ_SEQ(d_sq_index) % SQ)
#else
#define SQ_READY      (memory[SQ_WORD(d_sq_index)] % (2 * SQ) == SQ_SEQ(d_sq_index))
#endif
#define CQ_READY      (memory[CQ_WORD(c_cq_index)] % (2 * CQ) == CQ_SEQ(c_cq_index))

/* How far an index of the submission ring lies behind the writer's. */
#define SQ_BEHIND(i) ((c_sq_index + LAPS * SQ - (i)) % (LAPS * SQ))
#ifdef LATE_CQ
#define CQ_ROOM ((d_cq_limit + LAPS * CQ - d_cq_index) % (LAPS * CQ))
#else
#define CQ_ROOM (CQ - len(completed))
#endif

#ifdef M_NO_RESERVE
#define RESERVED 0
#else
#define RESERVED d_inflight
#endif

/* ---- the rings ---- */

#ifdef LATE_CQ
#define NEXT_LOAD ; } atomic {
#else
#define NEXT_LOAD ;
#endif

#ifdef LINES
#ifdef M_SEQUENCE_FIRST
#define PUT(who, word, line, seq, slots, message) store(who, word, seq); store(who, line, message)
#else
#define PUT(who, word, line, seq, slots, message) store(who, line, message); store(who, word, seq)
#endif
#define LOAD_LINE(word, line, slots) message = memory[line]
#define THEN ; } atomic {
#else
#define PUT(who, word, line, seq, slots, message) store(who, word, (message) * 2 * slots + seq)
#define LOAD_LINE(word, line, slots) message = memory[word] / (2 * slots)
#define THEN ;
#endif

/* Ghosts: the message is what a perfect channel would hand out next, once. */
inline compare(perfect)
{
	assert(nempty(perfect));
	perfect?k;
	assert(message == k);
	k = 0
}

/* shm/ring.h ring_writer_refresh: what was read lies between what was known and what was produced. */
#ifdef LATE_CQ
inline refresh(limit, index, word, slots)
{
	assert((memory[word] + (LAPS + 1) * slots - limit) % (LAPS * slots) <= (index + (LAPS + 1) * slots - limit) % (LAPS * slots));
	limit = (memory[word] + slots) % (LAPS * slots) /* [R7] shm/ring.h ring_writer_refresh */
}
#endif

#if defined(LATE_SQ) || defined(LATE_CQ)
inline publish_consumed(who, published, index, word)
{
	if
	:: published != index -> published = index; store(who, word, index) /* [R6] shm/ring.h ring_reader_publish */
	:: else
	fi
}
#endif

/* ---- waking ---- */

/* [W1] shm/wake.h sleeper_next_odd: a value that nobody holds any more, as a counter of 32 bits yields; 0 stands for all
 * even values.  Also when it is odd already. */
inline next_odd(who, w, sleeper)
{
	d_step {
#ifdef M_SAME_ODD
		if
		:: sleeper
		:: else ->
#endif
		sleeper = 1;
		do
		:: sleeper == memory[w] || sleeper == woken[OTHER(who)] || sleeper == seen[OTHER(who)] ||
		   BUFFERED(who, w, sleeper) -> sleeper++
		:: else -> break
		od
#ifdef M_SAME_ODD
		fi
#endif
	}
}

#ifdef M_WOKEN_ONCE
#define IS_WOKEN(who) woken[who]
#else
#define IS_WOKEN(who) (seen[who] == woken[who])
#endif

#ifdef M_NOTED_BEFORE_SENT
#define NOTE_EARLY(who) woken[who] = seen[who]
#else
#define NOTE_EARLY(who) skip
#endif

/* [W4] shm/wake.c wake_look: the load, atomic with what stands before it; goes on at `unwanted`. */
#define LOOK(who, w, unwanted)                                                                                         \
	seen[who] = memory[w];                                                                                         \
	if                                                                                                             \
	:: seen[who] == 0 -> goto unwanted                                                                             \
	:: seen[who] && IS_WOKEN(who) -> seen[who] = 0; goto unwanted                                                  \
	:: else -> NOTE_EARLY(who)                                                                                     \
	fi

inline send_byte(who, failed)
{
	if
	:: atomic { HUNG_UP(OTHER(who)) -> seen[who] = 0; failed = 1 } /* [X1] shm/wake.c wake_look */
	:: atomic { !HUNG_UP(OTHER(who)) && bytes[OTHER(who)] < SOCKET_BYTES -> /* [W5] shm/wake.c wake_look */
		bytes[OTHER(who)]++;
		woken[who] = seen[who]; /* [W6] shm/wake.c wake_look */
		seen[who] = 0 }
	:: atomic { !HUNG_UP(OTHER(who)) && bytes[OTHER(who)] == SOCKET_BYTES ->
		woken[who] = seen[who];
		seen[who] = 0 }
#ifdef STARVE
	:: atomic { !HUNG_UP(OTHER(who)) -> excused = 1; seen[who] = 0 } /* [W7] shm/wake.c wake_look */
#endif
	fi
}

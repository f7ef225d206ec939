/* Memory that two ends share, weaker than it looks: a store goes into its end's buffer and reaches the other end later.
 *
 * TSO (the default): buffers leave in order, as on x86.  WEAK: a relaxed store may leave before older stores to
 * other words, a release store only after all older ones; this is what C11 promises of a store.  A load takes what has
 * arrived; no end loads a word that it stores itself (the protocol has no such word), so no load looks into its own
 * buffer.  A full fence waits until the end's buffer is empty.
 * DEPTH: how many stores a buffer holds; a full one makes the next store wait. */

#define CLIENT 0
#define DAEMON 1

/* Words: ring slots' word 0, the rest of each line as one word, and the header's four. */
#define SQ_WORD(i)   ((i) % SQ)
#define SQ_LINE(i)   (SQ + (i) % SQ)
#define CQ_WORD(i)   (2 * SQ + (i) % CQ)
#define CQ_LINE(i)   (2 * SQ + CQ + (i) % CQ)
#define SQ_CONSUMED  (2 * SQ + 2 * CQ)
#define CQ_CONSUMED  (2 * SQ + 2 * CQ + 1)
#define DAEMON_SLEEP (2 * SQ + 2 * CQ + 2)
#define CLIENT_SLEEP (2 * SQ + 2 * CQ + 3)
#define WORDS        (2 * SQ + 2 * CQ + 4)

#define IS_LINE(a)    ((a) >= SQ && (a) < 2 * SQ || (a) >= 2 * SQ + CQ && (a) < 2 * SQ + 2 * CQ)
#define IS_SEQ(a)     (!IS_LINE(a) && (a) < 2 * SQ + 2 * CQ)
#ifdef M_SEQUENCE_RELAXED
#define IS_RELAXED(a) (IS_LINE(a) || IS_SEQ(a) || (a) >= DAEMON_SLEEP)
#else
#define IS_RELAXED(a) (IS_LINE(a) || (a) >= DAEMON_SLEEP)
#endif

typedef buffer {
	byte n;
	byte word[DEPTH];
	byte value[DEPTH]
};

byte memory[WORDS];
buffer stores[2];

#define HOLDS(end, place, w, v) (stores[end].word[place] == w && stores[end].value[place] == v)
#if DEPTH > 3
#define BUFFERED(end, w, v)                                                                                            \
	(HOLDS(end, 0, w, v) || HOLDS(end, 1, w, v) || HOLDS(end, 2, w, v) || HOLDS(end, 3, w, v))
#elif DEPTH > 2
#define BUFFERED(end, w, v) (HOLDS(end, 0, w, v) || HOLDS(end, 1, w, v) || HOLDS(end, 2, w, v))
#else
#define BUFFERED(end, w, v) (HOLDS(end, 0, w, v) || HOLDS(end, 1, w, v))
#endif

inline store(end, w, v)
{
	atomic {
		stores[end].n < DEPTH;
		stores[end].word[stores[end].n] = w;
		stores[end].value[stores[end].n] = v;
		stores[end].n++
	}
}

inline fence(end)
{
	stores[end].n == 0
}

/* The buffered store at a place reaches memory. */
inline leave(end, place)
{
	d_step {
		memory[stores[end].word[place]] = stores[end].value[place];
		k = place + 1;
		do
		:: k < stores[end].n ->
			stores[end].word[k - 1] = stores[end].word[k];
			stores[end].value[k - 1] = stores[end].value[k];
			k++
		:: else -> break
		od;
		stores[end].n--;
		stores[end].word[stores[end].n] = 0;
		stores[end].value[stores[end].n] = 0;
		k = 0
	}
}

#define PASSES(end, place, older) (stores[end].word[older] != stores[end].word[place])

proctype Buffer(byte end)
{
	byte k;

end_idle:
	do
	:: atomic { stores[end].n > 0 -> leave(end, 0) }
#ifdef WEAK
	:: atomic {
		stores[end].n > 1 && IS_RELAXED(stores[end].word[1]) && PASSES(end, 1, 0) -> leave(end, 1)
	   }
	:: atomic {
		stores[end].n > 2 && IS_RELAXED(stores[end].word[2]) && PASSES(end, 2, 0) && PASSES(end, 2, 1) -> leave(end, 2)
	   }
#if DEPTH > 3
	:: atomic {
		stores[end].n > 3 && IS_RELAXED(stores[end].word[3]) && PASSES(end, 3, 0) && PASSES(end, 3, 1) &&
		PASSES(end, 3, 2) -> leave(end, 3)
	   }
#endif
#endif
	od
}

/* What happens around the two ends: death, time, and the beginning. */

#ifdef DEATH
proctype Death()
{
	dead[DEATH] = 1
}
#endif

#define LEFT (dead[CLIENT] || c_left || c_closed)
#define GONE (dead[DAEMON] || d_over)
#ifdef GENERATE
#define WORKS ENGINE
#else
#define WORKS false
#endif
#define STILL                                                                                                          \
	(stores[CLIENT].n == 0 && stores[DAEMON].n == 0 && !beat &&                                                    \
	 (LEFT || c_waits && bytes[CLIENT] == 0 && !NOTICED(DAEMON)) &&                                                \
	 (GONE || d_sleeps && bytes[DAEMON] == 0 && !WORKS && !NOTICED(CLIENT)))
#ifdef M_DEAF_ASLEEP
#define NOTICED(who) false
#else
#define NOTICED(who) dead[who]
#endif

/* When nothing moves but time: whoever sleeps has a right to.  Then the daemon's timer fires. */
proctype Monitor()
{
end_watching:
	do
	:: atomic { STILL ->
		/* a death is noticed */
		assert(!dead[CLIENT] || GONE);
		assert(!dead[DAEMON] || LEFT);
		if
		:: GONE -> break
		:: else
		fi;
		/* no end sleeps while a message waits for it */
		assert(!(c_waits && CQ_READY) || excused);
		assert(!(d_sleeps == 1 && SQ_READY) || c_owed || excused);
		/* no request is lost: somebody will still answer it */
		assert(c_waits != 1 || SQ_READY || CQ_READY || d_sleeps == 2);
		assert(LEFT || c_waits || d_sleeps == 2);
		excused = 0;
		beat = 1 }
	od
}

init {
	byte k, first;

	atomic {
		select (first : 0 .. LAPS * SQ * CQ - 1);
#ifndef M_NO_PRESET
		/* [R1] shm/ring.h ring_preset */
		do
		:: k < SQ -> memory[SQ_WORD(first + k)] = (first + k + 1 + SQ) % (2 * SQ); k++
		:: else -> break
		od;
		k = 0;
		do
		:: k < CQ -> memory[CQ_WORD(first + k)] = (first + k + 1 + CQ) % (2 * CQ); k++
		:: else -> break
		od;
		k = 0;
#endif
		c_sq_index = SQ_NEXT(first, 0);
		d_sq_index = c_sq_index;
		c_cq_index = CQ_NEXT(first, 0);
		d_cq_index = c_cq_index;
#ifdef LATE_SQ
		d_sq_published = c_sq_index;
		memory[SQ_CONSUMED] = c_sq_index;
#endif
#ifdef CANCEL
		c_cancels_end = c_sq_index;
#endif
#ifdef LATE_CQ
		d_cq_limit = CQ_NEXT(c_cq_index, CQ);
		c_cq_published = c_cq_index;
		memory[CQ_CONSUMED] = c_cq_index;
#endif
		run Buffer(CLIENT);
		run Buffer(DAEMON);
		run Client();
		run Daemon();
#ifdef DEATH
		run Death();
#endif
		run Monitor();
		first = 0
	}
}

/* The daemon: turns of the front, and its sleep. */

/* In `room`: a completion slot is free beyond those reserved.  Atomic with what stands before it. */
inline d_has_room()
{
	room = CQ_ROOM > RESERVED; /* [D1] daemon/engine/channel.h channel_has_room */
#ifdef LATE_CQ
	if
	:: room
	:: !room ->
		refresh(d_cq_limit, d_cq_index, CQ_CONSUMED, CQ);
		room = CQ_ROOM > RESERVED
	fi
#endif
}

inline deliver(what)
{
	atomic {
		assert(CQ_ROOM); /* an answer always has room */
		assert(nfull(completed));
		PUT(DAEMON, CQ_WORD(d_cq_index), CQ_LINE(d_cq_index), CQ_SEQ(d_cq_index), CQ, what);
		completed!what;
		d_cq_index = CQ_NEXT(d_cq_index, 1);
		d_did = 1;
		d_unwoken = 1 /* [D2] daemon/engine/front_internal.h deliver */
	}
}

/* After the copy of a submission. */
inline d_take()
{
	compare(submitted);
	d_sq_index = SQ_NEXT(d_sq_index, 1);
	d_did = 1;
#ifdef LATE_SQ
	if
	:: publish_consumed(DAEMON, d_sq_published, d_sq_index, SQ_CONSUMED) /* [D3] daemon/engine/pickup.c take_slots */
	:: (d_sq_index + LAPS * SQ - d_sq_published) % (LAPS * SQ) < SQ /* not yet */
	fi;
#endif
	if
	:: message / INFLIGHT == ECHO_OP ->
		assert(d_table[message % INFLIGHT] == FREE);
		deliver(TERMINAL * INFLIGHT + message % INFLIGHT)
#ifdef GENERATE
	:: message / INFLIGHT == GENERATE_OP -> /* [D4] daemon/engine/ending.c request_take */
		assert(d_table[message % INFLIGHT] == FREE);
		d_table[message % INFLIGHT] = RUNNING;
		d_inflight++
#endif
#ifdef CANCEL
	:: message / INFLIGHT == CANCEL_OP /* needs no room and has no answer of its own */
#endif
	fi;
	message = 0
}

/* The slots that a turn takes from one channel. */
inline d_pickup()
{
	do
	:: atomic { d_has_room() NEXT_LOAD
		if
		:: !room && SQ_READY -> d_pickup_waits = 1; break /* [D5] daemon/engine/pickup.c next_slot */
		:: !SQ_READY -> break
#ifdef M_NO_ACQUIRE
		:: room -> message = memory[SQ_LINE(d_sq_index)]
		fi }
	   if
	   :: atomic { SQ_READY -> d_take() }
	   :: !SQ_READY -> message = 0
	   fi
#else
		:: room && SQ_READY
		fi
#ifdef M_CONSUMED_EARLY
		; store(DAEMON, SQ_CONSUMED, SQ_NEXT(d_sq_index, 1))
#endif
		THEN
		LOAD_LINE(SQ_WORD(d_sq_index), SQ_LINE(d_sq_index), SQ);
		d_take() }
#endif
	:: break /* the turn's budget */
	od;
	atomic {
#ifdef LATE_SQ
		publish_consumed(DAEMON, d_sq_published, d_sq_index, SQ_CONSUMED); /* [D6] daemon/engine/pickup.c pickup_channel */
#endif
		room = 0
	}
}

#ifdef GENERATE
/* What the engine has for one request: a token, its end, or nothing yet. */
inline d_event(i)
{
	if
	:: atomic { d_table[i] != FREE ->
		d_has_room();
		if
		:: room -> /* [D7] daemon/engine/deliver.c place */
			d_table[i] = RUNNING;
			deliver(TOKENS * INFLIGHT + i)
		:: !room -> d_table[i] = BLOCKED
		fi;
		room = 0 }
	:: atomic { d_table[i] != FREE -> /* [D8] daemon/engine/deliver.c place_final */
		d_table[i] = FREE;
		d_inflight--;
		deliver(TERMINAL * INFLIGHT + i) }
	:: skip
	fi
}
#define OUTBOX (d_table[0] == BLOCKED || d_table[INFLIGHT - 1] == BLOCKED)
#define ENGINE (d_table[0] == RUNNING || d_table[INFLIGHT - 1] == RUNNING)
#else
#define OUTBOX 0
#endif

#ifdef SLEEP
#define CLIENT_WANTS (memory[CLIENT_SLEEP] != 0 && memory[CLIENT_SLEEP] != woken[DAEMON])

/* After a byte the channel leaves the list, whatever the client did since. */
inline d_byte()
{
	looked = seen[DAEMON];
	send_byte(DAEMON, d_failed);
	atomic {
		if
		:: woken[DAEMON] == looked -> d_unwoken = 0 /* [D9] daemon/engine/sleep.c wake_clients */
		:: else
		fi;
		looked = 0
	}
}

inline d_sockets()
{
	bytes[DAEMON] = 0;
	d_failed = d_failed || HUNG_UP(CLIENT) /* [X4] daemon/engine/sleep.c read_message */
}

/* In `work`: whether a turn would pick something up; if its answer would have no room, a millisecond is the longest sleep. */
inline d_look_again()
{
#ifdef M_NO_LOOK_AGAIN_DAEMON
	skip
#else
	if
	:: SQ_READY -> /* [D12] daemon/engine/sleep.c rings_ready */
#ifdef M_STALE_ROOM
		work = CQ_ROOM > RESERVED
#else
		d_has_room();
		d_pickup_waits = !room;
		work = room;
		room = 0
#endif
	:: !SQ_READY
	fi
#endif
}
#endif

inline d_forget()
{
	d_step {
		d_asleep = 0;
		d_sleeps = 0;
		d_inflight = 0;
		d_table[0] = 0;
		d_table[INFLIGHT - 1] = 0;
		d_unwoken = 0;
		d_did = 0;
		d_pickup_waits = 0;
		d_parked = 0;
		seen[DAEMON] = 0;
		woken[DAEMON] = 0;
		bytes[DAEMON] = 0;
		beat = 0
	}
}

#define ASLEEP_FOR(guard) atomic { guard -> d_sleeps = 0 }

proctype Daemon()
{
	byte k, message, room, work, scan, looked;

	{
turns:
	do
	:: atomic { d_failed -> break }
	/* A turn. */
	:: atomic { !d_failed -> d_did = 0; d_pickup_waits = 0
#ifdef PARK
		; if
		:: d_parked && !(scan && SQ_READY) -> scan = 0; goto picked_up /* the rotation is elsewhere, or nothing is there */
		:: d_parked && SQ_READY -> d_parked = 0 /* [D20] daemon/engine/front.c poll_parked */
		:: !d_parked
		fi
#endif
		; scan = 0 }
	   d_pickup();
picked_up: skip;
#ifdef GENERATE
	   d_event(0);
#if INFLIGHT > 1
	   d_event(1);
#endif
#endif
#ifdef SLEEP
	   if
	   :: atomic { !d_did && d_unwoken ->
#ifndef M_NO_FENCE_TURN
		fence(DAEMON); /* [D10] daemon/engine/front.c turn */
#endif
		LOOK(DAEMON, CLIENT_SLEEP, turn_looked) }
	      d_byte();
	      goto turned;
turn_looked:  d_unwoken = 0
	   :: atomic { d_did && d_unwoken && CLIENT_WANTS -> skip } /* [D11] daemon/engine/front.c turn */
	      atomic {
#ifndef M_NO_FENCE_WAKE
		fence(DAEMON); /* [D22] daemon/engine/sleep.c wake_timed */
#endif
		LOOK(DAEMON, CLIENT_SLEEP, turned) } /* unreached: a value that was woken, for no new one is */
	      d_byte()
	   :: atomic { !d_unwoken || (d_did && !CLIENT_WANTS) -> skip }
	   fi;
turned:	   if
	   :: atomic { d_asleep -> d_asleep = 0; store(DAEMON, DAEMON_SLEEP, 0) } /* [D19] daemon/engine/sleep.c end_sleep */
	   :: !d_asleep
	   fi
	/* Between turns. */
	:: atomic { !d_failed && (bytes[DAEMON] || HUNG_UP(CLIENT)) -> d_sockets() }
#ifdef PARK
	:: atomic { !d_failed && !d_did && !d_parked && !SQ_READY -> d_parked = 1 } /* [D21] daemon/engine/front.c park_idle */
#endif
	/* After a turn that did nothing. */
	:: atomic { !d_failed && !d_did ->
		d_did = 1;
		next_odd(DAEMON, DAEMON_SLEEP, d_asleep);
#ifndef M_FLAG_LATE_DAEMON
		store(DAEMON, DAEMON_SLEEP, d_asleep); /* [D13] daemon/engine/sleep.c begin_sleep */
#endif
#ifndef M_NO_FENCE_DAEMON_SLEEP
		fence(DAEMON); /* [D14] daemon/engine/sleep.c begin_sleep */
#endif
		if
		:: d_unwoken -> LOOK(DAEMON, CLIENT_SLEEP, sleep_looked) /* [D15] daemon/engine/sleep.c begin_sleep; unreached: a value that was woken, for it took the channel off the list */
		:: else -> goto look_again
		fi }
	   d_byte();
	   goto look_again;
sleep_looked:
	   d_unwoken = 0;
look_again:
	   atomic {
		d_look_again();
#ifdef M_FLAG_LATE_DAEMON
		store(DAEMON, DAEMON_SLEEP, d_asleep);
#endif
		if
		:: work -> work = 0; goto awake
		:: !work -> d_sleeps = (d_pickup_waits || OUTBOX -> 2 : 1) /* [D16] daemon/engine/sleep.c longest_sleep */
		fi
	   }
	   if
	   :: ASLEEP_FOR(beat); scan = 1; beat = 0 /* [D17] daemon/engine/front.c periodic */
	   :: ASLEEP_FOR(bytes[DAEMON])
#ifdef GENERATE
	   :: ASLEEP_FOR(ENGINE) /* [D18] daemon/engine/sleep.c front_wake */
#endif
#if defined(DEATH) && !defined(M_DEAF_ASLEEP)
	   :: ASLEEP_FOR(HUNG_UP(CLIENT)) /* [X5] daemon/engine/sleep.c socket_event */
#endif
	   fi;
awake:	   skip
#endif
	od;
#ifdef DEATH
	atomic { d_over = 1; d_forget() } /* [X6] daemon/engine/ending.c bury */
#else
	skip
#endif
	} unless { atomic { dead[DAEMON] -> d_forget() } }
}

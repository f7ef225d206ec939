/* The client: what the library does in each call, in any order of calls. */

/* Publishes.  No room is looked for: who has a free table entry has a free slot, as INFLIGHT <= SQ. */
inline c_submit(what)
{
	assert(nfull(submitted)); /* the slot is not one that was not copied yet */
	/* [R2] shm/ring.h ring_publish, then [R3] shm/ring.h ring_commit */
	PUT(CLIENT, SQ_WORD(TO_SQ), SQ_LINE(TO_SQ), SQ_SEQ(WRITTEN), SQ, what);
	submitted!what;
	c_sq_index = SQ_NEXT(c_sq_index, 1)
#ifdef CANCEL
	/* An end that lies far back must not come round to the other side. */
	; if
	:: SQ_BEHIND(c_cancels_end) == 3 * SQ -> c_cancels_end = SQ_NEXT(c_cancels_end, 1)
	:: else
	fi
#endif
#ifdef SLEEP
#ifndef M_SUBMIT_OWES_NOTHING
	; c_owed = 1 /* [C2] libclient/client.h client_owes_fence */
#endif
#endif
}

#ifdef CANCEL
/* Cancels that were not copied fit into the slots that no table entry has.  Goes on at `calls` if one more would not. */
inline c_find_room_to_cancel()
{
#ifdef M_CANCEL_BY_ROOM
	if
	:: SQ - len(submitted) > INFLIGHT - c_inflight /* more than is free now, even if it were known exactly */
	:: else -> goto calls
	fi
#else
	if
	:: c_cancels < SQ - INFLIGHT
	:: else -> /* [C1] libclient/submit.c find_room_to_cancel */
		if
		:: SQ_BEHIND(memory[SQ_CONSUMED]) <= SQ_BEHIND(c_cancels_end) -> c_cancels = 0
		:: else -> goto calls
		fi
	fi
#endif
}
#endif

/* After the copy of a completion. */
inline c_take()
{
	compare(completed);
	assert(c_flight[message % INFLIGHT]);
	c_cq_index = CQ_NEXT(c_cq_index, 1);
	if
	:: message / INFLIGHT == TERMINAL -> /* [C4] libclient/poll.c end_flight */
		c_flight[message % INFLIGHT] = 0;
		c_inflight--
#ifdef GENERATE
	:: message / INFLIGHT == TOKENS
#endif
	fi;
	message = 0
#ifdef LATE_CQ
	; if
	:: publish_consumed(CLIENT, c_cq_published, c_cq_index, CQ_CONSUMED) /* [C5] libclient/poll.c client_collect */
	:: skip
	fi
#endif
}

/* Until nothing is there, or the caller's array is full. */
inline c_collect()
{
	do
#ifdef M_NO_ACQUIRE
	:: message = memory[CQ_LINE(c_cq_index)];
	   if
	   :: atomic { CQ_READY -> c_take() }
	   :: !CQ_READY -> message = 0; break
	   fi
#else
	:: atomic { CQ_READY /* [R4] shm/ring.h ring_read */
#ifdef M_CONSUMED_EARLY
		; store(CLIENT, CQ_CONSUMED, CQ_NEXT(c_cq_index, 1))
#endif
		THEN
		LOAD_LINE(CQ_WORD(c_cq_index), CQ_LINE(c_cq_index), CQ); /* [R5] shm/ring.h ring_read */
		c_take() }
#endif
	:: break
	od
#ifdef LATE_CQ
	; atomic { publish_consumed(CLIENT, c_cq_published, c_cq_index, CQ_CONSUMED) }
#endif
}

#ifdef SLEEP
inline c_sleep_begin()
{
	next_odd(CLIENT, CLIENT_SLEEP, c_asleep);
#ifndef M_FLAG_LATE_CLIENT
	store(CLIENT, CLIENT_SLEEP, c_asleep); /* [W2] shm/wake.h sleep_begin */
#endif
	c_owed = 0;
#ifndef M_NO_FENCE_CLIENT_SLEEP
	fence(CLIENT); /* [W3] shm/wake.h sleep_begin */
#endif
	skip
}

inline c_sleep_end()
{
	if
	:: c_asleep -> c_asleep = 0; store(CLIENT, CLIENT_SLEEP, 0) /* [W8] shm/wake.h sleep_end; unreached: by callers that are never asleep */
	:: else /* unreached: by callers that are always asleep */
	fi
}

/* Reads the socket until it is empty, and disarms before it reads. */
inline c_drain()
{
#ifndef M_DRAIN_STAYS_ARMED
	c_sleep_end(); /* [C7] libclient/socket.c client_receive */
#endif
	bytes[CLIENT] = 0;
	c_failed = c_failed || HUNG_UP(DAEMON) /* [X2] libclient/socket.c judge */
}
#endif

/* What nobody looks at any more is the same in all states. */
inline c_forget()
{
	d_step {
		c_asleep = 0;
		c_inflight = 0;
		c_waits = 0;
		c_flight[0] = 0;
		c_flight[INFLIGHT - 1] = 0;
		seen[CLIENT] = 0;
		woken[CLIENT] = 0;
		bytes[CLIENT] = 0
	}
}

proctype Client()
{
	byte k, message, request;

	{
calls:
	do
	:: atomic { c_failed -> break }
	/* tr_submit. */
	:: atomic { !c_failed && c_inflight < INFLIGHT ->
		if
#if INFLIGHT > 1
		:: !c_flight[1] -> request = 1
#endif
		:: !c_flight[0] -> request = 0
		fi;
#ifdef GENERATE
		if
		:: request = GENERATE_OP * INFLIGHT + request
		:: request = ECHO_OP * INFLIGHT + request
		fi;
#endif
		c_submit(request);
		c_flight[request % INFLIGHT] = 1;
		c_inflight++;
		request = 0 }
#ifdef SLEEP
	   atomic { LOOK(CLIENT, DAEMON_SLEEP, calls) } /* [C3] libclient/submit.c tr_submit */
	   send_byte(CLIENT, c_failed)
#endif
#ifdef CANCEL
	/* tr_cancel. */
	:: atomic { !c_failed && c_flight[0] -> c_find_room_to_cancel();
		c_submit(CANCEL_OP * INFLIGHT);
		c_cancels++;
		c_cancels_end = c_sq_index } /* [C15] libclient/submit.c publish_cancel */
#ifdef SLEEP
	   atomic { LOOK(CLIENT, DAEMON_SLEEP, calls) }
	   send_byte(CLIENT, c_failed)
#endif
#endif
	/* tr_poll: events. */
	:: !c_failed && c_inflight -> c_collect()
#ifdef SLEEP
	/* tr_poll: none, and a fence is owed. */
	:: atomic { !c_failed && c_owed && !CQ_READY -> /* [R8] shm/ring.h ring_ready */
		c_owed = 0;
#ifndef M_NO_FENCE_POLL
		fence(CLIENT); /* [W9] shm/wake.h wake_fence */
#endif
		LOOK(CLIENT, DAEMON_SLEEP, calls) } /* [C12] libclient/poll.c pay_fence */
	   send_byte(CLIENT, c_failed)
	/* tr_poll: none, and the socket's turn.  An armed client leaves the byte to its epoll. */
	:: atomic { !c_failed && !c_owed && c_asleep == 0 && !CQ_READY -> c_drain() } /* [C9] libclient/poll.c look_at_socket */
	:: atomic { !c_failed && !c_owed && c_asleep && !CQ_READY && HUNG_UP(DAEMON) -> /* [C8] libclient/socket.c client_peek */
		c_drain() }
	/* tr_wait: one slice of its sleep. */
	:: atomic { !c_failed && c_inflight ->
		c_drain();
		if
		:: c_failed -> goto calls
		:: else
		fi;
		c_sleep_begin()
#ifndef M_SLEEP_WAKES_NOBODY
		; LOOK(CLIENT, DAEMON_SLEEP, wait) /* [C6] libclient/wait.c sleep_slice */
#else
		; goto wait
#endif
	   }
	   send_byte(CLIENT, c_failed);
wait:
	   if
#ifndef M_NO_LOOK_AGAIN_CLIENT
	   :: atomic { c_failed || CQ_READY -> c_sleep_end() } /* [C10] libclient/wait.c sleep_slice */
	   :: !c_failed && !CQ_READY ->
#else
	   :: atomic { c_failed -> c_sleep_end() }
	   :: !c_failed ->
#endif
#ifdef M_FLAG_LATE_CLIENT
		store(CLIENT, CLIENT_SLEEP, c_asleep);
#endif
		c_waits = 1;
		atomic { bytes[CLIENT] || HUNG_UP(DAEMON) -> /* [C11] libclient/wait.c sleep_in_poll */
			c_waits = 0;
			c_sleep_end() }
	   fi
#endif
#ifdef ARM
	/* tr_arm. */
	:: atomic { !c_failed && c_inflight -> /* [C13] libclient/wait.c tr_arm */
		c_drain();
		if
		:: c_failed -> goto calls
		:: else
		fi;
		c_sleep_begin();
		LOOK(CLIENT, DAEMON_SLEEP, arm) }
	   send_byte(CLIENT, c_failed);
arm:
	   if
	   :: atomic { CQ_READY -> c_sleep_end() } /* [C14] libclient/wait.c tr_arm */
	   :: !CQ_READY
	   fi
	/* The caller's own epoll. */
	:: !c_failed && c_asleep ->
		c_waits = 2;
		atomic { bytes[CLIENT] || HUNG_UP(DAEMON) -> c_waits = 0 }
#endif
#ifdef FLUSH
	/* tr_flush. */
	:: atomic { !c_failed && c_owed ->
		c_owed = 0;
#ifndef M_NO_FENCE_FLUSH
		fence(CLIENT);
#endif
		LOOK(CLIENT, DAEMON_SLEEP, calls) } /* [C16] libclient/submit.c tr_flush */
	   send_byte(CLIENT, c_failed)
#endif
	/* The caller never calls again. */
	:: atomic { !c_failed -> c_left = 1; goto left }
	od;
#ifdef DEATH
	/* What was published before the end, then the error. */
	do
	:: c_collect() /* [X3] libclient/poll.c client_poll_closed */
	:: !CQ_READY -> break
	od;
	assert(empty(completed));
	c_closed = 1;
#endif
left:	c_forget()
	} unless { atomic { dead[CLIENT] -> c_forget(); c_owed = 0 } }
}

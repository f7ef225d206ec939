/* The ring beside what people use instead: the same 64 bytes to another process and back. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/bench_pair.h"
#include "tools/cli/bench_rounds.h"

enum { PEERS = 4, SPIN_SHARE = 20, BLOCK_SHARE = 50 };

static const struct peer_kind {
	const char *spin, *block; /* metrics */
	const char *program;      /* NULL: part of this one */
	const char *package;      /* what it is built with */
	bool has_threads;         /* of its own, which share this end's CPU: a gap may be theirs */
} kinds[PEERS] = {
    {"seqpacket_spin", "seqpacket_block", NULL, "", false},
    {"zeromq_spin", "zeromq_block", "peer_zeromq", "libzmq3-dev", true},
    {"boost_spin", "boost_block", "peer_boost", "libboost-dev and g++", false},
    {"iceoryx_spin", "iceoryx_block", "peer_iceoryx", "libiceoryx-posh-dev, iceoryx and g++", false},
};

struct peers {
	struct rounds rounds;
	struct echo echo, waiting;
	struct contender own[2];
	struct pair *pairs[PEERS];
	struct pair_run runs[2 * PEERS];
	struct contender contenders[2 * PEERS];
	struct contender *list[2 + 2 * PEERS];
	unsigned n;
};

/* Beside this program in a build tree, else where they are installed. */
static int start_program(const char *name, struct pair **ret)
{
	char self[PATH_MAX], path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	int r = -ENOENT;
	if (n > 0) {
		self[n] = 0;
		snprintf(path, sizeof path, "%s/%s", dirname(self), name);
		r = pair_start_program(path, ret);
	}
	if (r) {
		snprintf(path, sizeof path, "%s/%s", TOKENRING_PEERS, name);
		r = pair_start_program(path, ret);
	}
	return r;
}

/* Whether it answers; one that does not is left out loudly. */
static int try_peer(const struct ring *ring, struct pair *pair)
{
	static struct floor_trips ignored;
	const struct pair_order order = {.mode = PAIR_BLOCK,
					 .near_cpu = ring->near_cpu,
					 .far_cpu = ring->far_cpu,
					 .n = 10,
					 .ns_per_tick = ring->ns_per_tick};
	return pair_run(pair, &order, &ignored);
}

static void add_contender(struct peers *p, unsigned peer, uint32_t mode, uint64_t n)
{
	unsigned at = 2 * peer + (mode == PAIR_BLOCK);
	p->runs[at] = (struct pair_run){.pair = p->pairs[peer], .mode = mode};
	p->contenders[at] =
	    (struct contender){.metric = mode == PAIR_BLOCK ? kinds[peer].block : kinds[peer].spin,
			       .run = ring_run_pair,
			       .context = &p->runs[at],
			       .n = n,
			       .reference = &p->own[0],
			       .polls = mode == PAIR_SPIN && !kinds[peer].has_threads};
	p->list[p->n++] = &p->contenders[at];
}

static void add_peer(struct ring *ring, struct peers *p, unsigned peer)
{
	const struct peer_kind *kind = &kinds[peer];
	uint64_t trips = ring->bench.options->n;
	int r = kind->program ? start_program(kind->program, &p->pairs[peer])
			      : pair_start(&pair_socket, &p->pairs[peer]);
	if (!r)
		r = try_peer(ring, p->pairs[peer]);
	if (r) {
		bench_note(&ring->bench, "MISSING: %s does not run here: %s (it is built where there is %s)",
			   kind->program ? kind->program : kind->spin, strerror(-r), kind->package);
		return;
	}
	add_contender(p, peer, PAIR_SPIN, trips / SPIN_SHARE + 1);
	add_contender(p, peer, PAIR_BLOCK, trips / BLOCK_SHARE + 1);
}

static void report(struct peers *p)
{
	for (unsigned i = 0; i < p->n; i++)
		rounds_print(&p->rounds, p->list[i]);
	bench_note(
	    &p->rounds.ring->bench,
	    "64 bytes to another process and back, both ends spinning or both blocking; the ratio of a "
	    "peer is how many times slower than our spinning ends it is");
	rounds_note(&p->rounds);
}

enum exit_code ring_bench_peers(struct ring *ring)
{
	static struct peers p;
	const struct bench_options *o = ring->bench.options;
	p.n = 0;
	rounds_init(&p.rounds, ring, "floor", o->n / 4, (o->rounds + 1) / 2);
	p.echo = (struct echo){.client = ring->bench.client, .n_tokens = TR_INLINE_TOKENS};
	p.waiting = (struct echo){.client = ring->bench.client, .n_tokens = TR_INLINE_TOKENS, .waits = true};
	p.own[0] = (struct contender){"echo_beside_peers", ring_run_echo, &p.echo, o->n / 2,
				      &p.rounds.walk,      .polls = true};
	p.own[1] = (struct contender){"echo_by_tr_wait", ring_run_echo,  &p.waiting,
				      o->n / 2,          &p.rounds.walk, .polls = false};
	p.list[p.n++] = &p.own[0];
	p.list[p.n++] = &p.own[1];
	for (unsigned i = 0; i < PEERS; i++)
		add_peer(ring, &p, i);
	enum exit_code code = rounds_run(&p.rounds, p.list, p.n);
	if (!code)
		report(&p);
	rounds_free(&p.rounds);
	for (unsigned i = 0; i < PEERS; i++) {
		pair_stop(p.pairs[i]);
		p.pairs[i] = NULL;
	}
	return code;
}

#include "daemon/sched/sched.h"

#include <stddef.h>

static uint64_t minimum(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t waited_ns(const struct sched_entry *entry, uint64_t now_ns)
{
	return now_ns > entry->arrival_ns ? now_ns - entry->arrival_ns : 0;
}

static uint64_t effective_class(const struct sched_entry *entry, const struct sched_limits *limits,
				uint64_t now_ns)
{
	uint64_t raised = limits->patience_ns ? waited_ns(entry, now_ns) / limits->patience_ns : 0;

	return entry->priority - minimum(entry->priority, raised);
}

static uint64_t effective_deadline(const struct sched_entry *entry, const struct sched_limits *limits)
{
	uint64_t deadline = entry->deadline_ns ? entry->deadline_ns : UINT64_MAX;

	return limits->patience_ns ? minimum(deadline, entry->arrival_ns + limits->patience_ns) : deadline;
}

bool sched_before(const struct sched_entry *a, const struct sched_entry *b, const struct sched_limits *limits,
		  uint64_t now_ns)
{
	uint64_t class_a = effective_class(a, limits, now_ns), class_b = effective_class(b, limits, now_ns);
	uint64_t deadline_a = effective_deadline(a, limits), deadline_b = effective_deadline(b, limits);

	if (class_a != class_b)
		return class_a < class_b;
	if (deadline_a != deadline_b)
		return deadline_a < deadline_b;
	if (a->arrival_ns != b->arrival_ns)
		return a->arrival_ns < b->arrival_ns;
	return a->id < b->id;
}

uint64_t sched_predict(const struct sched_entry *entry, const struct sched_cost *cost, uint64_t now_ns)
{
	if (!cost->step_ns && !cost->token_ns)
		return 0;
	return now_ns + entry->pending * cost->token_ns + (1 + (uint64_t)entry->to_come) * cost->step_ns;
}

static bool expired(const struct sched_entry *entry, uint64_t now_ns)
{
	return entry->deadline_ns &&
	       (entry->deadline_ns <= now_ns || entry->deadline_ns < entry->predicted_ns);
}

/* Clears the old plan and sorts out what has no chance. Returns how many requests go on running. */
static uint32_t expire(struct sched_entry *entries, uint32_t n, const struct sched_cost *cost,
		       uint64_t now_ns, struct sched_plan *plan)
{
	uint32_t running = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct sched_entry *entry = &entries[i];

		entry->tokens = 0;
		entry->action = SCHED_NOTHING;
		entry->predicted_ns = sched_predict(entry, cost, now_ns);
		if (expired(entry, now_ns)) {
			entry->action = SCHED_EXPIRED;
			plan->expired++;
		} else if (entry->state == SCHED_RUNNING) {
			running++;
		}
	}
	return running;
}

/* The first in order of those that `wanted` accepts, or NULL. */
static struct sched_entry *first(struct sched_entry *entries, uint32_t n, const struct sched_limits *limits,
				 uint64_t now_ns, bool (*wanted)(const struct sched_entry *))
{
	struct sched_entry *best = NULL;

	for (uint32_t i = 0; i < n; i++)
		if (wanted(&entries[i]) && (!best || sched_before(&entries[i], best, limits, now_ns)))
			best = &entries[i];
	return best;
}

static bool may_join(const struct sched_entry *entry)
{
	return entry->state == SCHED_WAITING && entry->action == SCHED_NOTHING;
}

static void join(struct sched_entry *entries, uint32_t n, const struct sched_limits *limits, uint64_t now_ns,
		 uint32_t running, struct sched_plan *plan)
{
	uint32_t blocks = limits->blocks_free;

	while (running < limits->running) {
		struct sched_entry *entry = first(entries, n, limits, now_ns, may_join);

		if (!entry || entry->blocks > blocks)
			return;
		blocks -= entry->blocks;
		entry->action = SCHED_JOIN;
		running++;
		plan->joins++;
	}
}

static bool takes_part(const struct sched_entry *entry)
{
	if (entry->action == SCHED_JOIN)
		return entry->pending > 0;
	return entry->state == SCHED_RUNNING && entry->action == SCHED_NOTHING && !entry->paused &&
	       entry->pending > 0;
}

static bool wants_more(const struct sched_entry *entry)
{
	return entry->action == SCHED_STEP && entry->tokens < entry->pending;
}

/* Tokens that a step may hold, at least one for each of `parts`. */
static uint32_t step_budget(const struct sched_limits *limits, uint32_t parts)
{
	uint64_t budget = limits->step_tokens;

	if (limits->max_step_ns && limits->token_ns)
		budget = minimum(budget, limits->max_step_ns / limits->token_ns);
	return (uint32_t)(budget < parts ? parts : budget);
}

static uint32_t give_one_each(struct sched_entry *entries, uint32_t n, const struct sched_limits *limits,
			      struct sched_plan *plan)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!takes_part(&entries[i]) || plan->steps == limits->step_tokens)
			continue;
		entries[i].action = SCHED_STEP;
		entries[i].tokens = 1;
		plan->steps++;
	}
	return plan->steps;
}

static void give_the_rest(struct sched_entry *entries, uint32_t n, const struct sched_limits *limits,
			  uint64_t now_ns, uint32_t left)
{
	while (left) {
		struct sched_entry *entry = first(entries, n, limits, now_ns, wants_more);
		uint32_t more;

		if (!entry)
			return;
		more = (uint32_t)minimum(left, entry->pending - entry->tokens);
		entry->tokens += more;
		left -= more;
	}
}

struct sched_plan schedule(struct sched_entry *entries, uint32_t n, const struct sched_limits *limits,
			   const struct sched_cost *cost, uint64_t now_ns)
{
	struct sched_plan plan = {0};
	uint32_t running = expire(entries, n, cost, now_ns, &plan);

	join(entries, n, limits, now_ns, running, &plan);
	give_one_each(entries, n, limits, &plan);
	give_the_rest(entries, n, limits, now_ns, step_budget(limits, plan.steps) - plan.steps);
	for (uint32_t i = 0; i < n; i++)
		plan.tokens += entries[i].tokens;
	return plan;
}

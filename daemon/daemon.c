#include "daemon/daemon.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/control/log.h"
#include "daemon/daemon_internal.h"
#include "daemon/engine/guard.h"
#include "shm/resident.h"
#include "shm/segment.h"

uint64_t daemon_clock_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* ---- one init function a subsystem, in the order of the table below ---- */

typedef int init_function(struct daemon *, char *why, size_t why_bytes);

static int choose_socket(struct daemon *daemon, char *why, size_t why_bytes)
{
	static const char folder[] = "/run/tokenring";
	const char *run = getenv("XDG_RUNTIME_DIR");
	size_t room = sizeof(daemon->socket);

	if (*daemon->config.socket) {
		memccpy(daemon->socket, daemon->config.socket, 0,
			room - 1); /* the option's bound is smaller */
		return 0;
	}
	if (access(folder, W_OK) == 0 || (mkdir(folder, 0755) == 0)) {
		snprintf(daemon->socket, room, "%s/socket", folder);
		return 0;
	}
	if (!run || strlen(run) + sizeof("/tokenring/socket") > room) {
		snprintf(why, why_bytes, "cannot write %s and XDG_RUNTIME_DIR is not set; give --socket PATH",
			 folder);
		return -ENOENT;
	}
	snprintf(daemon->socket, room, "%s/tokenring", run);
	mkdir(daemon->socket, 0700); /* if it fails, binding says why */
	snprintf(daemon->socket, room, "%s/tokenring/socket", run);
	return 0;
}

static uint32_t power_of_two(uint64_t n)
{
	uint32_t power = 8;

	while (power < n)
		power *= 2;
	return power;
}

static uint32_t commands_for(uint64_t n_requests)
{
	return power_of_two(2 * n_requests);
}

static uint32_t events_for(uint64_t n_requests)
{
	return power_of_two((REQUEST_UNDELIVERED_MAX + 2) * n_requests);
}

static uint64_t link_bytes(uint64_t n_requests)
{
	return n_requests * sizeof(struct request) +
	       commands_for(n_requests) * sizeof(struct engine_command) +
	       events_for(n_requests) * sizeof(struct engine_event);
}

/* Before the queues are made: those of a million requests take gigabytes, and seconds to fill. */
static int check_queue(struct daemon *daemon, char *why, size_t why_bytes)
{
	struct demand queues = {.channels = link_bytes((uint64_t)daemon->config.max_queue)};
	struct budget budget;
	int error = budget_read("", (uint64_t)daemon->config.memory_limit, &budget, why, why_bytes);

	return error ? error : budget_check(&budget, &queues, why, why_bytes);
}

static int init_link(struct daemon *daemon, char *why, size_t why_bytes)
{
	uint32_t n = (uint32_t)daemon->config.max_queue;
	struct engine_link *link = &daemon->link;
	int error = 0;

	link->n_requests = n;
	link->requests = resident_calloc(n, sizeof(*link->requests));
	if (!link->requests)
		error = -ENOMEM;
	if (!error)
		error = queue_init(&link->commands, commands_for(n), sizeof(struct engine_command));
	if (!error)
		error = queue_init(&link->events, events_for(n), sizeof(struct engine_event));
	for (uint32_t i = 0; !error && i < n; i++)
		link->requests[i].index = i;
	if (error)
		snprintf(why, why_bytes, "no memory for a queue of %u requests; lower max_queue", n);
	return error;
}

static int init_placement(struct daemon *daemon, char *why, size_t why_bytes)
{
	struct plan_request request = placement_request(&daemon->config);
	int error = topology_read("", &daemon->topology);

	if (error) {
		snprintf(why, why_bytes, "cannot read which CPUs there are from /proc and /sys: %s",
			 strerror(-error));
		return error;
	}
	placement_find_storage(&request, daemon->config.model);
	error = plan_make(&daemon->placement, &request, &daemon->topology, why, why_bytes);
	if (!error && *daemon->placement.warning)
		log_event(LOG_LEVEL_WARNING, "placement", "%s", daemon->placement.warning);
	return error;
}

static int init_memory(struct daemon *daemon, char *why, size_t why_bytes)
{
	daemon->memory = calloc(1, sizeof(*daemon->memory));
	if (!daemon->memory) {
		snprintf(why, why_bytes, "no memory");
		return -ENOMEM;
	}
	memory_init(daemon->memory, &daemon->placement, &daemon->topology, daemon->config.huge_pages);
	return 0;
}

static int init_loop(struct daemon *daemon, char *why, size_t why_bytes)
{
	struct loop_config config = {
	    .separate = daemon->placement.separate,
	    .engine_cpu = daemon->placement.cpus[0],
	    .front_cpu = daemon->placement.front_cpu,
	    .spin_ns = (uint64_t)daemon->config.spin_us * 1000,
	};
	int error = loop_create(&daemon->loop, &config);

	if (error)
		snprintf(why, why_bytes, "cannot create the engine's doorbell: %s", strerror(-error));
	return error;
}

static struct front_shares shares_of(const struct config *config)
{
	return (struct front_shares){
	    .queue_per_uid = (uint32_t)config->max_queue_per_uid,
	    .queue_per_tenant = (uint32_t)config->max_queue_per_tenant,
	};
}

static int init_front(struct daemon *daemon, char *why, size_t why_bytes)
{
	struct front_config config = {
	    .max_clients = (uint32_t)daemon->config.max_clients,
	    .block_bytes = BLOCK_MEMORY_BYTES,
	    .huge_pages = strcmp(daemon->config.huge_pages, "never") != 0,
	    .spin_ns = (uint64_t)daemon->config.spin_us * 1000,
	    .client_stall_ns = (uint64_t)daemon->config.client_stall_ms * 1000000,
	    .shares = shares_of(&daemon->config),
	    .engine_wake = daemon->placement.separate ? loop_wake_engine : NULL,
	    .engine = daemon->loop,
	};

	return front_create(&daemon->front, &config, &daemon->link, why, why_bytes);
}

static int init_engine(struct daemon *daemon, char *why, size_t why_bytes)
{
	struct engine_config config = {
	    .link = &daemon->link,
	    .patience_ns = 10000000000u, /* a request that waited this long rises by one priority class */
	    .max_step_ns = (uint64_t)daemon->config.max_step_us * 1000,
	    .clock = daemon_clock_ns,
	    .poll = daemon->placement.separate ? NULL : loop_poll,
	    .poll_data = daemon->loop,
	};
	int error = engine_create(&daemon->engine, &config);

	if (error)
		snprintf(why, why_bytes, "no memory for the engine");
	return error;
}

static void notice(void *context, const char *sentence)
{
	log_event(LOG_LEVEL_INFO, "channel", "%s", sentence);
}

static int measure_channel(struct daemon *daemon, char *why, size_t why_bytes)
{
	struct segment_layout layout;
	int error =
	    segment_layout(&layout, (uint32_t)daemon->config.sq_slots, (uint32_t)daemon->config.cq_slots,
			   (uint32_t)daemon->config.max_inflight, (uint64_t)daemon->config.arena_bytes, 0);

	if (error)
		snprintf(why, why_bytes, "the sizes of a channel do not fit each other: %s",
			 strerror(-error));
	else
		daemon->channel_bytes = layout.bytes;
	return error;
}

static enum segment_pages pages_of(const char *choice)
{
	if (!strcmp(choice, "prefer"))
		return SEGMENT_PAGES_PREFER;
	if (!strcmp(choice, "require"))
		return SEGMENT_PAGES_REQUIRE;
	return strcmp(choice, "never") ? SEGMENT_PAGES_AUTO : SEGMENT_PAGES_NEVER;
}

static enum server_access access_of(const char *choice)
{
	if (!strcmp(choice, "everyone"))
		return SERVER_ACCESS_EVERYONE;
	return strcmp(choice, "group") ? SERVER_ACCESS_LISTED : SERVER_ACCESS_GROUP;
}

static struct server_config server_config_of(struct daemon *daemon)
{
	const struct config *config = &daemon->config;

	return (struct server_config){
	    .path = daemon->socket,
	    .mode = (mode_t)config->socket_mode,
	    .max_clients = (uint32_t)config->max_clients,
	    .max_clients_per_uid = (uint32_t)config->max_clients_per_uid,
	    .max_half_open_per_uid = (uint32_t)config->max_half_open_per_uid,
	    .memory_per_uid_bytes = (uint64_t)config->memory_per_uid,
	    .map_timeout_ms = (uint32_t)config->map_timeout_ms,
	    .sq_slots = (uint32_t)config->sq_slots,
	    .cq_slots = (uint32_t)config->cq_slots,
	    .max_inflight = (uint32_t)config->max_inflight,
	    .arena_bytes = (uint64_t)config->arena_bytes,
	    .pages = pages_of(config->huge_pages),
	    .epoch = daemon->epoch,
	    .access = access_of(config->access),
	    .allowed_uids = config->allowed_uids,
	    .allowed_gids = config->allowed_gids,
	    .tenant_uids = config->tenant_uids,
	    .channel_nodes = daemon->topology.n_nodes > 1 ? daemon->placement.memory[PLAN_CHANNELS].nodes : 0,
	    .status = daemon_status,
	    .topology = daemon_topology,
	    .status_context = daemon,
	    .notice = notice,
	};
}

static int init_server(struct daemon *daemon, char *why, size_t why_bytes)
{
	struct server_config server = server_config_of(daemon);

	return server_create(&daemon->server, &server, daemon->front, why, why_bytes);
}

static uint64_t channels_bytes(const struct daemon *daemon)
{
	return daemon->channel_bytes * (uint64_t)daemon->config.max_clients + BLOCK_MEMORY_BYTES +
	       link_bytes(daemon->link.n_requests);
}

static int start_load(struct daemon *daemon, char *why, size_t why_bytes)
{
	struct load_config config = {
	    .config = &daemon->config,
	    .placement = &daemon->placement,
	    .topology = &daemon->topology,
	    .memory = daemon->memory,
	    .engine = daemon->engine,
	    .loop = daemon->loop,
	    .front = daemon->front,
	    .clock = daemon_clock_ns,
	    .channels_bytes = channels_bytes(daemon),
	};
	int error = load_start(&daemon->load, &config);

	if (error)
		snprintf(why, why_bytes, "cannot start the loading thread: %s", strerror(-error));
	return error;
}

static int start_loop(struct daemon *daemon, char *why, size_t why_bytes)
{
	int error = loop_start(daemon->loop, daemon->front, daemon->engine);

	daemon->running = true; /* even after an error one of two threads may run */
	if (error)
		snprintf(why, why_bytes, "cannot start the engine's thread: %s", strerror(-error));
	return error;
}

static int start_server(struct daemon *daemon, char *why, size_t why_bytes)
{
	int error = server_start(daemon->server);

	if (error)
		snprintf(why, why_bytes, "cannot start the control thread: %s", strerror(-error));
	return error;
}

/* The server is bound before anything that takes long, and answers as soon as it is started; status needs
 * `load`. */
static init_function *const init_functions[] = {
    choose_socket, check_queue, init_placement, init_memory, measure_channel, init_link,    init_loop,
    init_front,    init_engine, init_server,    start_loop,  start_load,      start_server,
};

int daemon_start(struct daemon **ret, const struct config *config, char *why, size_t why_bytes)
{
	struct daemon *daemon = calloc(1, sizeof(*daemon));
	int error = 0;

	if (!daemon) {
		snprintf(why, why_bytes, "no memory");
		return -ENOMEM;
	}
	daemon->config = *config;
	daemon->start_ns = daemon_clock_ns();
	daemon->epoch = daemon->start_ns ^ (uint64_t)getpid() << 40;
	guard_init();
	for (size_t i = 0; !error && i < sizeof(init_functions) / sizeof(*init_functions); i++)
		error = init_functions[i](daemon, why, why_bytes);
	if (error) {
		daemon_drain(daemon, 0);
		daemon_drained(daemon, UINT64_MAX);
		daemon_free(daemon);
		return error;
	}
	*ret = daemon;
	return 0;
}

enum daemon_state daemon_poll(struct daemon *daemon, double *ret_share)
{
	enum load_phase phase = load_progress(daemon->load, ret_share);
	/* Acquire: pairs with the release that publishes the limits. */
	uint32_t state = load_acquire_u32(&daemon->link.limits.state);

	if (phase == LOAD_FAILED || state == WIRE_MODEL_FAILED)
		return DAEMON_FAILED;
	if (phase != LOAD_WARMING || state != WIRE_MODEL_READY)
		return DAEMON_LOADING;
	if (!daemon->ready) {
		daemon_fill_model(daemon);
		server_set_model(daemon->server, &daemon->model);
		daemon->ready = true;
	}
	return DAEMON_READY;
}

const char *daemon_why(const struct daemon *daemon)
{
	if (load_progress(daemon->load, NULL) == LOAD_FAILED)
		return load_why(daemon->load);
	return "the warm-up failed: the backend refused a batch";
}

const char *daemon_socket(const struct daemon *daemon)
{
	return daemon->socket;
}

void daemon_describe(const struct daemon *daemon, char *text, size_t bytes)
{
	const struct load_model *model = load_model(daemon->load);

	snprintf(text, bytes,
		 "%s (%s), %.1f MiB of weights, KV cache of %u tokens in %s, context %u, %s, numerics %s, %u "
		 "thread%s, front on "
		 "%s",
		 *model->name ? model->name : daemon->config.model, model->architecture,
		 (double)model->bytes / (1 << 20), daemon->link.limits.kv_tokens, load_kv_type(model),
		 model->limits.context, backend_isa(model->backend), backend_numerics(model->backend),
		 daemon->placement.threads, daemon->placement.threads == 1 ? "" : "s",
		 daemon->placement.separate ? "a thread of its own" : "the engine's thread");
}

void daemon_start_phases(const struct daemon *daemon, uint64_t ret_ns[START_PHASES])
{
	const struct load_times *load = load_times(daemon->load);
	uint64_t ends[START_PHASES] = {load->began_ns, load->opened_ns, load->mapped_ns, load->copied_ns,
				       load_relaxed_u64(&engine_counts(daemon->engine)->ready_ns)};
	uint64_t before = daemon->start_ns;

	for (int i = 0; i < START_PHASES; before = ends[i++])
		ret_ns[i] = ends[i] - before;
}

void daemon_describe_start(const struct daemon *daemon, char *text, size_t bytes)
{
	uint64_t ns[START_PHASES], all = 0;

	daemon_start_phases(daemon, ns);
	for (int i = 0; i < START_PHASES; i++)
		all += ns[i];
	snprintf(text, bytes,
		 "started in %.0f ms: %.1f set-up, %.1f header of the file, %.1f memory, %.1f weights and "
		 "tokenizer, %.1f "
		 "warm-up",
		 1e-6 * (double)all, 1e-6 * (double)ns[START_SET_UP], 1e-6 * (double)ns[START_HEADER],
		 1e-6 * (double)ns[START_MEMORY], 1e-6 * (double)ns[START_WEIGHTS],
		 1e-6 * (double)ns[START_WARM_UP]);
}

unsigned daemon_reload(struct daemon *daemon, const struct config *fresh, char *kept, size_t kept_bytes)
{
	struct config *config = &daemon->config;
	unsigned changed = config_reload(config, fresh, kept, kept_bytes);
	struct server_config server = server_config_of(daemon);
	struct front_shares shares = shares_of(config);

	front_reload(daemon->front, (uint64_t)config->spin_us * 1000,
		     (uint64_t)config->client_stall_ms * 1000000, &shares);
	server_reload(daemon->server, &server); /* without memory the old values stay */
	return changed;
}

void daemon_drain(struct daemon *daemon, uint64_t drain_ms)
{
	if (!daemon->ready) /* nothing runs yet: what waits for the model has waited in vain */
		drain_ms = 0;
	store_relaxed_u32(&daemon->draining, 1);
	if (daemon->server)
		server_close_listener(daemon->server);
	if (daemon->front)
		front_drain(daemon->front, daemon_clock_ns() + drain_ms * 1000000);
}

bool daemon_drained(struct daemon *daemon, uint64_t timeout_ms)
{
	uint64_t deadline = timeout_ms == UINT64_MAX ? 0 : daemon_clock_ns() + timeout_ms * 1000000;

	if (!daemon->running)
		return true;
	if (loop_join(daemon->loop, deadline))
		return false;
	daemon->running = false;
	return true;
}

void daemon_free(struct daemon *daemon)
{
	if (!daemon)
		return;
	if (daemon->server)
		server_stop(daemon->server);
	load_stop(daemon->load);
	server_free(daemon->server);
	engine_free(daemon->engine);
	load_free(daemon->load);
	front_free(daemon->front);
	loop_free(daemon->loop);
	queue_free(&daemon->link.commands);
	queue_free(&daemon->link.events);
	free(daemon->link.requests);
	if (daemon->memory)
		memory_done(daemon->memory);
	free(daemon->memory);
	free(daemon->look);
	free(daemon);
}

/* The options of tokenringd: one row each; everything that knows an option is generated from this table.
 *
 * X(kind, name, unit, lower, upper, default, choices, reload, help)
 *   kind     path, choice, number, bytes (K, M, G suffixes), octal, cpus (0-3,6), uids (1000,1001)
 *   lower, upper   bounds of a number; of the length of a path; of the entries of a list
 *   reload   1: a running daemon takes a new value on SIGHUP
 *   help     what it does, for someone who has not read the source; ends without a full stop */
#ifndef TOKENRING_DAEMON_CONTROL_CONFIG_OPTIONS_H
#define TOKENRING_DAEMON_CONTROL_CONFIG_OPTIONS_H

/* clang-format off: a table reads by row */
#define CONFIG_OPTIONS(X)                                                                                    \
	X(path, model, "", 0, 4095, "", "", 0, "GGUF file to serve")                                         \
	X(path, socket, "", 0, 107, "", "", 0,                                                               \
	  "Unix socket to listen on; empty: /run/tokenring/socket if that folder may be written, else "      \
	  "$XDG_RUNTIME_DIR/tokenring/socket")                                                               \
	X(octal, socket_mode, "", 0, 0777, "0660", "", 0, "permissions of the socket: who may connect")      \
	X(choice, access, "", 0, 0, "group", "listed|group|everyone", 1,                                     \
	  "who may connect, of those whom socket_mode lets in: listed: the daemon's own user, root, and "    \
	  "who is in allowed_uids or allowed_gids; group: also members of the group that owns the socket")   \
	X(uids, allowed_uids, "", 0, 64, "", "", 1,                                                          \
	  "users who may connect, by number, such as 991,1000; others need access")                          \
	X(uids, allowed_gids, "", 0, 64, "", "", 1,                                                          \
	  "groups whose members may connect, by number; others need access")                                 \
	X(choice, backend, "", 0, 0, "cpu", "cpu|ref-int8|ref-f32", 0,                                       \
	  "what computes: the fast kernels, or the slow scalar references that define the arithmetic")       \
	X(choice, numerics, "", 0, 0, "exact", "exact", 0,                                                   \
	  "exact: the same tokens and seed give the same bits, whatever runs beside them")                   \
	X(choice, isa, "", 0, 0, "auto", "auto|generic|avx2|avx512vnni", 0,                                  \
	  "instruction set of the cpu backend; auto takes the best that this machine has")                   \
	X(number, threads, "threads", 0, 256, "0", "", 0,                                                    \
	  "threads that compute, the engine's own included; 0: one for each core that this process may "     \
	  "use, "                                                                                            \
	  "from 8 cores on less one for the front and one for CPU 0's duties")                               \
	X(number, reserve_cores, "cores", 0, 256, "0", "", 0,                                                \
	  "cores that are left to other programs: threads = 0 counts on so many less, and the front's own "  \
	  "thread keeps away from them; from 8 cores on CPU 0's is among them")                              \
	X(number, engine_cpu, "", -1, 8191, "-1", "", 0,                                                     \
	  "CPU that the engine thread is pinned to; -1: chosen by the daemon")                               \
	X(cpus, worker_cpus, "", 0, 256, "", "", 0,                                                          \
	  "CPUs that the other computing threads are pinned to, such as 1-3,6; empty: chosen by the daemon") \
	X(choice, front, "", 0, 0, "auto", "auto|own|shared", 0,                                             \
	  "thread that polls the clients: own, or the engine's; auto: own if a CPU is spare")                \
	X(number, front_cpu, "", -1, 8191, "-1", "", 0,                                                      \
	  "CPU that the front's own thread is pinned to; -1: chosen by the daemon")                          \
	X(number, memory_node, "", -1, 63, "-1", "", 0,                                                      \
	  "NUMA node that weights and KV cache are put on; -1: that of the threads that read them")          \
	X(choice, huge_pages, "", 0, 0, "auto", "auto|prefer|require|never", 0,                              \
	  "huge pages for weights, KV cache and channels: auto takes reserved ones while there are some, "   \
	  "else transparent ones; prefer also warns when they run out, require refuses then, never uses "    \
	  "ordinary pages")                                                                                  \
	X(bytes, memory_limit, "bytes", 0, INT64_MAX, "0", "", 0,                                            \
	  "weights, KV cache and channels together may take this much; 0: the smaller of the cgroup's "      \
	  "limit and the memory available at start")                                                         \
	X(number, max_context_tokens, "tokens", 0, 16777216, "0", "", 0,                                     \
	  "longest prompt and answer together; 0: what the model was made for")                              \
	X(number, max_prompt_tokens, "tokens", 0, 16777216, "0", "", 0,                                      \
	  "longer prompts are refused; 0: the context")                                                      \
	X(number, kv_tokens, "tokens", 0, 1073741824, "0", "", 0,                                            \
	  "tokens that the KV cache holds, all requests together; 0: 512 for each of "                       \
	  "max_batch_sequences, one context at least, while half of the free memory allows it")              \
	X(choice, kv_type, "", 0, 0, "auto", "auto|f16|bf16|q8|f32", 0,                                      \
	  "element type of the KV cache; q8: 8 bits and a scale for every 32 of them, little more than "     \
	  "half of f16 or bf16; f32 is for backend ref-f32, which runs no other; auto: f16, or f32 there")   \
	X(number, max_batch_tokens, "tokens", 1, 65536, "512", "", 0,                                        \
	  "tokens of a step, all requests together")                                                         \
	X(number, max_batch_sequences, "requests", 1, 4096, "32", "", 0, "requests that share a step")       \
	X(number, max_queue, "requests", 1, 1048576, "1024", "", 0,                                          \
	  "requests that may wait or run, all clients together; more are refused")                           \
	X(number, max_queue_per_uid, "requests", 0, 1048576, "0", "", 1,                                     \
	  "requests of one user that may wait or run, and its share of the memory for their prompts; 0: "    \
	  "three quarters of max_queue")                                                                     \
	X(number, max_queue_per_tenant, "requests", 0, 1048576, "0", "", 1,                                  \
	  "requests that may wait or run for one tenant whom a user of tenant_uids names, and its share of " \
	  "the memory for their prompts; 0: a quarter of max_queue")                                         \
	X(number, max_step_us, "microseconds", 100, 60000000, "50000", "", 0,                                \
	  "bound on the time that one step takes")                                                           \
	X(number, max_clients, "channels", 1, 65536, "512", "", 0, "channels open at once")                  \
	X(number, max_clients_per_uid, "channels", 1, 65536, "128", "", 1,                                   \
	  "channels open at once for one user")                                                              \
	X(number, max_half_open_per_uid, "channels", 1, 1024, "16", "", 1,                                   \
	  "channels of one user that are being set up at once")                                              \
	X(bytes, memory_per_uid, "bytes", 2097152, INT64_MAX, "1G", "", 1,                                   \
	  "memory of the channels of one user, also of closed ones while their process runs")                \
	X(uids, tenant_uids, "", 0, 64, "", "", 1,                                                           \
	  "users whose requests may name a tenant other than themselves, such as 991,1000")                  \
	X(number, max_inflight, "requests", 1, 32768, "64", "", 0, "requests in flight on one channel")      \
	X(number, sq_slots, "slots", 8, 65536, "256", "", 0, "slots of a submission ring, a power of two")   \
	X(number, cq_slots, "slots", 8, 65536, "1024", "", 0,                                                \
	  "slots of a completion ring, a power of two, at least twice max_inflight")                         \
	X(bytes, arena_bytes, "bytes", 65536, 1073741824, "1M", "", 0,                                       \
	  "memory of a channel for long prompts, parameters and log-probabilities")                          \
	X(number, spin_us, "microseconds", 0, 1000000, "50", "", 1,                                          \
	  "how long an idle daemon polls before it sleeps; a wake-up costs 15 to 50 microseconds")           \
	X(number, client_stall_ms, "milliseconds", 10, 3600000, "1000", "", 1,                               \
	  "a request ends when its client has not collected its tokens for this long")                       \
	X(number, map_timeout_ms, "milliseconds", 10, 60000, "1000", "", 1,                                  \
	  "a client must have mapped its channel within this time")                                          \
	X(number, drain_ms, "milliseconds", 0, 3600000, "5000", "", 1,                                       \
	  "how long a daemon that is told to stop lets running requests finish")                             \
	X(choice, log_level, "", 0, 0, "info", "error|warning|info|debug", 1,                                \
	  "the least important lines that are logged")                                                       \
	X(choice, log_target, "", 0, 0, "auto", "auto|stderr|journal", 0,                                    \
	  "where log lines go; auto: the journal when systemd reads standard error, else standard error")
/* clang-format on */

#endif

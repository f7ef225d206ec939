#include "daemon/placement.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "kernels/backend.h"

_Static_assert((int)PLAN_THREADS_MAX == (int)BACKEND_CPUS_MAX, "a plan is for as many threads as a backend");

static enum plan_front front_of(const char *choice)
{
	if (!strcmp(choice, "own"))
		return PLAN_FRONT_OWN;
	return strcmp(choice, "shared") ? PLAN_FRONT_AUTO : PLAN_FRONT_SHARED;
}

struct plan_request placement_request(const struct config *config)
{
	return (struct plan_request){
	    .threads = (uint32_t)config->threads,
	    .reserve_cores = (uint32_t)config->reserve_cores,
	    .engine_cpu = (int)config->engine_cpu,
	    .front_cpu = (int)config->front_cpu,
	    .worker_cpus = config->worker_cpus.cpu,
	    .n_worker_cpus = config->worker_cpus.n,
	    .front = front_of(config->front),
	    .memory_node = (int)config->memory_node,
	    .accelerator_node = -1, /* every backend of this version computes on CPUs */
	    .storage_node = -1,
	};
}

void placement_find_storage(struct plan_request *request, const char *model_path)
{
	struct stat file;

	if (stat(model_path, &file) == 0)
		topology_storage("", major(file.st_dev), minor(file.st_dev), &request->storage_node,
				 request->storage_address, sizeof(request->storage_address));
}

/* The plan of threads and memory for a configuration on this machine.
 *
 * Thread rule: main, before other threads run. */
#ifndef TOKENRING_DAEMON_PLACEMENT_H
#define TOKENRING_DAEMON_PLACEMENT_H

#include "daemon/control/config.h"
#include "numa/plan.h"

/* What the options ask of the planner. `storage_*`: see placement_find_storage. Pure; the result points into
 * the configuration. */
struct plan_request placement_request(const struct config *);

/* Finds the drive of the model's file, if it is a PCI device. */
void placement_find_storage(struct plan_request *, const char *model_path);

#endif

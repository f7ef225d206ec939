/* What docs/latency.md measured, in the words of a finding: one place to change when it is measured again. */
#ifndef TOKENRING_TOOLS_CLI_DOCTOR_COSTS_H
#define TOKENRING_TOOLS_CLI_DOCTOR_COSTS_H

#define DOCTOR_COST_THP "slower steps"
#define DOCTOR_COST_CHANNEL_PAGES \
	"channels lie in pages of 4 KiB, or in 2 MiB ones where the kernel finds some"
#define DOCTOR_COST_HYPERVISOR "the host of this machine takes its CPUs away now and then; see gaps"
#define DOCTOR_COST_ONE_CPU    "client and daemon take turns: a round trip is two switches, not two cache lines"

#endif

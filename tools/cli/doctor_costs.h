/* What docs/latency.md measured, in the words of a finding: one place to change when it is measured again. */
#ifndef TOKENRING_TOOLS_CLI_DOCTOR_COSTS_H
#define TOKENRING_TOOLS_CLI_DOCTOR_COSTS_H

#define DOCTOR_COST_THP "5 to 22 % fewer tokens a second"
#define DOCTOR_COST_RESERVED_PAGES \
	"echoes do not feel it; huge pages then depend on what the kernel finds on the day"
#define DOCTOR_COST_HALTS      "a round trip between two sleeping ends takes 53 us instead of 15 us"
#define DOCTOR_COST_HYPERVISOR "the host of this machine takes its CPUs away now and then; see gaps"
#define DOCTOR_COST_ONE_CPU \
	"client and daemon take turns: an echo takes 12 us, 65 us while both spin first, instead of 0.17 us"

#endif

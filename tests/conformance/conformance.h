/* The suite that every backend passes: equality with ref-int8 by memcmp on synthetic models. */
#ifndef TOKENRING_TESTS_CONFORMANCE_CONFORMANCE_H
#define TOKENRING_TESTS_CONFORMANCE_CONFORMANCE_H

/* Runs the suite; the exit status of a test: 77 with a reason where the machine lacks the instruction set. */
int conformance_main(const char *kind, const char *isa);

#endif

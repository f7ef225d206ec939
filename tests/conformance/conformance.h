/* The suite that every backend passes: equality with ref-int8 by memcmp on synthetic models. */
#ifndef TOKENRING_TESTS_CONFORMANCE_CONFORMANCE_H
#define TOKENRING_TESTS_CONFORMANCE_CONFORMANCE_H

/* Runs the suite; the exit status of a test: 77 with a reason where the machine lacks the instruction set. */
int conformance_main(const char *kind, const char *isa);

/* ---- between the files of the suite ---- */
extern const char *subject_kind, *subject_isa;

/* bounds.c: the subject's kernels; NULL if it is the reference. */
struct cpu_isa;
const struct cpu_isa *conformance_isa(void);
void products_stay_in_bounds(void **state);
void rows_stay_in_bounds(void **state);
void halves_stay_in_bounds(void **state);
/* bounds_attention.c */
void attention_stays_in_bounds(void **state);
/* windows.c */
void windows_skip_blocks_that_they_cannot_see(void **state);
/* products.c */
void products_of_odd_shapes_equal_the_reference(void **state);
void logits_of_odd_vocabularies_equal_the_reference(void **state);
/* outputs.c */
void outputs_get_what_they_want(void **state);
void of_equal_logits_the_lowest_id_is_best(void **state);
void logits_that_are_not_finite_are_faults_of_who_asks(void **state);
void hidden_states_make_the_logits(void **state);
void impossible_wants_are_refused(void **state);

#endif

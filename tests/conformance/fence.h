/* Memory of programs between pages that cannot be touched: who reads or writes past its end is stopped there.
 */
#ifndef TOKENRING_TESTS_CONFORMANCE_FENCE_H
#define TOKENRING_TESTS_CONFORMANCE_FENCE_H

#include "kernels/backend.h"

/* `bytes` zeroed bytes that end, rounded up to `align`, at a page without access; the page before the first
 * one has none either. What the rounding adds is checked to be untouched by fence_free. cmocka fails the test
 * if there is no memory. */
void *fence_alloc(size_t bytes, size_t align);
void fence_free(void *memory, size_t bytes, size_t align);

/* For backend_config.memory: aligned to pages, as a backend asks for it. */
extern const struct backend_memory fenced_memory;

#endif

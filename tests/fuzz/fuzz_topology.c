/* Any bytes as a file of /proc or /sys: numbers within bounds, or no number. */
#include <stdlib.h>
#include <string.h>

#include "numa/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_list(const char *text)
{
	struct id_set set;

	if (parse_list(text, &set) && (!id_set_count(&set) || !id_set_has(&set, id_set_first(&set))))
		abort();
}

static void check_row(const char *text)
{
	uint16_t row[5] = {0};

	if (parse_row(text, row, 4) > 4 || row[4])
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1); /* exactly as long as it is: a read past its end is noticed */
	double cpus = 1;
	int64_t number;
	uint64_t value;

	memcpy(text, data, size);
	text[size] = 0;
	check_list(text);
	check_row(text);
	parse_number(text, &number);
	parse_value(text, "MemTotal:", &value);
	parse_line(text, "Cpus_allowed_list:");
	if (parse_cpu_max(text, &cpus) && !(cpus > 0 && cpus < PARSE_IDS_MAX))
		abort();
	free(text);
	return 0;
}

/* tokenring doctor: the list of findings, and all items in their order. */
#include <stdarg.h>
#include <stdio.h>

#include "tools/cli/doctor.h"

struct finding *finding_add(struct findings *findings, const char *item, enum finding_state state,
			    const char *format, ...)
{
	struct finding *f = &findings->finding[findings->n < FINDINGS_MAX ? findings->n++ : FINDINGS_MAX - 1];
	va_list args;
	*f = (struct finding){.item = item, .state = state};
	va_start(args, format);
	vsnprintf(f->found, sizeof f->found, format, args);
	va_end(args);
	return f;
}

void finding_cost(struct finding *f, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(f->cost, sizeof f->cost, format, args);
	va_end(args);
}

void finding_fix(struct finding *f, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(f->fix, sizeof f->fix, format, args);
	va_end(args);
}

void doctor_examine(const struct doctor_host *host, struct findings *ret)
{
	ret->n = 0;
	doctor_system(host, ret);
	doctor_idle(host, ret);
	doctor_cpus(host, ret);
	doctor_memory(host, ret);
	doctor_limits(host, ret);
	doctor_service(host, ret);
}

#include "tools/cli/topology.h"

#include <string.h>

#include "tools/cli/json.h"

enum { WORDS_BYTES = 512 };

static double number(const char *json, const char *key)
{
	double value = 0;
	return json_number(json, key, &value) ? value : 0;
}

static double mib(const char *json, const char *key)
{
	return number(json, key) / (1 << 20);
}

static void print_node(void *context, const char *node)
{
	char cpus[WORDS_BYTES] = "";
	json_text(node, "cpus", cpus, sizeof cpus);
	fprintf(context,
		"  node %.0f: CPUs %s, %.0f MiB%s; huge pages free: %.0f of %.0f of 2 MiB, %.0f of %.0f of 1 "
		"GiB\n",
		number(node, "id"), *cpus ? cpus : "none", mib(node, "memory_bytes"),
		strstr(node, "\"memory_allowed\":false") ? " (not allowed)" : "",
		number(node, "free_pages_2m"), number(node, "pages_2m"), number(node, "free_pages_1g"),
		number(node, "pages_1g"));
}

static void print_device(void *context, const char *device)
{
	char address[32] = "", kind[32] = "";
	json_text(device, "address", address, sizeof address);
	json_text(device, "kind", kind, sizeof kind);
	double node = number(device, "node");
	if (node >= 0)
		fprintf(context, "  %s %s: node %.0f\n", kind, address, node);
	else
		fprintf(context, "  %s %s: node not known\n", kind, address);
}

/* "agrees" is there only when there is something to compare. */
static char mark(const char *element)
{
	return strstr(element, "\"agrees\":false") ? '!' : ' ';
}

static void describe_plan(const char *thread, char *text, size_t bytes)
{
	double cpu = number(thread, "cpu"), node = number(thread, "node");
	if (cpu >= 0)
		snprintf(text, bytes, "CPU %.0f, node %.0f", cpu, node);
	else if (node >= 0)
		snprintf(text, bytes, "node %.0f", node);
	else
		snprintf(text, bytes, "any CPU");
}

static void print_thread(void *context, const char *thread)
{
	char name[32] = "", why[WORDS_BYTES] = "", allowed[WORDS_BYTES] = "", plan[64], now[WORDS_BYTES + 64];
	json_text(thread, "name", name, sizeof name);
	json_text(thread, "why", why, sizeof why);
	json_text(thread, "allowed", allowed, sizeof allowed);
	describe_plan(thread, plan, sizeof plan);
	snprintf(now, sizeof now, "now: may run on %s, ran on %.0f", allowed, number(thread, "last_cpu"));
	fprintf(context, "%c %-9s %-16s %-36s %s\n", mark(thread), name, plan,
		strstr(thread, "\"runs\":true") ? now : "now: not running", why);
}

struct memory_text {
	char text[WORDS_BYTES];
	size_t used;
};

static void add_node(void *context, const char *element)
{
	struct memory_text *out = context;
	if (out->used < sizeof out->text)
		out->used += (size_t)snprintf(out->text + out->used, sizeof out->text - out->used,
					      ", %.1f MiB on node %.0f", mib(element, "bytes"),
					      number(element, "node"));
}

static void print_memory(void *context, const char *memory)
{
	char name[32] = "", nodes[64] = "", why[WORDS_BYTES] = "", note[WORDS_BYTES] = "";
	struct memory_text on = {.text = ""};
	json_text(memory, "name", name, sizeof name);
	json_text(memory, "nodes", nodes, sizeof nodes);
	json_text(memory, "why", why, sizeof why);
	json_text(memory, "note", note, sizeof note);
	json_elements(memory, "on_nodes", add_node, &on);
	fprintf(context, "%c %-9s node %-11s now: %.1f MiB%s, %.1f MiB in huge pages%s; %s%s%s\n",
		mark(memory), name, *nodes ? nodes : "any", mib(memory, "bytes"), on.text,
		mib(memory, "huge_bytes"), number(memory, "page_bytes") > 4096 ? " (reserved)" : "", why,
		*note ? "; " : "", note);
}

bool topology_print(FILE *file, const char *json)
{
	char advice[WORDS_BYTES] = "";
	double differences;
	fprintf(file, "%.0f CPUs on %.0f cores", number(json, "cpus"), number(json, "cores"));
	if (number(json, "quota_cpus") > 0)
		fprintf(file, ", limited to %.2f CPUs of time", number(json, "quota_cpus"));
	fputs("\n", file);
	bool good = json_elements(json, "nodes", print_node, file) &&
		    json_elements(json, "devices", print_device, file);
	fputs("threads: the plan, what is, and why\n", file);
	good = good && json_elements(json, "threads", print_thread, file);
	fputs("memory: the plan, what is, and why\n", file);
	good = good && json_elements(json, "memory", print_memory, file);
	good = good && json_number(json, "differences", &differences);
	if (good && differences > 0)
		fprintf(file, "plan and reality differ in %.0f of these, marked !\n", differences);
	else if (good)
		fputs("plan and reality agree\n", file);
	if (json_text(json, "advice", advice, sizeof advice) && *advice)
		fprintf(file, "huge pages: %s\n", advice);
	return good;
}

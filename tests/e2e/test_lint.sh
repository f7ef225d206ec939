#!/bin/bash
# Plants one breach of each rule in a copy of the tree and sees tools/lint name it; the clean copy must pass.
set -u
for program in python3 gcc g++ shellcheck clang-format-19 clang-tidy-19 cppcheck; do
	command -v "$program" >/dev/null || { echo "skip: $program is not installed"; exit 77; }
done
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$TOKENRING_SOURCE_ROOT" && tar cf - --exclude=./.git --exclude='./build*' . | tar xf - -C "$tree" || exit 1
cd "$tree" || exit 1
failed=0

# plant CHECK FILE EXPECTED: standard input becomes FILE; CHECK must fail and print EXPECTED (a regular expression).
plant() {
	local check=$1 file=$2 expected=$3 output
	mkdir -p "$(dirname "$file")"
	cat >"$file"
	if output=$(tools/lint "$check" --only "$file" 2>&1); then
		echo "FAIL: $check did not notice $file"
		failed=1
	elif ! grep -Eq "^$file:$expected" <<<"$output"; then
		printf 'FAIL: %s said of %s:\n%s\ninstead of %s\n' "$check" "$file" "$output" "$expected"
		failed=1
	else
		echo "ok: $check: $file"
	fi
	rm "$file"
}

plant layers shm/planted.c '2: shm/ may not include kernels/types.h' <<'E'

#include "kernels/types.h"
E
touch daemon/engine/planted_room.h
for folder in kernels tools daemon/model libclient; do
	plant layers $folder/planted.c "1: $folder/ may not include daemon/engine/planted_room.h" <<'E'
#include "daemon/engine/planted_room.h"
E
done
rm daemon/engine/planted_room.h
plant layers shm/planted.c '1: includes "nowhere.h", which is not in the tree' <<'E'
#include "nowhere.h"
E
plant layers elsewhere/planted.c '1: is in no known layer' <<'E'
int planted;
E

echo '#include "shm/planted_a.h"' >shm/planted_b.h
plant cycles shm/planted_a.h '1: headers include each other in a circle: .*planted_b.h' <<'E'
#include "shm/planted_b.h"
E
rm shm/planted_b.h

plant headers shm/planted.h '1: does not compile alone as C: .*uint32_t' <<'E'
#ifndef PLANTED_H
#define PLANTED_H
struct planted { uint32_t n; };
#endif
E
plant headers shm/planted.h '1: does not compile alone as C: .*redefinition' <<'E'
struct planted { int n; };
E
public=libclient/include/tokenring/tokenring.h
cp "$public" public.keep
plant headers $public '1: does not compile alone as C\+\+' <<'E'
#ifndef PLANTED_H
#define PLANTED_H
struct planted { int new; };
#endif
E
mv public.keep "$public"

room() { # FILE WHAT LINE
	plant rooms "$1" "1: .* is $2, which stays in" <<<"$3"
}
room shm/planted.h 'C11 atomics' '#include <stdatomic.h>'
room daemon/engine/planted.c 'C11 atomics' 'static _Atomic int planted;'
room daemon/engine/planted.c 'io_uring' '#include <liburing.h>'
room daemon/control/planted.c 'DPDK' '#include <rte_ring.h>'
room kernels/planted.c 'CUDA' 'int f(void) { return cuInit(0); }'
room kernels/ref/planted.c 'vector intrinsics' '#include <immintrin.h>'
room tools/planted.c 'PCRE2' '#include <pcre2.h>'
room daemon/engine/planted.c 'libnuma' '#include <numa.h>'
room daemon/engine/planted.c 'libinih' '#include <ini.h>'
room daemon/engine/planted.c 'libsystemd' '#include <systemd/sd-journal.h>'

plant shape shm/planted.c '601: has 700 lines' < <(yes 'int planted(void);' | head -700)
plant shape shm/planted.c '2: TO''DO left in the source' < <(printf '\n/* TO''DO: later */\n')
plant format shm/planted.c '1: is not formatted' <<<'int  planted ( void ) ;'
plant scripts tools/planted.sh '2: .*SC2115' <<'E'
#!/bin/sh
rm -rf "$1/"*
E
plant scripts tools/planted.py '1: is not valid Python' <<<'def planted(:'
plant cppcheck shm/planted.c '4: .*zero' <<'E'
int planted(void);
int planted(void)
{
	return 1 / 0;
}
E
plant tidy shm/planted.c '4: .*bugprone-' <<'E'
int planted(const char *a);
int planted(const char *a)
{
	return (int)sizeof(sizeof(a));
}
E

tools/lint --fast || { echo "FAIL: the clean tree does not pass"; failed=1; }
exit $failed

#!/bin/bash
# Compiles libclient/examples against the installed library and runs them against an installed daemon with a real model.
set -u
stage=$(mktemp -d)
daemon=
finish() {
	[ -z "$daemon" ] || { kill "$daemon"; wait "$daemon"; } 2>/dev/null
	rm -rf "$stage"
}
trap finish EXIT
fail() { echo "FAIL: $*"; cat "$stage"/*.log 2>/dev/null; exit 1; }
skip() { echo "SKIP: $*"; exit 77; }

meson install -C "$TOKENRING_BUILD_ROOT" --no-rebuild --quiet --destdir "$stage" >"$stage/install.log" 2>&1 || fail "meson install"
header=$(find "$stage" -path '*/include/tokenring/tokenring.h')
prefix=${header%/include/tokenring/tokenring.h}
libdir=$(dirname "$(find "$prefix" -name libtokenring.so.0)")
export PKG_CONFIG_SYSROOT_DIR=$stage PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
flags=$(pkg-config --cflags --libs tokenring) || fail "pkg-config does not find tokenring"
examples=$TOKENRING_SOURCE_ROOT/libclient/examples
warnings="-Wall -Wextra -Wno-missing-field-initializers -Werror"
# shellcheck disable=SC2086  # flags are words
{
	gcc -std=gnu11 $warnings "$examples/hello.c" $flags -o "$stage/hello" || fail "hello.c"
	gcc -std=gnu11 $warnings "$examples/epoll.c" $flags -o "$stage/epoll" || fail "epoll.c"
	gcc -std=gnu11 $warnings "$examples/alike.c" $flags -lm -o "$stage/alike" || fail "alike.c"
	g++ -std=c++11 -pedantic $warnings "$examples/scored.cpp" $flags -o "$stage/scored" || fail "scored.cpp"
}

# Without a daemon each says so in a sentence.
export TOKENRING_SOCKET=$stage/socket
for example in hello epoll alike scored; do
	"$stage/$example" >/dev/null 2>"$stage/none.log" && fail "$example succeeds without a daemon"
	grep -q "there is no socket" "$stage/none.log" || fail "$example does not say that there is no socket"
done

[ -z "${TOKENRING_SANITIZER:-}" ] || { echo "compiled; not run: the daemon is built with a sanitizer"; exit 0; }
program=$(find "$prefix" -type f -name tokenringd -perm -u+x)
[ -n "$program" ] || skip "no tokenringd is built"
model=${TOKENRING_TEST_MODELS:-/nonexistent}/SmolLM2-135M-Instruct.Q4_1.gguf
[ -s "$model" ] || skip "no $model: tools/fetch-model fetches it"

"$program" --model "$model" --socket "$TOKENRING_SOCKET" >"$stage/daemon.log" 2>&1 &
daemon=$!
for _ in $(seq 300); do
	"$stage/hello" >"$stage/hello.out" 2>"$stage/hello.log" && break
	kill -0 "$daemon" 2>/dev/null || fail "tokenringd ended"
	sleep 0.2
done
# Greedy decoding of this prompt gives Paris in every implementation.
grep -q Paris "$stage/hello.out" || fail "hello says '$(cat "$stage/hello.out")'"
"$stage/epoll" >"$stage/epoll.out" 2>"$stage/epoll.log" || fail "epoll"
[ "$(grep -c 'kind 3' "$stage/epoll.out")" = 3 ] || fail "epoll does not end three requests: $(cat "$stage/epoll.out")"
"$stage/scored" >"$stage/scored.out" 2>"$stage/scored.log" || fail "scored"
grep -q '^up [-0-9.]*, down [-0-9.]*$' "$stage/scored.out" || fail "scored says '$(cat "$stage/scored.out")'"
# The first text is a question about capitals, as the second is; the third is about bread.
"$stage/alike" >"$stage/alike.out" 2>"$stage/alike.log" || fail "alike"
awk '{ alike[NR] = $1 } END { exit !(NR == 2 && alike[1] > alike[2] && alike[1] < 1 && alike[2] > 0) }' "$stage/alike.out" ||
	fail "alike says '$(cat "$stage/alike.out")'"
cat "$stage/hello.out" "$stage/scored.out" "$stage/alike.out"

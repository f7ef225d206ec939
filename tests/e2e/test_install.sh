#!/bin/bash
# Installs into a folder and compiles consumers against what is there: nothing else of the tree may be needed.
set -u
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
failed=0
complain() { echo "FAIL: $*"; failed=1; }

meson install -C "$TOKENRING_BUILD_ROOT" --no-rebuild --quiet --destdir "$stage" >"$stage.log" 2>&1 ||
	{ cat "$stage.log"; complain "meson install"; }
rm -f "$stage.log"
prefix=$(find "$stage" -path '*/include/tokenring/tokenring.h' | sed 's|/include/tokenring/tokenring.h||')
[ -n "$prefix" ] || { complain "the header is not installed"; exit 1; }
libdir=$(dirname "$(find "$prefix" -name libtokenring.so.0 | head -1)")
[ -e "$libdir/libtokenring.so.0" ] || { complain "libtokenring.so.0 is not installed"; exit 1; }

for file in bin/tokenringd bin/tokenring etc/tokenring/tokenring.conf share/man/man5/tokenring.conf.5 \
	lib/systemd/system/tokenringd.service lib/sysusers.d/tokenring.conf share/man/man1/tokenring.1 \
	share/man/man3/libtokenring.3 share/man/man8/tokenringd.8 \
	share/bash-completion/completions/tokenring share/bash-completion/completions/tokenringd share/doc/tokenring/LICENSE; do
	[ -s "$prefix/$file" ] || complain "$file is not installed"
done
# Links of the README to pages; those into the source are for readers of the tree.
for page in $(grep -oE '\]\([A-Za-z/]*(\.md|LICENSE)\)' "$TOKENRING_SOURCE_ROOT/README.md" | tr -d ']()' | sort -u); do
	[ -s "$prefix/share/doc/tokenring/$page" ] || complain "the README links $page, which is not installed beside it"
done
headers=$(find "$prefix/include" -type f | wc -l)
[ "$headers" = 1 ] || complain "$headers headers are installed, not one"

# The library: only tr_ names, all of one version, no libraries beyond libc, no path into the build.
symbols=$(nm -D --defined-only "$libdir/libtokenring.so.0" | awk '$2 != "A" {print $3}')
for symbol in $symbols; do
	[[ $symbol == tr_*@@TOKENRING_* ]] || complain "libtokenring.so.0 exports $symbol"
done
declared=$(sed -n 's/^TR_API .*[ *]\(tr_[a-z_]*\)(.*/\1/p' "$prefix/include/tokenring/tokenring.h" | sort)
[ "$declared" = "$(sed 's/@.*//' <<<"$symbols" | sort)" ] || {
	diff <(echo "$declared") <(sed 's/@.*//' <<<"$symbols" | sort)
	complain "the header and the library do not have the same functions"
}
for program in "$libdir/libtokenring.so.0" "$prefix/bin/tokenringd" "$prefix/bin/tokenring"; do
	readelf -d "$program" | grep -E 'RPATH|RUNPATH' && complain "$program has a run path"
done
needed=$(readelf -d "$libdir/libtokenring.so.0" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v -E '^lib(c|pthread)\.so')
[ -z "$needed" ] || [ -n "${TOKENRING_SANITIZER:-}" ] || complain "the library needs $needed"

export PKG_CONFIG_SYSROOT_DIR=$stage PKG_CONFIG_PATH=$libdir/pkgconfig
flags=$(pkg-config --cflags --libs tokenring) || complain "pkg-config does not find tokenring"
sed -n '/^```c$/,/^```$/p' "$TOKENRING_SOURCE_ROOT/README.md" | grep -v '^```' >"$stage/readme.c"
# shellcheck disable=SC2086  # flags are words
compile() { "$@" -Wall -Wextra -Wno-missing-field-initializers -Werror $flags -o "$stage/consumer"; }
compile cc -std=c17 "$stage/readme.c" || complain "the example of the README does not compile"
compile cc -std=c99 -pedantic "$stage/readme.c" || complain "the example of the README is no C99"
TOKENRING_SOCKET=$stage/none LD_LIBRARY_PATH=$libdir "$stage/consumer"
[ $? = 1 ] || complain "the example of the README does not end with 1 when there is no daemon"
printf '#include <tokenring/tokenring.h>\nint main() { return tr_version()[0] == 0; }\n' >"$stage/consumer.cc"
compile c++ -std=c++11 -pedantic "$stage/consumer.cc" || complain "a C++ consumer does not compile"
LD_LIBRARY_PATH=$libdir "$stage/consumer" || complain "tr_version is empty"

# The installed configuration is taken as it is, and changes nothing.
"$prefix/bin/tokenringd" --print-config --config "$prefix/etc/tokenring/tokenring.conf" |
	diff "$prefix/etc/tokenring/tokenring.conf" - || complain "the installed configuration is not the default"

if command -v systemd-analyze >/dev/null; then
	unit=$stage/tokenringd.service
	sed "s|^ExecStart=[^ ]*|ExecStart=/bin/true|; /^Documentation/d" "$prefix/lib/systemd/system/tokenringd.service" >"$unit"
	complaints=$(systemd-analyze verify "$unit" 2>&1 | grep -F tokenringd.service)
	[ -z "$complaints" ] || complain "$complaints"
fi
exit $failed

#!/bin/bash
# The interface of libtokenring.so.0 is that of tests/abi/libtokenring.abi, and what breaks programs is noticed.
set -u
source=$TOKENRING_SOURCE_ROOT
baseline=$source/tests/abi/libtokenring.abi
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
fail() { echo "FAIL: $*"; cat "$stage/report" 2>/dev/null; exit 1; }

for program in abidw abidiff gcc; do
	command -v "$program" >/dev/null || { echo "SKIP: no $program: tools/install-packages test installs abigail-tools"; exit 77; }
done

# compare TREE: abidiff's verdict on a tree against the baseline; functions that are new break nobody.
compare() {
	"$source/tests/abi/dump" "$1" >"$stage/now.abi" 2>"$stage/report" || fail "the library of $1 cannot be described"
	abidiff --no-added-syms "$baseline" "$stage/now.abi" >"$stage/report" 2>&1
}

# plant NAME SED-SCRIPT: a copy of the tree with one change.
plant() {
	tree=$stage/$1
	mkdir -p "$tree"
	cp -r "$source/libclient" "$source/shm" "$tree/"
	sed -i "$2" "$tree"/libclient/*.c "$tree/libclient/libtokenring.map" "$tree/libclient/include/tokenring/tokenring.h"
	diff -rq "$source/libclient" "$tree/libclient" >"$stage/changed" && fail "the change '$1' changes nothing"
	compare "$tree"
}

# notice WHAT NAME: the planted change was found, and the report names it.
notice() {
	grep -q "$2" "$stage/report" || fail "the report on $1 does not name $2"
}

compare "$source" || fail "the interface is no longer that of the baseline; if that is meant, and the soname tells it to" \
	"programs that it breaks: tests/abi/dump >tests/abi/libtokenring.abi"

plant removed '/tr_flush;/d' && fail "a function that is gone was not noticed"
notice "a function that is gone" tr_flush
plant grown 's/^\tconst struct tr_scored \*scored;/\tuint64_t planted;\n&/' && fail "a member within tr_event was not noticed"
notice "a member within tr_event" planted
plant narrowed 's/^\tuint32_t n_stop_ids;/\tuint16_t n_stop_ids;/' && fail "a narrower member was not noticed"
notice "a narrower member" n_stop_ids
plant parameter 's/^\(TR_API \)\?int tr_session_close(struct tr_client \*client, uint32_t/&64_t/; s/uint32_t64_t/uint64_t/' &&
	fail "another type of a parameter was not noticed"
notice "another type of a parameter" tr_session_close
plant added 's/^\ttr_arm;/&\n\ttr_planted;/; s/^int tr_arm(/TR_API int tr_planted(void);\nint tr_planted(void)\n{\n\treturn 0;\n}\n\n&/' || fail "a function more is no breach"
grep -q "tr_planted" "$stage/now.abi" || fail "the function more is not there"
echo "the interface is that of the baseline; four planted breaches were noticed"

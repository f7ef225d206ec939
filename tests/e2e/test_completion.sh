#!/bin/bash
# Bash completion offers what --help lists: every verb, every option of each, and files where a file is wanted.
set -u
shopt -s extglob
failed=0
complain() { echo "FAIL: $*"; failed=1; }
tokenring=$TOKENRING_BUILD_ROOT/tools/tokenring
tokenringd=$TOKENRING_BUILD_ROOT/daemon/tokenringd
# shellcheck disable=SC1091  # made by the build
. "$TOKENRING_BUILD_ROOT/packaging/tokenring"
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
touch model.gguf

# offered PROGRAM WORD...: what completing the last word offers, sorted.
offered() {
	local function=_$1
	COMP_WORDS=("$@")
	COMP_CWORD=$(($# - 1))
	"$function"
	printf '%s\n' "${COMPREPLY[@]}" | sort
}

# expect WORDS PROGRAM WORD...: exactly these, in any order.
expect() {
	local wanted got
	# shellcheck disable=SC2086  # words
	wanted=$(printf '%s\n' $1 | sort)
	shift
	got=$(offered "$@")
	[ "$got" = "$wanted" ] || complain "completing \"$*\" offers"$'\n'"$got"$'\n'"instead of"$'\n'"$wanted"
}

complete -p tokenring tokenringd >/dev/null || complain 'the functions are not registered'
firsts=$("$tokenring" --help | sed -n '/^verbs:/,/^$/p' | sed -nE 's/^  ([a-z]+).*/\1/p' | sort -u)
expect "$firsts --help --version" tokenring ''
expect "status" tokenring sta
expect "ring decode prefill lines peer --help" tokenring bench ''
expect "info --help" tokenring model ''

n=0
while read -r verb; do
	# shellcheck disable=SC2086  # a verb may be two words
	options=$("$tokenring" $verb --help | grep -oE '^ +(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+')
	[ -n "$options" ] || complain "$verb --help lists no options"
	# shellcheck disable=SC2086  # a verb may be two words
	expect "$options" tokenring $verb --
	n=$((n + 1))
done < <("$tokenring" --help | sed -n '/^verbs:/,/^$/p' | sed -nE 's/^  ([a-z]+( [a-z]+)?)  .*/\1/p')
[ $n -ge 9 ] || complain "only $n verbs were compared"

options=$("$tokenringd" --help | sed -nE 's/^  (--[a-z-]+)$/\1/p')
[ "$(wc -w <<<"$options")" -ge 30 ] || complain 'tokenringd --help lists fewer than 30 options'
expect "$options --config --help --version --print-config" tokenringd --
expect 'cpu ref-int8 ref-f32' tokenringd --backend ''
expect 'require' tokenringd --huge-pages r
expect 'stderr' tokenringd --log-target = s
expect 'auto stderr journal' tokenringd --log-target =
expect '' tokenringd --threads ''
expect 'model.gguf' tokenringd --model ''
expect 'model.gguf' tokenring tokenize -m mo
expect 'model.gguf' tokenring model info m
expect '--keys' tokenring model info --k
expect '' tokenring run --seed ''
expect 'echo throughput idle parked asleep prefill payload paced peers' tokenring bench ring --only ''
expect 'parked payload paced' tokenring bench ring --only = pa
expect 'smollm2' tokenring run --chat-format s
expect 'last mean' tokenring embed --pool ''
expect '' tokenring sing ''
exit $failed

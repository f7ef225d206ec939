#!/bin/bash
# tools/quickstart with a model that is there already: twice, kept and stopped, ended half way; nothing is left behind.
set -u
model=${TOKENRING_TEST_MODELS:-/nonexistent}/SmolLM2-135M-Instruct.Q4_1.gguf
[ -f "$model" ] || { echo 'skip: SmolLM2 is not in TOKENRING_TEST_MODELS'; exit 77; }
scratch=$(mktemp -d)
kept=''
trap '[ -z "$kept" ] || kill "$kept" 2>/dev/null; rm -rf "$scratch"' EXIT
export XDG_RUNTIME_DIR=$scratch/run
mkdir "$XDG_RUNTIME_DIR"
cd "$TOKENRING_SOURCE_ROOT" || exit 1
pages=$(cat /proc/sys/vm/nr_hugepages)
failed=0

fail() {
	echo "FAIL: $*"
	failed=1
}

nothing_left() {
	# The compiler's cache, where there is one, is not ours.
	local left
	left=$(ls -A --ignore=ccache-tmp "$XDG_RUNTIME_DIR")
	[ -z "$left" ] || fail "$1 leaves $left"
	[ "$(cat /proc/sys/vm/nr_hugepages)" = "$pages" ] || fail "$1 leaves another number of huge pages"
}

refused() { # CODE PATTERN ARGUMENT...
	local code=$1 pattern=$2
	shift 2
	tools/quickstart "$@" >"$scratch/out" 2>&1
	[ $? = "$code" ] || fail "quickstart $*: another exit code than $code"
	grep -q -- "$pattern" "$scratch/out" || fail "quickstart $* says $(cat "$scratch/out")"
}

refused 2 'there is no option --loud' --loud
refused 2 '--model wants a FILE' --model
refused 1 "there is no file $scratch/none" --model "$scratch/none"

run() { # ARGUMENT...
	local start=$SECONDS
	tools/quickstart --model "$model" "$@" >"$scratch/out" 2>&1 || { cat "$scratch/out"; fail "quickstart $* failed"; }
	echo "quickstart $*: $((SECONDS - start)) s"
}

check_output() {
	local wanted
	for wanted in '^== asking: Say hello' 'first token after [0-9.]* ms' '^echo round trip  *[0-9.]+ +[0-9.e+]+ +[0-9.e+]+ ns' \
		'^time to first token  *[0-9.]+ .* ms' '^tokens per second  *[0-9.]+ .* /s +[0-9.]+$'; do
		grep -Eq "$wanted" "$scratch/out" || fail "no line like $wanted in $(cat "$scratch/out")"
	done
}

run 'Say hello.'
check_output
nothing_left 'the first run'
run 'Say hello.'
check_output
nothing_left 'the second run'

run --keep 'Say hello.'
kept=$(sed -n 's/^  kill \([0-9]*\);.*/\1/p' "$scratch/out")
TOKENRING_SOCKET=$(sed -n 's/^  export TOKENRING_SOCKET=//p' "$scratch/out") \
	build/quickstart/root/bin/tokenring run -n 2 'The capital of France is' | grep -q Paris || fail 'the kept daemon does not answer'
sh -c "$(sed -n 's/^  \(kill .*\)/\1/p' "$scratch/out")" || fail 'the command that stops it fails'
kill -0 "$kept" 2>/dev/null && fail 'the command that stops the kept daemon does not wait until it is gone'
kept=''
nothing_left 'a kept run that was stopped'

# Ended from outside while the daemon runs.
tools/quickstart --model "$model" >"$scratch/out" 2>&1 &
quickstart=$!
for _ in {1..400}; do
	ls "$XDG_RUNTIME_DIR"/*/socket >/dev/null 2>&1 && break
	sleep 0.05
done
kill -TERM $quickstart
wait $quickstart
[ $? = 143 ] || fail 'an ended run has another exit code than 143'
nothing_left 'an ended run'
exit $failed

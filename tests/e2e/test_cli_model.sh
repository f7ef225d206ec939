#!/bin/bash
# The command line with the real daemon: a synthetic model, and SmolLM2 where it is there.
set -u
tokenring=$TOKENRING_BUILD_ROOT/tools/tokenring
scratch=$(mktemp -d)
export TOKENRING_SOCKET=$scratch/socket
daemon='' failed=0 tested=0
cd "$TOKENRING_SOURCE_ROOT" || exit 1

stop_daemon() {
	[ -z "$daemon" ] || { kill "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null; }
	daemon=''
}
trap 'stop_daemon; rm -rf "$scratch"' EXIT

fail() {
	echo "FAIL: $*"
	failed=1
}

start_daemon() { # MODEL
	stop_daemon
	"$TOKENRING_BUILD_ROOT/daemon/tokenringd" --model "$1" --socket "$TOKENRING_SOCKET" --kv-tokens 8192 \
		>"$scratch/log" 2>&1 &
	daemon=$!
	"$tokenring" status --wait >"$scratch/status" || { cat "$scratch/log"; fail "no daemon with $1"; exit 1; }
	tested=1
}

same() { # WHAT GOT WANTED
	if [ "$2" = "$3" ]; then echo "ok: $1"; else fail "$1: got \"$2\" instead of \"$3\""; fi
}

lines() { python3 tests/e2e/cli_lines.py "$@" || fail "lines of bench $1: $(cat "$scratch/error")"; }

# bench_lines WORD... -- ARGUMENT...: `bench ARGUMENT...` prints the lines that `lines WORD...` wants. A tiny model may answer
# whole before a busy machine lets the client run; then there is nothing to time, which bench says, and the next try tells.
bench_lines() {
	local words=()
	while [ "$1" != -- ]; do
		words+=("$1")
		shift
	done
	shift
	for _ in 1 2 3 4 5 6; do
		"$tokenring" bench "$@" >"$scratch/lines" 2>"$scratch/error"
		grep -q 'too fast to time' "$scratch/error" || break
	done
	lines "${words[@]}" <"$scratch/lines"
}

# What must hold for any model: $model is served.
check_any() {
	local text='The year 2024, naïve café.' ids first bytes
	ids=$("$tokenring" tokenize --ids "$text")
	same 'tokens by the daemon are those by the file' "$ids" "$("$tokenring" tokenize --model "$model" --ids "$text")"
	same 'there and back' "$("$tokenring" detokenize "$ids")" "$text"
	first=$("$tokenring" run --ignore-end -n 12 "$text") || fail "run: exit $?"
	same 'greedy twice' "$("$tokenring" run --ignore-end --greedy -n 12 "$text")" "$first"
	first=$("$tokenring" run --ignore-end --temp 1 --seed 7 -n 12 "$text")
	same 'one seed twice' "$("$tokenring" run --ignore-end --temp 1 --seed 7 -n 12 "$text")" "$first"
	bytes=$("$tokenring" run --ignore-end --temp 5 --seed 3 -n 40 --raw "$text" | iconv -f UTF-8 -t UTF-8 | wc -c)
	[ "$bytes" -gt 0 ] || fail 'what is printed is not UTF-8'
	"$tokenring" status --json | python3 -c 'import json, sys; assert json.load(sys.stdin)["model"]["state"] == "ready"' ||
		fail 'status --json'
	"$tokenring" run -n 60000 "$text" >/dev/null 2>"$scratch/error"
	same 'an answer beyond the context' $? 1
	grep -Eq 'refused the request: .*\([0-9]+ asked, the limit is [0-9]+\)' "$scratch/error" ||
		fail "refusal without numbers: $(cat "$scratch/error")"
}

# Limits are the daemon's, not those of the shell that asks.
check_doctor() {
	prlimit --pid "$daemon" --nofile=700:700
	"$tokenring" doctor --json >"$scratch/lines"
	python3 - "$daemon" "$("$tokenring" --version)" "$scratch/lines" <<-'PYTHON' || fail 'doctor'
		import json, sys
		found = {one["item"]: one for one in map(json.loads, open(sys.argv[3]))}
		assert found["daemon"]["state"] == "ok", found["daemon"]
		version = sys.argv[2].split()[1]
		assert found["daemon"]["found"] == f"version {version}, process {sys.argv[1]}, model ready", found["daemon"]
		assert found["socket"]["state"] == "ok" and "mode 0660" in found["socket"]["found"], found["socket"]
		assert found["nofile"]["state"] == "costs" and found["nofile"]["found"] == "700 descriptors", found["nofile"]
	PYTHON
	kill -STOP "$daemon"
	"$tokenring" doctor --json | grep -q '"item":"daemon","state":"wrong","found":"no answer: Connection timed out' ||
		fail 'doctor and a daemon that hangs'
	kill -CONT "$daemon"
}

check_cancel() {
	rm -f "$scratch/out"
	"$tokenring" run --ignore-end -n 2000 'A long story:' >"$scratch/out" 2>"$scratch/error" &
	local run=$!
	for _ in {1..200}; do
		[ -s "$scratch/out" ] && break
		sleep 0.02
	done
	kill -INT $run
	wait $run
	same 'Ctrl-C: exit code' $? 1
	grep -Eq 'cancelled after [0-9]+ tokens' "$scratch/error" || fail "Ctrl-C: $(cat "$scratch/error")"
	for _ in {1..50}; do
		"$tokenring" status --json | grep -q '"in_flight":0,' && return
		sleep 0.1
	done
	fail 'the cancelled request is still in flight'
}

check_benchmarks() {
	bench_lines decode tokens_per_second first_token -- decode --json -r 2 -n 200
	bench_lines decode tokens_per_second -- decode --json -r 1 -n 200 -s 3
	bench_lines prefill tokens_per_second first_token -- prefill --json -r 2 -n 64
	if [ "$(nproc)" -gt 1 ]; then
		bench_lines ring echo floor payload_4096_tokens -- ring --json --only echo --only payload -r 3 -n 1000 --same-core-ns 0
	fi
}

check_smollm2() {
	local paris='The capital of France is' out
	same 'tokens of SmolLM2' "$("$tokenring" tokenize --ids "$paris")" '504 3575 282 4649 314'
	out=$("$tokenring" run --greedy -n 8 "$paris")
	case $out in
	' Paris'*) echo "ok: $paris$out" ;;
	*) fail "$paris \"$out\"" ;;
	esac
	same 'a stop string' "$("$tokenring" run --greedy -n 8 --stop ris "$paris")" ' Pa'
	"$tokenring" run --greedy -n 1 --logprobs 3 "$paris" 2>&1 >/dev/null | python3 -c '
import re, sys
found = [(int(i), float(p)) for i, p in re.findall(r"(\d+) \"(?:[^\"]|\\\")*\" (-?[\d.]+)", sys.stdin.read())]
assert len(found) == 4 and found[0] == found[1] and found[0][0] == 7042, found
assert abs(found[0][1] + 0.2581) < 0.1, found  # transformers in float32
assert found[1][1] > found[2][1] > found[3][1], found
' || fail 'log-probabilities'
	"$tokenring" bench perplexity --text LICENSE -n 1000 --chunk 300 --json | python3 -c '
import json, sys
found = json.load(sys.stdin)
assert found["scored"] == 996 and abs(found["perplexity"] / 20.839 - 1) < 0.02, found  # llama.cpp: llama_perplexity.py
' || fail 'perplexity'
	same 'a text that is not there' "$("$tokenring" bench perplexity --text "$scratch/none" 2>&1)" \
		"tokenring: cannot open $scratch/none: No such file or directory"
	same 'each token is listed once' "$("$tokenring" run --greedy -n 20 --logprobs 1 "$paris" 2>&1 >/dev/null | wc -l)" 20
	out=$("$tokenring" run --greedy --chat -n 24 'Say hello.')
	[[ $out == *Hello* ]] || fail "chat: $out"
}

python=
for candidate in python3 /usr/bin/python3; do
	"$candidate" -c 'import numpy' 2>/dev/null && python=$candidate && break
done
if [ -n "$python" ]; then
	model=$scratch/synthetic.gguf
	"$python" tools/make-model "$model" || fail make-model
	start_daemon "$model"
	check_any
	check_cancel
	check_doctor
	check_benchmarks
else
	echo 'no python3 with numpy (Debian: python3-numpy): no synthetic model'
fi
model=${TOKENRING_TEST_MODELS:-/nonexistent}/SmolLM2-135M-Instruct.Q4_1.gguf
if [ -f "$model" ]; then
	start_daemon "$model"
	check_any
	check_cancel
	check_smollm2
fi
[ $tested = 1 ] || { echo 'skip: neither numpy for a synthetic model nor SmolLM2 in TOKENRING_TEST_MODELS'; exit 77; }
exit $failed

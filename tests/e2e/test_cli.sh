#!/bin/bash
# The command line against a scripted daemon (cli_daemon.c): what it prints, what it complains of, how it exits.
set -u
tokenring=$TOKENRING_BUILD_ROOT/tools/tokenring
scratch=$(mktemp -d)
export TMPDIR=$scratch
failed=0 daemon='' TOKENRING_SOCKET=''

stop_daemon() {
	[ -z "$daemon" ] || { kill "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null; }
	daemon=''
}
trap 'stop_daemon; rm -rf "$scratch"' EXIT

# start_daemon [LOADING_REPLIES]: TOKENRING_SOCKET names it.
start_daemon() {
	stop_daemon
	rm -f "$scratch/path"
	"$TOKENRING_BUILD_ROOT/tests/e2e/cli_daemon" "$@" >"$scratch/path" &
	daemon=$!
	for _ in {1..100}; do
		[ -s "$scratch/path" ] && break
		sleep 0.02
	done
	TOKENRING_SOCKET=$(cat "$scratch/path")
	[ -n "$TOKENRING_SOCKET" ] || { echo 'FAIL: the scripted daemon does not start'; exit 1; }
	export TOKENRING_SOCKET
}

fail() {
	echo "FAIL: $*"
	failed=1
}

# expect CODE OUTPUT ERROR ARGUMENT...: exit code, whole standard output, a pattern of standard error ("": nothing).
expect() {
	local code=$1 output=$2 error=$3 got
	shift 3
	got=$("$tokenring" "$@" 2>"$scratch/error" </dev/null; echo "code $?")
	local wanted="$output${output:+$'\n'}code $code"
	if [ "$got" != "$wanted" ]; then
		fail "tokenring $*: got"$'\n'"$got"$'\n'"instead of"$'\n'"$wanted"$'\n'"$(cat "$scratch/error")"
	elif [ -z "$error" ] && [ -s "$scratch/error" ]; then
		fail "tokenring $*: said \"$(cat "$scratch/error")\""
	elif [ -n "$error" ] && ! grep -Eqz -- "$error" "$scratch/error"; then
		fail "tokenring $*: said \"$(cat "$scratch/error")\" instead of $error"
	else
		echo "ok: tokenring $*"
	fi
}

# ---- without a daemon ----
expect 2 '' 'usage: tokenring VERB'
expect 2 '' 'there is no verb "sing"' sing
expect 2 '' 'verbs bench ring, bench decode, bench prefill, bench perplexity, bench lines, bench peer, but not with sing' bench sing
expect 2 '' 'verbs bench ring, bench decode, bench prefill, bench perplexity, bench lines, bench peer' bench
for group in bench model; do
	"$tokenring" $group --help | grep -q "^  $group " || fail "$group --help"
done
expect 2 '' 'there is no verb "sing"' sing --help
expect 2 '' '--pool is last or mean, not "max"' embed --pool max text
expect 2 '' 'there is no option --loud; `tokenring run --help`' run --loud
expect 2 '' '--temp wants a number from 0 to 100, not "hot"' run --temp hot x
expect 2 '' '--greedy and --temp exclude' run --greedy --temp 1 x
expect 2 '' '--seed wants a whole number from 0 to 18446744073709551615, not' run --temp 1 --seed 18446744073709551616 x
expect 2 '' 'need --temp above 0' run --top-k 3 x
expect 2 '' 'need --chat' run --system x y
expect 2 '' 'no chat format "klingon"; there are smollm2, chatml, gemma' run --chat --chat-format klingon x
expect 2 '' '--stop wants a text' run --stop '' x
expect 2 '' '"two" is one argument too many' run one two
expect 2 '' 'an argument is missing: FILE' model info
expect 2 '' '--text FILE is missing' bench perplexity
expect 2 '' '--peer needs --peer-python' bench decode --peer
expect 1 '' "there is no socket at $scratch/none; start the daemon" run --socket "$scratch/none" x
expect 1 '' 'there is no socket at' status --socket "$scratch/none"
expect 1 '' '--socket is empty; name' status --socket ''
expect 1 '' 'there is no socket at' tokenize --socket "$scratch/none" x
expect 1 '' 'there is no socket at' bench ring --socket "$scratch/none"
expect 1 '' "$scratch/none" model info "$scratch/none"
expect 1 '' 'Is a directory|is a directory' model info "$scratch"
head -c 4096 /dev/zero >"$scratch/zeros"
expect 1 '' zeros model info "$scratch/zeros"
expect 1 '' zeros tokenize --model "$scratch/zeros" x
expect 2 '' '"two" is not a token id' detokenize 1 two
for verb in run status 'model info' tokenize detokenize 'bench ring' 'bench decode' 'bench prefill' 'bench perplexity' 'bench lines' 'bench peer'; do
	# shellcheck disable=SC2086  # a verb of two words
	"$tokenring" $verb --help | grep -q -- "^usage: tokenring $verb .*" || fail "$verb --help"
done
"$tokenring" --version | grep -Eq '^tokenring [0-9]+\.[0-9]+\.[0-9]+$' || fail --version

# ---- with one ----
start_daemon
expect 0 'Hello.' '' run 'say:Hello.'
expect 0 $'na\xc3\xafve \xf0\x9f\x98\x80' '' run $'say:na\xc3\xafve \xf0\x9f\x98\x80'
expect 0 'Hello' '' run --stop '</s>' --stop $'\n\nUser' 'say:Hello</s> and more'
expect 0 '<s>print' '' run print
system='You are a helpful AI assistant named SmolLM, trained by Hugging Face'
user=$'<|im_start|>user\nprint<|im_end|>\n<|im_start|>assistant'
expect 0 "<s><|im_start|>system"$'\n'"$system<|im_end|>"$'\n'"$user" '' run --chat print
expect 0 "<s>$user" '' run --chat --chat-format chatml print
expect 0 'x' 'prompt 6 tokens, answer 1 tokens, end: stop.*first token after' run --verbose say:x
expect 0 'x' 'end: stop string' run --verbose --stop y 'say:xyz'
records='111 "o" -0.5000  \| 111 "o" -0.5000  \| 120 "x" -1.5000'$'\n''107 "k" -0.2500  \| 107 "k" -0.2500  \| 121 "y" -2.0000'
expect 0 'ok' "^$records"$'\n''$' run --logprobs 2 logprobs
expect 1 '' 'refused the request: prompt and answer do not fit.*\(600 asked, the limit is 512\)' run refuse
expect 1 'abc' 'the request failed: an activation is not a number' run fail
expect 1 'abc' 'the deadline passed after 3 tokens' run --deadline-ms 1 deadline
expect 0 '{"state":"ready","threads":1,"model":{"name":"smollm2-of-bytes"}}' '' status --json
"$tokenring" status | grep -Eq '^model.name +smollm2-of-bytes$' || fail 'status for people'
expect 0 '65 66' '' tokenize --ids AB
expect 0 $'65\t"A"\n257\t"<|im_start|>"' '' tokenize --special 'A<|im_start|>'
expect 0 '256 65' '' tokenize --ids --bos A
expect 0 'AB' '' detokenize 65 66
expect 0 'AB' '' detokenize '65,66 258'
expect 0 'A<|im_end|>' '' detokenize --special 65 258
[ "$(printf 'say:from a pipe' | "$tokenring" run)" = 'from a pipe' ] || fail 'prompt from standard input'
[ "$(printf 'say:from a pipe' | "$tokenring" run -)" = 'from a pipe' ] || fail 'prompt from -'
[ "$("$tokenring" run --raw 'say:x' | od -An -c | tr -d ' ')" = x ] || fail '--raw adds nothing'

# Ctrl-C: cancels, waits for the end, exits 1 within a second, and the daemon goes on.
"$tokenring" run slow >"$scratch/out" 2>"$scratch/error" &
run=$!
for _ in {1..100}; do
	[ -s "$scratch/out" ] && break
	sleep 0.02
done
kill -INT $run
wait $run
[ $? = 1 ] || fail 'Ctrl-C does not exit 1'
grep -q 'cancelled after 3 tokens' "$scratch/error" || fail "Ctrl-C: $(cat "$scratch/error")"
expect 0 'still here' '' run 'say:still here'

# A closed pipe ends the request too; its reader is gone before the program starts.
python3 -c 'import os, subprocess, sys
reader, writer = os.pipe()
os.close(reader)
print("code", subprocess.call(sys.argv[1:], stdout=writer))' \
	"$tokenring" run 'say:a long text for a short reader' >"$scratch/code" 2>"$scratch/error"
grep -q 'code 1' "$scratch/code" && grep -q 'standard output cannot be written: Broken pipe' "$scratch/error" ||
	fail "closed pipe: $(cat "$scratch/code" "$scratch/error")"
expect 0 'still here' '' run 'say:still here'

# Without a standard output its number must not go to the daemon's socket, and the text with it.
"$tokenring" run 'say:nobody reads this' 2>"$scratch/error" >&- && fail 'no standard output'
grep -q 'standard output cannot be written: Bad file descriptor' "$scratch/error" ||
	fail "no standard output: $(cat "$scratch/error")"
expect 0 'still here' '' run 'say:still here'

# ---- benchmarks: every line is one object with these keys, ratio = p50 / floor ----
check_lines() {
	python3 "$TOKENRING_SOURCE_ROOT/tests/e2e/cli_lines.py" "$@" || fail "lines of bench $1: $(cat "$scratch/error")"
}
# More tokens than one look collects: however late this process looks, they come at different times.
check_lines decode tokens_per_second first_token < <("$tokenring" bench decode --json -r 2 -n 4000 2>"$scratch/error")
check_lines prefill tokens_per_second first_token < <("$tokenring" bench prefill --json -r 2 -n 32 2>"$scratch/error")
answers=$(printf '%s\n' 'decode 1 4000' 'prefill 32' 'read 4194304' multiply probe 'decode 99 8' 'prefill 1' | "$tokenring" bench lines 2>"$scratch/error")
[ "$(grep -Ec '^[1-9][0-9.e+]*$' <<<"$answers")" -ge 4 ] && [[ $answers == 'ready tokenring ('*' threads'$'\n'* ]] &&
	grep -q '99 streams do not fit one channel' "$scratch/error" && [ "$(wc -l <<<"$answers")" = 6 ] || # the end at what cannot be done
	fail "bench lines: $answers $(cat "$scratch/error")"
if [ "$(nproc)" -gt 1 ]; then
	check_lines ring echo echo_without_own_gaps floor floor_without_own_gaps spsc throughput_submit slot_rings \
		< <("$tokenring" bench ring --json --only echo --only throughput -r 3 -n 1000 --same-core-ns 0 2>"$scratch/error")
	grep -Eq '[1-3] rounds counted; dropped: 0 with both CPUs on one core' "$scratch/error" || fail "bench ring says $(cat "$scratch/error")"
	# --json: a busy machine may hide the daemon's CPU, and a remark then goes to stderr.
	expect 1 '' 'both CPUs were on one core in 4 ' bench ring --json --only echo -r 1 -n 100 --same-core-ns 1000000
	expect 2 '' 'there is no section "sing"' bench ring --only sing
fi

# ---- the daemon dies, loads ----
expect 1 '' 'the daemon is gone' run die
start_daemon 200 # some 1.6 s of questions
expect 0 'loaded' 'the model is loading' run 'say:loaded'

exit $failed

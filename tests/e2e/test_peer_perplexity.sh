#!/bin/bash
# Perplexity of 20,000 tokens within 0.5 % of llama.cpp's, on SmolLM2 in five formats that llama.cpp's own quantiser made of
# one file, and on Gemma 3 where it is there.  TOKENRING_PEER_PYTHON names a python that has llama-cpp-python.
set -u
models=${TOKENRING_TEST_MODELS:-/nonexistent}
smollm2=$models/SmolLM2-135M-Instruct.Q4_1.gguf gemma3=$models/gemma-3-270m-q4_k_m.gguf
python=${TOKENRING_PEER_PYTHON:-}
tokens=${TOKENRING_PERPLEXITY_TOKENS:-20000}
[ -f "$smollm2" ] || { echo 'skip: SmolLM2 is not in TOKENRING_TEST_MODELS'; exit 77; }
"${python:-false}" -c 'import llama_cpp, numpy' 2>/dev/null || {
	echo 'skip: TOKENRING_PEER_PYTHON names no python that has llama-cpp-python'
	exit 77
}
scratch=$(mktemp -d)
export TOKENRING_SOCKET=$scratch/socket
daemon='' failed=0
stop_daemon() {
	[ -z "$daemon" ] || { kill "$daemon"; wait "$daemon"; }
	daemon=''
}
trap 'stop_daemon; rm -rf "$scratch"' EXIT
tokenring=$TOKENRING_BUILD_ROOT/tools/tokenring
cd "$TOKENRING_SOURCE_ROOT/tests/e2e" || exit 1
/usr/bin/python3 perplexity_text.py >"$scratch/text" || exit

compare() { # NAME FILE
	"$TOKENRING_BUILD_ROOT/daemon/tokenringd" --model "$2" --socket "$TOKENRING_SOCKET" --kv-tokens 2048 \
		>"$scratch/log" 2>&1 &
	daemon=$!
	"$tokenring" status --wait >/dev/null || { cat "$scratch/log"; exit 1; }
	"$tokenring" bench perplexity --text "$scratch/text" -n "$tokens" --json >"$scratch/own" || exit 1
	"$tokenring" tokenize --ids --bos - <"$scratch/text" >"$scratch/all"
	stop_daemon
	local bos=0
	[ "$1" = gemma3 ] && bos=1
	cut -d' ' "-f1-$((tokens + bos))" "$scratch/all" | "$python" llama_perplexity.py "$2" 512 >"$scratch/peer" || exit 1
	python3 - "$1" "$scratch/own" "$scratch/peer" <<-'PYTHON' || failed=1
		import json, sys
		own, peer = (json.load(open(path)) for path in sys.argv[2:])
		off = own["perplexity"] / peer["perplexity"] - 1
		print(f"{sys.argv[1]}: tokenring {own['perplexity']:.4f}, llama.cpp {peer['perplexity']:.4f}, {100 * off:+.3f} %"
		      f" ({own['scored']} tokens judged, {own['isa']})")
		assert own["scored"] == peer["scored"], (own, peer)
		assert abs(off) <= 0.005, "more than 0.5 % apart"
	PYTHON
}

compare Q4_1 "$smollm2"
for type in Q4_0 Q8_0 Q4_K_M BF16; do
	"$python" ../../tools/bench/llama_quantize.py "$smollm2" "$scratch/model.gguf" "${type,,}" || exit 1
	compare $type "$scratch/model.gguf"
done
[ -f "$gemma3" ] && compare gemma3 "$gemma3"
exit $failed

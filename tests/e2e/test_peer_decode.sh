#!/bin/bash
# Decode against llama.cpp on the same GGUF, in turns: at least as fast as its best of one or two threads.
# TOKENRING_PEER_PYTHON names a python that has llama-cpp-python, built natively.
set -u
model=${TOKENRING_TEST_MODELS:-/nonexistent}/SmolLM2-135M-Instruct.Q4_1.gguf
python=${TOKENRING_PEER_PYTHON:-}
[ -f "$model" ] || { echo 'skip: SmolLM2 is not in TOKENRING_TEST_MODELS'; exit 77; }
"${python:-false}" -c 'import llama_cpp' 2>/dev/null || {
	echo 'skip: TOKENRING_PEER_PYTHON names no python that has llama-cpp-python'
	exit 77
}
scratch=$(mktemp -d)
export TOKENRING_SOCKET=$scratch/socket
daemon=''
trap '[ -z "$daemon" ] || { kill "$daemon"; wait "$daemon"; }; rm -rf "$scratch"' EXIT
tokenring=$TOKENRING_BUILD_ROOT/tools/tokenring
"$TOKENRING_BUILD_ROOT/daemon/tokenringd" --model "$model" --socket "$TOKENRING_SOCKET" --kv-tokens 8192 >"$scratch/log" 2>&1 &
daemon=$!
for _ in {1..200}; do
	[ -S "$TOKENRING_SOCKET" ] && break
	sleep 0.05
done
"$tokenring" bench decode --peer --peer-python "$python" --peer-script "$TOKENRING_SOURCE_ROOT/tools/bench/llama_peer.py" \
	>"$scratch/out" || exit 1
cat "$scratch/out"
ratio=$(sed -n 's/^peer: .*tokenring \/ peer = //p' "$scratch/out")
awk -v ratio="$ratio" 'BEGIN { exit !(ratio >= 1.0) }' || { echo "FAIL: $ratio times the peer's speed"; exit 1; }

#!/bin/bash
# The real engines beside ours: each of the pythons in TOKENRING_PEER_PYTHON (separated by colons) has some of them.
# Slow and for machines that have them; it asserts what does not depend on the machine's speed.
set -u
model=${TOKENRING_TEST_MODELS:-/nonexistent}/SmolLM2-135M-Instruct.Q4_1.gguf
[ -f "$model" ] || { echo 'skip: SmolLM2 is not in TOKENRING_TEST_MODELS'; exit 77; }
first=${TOKENRING_PEER_PYTHON:-}
"${first%%:*}" -c 'import llama_cpp' 2>/dev/null || { echo 'skip: TOKENRING_PEER_PYTHON names no python that has llama-cpp-python'; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() {
	echo "FAIL: $*"
	failed=1
}
"$TOKENRING_BUILD_ROOT/tools/tokenring" bench peer --peer-script "$TOKENRING_SOURCE_ROOT/tools/bench/bench_peer.py" \
	--cache "$scratch/cache" --model "$model" -r 2 -f q4_1 -f q4_0 >"$scratch/said" 2>&1 || fail "it ends with $?"
cat "$scratch/said"
grep -Eq '^llama: llama.cpp \(llama-cpp-python [0-9.]+, ggml [0-9.]+ commit [0-9a-f]+' "$scratch/said" || fail 'no version of llama.cpp'
# 576 is a multiple of 32, so every matrix of the file has the format itself; the tied vocabulary is kept in Q8_0.
grep -Eq '^q4_0: .* 210 Q4_0 .*1 Q8_0' "$scratch/said" || fail 'no census of the file that was made'
for what in 'q4_1 +decode +tokenring' 'q4_1 +decode +llama' 'q4_0 +streams 32 +llama' 'q4_0 +prefill +llama'; do
	grep -Eq "^$what .* tokens/s .* %" "$scratch/said" || fail "no figure of $what"
done
exit "$failed"

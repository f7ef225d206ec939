#!/bin/bash
# What the KV cache's type costs: perplexity of 3,000 tokens with bf16 and q8 within 0.5 % of that with f16, on SmolLM2; and
# what they take in memory.
set -u
model=${TOKENRING_TEST_MODELS:-/nonexistent}/SmolLM2-135M-Instruct.Q4_1.gguf
[ -f "$model" ] || { echo 'skip: SmolLM2 is not in TOKENRING_TEST_MODELS'; exit 77; }
scratch=$(mktemp -d)
export TOKENRING_SOCKET=$scratch/socket
daemon=''
stop_daemon() {
	[ -z "$daemon" ] || { kill "$daemon"; wait "$daemon"; }
	daemon=''
}
trap 'stop_daemon; rm -rf "$scratch"' EXIT
tokenring=$TOKENRING_BUILD_ROOT/tools/tokenring
cd "$TOKENRING_SOURCE_ROOT/tests/e2e" || exit 1
/usr/bin/python3 perplexity_text.py >"$scratch/text" || exit

for type in f16 bf16 q8; do
	"$TOKENRING_BUILD_ROOT/daemon/tokenringd" --model "$model" --socket "$TOKENRING_SOCKET" --kv-tokens 1024 \
		--max-context-tokens 1024 --kv-type $type >"$scratch/log" 2>&1 &
	daemon=$!
	"$tokenring" status --wait --json >"$scratch/status-$type" || { cat "$scratch/log"; exit 1; }
	"$tokenring" bench perplexity --text "$scratch/text" -n 3000 --chunk 1000 --json >"$scratch/$type" || exit 1
	"$tokenring" bench decode --prompt 900 -n 20 -r 1 --json >"$scratch/decode-$type" 2>"$scratch/note-$type" || exit 1
	stop_daemon
done
/usr/bin/python3 - "$scratch" <<'PYTHON'
import json
import re
import sys

types = ["f16", "bf16", "q8"]
perplexity, kv_bytes = {}, {}
for kv in types:
    with open(f"{sys.argv[1]}/{kv}") as file:
        perplexity[kv] = json.load(file)["perplexity"]
    with open(f"{sys.argv[1]}/status-{kv}") as file:
        status = json.load(file)
    assert status["kv"]["type"] == kv, status["kv"]
    kv_bytes[kv] = status["memory"]["kv_bytes"]
    # 900 + 20 / 2 keys of 3 heads of 64, and as many values, in 30 layers; a scale of two bytes for 32 of Q8
    wanted = 910 * 3 * 128 * 30 * (34 / 32 if kv == "q8" else 2)
    with open(f"{sys.argv[1]}/note-{kv}") as file:
        note = re.search(r"MB of weights and ([0-9.]+) MB of keys and values \((.+)\)", file.read())
    assert note.group(2) == kv and abs(float(note.group(1)) - wanted / 1e6) < 0.006, (note.group(0), wanted)
    off = perplexity[kv] / perplexity["f16"] - 1
    print(f"{kv}: perplexity {perplexity[kv]:.4f}, {100 * off:+.3f} %; {kv_bytes[kv] / 2**20:.1f} MiB")
    assert abs(off) <= 0.005, "more than 0.5 % from f16"
assert len(set(perplexity.values())) == 3, "two types gave the same bits"
assert kv_bytes["bf16"] == kv_bytes["f16"] and kv_bytes["q8"] * 64 == kv_bytes["f16"] * 34, kv_bytes
PYTHON

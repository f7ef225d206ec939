#!/bin/bash
# `tokenring bench peer` with the real daemon, a small model, and a python that is no python but answers as a peer does.
set -u
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() {
	echo "FAIL: $*"
	failed=1
}
python=
for candidate in python3 /usr/bin/python3; do
	"$candidate" -c 'import numpy' 2>/dev/null && python=$candidate && break
done
[ -n "$python" ] || { echo 'skip: no python3 with numpy (Debian: python3-numpy)'; exit 77; }
cd "$TOKENRING_SOURCE_ROOT" || exit 1
"$python" tools/make-model --width 512 --layers 12 "$scratch/small.gguf" || exit 1

# Has llama.cpp and ik_llama.cpp (which aborts at prompts), not OpenVINO.
cat >"$scratch/peer" <<'E2'
#!/bin/bash
case "$*" in
-c*openvino*) exit 1 ;;
-c*) exit 0 ;;
*llama_quantize*) echo 'llama_quantize: refused on purpose' >&2; exit 1 ;;
esac
echo "ready scripted ($*)"
while read -r what _; do
	case "$*/$what" in
	*--fork*/prefill) echo 'aborted on purpose' >&2; exit 1 ;;
	*) echo 2.5 ;;
	esac
done
E2
chmod +x "$scratch/peer"
bench() {
	timeout 250 env -u TOKENRING_PEER_PYTHON "$TOKENRING_BUILD_ROOT/tools/tokenring" bench peer --peer-script tools/bench/bench_peer.py \
		--cache "$scratch/cache" --peer-python "$scratch/peer" --model "$scratch/small.gguf" --save "$scratch/lines" "$@" 2>&1
}
bench -r 1 --format file --only decode --only prefill --peer llama --peer ik --peer openvino >"$scratch/said" || fail "$(cat "$scratch/said")"
bench -r 1 --format file --only best --only start >>"$scratch/said" || fail "$(cat "$scratch/said")"
said() { grep -Eq -- "$1" "$scratch/said" || fail "it does not say $1: $(cat "$scratch/said")"; }
said '^MISSING: openvino, file: openvino is not installed: `tokenring bench peer --install` installs it$'
said '^MISSING: ik, file prefill: aborted on purpose$'
said '^llama: scripted \(.*llama_peer.py --threads [0-9]+ --prompt 8 .*/small.gguf\)$'
said '^file +decode +llama +2.5 tokens/s .*, tokenring / it = [0-9.]+$'
said '^best peer, decode  .* × \(file, beside (llama|ik) file: 2.5\) +yes$'
said '^start to first token  .* [0-9]+ ms'
"$python" - "$scratch/lines" <<'E2' || failed=1
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
found = {(r["task"], r["engine"]): r for r in lines if "rate" in r}
assert {("decode", "tokenring"), ("decode", "llama"), ("decode", "ik"), ("prefill", "llama"), ("best prefill", "llama file")} <= set(found), found
assert ("prefill", "ik") not in found or found["prefill", "ik"]["rate"] is None
for (task, _), r in found.items():
    if r["n"]:
        assert r["rate"] > 0 and r["floor"] > 0 and 0 < r["share"], r
own, peer = found["decode", "tokenring"], found["decode", "llama"]
assert own["n"] != 1 or peer["n"] != 1 or abs(peer["ratio"] - own["rate"] / 2.5) < 1e-9, (own, peer)
E2
tools/performance --kernels --from "$scratch/lines" --output "$scratch/page" || failed=1
grep -q '^| file, decode | .* GB/s | \*\*.*; × .* |$' "$scratch/page" || fail "$(cat "$scratch/page")"
bench --format q4_0 --only decode >"$scratch/said" && fail 'a format that the quantiser does not make'
said '^tokenring: llama_quantize: refused on purpose$'
[ -z "$(find "$scratch/cache" -type f)" ] || fail 'half a file is left in the cache'
exit "$failed"

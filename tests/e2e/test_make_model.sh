#!/bin/bash
# tools/make-model: the same bytes every time, models that the parser accepts, sentences for what cannot be made.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$TOKENRING_SOURCE_ROOT" || exit 1
failed=0
complain() { echo "FAIL: $*"; failed=1; }

python=
for candidate in python3 /usr/bin/python3; do
	if "$candidate" -c 'import numpy' 2>/dev/null; then
		python=$candidate
		break
	fi
done
if [ -z "$python" ]; then
	echo "skip: no python3 with numpy (Debian: python3-numpy)"
	exit 77
fi
make_model() { "$python" tools/make-model "$@"; }
info() { "$TOKENRING_BUILD_ROOT/tools/tokenring" model info "$1"; }

# numpy promises the stream of RandomState for good: these sums hold on every machine.
while read -r type sum; do
	make_model "$work/m.gguf" --seed 7 --type "$type" || complain "$type is not made"
	[ "$(sha256sum <"$work/m.gguf")" = "$sum  -" ] || complain "$type with seed 7 has other bytes"
done <<'E2'
F32 65f2d153a006236665384ff9065522951e26562dbc93a4e3551fd3bff5a9dcc8
Q5_1 f81fbd153e8734f2c53fc38d9889d1800395cc0e6006c193c410aeeeb8e814ab
Q6_K 13d44fbadcd1ab2a5e6bad4940c73734e77c87c598e6feefd4ca22b8e1693689
E2
make_model "$work/other.gguf" --seed 8 --type Q6_K
cmp -s "$work/m.gguf" "$work/other.gguf" && complain "another seed gives the same bytes"

for type in F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K; do
	make_model "$work/m.gguf" --type "$type" --tied || complain "$type is not made"
	info "$work/m.gguf" >"$work/info" || complain "$type is not read: $(cat "$work/info")"
	grep -q "^$type " "$work/info" || complain "$type is not listed in: $(cat "$work/info")"
done
make_model "$work/m.gguf" --experts 4 --experts-used 2 --tokenizer spm --rope-freqs --rope-scaling yarn || complain "no Mixtral"
info "$work/m.gguf" >/dev/null || complain "the model with experts is not read"
make_model "$work/m.gguf" --arch gemma3 --layers 7 --window 16 --kv-heads 1 || complain "no Gemma"
info "$work/m.gguf" | grep -q gemma3 || complain "the gemma3 model is not read"
for arch in gpt2 qwen2 qwen3; do
	make_model "$work/m.gguf" --arch $arch --context 64 || complain "no $arch"
	info "$work/m.gguf" | grep -q $arch || complain "the $arch model is not read"
done

refused() {
	local sentence=$1
	shift
	rm -f "$work/none.gguf"
	make_model "$work/none.gguf" "$@" 2>"$work/why"
	[ $? = 2 ] || complain "$* does not exit with 2"
	grep -q "$sentence" "$work/why" || complain "$*: no '$sentence' in: $(cat "$work/why")"
	compgen -G "$work/none*" >/dev/null && complain "$* leaves a file"
}
refused 'Q4_K packs 256 weights a block, but tensor token_embd.weight has 96 columns' --type Q4_K --width 96
refused '3 heads are no multiple of 2 kv-heads' --heads 3 --kv-heads 2 --head-dim 8
refused 'bpe vocabulary has at least 259 tokens' --vocab 100
refused 'each head has keys of its own' --arch gpt2 --kv-heads 1
refused 'a qwen3 model is dense' --arch qwen3 --experts 4
refused 'experts-used is 5' --experts 4 --experts-used 5
make_model "$work/no/such/folder.gguf" 2>"$work/why"
[ $? = 1 ] || complain "a missing folder does not exit with 1"
exit $failed

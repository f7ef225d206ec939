#!/usr/bin/env python3
"""Make the golden values of the tokenizer tests with independent tokenizers.

usage: make_tokenizer_golden.py [--smollm SmolLM2-135M-Instruct.Q4_1.gguf] [--gemma gemma-3-270m-q4_k_m.gguf]
       make_tokenizer_golden.py --show NAME LINE     what the oracle says about one line
       make_tokenizer_golden.py --cross-check SmolLM2-135M-Instruct.Q4_1.gguf     against llama.cpp

Needs numpy, gguf, tokenizers and sentencepiece; the cross-check needs llama-cpp-python.  Written to tokenizer/:
  fragments.txt    pieces of text, escaped; 10,000 lines are composed from them by a generator that this script and
                   tests/unit/tokenizer_lines.h both implement, so that the lines themselves need not be kept
  NAME.golden      for each line two 32-bit numbers: FNV-1a of its token ids, and of the text decoded from them
  NAME.splits      for each line one 32-bit number: FNV-1a of the byte lengths of its pieces
  vocab-bpe.gguf   small vocabularies trained here on the lines, for tests that need no model
  vocab-spm.gguf
The oracles: Hugging Face `tokenizers` for byte-level BPE, built from the vocabulary and merges of the GGUF (the
conversion in transformers does not know pre-tokenizer `smollm`), and Google's `sentencepiece` for scores with byte
fallback.  Broken UTF-8 is given to both as Python's errors="replace" reads it: one U+FFFD a maximal subpart.
"""
import argparse, io, os, random, struct, sys, unicodedata

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
LINES = 10000
MASK = (1 << 64) - 1
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<bos>", "<end_of_turn>", "<start_of_turn>", "<|eot_id|>",
            "<|im_start", "|im_end|>", "<<|im_end|>>", "<0x0A>", "<unused5>", "<unk>", "<s>", "</s>", "[multimodal]"]
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
REGEX = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama-bpe": CL100K.replace("DIGITS", r"\p{N}{1,3}"),
    "qwen2": CL100K.replace("DIGITS", r"\p{N}"),
}


# The lines -----------------------------------------------------------------------------------------------------------

WORDS = """the quick brown fox jumps over a lazy dog while 12 ships sail home and nobody's counting; it'll we're they've
I'm she'd DON'T you'RE o'clock naïve café über straße façade coöperate señor Ångström smörgåsbord œuvre Zażółć gęślą
jaźń příliš žluťoučký kůň árvíztűrő tükörfúrógép ığdır şeker žába đak фонарь вечер съешь ещё мягких булок їжак ґанок
αλεπού γρήγορη ήλιος θάλασσα שלום ירושלים בֹּקֶר مرحبا العالم كِتَاب سلام دنیا नमस्ते दुनिया हिन्दी বাংলা ভাষা தமிழ் மொழி
తెలుగు ಕನ್ನಡ മലയാളം ภาษาไทย สวัสดี ພາສາລາວ မြန်မာ ភាសាខ្មែរ བོད་ཡིག ქართული ენა հայերեն አማርኛ 你好世界 漢字仮名交じり
日本語のテキスト カタカナ ひらがな 中文分词测试 한국어 텍스트 안녕하세요 ᠮᠣᠩᠭᠣᠯ ᚠᚢᚦᚨᚱᚲ 𐌰𐌱𐌲 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟏𝟐𝟑 ﬁne ﬂow ſee 'ſ 'S K Å Ⅻ ½ ² ٣٤٥ १२३ 〇一二
""".split()
CODE = ["int main(void)\n{\n\treturn 0;\n}\n", "for (size_t i = 0; i < n; i++)\n", "    if x is None:\n        pass\n",
        "x->next = y[i++] & 0xFF;", "#include <stdio.h>\n", "SELECT * FROM t WHERE id=42;", "https://example.org/a?b=c&d=e#f",
        "{\"key\": [1, 2.5e-3, null]}", "std::vector<int> v{1,2,3};", "\t\t\twhile(1);\r\n", "a+b==c||!d&&e^f", "$x{'y'}->[0]",
        "fn f<'a>(x: &'a str) -> u8 { }", "// ---- ==== **** ////", "user@example.com", "C:\\path\\file.txt", "<b>bold</b>",
        "1,234,567.89", "2024-02-29T23:59:60Z", "3.14159265358979", "0x7fffffffffffffff", "+1 (555) 010-9999", "€1.234,50"]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "❤️", "🏳️‍🌈", "☕", "✈️", "🤷🏿‍♀️", "1️⃣", "🧑‍🚀🚀", "💯💯💯"]
SPACES = ["\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", " \t ", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085", "\u200b",
          "\u180e", "\u202f", "\u1680", "\ufeff", "\x0b", "\x0c", "\u2581", "\u2581\u2581"]
BROKEN = [b"\x80", b"\xff", b"\xc0\xaf", b"\xe2\x82", b"\xe2\x28\xa1", b"\xf0\x9f\x98", b"\xf0\x9f", b"\xed\xa0\x80",
          b"\xf4\x90\x80\x80", b"\xf5\x80\x80", b"\xe0\x80\x80", b"\xc3", b"\xc3(", b"a\xf1b", b"\xf8\x88\x80\x80\x80", b"\xfe\xff",
          b"\xe6\x97\xa5\xe6\x9c", b"\xbf\xbf"]
BLOCKS = [(0x21, 0x7e), (0xa1, 0x17f), (0x180, 0x24f), (0x250, 0x2ff), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f),
          (0x530, 0x58f), (0x590, 0x5ff), (0x600, 0x6ff), (0x900, 0x97f), (0x980, 0x9ff), (0xb80, 0xbff), (0xe00, 0xe7f),
          (0xf00, 0xfff), (0x10a0, 0x10ff), (0x1100, 0x11ff), (0x1200, 0x137f), (0x13a0, 0x13ff), (0x1780, 0x17ff),
          (0x1e00, 0x1eff), (0x1f00, 0x1fff), (0x2000, 0x206f), (0x2070, 0x209f), (0x20a0, 0x20cf), (0x2100, 0x218f),
          (0x2190, 0x22ff), (0x2460, 0x24ff), (0x2500, 0x25ff), (0x2600, 0x27bf), (0x2e80, 0x2fd5), (0x3000, 0x30ff),
          (0x3130, 0x318f), (0x4e00, 0x9fff), (0xa000, 0xa48c), (0xac00, 0xd7a3), (0xf900, 0xfaff), (0xfb00, 0xfb4f),
          (0xfe30, 0xffee), (0x10000, 0x100ff), (0x10300, 0x1037f), (0x12000, 0x1237f), (0x1d100, 0x1d7ff), (0x1f300, 0x1faff),
          (0x20000, 0x2a6df), (0xe000, 0xf8ff), (0xe0100, 0xe01ef)]


def make_fragments():
    rng = random.Random(20240229)
    out = [w.encode() for w in WORDS] + [b" " + w.encode() for w in WORDS] + [c.encode() for c in CODE]
    out += [e.encode() for e in EMOJI + SPACES + SPECIALS] + BROKEN
    out += [b" " * n for n in (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 33, 64, 100, 257)]
    out += [b"\n" * n for n in (2, 3, 5, 9, 31, 40)] + [b"\t" * n for n in (2, 3, 8)]
    out += [("".join(rng.choice("0123456789") for _ in range(n))).encode() for n in (1, 2, 3, 4, 5, 6, 7, 9, 12, 40, 150)]
    out += [c.encode() * n for c in "=-_*.#a" for n in (2, 3, 8, 30, 80)]
    out += [bytes([b]) for b in range(1, 32)] + [b"\x7f", b"\x00", b"(\x04)"]
    for low, high in BLOCKS:
        known = [chr(c) for c in range(low, high + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
        for n in (1, 2, 3, 5, 9):
            out.append("".join(rng.choice(known) for _ in range(n)).encode())
    for _ in range(60):
        out.append("".join(rng.choice("etaoinshrdlu ") for _ in range(rng.randint(3, 20))).encode())
    return out


def escape(b):
    return "".join(chr(c) if 33 <= c < 127 and c != 92 else "\\x%02x" % c for c in b)


def unescape(text):
    parts = text.split("\\x")
    return parts[0].encode() + b"".join(bytes([int(p[:2], 16)]) + p[2:].encode() for p in parts[1:])


def splitmix(state):
    while True:
        state = (state + 0x9e3779b97f4a7c15) & MASK
        z = state
        z = ((z ^ z >> 30) * 0xbf58476d1ce4e5b9) & MASK
        z = ((z ^ z >> 27) * 0x94d049bb133111eb) & MASK
        yield z ^ z >> 31


def line(fragments, number):
    """Line 0 is empty; line n has 1 to 10 fragments, half of them with a blank in front."""
    if number == 0:
        return b""
    rng, out = splitmix(number), b""
    for _ in range(1 + next(rng) % 10):
        r = next(rng)
        out += (b" " if r >> 40 & 1 else b"") + fragments[(r & 0xffffffff) % len(fragments)]
    return out


def fnv(numbers):
    h = 0x811c9dc5
    for b in struct.pack("<%dI" % len(numbers), *numbers):
        h = (h ^ b) * 0x01000193 & 0xffffffff
    return h


def fnv_bytes(data):
    h = 0x811c9dc5
    for b in data:
        h = (h ^ b) * 0x01000193 & 0xffffffff
    return h


# The oracles ---------------------------------------------------------------------------------------------------------

def gguf_fields(path):
    from gguf import GGUFReader
    return {k: f.contents() for k, f in GGUFReader(path).fields.items() if k.startswith("tokenizer.")}


class Bpe:
    """Hugging Face `tokenizers` on the vocabulary of a GGUF; special=True also finds control tokens."""

    def __init__(self, path):
        from tokenizers import Tokenizer, models, AddedToken, decoders
        f = gguf_fields(path)
        self.tokens, types = f["tokenizer.ggml.tokens"], f["tokenizer.ggml.token_type"]
        pre = f["tokenizer.ggml.pre"]
        self.both = []
        for special in (False, True):
            merges = [tuple(m.split(" ")) for m in f["tokenizer.ggml.merges"]]
            t = Tokenizer(models.BPE({s: i for i, s in enumerate(self.tokens)}, merges, ignore_merges=pre == "llama-bpe"))
            t.pre_tokenizer = splitter(pre, True)
            t.decoder = decoders.ByteLevel()
            t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s, k in zip(self.tokens, types)
                                  if k == 4 or (special and k in (2, 3))])
            self.both.append(t)

    def encode(self, text, special):
        return self.both[special].encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.both[1].decode(ids, skip_special_tokens=False).encode()


def splitter(pre, alphabet):
    from tokenizers import Regex, pre_tokenizers as p
    if pre == "smollm":
        return p.Sequence([p.Digits(individual_digits=True), p.ByteLevel(add_prefix_space=False, use_regex=True)])
    split = p.Split(Regex(REGEX[pre]), "isolated")
    return p.Sequence([split, p.ByteLevel(add_prefix_space=False, use_regex=False)]) if alphabet else split


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


class Spm:
    """Google's sentencepiece on a model composed from the vocabulary and scores of a GGUF (sentencepiece_model.proto)."""

    def __init__(self, path):
        import sentencepiece
        f = gguf_fields(path)
        tokens, scores, types = (f["tokenizer.ggml." + k] for k in ("tokens", "scores", "token_type"))
        self.tokens, self.types = tokens, types
        self.control = {s: i for i, (s, k) in enumerate(zip(tokens, types)) if k in (2, 3)}
        model, seen = b"", set()
        for s, score, k in zip(tokens, scores, types):
            piece = s.replace(" ", "\u2581") if k == 4 else s
            if not piece or piece in seen:  # sentencepiece refuses both; neither can come out of text
                piece = "\u2581\ufdd0%d" % len(seen)
            seen.add(piece)
            model += field(1, field(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + varint(k))
        prefix = f.get("tokenizer.ggml.add_space_prefix", True)
        trainer = b"\x18\x02" + b"\x98\x02\x01"                      # model_type BPE; byte_fallback (field 35)
        normalizer = field(1, b"identity") + b"\x18" + varint(int(prefix)) + b"\x20\x00\x28\x01"
        self.sp = sentencepiece.SentencePieceProcessor(model_proto=model + field(2, trainer) + field(3, normalizer))
        self.bare = self.sp if not prefix else sentencepiece.SentencePieceProcessor(
            model_proto=model + field(2, trainer) + field(3, field(1, b"identity") + b"\x18\x00\x20\x00\x28\x01"))

    def encode(self, text, special):
        if not special:
            return self.sp.encode(text)
        out, rest = [], text
        while rest:
            found = min(((rest.find(s), -len(s), s) for s in self.control if s in rest), default=(len(rest), 0, ""))
            out += self.sp.encode(rest[:found[0]])
            if found[2]:
                out.append(self.control[found[2]])
            rest = rest[found[0] + len(found[2]):]
        return out

    def decode(self, ids):
        out = b""
        for i in ids:
            s, k = self.tokens[i], self.types[i]
            out += bytes([int(s[3:5], 16)]) if k == 6 else s.replace("\u2581", " ").encode()
        return out.decode("utf-8", "replace").encode()


def write_golden(name, oracle, fragments):
    with open(os.path.join(HERE, name + ".golden"), "wb") as f:
        for number in range(LINES):
            text = line(fragments, number).decode("utf-8", "replace")
            ids = oracle.encode(text, bool(number & 1))
            f.write(struct.pack("<II", fnv(ids), fnv_bytes(oracle.decode(ids))))


def write_splits(pre, fragments):
    s = splitter(pre, False)
    with open(os.path.join(HERE, pre + ".splits"), "wb") as f:
        for number in range(LINES):
            text = line(fragments, number).decode("utf-8", "replace")
            pieces = [text[a:b] for _, (a, b) in s.pre_tokenize_str(text)]
            assert "".join(pieces) == text
            f.write(struct.pack("<I", fnv([len(p.encode()) for p in pieces])))


# Small vocabularies --------------------------------------------------------------------------------------------------

def write_vocabulary(path, model, pre, tokens, types, scores, merges, bos, eos, unk, prefix):
    from gguf import GGUFWriter
    w = GGUFWriter(path, "llama")
    w.add_tokenizer_model(model)
    if pre:
        w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    if scores:
        w.add_token_scores(scores)
    if merges:
        w.add_token_merges(merges)
    w.add_bos_token_id(bos)
    w.add_eos_token_id(eos)
    if unk is not None:
        w.add_unk_token_id(unk)
    w.add_add_bos_token(True)
    w.add_add_space_prefix(prefix)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def train_bpe(texts, path):
    import json
    from tokenizers import Tokenizer, models, trainers, pre_tokenizers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = splitter("llama-bpe", True)
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1200, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                     show_progress=False))
    model = json.loads(t.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    # A token that no merge makes: only a whole piece may become it.
    tokens += ["\u0120jaunty"] + ["<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>"] + ["====", "[multimodal]"]
    n = len(tokens)
    types = [1] * (n - 6) + [3] * 4 + [4] * 2
    write_vocabulary(path, "gpt2", "llama-bpe", tokens, types, None, merges, n - 6, n - 5, None, False)


def train_spm(texts, path):
    import sentencepiece
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=out, vocab_size=1600, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98, num_threads=1,
        user_defined_symbols=["[multimodal]", "===="], control_symbols=["<start_of_turn>", "<end_of_turn>"],
        minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    kinds = [6 if sp.is_byte(i) else 3 if sp.is_control(i) else 2 if sp.is_unknown(i) else 1 for i in range(len(sp))]
    tokens = [sp.id_to_piece(i) for i in range(len(sp))]
    user = {"[multimodal]", "===="}
    kinds = [4 if s in user else k for s, k in zip(tokens, kinds)]
    tokens = [s.replace("\u2581", " ") if k == 4 else s for s, k in zip(tokens, kinds)]
    write_vocabulary(path, "llama", None, tokens, kinds, [sp.get_score(i) for i in range(len(sp))], None,
                     sp.bos_id(), sp.eos_id(), sp.unk_id(), True)


def cross_check(path, fragments):
    """Compare the oracle for SmolLM2 with llama.cpp, which reads broken UTF-8 otherwise and keeps unknown bytes apart."""
    import ctypes, llama_cpp as L
    quiet = L.llama_log_callback(lambda level, text, data: None)
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    params = L.llama_model_default_params()
    params.vocab_only = True
    vocab = L.llama_model_get_vocab(L.llama_model_load_from_file(path.encode(), params))
    oracle, compared, differ = Bpe(path), 0, 0
    missing = [bytes([b]) for b in (0x04, 0x06, 0x13, 0x14, 0x16, 0x1d, 0xf1, 0xf2)]
    for number in range(LINES):
        raw = line(fragments, number)
        if raw != raw.decode("utf-8", "replace").encode() or any(m in raw for m in missing):
            continue
        out = (ctypes.c_int32 * (len(raw) + 16))()
        n = L.llama_tokenize(vocab, raw, len(raw), out, len(raw) + 16, False, bool(number & 1))
        compared += 1
        if list(out[:n]) != oracle.encode(raw.decode(), bool(number & 1)):
            differ += 1
            print("line", number, escape(raw))
    print("%d lines compared with llama.cpp, %d differ" % (compared, differ))
    return differ != 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--smollm", metavar="GGUF")
    p.add_argument("--gemma", metavar="GGUF")
    p.add_argument("--show", nargs=2, metavar=("GGUF", "LINE"))
    p.add_argument("--cross-check", metavar="GGUF")
    p.add_argument("--keep-vocabularies", action="store_true", help="do not train vocab-*.gguf again")
    a = p.parse_args()
    os.makedirs(HERE, exist_ok=True)
    fragments = make_fragments()
    if a.show:
        raw = line(fragments, int(a.show[1]))
        kind = Spm if gguf_fields(a.show[0])["tokenizer.ggml.model"] == "llama" else Bpe
        ids = kind(a.show[0]).encode(raw.decode("utf-8", "replace"), bool(int(a.show[1]) & 1))
        print(escape(raw), ids, sep="\n")
        return 0
    if a.cross_check:
        return cross_check(a.cross_check, fragments)
    with open(os.path.join(HERE, "fragments.txt"), "w") as f:
        f.writelines(escape(b) + "\n" for b in fragments)
    assert [unescape(s.rstrip("\n")) for s in open(os.path.join(HERE, "fragments.txt"))] == fragments
    for pre in ("smollm", "gpt-2", "llama-bpe", "qwen2"):
        write_splits(pre, fragments)
    bpe, spm = (os.path.join(HERE, "vocab-%s.gguf" % k) for k in ("bpe", "spm"))
    if not a.keep_vocabularies:
        texts = [line(fragments, i).decode("utf-8", "replace").replace("\0", "") for i in range(2000)]
        train_bpe(texts, bpe)
        train_spm(texts, spm)
    write_golden("vocab-bpe", Bpe(bpe), fragments)
    write_golden("vocab-spm", Spm(spm), fragments)
    if a.smollm:
        write_golden("smollm2", Bpe(a.smollm), fragments)
    if a.gemma:
        write_golden("gemma3", Spm(a.gemma), fragments)
    return 0


if __name__ == "__main__":
    sys.exit(main())

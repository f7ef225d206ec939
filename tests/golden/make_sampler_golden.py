#!/usr/bin/env python3
"""Makes tests/golden/sampler.txt: draws and log-probabilities by numpy in float64, written from docs/numerics.md.

  tests/golden/make_sampler_golden.py > tests/golden/sampler.txt

Logits come from Philox4x32-10 itself (key 99, counter = id), so that both sides can make them. Lines:
  philox C0 C1 C2 C3 K0 K1  O0 O1 O2 O3        known answers of the Random123 distribution (kat_vectors)
  case VOCAB SPREAD SEED TEMPERATURE TOP_K TOP_P MIN_P PENALTY BIAS ALLOWED  TOKEN x 48
        the context of draw p is (7 i mod VOCAB for i < p); BIAS 1: id 5 gets +3, id 11 gets -inf;
        ALLOWED 1: every third id
  logprobs VOCAB SPREAD  CHOSEN VALUE  (TOP VALUE) x 5
"""
import numpy as np

DRAWS = 48


def philox(counter, key):
    c, k = [int(v) for v in counter], [int(v) for v in key]
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & 0xFFFFFFFF, (first >> 32) ^ c[3] ^ k[1], first & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def uniform(seed, position):
    out = philox([position & 0xFFFFFFFF, position >> 32, 0, 0], [seed & 0xFFFFFFFF, seed >> 32])
    return ((out[1] << 32 | out[0]) >> 11) / 2.0**53


def logits(vocab, spread):
    unit = np.array([philox([i, 0, 0, 0], [99, 0])[0] >> 8 for i in range(vocab)], dtype=np.float64) / 2.0**24
    return (unit.astype(np.float32) - np.float32(0.5)) * np.float32(spread)


def draw(x, context, p, seed, temperature, top_k, top_p, min_p, penalty, bias, allowed):
    x = x.astype(np.float64)
    ids = np.unique(np.array(context, dtype=np.int64))
    x[ids] = np.where(x[ids] > 0, x[ids] / penalty, x[ids] * penalty)
    if bias:
        x[5] += 3.0
        x[11] = -np.inf
    if allowed:
        x[np.arange(len(x)) % 3 != 0] = -np.inf
    if temperature == 0:
        return int(np.argmax(x))
    x = x / temperature
    weight = np.exp(x - x.max())
    order = np.lexsort((np.arange(len(x)), -x))
    if top_k:
        weight[order[top_k:]] = 0
    if top_p < 1:
        sums = np.cumsum(weight[order])
        enough = int(np.argmax(sums >= top_p * weight.sum()))
        weight[order[enough + 1:]] = 0
    weight[weight < min_p] = 0
    sums = np.cumsum(weight)
    return int(np.argmax(sums > uniform(seed, p) * sums[-1]))


def main():
    known = [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0],
         [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ]
    for counter, key, out in known:
        assert philox(counter, key) == out
        print("philox", *(f"{v:08x}" for v in counter + key + out))
    # seed, temperature, top_k, top_p, min_p, penalty, bias, allowed
    cases = [
        (1, 0, 0, 1, 0, 1, 0, 0), (1, 0, 0, 1, 0, 1.3, 1, 0), (1, 0, 0, 1, 0, 1.3, 1, 1), (1, 1, 0, 1, 0, 1, 0, 0),
        (2**63 + 12345, 0.7, 0, 1, 0, 1, 0, 0), (7, 1.5, 40, 1, 0, 1, 0, 0), (8, 1.25, 0, 0.875, 0, 1, 0, 0),
        (9, 2, 0, 1, 0.0625, 1, 0, 0), (10, 0.8125, 50, 0.9375, 0.03125, 1.125, 1, 0),
        (11, 1, 20, 0.5, 0, 1.25, 1, 1), (12, 3, 1, 1, 0, 1, 0, 0), (13, 1, 0, 0.001, 0, 1, 0, 0),
        (14, 0.0625, 0, 1, 0, 1, 1, 1), (2**64 - 1, 1, 2000, 0.99, 0, 2, 0, 0),
    ]
    for vocab, spread in ((97, 8), (1000, 16), (4099, 24)):
        x = logits(vocab, spread)
        for case in cases:
            tokens = [draw(x, [7 * i % vocab for i in range(p)], p, *case) for p in range(DRAWS)]
            print("case", vocab, spread, *case, *tokens)
        exact = x.astype(np.float64)
        logprob = exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())
        order = np.lexsort((np.arange(vocab), -x))[:5]
        print("logprobs", vocab, spread, 3, f"{logprob[3]:.9f}", *(f"{i} {logprob[i]:.9f}" for i in order))


main()

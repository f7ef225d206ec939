"""Drives the real daemon through the real library: what the end-to-end tests in Python share.

A test forks clients with `spawn`: a process opens its client after the fork, as libtokenring asks.
"""
import ctypes
import errno
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

SOURCE = Path(os.environ["TOKENRING_SOURCE_ROOT"])
BUILD = Path(os.environ["TOKENRING_BUILD_ROOT"])
BACKEND = os.environ.get("TOKENRING_TEST_BACKEND", "cpu")

GENERATE, SCORE, EMBED, ECHO = 1, 2, 3, 4
EVENT_ECHO, EVENT_TOKENS, EVENT_FINAL, EVENT_REFUSED = 1, 2, 3, 4
STOP, LENGTH, CANCELLED, DEADLINE, SHUTDOWN, DONE = 1, 2, 3, 4, 7, 8

u8, u16, u32, u64, i32, f32 = (ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32,
                               ctypes.c_float)
pu32 = ctypes.POINTER(u32)


class Options(ctypes.Structure):
    _fields_ = [("size", u32), ("spin_ns", u32), ("timeout_ms", u32), ("flags", u32)]


class Sampling(ctypes.Structure):
    _fields_ = [("size", u32), ("top_k", u32), ("seed", u64), ("temperature", f32), ("top_p", f32), ("min_p", f32),
                ("penalty", f32), ("ignore_eos", u32), ("reserved", u32)]


class Extra(ctypes.Structure):
    _fields_ = [("size", u32), ("n_tokens", u32), ("tokens", pu32), ("sampling", ctypes.POINTER(Sampling)),
                ("stop_ids", pu32), ("bias", ctypes.c_void_p), ("allowed", pu32), ("candidates", pu32),
                ("continuation_lengths", pu32), ("continuations", pu32), ("n_stop_ids", u32), ("n_bias", u32),
                ("n_allowed", u32), ("n_candidates", u32), ("n_continuations", u32), ("n_logprobs", u32),
                ("logprobs", u32), ("session", u32), ("tenant", u32), ("adapter", u32), ("max_new", u32),
                ("pool", u32), ("n_embedding", u32), ("reserved", u32)]


class Request(ctypes.Structure):
    _fields_ = [("size", u32), ("op", u8), ("n_tokens", u8), ("priority", u8), ("profile", u8),
                ("extra", ctypes.POINTER(Extra)), ("deadline_ns", u64), ("reserved", u32), ("model", u16),
                ("max_new", u16), ("tokens", u32 * 8)]


class Event(ctypes.Structure):
    _fields_ = [("size", u32), ("kind", u8), ("n_tokens", u8), ("finish", u8), ("reserved", u8), ("id", u64),
                ("first", u32), ("status", i32), ("reason", u32), ("since", u32), ("tokens", u32 * 8),
                ("scored", ctypes.c_void_p), ("n_scored", u32), ("scored_stride", u32), ("predicted_ns", u64),
                ("retry_ns", u64), ("asked", u32), ("limit", u32), ("embedding", ctypes.c_void_p), ("n_embedding", u32),
                ("reserved_2", u32)]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def array(values):
    return (u32 * max(1, len(values)))(*values)


class Answer:
    """What came back for one request: comparable bit by bit."""

    def __init__(self):
        self.tokens, self.records, self.finish, self.status, self.reason, self.refused, self.ended = [], b"", 0, 0, 0, False, False

    def take(self, event):
        assert not self.ended, "a request ends once"
        assert event.first == len(self.tokens) or not event.n_tokens, "tokens arrive in order, once"
        self.tokens += event.tokens[:event.n_tokens] if event.kind != EVENT_REFUSED else []
        if event.n_scored:
            if event.kind != EVENT_TOKENS:  # those of the whole answer, however it was cut into events
                self.records = b""
            self.records += ctypes.string_at(event.scored, 8 * event.n_scored)
        if event.n_embedding:
            self.records = ctypes.string_at(event.embedding, 4 * event.n_embedding)
        if event.kind != EVENT_TOKENS:
            self.ended, self.finish, self.status, self.reason = True, event.finish, event.status, event.reason
            self.refused = event.kind == EVENT_REFUSED

    def bits(self):
        return (tuple(self.tokens), self.records, self.finish, self.status)


class Client:
    def __init__(self, path, timeout_ms=0):
        self.lib = ctypes.CDLL(str(BUILD / "libclient" / "libtokenring.so.0"), use_errno=True)
        self.handle = ctypes.c_void_p()
        self.answers = {}
        self.lib.tr_wait.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int64]
        self.lib.tr_cancel.argtypes = [ctypes.c_void_p, u64]
        self.lib.tr_submit.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.tr_poll.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
        for call in ["close", "end_reason", "arm", "fd", "flush", "reconnect"]:
            self.lib[f"tr_{call}"].argtypes = [ctypes.c_void_p]
        self.lib.tr_status.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.events = (Event * 64)()
        options = Options(size=ctypes.sizeof(Options), timeout_ms=timeout_ms)
        self.check(self.lib.tr_open(ctypes.byref(self.handle), str(path).encode(), ctypes.byref(options)))

    @staticmethod
    def check(result):
        """What a call returned, if that is no error."""
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result

    def close(self):
        self.lib.tr_close(self.handle)

    def reconnect(self):
        """Requests of the old channel have no answer: an event that names one is an error of ours."""
        self.answers = {}
        self.check(self.lib.tr_reconnect(self.handle))

    def arm(self):
        return self.check(self.lib.tr_arm(self.handle))

    def fd(self):
        return self.check(self.lib.tr_fd(self.handle))

    def end_reason(self):
        return self.lib.tr_end_reason(self.handle)

    def status(self):
        text, n = ctypes.create_string_buffer(1 << 16), ctypes.c_size_t()
        self.check(self.lib.tr_status(self.handle, text, len(text), ctypes.byref(n)))
        return json.loads(text.value)

    def submit(self, tokens, max_new=1, op=GENERATE, priority=0, deadline_ms=None, candidates=(), continuations=(),
               logprobs=None, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, penalty=1.0, seed=0, ignore_eos=1,
               pool=0, room=1024):
        sampling = Sampling(ctypes.sizeof(Sampling), top_k, seed, temperature, top_p, min_p, penalty, ignore_eos)
        flat = [token for one in continuations for token in one]
        extra = Extra(size=ctypes.sizeof(Extra), n_tokens=len(tokens), tokens=array(tokens),
                      sampling=None if op == EMBED else ctypes.pointer(sampling), n_candidates=len(candidates), candidates=array(candidates),
                      n_continuations=len(continuations), continuations=array(flat),
                      continuation_lengths=array([len(one) for one in continuations]),
                      max_new=max_new, logprobs=logprobs is not None, n_logprobs=logprobs or 0,
                      pool=pool, n_embedding=room if op == EMBED else 0)
        request = Request(size=ctypes.sizeof(Request), op=op, priority=priority,
                          deadline_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC) + int(deadline_ms * 1e6) if deadline_ms else 0)
        if op == ECHO:
            request.n_tokens, request.tokens[:len(tokens)] = len(tokens), tokens
        else:
            request.extra = ctypes.pointer(extra)
        number = u64()
        self.check(self.lib.tr_submit(self.handle, ctypes.byref(request), ctypes.byref(number)))
        self.answers[number.value] = Answer()
        return number.value

    def wait(self, timeout_s=-1.0):
        """One tr_wait; returns how many events came."""
        self.events[0].size = ctypes.sizeof(Event)
        return self.take(self.lib.tr_wait(self.handle, ctypes.byref(self.events), len(self.events), int(timeout_s * 1e9)))

    def poll(self):
        self.events[0].size = ctypes.sizeof(Event)
        return self.take(self.lib.tr_poll(self.handle, ctypes.byref(self.events), len(self.events)))

    def take(self, n):
        for event in self.events[:self.check(n)]:
            self.answers[event.id].take(event)
        return n

    def finish(self, numbers, timeout_s=240):
        """Waits for the ends of these requests; their answers."""
        end = time.monotonic() + timeout_s
        while not all(self.answers[number].ended for number in numbers):
            assert time.monotonic() < end, "an answer did not come in time"
            try:
                self.wait(1)
            except OSError as error:
                # On a busy machine the daemon may wait for a CPU for longer than a second.
                if error.errno != errno.EHOSTDOWN:
                    raise
                time.sleep(0.05)
        return [self.answers.pop(number) for number in numbers]

    def run(self, **request):
        return self.finish([self.submit(**request)])[0]


class Daemon:
    """A tokenringd of its own, with a socket in a folder of its own."""

    def __init__(self, *flags, model_file=None, preload=None, socket=None, context=512, rows=32, backend=BACKEND,
                 wrapper=()):
        self.folder = tempfile.TemporaryDirectory(prefix="tokenring-e2e-")
        self.socket = Path(socket or Path(self.folder.name) / "socket")
        self.log = open(Path(self.folder.name) / "log", "w+b")
        environment = dict(os.environ, LD_PRELOAD=str(preload)) if preload else None
        self.process = subprocess.Popen(
            [*wrapper, BUILD / "daemon" / "tokenringd", "--model", model_file or model(), "--socket", self.socket, "--backend", backend,
             "--log-target", "stderr", "--max-context-tokens", str(context), "--max-batch-tokens", str(rows), *flags],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if failure[0]:
            print(self.output(), file=sys.stderr)
        self.log.close()
        self.folder.cleanup()

    def output(self):
        self.log.flush()
        return Path(self.log.name).read_text(errors="replace")

    def ready(self, timeout_s=60):
        self.await_line(" ready: ", timeout_s)
        return self

    def await_line(self, text, timeout_s=60):
        end = time.monotonic() + timeout_s
        while text not in self.output():
            assert self.process.poll() is None, f"the daemon ended: {self.output()}"
            assert time.monotonic() < end, f"the daemon does not say '{text}': {self.output()}"
            time.sleep(0.02)

    def signal(self, number):
        """After SIGSTOP: returns when every thread has stopped, which the sender of a signal need not wait for."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            eventually("every thread stops", lambda: all(
                stat.read_text().rsplit(")", 1)[1].split()[0] in "TZ"
                for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat")))

    def resources(self):
        """Open files, mappings and huge pages of the daemon: what must come back. (How many pages are free depends on others.)"""
        proc = Path(f"/proc/{self.process.pid}")
        huge = sum(int(line.split()[1]) for line in open(proc / "smaps_rollup") if "_Hugetlb:" in line)
        mapped = sum("memfd:" in line for line in open(proc / "maps"))
        return {"files": len(os.listdir(proc / "fd")), "channel mappings": mapped, "KiB in huge pages": huge}


def model():
    path = Path(os.environ.get("TOKENRING_TEST_MODELS", "/nonexistent")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.exists():
        skip("no SmolLM2-135M-Instruct.Q4_1.gguf in TOKENRING_TEST_MODELS; tools/fetch-model fetches it")
    return path


def spawn(function, *arguments):
    """Runs the function in a child process; returns its pid. The child's exit code tells whether it succeeded."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        random.seed(os.getpid())
        function(*arguments)
        code = 0
    except BaseException:  # the child must never return into the parent's code
        traceback.print_exc()
    finally:
        os._exit(code)


def join(pids):
    """Waits for children; all must have succeeded."""
    failed = [pid for pid in pids if os.waitpid(pid, 0)[1] != 0]
    assert not failed, f"{len(failed)} of {len(pids)} clients failed"


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def eventually(what, condition, timeout_s=5.0):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def percentiles(values, wanted):
    """The value at each percentile wanted: the smallest one that so many are not above. 100: the maximum."""
    values = sorted(values)
    return [values[max(0, -(-len(values) * share // 100) - 1)] for share in wanted]


def requests(n, vocab=49152, max_new=12):
    """n requests of many lengths and samplers, the same in every process."""
    draw = random.Random(20)
    made = []
    for i in range(n):
        request = {"tokens": [draw.randrange(vocab) for _ in range(draw.choice([1, 3, 8, 9, 31, 40]))],
                   "max_new": 1 + draw.randrange(max_new), "priority": i % 8}
        if i % 3:
            request.update(temperature=0.7 + 0.1 * (i % 5), seed=draw.randrange(2**64), top_k=[0, 40][i % 2],
                           top_p=[1.0, 0.9][i // 2 % 2], penalty=[1.0, 1.2][i // 4 % 2])
        if i % 2:
            request["logprobs"] = i % 5
        if i % 11 == 5:
            request = {"tokens": request["tokens"], "op": SCORE, "max_new": 0,
                       "continuations": [[draw.randrange(vocab) for _ in range(1 + k)] for k in range(4)]}
        if i % 11 == 7:
            request = {"tokens": request["tokens"], "op": SCORE, "max_new": 0, "candidates": [5, 0, 49151, 77]}
        if i % 11 == 9:
            request = {"tokens": request["tokens"], "op": EMBED, "max_new": 0, "pool": i // 11 % 2}
        made.append(request)
    return made

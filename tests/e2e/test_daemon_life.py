#!/usr/bin/env python3
"""How the daemon starts, refuses to start, reloads and stops."""
import os
import signal
import struct
import tempfile
import time
from pathlib import Path

from tokenring_e2e import Client, Daemon, DEADLINE, ECHO, LENGTH, SHUTDOWN, eventually, model

EIO, EINVAL, ECONNRESET, ESHUTDOWN = 5, 22, 104, 108
MODEL_FAILED = 21  # of enum wire_reason


def expect_refusal(model_file, *words, flags=()):
    with Daemon(*flags, model_file=model_file) as daemon:
        code = daemon.process.wait(timeout=20)
        errors = [line for line in daemon.output().splitlines() if " error " in line]
        assert code == 1, (code, daemon.output())
        assert len(errors) == 1, daemon.output()
        for word in words:
            assert str(word) in errors[0], f"'{word}' is not in: {errors[0]}"
        assert not daemon.socket.exists()


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def test_bad_models():
    with tempfile.TemporaryDirectory() as folder:
        bad = Path(folder) / "bad.gguf"
        expect_refusal(Path(folder) / "missing.gguf", "missing.gguf", "No such file")
        expect_refusal(folder, folder, "directory")
        bad.write_bytes(b"")
        expect_refusal(bad, "empty")
        bad.write_bytes(bytes(1 << 20))
        expect_refusal(bad, "bad.gguf")
        bad.write_bytes(model().read_bytes()[:1 << 20])
        expect_refusal(bad, "bad.gguf")
        bad.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_text("general.architecture") +
                        struct.pack("<I", 8) + gguf_text("perceptron"))
        expect_refusal(bad, "perceptron", "llama")


def test_memory_is_refused_with_the_numbers():
    expect_refusal(model(), "MiB of weights", "MiB of KV cache", "memory_limit is 64.0 MiB", flags=["--memory-limit", "64M"])
    expect_refusal(model(), "max_queue", flags=["--memory-limit", "2G", "--max-queue", "1048576"])


def test_second_daemon_and_stale_socket():
    with Daemon() as first:
        first.ready()
        with Daemon(socket=first.socket) as second:
            assert second.process.wait(timeout=20) == 1
            assert str(first.socket) in second.output()
        assert Client(first.socket).status()["model"]["state"] == "ready"
        first.process.kill()
        first.process.wait()
        assert first.socket.exists()
        with Daemon(socket=first.socket) as third:
            third.ready()
            Client(third.socket).close()


def test_before_the_model_is_ready():
    """The warm-up of a slow backend with large steps takes seconds: echo answers, a request waits or misses its
    deadline, and a stop does not wait for the end of the loading."""
    with Daemon("--threads", "1", "--max-step-us", "60000000", backend="ref-int8", rows=128) as daemon:
        eventually("the socket listens", daemon.socket.exists)
        client = Client(daemon.socket)
        assert client.run(tokens=[4, 5, 6], op=ECHO).tokens == [4, 5, 6]
        late = client.run(tokens=[1, 2], max_new=4, deadline_ms=100)
        assert late.refused and late.status == -62, late.bits()
        assert client.status()["model"]["state"] in ("reading", "loading", "warming")
        held = client.submit(tokens=[1, 2], max_new=4)
        client.wait(0.1)
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        held = client.finish([held])[0]
        assert (held.refused or held.finish == SHUTDOWN) and not held.tokens, held.bits()
        assert daemon.process.wait(timeout=30) == 0
        print(f"stopped in {time.monotonic() - began:.2f} s")


def status_error(client):
    try:
        client.status()
        return 0
    except OSError as error:
        return error.errno


def watch_a_loading_fail(damaged):
    """What a client that is there in time hears of it: the answer to a request, and why its channel ended."""
    with Daemon(model_file=damaged) as daemon:
        eventually("the socket listens", daemon.socket.exists)
        try:
            client = Client(daemon.socket)
            held = client.submit(tokens=[1, 2], max_new=4)
        except OSError:
            return None
        answer = client.finish([held])[0]
        eventually("the channel ends", lambda: status_error(client) == ECONNRESET)
        return answer, client.end_reason()


def test_a_loading_that_fails():
    """Scales of the last tensor are not numbers: found out when nearly all is loaded."""
    with tempfile.TemporaryDirectory() as folder:
        damaged = Path(folder) / "damaged.gguf"
        good = model().read_bytes()
        damaged.write_bytes(good[:-4000] + b"\xff" * 3000 + good[-1000:])
        expect_refusal(damaged, "not a finite number")
        answer, reason = next(filter(None, (watch_a_loading_fail(damaged) for _ in range(5))))
        assert answer.refused and answer.status == -EIO and answer.reason == MODEL_FAILED, answer.bits()
        assert reason == MODEL_FAILED, reason


def test_drain():
    with Daemon("--drain-ms", "1000") as daemon:
        daemon.ready()
        client = Client(daemon.socket)
        short = client.submit(tokens=[1, 2, 3], max_new=4)
        endless = client.submit(tokens=[1, 2, 3], max_new=500)
        client.wait(0.1)
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        time.sleep(0.05)
        late = client.submit(tokens=[1], max_new=1)
        short, endless, late = client.finish([short, endless, late])
        assert (short.finish, len(short.tokens)) == (LENGTH, 4)
        assert endless.finish == SHUTDOWN and len(endless.tokens) < 500
        assert late.refused and late.status == -ESHUTDOWN
        assert daemon.process.wait(timeout=10) == 0
        took = time.monotonic() - began
        assert 0.9 < took < 3, took
        assert not daemon.socket.exists()
        assert " stopped: " in daemon.output()


def test_reload():
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenring.conf"
        file.write_text("drain_ms = 60000\n")
        with Daemon("--config", file) as daemon:
            daemon.ready()
            file.write_text("drain_ms = 0\nmax_clients = 7\nmax_clients_per_uid = 1\n")
            daemon.signal(signal.SIGHUP)
            daemon.await_line("2 options changed; restart to change max_clients")
            file.write_text("drain_ms = soon\n")
            daemon.signal(signal.SIGHUP)
            daemon.await_line("reload-failed")
            client = Client(daemon.socket)
            assert not connects(daemon.socket), "the new limit is in force"
            endless = client.submit(tokens=[1, 2, 3], max_new=500)
            client.wait(0.1)
            began = time.monotonic()
            daemon.signal(signal.SIGTERM)
            assert client.finish([endless])[0].finish == SHUTDOWN
            assert daemon.process.wait(timeout=10) == 0
            assert time.monotonic() - began < 2


def connects(path):
    try:
        Client(path).close()
    except OSError:
        return False
    return True


def test_without_standard_streams():
    """Log lines must not go to whatever would get the numbers of streams that are closed."""
    with Daemon(wrapper=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]) as daemon:
        eventually("the daemon answers", lambda: connects(daemon.socket), 20)
        assert [os.readlink(f"/proc/{daemon.process.pid}/fd/{n}") for n in range(3)] == ["/"] * 3
        client = Client(daemon.socket)
        assert client.run(tokens=[1, 2, 3], max_new=4).finish == LENGTH
        client.close()


def test_deadline_of_a_running_request():
    with Daemon() as daemon:
        daemon.ready()
        client = Client(daemon.socket)
        answer = client.run(tokens=[1, 2, 3], max_new=500, deadline_ms=300)
        assert answer.finish == DEADLINE and 0 < len(answer.tokens) < 500, answer.bits()
        client.close()


for name, test in list(globals().items()):
    if name.startswith("test_"):
        print(name, flush=True)
        test()

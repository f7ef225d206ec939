#!/usr/bin/env python3
"""Processes and threads that stop, fork or end at the wrong moment: the daemon, clients, and the daemon's keeper."""
import errno
import os
import signal
import threading
import time
from pathlib import Path

from tokenring_e2e import Client, Daemon, ECHO, LENGTH, eventually, join, kill, requests, spawn

STALL = 5  # of enum tr_finish


def error_of(call):
    try:
        call()
        return 0
    except OSError as error:
        return error.errno


def until_alive(client):
    eventually("the heartbeat is fresh again", lambda: error_of(client.poll) == 0)


# ---- the daemon ----

def test_stopped_daemon():
    """After a second every call that waits says so; after it goes on nothing is lost, and nothing comes twice."""
    with Daemon() as daemon:
        daemon.ready()
        client, known = Client(daemon.socket), requests(6)
        alone = [client.run(**request).bits() for request in known]
        for _ in range(2):
            numbers = [client.submit(**request) for request in known[:3]]
            daemon.signal(signal.SIGSTOP)
            began = time.monotonic()
            eventually("a wait says that it hangs", lambda: error_of(lambda: client.wait(5)) == errno.EHOSTDOWN, 20)
            assert time.monotonic() - began > 0.85, "the heartbeat is at most 100 ms old when the daemon stops"
            for call in [client.poll, client.arm, client.status, client.wait]:
                assert error_of(call) == errno.EHOSTDOWN, call
            numbers += [client.submit(**request) for request in known[3:]]  # the ring takes them all the same
            daemon.signal(signal.SIGCONT)
            until_alive(client)
            assert [answer.bits() for answer in client.finish(numbers)] == alone
        assert error_of(lambda: Client(daemon.socket, timeout_ms=5000).close()) == 0
        daemon.signal(signal.SIGSTOP)
        assert error_of(lambda: Client(daemon.socket, timeout_ms=200)) == errno.ETIMEDOUT
        daemon.signal(signal.SIGCONT)
        client.close()


def keepers(daemon):
    """The processes that share the daemon's memory."""
    return [int(pid) for pid in Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split()]


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_killed_keeper():
    with Daemon() as daemon:
        daemon.ready()
        for n in range(1, 4):
            (old,) = keepers(daemon)
            os.kill(old, signal.SIGKILL)
            eventually("another keeper runs", lambda: old not in keepers(daemon) and len(keepers(daemon)) == 1)
            eventually("and that is said", lambda: daemon.output().count("another one runs") == n)
        (keeper,) = keepers(daemon)
        daemon.signal(signal.SIGTERM)
        assert daemon.process.wait(timeout=20) == 0
        assert not lives(keeper)


def test_stopped_keeper():
    """One that stayed stopped would hold the dead daemon's memory for ever."""
    for stopped_too in [False, True]:
        with Daemon() as daemon:
            daemon.ready()
            (keeper,) = keepers(daemon)
            os.kill(keeper, signal.SIGSTOP)
            if stopped_too:
                daemon.signal(signal.SIGSTOP)
            eventually("it stops", lambda: "T (stopped)" in Path(f"/proc/{keeper}/status").read_text())
            daemon.signal(signal.SIGKILL)
            daemon.process.wait()
            eventually("the keeper ends", lambda: not lives(keeper))


def test_killed_together():
    """As a service manager does with a control group: clients learn of it all the same."""
    with Daemon() as daemon:
        daemon.ready()
        client = Client(daemon.socket)
        client.submit([1, 2, 3], max_new=400)
        for pid in [*keepers(daemon), daemon.process.pid]:
            os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        while error_of(client.wait) != errno.ECONNRESET:
            pass
        print(f"{1000 * (time.monotonic() - began):.1f} ms until the error when the keeper is killed too")


# ---- clients ----

def stream_and_stop(socket, known, alone, pipe):
    """Is stopped while its streams run; then takes note of their end, and goes on."""
    client = Client(socket)
    numbers = [client.submit(tokens=[1, 2, 3], max_new=300) for _ in range(3)]
    client.wait()
    os.write(pipe, b"s")
    os.kill(os.getpid(), signal.SIGSTOP)
    until_alive(client)
    whole = client.run(tokens=[1, 2, 3], max_new=300)
    for answer in client.finish(numbers):
        assert answer.finish == STALL and answer.status == -errno.ENOBUFS, answer.bits()
        assert 0 < len(answer.tokens) < 300 and answer.tokens == whole.tokens[:len(answer.tokens)]
    assert [client.run(**request).bits() for request in known] == alone
    client.close()


def test_stopped_client():
    """Its streams end after client_stall_ms, nobody else notices, and it goes on when it may."""
    with Daemon("--client-stall-ms", "300", "--cq-slots", "16", "--max-inflight", "8", rows=64) as daemon:
        daemon.ready()
        client, known = Client(daemon.socket), requests(4)
        alone = [client.run(**request).bits() for request in known]
        reader, writer = os.pipe()
        victim = spawn(stream_and_stop, daemon.socket, known, alone, writer)
        assert os.read(reader, 1) == b"s"
        eventually("it stops", lambda: "T (stopped)" in Path(f"/proc/{victim}/status").read_text())
        assert [client.run(**request).bits() for request in known] == alone
        eventually("its streams end", lambda: client.status()["requests"]["in_flight"] == 0, 20)
        assert client.status()["kv"]["used"] == 0 and client.status()["channels"]["open"] == 2
        assert [client.run(**request).bits() for request in known] == alone
        os.kill(victim, signal.SIGCONT)
        join([victim])
        client.close()


def child_of(client, numbers):
    """In a forked child nothing works but closing, which takes nothing from the parent."""
    for call in [client.poll, client.wait, client.arm, client.fd, client.status, lambda: client.submit([1], op=ECHO)]:
        assert error_of(call) == errno.ESTALE, call
    assert error_of(client.reconnect) == errno.ESTALE
    client.close()


def test_fork():
    with Daemon() as daemon:
        daemon.ready()
        client, known = Client(daemon.socket), requests(4)
        alone = [client.run(**request).bits() for request in known]
        numbers = [client.submit(**request) for request in known]
        join([spawn(child_of, client, numbers) for _ in range(3)])
        assert [answer.bits() for answer in client.finish(numbers)] == alone
        client.close()


def open_and_fork(socket, pipe):
    client = Client(socket)
    client.submit([1, 2, 3], max_new=400)
    os.write(pipe, spawn(time.sleep, 60).to_bytes(4, "little"))
    client.finish(list(client.answers))


def test_fork_that_outlives_its_parent():
    """The child holds the socket open: no hang-up comes, but the process that connected is gone."""
    with Daemon() as daemon:
        daemon.ready()
        client, (reader, writer) = Client(daemon.socket), os.pipe()
        parent = spawn(open_and_fork, daemon.socket, writer)
        child = int.from_bytes(os.read(reader, 4), "little")
        eventually("both have channels", lambda: client.status()["channels"]["open"] == 2)
        kill(parent)
        eventually("the channel ends", lambda: client.status()["channels"]["open"] == 1)
        eventually("its request too", lambda: client.status()["kv"]["used"] == 0)
        assert lives(child)
        os.kill(child, signal.SIGKILL)
        client.close()


def test_thread_that_ends():
    """A channel is its process's: what one thread submitted and waited for another one may collect."""
    with Daemon() as daemon:
        daemon.ready()
        client, known, numbers = Client(daemon.socket), requests(6), []
        alone = [client.run(**request).bits() for request in known]

        def begin():
            numbers.extend(client.submit(**request) for request in known)
            client.wait()

        for _ in range(2):
            numbers.clear()
            thread = threading.Thread(target=begin)
            thread.start()
            thread.join()
            assert [answer.bits() for answer in client.finish(numbers)] == alone
        assert client.run(tokens=[1, 2], max_new=3).finish == LENGTH
        client.close()


for name, test in list(globals().items()):
    if name.startswith("test_"):
        print(name, flush=True)
        test()

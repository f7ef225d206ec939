#!/usr/bin/env python3
"""What is said when descriptors, huge pages, disks and folders run out, and that it goes on when they are back."""
import errno
import itertools
import mmap
import os
import resource
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tokenring_e2e import BUILD, Client, Daemon, ECHO, eventually, join, model, spawn

NO_DESCRIPTORS = "the daemon has no descriptor left"


def expect_error(number, call):
    try:
        call()
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError(f"succeeded instead of failing with {os.strerror(number)}")


def leave_descriptors(pid, left):
    """Lets a process open so many more; returns the limits from before. A limit is the first number that is too large."""
    folder = Path(f"/proc/{pid}/fd")
    used = {int(name) for name in os.listdir(folder) if os.path.lexists(folder / name)}  # without the listing's own
    unused = itertools.filterfalse(used.__contains__, itertools.count())
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (next(itertools.islice(unused, left, None)), limits[1]))
    return limits


def cpu_seconds(daemon):
    fields = Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def be_served(socket):
    client = Client(socket)
    assert client.run(tokens=[4], op=ECHO).tokens == [4]
    client.close()


def files_and_mappings(daemon):
    """Not the huge pages, which run out here."""
    return {name: n for name, n in daemon.resources().items() if name != "KiB in huge pages"}


def test_daemon_without_descriptors():
    """Each number of descriptors left makes another call fail: accept4, SO_PEERPIDFD, memfd_create."""
    with Daemon() as daemon:
        daemon.ready()
        pid, old = daemon.process.pid, Client(daemon.socket)
        before, limits = files_and_mappings(daemon), resource.prlimit(pid, resource.RLIMIT_NOFILE)
        for left in range(3):
            leave_descriptors(pid, left)
            for _ in range(3):
                expect_error(errno.ENFILE, lambda: Client(daemon.socket))
            assert old.run(tokens=[1, 2, 3], op=ECHO).tokens == [1, 2, 3]
        used = cpu_seconds(daemon)
        time.sleep(1)
        used = cpu_seconds(daemon) - used
        assert used < 0.5, f"a daemon without descriptors used {used} s of a second"
        assert daemon.output().count(NO_DESCRIPTORS) == 9, daemon.output()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        join([spawn(be_served, daemon.socket)])
        eventually("descriptors return", lambda: files_and_mappings(daemon) == before)
        old.close()


def test_start_without_descriptors():
    """Fewer than it needs: one sentence; and not many more than that are needed."""
    for n in range(3, 64):
        with Daemon(wrapper=["prlimit", f"--nofile={n}:{n}"]) as daemon:
            eventually("it ends or serves", lambda: daemon.process.poll() is not None or " ready: " in daemon.output(), 60)
            if daemon.process.returncode is None:
                assert n > 10
                return
            if "error while loading shared libraries" in daemon.output():
                continue
            errors = [line for line in daemon.output().splitlines() if " error " in line]
            assert daemon.process.returncode == 1 and len(errors) == 1, (n, daemon.output())
            assert os.strerror(errno.EMFILE) in errors[0], (n, errors)
    raise AssertionError("it never starts")


def connect_with(socket, left):
    """A client process that may open only so many descriptors more."""
    be_served(socket)
    limits = leave_descriptors(os.getpid(), left)
    expect_error(errno.EMFILE, lambda: Client(socket))
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    be_served(socket)


def test_client_without_descriptors():
    """No socket; a socket, but no place for the memory that the daemon offers."""
    with Daemon() as daemon:
        daemon.ready()
        join([spawn(connect_with, daemon.socket, left) for left in range(2)])


def pool(name):
    return next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith(name))


def unclaimed():
    return pool("HugePages_Free") - pool("HugePages_Rsvd")


class AllHugePages:
    """Holds the free pages of the pool, so that there are none."""

    def __enter__(self):
        MAP_HUGETLB = 0x40000
        # Those of the last daemon come back a moment after its end; others on this machine may keep theirs.
        end = time.monotonic() + 5
        while unclaimed() < pool("HugePages_Total") and time.monotonic() < end:
            time.sleep(0.02)
        free = unclaimed()
        self.memory = mmap.mmap(-1, free << 21, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB) if free else None

    def __exit__(self, *failure):
        if self.memory:
            self.memory.close()


def test_no_huge_pages_left():
    with AllHugePages():
        with Daemon("--huge-pages", "require") as daemon:
            assert daemon.process.wait(timeout=20) == 1
            daemon.await_line("huge_pages = require, and there are too few for weights")
        with Daemon("--huge-pages", "prefer") as daemon:
            daemon.ready()
            be_served(daemon.socket)
            daemon.await_line("has ordinary pages: too few huge pages are free; raise vm.nr_hugepages")


def refused_start(*words, **options):
    """The one line in which a daemon says why it does not start."""
    with Daemon(**options) as daemon:
        assert daemon.process.wait(timeout=20) == 1
        lines = daemon.output().splitlines()
        assert len(lines) == 1, lines
        for word in words:
            assert str(word) in lines[0], (word, lines)


def test_little_stack():
    with Daemon(wrapper=["prlimit", "--stack=65536:"]) as daemon:  # the soft limit
        daemon.ready()
        be_served(daemon.socket)
    as_root = ["setpriv", "--bounding-set", "-sys_resource"] if os.geteuid() == 0 else []
    with Daemon(wrapper=["prlimit", "--stack=65536", *as_root]) as daemon:
        assert daemon.process.wait(timeout=20) == 1
        assert "raise LimitSTACK" in daemon.output(), daemon.output()


def test_folders():
    with tempfile.TemporaryDirectory() as folder:
        refused_start("cannot create", f"{folder}/a/b", "make its folder", socket=f"{folder}/a/b/socket")
        refused_start("cannot create", "/proc/socket", socket="/proc/socket")
        Path(folder, "file").write_text("mine")
        refused_start("exists and is no socket", socket=f"{folder}/file")
        refused_start("Not a directory", socket=f"{folder}/file/socket")
        assert Path(folder, "file").read_text() == "mine"
        with Daemon(socket=f"{folder}/new/socket") as daemon:  # one folder is made
            daemon.ready()
            Client(daemon.socket).close()


def as_nobody(script, *arguments):
    """Runs a shell script as a user who may write nowhere, with a file system of its own where the test may mount."""
    return ["unshare", "--mount", "sh", "-ec", script, "sh", *map(str, arguments)]


def run_start(script, environment, *flags):
    command = [BUILD / "daemon" / "tokenringd", "--model", model(), "--log-target", "stderr", *flags]
    done = subprocess.run(as_nobody(script, *command), env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_default_socket_and_full_disk():
    """Whoever may not write /run is told to set XDG_RUNTIME_DIR or --socket; a full file system says that it is."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        print("test_default_socket_and_full_disk cannot run: no mount namespace may be made here")
        return
    bare = {"PATH": os.environ["PATH"]}
    read_only = "mount -t tmpfs -o ro none /run; exec \"$@\""
    code, text = run_start(read_only, bare)
    assert code == 1 and "cannot write /run/tokenring and XDG_RUNTIME_DIR is not set; give --socket PATH" in text, text
    code, text = run_start(read_only, {**bare, "XDG_RUNTIME_DIR": "/run/user/none"})
    assert code == 1 and "cannot create /run/user/none/tokenring/socket.lock: No such file or directory" in text, text
    full = "mount -t tmpfs -o nr_inodes=1 none /run; exec \"$@\""
    code, text = run_start(full, bare, "--socket", "/run/socket")
    assert code == 1 and "cannot create /run/socket.lock: No space left on device" in text, text


def test_log_that_takes_nothing():
    """A full disk, and a pipe that nobody reads: the daemon serves all the same, and notes what clients do."""
    reader, writer = os.pipe()
    for target in ["/dev/full", f"/proc/{os.getpid()}/fd/{writer}"]:
        with Daemon(wrapper=["sh", "-c", f'exec "$@" 2>{target}', "sh"]) as daemon:
            os.set_blocking(writer, False)
            try:
                while os.write(writer, bytes(4096)):
                    pass
            except BlockingIOError:
                os.set_blocking(writer, True)
            eventually("the socket listens", daemon.socket.exists, 20)
            for _ in range(30):
                client = Client(daemon.socket)
                assert client.run(tokens=[1, 2], max_new=1).ended
                client.close()
            daemon.signal(signal.SIGHUP)  # main's thread says so, or fails to
            daemon.signal(signal.SIGTERM)
            assert daemon.process.wait(timeout=20) == 0


for name, test in list(globals().items()):
    if name.startswith("test_"):
        print(name, flush=True)
        test()

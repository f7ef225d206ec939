"""A virtual machine with two NUMA nodes: Debian's kernel under QEMU's emulation, which needs no privilege and no KVM.

  node 0: CPUs 0 and 1, 1 GiB, 8 huge pages of 2 MiB
  node 1: CPUs 2 and 3, 3 GiB, 64 of 2 MiB and one of 1 GiB, an NVMe drive (8 MB/s, to see threads
  that read) and a network card
The kernel's package is downloaded and unpacked, never installed.  Times in such a machine mean nothing.
"""
import gzip
import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULES = ["nvme", "ext4", "crc32c_generic"]
COMMAND_LINE = ("console=ttyS0 panic=-1 quiet nokaslr mitigations=off random.trust_cpu=1 "
                "hugepagesz=1G hugepages=1:1 hugepagesz=2M hugepages=0:8,1:64")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def find_tool(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        skip(f"{name} is not installed; tools/install-packages test installs what tools/packages lists")
    return path


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options).stdout


def decompressed(image):
    """The ELF file inside a bzImage: QEMU starts that directly (PVH), in a third of the time."""
    readers = {b"\xfd7zXZ\0": lambda data: lzma.LZMADecompressor().decompress(data),
               b"\x28\xb5\x2f\xfd": lambda data: subprocess.run(["zstd", "-dc"], input=data, stdout=subprocess.PIPE,
                                                                stderr=subprocess.DEVNULL, check=False).stdout,
               b"\x1f\x8b\x08": gzip.decompress}
    for magic, read in readers.items():
        for found in re.finditer(re.escape(magic), image):
            try:
                program = read(image[found.start():])
            except (lzma.LZMAError, OSError, EOFError):
                continue
            if program[:4] == b"\x7fELF":
                return program
    skip("the kernel's image is packed in a way that tests/vm/machine.py does not know")
    return None


def fetch_kernel(folder):
    """(vmlinux, folder of the unpacked package, version), kept in `folder`."""
    depends = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], stdout=subprocess.PIPE, text=True, check=False).stdout
    package = re.search(r"Depends: (linux-image-(\S+-amd64))", depends)
    if not package:
        skip("apt knows no package linux-image-amd64; run apt-get update on Debian")
    name, version = package.groups()
    place = folder / version
    vmlinux = place / "vmlinux"
    if not vmlinux.exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        got = subprocess.run(["apt-get", "download", name], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             check=False)
        archives = list(place.glob("*.deb"))
        if got.returncode or not archives:
            skip(f"the package {name} cannot be downloaded: {got.stdout.strip().splitlines()[-1:]}")
        run("dpkg-deb", "-x", archives[0], place / "package")
        archives[0].unlink()
        (place / "vmlinux.part").write_bytes(decompressed((place / "package" / "boot" / f"vmlinuz-{version}").read_bytes()))
        (place / "vmlinux.part").rename(vmlinux)
    return vmlinux, place / "package", version


def copy_modules(package, version, root):
    """The modules and what they depend on, with an index of just these."""
    run(find_tool("depmod"), "-b", package, version)
    modules = package / "lib" / "modules" / version
    needs = dict(line.split(":", 1) for line in (modules / "modules.dep").read_text().splitlines())
    wanted = [path for path in needs if Path(path).name.split(".")[0].replace("-", "_") in MODULES]
    target = root / "lib" / "modules" / version
    for path in {*wanted, *(need for path in wanted for need in needs[path].split())}:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(modules / path, target / path)
    for name in ("modules.order", "modules.builtin"):
        shutil.copy(modules / name, target / name)
    run(find_tool("depmod"), "-b", root, version)


def copy_program(source, root):
    """A program to /bin, and its libraries to where it looks for them without any hint; the loader's path is fixed."""
    shutil.copy(source, root / "bin" / Path(source).name)
    libraries = subprocess.run(["ldd", str(source)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    for library in re.findall(r"(?:=> |^\s+)(/\S+)", libraries, re.M):
        place = root / ("lib64" if "/lib64/" in library else "lib/x86_64-linux-gnu") / Path(library).name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)


def make_initramfs(folder, package, version, programs):
    root = folder / "root"
    for name in ("bin", "proc", "sys", "dev", "tmp", "disk"):
        (root / name).mkdir(parents=True)
    for program in [shutil.which("busybox"), *programs]:
        copy_program(program, root)
    copy_modules(package, version, root)
    shutil.copy(HERE / "guest", root / "init")
    (root / "init").chmod(0o755)
    names = "\0".join(sorted(str(path.relative_to(root)) for path in root.rglob("*"))).encode()
    archive = run("cpio", "--null", "-o", "-H", "newc", "--quiet", cwd=root, input=names)
    (folder / "initramfs").write_bytes(archive)
    return folder / "initramfs"


def make_drive(folder, files):
    """An ext4 image with these files."""
    content = folder / "content"
    content.mkdir()
    for path in files:
        shutil.move(str(path), content / path.name)
    run(find_tool("mke2fs"), "-q", "-m", "0", "-t", "ext4", "-d", content, folder / "drive", "96M")
    return folder / "drive"


def boot(vmlinux, initramfs, drive, timeout_s):
    """The console's text, from start to power-off."""
    nodes = ["-object", "memory-backend-ram,id=m0,size=1G", "-object", "memory-backend-ram,id=m1,size=3G",
             "-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1",
             "-numa", "dist,src=0,dst=1,val=21"]
    devices = ["-device", "pxb-pcie,id=far,bus_nr=64,numa_node=1,bus=pcie.0",
               "-device", "pcie-root-port,id=port1,bus=far,chassis=1,slot=1",
               "-device", "pcie-root-port,id=port2,bus=far,chassis=2,slot=2",
               "-drive", f"file={drive},if=none,id=disk,format=raw,snapshot=on,throttling.bps-total=8000000", "-device", "nvme,drive=disk,serial=test,bus=port1",
               "-netdev", "hubport,id=net,hubid=0", "-device", "e1000e,netdev=net,bus=port2,romfile="]
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-machine", "q35", "-m", "4G",
               "-smp", "4,sockets=2,cores=2,threads=1", *nodes, *devices, "-nodefaults", "-nographic", "-serial", "stdio", "-no-reboot",
               "-kernel", str(vmlinux), "-initrd", str(initramfs), "-append", COMMAND_LINE]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s,
                              check=False)
        return done.stdout.decode(errors="replace").replace("\r", "")
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace").replace("\r", "") + "\n(the machine was stopped: out of time)\n"

"""The machine in lines, for the pages of figures."""
import os
import platform
import re
from pathlib import Path


def read(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def meminfo(key):
    found = re.search(rf"^{key}:\s+(\d+)", read("/proc/meminfo"), re.M)
    return int(found.group(1)) if found else 0


def describe_machine():
    cpuinfo = read("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.M)
    governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    virtual = ", a virtual machine" if re.search(r"^flags.*\bhypervisor\b", cpuinfo, re.M) else ""
    thp = re.search(r"\[(\w+)\]", read("/sys/kernel/mm/transparent_hugepage/enabled"))
    return [
        f"CPU: {model.group(1) if model else platform.machine()}, {os.cpu_count()} CPUs{virtual}",
        f"kernel: {platform.release()}",
        f"huge pages: {meminfo('HugePages_Total')} of {meminfo('Hugepagesize') // 1024} MiB reserved; transparent: "
        f"{thp.group(1) if thp else 'not known'}",
        f"governor: {governor or 'not known'}",
        f"memory: {meminfo('MemTotal') / (1 << 20):.0f} GiB",
    ]

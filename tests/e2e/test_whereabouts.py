#!/usr/bin/env python3
"""What the daemon says of its threads and memory is what /proc says: read here without its help."""
import ctypes
import json
import re
from pathlib import Path

from tokenring_e2e import Client, Daemon


def topology(client):
    text, n = ctypes.create_string_buffer(1 << 18), ctypes.c_size_t()
    client.lib.tr_topology.argtypes = client.lib.tr_status.argtypes
    error = client.lib.tr_topology(client.handle, text, len(text), ctypes.byref(n))
    assert error == 0, error
    return json.loads(text.value)


def affinities(pid):
    """{thread name: [CPU lists]}"""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        name = re.search(r"^Name:\t(.*)$", status, re.M).group(1)
        found.setdefault(name, []).append(re.search(r"^Cpus_allowed_list:\t(.*)$", status, re.M).group(1))
    return found


def anonymous_bytes(pid):
    """Resident bytes of all private mappings of a MiB and more, huge pages included."""
    total = 0
    for mapping in re.split(r"^(?=[0-9a-f]+-)", Path(f"/proc/{pid}/smaps").read_text(), flags=re.M):
        fields = dict(re.findall(r"^(\w+): +(\d+) kB$", mapping, re.M))
        if " rw-p 00000000 " in mapping and int(fields["Size"]) >= 1024:
            total += int(fields["Rss"]) + int(fields["Private_Hugetlb"])
    return total * 1024


def check(flags):
    with Daemon("--threads", "1", "--kv-tokens", "2048", *flags) as daemon:
        daemon.ready()
        client = Client(daemon.socket)
        said, status = topology(client), client.status()
        now = affinities(daemon.process.pid)
        lines = {line["name"]: line for line in said["threads"]}
        assert lines["engine"]["allowed"] == now["engine"][0] == str(lines["engine"]["cpu"])
        if status["front"] == "own thread":
            assert lines["front"]["allowed"] == now["front"][0] == str(lines["front"]["cpu"])
        assert not lines["loader"]["runs"] and "loader" not in now
        memory = {line["name"]: line for line in said["memory"]}
        for name, key in (("weights", "weights_bytes"), ("kv", "kv_bytes"), ("scratch", "scratch_bytes")):
            assert -65536 <= memory[name]["bytes"] - status["memory"][key] <= 6 << 20, (name, memory[name], status["memory"])
            assert memory[name]["bytes"] == sum(node["bytes"] for node in memory[name]["on_nodes"])
        assert memory["channels"]["bytes"] == status["channels"]["bytes_each"] or memory["channels"]["page_bytes"] > 4096
        own = sum(memory[name]["bytes"] for name in ("weights", "kv", "scratch"))
        assert own <= anonymous_bytes(daemon.process.pid)
        assert said["differences"] == 0, said
        assert topology(client) == said, "within a second the answer is the same"
        client.close()
        return memory, daemon.output()


def main():
    memory, _ = check(["--huge-pages", "never"])
    assert all(line["huge_bytes"] == 0 for line in memory.values()), memory
    memory, log = check(["--huge-pages", "auto"])
    assert re.search(r" memory: weights: 9[0-9]\.\d MiB in (1 GiB|2 MiB|transparent huge|ordinary) pages, node", log), log
    with Daemon("--huge-pages", "require", "--kv-tokens", "40000") as daemon:  # 900 MiB: more than tests reserve
        assert daemon.process.wait(timeout=60) == 1
        assert "huge_pages = require, and there are too few for" in daemon.output(), daemon.output()
        assert "nr_hugepages" in daemon.output()


main()

import json
import os
import platform
from types import SimpleNamespace

import pytest

from weft.testbed.machine import machine


def test_this_machine_is_told_and_json_able():
    about = json.loads(json.dumps(machine.machine()))
    assert about["kernel"] == os.uname().release
    assert 1 <= about["cpus"] <= about["cpus_of_machine"]
    assert about["memory_bytes"] > 1 << 26
    assert about["python"] == platform.python_version()
    assert about["sysctls"]["net.ipv4.tcp_congestion_control"]
    assert set(about["sysctls"]) == {name.replace("/", ".") for name in machine.SYSCTLS}


def test_what_the_system_does_not_tell_is_none(monkeypatch):
    monkeypatch.setattr(machine, "SYSCTLS", ("net/nonesuch",))
    monkeypatch.setattr(machine, "cpuinfo", dict)
    about = machine.machine()
    assert about["sysctls"] == {"net.nonesuch": None}
    assert (about["cpu_model"], about["virtualization"]) == (None, None)


def test_a_virtual_machine_and_user_mode_linux_are_known():
    assert machine.virtualization({"vendor_id": "User Mode Linux"}) == "User-Mode Linux"
    assert machine.virtualization({"flags": "fpu vme"}) is None
    assert machine.virtualization({"flags": "fpu hypervisor"})


def test_a_network_beyond_memory_or_process_ids_is_refused(monkeypatch):
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: SimpleNamespace(available=1e9))
    machine.require_room("dcell:n=4,k=1", namespaces=25, links=30, processes=20)
    with pytest.raises(
        ValueError, match=r"needs about 1.6 GB of memory, and 1.0 GB are free; --packed P"
    ):
        machine.require_room("large", namespaces=500, links=500, processes=940)
    machine.require_room("large", namespaces=500, links=500, processes=2)
    monkeypatch.setattr(
        machine, "_text", lambda path: "100" if path.endswith("pids.max") else "max"
    )
    with pytest.raises(
        ValueError, match=r"needs 100 daemon processes, and pids\.max of the control group is 100"
    ):
        machine.require_room("large", namespaces=500, links=500, processes=100)

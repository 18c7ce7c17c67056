import json
import os
import platform

from weft.testbed.host import machine


def test_this_machine_is_told_and_json_able():
    told = json.loads(json.dumps(machine.machine()))
    assert told["kernel"] == os.uname().release
    assert 1 <= told["cpus"] <= told["cpus_of_machine"]
    assert told["memory_bytes"] > 1 << 26
    assert told["python"] == platform.python_version()
    assert told["sysctls"]["net.ipv4.tcp_congestion_control"]
    assert set(told["sysctls"]) == {name.replace("/", ".") for name in machine.SYSCTLS}


def test_what_the_system_does_not_tell_is_none(monkeypatch):
    monkeypatch.setattr(machine, "SYSCTLS", ("net/nonesuch",))
    monkeypatch.setattr(machine, "cpuinfo", dict)
    told = machine.machine()
    assert told["sysctls"] == {"net.nonesuch": None}
    assert (told["cpu_model"], told["virtualization"]) == (None, None)


def test_a_virtual_machine_and_user_mode_linux_are_known():
    assert machine.virtualization({"vendor_id": "User Mode Linux"}) == "User-Mode Linux"
    assert machine.virtualization({"flags": "fpu vme"}) is None
    assert machine.virtualization({"flags": "fpu hypervisor"})

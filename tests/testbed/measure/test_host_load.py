import os
import time
from collections import namedtuple

import psutil
import pytest

from weft.testbed.measure import kernel_counters
from weft.testbed.measure.kernel_counters import HostLoad, Waits


def load_at(seconds: float, **changes: object) -> HostLoad:
    nothing = HostLoad(seconds, 0, 0, 0, 0, 0, {})
    return HostLoad(**{**vars(nothing), **changes})


def test_shares_of_time():
    before, after = (
        load_at(10, pressure_us=5, processors_s=1.0, steal_s=0.03),
        load_at(12, pressure_us=1_000_005, processors_s=3.0, steal_s=0.13),
    )
    assert kernel_counters.pressure_percent(before, after) == 50
    assert kernel_counters.steal_percent(before, after) == pytest.approx(5)
    assert kernel_counters.steal_percent(before, before) == 0
    assert kernel_counters.pressure_percent(load_at(1, pressure_us=None), load_at(2)) is None


def test_a_wait_is_the_mean_over_the_turns_taken_meanwhile():
    before = load_at(0, waits={"a": Waits(5_000_000, 10), "idle": Waits(7, 7)})
    after = load_at(
        1, waits={"a": Waits(9_000_000, 12), "idle": Waits(7, 7), "new": Waits(3_000_000, 3)}
    )
    assert kernel_counters.mean_waits_ms(before, after) == {"a": 2, "new": 1}


def test_this_machine_can_be_read():
    before = kernel_counters.host_load({"here": os.getpid(), "nobody": 2**22 + 1})
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        pass
    after = kernel_counters.host_load({"here": os.getpid()})
    assert set(before.waits) <= {"here"}
    assert after.at_s > before.at_s
    assert after.processors_s >= before.processors_s > 0
    assert 0 <= kernel_counters.steal_percent(before, after) <= 100
    pressure = kernel_counters.pressure_percent(before, after)
    assert pressure is None or pressure >= 0


def test_a_kernel_without_pressure_says_none(monkeypatch):
    def refuse(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(kernel_counters, "_lines", refuse)
    assert kernel_counters.pressure_us() is None
    assert kernel_counters.waits(1) is None


@pytest.mark.parametrize("pid", [2**22 + 1])
def test_nobody_waits_for_nothing(pid):
    assert kernel_counters.waits(pid) is None


def test_guests_time_is_part_of_user_time_and_not_counted_twice(monkeypatch):
    fields = {
        "user": 10.0,
        "nice": 2.0,
        "system": 3.0,
        "idle": 20.0,
        "iowait": 1.0,
        "irq": 0.5,
        "softirq": 0.25,
    }
    told = namedtuple("told", [*fields, "steal", "guest", "guest_nice"])(
        *fields.values(), 4.0, 6.0, 1.0
    )
    monkeypatch.setattr(psutil, "cpu_times", lambda: told)
    load = kernel_counters.host_load({})
    assert (load.processors_s, load.steal_s) == (sum(fields.values()) + 4.0, 4.0)


def test_memory_is_shared_out():
    with open(f"/proc/{os.getpid()}/smaps_rollup") as file:
        told = next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    assert kernel_counters.pss_kib(os.getpid()) == pytest.approx(told, rel=0.2)

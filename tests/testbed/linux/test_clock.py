"""The one clock."""

import select
import time
from contextlib import closing
from datetime import UTC, datetime

import pytest

from weft.testbed.linux import clock
from weft.testbed.linux.clock import wait_until


@pytest.fixture
def slept_s(monkeypatch):
    """Return the lengths of all sleeps; time passes only in them, from 1000 s on."""
    lengths_s = []
    monkeypatch.setattr(clock, "monotonic", lambda: 1000.0 + sum(lengths_s))
    monkeypatch.setattr(clock, "sleep", lengths_s.append)
    return lengths_s


def test_waiting_sleeps_between_questions(slept_s):
    asked = []
    wait_until(
        "the third question",
        lambda: asked.append(clock.monotonic()) or len(asked) == 3,
        every_s=2.0,
    )
    assert asked == [1000.0, 1002.0, 1004.0]
    with pytest.raises(TimeoutError, match="rain: still 0 after 7200 s"):
        wait_until("rain", lambda: 0, timeout_s=7200, every_s=60)
    assert sum(slept_s) >= 4 + 7200


def test_the_answer_is_returned():
    assert wait_until("an answer", iter([0, None, "yes"]).__next__, every_s=0) == "yes"


@pytest.mark.parametrize(
    ("wall_s", "fraction"), [(0.0, "000000"), (1.25, "250000"), (1e9 + 0.9999999, "000000")]
)
def test_local_time_has_microseconds(wall_s, fraction):
    text = clock.local_time(wall_s)
    seconds, _, micros = text.partition(".")
    assert micros == fraction
    assert time.mktime(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")) == int(wall_s + 1e-6)


@pytest.mark.parametrize("wall_s", [0.0, 1_715_931_000.9])
def test_universal_time_is_as_iso_8601_has_it(wall_s):
    assert clock.utc_time(wall_s) == datetime.fromtimestamp(wall_s, UTC).isoformat(
        timespec="seconds"
    )


@pytest.fixture
def timer():
    with closing(clock.Timer()) as made:
        yield made


def ready(timer, wait_s=0.0):
    return bool(select.select([timer], [], [], wait_s)[0])


def test_it_is_readable_from_its_time_on(timer):
    at_s = clock.monotonic() + 0.002
    timer.set(at_s)
    assert ready(timer, 60)
    assert clock.monotonic() >= at_s
    assert ready(timer)


def test_the_time_that_was_set_last_counts(timer):
    assert not ready(timer)
    timer.set(clock.monotonic())
    assert ready(timer, 60)
    timer.set(clock.monotonic() + 3600)
    assert not ready(timer)


def test_what_is_past_is_readable_at_once(timer):
    timer.set(0.0)
    assert ready(timer)


def test_what_the_kernel_refuses_is_raised(timer):
    timer.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        timer.set(1.0)
    timer.__init__()


@pytest.mark.parametrize(
    ("line", "virtual", "free", "hop_ns"),
    [
        ("root=/dev/vda quiet", False, False, 0),
        ("weft_virtual=1 time-travel=inf-cpu time-travel-read=1", True, True, 0),
        ("time-travel=inf-cpu time_travel.syscall_ns=5 weft.hop_ns=70", True, False, 70),
    ],
)
def test_the_kernel_was_boot_arguments_what_costs_time(monkeypatch, line, virtual, free, hop_ns):
    monkeypatch.setattr(clock, "_boot_arguments", line.split)
    for asked in (clock.is_virtual, clock.calls_cost_nothing, clock.hop_ns):
        # what the cache has is of this kernel
        monkeypatch.setattr(clock, asked.__name__, asked.__wrapped__)
    assert (clock.is_virtual(), clock.calls_cost_nothing()) == (virtual, free)
    assert clock.hop_ns() == hop_ns

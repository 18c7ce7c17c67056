"""Dead daemons are restarted, and hanging ones found: in simulated time and on a real network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from math import inf

import pytest

from weft.testbed.linux import fib
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.fidelity import FAIL, Fidelity
from weft.testbed.network import clean
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control, daemon_files
from weft.testbed.node_daemon.watchdog import (
    FIRST_S,
    FORGIVEN_S,
    HANGS_AFTER,
    LONGEST_S,
    SUPERVISOR_HANGS_AFTER,
    Hangs,
    ProcessorUse,
    Restarts,
    Silences,
    Successor,
    processor_use,
    usable_s,
    watch,
)
from weft.topologies import build


def test_who_keeps_dying_is_started_ever_later_and_who_lives_long_is_forgiven():
    restarts, now, delays = Restarts(), 100.0, []
    for _ in range(12):
        delays.append(restarts.died(3, now))
        assert restarts.deadline == now + delays[-1]
        assert restarts.take(now + delays[-1] / 2) == []
        now += delays[-1]
        assert restarts.take(now) == [3]
        assert restarts.deadline == inf
    assert delays == [min(FIRST_S * 2**i, LONGEST_S) for i in range(12)]
    assert restarts.died(4, now) == FIRST_S
    assert restarts.died(3, now + FORGIVEN_S + 1) == FIRST_S


def test_those_who_die_together_are_started_together_and_who_is_forgotten_is_not():
    restarts = Restarts()
    for node in (7, 5, 6):
        restarts.died(node, 0.0)
    restarts.forget(6)
    assert restarts.take(FIRST_S) == [5, 7]
    assert restarts.take(1e9) == []


ASLEEP = ProcessorUse("S", 0, 0)


def looks_until_hanging(hangs: Hangs, ticks: Callable[[int], int], looks: int = 100) -> int | None:
    """Return the first look at which process 1 hangs; None if it never does."""
    return next((look for look in range(looks) if hangs.look({1: ticks(look)}, 1.0)), None)


def test_a_process_that_does_not_tick_hangs():
    def hangs() -> Hangs:
        return Hangs(Silences(lambda pid: ASLEEP))

    assert looks_until_hanging(hangs(), lambda look: 7) == HANGS_AFTER + 1
    assert looks_until_hanging(hangs(), lambda look: 7 + (look >= 3)) == HANGS_AFTER + 4
    assert looks_until_hanging(hangs(), lambda look: look) is None
    assert looks_until_hanging(hangs(), lambda look: look // HANGS_AFTER) is None, (
        "silences do not add up"
    )
    assert looks_until_hanging(hangs(), lambda look: 0) is None, "it has no timer"
    other = hangs()
    for _ in range(3):
        assert looks_until_hanging(other, lambda look: 7, HANGS_AFTER) is None
        other.look({}, 1.0)


@pytest.mark.parametrize(
    ("use", "hangs_at"),
    [
        (lambda look: ProcessorUse("R", 0, 0), None),  # waits for its turn all the time
        (lambda look: ProcessorUse("D", 0, 0), None),
        # has just slept, and waited before
        (lambda look: ProcessorUse("S", 0, look * 10**9), None),
        (lambda look: ProcessorUse("R", look * 10**9, 0), HANGS_AFTER + 1),  # turns round and round
        # as one of eight that do
        (lambda look: ProcessorUse("R", look * 10**9 // 8, 0), 8 * HANGS_AFTER + 1),
        # stopped half of the time
        (lambda look: ProcessorUse("T", 0, look * 5 * 10**8), 2 * HANGS_AFTER + 1),
    ],
)
def test_a_process_that_waits_for_a_processor_is_late_and_does_not_hang(use, hangs_at):
    looks = iter(range(1000))
    hangs = Hangs(Silences(lambda pid: use(next(looks))))
    assert looks_until_hanging(hangs, lambda look: 7) == hangs_at


def test_the_time_that_a_process_could_have_used_is_never_negative_nor_longer_than_the_look():
    for state in "RDST":
        for ran_s, waited_s in ((0, 0), (0, 9), (9, 0), (9, 9), (0.3, 0.3)):
            after = ProcessorUse(state, int(ran_s * 1e9), int(waited_s * 1e9))
            assert 0 <= usable_s(ProcessorUse(state, 0, 0), after, 1.0) <= 1.0
    assert processor_use(2**22 + 1) == ("X", 0, 0), "there is no such process"


@pytest.fixture
def sleeper() -> Iterator[int]:
    """The descriptor of a process that does nothing."""
    process = subprocess.Popen(["sleep", "600"])
    fd = os.pidfd_open(process.pid)
    yield fd
    process.kill()
    process.wait()
    os.close(fd)


def has_ended(fd: int) -> bool:
    return os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_a_supervisor_that_beats_is_left_alone_and_one_that_does_not_is_ended(sleeper):
    """However long its silences are together: what counts is how many looks in a row find
    nothing."""
    heard, beats = os.pipe2(os.O_NONBLOCK)
    successor = Successor(sleeper, beats)
    watching = threading.Thread(target=watch, args=(sleeper, heard, 0.02))
    successor.beat()
    watching.start()
    for _ in range(3 * SUPERVISOR_HANGS_AFTER):
        successor.beat()
        watching.join(0.01)
        assert watching.is_alive()
        assert not has_ended(sleeper)
    watching.join(60)  # a few looks, on a machine of whatever load
    assert not watching.is_alive()
    assert has_ended(sleeper)
    os.close(heard)
    os.close(beats)
    successor.beat()  # without a reader: no error


BUSY = "while True: pass"


@pytest.fixture
def starved_process() -> Iterator[int]:
    """The descriptor of a process that is ready to run and hardly does, beside one that is
    preferred."""
    processor = {min(os.sched_getaffinity(0))}
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    for process in processes:
        os.sched_setaffinity(process.pid, processor)
    os.sched_setscheduler(processes[0].pid, os.SCHED_IDLE, os.sched_param(0))
    fd = os.pidfd_open(processes[0].pid)
    yield fd
    for process in processes:
        process.kill()
        process.wait()
    os.close(fd)


def test_a_supervisor_that_waits_for_a_processor_is_left_alone_and_ended_if_it_is_stopped(
    starved_process, monkeypatch
):
    """It has not beaten for four times as many looks as a hanging one would have been ended
    after."""
    heard, beats = os.pipe2(os.O_NONBLOCK)
    looks, enough = 0, threading.Event()

    def count(pid: int) -> ProcessorUse:
        nonlocal looks
        looks += 1
        if looks == 4 * SUPERVISOR_HANGS_AFTER:
            enough.set()
        return processor_use(pid)

    monkeypatch.setattr("weft.testbed.node_daemon.watchdog.Silences", lambda: Silences(count))
    reasons: list[str] = []
    watching = threading.Thread(target=lambda: reasons.append(watch(starved_process, heard, 0.02)))
    watching.start()
    assert enough.wait(120)
    assert not has_ended(starved_process)
    signal.pidfd_send_signal(starved_process, signal.SIGSTOP)
    watching.join(120)
    assert has_ended(starved_process)
    assert "state T" in reasons[0]
    os.close(heard)
    os.close(beats)


def test_a_supervisor_that_ends_is_succeeded_at_once(sleeper):
    heard, beats = os.pipe2(os.O_NONBLOCK)
    watching = threading.Thread(target=watch, args=(sleeper, heard, 3600.0))
    watching.start()
    os.close(beats)
    signal.pidfd_send_signal(sleeper, signal.SIGTERM)
    watching.join(60)
    assert not watching.is_alive()
    os.close(heard)


@pytest.fixture(params=[0, 2], ids=["each", "packed"])
def routed_net(request) -> Iterator[RunningNetwork]:
    network = RunningNetwork.create(build("dcell:n=3,k=1"), None, scheme="dr", packed=request.param)
    yield network
    network.down()


def routes(network: RunningNetwork) -> list:
    found = []
    for node in range(network.topology.servers):
        with network.at(node) as there:
            found.append(fib.routes(there))
    return found


@pytest.mark.kernel
def test_what_dies_hangs_or_loses_its_supervisor_is_back_and_counted(routed_net):
    directory, before = routed_net.run.directory, routes(routed_net)
    first = {node: row.pid for node, row in routed_net.rows().items()}
    others = [node for node, pid in first.items() if pid == first[0]]  # of the same process
    with Fidelity(routed_net) as fidelity:
        # a daemon ends on SIGTERM, but the supervisor had no request
        os.kill(first[0], signal.SIGTERM)
        wait_until(
            "h0 is counted and back",
            lambda: routed_net.rows()[0].restarts == 1 and routed_net.rows()[0].pid,
        )
        routed_net.wait_until_converged()
    died = {component.name: component for component in fidelity.report.components}
    assert fidelity.verdict == FAIL
    assert (died["daemons died"].value, died["daemons died"].where) == (len(others), "h0")
    assert (died["daemons restarted"].value, died["supervisors lost"].value) == (len(others), 0)
    rows = routed_net.rows()
    assert {node for node, row in rows.items() if row.pid != first[node]} == set(others)
    assert len({rows[node].pid for node in others}) == 1
    assert {(row.deaths, row.restarts) for node, row in rows.items() if node in others} == {(1, 1)}

    # One that hangs.
    os.kill(rows[0].pid, signal.SIGSTOP)
    wait_until(
        "h0 is back once more",
        lambda: routed_net.rows()[0].restarts == 2 and routed_net.rows()[0].pid,
    )
    routed_net.wait_until_converged()
    assert f"process {rows[0].pid} of h0" in (directory / "log" / "supervisor.log").read_text()

    # One that is asked to end stays so, and one that is to be started again is.
    control.stop(directory, "h1")
    with Fidelity(routed_net) as fidelity:
        assert control.restart(directory, "h2") == routed_net.rows()[2].pid
    assert {
        component.value for component in fidelity.report.components if "daemons" in component.name
    } == {0}
    control.start(directory, "h1")

    # The supervisor, and then its successor.
    supervisor = daemon_files.holder(directory, "supervisor")
    with Fidelity(routed_net) as fidelity:
        os.kill(supervisor, signal.SIGKILL)
        wait_until(
            "there is another",
            lambda: daemon_files.holder(directory, "supervisor") not in (None, supervisor),
        )
        wait_until(
            "all are back",
            lambda: all(row.pid and row.restarts for row in routed_net.rows().values()),
        )
        routed_net.wait_until_converged()
    failures = {part.name for part in fidelity.report.components if part.verdict == FAIL}
    assert failures >= {"daemons died", "daemons restarted", "supervisors lost"}
    second = daemon_files.holder(directory, "supervisor")
    watchers = (
        set(clean.processes(routed_net.run.id, []))
        - {row.pid for row in routed_net.rows().values()}
        - {second}
    )
    for watcher in watchers:
        os.kill(watcher, signal.SIGKILL)
    wait_until(
        "it has another successor",
        lambda: not watchers & set(clean.processes(routed_net.run.id, [])),
    )
    assert control.restart(directory, "h2") == routed_net.rows()[2].pid
    routed_net.wait_until_converged()
    assert routes(routed_net) == before


@pytest.mark.kernel
def test_a_supervisor_that_hangs_is_ended_and_succeeded():
    network = RunningNetwork.create(build("dcell:n=3,k=1"), None, scheme="dr", packed=1)
    try:
        supervisor, before = (
            daemon_files.holder(network.run.directory, "supervisor"),
            routes(network),
        )
        with Fidelity(network) as fidelity:
            os.kill(supervisor, signal.SIGSTOP)
            wait_until(
                "there is another",
                lambda: (
                    daemon_files.holder(network.run.directory, "supervisor")
                    not in (None, supervisor)
                ),
                timeout_s=90,
            )
            wait_until(
                "all are back",
                lambda: all(row.pid and row.restarts for row in network.rows().values()),
            )
            network.wait_until_converged()
        values = {component.name: component.value for component in fidelity.report.components}
        assert (fidelity.verdict, values["supervisors lost"]) == (FAIL, 1)
        assert routes(network) == before
    finally:
        network.down()


@pytest.mark.kernel
def test_where_nobody_is_to_be_replaced_the_dead_stay_dead_and_are_told():
    network = RunningNetwork.create(
        build("dcell:n=3,k=1"), None, scheme="dr", packed=0, restart=False
    )
    try:
        theirs = {row.pid for row in network.rows().values()}
        with Fidelity(network) as fidelity:
            os.kill(network.rows()[0].pid, signal.SIGKILL)
            wait_until("h0 is counted", lambda: network.rows()[0].deaths == 1)
        assert (fidelity.verdict, fidelity.report.worst.name) == (FAIL, "daemons died")
        with Fidelity(network) as fidelity:
            os.kill(daemon_files.holder(network.run.directory, "supervisor"), signal.SIGKILL)
            wait_until(
                "no daemon is left", lambda: not theirs & set(clean.processes(network.run.id, []))
            )
        values = {component.name: component.value for component in fidelity.report.components}
        assert (values["daemons died"], values["supervisors lost"]) == (len(theirs), 1)
        assert clean.processes(network.run.id, []) == []
    finally:
        network.down()

"""What dies is started again, ever later; what hangs is found: decided in simulated time, done on a real network."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from math import inf

import pytest

from weft.testbed.agent import control_socket
from weft.testbed.linux import fib
from weft.testbed.linux.clock import wait_until
from weft.testbed.measure.fidelity import FAIL, Fidelity
from weft.testbed.network import clean
from weft.testbed.network.network import Network
from weft.testbed.supervision import control
from weft.testbed.supervision.successor import LOOKS as SUPERVISOR_LOOKS
from weft.testbed.supervision.successor import Successor, watch
from weft.testbed.supervision.watchdog import FIRST_S, FORGIVEN_S, LONGEST_S, LOOKS, Hangs, Restarts
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


def test_who_does_not_tick_from_look_to_look_hangs_and_is_told_once():
    hangs, told = Hangs(), []
    for look in range(2 * LOOKS):
        told += [(look, pid) for pid in hangs.look({1: look, 2: 5, 3: 0, 4: 7 + (look >= 3)})]
    assert told == [(LOOKS, 2), (LOOKS + 3, 4)]  # 3 has no timer
    for _ in range(LOOKS - 1):
        assert hangs.look({9: 1}) == []
    assert hangs.look({}) == []
    assert hangs.look({9: 1}) == []  # seen anew


@pytest.fixture
def sleeper() -> Iterator[int]:
    """The descriptor of a process that does nothing."""
    process = subprocess.Popen(["sleep", "600"])
    fd = os.pidfd_open(process.pid)
    yield fd
    process.kill()
    process.wait()
    os.close(fd)


def ended(fd: int) -> bool:
    return os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_a_supervisor_that_beats_is_left_alone_and_one_that_does_not_is_ended(sleeper):
    """However long its silences are together: what counts is how many looks in a row find nothing."""
    heard, beats = os.pipe2(os.O_NONBLOCK)
    one = Successor(sleeper, beats)
    watching = threading.Thread(target=watch, args=(sleeper, heard, 0.02))
    one.beat()
    watching.start()
    for _ in range(3 * SUPERVISOR_LOOKS):
        one.beat()
        watching.join(0.01)
        assert watching.is_alive()
        assert not ended(sleeper)
    watching.join(60)  # a few looks, on a machine of whatever load
    assert not watching.is_alive()
    assert ended(sleeper)
    os.close(heard)
    os.close(beats)
    one.beat()  # to nobody, which is no error


class Looks:
    """What each look of a successor finds readable, in turn."""

    def __init__(self, *found):
        self.found = list(found)

    def register(self, fd, events):
        pass

    def poll(self, timeout_ms):
        return [(fd, 1) for fd in self.found.pop(0)]


def test_only_silences_in_a_row_count(monkeypatch):
    supervisor, (heard, beats), killed = 99, os.pipe2(os.O_NONBLOCK), []
    silence = [()] * (SUPERVISOR_LOOKS - 1)
    looks = Looks(*silence, (heard,), *silence, (heard,), *silence, (), (), (supervisor,))
    monkeypatch.setattr("select.poll", lambda: looks)
    monkeypatch.setattr("signal.pidfd_send_signal", lambda fd, number: killed.append((fd, number, len(looks.found))))
    os.write(beats, b"...")
    monkeypatch.setattr("os.read", lambda fd, size: b".")
    watch(supervisor, heard, 1.0)
    assert killed == [(supervisor, signal.SIGKILL, 2)], "once, after so many looks in a row"
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


@pytest.fixture(params=[None, 2], ids=["each", "packed"])
def routed(request) -> Iterator[Network]:
    network = Network.create(build("dcell:n=3,k=1"), None, scheme="dr", packed=request.param)
    yield network
    network.down()


def routes(network: Network) -> list:
    found = []
    for node in range(network.topology.servers):
        with network.at(node) as there:
            found.append(fib.routes(there))
    return found


@pytest.mark.kernel
def test_what_dies_hangs_or_loses_its_supervisor_is_back_and_counted(routed):
    directory, before = routed.run.directory, routes(routed)
    first = {node: row.pid for node, row in routed.rows().items()}
    others = [node for node, pid in first.items() if pid == first[0]]  # of the same process
    with Fidelity(routed) as fidelity:
        os.kill(first[0], signal.SIGTERM)  # by which a daemon ends as it should, but nobody asked the supervisor
        wait_until("h0 is counted and back", lambda: routed.rows()[0].restarts == 1 and routed.rows()[0].pid)
        routed.wait_until_converged()
    died = {one.name: one for one in fidelity.report.components}
    assert fidelity.verdict == FAIL
    assert (died["daemons died"].value, died["daemons died"].where) == (len(others), "h0")
    assert (died["daemons restarted"].value, died["supervisors lost"].value) == (len(others), 0)
    rows = routed.rows()
    assert {node for node, row in rows.items() if row.pid != first[node]} == set(others)
    assert len({rows[node].pid for node in others}) == 1
    assert {(row.deaths, row.restarts) for node, row in rows.items() if node in others} == {(1, 1)}

    # One that hangs.
    os.kill(rows[0].pid, signal.SIGSTOP)
    wait_until("h0 is back once more", lambda: routed.rows()[0].restarts == 2 and routed.rows()[0].pid)
    routed.wait_until_converged()
    assert f"process {rows[0].pid} of h0" in (directory / "log" / "supervisor.log").read_text()

    # One that is asked to end stays so, and one that is to be started again is.
    control.stop(directory, "h1")
    with Fidelity(routed) as fidelity:
        assert control.restart(directory, "h2") == routed.rows()[2].pid
    assert {one.value for one in fidelity.report.components if "daemons" in one.name} == {0}
    control.start(directory, "h1")

    # The supervisor, and then its successor.
    supervisor = control_socket.holder(directory, "supervisor")
    with Fidelity(routed) as fidelity:
        os.kill(supervisor, signal.SIGKILL)
        wait_until("there is another", lambda: control_socket.holder(directory, "supervisor") not in (None, supervisor))
        wait_until("all are back", lambda: all(row.pid and row.restarts for row in routed.rows().values()))
        routed.wait_until_converged()
    assert {one.name for one in fidelity.report.components if one.verdict == FAIL} >= {
        "daemons died", "daemons restarted", "supervisors lost",
    }  # fmt: skip
    second = control_socket.holder(directory, "supervisor")
    watchers = set(clean.processes(routed.run.id, [])) - {row.pid for row in routed.rows().values()} - {second}
    for one in watchers:
        os.kill(one, signal.SIGKILL)
    wait_until("it has another successor", lambda: not watchers & set(clean.processes(routed.run.id, [])))
    assert control.restart(directory, "h2") == routed.rows()[2].pid
    routed.wait_until_converged()
    assert routes(routed) == before


@pytest.mark.kernel
def test_a_supervisor_that_hangs_is_ended_and_succeeded():
    network = Network.create(build("dcell:n=3,k=1"), None, scheme="dr", packed=1)
    try:
        supervisor, before = control_socket.holder(network.run.directory, "supervisor"), routes(network)
        with Fidelity(network) as fidelity:
            os.kill(supervisor, signal.SIGSTOP)
            wait_until(
                "there is another",
                lambda: control_socket.holder(network.run.directory, "supervisor") not in (None, supervisor),
                timeout_s=90,
            )
            wait_until("all are back", lambda: all(row.pid and row.restarts for row in network.rows().values()))
            network.wait_until_converged()
        values = {one.name: one.value for one in fidelity.report.components}
        assert (fidelity.verdict, values["supervisors lost"]) == (FAIL, 1)
        assert routes(network) == before
    finally:
        network.down()


@pytest.mark.kernel
def test_where_nobody_is_to_be_replaced_the_dead_stay_dead_and_are_told():
    network = Network.create(build("dcell:n=3,k=1"), None, scheme="dr", restart=False)
    try:
        theirs = {row.pid for row in network.rows().values()}
        with Fidelity(network) as fidelity:
            os.kill(network.rows()[0].pid, signal.SIGKILL)
            wait_until("h0 is counted", lambda: network.rows()[0].deaths == 1)
        assert (fidelity.verdict, fidelity.report.worst.name) == (FAIL, "daemons died")
        with Fidelity(network) as fidelity:
            os.kill(control_socket.holder(network.run.directory, "supervisor"), signal.SIGKILL)
            wait_until("no daemon is left", lambda: not theirs & set(clean.processes(network.run.id, [])))
        values = {one.name: one.value for one in fidelity.report.components}
        assert (values["daemons died"], values["supervisors lost"]) == (len(theirs), 1)
        assert clean.processes(network.run.id, []) == []
    finally:
        network.down()

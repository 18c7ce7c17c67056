"""A clean-up ends the processes of the run, by their mark or namespace, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.testbed.cluster.machines_here import ROOT, Machine
from weft.testbed.linux import cgroup, netns
from weft.testbed.network import clean, outside
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs import hosts_file
from weft.testbed.runs.run import ENVIRONMENT
from weft.topologies import build


def sleeper(**options):
    return subprocess.Popen(["sleep", "1000"], **options)


def unmarked_environment():
    return {name: value for name, value in os.environ.items() if name != ENVIRONMENT}


@pytest.mark.kernel
def test_those_with_the_mark_and_those_in_a_namespace_of_the_run_are_ended(spare_netns):
    with netns.inside(spare_netns.fd):
        inside = sleeper(env=unmarked_environment())
    marked = sleeper(env=unmarked_environment() | {ENVIRONMENT: "testrun"})
    others = [
        sleeper(env=unmarked_environment() | {ENVIRONMENT: "testrunner"}),
        sleeper(env=unmarked_environment()),
    ]
    try:
        pids = clean.processes("testrun", [spare_netns.name, "weft.gone.h0"])
        assert sorted(pids) == sorted([inside.pid, marked.pid])
        clean.kill(pids)
        assert inside.wait(10) == marked.wait(10) == -9
        assert [other.poll() for other in others] == [None, None]
        clean.kill(pids)  # who has ended already is no failure
    finally:
        for process in (inside, marked, *others):
            process.kill()
            process.wait()


STEPS = {
    "processes": clean,
    "kill": clean,
    "forget": netns,
    "unlink": hosts_file,
    "remove": cgroup,
    "disconnect": outside,
    "wait_until_gone": netns,
}


@pytest.mark.kernel
@pytest.mark.parametrize("step", STEPS)
def test_a_signal_at_any_step_waits_until_all_is_removed(monkeypatch, step):
    network = RunningNetwork.create(build("star:n=2"), None)
    names = [netns.NAMES / name for name in network.run.journal["namespaces"]]
    work = getattr(STEPS[step], step)

    def interrupt_twice(*arguments):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return work(*arguments)

    assert all(name.exists() for name in names)
    monkeypatch.setattr(STEPS[step], step, interrupt_twice)
    with pytest.raises(KeyboardInterrupt):
        network.down()
    assert not [name for name in names if name.exists()]
    assert not network.run.directory.exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def machine():
    machine = Machine("rebooted")
    yield machine
    machine.end()


def weft(machine, *words):
    """Run weft inside; return what it says on standard error."""
    argv = [sys.executable, "-P", "-m", "weft.experiments.cli.cli", *words]
    command = machine.enter("env", f"PYTHONPATH={ROOT}", *argv)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def lose_power(machine):
    """End all processes of weft, and empty what a boot empties."""
    clean.kill(machine.processes(), number=signal.SIGKILL)
    machine.run("mount", "-t", "tmpfs", "tmpfs", "/run")


@pytest.mark.kernel
def test_what_a_network_left_that_was_up_when_the_machine_lost_power_is_removed(machine):
    up = ("up", "star:n=2", "--detach")
    weft(machine, *up, "vm-a")
    weft(machine, *up, "vm-b")
    lose_power(machine)
    assert machine.run("ls", "/etc/netns").split()
    weft(machine, *up, "vm-a")  # the name is free again
    assert {name.split(".")[1] for name in machine.run("ls", "/etc/netns").split()} == {"vm-a"}
    lose_power(machine)
    assert weft(machine, "clean", "--run", "vm-a") == "removed vm-a\n"
    assert machine.left() == []
    assert weft(machine, "clean") == "nothing to remove\n"

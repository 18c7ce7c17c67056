"""Machines that are reached by ssh: a real server in a namespace, with keys of its own."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.error_lines import error_lines
from tests.testbed.cluster.machines_here import ROOT, WEFT, Machine, Machines, machines_here
from tests.testbed.cluster.ssh_here import SERVE, describe, needs_server, write_keys
from weft.testbed.linux.clock import wait_until
from weft.topologies import build

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.real_clock("machines are namespaces with processes of their own"),
    needs_server,
]
SPEC = "dcell:n=3,k=1"
NAME = "far"


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Yield two machines; the first reaches the second by ssh, and runs the commands."""
    write_keys(tmp_path)
    with machines_here(2, tmp_path) as machines:
        machines.all[1].run("sh", "-ec", SERVE.format(folder=tmp_path))
        program = f"env PYTHONPATH={ROOT} 'A WORD=with spaces' {' '.join(WEFT)}"
        describe(tmp_path, "far", program)
        yield machines


def weft(machines: Machines, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the weft command on the first machine."""
    command = machines.all[0].enter("env", f"PYTHONPATH={ROOT}", *WEFT, *words)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def weft_output(machines: Machines, *words: str) -> str:
    """Return what a weft command prints, which must succeed."""
    result = weft(machines, *words)
    assert result.returncode == 0, result.stderr
    return result.stdout


def up(machines: Machines) -> list[str]:
    return ["up", SPEC, "--machines", str(machines.file), "--detach", NAME]


def a_link_there(machine: Machine) -> tuple[str, str, int]:
    """Return a server of the part of `machine`, a neighbour, and the port towards it."""
    topology = build(SPEC)
    for space in machine.namespaces():
        node = topology.naming.node(space.rpartition(".")[2])
        if node < topology.servers:
            port, other, *_ = topology.ports(node)[0]
            return topology.naming.name(node), topology.naming.name(other), port
    raise AssertionError("no server is there")


def carrier_is_up(machine: Machine, node: str, port: int) -> bool:
    words = ["ip", "-json", "-netns", f"weft.{NAME}-2.{node}", "link", "show", f"{node}-eth{port}"]
    return "LOWER_UP" in json.loads(machine.run(*words))[0]["flags"]


def test_a_network_lives_and_dies_by_ssh(machines):
    weft_output(machines, *up(machines))
    state = json.loads(weft_output(machines, "status", "--json"))
    assert all(row["converged"] for row in state["nodes"])
    first, second = machines.all
    node, peer, port = a_link_there(second)
    near, *_ = a_link_there(first)
    weft_output(machines, "exec", near, "--", "ping", "-c", "2", "-i", "0.2", "-W", "5", node)
    # words survive the shell there, and the status its way back
    script = 'printf %s "$1"; exit 3'
    result = weft(machines, "exec", node, "--", "sh", "-c", script, "sh", "two  words * $HOME")
    assert (result.stdout, result.returncode) == ("two  words * $HOME", 3)
    # ssh leaves the input of a command alone
    lines = f"{shlex.join(WEFT)} fail {node}-{peer} && cat"
    command = first.enter("env", f"PYTHONPATH={ROOT}", "sh", "-c", lines)
    rest = subprocess.run(command, input="kept", capture_output=True, text=True, check=True)
    assert rest.stdout.splitlines()[1:] == ["kept"]  # after the time of the failure
    assert not carrier_is_up(second, node, port)
    weft_output(machines, "restore", f"{node}-{peer}")
    wait_until("the link is healthy", lambda: carrier_is_up(second, node, port))
    weft_output(machines, "down")
    machines.wait_until_empty()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("key", "Permission denied"),
        ("host", "Host key verification failed"),
        ("program", "no-such-weft"),
        ("name", "Could not resolve hostname"),
        ("greeting", "a login there must print nothing, but prints 'hello agent'"),
    ],
)
def test_a_machine_that_ssh_cannot_use_is_refused_in_one_line(machines, tmp_path, fault, words):
    program = f"env PYTHONPATH={ROOT} {' '.join(WEFT)}"
    if fault == "key":
        (tmp_path / "user.pub").write_text("")
    elif fault == "host":
        (tmp_path / "known_hosts").write_text("")
    elif fault == "program":
        program = "no-such-weft"
    elif fault == "greeting":
        program = "echo hello"
    describe(tmp_path, "no.such.host.invalid" if fault == "name" else "far", program)
    refused = weft(machines, *up(machines))
    assert (refused.returncode, len(error_lines(refused.stderr))) == (2, 1)
    assert error_lines(refused.stderr)[0].startswith("weft: machine far: ")
    assert words in refused.stderr
    machines.wait_until_empty()

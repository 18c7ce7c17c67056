"""An agent that can apply half of its part only, or is asked twice, or whose kernel errs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.error_lines import error_lines
from tests.testbed.cluster.machines_here import (
    ROOT,
    WEFT,
    Machine,
    Machines,
    machines_here,
    weft,
)
from weft.testbed.cluster.agent import NEWS
from weft.testbed.cluster.controller import requests
from weft.testbed.cluster.placement import place
from weft.testbed.linux import interface, netns
from weft.testbed.network.network import RunningNetwork
from weft.testbed.network.read_back import Mismatch
from weft.testbed.plan.part import split
from weft.testbed.runs import run
from weft.topologies import build

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.real_clock("machines are namespaces with processes of their own"),
]
SPEC = "dcell:n=3,k=1"


def test_half_an_applied_part_is_removed_from_every_machine(tmp_path, name):
    with machines_here(2, tmp_path) as machines:
        words = ["up", SPEC, "--machines", str(machines.file), "--detach", name]
        plan = weft(*words, "--dry-run").stdout
        *_, tunnel = re.findall(r"local 10\.99\.0\.2|type vxlan (id .*)", plan)
        # the last tunnel of the second machine is taken, so that most of its part exists by then
        machines.all[1].run(*["ip", "link", "add", "taken", "type", "vxlan"], *tunnel.split())
        refused = weft(*words, check=False)
        assert (refused.returncode, len(error_lines(refused.stderr))) == (1, 1)
        assert "machine m2: " in refused.stderr
        assert "type vxlan" in refused.stderr
        assert machines.are_empty()
        assert not any(record.id == name for record in run.runs())


@contextmanager
def agent(machine: Machine) -> Iterator[subprocess.Popen[str]]:
    """Yield an agent without a controller; its part ends with the block."""
    command = machine.enter("env", f"PYTHONPATH={ROOT}", *WEFT, "agent")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def ask(process: subprocess.Popen[str], *requests: Any) -> list[Any]:
    """Send requests at once, and return the answers."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("".join(f"{json.dumps(request)}\n" for request in requests))
    process.stdin.flush()
    return [json.loads(process.stdout.readline()) for _ in requests]


def request_for(machines: Machines, name: str) -> dict[str, Any]:
    """Return the request for the only part of a run, which has ended."""
    weft("up", SPEC, "--machines", str(machines.file), "--detach", name)
    record = run.find(name)
    (request,) = requests(record, record.journal)
    weft("down", "--run", name)
    return request


def has_daemons(machine: Machine) -> bool:
    return any(b"node_daemon" in line for line in machine.processes().values())


def test_a_request_that_is_carried_out_twice_makes_one_part(tmp_path, name):
    with machines_here(1, tmp_path) as machines:
        request = request_for(machines, name)
        first = machines.all[0]
        with agent(first) as process, agent(first) as second:
            start, beat = {"do": "start"}, {"do": "beat", "count": 1}
            assert ask(process, request, beat, request)[1:] == [{"waiting": [], **NEWS}, {}]
            assert not has_daemons(first)  # they wait for those of other machines
            answers = ask(process, start, start, request)
            assert "digest" in answers[0]
            assert answers[1:] == [answers[0], {}]
            assert has_daemons(first)
            assert len(first.namespaces()) == len(request["part"]["nodes"])
            (answer,) = ask(second, request)
            assert answer["wrong_input"]
            assert answer["error"].startswith(f"a run called {name}-1 is up; take it down by ")
            assert len(first.namespaces()) == len(request["part"]["nodes"])
            assert "error" not in ask(process, beat)[0]
        assert machines.are_empty()


def test_a_part_that_waits_for_other_machines_ends_with_its_controller(tmp_path, name):
    with machines_here(1, tmp_path) as machines:
        request = request_for(machines, name)
        for _ in range(3):
            with agent(machines.all[0]) as process:
                assert ask(process, request) == [{}]
            assert machines.are_empty()


def test_a_tunnel_of_another_number_is_refused_before_the_network_is_up(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = build(SPEC)
    machine_of = place(topology, [0.5, 0.5])
    part, _ = split(topology, machine_of, {"m1": "10.99.0.1", "m2": "10.99.0.2"}, 61000)
    wanted = interface.vxlan

    def wrong(side: Any, space: Any, tunnel: interface.Tunnel) -> Any:
        return wanted(side, space, tunnel._replace(number=tunnel.number + 4096))

    monkeypatch.setattr(interface, "vxlan", wrong)
    with machines_here(1, tmp_path) as machines:
        space = os.open(f"/proc/{machines.all[0].pid}/ns/net", os.O_RDONLY)
        with netns.inside(space), pytest.raises(Mismatch, match="planned the tunnel id"):
            RunningNetwork.create(topology, None, scheme="dr", name=name, part=part)
        os.close(space)
    assert not any(record.id == name for record in run.runs())

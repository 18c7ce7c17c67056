"""One network over several machines: as on one, also when links, agents or controllers fail."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
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
from tests.testbed.cluster.test_peer_channel import seal_words
from weft.testbed.cluster.controller import LOG
from weft.testbed.cluster.spread_run import SpreadRun
from weft.testbed.linux import clock
from weft.testbed.linux.clock import wait_until
from weft.testbed.network import clean
from weft.testbed.plan.part import part_from
from weft.testbed.runs import run
from weft.topologies import build

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.real_clock("machines are namespaces with processes of their own"),
]
SPEC = "dcell:n=4,k=1"  # cuts links of crossbars, and one between servers


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with machines_here(2, tmp_path) as machines:
        yield machines


def up(name: str, machines: Machines, spec: str = SPEC, *words: str) -> None:
    weft("up", spec, "--machines", str(machines.file), "--detach", name, *words)


def status(name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(weft("status", "--json", "--run", name).stdout)
    return answer


def cut_link(name: str) -> tuple[str, str, str]:
    """Return the name of a link between servers that is cut, and its ends, m1's first."""
    record = run.find(name)
    topology = build(SPEC)
    first, _ = record.journal["parts"]
    for link in map(int, first["cut"]):
        a, _, b, _ = topology.links[link].tolist()
        if b < topology.servers:
            ends = (a, b) if a in first["nodes"] else (b, a)
            near, far = (topology.naming.name(node) for node in ends)
            return topology.link_name(link), near, far
    raise AssertionError("no link between servers is cut")


def device(node: str, peer: str) -> str:
    """Return the interface of `node` towards `peer`."""
    topology = build(SPEC)
    ports = topology.ports(topology.naming.node(node))
    (port,) = (port for port, other, *_ in ports if other == topology.naming.node(peer))
    return f"{node}-eth{port}"


def flags(machine: Machine, name: str, part: int, node: str, peer: str) -> set[str]:
    """Return the flags of the interface of `node` towards `peer`."""
    space = f"weft.{name}-{part}.{node}"
    text = machine.run("ip", "-json", "-netns", space, "link", "show", device(node, peer))
    return set(json.loads(text)[0]["flags"])


def test_a_network_comes_up_over_two_machines_and_goes_without_a_trace(machines, name):
    up(name, machines, SPEC, "--rate", "20mbit")
    state = status(name)
    assert [row["node"] for row in state["nodes"]] == [f"h{node}" for node in range(20)]
    assert all(row["converged"] for row in state["nodes"])
    assert [row["state"] for row in state["machines"]] == ["up", "up"]
    assert state["failed"] == []
    _, near, far = cut_link(name)
    for node, peer in ((near, far), (far, near)):  # a full packet that must not be fragmented
        ping = ["ping", "-M", "do", "-s", "1472", "-c", "3", "-i", "0.2", "-W", "5", peer]
        weft("exec", "--run", name, node, "--", *ping)
        weft("restart", node, "--run", name)
    error = weft("exec", "--run", name, near, "--", "false", check=False)
    assert error.returncode == 1
    weft("down", "--run", name)
    machines.wait_until_empty()
    assert not any(record.id == name for record in run.runs())


def test_packets_take_the_paths_of_one_machine(machines, name):
    up(name, machines)
    for pair in (("h0", "h11"), ("h11", "h0"), ("h3", "h9")):
        trace = weft("exec", "--run", name, pair[0], "--", "traceroute", "-n", "-q1", pair[1])
        addresses = [line.split()[1] for line in trace.stdout.splitlines()[1:]]
        route = weft("route", SPEC, "--routing", "dr", *pair, "--json")
        names = json.loads(route.stdout)["path"]
        topology = build(SPEC)
        planned = [topology.naming.node(node) for node in names if node.startswith("h")]
        written = [
            ".".join(map(str, topology.naming.address(node).to_bytes(4))) for node in planned
        ]
        assert addresses == written[1:]


def test_an_announced_failure_crosses_and_a_silent_one_does_not(machines, name):
    up(name, machines)
    link, near, far = cut_link(name)
    first, second = machines.all
    # only one end is set down, on the first machine
    set_link = ["ip", "-netns", f"weft.{name}-1.{near}", "link", "set", device(near, far)]
    first.run(*set_link, "down")
    wait_until(
        "the far end loses its carrier",
        lambda: "NO-CARRIER" in flags(second, name, 2, far, near),
    )
    assert status(name)["failed"] == [link]
    first.run(*set_link, "up")
    wait_until(
        "the far end gets its carrier back",
        lambda: "LOWER_UP" in flags(second, name, 2, far, near),
    )
    weft("restore", link, "--run", name)
    weft("fail", link, "--silent", "--run", name)
    assert status(name)["failed"] == [link]
    for machine, part, pair in ((first, 1, (near, far)), (second, 2, (far, near))):
        assert {"UP", "LOWER_UP"} <= flags(machine, name, part, *pair)
    weft("restore", link, "--run", name)
    weft("fail", link, "--run", name)
    assert "UP" not in flags(second, name, 2, far, near)
    weft("restore", link, "--run", name)
    wait_until("the link is healthy", lambda: "LOWER_UP" in flags(second, name, 2, far, near))


def test_a_cut_link_changes_at_both_ends(machines, name):
    up(name, machines, SPEC, "--rate", "20mbit")
    link, near, far = cut_link(name)

    def rates_are(rate: str) -> bool:
        return all(
            f"rate {rate}"
            in machine.run(
                "tc", "-n", f"weft.{name}-{part}.{node}", "class", "show", "dev", device(node, peer)
            )
            for machine, part, node, peer in zip(
                machines.all, (1, 2), (near, far), (far, near), strict=True
            )
        )

    weft("degrade", link, "3mbit", "--run", name)
    assert rates_are("3Mbit")
    weft("impair", link, "--rate", "4mbit", "--loss", "100", "--run", name)
    assert rates_are("4Mbit")
    for node, peer in ((near, far), (far, near)):
        # the other end drops it, whatever way the answer would take
        ping = ["ping", "-c", "1", "-W", "1", "-I", device(node, peer), peer]
        assert weft("exec", "--run", name, node, "--", *ping, check=False).returncode == 1
    weft("impair", link, "--clear", "--run", name)
    assert rates_are("20Mbit")


def test_an_underlay_with_too_small_packets_is_refused_in_one_line(tmp_path, name):
    with machines_here(2, tmp_path, mtu_bytes=1500) as machines:
        words = ["up", SPEC, "--machines", str(machines.file), "--detach", name]
        refused = weft(*words, check=False)
        assert refused.returncode == 1
        assert len(error_lines(refused.stderr)) == 1
        assert "an MTU of 1500, and cut links need 1550" in refused.stderr
        machines.wait_until_empty()


def test_a_machine_that_dies_is_noticed_and_the_others_fail_their_ends(machines, name):
    up(name, machines)
    _, near, far = cut_link(name)
    first, second = machines.all
    os.kill(second.agent(), signal.SIGKILL)
    wait_until(
        "the end of the dead machine's link has no carrier",
        lambda: "NO-CARRIER" in flags(first, name, 1, near, far),
    )
    wait_until(
        "the status says so",
        lambda: [row["state"] for row in status(name)["machines"]] == ["up", "dead"],
    )
    refused = weft("exec", "--run", name, far, "--", "true", check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    weft("down", "--run", name)
    assert not first.namespaces()
    weft("clean", "--machines", str(machines.file))
    assert_empty(machines, name)


def machine_states(name: str) -> list[str]:
    """Return the states of the machines, as their controller has them."""
    record = run.find(name)
    return [row["state"] for row in SpreadRun(record, record.journal).rows()]


def is_whole(state: dict[str, Any]) -> bool:
    """Return True if no link has failed and all daemons have converged."""
    return not state["failed"] and all(row["converged"] for row in state["nodes"])


@contextmanager
def stop_agent(agent: int) -> Iterator[float]:
    """Stop an agent for a block; yield when that was."""
    nsenter = psutil.Process(agent).ppid()  # stops when its child does, and stays so
    os.kill(agent, signal.SIGSTOP)
    try:
        yield clock.monotonic()
    finally:
        for process in (agent, nsenter):
            os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize("pause_s", [3.0, 8.0])
def test_a_machine_that_does_not_run_for_a_while_comes_back(machines, name, pause_s):
    up(name, machines)
    _, near, far = cut_link(name)
    first, second = machines.all
    with stop_agent(second.agent()) as began_s:
        wait_until(
            "the end of the late machine's link has no carrier",
            lambda: "NO-CARRIER" in flags(first, name, 1, near, far),
        )
        wait_until("it is late", lambda: machine_states(name) == ["up", "late"])
        wait_until("it was stopped for so long", lambda: clock.monotonic() > began_s + pause_s)
    wait_until("it is back", lambda: machine_states(name) == ["up", "up"])
    wait_until(
        "its link has its carrier",
        lambda: "LOWER_UP" in flags(first, name, 1, near, far),
    )
    wait_until(
        "all daemons have converged again",
        lambda: is_whole(status(name)),
        timeout_s=120,
    )
    _, late = status(name)["machines"]
    assert late["longest_pause_s"] >= pause_s - 1
    assert late["lost_peers"] == "none"


def test_a_machine_that_comes_back_too_late_removes_its_part(machines, name):
    up(name, machines)
    with stop_agent(machines.all[1].agent()):
        wait_until("it is dead", lambda: machine_states(name) == ["up", "dead"], timeout_s=60)
        assert machines.all[1].namespaces()
    wait_until("it has removed its part", lambda: not machines.all[1].left())
    assert status(name)["failed"]
    weft("down", "--run", name)
    machines.wait_until_empty()


SEND = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for line in sys.stdin:
        sender.sendto(bytes.fromhex(line), (sys.argv[1], int(sys.argv[2])))
"""


def test_messages_of_a_key_holder_stop_no_agent_and_take_no_link_for_good(machines, name):
    up(name, machines)
    _, near, far = cut_link(name)
    record = run.find(name)
    part = part_from(record.journal["parts"][0])
    key = bytes.fromhex(record.journal["key"])
    first, second = machines.all
    agent = first.agent()
    malformed = [7, {}, [], ["m2"], ["m2", "m1", "4", 99, []], ["m2", "m1", 0, 1, [2**40]]]
    largest = [["m2", "m1", beat, 2**64 - 1, sorted(part.cut)] for beat in range(2**10)]
    lines = "".join(f"{seal_words(words, key).hex()}\n" for words in [*malformed, *largest])
    program = [sys.executable, "-c", SEND, part.address, str(part.port + 1)]
    subprocess.run(second.enter(*program), input=lines, text=True, check=True)
    wait_until(
        "most were dropped, since they are malformed, of the past or from the future",
        lambda: status(name)["machines"][0]["dropped"] > len(malformed) + 500,
    )
    wait_until(
        "the link has its carrier",
        lambda: "LOWER_UP" in flags(first, name, 1, near, far),
    )
    assert machine_states(name) == ["up", "up"]
    assert first.agent() == agent


def test_without_their_controller_agents_remove_their_parts(machines, name):
    up(name, machines)
    (controller,) = clean.marked(run.ENVIRONMENT, name)
    os.kill(controller, signal.SIGKILL)
    machines.wait_until_empty()


def test_what_works_on_one_machine_only_is_refused(machines, name):
    up(name, machines)
    for words in (["save"], ["rekey"], ["events"], ["view"]):
        refused = weft(*words, "--run", name, check=False)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert "spread over machines m1, m2" in refused.stderr
    refused = weft("log", "--run", name, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "several machines; name a node" in refused.stderr


def test_logs_hosts_and_single_daemons_are_those_of_all_machines(machines, name):
    up(name, machines)
    for node in cut_link(name)[1:]:
        assert weft("log", node, "--run", name).stdout
        weft("daemon", node, "--stop", "--run", name)
        row = next(row for row in status(name)["nodes"] if row["node"] == node)
        assert not row["pid"]
    assert weft("hosts", "--run", name).stdout.split() == [f"h{node}" for node in range(20)]


def test_a_controller_whose_agents_have_all_died_ends_and_says_so(machines, name):
    up(name, machines)
    record = run.find(name)
    for machine in machines.all:
        os.kill(machine.agent(), signal.SIGKILL)
    wait_until("the run has ended", lambda: not record.alive())
    (line,) = (record.directory / LOG).read_text().splitlines()
    assert "machine m1: its agent has ended" in line
    assert "machine m2: its agent has ended" in line
    weft("clean", "--machines", str(machines.file), "--run", name)
    assert_empty(machines, name)


def test_after_the_death_of_all_a_clean_leaves_nothing_on_any_machine(machines, name):
    up(name, machines)
    kill(machines, name, "all")
    assert all(machine.namespaces() for machine in machines.all)
    done = weft("clean", "--machines", str(machines.file), "--run", name)
    for removed in (name, f"{name}-1 on machine m1", f"{name}-2 on machine m2"):
        assert removed in done.stderr
    assert_empty(machines, name)
    done = weft("clean", "--machines", str(machines.file), "--run", name)
    assert done.stderr == "nothing to remove\n"


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["up", "controller", "agent", "all"])
def test_nothing_is_left_after_a_kill_at_a_random_moment(machines, name, victim, times):
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(times or 1):
        kill_once(rng, machines, name, victim)
        wait_until("the run is down", lambda: is_down(name), timeout_s=90)
        weft("clean", "--machines", str(machines.file), "--run", name)
        machines.wait_until_empty()  # an agent whose controller died may not have ended yet
        assert not any(record.id == name for record in run.runs())


def kill_once(rng: random.Random, machines: Machines, name: str, victim: str) -> None:
    """Kill a process of a run that comes up, or is up."""
    words = ["up", SPEC, "--machines", str(machines.file), "--detach", name]
    process = subprocess.Popen([*WEFT, *words], cwd=ROOT, stderr=subprocess.DEVNULL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(rng.uniform(0.2, 4.0))
    if victim == "up":
        process.kill()
    elif victim == "agent":
        kill_agent(rng.choice(machines.all))
    else:
        kill(machines, name, victim)
    process.wait()


def kill(machines: Machines, name: str, victim: str) -> None:
    """Kill the controller of the run if it has one yet; victim all: after all agents."""
    if victim == "all":
        for machine in machines.all:
            kill_agent(machine)
    clean.kill(clean.marked(run.ENVIRONMENT, name))


def kill_agent(machine: Machine) -> None:
    with suppress(ProcessLookupError, AssertionError):
        os.kill(machine.agent(), signal.SIGKILL)


def is_down(name: str) -> bool:
    """Take the run down if it is up; return True if no process keeps it."""
    weft("down", "--run", name, check=False)
    return not any(record.id == name and record.alive() for record in run.runs())


def assert_empty(machines: Machines, name: str) -> None:
    """Fail if anything is left of the run, here or on the machines."""
    assert not any(record.id == name for record in run.runs())
    assert machines.are_empty()

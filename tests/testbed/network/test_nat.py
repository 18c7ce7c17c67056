"""The way out of a network of routers, with namespaces of the test's as the machine and as what is
beyond it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.testbed.linux import netns
from weft.testbed.network import clean, outside
from weft.testbed.runs import run
from weft.topologies.core.address import Prefix

ROOT = Path(__file__).parents[3]
NAME = f"test-nat-{os.getpid() % 1_000_000}"
MACHINE, BEYOND = "203.0.113.1", "203.0.113.2"


@pytest.fixture
def machine() -> Iterator[str]:
    """A machine that forwards, and has a link to another that knows no way to anywhere else."""
    names = [f"weft.test.{os.urandom(4).hex()}" for _ in range(2)]
    made: list[netns.Netns] = []
    netns.create(names, lambda i: {"ipv4/ip_forward": "1"}, made)
    ip("-n", names[0], "link", "add", "near", "type", "veth", "peer", "far", "netns", names[1])
    for name, device, address in ((names[0], "near", MACHINE), (names[1], "far", BEYOND)):
        ip("-n", name, "address", "add", f"{address}/24", "dev", device)
        ip("-n", name, "link", "set", device, "up")
    yield names[0]
    for each in made:
        each.close()
    netns.forget(names)


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


def run_on_node(node: str, *words: str) -> subprocess.CompletedProcess[str]:
    inside = ["ip", "netns", "exec", f"weft.{NAME}.{node}"]
    return subprocess.run([*inside, *words], capture_output=True, text=True, check=False)


def state(machine: str) -> list[str]:
    """Whatever a way out might change on the machine."""
    inside = ("netns", "exec", machine)
    links = [link["ifname"] for link in json.loads(ip("-n", machine, "-j", "link"))]
    return [
        str(links),
        ip("-n", machine, "rule"),
        ip("-n", machine, "route"),
        ip(*inside, "nft", "list", "ruleset"),
    ]


def way(node: str, address: str) -> str:
    """The device by which the node's own packets to `address` leave, "" if nowhere."""
    done = run_on_node(node, "ip", "-j", "route", "get", address)
    return "" if done.returncode else json.loads(done.stdout)[0].get("dev", "")


SCRIPT = f"""
import sys
from weft import LinkSpec, Mbps, Net
link = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
with Net(sys.argv[1], link=link, routing=sys.argv[2], packed=1, name="{NAME}", outwards=True):
    print("up", flush=True)
    sys.stdin.readline()
"""
REMOVE = f"from weft.testbed.network import clean; clean.clean('{NAME}')"


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("spec", "routing"), [("dcell:n=3,k=1", "dr"), ("clos:m=2,n=2,r=2", "ttc")]
)
def test_hosts_reach_what_is_beyond_the_machine_and_sigkill_leaves_nothing(
    machine: str, spec: str, routing: str
) -> None:
    before, inside = (
        state(machine),
        ["nsenter", f"--net={netns.NAMES / machine}", sys.executable, "-c"],
    )
    command = [*inside, SCRIPT, spec, routing]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            record = next(known for known in run.runs() if known.id == NAME)
            namespaces = record.journal["namespaces"]
            assert outside.gateway_namespace(record) in namespaces
            for name in (MACHINE, BEYOND, "h2"):
                assert ", 0% packet loss" in run_on_node("h1", "ping", "-c1", "-W5", name).stdout
            h2 = run_on_node("h1", "getent", "hosts", "h2").stdout.split()[0]
            assert way("h1", h2).startswith("h1-eth")
            assert way("h1", "65.1.2.3") == way("h1", BEYOND) == outside.SERVER_DEVICE
            if spec.startswith("dcell"):  # elsewhere a host hands whatever it is to its switch
                assert way("h1", "10.255.9.9") == "", (
                    "packets for the network stay in it, also for unassigned addresses"
                )
            ip("-n", record.namespace("h1"), "route", "add", "65.0.0.0/8", "dev", "h1-eth0")
            assert way("h1", "65.1.2.3") == "h1-eth0", "a scheme's own octets stay in it"
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            subprocess.run([*inside, REMOVE], cwd=ROOT, check=True)
    assert state(machine) == before
    assert not any((netns.NAMES / name).exists() for name in namespaces)
    assert clean.processes(NAME, namespaces) == []


def test_what_cannot_have_a_way_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside.shutil, "which", lambda name: f"/usr/sbin/{name}")
    outside.require_way_out(["h0", "h1"], 2)
    with pytest.raises(ValueError, match="a node called nat"):
        outside.require_way_out(["nat", "h1"], 2)
    with pytest.raises(ValueError, match="addresses for 65533"):
        outside.require_way_out(["h0", "h1"], 70_000)
    monkeypatch.setattr(outside.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match="needs nft: apt-get install nftables"):
        outside.require_way_out(["h0"], 1)


def test_addresses_of_the_links_are_out_of_everybody_elses_way() -> None:
    assert Prefix(198 << 24 | 18 << 16, 15).holds(outside.SERVER_LINKS.network)
    assert not any(prefix.holds(outside.SERVER_LINKS.network) for prefix in outside.OWN)
    assert outside.SERVER_LINKS.holds(outside.FIRST_SERVER + outside.MOST_SERVERS - 1)
    assert not outside.SERVER_LINKS.holds(outside.FIRST_SERVER + outside.MOST_SERVERS + 1)

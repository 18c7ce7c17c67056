import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from weft.testbed.linux import clock, live_port, netlink, netns, tc
from weft.testbed.linux.clock import wait_until
from weft.testbed.linux.interface import interfaces
from weft.testbed.machine import doctor
from weft.testbed.measure.kernel_counters import PortCounterReader
from weft.testbed.network import bring_up, clean, impair, read_back
from weft.testbed.network.network import RunningNetwork
from weft.testbed.network.read_back import Mismatch
from weft.testbed.plan.network_plan import NetworkPlan
from weft.testbed.runs import run
from weft.testbed.runs.network_handle import smallest_queue
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250)
ROOT = Path(__file__).parents[3]


def run_in_netns(name: str, *argv: str) -> str:
    return subprocess.run(
        ["ip", "netns", "exec", name, *argv], capture_output=True, text=True, check=True
    ).stdout


def state(name: str) -> dict[str, object]:
    """Return iproute2's view of a namespace, without counters and timers."""
    shown = {
        what: json.loads(run_in_netns(name, *command) or "[]")
        for what, command in {
            "links": ["ip", "-j", "-d", "link"],
            "addresses": ["ip", "-j", "address"],
            "neighbours": ["ip", "-j", "neighbour"],
            "routes": ["ip", "-j", "route"],
            "routes of IPv6": ["ip", "-6", "-j", "route"],
            "qdiscs": ["tc", "-j", "qdisc"],
        }.items()
    }
    for link in shown["links"] + shown["addresses"]:
        for key in ("link_netnsid", "link_netns", "operstate", "bridge_id"):
            link.pop(key, None)
        link.pop("linkinfo", None)
    return {
        what: sorted(json.dumps(row, sort_keys=True) for row in rows)
        for what, rows in shown.items()
    }


@pytest.mark.kernel
@pytest.mark.real_clock("tc cannot set the links of that clock")
@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("spec", ["dcell:n=3,k=1", "fattree:k=4"])
def test_the_dry_run_makes_the_same_network_as_netlink(network, spec, ipv6):
    """Two ways to one state: our packed messages, and the commands that a dry run prints, run by
    iproute2."""
    ours = network(spec, scheme=f"static:ipv6={int(ipv6)}")
    kept = run.reserve(None)
    own = run.RunRecord(kept.run.id, ours.run.slot, kept.run.directory)
    routes = {"static": True, "ipv6": ipv6}
    plan = NetworkPlan(own, build(spec), LINK, **routes, **bring_up.kernel_properties())
    names = [plan.namespace(node) for node in range(plan.topology.nodes)]
    run.write_journal(kept.run, {"id": kept.run.id, "slot": kept.run.slot, "namespaces": names})
    try:
        script = "set -e\n" + "\n".join(plan.text())
        subprocess.run(["bash"], input=script, text=True, check=True, capture_output=True)
        for node in range(plan.topology.nodes):
            assert state(names[node]) == state(ours.plan.namespace(node))
            for name in (names[node], ours.plan.namespace(node)):
                wanted = ours.plan.sysctls(node)
                output = run_in_netns(
                    name,
                    "sysctl",
                    "--values",
                    *(f"net.{path.replace('/', '.')}" for path in wanted),
                )
                assert output.split() == list(wanted.values())
    finally:
        clean.remove(kept.run)
        kept.release()


PROGRAMS, REWRITING = {"clsact and cls_bpf", "bpf", "libbpf"}, {"rewriting"}


@pytest.mark.parametrize(
    ("spec", "scheme", "features"),
    [
        ("dcell:n=3,k=1", "dr", set()),
        ("dcell:n=3,k=1", "pr-gpi", REWRITING),
        ("dcell:n=3,k=1", "dfr", REWRITING | PROGRAMS),
        ("ficonn:n=4,k=1", "tar", REWRITING | PROGRAMS),
        ("fattree:k=4", "ecmp", PROGRAMS),
        ("fattree:k=4", "fatpaths:layers=3", PROGRAMS),
        ("fattree:k=4", "bfs", set()),
        ("fattree:k=4", "static", set()),
        ("fattree:k=4", "static:ipv6=1", {"ipv6"}),
    ],
)
def test_what_a_scheme_needs_of_the_kernel_is_looked_for_before_anything_is_made(
    monkeypatch, spec, scheme, features
):
    """All that it needs, and nothing else: a kernel may lack the rest."""
    asked = []
    monkeypatch.setattr(doctor, "require", lambda feature, why: asked.append((feature, why)))
    bring_up.prepared(build(spec), None, None, None, scheme, bring_up.RunOptions())
    assert set(asked) == {(feature, f"scheme {scheme}") for feature in features}


@pytest.mark.kernel
def test_nothing_is_left_after_down_and_the_names_are_those_that_the_plan_told(network):
    net = network("dcell:n=3,k=1")
    names = set(net.run.journal["namespaces"])
    assert names == {
        name for name in os.listdir(netns.NAMES) if name.startswith(f"weft.{net.run.id}.")
    }
    child = subprocess.Popen(["ip", "netns", "exec", net.plan.namespace(0), "sleep", "600"])
    marked = subprocess.Popen(["sleep", "600"], env={**os.environ, run.ENVIRONMENT: net.run.id})
    wait_until(
        "both found", lambda: {child.pid, marked.pid} == set(clean.processes(net.run.id, names))
    )
    net.down()
    assert not names & set(os.listdir(netns.NAMES))
    assert not net.run.directory.exists()
    assert child.wait() == marked.wait() == -signal.SIGKILL


@pytest.mark.kernel
def test_another_run_is_untouched(network):
    stays, goes = network("star:n=2"), network("star:n=3")
    assert stays.run.slot != goes.run.slot
    before = state(stays.plan.namespace(0))
    goes.down()
    assert stays.run not in run.dead_runs()
    assert state(stays.plan.namespace(0)) == before


@pytest.mark.kernel
def test_what_the_kernel_holds_must_be_what_was_planned(network):
    net = network("star:n=2")
    end = net.plan.ends[0][0]
    read_back.check(net)
    with net.at(0) as requests:
        shape = tc.shapes(requests)[end.ifindex]
        live_port.set_rate(requests, end, replace(LINK, queue_packets=249), shape)
    with pytest.raises(
        Mismatch, match=f"{end.dev}: planned .*queue_packets=250.* queue 249 packets"
    ):
        read_back.check(net)


@pytest.mark.kernel
def test_a_failed_network_leaves_nothing(monkeypatch):
    """A plan that the kernel refuses half-way is taken back."""
    kept = []
    reserve = run.reserve
    monkeypatch.setattr(run, "reserve", lambda name: kept.append(reserve(name)) or kept[-1])
    monkeypatch.setattr(
        NetworkPlan,
        "addresses",
        lambda plan, node: [*plan.neighbours(node, 0), BAD] if node == 3 else [],
    )
    with pytest.raises(netlink.NetlinkError, match="ip nonsense"):
        RunningNetwork.create(build("dcell:n=3,k=1"), LINK)
    (record,) = kept
    assert not record.run.directory.exists()
    assert not [
        name for name in os.listdir(netns.NAMES) if name.startswith(f"weft.{record.run.id}.")
    ]


BAD = netlink.NetlinkMessage(netlink.RTM_NEWADDR, netlink.CREATE, bytes(8), "ip nonsense")


@pytest.mark.kernel
def test_fail_and_restore(network):
    net = network("dcell:n=3,k=1")
    there = net.plan.namespace(0)

    def is_reachable() -> bool:
        ping = ["ip", "netns", "exec", there, "ping", "-c1", "-W0.3", "10.0.1.0"]
        return subprocess.run(ping, capture_output=True, check=False).returncode == 0

    assert is_reachable()
    for silent in (False, True):
        net.fail("h0-h3", silent=silent)
        assert not is_reachable()
        with RunningNetwork.open(net.run.id).at(0) as socket:  # as another process would
            assert interfaces(socket)[net.ifindex(0, 1)].up == silent
        RunningNetwork.open(net.run.id).restore("h0-h3")
        assert is_reachable()
    net.fail("h0-h3", silent=True, only_to="h3")
    assert not is_reachable()
    net.restore("h0-h3")
    net.restore("h0-h3")  # once more does no harm
    assert is_reachable()


@pytest.mark.kernel
@pytest.mark.parametrize("silent", [False, True])
def test_a_node_fails_with_all_its_links_and_comes_back(network, silent):
    net = network("dcell:n=3,k=1", scheme="dr")
    # behind the switch, and at its own link
    others = [net.topology.naming.node(name) for name in ("h1", "h2", "h3")]
    carriers = ["w0-eth0", "h3-eth1"]  # of the far ends of its links

    def up() -> list[bool]:
        names = [
            net.plan.namespace(net.topology.naming.node(dev.partition("-")[0])) for dev in carriers
        ]
        files = [f"/sys/class/net/{dev}/carrier" for dev in carriers]
        return [
            run_in_netns(name, "cat", file) == "1\n"
            for name, file in zip(names, files, strict=True)
        ]

    def lacking() -> list[int]:
        rows = net.rows()
        return [rows[node].neighbours_expected - rows[node].neighbours_up for node in others]

    net.fail("h0", silent=silent)
    assert up() == [silent, silent]
    wait_until("its neighbours notice", lambda: lacking() == [1, 1, 1])
    wait_until("it notices itself", lambda: net.rows()[0].neighbours_up == 0)
    assert set(net.failed_links()) == {link for *_, link in net.topology.ports(0)}
    net.restore("h0")
    assert up() == [True, True]
    assert not net.failed_links()
    net.wait_until_converged()


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda one: one.fail("h0-h1"), "no link joins h0 and h1"),
        (
            lambda one: one.fail("h0", silent=True, only_to="h0"),
            "only to h0: the failure must be of a link that ends there",
        ),
        (
            lambda one: one.fail("h0-w0", only_to="h0"),
            "only to h0: the failure must be silent",
        ),
        (lambda one: one.fail("h99"), "h99"),
        (lambda one: run.reserve(one.run.id), "is up"),
        (lambda one: run.reserve("No/way"), "run name 'No/way'"),
        (lambda one: run.find("absent"), "no run 'absent' is up"),
    ],
)
def test_wrong_input_is_one_clear_line(network, call, words):
    net = network("dcell:n=3,k=1")
    with pytest.raises(ValueError, match=words) as caught:
        call(net)
    assert "\n" not in str(caught.value)


@pytest.mark.kernel
def test_the_queue_holds_its_limit_to_the_packet(network):
    """At 8 kbit/s a packet takes 1.4 s, so that all but the first burst of a flood has to wait, or
    be dropped."""
    net = network("star:n=2", LinkSpec(rate_bps=8_000, queue_packets=17))
    flood = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    flood += "for _ in range(200): s.sendto(bytes(1400), ('10.0.0.1', 9))"
    run_in_netns(net.plan.namespace(0), sys.executable, "-c", flood)
    at_once = 1 if clock.is_virtual() else -(-tc.burst_bytes(8_000, 1514) // 1442)
    with PortCounterReader(net) as counters:
        port = counters.snapshot().ports[net.ifindex(0, 0)]
    assert port.queue_drops == 200 - 17 - at_once
    assert port.waiting_packets + port.sent_packets == 17 + at_once


SCENARIO = """
import sys
from weft.testbed.network.network import RunningNetwork
from weft.topologies import build
from weft.topologies.core.link import LinkSpec
network = RunningNetwork.create(build("dcell:n=3,k=1"), LinkSpec(rate_bps=20_000_000, queue_packets=250), scheme="static")
print("up", flush=True)
network.down()
"""  # noqa: E501


@pytest.mark.kernel
def test_clean_removes_what_a_killed_process_left_whenever_it_died(network):
    """SIGKILL at random moments of coming up and going down, then clean(): nothing is left, others
    are untouched."""
    stays = network("star:n=2")
    mine = state(stays.plan.namespace(0))
    rng = random.Random(1)
    for _ in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", SCENARIO], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        try:
            # From the start of the interpreter to well into going down, as this machine is fast or
            # slow.
            child.wait(timeout=rng.uniform(0.15, 0.7))
        except subprocess.TimeoutExpired:
            child.kill()
        child.communicate()
        dead = [
            record
            for record in run.runs()
            if not record.alive() and record.journal_or_empty().get("pid") in (child.pid, None)
        ]
        names = [name for one in dead for name in one.journal_or_empty().get("namespaces", [])]
        for one in dead:
            clean.remove(one)
        assert not set(names) & set(os.listdir(netns.NAMES))
        assert not [one for one in dead if one.directory.exists()]
    assert state(stays.plan.namespace(0)) == mine


@pytest.mark.kernel
def test_host_links_have_a_rate_of_their_own_in_the_kernel_and_in_what_is_told(network):
    host_link = LinkSpec(rate_bps=5 * Mbps, queue_packets=50)
    net = network("fattree:k=4", host_link=host_link)
    for node in range(net.topology.nodes):
        with net.at(node) as socket:
            held = tc.shapes(socket)
        for port, _, _, link in net.topology.ports(node):
            wanted = LINK if net.topology.level[link] else host_link
            assert held[net.ifindex(node, port)] == tc.DeviceDisciplines(
                wanted.rate_bps, wanted.queue_packets, None
            )
    status = net.status()
    assert status["link"] == asdict(LINK)
    assert status["host_link"] == asdict(host_link)
    assert smallest_queue(net) == 50
    other = RunningNetwork.open(net.run.id)
    read_back.check(other)
    assert other.plan.host_link == host_link
    impair.set_rate(other, "h0-e0.0", Mbps)
    with pytest.raises(
        Mismatch,
        match=r"planned .*rate_bps=5000000, queue_packets=50.* rate 1000000 bit/s, queue 50",
    ):
        read_back.check(other)
    other.close()


@pytest.mark.kernel
def test_links_that_are_all_alike_have_one_specification(network):
    net = network("fattree:k=4")
    assert net.status()["host_link"] is None
    assert net.plan.link_spec(0) == LINK
    assert smallest_queue(net) == 250


@pytest.mark.kernel
def test_ends_that_differ_in_mtu_are_told(network):
    """The smaller end drops larger packets on arrival, which nothing else tells."""
    net = network("fattree:k=4")
    assert net.status()["mtu_bytes"] == {}
    link = net.topology.link("e0.0-a0.1")
    (near, _, end), (far, _, other) = net.both_ends(link)
    run_in_netns(net.plan.namespace(near), "ip", "link", "set", end.dev, "mtu", "1000")
    assert net.status()["mtu_bytes"] == {"e0.0-a0.1": [1000, 1500]}
    assert net.failed_links() == []
    run_in_netns(net.plan.namespace(far), "ip", "link", "set", other.dev, "mtu", "1000")
    assert net.status()["mtu_bytes"] == {}  # both refuse larger packets aloud, by ICMP

"""A lab on the kernel: brought up, impaired while packets flow, saved, and the same again."""

import json
import subprocess
import sys

import pytest

from weft.testbed.labs.lab_file import parse, written
from weft.testbed.labs.running_lab import begin, lab_of
from weft.testbed.linux import live_port, tc
from weft.testbed.linux.interface import NamedDevice
from weft.testbed.network import faults, impair
from weft.testbed.network.impair import Impairment
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs import run
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

LAB = """
nodes: {zur: {hosts: 1}, gen: {hosts: 1}}
scheme: static
link: {rate: 20mbit, queue: 100}
mtu: 4000
links:
  - {ends: zur-gen, rate: 10mbit, queue: 50, loss: 0.5}
  - {ends: zur-gen}
commands:
  gen.0: ["echo begun > /proc/self/fd/1", "sleep 1000 &"]
"""


def weft(*words):
    command = [sys.executable, "-m", "weft.experiments.cli.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def ping_from_h0(network, *options, end="gen.0"):
    space = network.plan.namespace(0)
    command = ["ip", "netns", "exec", space, "ping", "-q", *options, end]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.mark.kernel
def test_a_lab_comes_up_is_impaired_and_saved(tmp_path, run_name):
    file = tmp_path / "lab.yaml"
    file.write_text(LAB)
    done = weft("up", str(file), "--trust", "--detach", run_name)
    assert done.returncode == 0, done.stderr
    network = RunningNetwork.open(run_name)
    try:
        asked = parse(LAB, name="lab")
        assert written(lab_of(network)) == written(asked)
        assert (network.run.directory / "gen.0.out").read_text() == "begun\n"
        assert (
            weft(
                "impair", "zur-gen:2", "--loss", "1.5", "--rate", "3mbit", "--run", run_name
            ).returncode
            == 0
        )
        saved = parse(weft("save", "--run", run_name).stdout, name="saved")
        second = asked.topology.link("zur-gen:2")
        assert saved.own_links[second] == LinkSpec(
            rate_bps=3 * Mbps, queue_packets=100, loss_ppb=15_000_000, mtu_bytes=4000
        )
        assert weft("impair", "zur-gen:2", "--clear", "--run", run_name).returncode == 0
        assert written(lab_of(network)) == written(asked)
        assert weft("impair", "zur-gen", "--run", run_name).returncode == 2
        assert weft("impair", "zur-gen", "--loss", "200", "--run", run_name).stderr.startswith(
            "weft: loss: per cent"
        )
    finally:
        network.down()
    assert run_name not in [record.id for record in run.runs()]


@pytest.mark.kernel
def test_a_running_network_gets_the_links_of_a_file(tmp_path, run_name):
    file = tmp_path / "lab.yaml"

    def apply(text, *words):
        file.write_text(text)
        return weft("apply", str(file), "--run", run_name, *words)

    without_commands = LAB.partition("commands")[0]
    lab = parse(without_commands, name="lab")
    network = RunningNetwork.create(
        lab.topology, lab.link, own_links=lab.own_links, scheme="static", name=run_name
    )
    try:
        link = network.topology.link("zur-gen")
        changed = without_commands.replace("rate: 10mbit", "rate: 5mbit").replace(", loss: 0.5", "")
        dry = apply(changed, "--dry-run")
        line = "zur-gen: rate 10mbit -> 5mbit, loss 0.5 -> none\n"
        assert (dry.returncode, dry.stdout) == (0, line), dry.stderr
        assert impair.kernel_link(network, link).rate_bps == 10 * Mbps
        assert apply(changed).stdout == line
        assert impair.kernel_link(network, link) == LinkSpec(
            rate_bps=5 * Mbps, queue_packets=50, mtu_bytes=4000
        )
        again = apply(changed)
        assert (again.returncode, again.stdout) == (0, "")
        for text, reason in (
            (changed.replace("static", "ecmp"), f"{run_name}: scheme static -> ecmp"),
            (changed.replace("gen: {hosts: 1}", "gen: {hosts: 2}"), "gen.1: kind none -> host"),
            (f"{changed}  - {{ends: zur-gen}}\n", "zur-gen:3: state none -> up"),
            (changed.replace("4000", "5000"), "zur-gen: mtu 4000 -> 5000"),
        ):
            refused = apply(text)
            assert (refused.returncode, refused.stdout) == (2, "")
            assert reason in refused.stderr
            assert "only a new network has this; --replace takes run" in refused.stderr
            not_detached = apply(text, "--replace")
            assert not_detached.returncode == 2
            assert f"run {run_name} ends with its process" in not_detached.stderr
    finally:
        network.down()


@pytest.mark.kernel
def test_a_running_network_loses_links_and_nodes_that_a_file_lacks(tmp_path, run_name):
    whole = (
        "nodes: {a: {hosts: 2}, b: {hosts: 1}, c: {}}\nscheme: bfs\n"
        "links: [{ends: a-b}, {ends: a-b}, {ends: b-c}, {ends: c-a}]\n"
    )
    without_b_c = whole.replace(", {ends: b-c}", "")
    without_c = whole.replace(", c: {}", "").replace(", {ends: b-c}, {ends: c-a}", "")
    fewer = without_c.replace(", {ends: a-b}]", "]").replace("hosts: 2", "hosts: 1")
    lab = parse(whole, name="lab")
    network = RunningNetwork.create(lab.topology, None, scheme="bfs", name=run_name)

    def apply(text, *words):
        (tmp_path / "lab.yaml").write_text(text)
        done = weft("apply", str(tmp_path / "lab.yaml"), "--run", run_name, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def failed_links():
        return {network.topology.link_name(link) for link in faults.inspect(network).failed}

    try:
        assert apply(without_b_c, "--dry-run") == ["b-c: up -> down"]
        assert failed_links() == set()
        assert apply(without_b_c) == ["b-c: up -> down"]
        assert failed_links() == {"b-c"}
        assert apply(without_c) == ["a-c: up -> down"]
        assert apply(without_c) == []
        rows = json.loads("".join(apply(fewer, "--json")))
        states = {"before": {"state": "up"}, "after": {"state": "down"}}
        assert rows == [{"link": "a.1-a", **states}, {"link": "a-b:2", **states}]
        assert failed_links() == {"b-c", "a-c", "a.1-a", "a-b:2"}
        assert len(apply(whole)) == 4
        assert failed_links() == set()
    finally:
        network.down()


@pytest.mark.kernel
def test_a_network_of_other_nodes_takes_the_place_of_a_running_one(tmp_path, run_name):
    file = tmp_path / "lab.yaml"
    before = "topology: dcell:n=3,k=1\nscheme: dr\nlink: {rate: 20mbit, queue: 100}\n"
    without_scheme = (
        "nodes: {w0: {hosts: 1}, c: {hosts: 2}}\nlinks: [{ends: w0-c}]\n"
        "commands: {w0.0: ['echo begun']}\n"
    )
    after = f"{without_scheme}scheme: bfs\n"

    def apply(text, *words):
        file.write_text(text)
        return weft("apply", str(file), "--run", run_name, *words)

    def names():
        network = RunningNetwork.open(run_name)
        return [network.topology.naming.label(node) for node in range(network.topology.nodes)]

    file.write_text(before)
    options = ["--packed", "1", "--unauthenticated", "--no-restart"]
    done = weft("up", str(file), *options, "--detach", run_name)
    assert done.returncode == 0, done.stderr
    first = RunningNetwork.open(run_name)
    try:
        pid = first.run.journal["pid"]
        for text, words, reason in (
            (after, [], "w0.0: kind none -> host"),
            (after.replace("w0-c", "w0-d"), ["--replace", "--trust"], "no node"),
            (without_scheme, ["--replace", "--trust"], "dr"),
            (after, ["--replace"], "add --trust"),
        ):
            refused = apply(text, *words)
            assert refused.returncode == 2, refused.stderr
            assert reason in refused.stderr
            assert first.run.journal["pid"] == pid
        dry = apply(after, "--replace", "--dry-run", "--json")
        assert dry.returncode == 0, dry.stderr
        rows = json.loads(dry.stdout)
        nodes = {row["node"]: (row["before"], row["after"]) for row in rows if "node" in row}
        assert nodes["c.1"] == ({"kind": None}, {"kind": "host"})
        assert nodes["w1"] == ({"kind": "switch"}, {"kind": None})
        assert all(row["replaces"] for row in rows)
        assert names()[-3:] == ["w1", "w2", "w3"]
        assert first.run.journal["pid"] == pid

        done = apply(after, "--replace", "--trust")
        assert done.returncode == 0, done.stderr
        assert "c.1: kind none -> host" in done.stdout.splitlines()
        assert f"{run_name} is up" in done.stderr
        assert names() == ["w0.0", "c.0", "c.1", "w0", "c"]
        second = RunningNetwork.open(run_name)
        kept = {"scheme": "bfs", "packed": 1, "authenticated": False, "restart": False}
        assert {key: second.run.journal[key] for key in kept} == kept
        assert " 0% packet loss" in ping_from_h0(second, "-c2", "-i0.2", end="c.1")
        assert (second.run.directory / "w0.0.out").read_text() == "begun\n"
        assert apply(without_scheme, "--replace").stdout == ""

        fails = after.replace("echo begun", "echo no such luck; exit 3").replace(
            "hosts: 2", "hosts: 1"
        )
        failed = apply(fails, "--replace", "--trust")
        assert failed.returncode == 1
        assert failed.stderr.splitlines()[-1].startswith(
            f"weft: run {run_name} is down, and {file} did not come up: command of w0.0"
        )
        assert run_name not in [record.id for record in run.runs()]
    finally:
        if run_name in [record.id for record in run.runs()]:
            RunningNetwork.open(run_name).down()


@pytest.mark.kernel
def test_a_command_that_fails_takes_the_lab_down(tmp_path, run_name):
    file = tmp_path / "lab.yaml"
    file.write_text(
        "topology: star:n=2\nscheme: static\ncommands: {h0: ['echo no such luck >&2; exit 3']}\n"
    )
    refused = weft("up", str(file), "--detach", run_name)
    assert refused.returncode == 2
    assert "this lab runs 1 command as root" in refused.stderr
    done = weft("up", str(file), "--trust", "--detach", run_name)
    assert done.returncode == 1
    assert "command of h0" in done.stderr
    assert done.stderr.rstrip().endswith("status 3: no such luck")
    assert run_name not in [record.id for record in run.runs()]
    assert weft("up", str(file), "--rate", "1mbit").returncode == 2


@pytest.mark.kernel
def test_a_link_loses_what_it_is_asked_to_lose():
    lab = parse("nodes: {zur: {hosts: 1}, gen: {hosts: 1}}\nlinks: [{ends: zur-gen}]\n", name="lab")
    network = RunningNetwork.create(lab.topology, None, scheme="static")
    try:
        impair.impair(network, "zur-gen", Impairment(loss_ppb=200_000_000))
        text = ping_from_h0(network, "-c400", "-i0.002", "-W1")
        lost = float(text.partition("% packet loss")[0].rpartition(" ")[2])
        assert 21 < lost < 51, "36 of 100, each way a fifth; six standard deviations"
        impair.impair(network, "zur-gen", Impairment(loss_ppb=1_000_000_000))
        assert " 100% packet loss" in ping_from_h0(network, "-c2", "-i0.002", "-W0.2")
        impair.impair(network, "zur-gen", Impairment(rate_bps=5 * Mbps))
        assert impair.kernel_link(network, network.topology.link("zur-gen")) == LinkSpec(
            rate_bps=5 * Mbps, queue_packets=250, loss_ppb=1_000_000_000
        )
        impair.undo(network, "zur-gen")
        assert impair.kernel_link(network, network.topology.link("zur-gen")) is None
        assert " 0% packet loss" in ping_from_h0(network, "-c2", "-i0.002", "-W1")
        with pytest.raises(ValueError, match="zur-gen has no rate, and so no queue"):
            impair.impair(network, "zur-gen", Impairment(queue_packets=3))
        with pytest.raises(OSError, match=r"command of zur\.0, false: status 1"):
            begin(network, {"zur.0": ["true", "false"]})
    finally:
        network.down()


@pytest.mark.uml("sch_netem", "ifb")
def test_a_delay_can_be_changed_while_packets_flow():
    network = RunningNetwork.create(
        build("star:n=2"), LinkSpec(rate_bps=20 * Mbps, queue_packets=50), scheme="static"
    )
    try:
        name = network.topology.link_name(0)
        for delay_us, least_ms in ((4000, 8), (9000, 18)):
            impair.impair(network, name, Impairment(delay_us=delay_us))
            command = [
                "ip",
                "netns",
                "exec",
                network.plan.namespace(0),
                "ping",
                "-c3",
                "-i0.2",
                "-q",
                "h1",
            ]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            fastest = float(said.partition("mdev = ")[2].partition("/")[0])
            assert fastest >= least_ms
            assert impair.kernel_link(network, 0).delay_us == delay_us
        impair.undo(network, name)
        assert impair.kernel_link(network, 0).delay_us == 0
    finally:
        network.down()


@pytest.mark.kernel
def test_the_filter_that_loses_packets_is_read_back_as_it_was_asked_for(spare_netns):
    index = 4711
    command = [
        "ip",
        "-n",
        spare_netns.name,
        "link",
        "add",
        "name",
        "one",
        "index",
        str(index),
        "type",
        "ifb",
    ]
    subprocess.run(command, check=True)
    socket = spare_netns.netlink
    port = NamedDevice(index, "one")
    socket.request([tc.clsact(port)])
    for ppb in (1, 7, 333_333_333, 999_999_999, 1_000_000_000):
        live_port.set_loss(socket, port, ppb)
        assert live_port.losses(socket) == {index: ppb}
    live_port.set_loss(socket, port, 0)
    assert live_port.losses(socket) == {}

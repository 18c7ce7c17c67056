"""Files of containerlab: what is read of them, what is refused, and that what is written works."""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from weft.experiments.cli import cli
from weft.testbed.frr.frr import USER
from weft.testbed.labs import containerlab_export
from weft.testbed.labs.lab_file import Lab, NamedText, parse
from weft.testbed.linux.clock import wait_until
from weft.testbed.machine.features import FRR
from weft.topologies import build
from weft.topologies.core.address import dotted
from weft.topologies.core.link import LinkSpec, Mbps

RING = """
name: ring
topology:
  defaults: {kind: linux}
  kinds: {linux: {image: "quay.io/frrouting/frr:8.5.4"}}
  nodes:
    r1: {binds: ["r1.conf:/etc/frr/frr.conf"]}
    r2:
    r3: {kind: nokia_srlinux}
    pc: {exec: ["ip link"]}
    tv: {labels: {weft-kind: host}}
    one: {labels: {weft-kind: switch}}
  links:
    - endpoints: ["r1:eth1", "r2:eth1"]
    - endpoints: ["r2:eth2", "r3:e1-1"]
      mtu: 1500
    - type: veth
      endpoints: [{node: r3, interface: e1-2}, {node: r1, interface: eth2}]
      vars: {rate: 20mbit, queue: 50, color: red}
    - endpoints: ["pc:eth1", "r1:eth3"]
    - endpoints: ["tv:eth1", "r3:e1-3"]
    - endpoints: ["one:eth1", "r2:eth3"]
    - endpoints: ["r2:eth4", "r1:eth4"]
"""


def lab_of(text):
    return parse(text, name="ring.clab.yml")


def test_nodes_and_links_are_read():
    topology = lab_of(RING).topology
    names = [topology.naming.name(node) for node in range(topology.nodes)]
    assert names == ["pc", "tv", "r1", "r2", "r3", "one"]
    assert topology.servers == 2
    links = [topology.link_name(link) for link in range(len(topology.links))]
    assert sorted(links) == ["pc-r1", "r1-r2", "r1-r2:2", "r1-r3", "r2-one", "r2-r3", "tv-r3"]


def test_rates_are_those_of_vars():
    lab = lab_of(RING)
    spec = LinkSpec(rate_bps=20 * Mbps, queue_packets=50)
    assert {lab.topology.link_name(link): own for link, own in lab.own_links.items()} == {
        "r1-r3": spec
    }


def test_routers_alone_get_a_host_each():
    text = "topology: {nodes: {a: , b: }, links: [{endpoints: [a:eth1, b:eth1]}]}"
    topology = lab_of(text).topology
    names = [topology.naming.name(node) for node in range(topology.nodes)]
    assert names == ["a.0", "b.0", "a", "b"]


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("topology:", "topolgy:", "3: a file of containerlab: no key 'topolgy', did you mean"),
        ("links:", "link:", "13: topology: no key 'link', did you mean links?"),
        ("r1:eth1", "r9:eth1", "14: links, entry 1: no node 'r9' (there are: one"),
        ("r1:eth1", "host:eth1", "14: links, entry 1: its end 'host' is outside the lab"),
        ("type: veth", "type: vxlan", "17: links, entry 3: a link of type 'vxlan' leads out"),
        ("mtu: 1500", "mtru: 1500", "16: links, entry 2: no key 'mtru', did you mean mtu?"),
        ('["r1:eth1", "r2:eth1"]', '["r1:eth1"]', "14: links, entry 1: endpoints: two ends"),
        ("rate: 20mbit", "rate: fast", "17: links, entry 3: rate: 'fast' is not a rate"),
        ("kind: nokia_srlinux", "kind: ext-container", "9: node r3: its kind ext-container is"),
        ("r2:\n", "r2: {network-mode: 'container:x'}\n", "8: node r2: network-mode 'container:x'"),
        ("weft-kind: switch", "weft-kind: hub", "12: node one: weft-kind must be host or switch"),
        ("    pc: {", "    pc: {labels: 7, ", "10: labels of pc: keys with values, got 7"),
        ('    - endpoints: ["r1:eth1"', '    - ["r1:eth1"', "13: links, entry 1: keys with values"),
    ],
)
def test_what_cannot_come_up_is_one_line_with_its_place(before, after, line):
    assert before in RING
    with pytest.raises(ValueError, match=r"^ring\.clab\.yml:") as refusal:
        lab_of(RING.replace(before, after, 1))
    assert str(refusal.value).startswith(f"ring.clab.yml:{line}")


def test_there_are_no_answers_to_it():
    with pytest.raises(
        ValueError, match=r"answer\.yaml: ring\.clab\.yml is a file of containerlab"
    ):
        parse(RING, name="ring.clab.yml", answer=NamedText("scheme: ecmp", "answer.yaml"))


LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=100)
JUMBO = LinkSpec(rate_bps=20 * Mbps, queue_packets=100, mtu_bytes=9000)
LABS = [
    Lab(build("fattree:k=4"), link=LINK, own_links={3: LinkSpec(rate_bps=Mbps, queue_packets=9)}),
    Lab(build("clos:n=1,r=2,m=2")),
    parse("nodes: {a: {hosts: 2}, b: {hosts: 1}}\nlinks: [{ends: a-b}, {ends: a-b}]", name="l"),
]


@pytest.mark.parametrize("lab", LABS)
def test_a_fabric_that_is_written_is_read_again(lab):
    (path, text), *_ = containerlab_export.files(lab, "lab").items()
    again = parse(text, name=path)
    named, renamed = (
        [wired.naming.name(node) for node in range(wired.nodes)]
        for wired in (lab.topology, again.topology)
    )
    assert renamed == named

    def links(topology):
        wired = topology.topology
        specs = containerlab_export.link_of
        return {wired.link_name(link): specs(topology, link) for link in range(len(wired.links))}

    assert links(again) == links(lab)


@pytest.mark.parametrize(
    ("topology", "commands"),
    [
        (
            "clos:n=1,r=2,m=2",
            {
                "h1": ["address add 10.0.1.0/32 dev h1-eth0", "route replace 0.0.0.0/0"],
                "e0": [
                    "address add 172.17.0.0/32 dev lo",
                    "address add 172.16.0.4/31 dev e0-eth1",
                    "address add 172.16.0.6/31 dev e0-eth2",
                    "route replace 10.0.0.0/32",
                ],
                "c1": [
                    "address add 172.18.0.1/32 dev lo",
                    "address add 172.16.0.7/31 dev c1-eth0",
                    "address add 172.16.0.11/31 dev c1-eth1",
                ],
            },
        ),
        (
            "dcell:n=3,k=1",
            {
                "w1": [
                    "link add name w1 type bridge mcast_snooping 0",
                    *(f"link set dev w1-eth{port} master w1" for port in range(3)),
                    "link set dev w1 up",
                ],
            },
        ),
    ],
)
def test_a_node_gets_its_addresses_and_what_joins_its_ports(topology, commands):
    files = containerlab_export.files(Lab(build(topology), link=JUMBO), "lab")
    for path, text in files.items():
        if path.endswith("/frr.conf"):
            lines, hostname = text.splitlines(), f"hostname {path.partition('/')[0]}"
            defaults = [line for line in lines if line.startswith("frr defaults ")]
            assert lines[: len(defaults) + 1] == [*defaults, hostname]
            assert (lines.count(hostname), len(defaults)) == (1, topology.startswith("clos"))
    written = yaml.safe_load(files["lab.clab.yml"])["topology"]
    for node, expected in commands.items():
        lines = [line for line in written["nodes"][node]["exec"] if line.startswith("ip ")]
        assert [line.partition(" proto")[0] for line in lines] == [
            f"ip {line}" for line in expected
        ]
        assert ("binds" in written["nodes"][node]) == (node[0] in "ec")
    assert {link["mtu"] for link in written["links"]} == {9000}


@pytest.mark.frr
@pytest.mark.parametrize("lab", [*LABS, Lab(build("dcell:n=3,k=1"))])
def test_frr_takes_each_configuration(lab, tmp_path):
    path = tmp_path / "frr.conf"
    texts = containerlab_export.files(lab, "lab")
    routers = [text for name, text in texts.items() if name.endswith("/frr.conf")]
    topology = lab.topology
    assert len(routers) == (topology.servers if topology.server_centric else topology.switches)
    for text in routers[:5]:
        path.write_text(text)
        subprocess.run(["vtysh", "-C", "-f", path], check=True, capture_output=True)
    path.write_text(routers[0] + "no such line\n")
    assert subprocess.run(["vtysh", "-C", "-f", path], capture_output=True, check=False).returncode


class Containers:
    """A file as containerlab starts it, without images: a namespace and FRR for each node."""

    def __init__(self, folder, stack):
        self.folder = folder
        (path,) = folder.glob("*.clab.yml")
        self.topology = yaml.safe_load(path.read_text())["topology"]
        self.name = f"t{os.urandom(3).hex()}"
        self.stack = stack

    def run(self, node, *words, check=True):
        argv = ["ip", "netns", "exec", f"{self.name}.{node}", *words]
        return subprocess.run(argv, check=check, capture_output=True, text=True)

    def start(self):
        for node in self.topology["nodes"]:
            subprocess.run(["ip", "netns", "add", f"{self.name}.{node}"], check=True)
            self.stack.callback(subprocess.run, ["ip", "netns", "del", f"{self.name}.{node}"])
            self.run(node, "ip", "link", "set", "lo", "up")
        for link in self.topology["links"]:
            a, b = link["endpoints"]
            words = ["mtu", str(link["mtu"]), "type", "veth", "peer", "name", b["interface"]]
            there = [*words, "netns", f"{self.name}.{b['node']}"]
            self.run(a["node"], "ip", "link", "add", a["interface"], *there)
            for end in (a, b):
                self.run(end["node"], "ip", "link", "set", end["interface"], "up")
        for node, entry in self.topology["nodes"].items():
            for line in entry["exec"]:
                self.run(node, *shlex.split(line))
            if "binds" in entry:
                self.route(node)

    def route(self, node):
        folder = self.folder / node
        folder.chmod(0o777)
        names = [line.partition("=")[0] for line in (folder / "daemons").read_text().split()]
        for name in names[:-1]:
            options = [
                "-u",
                USER,
                "-g",
                USER,
                "-A",
                "127.0.0.1",
                "-P",
                "0",
                "-z",
                f"{folder}/zserv",
            ]
            options += ["--vty_socket", folder, "-i", f"{folder}/{name}.pid", "-f", "/dev/null"]
            options += ["--bfdctl", f"{folder}/bfdd.sock"] if name == "bfdd" else []
            argv = ["ip", "netns", "exec", f"{self.name}.{node}", f"{FRR}/{name}", *options]
            process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.stack.callback(process.wait)
            self.stack.callback(process.kill)
            wait_until(f"{name} of {node}", (folder / f"{name}.vty").exists, timeout_s=20.0)
        vtysh = ["vtysh", "--vty_socket", folder, "--config_dir", folder, "-f", folder / "frr.conf"]
        self.run(node, *map(str, vtysh))


@pytest.mark.kernel
@pytest.mark.frr
@pytest.mark.real_clock("FRR's threads spin")
@pytest.mark.parametrize(
    ("spec", "ends"), [("clos:n=1,r=2,m=2", "h0 h1"), ("dcell:n=3,k=1", "h0 h7")]
)
def test_hosts_reach_each_other_as_containerlab_would_start_them(spec, ends):
    """Without containerlab and images: namespaces in place of containers."""
    src, dst = ends.split()
    topology = build(spec)
    address = dotted(topology.naming.address(topology.naming.node(dst)))
    with ExitStack() as stack, TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # FRR's daemons are no root
        assert cli.main(["save", spec, "--format", "clab", "-o", f"{folder}/lab"]) == 0
        containers = Containers(Path(folder, "lab"), stack)
        containers.start()

        def answers():
            ping = containers.run(src, "ping", "-c1", "-W1", address, check=False)
            return ping.returncode == 0

        wait_until(f"{src} reaches {dst}", answers, timeout_s=60.0)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["star:n=2", "--format", "clab"], "--format clab needs -o FOLDER"),
        (["--rate", "1mbit"], "--rate needs a topology"),
        (["star:n=2", "--queue", "5"], "--queue needs --rate"),
        (["nothing.clab.yml"], "nothing.clab.yml: No such file"),
    ],
)
def test_wrong_words_of_save_are_one_line(argv, line, capsys):
    assert cli.main(["save", *argv]) == 2
    assert capsys.readouterr().err.startswith(f"weft: {line}")


def test_a_folder_with_files_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").write_text("")
    assert cli.main(["save", "star:n=2", "--format", "clab", "-o", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_named_network_is_printed_as_a_lab(capsys):
    assert cli.main(["save", "star:n=2", "--rate", "20mbit", "--queue", "9"]) == 0
    lab = parse(capsys.readouterr().out, name="lab.yaml")
    assert lab.link == LinkSpec(rate_bps=20 * Mbps, queue_packets=9)
    assert (lab.topology.spec, lab.scheme) == ("star:n=2", "ecmp")


def test_a_file_of_containerlab_takes_the_options_of_links(tmp_path, capsys):
    path = tmp_path / "ring.clab.yml"
    path.write_text(RING)
    assert cli.main(["save", str(path), "--rate", "30mbit"]) == 0
    captured = capsys.readouterr()
    lab = parse(captured.out, name="lab.yaml")
    assert lab.link
    assert lab.link.rate_bps == 30 * Mbps
    assert list(lab.own_links.values()) == [LinkSpec(rate_bps=20 * Mbps, queue_packets=50)]
    assert captured.err == (
        f"{path}: images, configuration and commands of its nodes are left out: weft routes\n"
    )

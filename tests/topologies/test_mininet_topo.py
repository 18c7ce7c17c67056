import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests import optional_parts
from weft.topologies import FAMILY_MODULES, build
from weft.topologies.core.address import dotted

pytest.importorskip("mininet", reason=optional_parts.PARTS["mininet"].get)
from weft.topologies.mininet_topo import topos

ROOT = Path(__file__).parents[2]
FILE = "topologies/mininet_topo.py"
SAME = [
    ("dcell", (4, 1), "dcell:n=4,k=1"),
    ("beta-dcell", (3, 2), "beta-dcell:n=3,k=2"),
    ("ficonn", (4, 2), "ficonn:n=4,k=2"),
    ("fattree", (4,), "fattree:k=4"),
    ("clos", (8, 2, 4), "clos:n=8,r=2,m=4"),
    ("star", (8,), "star:n=8"),
    ("complete", (5, 4), "complete:n=5,p=4"),
    ("slimfly", (5, 4), "slimfly:q=5,p=4"),
    ("jellyfish", (8, 3, 2, 7), "jellyfish:n=8,r=3,p=2,seed=7"),
]


@pytest.mark.parametrize(("family", "values", "spec"), SAME)
def test_mininet_sees_the_same_network(family, values, spec):
    topo, topology = topos[family](*values), build(spec)
    names = [topology.naming.name(node) for node in range(topology.nodes)]
    assert sorted(topo.hosts()) == sorted(names[: topology.servers])
    assert sorted(topo.switches()) == sorted(names[topology.servers :])
    found = {
        frozenset(
            [
                (info["node1"], info["intfName1"], info["port1"]),
                (info["node2"], info["intfName2"], info["port2"]),
            ]
        )
        for *_, info in topo.links(withInfo=True)
    }
    expected = {
        frozenset(
            (names[node], f"{names[node]}-eth{port}", port + (node >= topology.servers))
            for node, port in ((a, pa), (b, pb))
        )
        for a, pa, b, pb in topology.links.tolist()
    }
    assert found == expected
    assert len(topo.links()) == len(topology.links)
    for node in range(topology.servers):
        assert topo.nodeInfo(names[node])["ip"] == dotted(topology.naming.address(node)) + "/8"
    assert len({topo.nodeInfo(switch)["dpid"] for switch in topo.switches()}) == topology.switches


def test_every_family_has_a_class():
    assert list(topos) == list(FAMILY_MODULES)
    assert topos["beta-dcell"].__name__ == "BetaDcell"


def test_values_may_be_named():
    assert len(topos["fattree"](n=2, d=4).hosts()) == 32
    assert len(topos["dcell"](4, k=1).hosts()) == 20


def test_what_mininet_is_told_for_all_nodes_and_links_is_kept():
    topo = topos["star"](2, hopts={"cpu": 0.1}, sopts={"stp": True}, lopts={"bw": 10})
    assert topo.nodeInfo("h0") == {"cpu": 0.1, "ip": "10.0.0.0/8"}
    assert topo.nodeInfo("r0")["stp"]
    assert topo.linkInfo("h0", "r0")["bw"] == 10


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ((1, 1), "dcell: n must be at least 3, got 1"),
        ((4,), "dcell: k is missing, for example dcell:n=4,k=1"),
        ((4, 1.5), "dcell: k must be an integer, got '1.5'"),
        ((4, 1, 1), "dcell: takes n, k, but 3 values are given"),
    ],
)
def test_wrong_values_are_refused_in_the_words_of_weft(values, line):
    with pytest.raises(ValueError, match=f"^{line}$"):
        topos["dcell"](*values)


@pytest.mark.parametrize(("where", "name"), [("/", str(ROOT / FILE)), (str(ROOT), FILE)])
def test_it_finds_its_package_when_executed_as_mn_does(where, name):
    program = (
        "import sys; sys.path = [p for p in sys.path if p]; customs = {}\n"
        f"exec(compile(open({name!r}).read(), {name!r}, 'exec'), customs, customs)\n"
        "print(len(customs['topos']['dcell'](4, 1).hosts()))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], cwd=where, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("20\n", "")


@pytest.mark.kernel
def test_mn_makes_it():
    """In a network and process namespace of its own: mn names devices of the first namespace, and
    kills by name."""
    mn = Path("/usr/bin/mn")
    if not mn.exists():
        optional_parts.refuse(optional_parts.PARTS["mininet"].get)
    program = (
        "import mininet.clean, runpy, sys; mininet.clean.cleanup = lambda: None; "
        f"sys.argv[0] = 'mn'; runpy.run_path({str(mn)!r}, run_name='__main__')"
    )
    apart = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    options = [
        "--custom",
        FILE,
        "--topo",
        "dcell,4,1",
        "--switch",
        "lxbr",
        "--controller",
        "none",
        "--test",
        "pingpair",
    ]
    command = [*apart, sys.executable, "-c", program, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "*** Starting 5 switches" in done.stderr + done.stdout
    # h0 and h1 share a crossbar
    assert "*** Results: 0% dropped (2/2 received)" in done.stderr + done.stdout
    assert all(f"h{a} -> h{b}" in done.stderr + done.stdout for a, b in pairwise((0, 1, 0)))

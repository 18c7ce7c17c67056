"""Names that weft lacks are refused in one line, in scripts and by `mn`, without root."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any, cast

import pytest

from tests import optional_parts

pytest.importorskip("mininet", reason=optional_parts.PARTS["mininet"].get)

import mininet.node
from mininet.topo import LinearTopo

from weft.experiments.cli.machine_commands import is_refusal
from weft.testbed.mininet import scripts
from weft.testbed.mininet.mininet_arguments import Classes
from weft.testbed.traffic import iperf

MN_AS_A_USER = """
import sys
from weft.experiments.cli import cli, machine_commands
machine_commands.need_root = lambda: None
sys.exit(cli.main(["mn", *sys.argv[1:]]))
"""


def bare_node(kind: type, name: str) -> Any:
    """A node of `kind` that has made nothing in the kernel."""
    node = object.__new__(kind)
    node.name = name
    return node


@pytest.mark.parametrize(
    "name", ["dpctl", "vsctl", "isOldOVS", "controllerUUIDs", "bridgeOpts", "intfOpts"]
)
def test_open_vswitch_is_refused_by_a_switch_of_scripts(name: str) -> None:
    switch = bare_node(scripts.BridgeSwitch, "s1")
    with pytest.raises(ValueError, match="s1: switches here are bridges that learn") as error:
        getattr(switch, name)("del-flows")
    assert is_refusal(error.value)


@pytest.mark.parametrize(
    "words", [("ovs-vsctl get Interface", "s1-eth1", "ofport"), ("ovs-ofctl dump-flows s1",)]
)
def test_programs_of_open_vswitch_are_refused_at_a_switch(words: tuple[str, ...]) -> None:
    switch = bare_node(scripts.BridgeSwitch, "s1")
    with pytest.raises(ValueError, match="s1: switches here are bridges that learn"):
        switch.cmd(*words)


@pytest.mark.parametrize("kind", [mininet.node.Node, mininet.node.Host])
def test_a_node_without_a_network_is_refused(kind: type) -> None:
    with pytest.raises(ValueError, match=rf"root: {kind.__name__}\(\) makes a node without") as no:
        scripts.start_shell_in_net(bare_node(kind, "root"))
    assert is_refusal(no.value)


def test_a_controller_is_no_host() -> None:
    classes = Classes(cast("Any", None))
    with pytest.raises(ValueError, match="host: Controller is a controller, and switches here"):
        classes.host(mininet.node.Controller)


def test_a_class_of_the_cluster_edition_is_refused() -> None:
    cluster = pytest.importorskip("mininet.examples.cluster")
    classes = Classes(cast("Any", None))
    for role, kind in (
        ("host", cluster.RemoteHost),
        ("switch", cluster.RemoteOVSSwitch),
        ("link", cluster.RemoteLink),
    ):
        with pytest.raises(ValueError, match=f"{role}: {kind.__name__} is for several machines"):
            getattr(classes, role)(kind)


def test_wrong_parameters_of_a_topo_are_refused_with_the_right_ones() -> None:
    topos = {"linear": LinearTopo}
    assert len(scripts.topo_of(topos, "linear,3").switches()) == 3
    with pytest.raises(ValueError, match=r"--topo linear,two: .*; linear takes k=2, n=1"):
        scripts.topo_of(topos, "linear,two")


@pytest.mark.skipif(not scripts.MN.is_file(), reason="no mn: apt-get install mininet")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--topo", "linear,two"], "weft: --topo linear,two: can only concatenate"),
        (["--topo", "nosuch"], "weft: Invalid topo name nosuch"),
        (["--switch", "nosuch"], "weft: error: nosuch is unknown"),
        (["--custom", "nosuch"], "weft: could not find custom file: nosuch"),
    ],
)
def test_wrong_arguments_of_mn_are_one_line_and_status_2(arguments: list[str], line: str) -> None:
    command = [sys.executable, "-c", MN_AS_A_USER, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended
    assert ended.stderr.startswith(line)


def test_a_failed_iperf_is_one_line_for_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    server = iperf.IperfNode("h1", -1, "10.0.0.1")
    with pytest.raises(iperf.IperfError) as error, iperf.serving(server, "run"):
        pass
    assert is_refusal(error.value)

"""Run a script of Mininet's on weft: names in Mininet's modules are replaced in this process."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import mininet.clean
import mininet.cli
import mininet.net
import mininet.node
import mininet.nodelib
import mininet.util

from weft.testbed.mininet.command_line import CommandLine
from weft.testbed.mininet.cpu_share import LimitedHost
from weft.testbed.mininet.lan_nodes import LanSwitch
from weft.testbed.mininet.lazy_shell import LazyShell
from weft.testbed.mininet.mininet_classes import OPENFLOW_SWITCHES
from weft.testbed.mininet.net import Net
from weft.testbed.network import clean

MN = Path("/usr/bin/mn")
start_shell = mininet.node.Node.startShell
build_topo = mininet.util.buildTopo


class CPULimitedHost(LimitedHost, mininet.node.Host):  # type: ignore[misc]  # mininet has no types
    """Base class for hosts of scripts."""


class BridgeSwitch(LanSwitch, mininet.node.Switch):  # type: ignore[misc]
    """Base class for switches of scripts, and of `mn --switch ovsk,protocols=OpenFlow13`."""

    dpctl = vsctl = isOldOVS = controllerUUIDs = bridgeOpts = intfOpts = LanSwitch.refuse_openflow


class NoCleanup(mininet.clean.Cleanup):  # type: ignore[misc]
    """Remove only the remains of dead runs.

    Mininet's own kills processes by name and removes interfaces by pattern.
    """

    @classmethod
    def cleanup(cls) -> None:
        clean.clean()


def start_shell_in_net(node: mininet.node.Node, *args: Any, **params: Any) -> None:
    """Start the shell of a node of a Net, or of a placeholder for a controller.

    Raises:
        ValueError: the node is made without a Net, so nothing would remove it.
    """
    if not isinstance(node, LazyShell | mininet.node.Controller):
        raise ValueError(
            f"{node.name}: {type(node).__name__}() makes a node without a network; use "
            "net.addHost() or net.addSwitch(), or net.addNAT() for the machine's network"
        )
    start_shell(node, *args, **params)


def topo_of(topos: dict[str, Any], text: str) -> Any:
    """Return the Topo that `mn --topo` names.

    Raises:
        ValueError: its parameters are wrong.
    """
    try:
        return build_topo(topos, text)
    except (TypeError, ValueError, AttributeError) as error:
        name = text.partition(",")[0]
        build = getattr(topos[name], "build", topos[name])
        takes = [str(each) for each in signature(build).parameters.values() if each.name != "self"]
        raise ValueError(f"--topo {text}: {error}; {name} takes {', '.join(takes)}") from error


def give_names() -> None:
    """Replace Mininet's names for modules that are imported later."""
    mininet.net.Mininet = mininet.net.MininetWithControlNet = Net
    mininet.net.CLI = mininet.cli.CLI = CommandLine
    mininet.clean.Cleanup, mininet.clean.cleanup = NoCleanup, NoCleanup.cleanup
    mininet.node.CPULimitedHost = CPULimitedHost
    for name in OPENFLOW_SWITCHES:
        if hasattr(mininet.node, name):
            setattr(mininet.node, name, type(name, (BridgeSwitch,), {}))
    mininet.nodelib.LinuxBridge = type("LinuxBridge", (BridgeSwitch,), {})
    mininet.node.Node.startShell = start_shell_in_net
    mininet.util.buildTopo = topo_of
    mininet.node.findController = lambda *_: mininet.node.Controller


def run_script(path: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a script as `python PATH ARGUMENTS` would, with replaced names; return its globals.

    Errors of the script propagate.

    Raises:
        ValueError: there is no such file, or `mn` refuses its arguments.
    """
    if not path.is_file():
        hint = ": apt-get install mininet" if path == MN else ""
        raise ValueError(f"{path}: no such script{hint}")
    give_names()
    sys.argv[:] = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    if path != MN:
        return runpy.run_path(str(path), run_name="__main__")
    # As __main__, mn prints any error with a headline, and its exit status is 0.
    names = runpy.run_path(str(path), run_name=MN.name)
    try:
        names["MininetRunner"]()
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise ValueError(str(error)) from error  # mn's own, about its arguments
    return names

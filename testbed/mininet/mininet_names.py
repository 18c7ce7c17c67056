"""Let a script of Mininet's own run on our networks: names of Mininet's modules are given other
meanings in this process, and then the script is run."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mininet.clean
import mininet.cli
import mininet.net
import mininet.node
import mininet.nodelib

from weft.testbed.mininet.command_line import CommandLine
from weft.testbed.mininet.cpu_share import LimitedHost
from weft.testbed.mininet.lan_nodes import LanSwitch
from weft.testbed.mininet.mininet_classes import OPENFLOW_SWITCHES
from weft.testbed.mininet.net import Net
from weft.testbed.network import clean

MN = Path("/usr/bin/mn")


class CPULimitedHost(LimitedHost, mininet.node.Host):  # type: ignore[misc]  # mininet has no types
    """What scripts derive their own hosts from."""


class BridgeSwitch(LanSwitch, mininet.node.Switch):  # type: ignore[misc]
    """What scripts derive their own switches from, and what `mn --switch ovsk,protocols=OpenFlow13`
    derives."""


class NoCleanup(mininet.clean.Cleanup):  # type: ignore[misc]
    """Mininet's own ends processes by name and removes interfaces by pattern; this removes what
    dead runs left."""

    @classmethod
    def cleanup(cls) -> None:
        clean.clean()


def give_names() -> None:
    """Let Mininet's names mean ours from now on, for modules that are imported later."""
    mininet.net.Mininet = mininet.net.MininetWithControlNet = Net
    mininet.net.CLI = mininet.cli.CLI = CommandLine
    mininet.clean.Cleanup, mininet.clean.cleanup = NoCleanup, NoCleanup.cleanup
    mininet.node.CPULimitedHost = CPULimitedHost
    for name in OPENFLOW_SWITCHES:
        if hasattr(mininet.node, name):
            setattr(mininet.node, name, type(name, (BridgeSwitch,), {}))
    mininet.nodelib.LinuxBridge = type("LinuxBridge", (BridgeSwitch,), {})
    mininet.node.findController = lambda *_: mininet.node.Controller


def run_script(path: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a script, as `python PATH ARGUMENTS` would, with Mininet's names meaning ours; its global
    names.

    ValueError if there is no such file.  What the script raises is raised.
    """
    if not path.is_file():
        raise ValueError(
            f"{path}: no such script"
            if path != MN
            else f"{MN} is not there: apt-get install mininet"
        )
    give_names()
    sys.argv[:] = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    return runpy.run_path(str(path), run_name="__main__")

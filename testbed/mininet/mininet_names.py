"""Run a script of Mininet's on weft: names in Mininet's modules are replaced in this process."""

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
    """Base class for hosts of scripts."""


class BridgeSwitch(LanSwitch, mininet.node.Switch):  # type: ignore[misc]
    """Base class for switches of scripts, and of `mn --switch ovsk,protocols=OpenFlow13`."""


class NoCleanup(mininet.clean.Cleanup):  # type: ignore[misc]
    """Remove only the remains of dead runs.

    Mininet's own kills processes by name and removes interfaces by pattern.
    """

    @classmethod
    def cleanup(cls) -> None:
        clean.clean()


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
    mininet.node.findController = lambda *_: mininet.node.Controller


def run_script(path: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a script as `python PATH ARGUMENTS` would, with replaced names; return its globals.

    Errors of the script propagate.

    Raises:
        ValueError: there is no such file.
    """
    if not path.is_file():
        hint = ": apt-get install mininet" if path == MN else ""
        raise ValueError(f"{path}: no such script{hint}")
    give_names()
    sys.argv[:] = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    return runpy.run_path(str(path), run_name="__main__")

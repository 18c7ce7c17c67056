"""Run a script of Mininet's on weft: names in its modules are replaced in this process.

The command line that such a script, and ours, opens is at the end.
"""

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
from mininet.cli import CLI
from mininet.log import error, output

from weft.testbed.mininet.lan_nodes import LanSwitch, LimitedHost
from weft.testbed.mininet.mininet_arguments import OPENFLOW_SWITCHES
from weft.testbed.mininet.net import Net
from weft.testbed.mininet.node import LazyShell
from weft.testbed.network import clean
from weft.topologies.core.link import rate_bps

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


class CommandLine(CLI):  # type: ignore[misc]  # mininet has no types
    """mininet> with fail, restore, degrade, impair, scheme, status and routes."""

    def onecmd(self, line: str) -> Any:
        """Run a line; return True to leave.  An error is printed in one line."""
        try:
            return super().onecmd(line)
        except Exception as wrong:
            # The network is up, so the next line may succeed after any error.
            error(f"*** {type(wrong).__name__}: {' '.join(str(wrong).split())}\n")
            return None

    def default(self, line: str) -> Any:
        """Run a command on a node; print the network's fidelity unless it is PASS."""
        node, *command = line.split()
        if not command or node not in self.mn:
            return super().default(line)
        with self.mn.judged(always=False):
            return super().default(line)

    def waitForNode(self, node: Any) -> None:
        """Print a node's output until its command has ended.

        Input goes to the command only from a terminal; elsewhere it is the next lines.
        """
        if self.isatty():
            super().waitForNode(node)
            return
        while node.waiting:
            try:
                output(node.monitor())
            except KeyboardInterrupt:  # Ctrl-C is for the command
                node.sendInt()

    def _words(self, line: str, usage: str, least: int, most: int) -> list[str]:
        words = line.split()
        if not least <= len(words) <= most:
            raise ValueError(f"usage: {usage}")
        return words

    def do_source(self, line: str) -> None:
        """Read commands from a file.

        Usage: source FILE
        """
        (path,) = self._words(line, "source FILE", 1, 1)
        try:
            with open(path, encoding="utf-8") as file:
                self.inputFile: Any = file
                for command in file:
                    if self.onecmd(self.precmd(command.rstrip("\n"))):
                        break
        except OSError as wrong:
            error(f"*** source: {path}: {wrong.strerror}\n")
        finally:
            self.inputFile = None

    def do_fail(self, line: str) -> None:
        """Fail a link, or a node of a network of routers; silent: packets vanish, carriers stay.

        Usage: fail LINK|NODE [silent]
        """
        name, *silent = self._words(line, "fail LINK|NODE [silent]", 1, 2)
        if silent not in ([], ["silent"]):
            raise ValueError("usage: fail LINK|NODE [silent]")
        self.mn.fail(name, silent=bool(silent))

    def do_restore(self, line: str) -> None:
        """Undo fail.

        Usage: restore LINK|NODE
        """
        (name,) = self._words(line, "restore LINK|NODE", 1, 1)
        self.mn.restore(name)

    def do_degrade(self, line: str) -> None:
        """Set the rate of a link.

        Usage: degrade LINK RATE, as in degrade s1-s2 2mbit
        """
        link, rate = self._words(line, "degrade LINK RATE, as in degrade s1-s2 2mbit", 2, 2)
        self.mn.degrade(link, rate_bps(rate))

    def do_impair(self, line: str) -> None:
        """Set loss, delay, rate or queue of a link in both directions; clear undoes it.

        Usage: impair LINK clear, or impair LINK with any of
        loss PERCENT, delay TIME, jitter TIME, rate RATE, queue PACKETS
        """
        usage = (
            "impair LINK clear, or impair LINK loss 0.5 delay 2ms jitter 1ms rate 3mbit "
            "queue 50 (any of these)"
        )
        link, *words = [word.removeprefix("--") for word in self._words(line, usage, 2, 11)]
        if words == ["clear"]:
            self.mn.unimpair(link)
            return
        known = ("loss", "delay", "jitter", "rate", "queue")
        if len(words) % 2 or any(word not in known for word in words[::2]):
            raise ValueError(f"usage: {usage}")
        self.mn.impair(link, **dict(zip(words[::2], words[1::2], strict=True)))

    def do_scheme(self, line: str) -> None:
        """Change the scheme of a running switch fabric.

        Usage: scheme SCHEME, as in scheme drill:d=2,m=1
        """
        (scheme,) = self._words(line, "scheme SCHEME, as in scheme drill:d=2,m=1", 1, 1)
        self.mn.up.change_scheme(scheme)

    def do_status(self, line: str) -> None:
        """Show the run, its failed links and its daemons.

        Usage: status
        """
        state = self.mn.status()
        failed = ", ".join(map(str, state["failed"])) or "none"
        output(f"{state['run']}: {state['topology']}, {state['scheme']}, failed links: {failed}\n")
        if nodes := state["nodes"]:
            columns = list(nodes[0])
            rows = [columns, *([str(row[column]) for column in columns] for row in nodes)]
            widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
            for row in rows:
                cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
                output("  ".join(cells).rstrip() + "\n")

    def do_routes(self, line: str) -> None:
        """Show the routes of a node.

        Usage: routes NODE
        """
        (name,) = self._words(line, "routes NODE", 1, 1)
        if name not in self.mn:
            raise ValueError(f"no node {name}")
        out, err, _ = self.mn[name].pexec("ip route show table all")
        for route in (out or err).splitlines():
            if " table local " not in f"{route} ":
                output(f"{route}\n")

"""Mininet's command line with the commands of weft; an error does not end it."""

from __future__ import annotations

from typing import Any

from mininet.cli import CLI
from mininet.log import error, output

from weft.topologies.core.link import rate_bps


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

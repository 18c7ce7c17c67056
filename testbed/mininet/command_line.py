"""Mininet's command line, with what our networks can do besides, and which no mistake ends."""

from __future__ import annotations

from typing import Any

from mininet.cli import CLI
from mininet.log import error, output

from weft.topologies.core.link import rate_bps


class CommandLine(CLI):  # type: ignore[misc]  # mininet has no types
    """mininet> with fail, restore, degrade, impair, scheme, status, routes; an error is one line,
    and it goes on."""

    def onecmd(self, line: str) -> Any:
        """Carry a line out; True to leave."""
        try:
            return super().onecmd(line)
        except Exception as wrong:
            # whatever it is, the network is up and the next line may be right
            error(f"*** {type(wrong).__name__}: {' '.join(str(wrong).split())}\n")
            return None

    def waitForNode(self, node: Any) -> None:
        """Print what a node says until its command has ended.

        What is typed meanwhile goes to the command, but only from a terminal: elsewhere it is the
        next lines.
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
        Usage: source FILE"""
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

    def do_dpctl(self, line: str) -> None:
        """Say, for every switch, what it is in place of an OpenFlow switch.
        Usage: dpctl COMMAND"""
        for switch in self.mn.switches:
            output(switch.dpctl(*line.split()))

    def do_switch(self, line: str) -> None:
        """Stop a switch from forwarding, or let it forward again.
        Usage: switch SWITCH start|stop"""
        name, what = self._words(line, "switch SWITCH start|stop", 2, 2)
        switch = self.mn.nameToNode.get(name)
        if switch not in self.mn.switches or what not in ("start", "stop"):
            names = " ".join(one.name for one in self.mn.switches[:5])
            raise ValueError(
                f"switch SWITCH start|stop, and {line!r} is not that; switches are {names} ..."
            )
        if what == "start":
            switch.start(self.mn.controllers)
        else:
            switch.stop(deleteIntfs=False)

    def do_fail(self, line: str) -> None:
        """Fail a link, or a node of a network of routers; silent: packets vanish, carriers stay.
        Usage: fail LINK|NODE [silent]"""
        what, *silent = self._words(line, "fail LINK|NODE [silent]", 1, 2)
        if silent not in ([], ["silent"]):
            raise ValueError("usage: fail LINK|NODE [silent]")
        self.mn.fail(what, silent=bool(silent))

    def do_restore(self, line: str) -> None:
        """Undo fail.
        Usage: restore LINK|NODE"""
        (what,) = self._words(line, "restore LINK|NODE", 1, 1)
        self.mn.restore(what)

    def do_degrade(self, line: str) -> None:
        """Let a link carry less, or as much as before again.
        Usage: degrade LINK RATE, as in degrade s1-s2 2mbit"""
        link, rate = self._words(line, "degrade LINK RATE, as in degrade s1-s2 2mbit", 2, 2)
        self.mn.degrade(link, rate_bps(rate))

    def do_impair(self, line: str) -> None:
        """Let a link lose or delay packets or carry less, both ways; clear: as it was when the
        network came up. Usage: impair LINK loss PERCENT, delay TIME, jitter TIME, rate RATE, queue
        PACKETS, some of them; or clear"""
        usage = (
            "impair LINK clear, or impair LINK loss 0.5 delay 2ms jitter 1ms rate 3mbit "
            "queue 50, some of them"
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
        """Let a running switch fabric choose ports by another scheme.
        Usage: scheme SCHEME, as in scheme drill:d=2,m=1"""
        (scheme,) = self._words(line, "scheme SCHEME, as in scheme drill:d=2,m=1", 1, 1)
        self.mn.up.change_scheme(scheme)

    def do_status(self, line: str) -> None:
        """Show the run, its failed links and its daemons.
        Usage: status"""
        state = self.mn.status()
        failed = ", ".join(map(str, state["failed"])) or "none"
        output(f"{state['run']}: {state['topology']}, {state['scheme']}, failed links: {failed}\n")
        if nodes := state["nodes"]:
            columns = list(nodes[0])
            rows = [columns, *([str(row[column]) for column in columns] for row in nodes)]
            widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
            for row in rows:
                output(
                    "  ".join(
                        cell.ljust(width) for cell, width in zip(row, widths, strict=True)
                    ).rstrip()
                    + "\n"
                )

    def do_routes(self, line: str) -> None:
        """Show the routes of a node.
        Usage: routes NODE"""
        (name,) = self._words(line, "routes NODE", 1, 1)
        if name not in self.mn:
            raise ValueError(f"no node {name}")
        out, err, _ = self.mn[name].pexec("ip route show table all")
        output(
            "".join(
                f"{kept}\n"
                for kept in (out or err).splitlines()
                if " table local " not in f"{kept} "
            )
        )

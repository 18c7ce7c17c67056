"""Play the events of a lab on a running network, and measure its checks.

Events happen in this thread, each at its time.  Traffic and checks have threads of their own,
because they take time; after an error they end with the process.  Under the virtual clock every
step is exact.

A report on what was played passes from a kernel for virtual time to the host as text.
The host believes of that text only whether each check passed, and what was measured: everything
else it knows from the lab.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from tempfile import TemporaryFile
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from weft.testbed.labs import judgement, running_lab
from weft.testbed.labs.judgement import CheckVerdict
from weft.testbed.labs.lab_file import Lab
from weft.testbed.labs.timeline import LabCheck, LabEvent
from weft.testbed.linux import clock
from weft.testbed.measure.fidelity import FidelityReport, judged
from weft.testbed.measure.outage import MOST_PER_SECOND, OutageProbe, OutageTable
from weft.testbed.measure.ping import ping
from weft.testbed.measure.traceroute import ForwardingTables, trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import flows, ndp
from weft.testbed.traffic.flows import Flow, FlowOptions
from weft.testbed.traffic.ndp import NdpMessage
from weft.topologies.core.grammar import printable

LEAD_S = 1.5  # before the first event: probes begin, and listeners open
BEFORE_S = 1.0  # from the start of a probe for outages to the event
PROBE_MS = 10.0
PING_TIMEOUT_S = 1.0
TRACE_TIMEOUT_S = 0.3  # of each of three probes to a hop: the kernel limits some errors to 1/s
LOSS_S = 1.0  # usual time for which a check of loss sends
TRAFFIC_S = 60.0  # time limit of traffic with a size
T = TypeVar("T")
Report = dict[str, Any]
MOST_CHARACTERS = 2000  # of what a check has measured


class Played(NamedTuple):
    """Verdicts on checks in the order of the file, and the largest lateness of an event in s.

    fidelity: whether the machine kept up; None under the virtual clock.
    """

    verdicts: tuple[CheckVerdict, ...]
    late_s: float
    fidelity: FidelityReport | None = None


class Step(NamedTuple):
    """An action, due `at_s` after the beginning."""

    at_s: float
    action: Callable[[], object]


def play(network: RunningNetwork, lab: Lab) -> Played:
    """Play the events of `lab`, and return the verdicts on its checks.

    Raises:
        ValueError: an event is impossible on this network.
        OSError: the kernel refused an event.
    """
    player = Player(network)
    reports: list[FidelityReport] = []
    try:
        with judged(network, reports.append):
            late_s = player.run(lab)
            verdicts = tuple(player.verdict(number) for number in range(len(lab.checks)))
            for name in player.traffic:
                player.goodput_bps(name)
    finally:
        player.stop()
    fidelity = next(iter(reports), None)
    return Played(verdicts, late_s, fidelity)


def begin(function: Callable[[], T]) -> Future[T]:
    """Call `function` in a thread that ends with this process."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    return future


class Player:
    """State while a lab is played: traffic, commands and checks under way."""

    def __init__(self, network: RunningNetwork) -> None:
        self.network = network
        self.name = network.topology.naming.name
        self.begin_s = 0.0
        self.traffic: dict[str, Future[float]] = {}
        self.ndp = ""  # name of the last traffic over ndp
        self.commands: dict[str, running_lab.Process] = {}
        self.endings: list[Future[None]] = []  # of commands that get time to end
        self.checks: dict[int, Future[CheckVerdict]] = {}  # by position in the lab

    def run(self, lab: Lab) -> float:
        """Carry out all events and begin all checks; return the largest lateness in s."""
        steps = []
        for event in lab.events:
            action = getattr(self, f"do_{event.kind}")
            lead_s = flows.BEGIN_S if event.kind == "traffic" else 0.0
            steps.append(Step(event.at_s - lead_s, partial(action, event)))
        for number, check in enumerate(lab.checks):
            lead_s = BEFORE_S if check.kind == "recovers" else 0.0
            steps.append(Step(check.at_s - lead_s, partial(self._begin, number, check)))
        self.begin_s = clock.monotonic() + LEAD_S
        late_s = 0.0
        for step in sorted(steps, key=lambda step: step.at_s):
            due_s = self.begin_s + step.at_s
            clock.sleep(max(0.0, due_s - clock.monotonic()))
            late_s = max(late_s, clock.monotonic() - due_s)
            step.action()
        return late_s

    def verdict(self, number: int) -> CheckVerdict:
        """Return the verdict on a check that run() has begun; an error fails it."""
        try:
            return self.checks[number].result()
        except (OSError, ValueError, RuntimeError) as error:
            return CheckVerdict(False, f"{error}")

    def stop(self) -> None:
        """End the commands that run, and wait until all commands have ended."""
        for name in tuple(self.commands):
            self._end_command(name)
        for ending in self.endings:
            ending.result()

    def _begin(self, number: int, check: LabCheck) -> None:
        measure = getattr(self, f"check_{check.kind}")
        self.checks[number] = begin(partial(measure, check))

    def do_fail(self, event: LabEvent) -> None:
        self.network.fail(event.subject, **event.options)

    def do_restore(self, event: LabEvent) -> None:
        self.network.restore(event.subject)

    def do_degrade(self, event: LabEvent) -> None:
        tell = event.options.get("tell", False)
        self.network.degrade(event.subject, event.options["rate"], tell=tell)

    def do_impair(self, event: LabEvent) -> None:
        self.network.impair(event.subject, event.options["change"])

    def do_clear(self, event: LabEvent) -> None:
        self.network.unimpair(event.subject)

    def do_start(self, event: LabEvent) -> None:
        node = self.name(event.options["node"])
        with running_lab.output_file(self.network, node) as output:
            process = running_lab.start_command(self.network, node, event.subject, output)
        self.commands[event.options["name"]] = process

    def do_stop(self, event: LabEvent) -> None:
        started: LabEvent = event.subject
        self._end_command(started.options["name"])

    def _end_command(self, name: str) -> None:
        """End a command in a thread: one that ignores SIGTERM delays no other event."""
        if process := self.commands.pop(name, None):
            self.endings.append(begin(partial(running_lab.end_command, process)))

    def do_traffic(self, event: LabEvent) -> None:
        name = event.options["name"]
        send: Callable[[LabEvent], float] = partial(self._tcp_bps, flows.PORT + len(self.traffic))
        if event.options.get("transport") == "ndp":
            if self.ndp and not self.traffic[self.ndp].done():
                raise ValueError(
                    f"traffic {name}: ndp carries one traffic at a time, and {self.ndp} has not"
                    " ended; let it begin later"
                )
            self.ndp, send = name, self._ndp_bps
        self.traffic[name] = begin(partial(send, event))

    def goodput_bps(self, name: str) -> float:
        """Return the goodput of traffic when it has ended; ValueError if it was impossible."""
        try:
            return self.traffic[name].result()
        except (OSError, ValueError) as error:
            raise ValueError(f"traffic {name}: {error}") from None

    def _tcp_bps(self, port: int, event: LabEvent) -> float:
        """Return the goodput of TCP flows, all pairs together, in bit/s."""
        options = event.options
        size_bytes = options.get("size")
        pairs = (Flow(0.0, src, dst, size_bytes) for src, dst in event.subject)
        settings = FlowOptions(
            deadline_s=options.get("for", TRAFFIC_S),
            congestion_control=options.get("congestion", "cubic"),
            port=port,
        )
        return flows.run(self.network, pairs, settings).goodput_bps

    def _ndp_bps(self, event: LabEvent) -> float:
        """Return the goodput of messages over the NDP transport, all pairs together, in bit/s."""
        size_bytes: int = event.options["size"]
        limit_s: float = event.options.get("for", TRAFFIC_S)
        messages = [NdpMessage(0.0, src, dst, size_bytes) for src, dst in event.subject]
        parameters = ndp.parameters_of(self.network)
        outcome = ndp.run(self.network, messages, parameters, deadline_s=limit_s, real_time=False)
        delivered = len(messages) - len(outcome.undelivered)
        length_s: float = limit_s if outcome.undelivered else outcome.last_s
        return 8 * size_bytes * delivered / length_s

    def check_reachable(self, check: LabCheck) -> CheckVerdict:
        table = ping(self.network, check.subject, timeout_s=PING_TIMEOUT_S)
        return judgement.of_pings(table.pings, self.name, reachable=check.kind == "reachable")

    check_unreachable = check_reachable

    def check_path(self, check: LabCheck) -> CheckVerdict:
        path = check.subject
        (taken,) = trace(self.network, [(path[0], path[-1])], timeout_s=TRACE_TIMEOUT_S)
        return judgement.of_path(taken, path, self.name)

    def check_loss(self, check: LabCheck) -> CheckVerdict:
        table = self._probed(check, check.at_s + check.options.get("for", LOSS_S))
        return judgement.of_loss(table, check.options["below"])

    def check_recovers(self, check: LabCheck) -> CheckVerdict:
        within_s = check.options["within"]
        table = self._probed(check, check.at_s + within_s)
        return judgement.of_recovery(table, self.begin_s + check.at_s, within_s, self.name)

    def _probed(self, check: LabCheck, until_s: float) -> OutageTable:
        """Return the outages of the pairs of a check until then."""
        pairs = check.subject
        interval_ms = max(PROBE_MS, 1000 * len(pairs) / MOST_PER_SECOND)
        with OutageProbe(self.network, pairs, interval_ms=interval_ms) as probe:
            clock.sleep(max(0.0, self.begin_s + until_s - clock.monotonic()))
        return probe.table

    def check_goodput(self, check: LabCheck) -> CheckVerdict:
        goodput_bps = self.goodput_bps(check.subject.options["name"])
        return judgement.of_goodput(goodput_bps, check.options["above"])

    def check_route(self, check: LabCheck) -> CheckVerdict:
        src, dst = check.subject
        with ForwardingTables(self.network) as tables:
            try:
                next_hops = tables.next_hops(src, dst)
            except OSError:
                next_hops = ()
        return judgement.of_route(next_hops, check.options.get("via"), self.name)

    def check_output(self, check: LabCheck) -> CheckVerdict:
        node = self.name(check.options["node"])
        with TemporaryFile(dir=self.network.run.directory) as file:  # no other command writes there
            _, output = running_lab.command_output(self.network, node, check.subject, file)
        return judgement.of_output(output, check.options["matches"])


def report_of(checks: Sequence[LabCheck], played: Played) -> Report:
    """Return the report of a played lab."""
    rows = [
        {
            "check": check.text,
            "line": check.line,
            "hidden": check.hidden,
            "points": check.points * verdict.passed,
            "of": check.points,
            "passed": verdict.passed,
            "measured": verdict.measured,
            "hint": check.hint,
        }
        for check, verdict in zip(checks, played.verdicts, strict=True)
    ]
    return {
        "passed": all(row["passed"] for row in rows),
        "points": sum(row["points"] for row in rows),
        "of": sum(row["of"] for row in rows),
        "late_ms": round(1000 * played.late_s, 3),
        "fidelity": played.fidelity.verdict if played.fidelity else None,
        "fidelity_worst": played.fidelity.offender if played.fidelity else None,
        "checks": rows,
    }


def sent(played: Played) -> str:
    """Return the text that received() reads; fidelity is left out, as the clock is virtual."""
    return json.dumps([played.late_s, played.verdicts])


def received(text: str, checks: int) -> Played:
    """Return the results of as many `checks` in the text of a kernel.

    Raises:
        OSError: it is malformed, as it is after a second writer.
    """
    try:
        late_s, rows = json.loads(text)
        verdicts = tuple(_verdict(*row) for row in rows)
        well_formed = type(late_s) is float and math.isfinite(late_s) and len(verdicts) == checks
    except (ValueError, TypeError, RecursionError):
        well_formed = False
    if not well_formed:
        raise OSError("the report of the lab's kernel is malformed")
    return Played(verdicts, late_s)


def _verdict(passed: Any, measured: Any) -> CheckVerdict:
    """Return a verdict; TypeError if the types differ."""
    if not isinstance(passed, bool) or not isinstance(measured, str):
        raise TypeError
    return CheckVerdict(passed, printable(measured[:MOST_CHARACTERS])[:MOST_CHARACTERS])

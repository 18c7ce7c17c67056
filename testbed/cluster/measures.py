"""Measurements on a run over several machines, each with one result.

    with Measures("demo") as measures:
        table = measures.ping([(0, 19), (19, 0)])

Every machine measures what begins at its nodes, by the functions that measure on one machine, in a
process of serve().  A request names one of REQUESTS.  Requests and results are pickles of records
alone: reading one runs no code of the machine that sent it.

A capture of links and nodes has recorders there, and one file here.
"""

from __future__ import annotations

import io
import json
import pickle
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from heapq import merge
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from subprocess import Popen
from typing import Any, ClassVar, NamedTuple

from weft.testbed.cluster.leases import end_with_input, ignore_end_of_input
from weft.testbed.cluster.spread_run import SpreadRun
from weft.testbed.linux import clock
from weft.testbed.measure.fidelity import Component, Fidelity, FidelityReport, at_most
from weft.testbed.measure.outage import Gap, Outage, OutageProbe, OutageTable
from weft.testbed.measure.ping import Ping, PingTable, ping
from weft.testbed.measure.traceroute import Trace, trace
from weft.testbed.network.network import RunningNetwork
from weft.testbed.observe import pcapng, recorder
from weft.testbed.observe.pcapng import CapturedPacket
from weft.testbed.observe.recorder import CaptureRequest
from weft.testbed.plan.network_plan import NetworkPlan, links_from
from weft.testbed.runs import run_process
from weft.testbed.runs.run import UNNAMED, find
from weft.testbed.traffic import flows, iperf
from weft.testbed.traffic.flow_results import Flow, FlowResult, FlowResults, TcpInfo
from weft.topologies.core.address import AddressFamily

TIME = attrgetter("time_ns")
EXCHANGES = 32  # of clock readings; the fastest counts
MOST_BYTES = 1 << 30  # of a message; a capture has the most
LEAD_S = 2.0  # from the request for flows to the first one: time for all parts to listen
OPEN: list[AbstractContextManager[Any]] = []  # measurements of this part, the last first to end
NodePairs = Sequence[tuple[int, int]]
Results = dict[int, Any]  # by part
ERRORS = {kind.__name__: kind for kind in (OSError, ValueError, RuntimeError)}


class Failure(NamedTuple):
    """Exception of a request: name of its kind in ERRORS, and its text."""

    kind: str
    text: str


BUILD: Callable[[Any], None] = pickle._Unpickler.dispatch[pickle.BUILD[0]]
# classes of requests and results, by module and name
RECORDS = {
    (kind.__module__, kind.__name__): kind
    for kind in (
        *(Failure, Ping, PingTable, Trace, Gap, Outage, OutageTable, Component, FidelityReport),
        *(Flow, flows.FlowOptions, TcpInfo, FlowResult, FlowResults, iperf.IperfSpec, iperf.Iperf),
        *(CaptureRequest, CapturedPacket, AddressFamily),
    )
}


class PartCapture:
    """Capture on a part during a `with` block; then read `result`.

    result: packets by time, and the recorder's lines about their numbers.
    """

    def __init__(self, network: RunningNetwork, request: CaptureRequest) -> None:
        """Prepare a capture of links and nodes that begin on the part."""
        self._run = network.run
        self._request = request
        self.result: tuple[list[CapturedPacket], list[str]] = ([], [])

    def __enter__(self) -> PartCapture:
        with tempfile.TemporaryDirectory(prefix=f"weft-capture-{self._run.id}-") as folder:
            request = asdict(replace(self._request, folder=folder))
            self._process = run_process.start(
                self._run,
                recorder.__name__,
                [self._run.id, json.dumps(request)],
                stdout=subprocess.PIPE,
            )
            assert self._process.stdout
            if not self._process.stdout.readline():
                raise OSError(f"run {self._run.id}: the capture did not begin")
            # without names, so that they go with their processes, also after SIGKILL
            self._files = [path.open("rb") for path in Path(folder).iterdir()]
        return self

    def __exit__(self, *reason: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        lines, _ = self._process.communicate()
        packets: list[CapturedPacket] = []
        for file in self._files:
            with file:
                packets += pcapng.read(Path(f"/proc/self/fd/{file.fileno()}"))
        self.result = sorted(packets, key=TIME), lines.decode().splitlines()


def write(path: Path, parts: Iterable[tuple[list[CapturedPacket], float]], snap_bytes: int) -> None:
    """Write the packets of all parts to one file in the order of this machine's clock.

    Args:
        path: of the file.
        parts: packets by time, and by how many seconds their machine's clock is ahead.
        snap_bytes: most bytes of a packet that were kept.
    """
    shifted = [
        [packet._replace(time_ns=packet.time_ns - round(1e9 * ahead_s)) for packet in packets]
        for packets, ahead_s in parts
    ]
    names = sorted({packet.interface for packets in shifted for packet in packets})
    files = pcapng.Files(path.parent, path.stem, names, snap_bytes, most_bytes=0, most_files=0)
    files.dropped = []  # the recorders' lines have their number
    for packet in merge(*shifted, key=TIME):
        number = names.index(packet.interface)
        files.write(number, packet.time_ns, packet.data, packet.length, packet.direction)
    files.close(clock.wall_ns())


def _build(reader: Any) -> None:
    """Give a record its fields; refuse any other object, such as the class of a record."""
    if type(reader.stack[-2]) not in RECORDS.values():
        raise pickle.UnpicklingError(f"{reader.stack[-2]!r:.80} is no record")
    BUILD(reader)


class _RecordReader(pickle._Unpickler):
    """Reader of what another machine sends: RECORDS and built-in values.

    It is the reader that Python has in Python; that in C lets no subclass refuse an instruction.
    """

    dispatch: ClassVar[Any] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: _build}

    def find_class(self, module: str, name: str) -> Any:
        """Return the class of a record; raise UnpicklingError for all else."""
        if (module, name) not in RECORDS:
            raise pickle.UnpicklingError(f"{module}.{name} is no record")
        return RECORDS[module, name]


def receive(peer: Connection) -> Any:
    """Return the next message of a machine.

    Raises:
        EOFError: there is none.
        pickle.UnpicklingError: it is damaged or too long, or has more than records.
    """
    try:
        message = peer.recv_bytes(MOST_BYTES)
    except ConnectionError:
        raise
    except OSError as error:
        raise pickle.UnpicklingError(f"a message of more than {MOST_BYTES >> 20} MiB") from error
    try:
        return _RecordReader(io.BytesIO(message)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # whatever the bytes made of it
        raise pickle.UnpicklingError(f"a damaged message: {error}") from error


def serve(run: str) -> None:
    """Carry out REQUESTS on the part `run` until the input ends.

    The end of the input ends a request, too.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    end_with_input()
    network = RunningNetwork.open(run)
    requests = Connection(0, writable=False)
    results = Connection(1, readable=False)
    try:
        with suppress(EOFError, ConnectionError):
            while True:
                name, arguments, options = receive(requests)
                try:
                    result = REQUESTS[name](network, *arguments, **options)
                except tuple(ERRORS.values()) as error:
                    kinds = [name for name, kind in ERRORS.items() if isinstance(error, kind)]
                    result = Failure(kinds[0], str(error))
                results.send(result)
    finally:
        ignore_end_of_input()
        with ExitStack() as ending:
            for measurement in OPEN:
                ending.push(measurement)


def _enter(
    kind: Callable[..., Any], network: RunningNetwork, *arguments: Any, **options: Any
) -> Any:
    """Begin a measurement; return what it yields, such as a port."""
    measurement = kind(network, *arguments, **options)
    result = measurement.__enter__()
    OPEN.append(measurement)
    return None if result is measurement else result


def _leave(network: RunningNetwork, attribute: str = "") -> Any:
    """End the last measurement, and return its result, if it has one."""
    measurement = OPEN.pop()
    measurement.__exit__(None, None, None)
    return getattr(measurement, attribute, None)


def _read(network: RunningNetwork, name: str) -> float:
    read_clock: Callable[[], float] = CLOCKS[name]
    return read_clock()


CLOCKS = {"monotonic": clock.monotonic, "wall": clock.wall}
REQUESTS: dict[str, Callable[..., Any]] = {
    "ping": ping,
    "trace": trace,
    "flows": flows.run,
    "iperf": iperf.send_from,
    "iperf server": partial(_enter, iperf.serve_at),
    "outages": partial(_enter, OutageProbe),
    "capture": partial(_enter, PartCapture),
    "fidelity": partial(_enter, Fidelity),
    "leave": _leave,
    "clock": _read,
}


class ClockOffset(NamedTuple):
    """Lead of a machine's clock over this machine's, and the bound of its error."""

    ahead_s: float
    bound_s: float


class Measures(ExitStack):
    """Measurements until the end of a `with` block.  The last to begin ends first.

    offsets: of the machines' clocks, by part, at the last measurement of times.
    """

    def __init__(self, run: str | None = None) -> None:
        """Take the live run called `run`, or the only one."""
        super().__init__()
        record = find(run)
        self.run = SpreadRun(record, record.journal)
        self._home = self.run.homes()
        self._peers: list[Connection] = []
        self.offsets: list[ClockOffset] = []
        self._parts = range(len(self.run.parts))
        commands = [self.run.command(part, ["agent"]) for part in self._parts]
        for command in commands:
            near, far = Pipe()
            with far:
                # Ctrl-C is not for them
                self.enter_context(
                    Popen(command, stdin=far.fileno(), stdout=far.fileno(), start_new_session=True)
                )
            self._peers.append(self.enter_context(near))

    def _call(self, name: str, requests: Mapping[int, Iterable[Any]], **options: Any) -> Results:
        """Have parts carry out a request with their arguments; return what they return or raise."""
        for part, arguments in requests.items():
            with suppress(ConnectionError):  # _receive() reports it
                self._peers[part].send((name, arguments, options))
        results = {part: self._receive(part) for part in requests}
        for result in results.values():
            if isinstance(result, Exception):
                raise result
        return results

    def _receive(self, part: int) -> Any:
        """Return the result of a part, or its exception; OSError if its process has ended."""
        try:
            result = receive(self._peers[part])
        except (EOFError, ConnectionError):
            return OSError(f"{self.run.parts[part].machine}: measurements have ended; begin anew")
        except pickle.UnpicklingError as error:
            return OSError(f"{self.run.parts[part].machine}: {error}")
        if isinstance(result, Failure):
            return ERRORS.get(str(result.kind), OSError)(result.text)
        return result

    def _by_source(self, pairs: NodePairs) -> dict[int, tuple[NodePairs]]:
        """Return the pairs whose source each part has, as the argument of a request."""
        shares = defaultdict(list)
        for src, dst in pairs:
            shares[self._home[src]].append((src, dst))
        return {part: (own,) for part, own in shares.items()}

    def _read_clocks(self, name: str = "monotonic") -> list[ClockOffset]:
        """Return the offsets of all parts' clocks, each by the fastest of some exchanges."""
        self.offsets = [
            min(
                (self._offset(part, name) for _ in range(EXCHANGES)),
                key=lambda offset: offset.bound_s,
            )
            for part in self._parts
        ]
        return self.offsets

    def _offset(self, part: int, name: str) -> ClockOffset:
        """Return the offset by one exchange, in whose middle the part reads its clock."""
        sent_s = CLOCKS[name]()
        there_s = self._call("clock", {part: (name,)})[part]
        bound_s = (CLOCKS[name]() - sent_s) / 2
        return ClockOffset(there_s - sent_s - bound_s, bound_s)

    def ping(self, pairs: NodePairs, **options: Any) -> PingTable:
        """Ping `pairs`; see ping.ping()."""
        tables = self._call("ping", self._by_source(pairs), **options)
        return PingTable(tuple(ping for table in tables.values() for ping in table.pings))

    def trace(self, pairs: NodePairs, **options: Any) -> list[Trace]:
        """Return the paths of packets, by the machine of their source; see traceroute.trace()."""
        traces = self._call("trace", self._by_source(pairs), **options)
        return [path for paths in traces.values() for path in paths]

    def start_outages(self, pairs: NodePairs, *, interval_ms: float = 10.0) -> None:
        """Ping `pairs` until stop_outages(); see outage.OutageProbe."""
        self._shares = self._by_source(pairs)
        self._call("outages", self._shares, interval_ms=interval_ms)

    def stop_outages(self) -> OutageTable:
        """Return the outages of all pairs, on this machine's CLOCK_MONOTONIC."""
        results = self._call("leave", dict.fromkeys(self._shares, ("table",)))
        offsets = self._read_clocks()
        tables = [_shifted(table, offsets[part].ahead_s) for part, table in results.items()]
        return replace(
            max(tables, key=lambda table: table.late_s),
            outages=tuple(outage for table in tables for outage in table.outages),
            begin_s=min(table.begin_s for table in tables),
            end_s=min(table.end_s for table in tables),
            real_time=all(table.real_time for table in tables),
        )

    def iperf(self, src: int, dst: int, spec: iperf.IperfSpec) -> iperf.Iperf:
        """Run an iperf3 test; see iperf.iperf()."""
        client, server = self._home[src], self._home[dst]
        port = self._call("iperf server", {server: (dst,)})[server]
        try:
            results = self._call("iperf", {client: (src, dst, port, spec)})
        finally:
            self._call("leave", {server: ()})
        result: iperf.Iperf = results[client]
        return result

    def run_flows(self, rows: Iterable[Flow], options: flows.FlowOptions) -> FlowResults:
        """Run TCP flows; see flows.run()."""
        ordered = sorted(rows)
        offsets = self._read_clocks()
        begin_s = clock.monotonic() + LEAD_S
        tables: dict[int, FlowResults] = self._call(
            "flows",
            {
                part: (ordered, replace(options, begin_s=begin_s + offset.ahead_s))
                for part, offset in enumerate(offsets)
            },
        )
        ends = {(end.number, part): end for part, table in tables.items() for end in table.results}
        results = (
            _joined(sender, ends[number, self._home[sender.flow.dst]])
            for (number, part), sender in sorted(ends.items())
            if part == self._home[sender.flow.src]
        )
        latest = max(tables.values(), key=lambda table: table.late_s)
        measured_s = max(table.measured_s for table in tables.values())
        return replace(latest, results=tuple(results), measured_s=measured_s)

    def start_capture(self, elements: Iterable[str], **limits: Any) -> None:
        """Capture links and nodes until stop_capture(); limits: of recorder.CaptureRequest."""
        shares = defaultdict(list)
        for element in elements:
            node, _ = recorder.ports(self.run.topology, element)[0]
            shares[self._home[node]].append(element)
        self._capture = {
            part: (recorder.CaptureRequest(tuple(own), "", **limits),)
            for part, own in shares.items()
        }
        self._call("capture", self._capture)

    def stop_capture(self, path: Path) -> list[str]:
        """Write the packets of all machines to one file, by time on this machine's wall clock.

        Returns:
            Lines about the numbers of packets.
        """
        results = self._call("leave", dict.fromkeys(self._capture, ("result",)))
        offsets = self._read_clocks("wall")
        parts = [(packets, offsets[part].ahead_s) for part, (packets, _) in results.items()]
        snap_bytes = max(request.snap for (request,) in self._capture.values())
        write(path, parts, snap_bytes)
        return [line for _, lines in results.values() for line in lines]

    def start_fidelity(self) -> None:
        """Watch all parts until stop_fidelity(); see fidelity.Fidelity."""
        self._call("fidelity", dict.fromkeys(self._parts, ()))

    def stop_fidelity(self) -> FidelityReport:
        """Return the verdict on all parts; each component says on which machine it was measured."""
        reports: dict[int, FidelityReport] = self._call(
            "leave", dict.fromkeys(self._parts, ("report",))
        )
        components = [_underlay(self.run)]
        missing: dict[str, str] = {}
        for part, report in reports.items():
            machine = self.run.parts[part].machine
            components += [
                replace(component, where=f"{machine} {component.where}".strip())
                for component in report.components
            ]
            missing |= {f"{machine} {name}": text for name, text in report.not_measured.items()}
        return replace(
            reports[0],
            components=tuple(components),
            not_measured=missing,
            decisive=all(report.decisive for report in reports.values()),
            daemon_processes=sum(report.daemon_processes for report in reports.values()),
        )


def _joined(sender: FlowResult, receiver: FlowResult) -> FlowResult:
    """Return the result of a flow by what the machines of its two ends know."""
    error = sender.error or receiver.error
    return replace(receiver, began_s=sender.began_s, tcp=sender.tcp, error=error)


def _underlay(run: SpreadRun) -> Component:
    """Return the largest excess of the underlay's delay over a cut link's own."""
    plan = NetworkPlan(UNNAMED, run.topology, **links_from(run.journal))
    excesses_us = {}
    for part in run.parts:
        for link, peer in part.cut.items():
            spec = plan.link_spec(link)
            excesses_us[link] = part.underlay_us[peer] - (spec.delay_us if spec else 0)
    worst = max(excesses_us, key=excesses_us.__getitem__, default=0)
    excess_us = max(0, excesses_us.get(worst, 0))
    where = run.topology.link_name(worst) if excess_us else ""
    return at_most("delay of the underlay beyond its own", excess_us, "us", 0, None, where)


def _shifted(table: OutageTable, ahead_s: float) -> OutageTable:
    """Return the outages on this machine's clock; theirs is ahead by `ahead_s`."""

    def moved(gap: Gap) -> Gap:
        end_s = None if gap.end_s is None else gap.end_s - ahead_s
        return replace(gap, begin_s=gap.begin_s - ahead_s, end_s=end_s)

    outages = (replace(outage, gaps=tuple(map(moved, outage.gaps))) for outage in table.outages)
    return replace(
        table,
        outages=tuple(outages),
        begin_s=table.begin_s - ahead_s,
        end_s=table.end_s - ahead_s,
    )

"""TCP and UDP throughput by iperf3."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from weft.testbed.linux import clock, netns
from weft.testbed.runs.network_handle import NetworkHandle, require_rate
from weft.testbed.runs.run import ENVIRONMENT
from weft.topologies.core.address import dotted

CONNECT_TIMEOUT_S = 3.0  # TCP repeats a lost SYN after 1 s
# after the test, to exchange results over queues that are still full
GRACE_S = 10.0
LISTENING = "0A"  # the state in /proc/net/tcp


class IperfError(OSError):
    """iperf3 failed; the message is its own."""


@dataclass(frozen=True, kw_only=True)
class IperfSpec:
    """Options of a test; ValueError if iperf3 has no such test.

    omit_s: time before those `seconds` that no figure includes: slow start.
    reverse: data goes from the server to the client.
    udp_rate_bps: rate of UDP in all streams together; None: TCP at full speed.
    congestion: congestion control of TCP; None: the kernel's default.
    """

    seconds: int = 5
    omit_s: int = 0
    reverse: bool = False
    udp_rate_bps: int | None = None
    streams: int = 1
    congestion: str | None = None

    def __post_init__(self) -> None:
        if self.seconds < 1 or self.omit_s < 0 or not 1 <= self.streams <= 128:
            raise ValueError(
                f"iperf: at least 1 second, omit at least 0, 1 to 128 streams; got {self}"
            )
        if self.udp_rate_bps is not None and (self.udp_rate_bps < self.streams or self.congestion):
            raise ValueError(
                f"iperf: UDP needs a rate over 0 and has no congestion control; got {self}"
            )

    def arguments(self) -> list[str]:
        """Return the client's arguments other than addresses and ports."""
        options = {"--time": self.seconds, "--omit": self.omit_s, "--parallel": self.streams}
        if self.udp_rate_bps is not None:
            options["--bitrate"] = self.udp_rate_bps // self.streams
        arguments = [text for pair in options.items() for text in map(str, pair)]
        if self.reverse:
            arguments.append("--reverse")
        if self.udp_rate_bps is not None:
            arguments.append("--udp")
        if self.congestion:
            arguments += ["--congestion", self.congestion]
        return arguments


@dataclass(frozen=True)
class Iperf:
    """Result of a test.

    goodput_bps: payload that arrived, per second.
    sent_bps: payload that the sender sent, per second.
    retransmits: TCP segments that were sent again; None for UDP.
    packets, lost_packets, jitter_us: of UDP; None for TCP.
    report: the report of iperf3.
    """

    goodput_bps: float
    sent_bps: float
    report: dict[str, Any] = field(repr=False, compare=False)
    retransmits: int | None = None
    packets: int | None = None
    lost_packets: int | None = None
    jitter_us: float | None = None


class IperfNode(NamedTuple):
    """A node that runs iperf3: name, descriptor of its namespace, address."""

    name: str
    netns: int
    address: str


def iperf(net: NetworkHandle, src: int, dst: int, spec: IperfSpec) -> Iperf:
    """Run an iperf3 test from server `src` to server `dst`; leave no process behind.

    Raises:
        IperfError: iperf3 failed, or took GRACE_S longer than the test.
        ValueError: nothing limits TCP.
    """
    if spec.udp_rate_bps is None:
        require_rate(net, "iperf3 with TCP")
    with serve_at(net, dst) as port:
        return send_from(net, src, dst, port, spec)


def serve_at(net: NetworkHandle, dst: int) -> AbstractContextManager[int]:
    """Return the context of a server at `dst`; it yields its port."""
    return serving(_end(net, dst), net.identity.id)


def send_from(net: NetworkHandle, src: int, dst: int, port: int, spec: IperfSpec) -> Iperf:
    """Run the client of a test; its server may be on another machine."""
    return send(_end(net, src), _end(net, dst), port, spec, net.identity.id)


def _end(net: NetworkHandle, node: int) -> IperfNode:
    """Return `node` as an end of a test, without a namespace if it is on another machine."""
    naming = net.topology.naming
    namespace = net.netns(node) if node in net.local_nodes else -1
    return IperfNode(naming.name(node), namespace, dotted(naming.address(node)))


def between(
    client: IperfNode, server: IperfNode, spec: IperfSpec, run: str, *, port: int | None = None
) -> Iperf:
    """Run an iperf3 test between two nodes of `run`.

    Args:
        client: node of the client.
        server: node of the server.
        spec: options of the test.
        run: id of the run.
        port: of the server; None: any free port.

    Raises:
        IperfError: iperf3 failed, or took GRACE_S longer than the test.
    """
    with serving(server, run, port) as open_port:
        return send(client, server, open_port, spec, run)


@contextmanager
def serving(server: IperfNode, run: str, port: int | None = None) -> Iterator[int]:
    """Yield the port of a server for one test; IperfError if it does not listen."""
    if not shutil.which("iperf3"):
        raise IperfError("iperf3 is not installed: apt-get install iperf3")
    port = _free_port(server.netns) if port is None else port
    argv = ["iperf3", "-4", "-J", "-s", "-1", "-p", f"{port}"]
    with _Process(server.netns, argv, run) as process:
        process.wait_until_it_listens(port, f"iperf3 to {server.name}")
        yield port


def send(client: IperfNode, server: IperfNode, port: int, spec: IperfSpec, run: str) -> Iperf:
    """Run the client of a test; see between()."""
    title = f"iperf3 {client.name} -> {server.name}"
    argv = ["iperf3", "-4", "-J", "-c", server.address, "-p", f"{port}"]
    argv += ["--connect-timeout", f"{1000 * CONNECT_TIMEOUT_S:.0f}", *spec.arguments()]
    with _Process(client.netns, argv, run) as process:
        return _read(process.output(spec.omit_s + spec.seconds + GRACE_S, title), title)


def iperfs(net: NetworkHandle, pairs: Iterable[tuple[int, int]], spec: IperfSpec) -> list[Iperf]:
    """Run a test for each of `pairs` at the same time; return the results in their order.

    Raises:
        IperfError: the first failure, when all tests have ended.
    """
    pairs = list(pairs)
    with ThreadPoolExecutor(max_workers=max(1, len(pairs))) as pool:
        return list(pool.map(lambda pair: iperf(net, pair[0], pair[1], spec), pairs))


def _free_port(namespace: int) -> int:
    with netns.inside(namespace), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


class _Process:
    """A process of a run in the namespace of a node, killed when the `with` block ends."""

    def __init__(self, namespace: int, command: list[str], run: str) -> None:
        with netns.inside(namespace):
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=os.environ | {ENVIRONMENT: run},
            )

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.kill()
        self.popen.communicate()

    def wait_until_it_listens(self, port: int, title: str) -> None:
        """Return when a process in the namespace listens to TCP `port`.

        Raises:
            IperfError: the process ended, or does not listen in time.
        """
        # psutil would look in our namespace, not in the process's
        sockets = Path(f"/proc/{self.popen.pid}/net/tcp")
        end_s = clock.monotonic() + GRACE_S
        while clock.monotonic() < end_s:
            if self.popen.poll() is not None:
                raise IperfError(
                    f"{title}: the server ended: {_words(self.popen.communicate()[0])}"
                )
            for line in sockets.read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    return
            clock.sleep(0.002)
        raise IperfError(f"{title}: the server does not listen after {GRACE_S} s")

    def output(self, timeout_s: float, title: str) -> str:
        """Return the output of the process when it has ended."""
        try:
            return self.popen.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            raise IperfError(
                f"{title}: not finished after {timeout_s:g} s, killed; much loss stalls its "
                "control connection, which is TCP"
            ) from None


def _words(text: str) -> str:
    """Return the error in a report, as one line."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return " ".join(text.split()) or "no message"


def _read(text: str, title: str) -> Iperf:
    """Return the figures of the client's report; `title` begins errors.

    Raises:
        IperfError: it reports a failure.
    """
    try:
        report = json.loads(text)
        if "error" in report:  # with exit status 0
            raise IperfError(f"{title}: {report['error']}")
        end = report["end"]
        sent = end["sum_sent"]
        rates_bps = (
            float(end["sum_received"]["bits_per_second"]),
            float(sent["bits_per_second"]),
        )
        if "sum" not in end:  # TCP
            return Iperf(*rates_bps, report, retransmits=sent.get("retransmits"))
        total = end["sum"]
        return Iperf(
            *rates_bps,
            report,
            packets=int(total["packets"]),
            lost_packets=int(total["lost_packets"]),
            jitter_us=1000 * float(total["jitter_ms"]),
        )
    except (ValueError, KeyError, TypeError):
        raise IperfError(f"{title}: {_words(text)}") from None

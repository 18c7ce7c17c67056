"""TCP and UDP throughput by iperf3."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from weft.testbed.linux import clock, netns
from weft.testbed.runs.network_handle import NetworkHandle, require_rate
from weft.testbed.runs.run import ENVIRONMENT
from weft.topologies.core.address import dotted

CONNECT_TIMEOUT_S = 3.0  # TCP repeats a lost SYN after 1 s
# how much longer than its test iperf3 may take, to exchange results over queues that are still full
GRACE_S = 10.0
LISTENING = "0A"  # the state in /proc/net/tcp


class IperfError(RuntimeError):
    """iperf3 failed; the text has its own words."""


@dataclass(frozen=True, kw_only=True)
class IperfSpec:
    """What to ask of iperf3; ValueError for what it cannot do.

    omit_s: of the beginning, before those `seconds` and in no figure: slow start.
    reverse: data goes from the destination to the source.
    udp_rate_bps: UDP at this rate in all streams together; None: TCP as fast as it goes.
    congestion: TCP's congestion control; None: the kernel's default.
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
        """The client's, addresses and ports aside."""
        found = [
            "--time",
            str(self.seconds),
            "--omit",
            str(self.omit_s),
            "--parallel",
            str(self.streams),
        ]
        if self.reverse:
            found.append("--reverse")
        if self.udp_rate_bps is not None:
            found += ["--udp", "--bitrate", str(self.udp_rate_bps // self.streams)]
        if self.congestion:
            found += ["--congestion", self.congestion]
        return found


@dataclass(frozen=True)
class Iperf:
    """What one test measured.

    goodput_bps: payload that arrived.  retransmits: TCP segments that were sent again; None for
        UDP.
    packets, lost_packets, jitter_us: of UDP; None for TCP.  report: everything that iperf3 says, as
        it says it.
    """

    src: int
    dst: int
    spec: IperfSpec
    goodput_bps: float
    retransmits: int | None
    packets: int | None
    lost_packets: int | None
    jitter_us: float | None
    report: dict[str, Any] = field(repr=False, compare=False)


class IperfNode(NamedTuple):
    """A node that iperf3 runs on: its name, a descriptor of its namespace, its address."""

    name: str
    netns: int
    address: str


def iperf(net: NetworkHandle, src: int, dst: int, spec: IperfSpec) -> Iperf:
    """One iperf3 test from server `src` to server `dst`.

    Raises IperfError with its words if it fails or takes GRACE_S longer than the test; no process
    is left behind. ValueError for TCP that nothing would hold back.
    """
    if spec.udp_rate_bps is None:
        require_rate(net, "iperf3 with TCP")
    naming = net.topology.naming
    ends = [
        IperfNode(naming.name(node), net.netns(node), dotted(naming.address(node)))
        for node in (src, dst)
    ]
    text, what = between(ends[0], ends[1], spec, net.identity.id)
    return _read(src, dst, spec, text, what)


def between(
    client: IperfNode, server: IperfNode, spec: IperfSpec, run: str, *, port: int | None = None
) -> tuple[str, str]:
    """The report of one iperf3 test between two nodes of `run`, and what the test is called in
    errors.

    port: which the server listens at; None: any that is free.  Raises IperfError as iperf() does.
    """
    if not shutil.which("iperf3"):
        raise IperfError("iperf3 is not installed: apt-get install iperf3")
    what = f"iperf3 {client.name} -> {server.name}"
    at = str(_free_port(server.netns) if port is None else port)
    with ExitStack() as stack:
        listening = stack.enter_context(
            _Process(server.netns, ["iperf3", "-4", "-J", "-s", "-1", "-p", at], run)
        )
        listening.wait_until_it_listens(int(at), what)
        connect = [
            "-4",
            "-J",
            "-c",
            server.address,
            "-p",
            at,
            "--connect-timeout",
            str(int(1000 * CONNECT_TIMEOUT_S)),
        ]
        sending = stack.enter_context(
            _Process(client.netns, ["iperf3", *connect, *spec.arguments()], run)
        )
        return sending.output(spec.omit_s + spec.seconds + GRACE_S, what), what


def rates(
    client: IperfNode, server: IperfNode, spec: IperfSpec, run: str, *, port: int | None = None
) -> tuple[float, float]:
    """Bits per second that the server received and that the client sent, in one iperf3 test.

    IperfError if it fails.
    """
    text, what = between(client, server, spec, run, port=port)
    goodput_bps = _read(0, 1, spec, text, what).goodput_bps
    return goodput_bps, float(json.loads(text)["end"]["sum_sent"]["bits_per_second"])


def iperfs(net: NetworkHandle, pairs: Iterable[tuple[int, int]], spec: IperfSpec) -> list[Iperf]:
    """iperf() for all of `pairs` at the same time, in their order.

    The first failure is raised when all have ended.
    """
    todo = list(pairs)
    with ThreadPoolExecutor(max_workers=max(1, len(todo))) as pool:
        return list(pool.map(lambda pair: iperf(net, pair[0], pair[1], spec), todo))


def _free_port(namespace: int) -> int:
    with netns.inside(namespace), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


class _Process:
    """A process of a run in the namespace of a node, ended at the latest when the `with` ends."""

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

    def wait_until_it_listens(self, port: int, what: str) -> None:
        """Return when a process in the namespace listens to TCP `port`.

        IperfError if none will.
        """
        # psutil would look in our namespace, not in the process's
        sockets = Path(f"/proc/{self.popen.pid}/net/tcp")
        end = clock.monotonic() + GRACE_S
        while clock.monotonic() < end:
            if self.popen.poll() is not None:
                raise IperfError(f"{what}: the server ended: {_words(self.popen.communicate()[0])}")
            for line in sockets.read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                    return
            clock.sleep(0.002)
        raise IperfError(f"{what}: the server does not listen after {GRACE_S} s")

    def output(self, timeout_s: float, what: str) -> str:
        """All that the process writes until it ends."""
        try:
            return self.popen.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            raise IperfError(f"{what}: not finished after {timeout_s:g} s, killed") from None


def _words(text: str) -> str:
    """What iperf3 complains of, in one line."""
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return " ".join(text.split()) or "nothing said"


def _read(src: int, dst: int, spec: IperfSpec, text: str, what: str) -> Iperf:
    """The client's report as figures; IperfError if it is one of failure."""
    try:
        report = json.loads(text)
        if "error" in report:  # with exit status 0
            raise IperfError(f"{what}: {report['error']}")
        end = report["end"]
        goodput = float(end["sum_received"]["bits_per_second"])
        if spec.udp_rate_bps is None:
            return Iperf(
                src,
                dst,
                spec,
                goodput,
                end["sum_sent"].get("retransmits"),
                None,
                None,
                None,
                report,
            )
        total = end["sum"]
        jitter_us = 1000 * float(total["jitter_ms"])
        return Iperf(
            src,
            dst,
            spec,
            goodput,
            None,
            int(total["packets"]),
            int(total["lost_packets"]),
            jitter_us,
            report,
        )
    except (ValueError, KeyError, TypeError):
        raise IperfError(f"{what}: {_words(text)}") from None

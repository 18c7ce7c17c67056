"""The process behind `weft capture`: packet sockets at ports of a run, whose packets go to files.

A link is captured at its first end, where both directions pass: sent packets after the queue,
arriving packets before a silent failure drops them.  A node is captured at all its ports.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from weft.testbed.linux import clock, netns, tc_filters
from weft.testbed.linux.icmp import SO_TIMESTAMPNS, TIMESPEC
from weft.testbed.network.network import RunningNetwork
from weft.testbed.observe.pcapng import INBOUND, OUTBOUND, Files
from weft.testbed.plan.element import LinkElement, parse_element
from weft.testbed.runs import run_process
from weft.topologies.core.topology import Topology

ALL = 3  # ETH_P_ALL
SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS, OUTGOING = 33, 263, 6, 4
RECEIVE_BYTES = 1 << 23  # receive buffer of a port
BATCH_PACKETS = 500  # of one port in a turn
LONGEST = 1 << 16  # bytes of a packet
LEAST_SNAP = 64
TURN_S = 0.5  # interval of flushes and of checks that the run is up


@dataclass(frozen=True)
class CaptureRequest:
    """Names of links and nodes to capture, the folder of their files, and limits, 0 for none."""

    elements: tuple[str, ...]
    folder: str
    snap: int = LONGEST
    file_bytes: int = 0
    files: int = 0
    control: bool = False


def ports(topology: Topology, name: str) -> list[tuple[int, int]]:
    """Return the (node, port) pairs at which the packets of a link or a node are captured.

    Raises:
        ValueError: no link or node is called `name`.
    """
    element = parse_element(topology, name)
    if isinstance(element, LinkElement):
        node, port, _, _ = topology.links[element.link].tolist()
        return [(node, port)]
    return [(element.node, port) for port, *_ in topology.ports(element.node)]


class CapturedPort(NamedTuple):
    """A port with a packet socket.  number: of the interface in `files`."""

    packets: socket.socket
    files: Files
    number: int
    element: str


class Recorder:
    """Capture until closed.  packets: captured so far, by link or node."""

    def __init__(self, network: RunningNetwork, request: CaptureRequest) -> None:
        self._snap = request.snap
        self._poll = select.epoll()
        self._ports: dict[int, CapturedPort] = {}
        self._files: list[Files] = []
        self.packets = dict.fromkeys(request.elements, 0)
        for element in self.packets:
            self._capture(network, element, request)

    def _capture(self, network: RunningNetwork, element: str, request: CaptureRequest) -> None:
        ends = ports(network.topology, element)
        names = [network.plan.ends[node][port].dev for node, port in ends]
        limits = {"most_bytes": request.file_bytes, "most_files": request.files}
        files = Files(Path(request.folder), element, names, request.snap, **limits)
        self._files.append(files)
        for number, ((node, _), name) in enumerate(zip(ends, names, strict=True)):
            packets = _packet_socket(network.netns(node), name, control=request.control)
            self._ports[packets.fileno()] = CapturedPort(packets, files, number, element)
            self._poll.register(packets.fileno(), select.EPOLLIN)

    def turn(self, timeout_s: float) -> None:
        """Write the packets that arrived; wait at most `timeout_s` for the first."""
        for fd, _ in self._poll.poll(timeout_s):
            port = self._ports[fd]
            for _ in range(BATCH_PACKETS):
                try:
                    packet = port.packets.recvmsg(LONGEST, 64)
                except BlockingIOError:
                    break
                except OSError:  # its device went down
                    continue
                self._write(port, packet)

    def _write(self, port: CapturedPort, packet: tuple[Any, ...]) -> None:
        """Write a packet as recvmsg() returned it."""
        data, ancillary, _, address = packet
        seconds, ns = TIMESPEC.unpack(ancillary[0][2])
        time_ns = seconds * 1_000_000_000 + ns
        direction = OUTBOUND if address[2] == OUTGOING else INBOUND
        port.files.write(port.number, time_ns, data[: self._snap], len(data), direction)
        self.packets[port.element] += 1

    def flush(self) -> None:
        """Make written packets visible to readers."""
        for files in self._files:
            files.flush()

    def close(self) -> int:
        """Close the files; return the number of packets that the kernel dropped."""
        self._poll.close()
        for port in self._ports.values():
            statistics = port.packets.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
            _, dropped = struct.unpack("II", statistics)
            port.files.dropped[port.number] += dropped
            port.packets.close()
        self._ports.clear()
        end_ns = clock.wall_ns()
        for files in self._files:
            files.close(end_ns)
        return sum(sum(files.dropped) for files in self._files)


def _packet_socket(namespace: int, dev: str, *, control: bool) -> socket.socket:
    """Return a packet socket bound to `dev`; control: it receives control messages only."""
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    with netns.inside(namespace):
        packets = socket.socket(socket.AF_PACKET, kind, 0)
    packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
    packets.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    if control:
        # keep the whole packet or nothing
        tc_filters.filter_socket(packets, tc_filters.control_packet_program(0xFFFFFFFF, 0))
    packets.bind((dev, ALL))
    return packets


def main(argv: Sequence[str]) -> None:
    """Capture until SIGINT, SIGTERM or the end of the run; if killed, the flushed packets stay."""
    run, request_text = argv
    run_process.end_with_parent()
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: signals.append(received))
    fields = json.loads(request_text)
    request = CaptureRequest(**{**fields, "elements": tuple(fields["elements"])})
    network = RunningNetwork.open(run)
    recorder = Recorder(network, request)
    print("capturing", flush=True)
    flushed_s = clock.monotonic()
    while not signals:
        recorder.turn(TURN_S)
        if clock.monotonic() - flushed_s > TURN_S:
            flushed_s = clock.monotonic()
            recorder.flush()
            if not network.run.alive():
                break
    recorder.turn(0)
    dropped = recorder.close()
    for element, packets in recorder.packets.items():
        print(f"{element}: {packets} packets", flush=True)
    if dropped:
        print(f"{dropped} packets are missing: the kernel's buffer was full", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The process behind `weft capture`: packet sockets at ports of a run, whose packets go to files.

Of a link its first end is listened at, where both directions pass: what that end sends, after its
queue, and what arrives, before a silent failure drops it.  Of a node, all its ports.
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

from weft.testbed.linux import clock, netns, tc
from weft.testbed.linux.icmp import SO_TIMESTAMPNS, TIMESPEC
from weft.testbed.network.network import RunningNetwork
from weft.testbed.observe.pcapng import INBOUND, OUTBOUND, Files
from weft.testbed.plan.element import LinkElement, parse_element
from weft.testbed.runs import run_process

ALL = 3  # ETH_P_ALL
SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS, OUTGOING = 33, 263, 6, 4
RECEIVE_BYTES = 1 << 23  # of packets that may wait at a port
MOST_AT_ONCE = 500
LONGEST, LEAST_SNAP = 1 << 16, 64
TURN_S = 0.5  # between two looks whether the run goes on, and between what others can read


@dataclass(frozen=True)
class Wish:
    """What to capture: names of links and nodes; where to; limits, 0 for none."""

    what: tuple[str, ...]
    folder: str
    snap: int = LONGEST
    file_bytes: int = 0
    files: int = 0
    control: bool = False


def ports(network: RunningNetwork, what: str) -> list[tuple[int, int]]:
    """Return the (node, port) pairs at which the packets of `what`, a link or a node, are captured.

    Raises:
        ValueError: no such link or node.
    """
    topology = network.topology
    element = parse_element(topology, what)
    if isinstance(element, LinkElement):
        a, port, _, _ = topology.links[element.link].tolist()
        return [(a, port)]
    return [(element.node, port) for port, *_ in topology.ports(element.node)]


class Recorder:
    """Captures until it is closed.  packets: so far, by what they were captured for."""

    def __init__(self, network: RunningNetwork, wish: Wish) -> None:
        self._snap = wish.snap
        self._poll = select.epoll()
        self._sockets: dict[int, tuple[socket.socket, Files, int, str]] = {}
        self._files: list[Files] = []
        self.packets = dict.fromkeys(wish.what, 0)
        for what in self.packets:
            ends = ports(network, what)
            names = [network.plan.ends[node][port].dev for node, port in ends]
            limits = {"most_bytes": wish.file_bytes, "most_files": wish.files}
            files = Files(Path(wish.folder), what, names, wish.snap, **limits)
            self._files.append(files)
            for number, ((node, _), name) in enumerate(zip(ends, names, strict=True)):
                made = _listen(network.netns(node), name, control=wish.control)
                self._sockets[made.fileno()] = made, files, number, what
                self._poll.register(made.fileno(), select.EPOLLIN)

    def turn(self, timeout_s: float) -> None:
        """Take what has come; return after `timeout_s` at the latest if nothing does."""
        for fd, _ in self._poll.poll(timeout_s):
            made, files, number, what = self._sockets[fd]
            for _ in range(MOST_AT_ONCE):
                try:
                    data, ancillary, _, address = made.recvmsg(LONGEST, 64)
                except BlockingIOError:
                    break
                except OSError:  # its device went down
                    continue
                seconds, ns = TIMESPEC.unpack(ancillary[0][2])
                direction = OUTBOUND if address[2] == OUTGOING else INBOUND
                files.write(
                    number, seconds * 1_000_000_000 + ns, data[: self._snap], len(data), direction
                )
                self.packets[what] += 1

    def flush(self) -> None:
        """Let others read what was written so far."""
        for files in self._files:
            files.flush()

    def close(self) -> int:
        """End it; how many packets the kernel had no room for."""
        self._poll.close()
        for made, files, number, _ in self._sockets.values():
            _, dropped = struct.unpack("II", made.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
            files.dropped[number] += dropped
            made.close()
        self._sockets.clear()
        at_ns = clock.wall_ns()
        for files in self._files:
            files.close(at_ns)
        return sum(sum(files.dropped) for files in self._files)


def _listen(namespace: int, dev: str, *, control: bool) -> socket.socket:
    """A packet socket at `dev` of `namespace`."""
    with netns.inside(namespace):
        made = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0
        )
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
    made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    if control:
        tc.of_socket(made, tc.of_control_packets(0xFFFFFFFF, 0))  # all of one, or nothing
    made.bind((dev, ALL))
    return made


def main(argv: Sequence[str]) -> None:
    """Capture until SIGINT or SIGTERM, or until the run ends; killed with its parent, it leaves
    what was flushed."""
    run, wish_text = argv
    run_process.end_with_parent()
    ending: list[bool] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ending.append(True))
    given = json.loads(wish_text)
    network = RunningNetwork.open(run)
    recorder = Recorder(network, Wish(**{**given, "what": tuple(given["what"])}))
    print("capturing", flush=True)
    looked_s = clock.monotonic()
    while not ending:
        recorder.turn(TURN_S)
        if clock.monotonic() - looked_s > TURN_S:
            looked_s = clock.monotonic()
            recorder.flush()
            if not network.run.alive():
                break
    recorder.turn(0)
    dropped = recorder.close()
    for what, packets in recorder.packets.items():
        print(f"{what}: {packets} packets", flush=True)
    if dropped:
        print(f"{dropped} packets came too fast and are missing", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

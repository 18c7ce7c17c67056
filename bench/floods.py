"""Floods of one link: what they cost neighbours elsewhere.  Run as root.

A process at h0 sends as many packets a second as it is told to, by its link to h3, to the group
that wakes daemons: first such as a stranger makes, which the filter of h3's socket drops; then one
that h0's daemon has said, over and over, which passes the filter and is refused where it is opened.
Only h0 and h3 may lose a neighbour, and only each other.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.report import Line, show
from weft.testbed.linux import netns
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.node_daemon.sockets import FRAME_BYTES, ROUTINE, URGENT
from weft.topologies import build

PER_S, SECONDS, BATCH = 100_000, 5.0, 100
NO_ROOM, REST_S = (errno.ENOBUFS, errno.EAGAIN, errno.EINTR), 0.001
STRANGE = b"\x77\x01\x01\x00"
ROOT = Path(__file__).parents[1]
VICTIM, FLOODER, PORT = 3, 0, 1


class Header(ctypes.Structure):
    """struct mmsghdr, of a packet to where the socket is connected."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_bytes", ctypes.c_uint32),
        ("vector", ctypes.c_void_p),
        ("vectors", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_bytes", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent_bytes", ctypes.c_uint),
    )


class Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("at", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Batches:
    """`payloads` by the socket `fd`, which is connected: BATCH at a time, over and over.

    full: how often there was no room for any of a batch.
    ValueError for payloads that are not whole batches.
    """

    def __init__(self, fd: int, payloads: Sequence[bytes]) -> None:
        if not payloads or len(payloads) % BATCH:
            raise ValueError(f"payloads come in batches of {BATCH}, got {len(payloads)}")
        self.full = 0
        self._fd, self._turn, self._batches = fd, 0, len(payloads) // BATCH
        self._texts = [ctypes.create_string_buffer(each, len(each)) for each in payloads]
        self._vectors = [
            Vector(ctypes.addressof(text), len(each))
            for text, each in zip(self._texts, payloads, strict=True)
        ]
        headers = [Header(vector=ctypes.addressof(each), vectors=1) for each in self._vectors]
        self._headers = (Header * len(headers))(*headers)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def send(self) -> int:
        """Send the next batch and return how many packets left.

        Fewer leave where socket or link are full; if none does, wait a moment.

        Raises:
            OSError: any other error.
        """
        at = ctypes.byref(
            self._headers, ctypes.sizeof(Header) * BATCH * (self._turn % self._batches)
        )
        self._turn += 1
        sent = int(self._libc.sendmmsg(self._fd, at, BATCH, 0))
        if sent >= 0:
            return sent
        if (number := ctypes.get_errno()) not in NO_ROOM:
            raise OSError(number, f"sendmmsg: {os.strerror(number)}")
        self.full += 1
        time.sleep(REST_S)
        return 0


def flood(fd: int, payload: bytes, per_s: int, seconds: float) -> None:
    """Send `payload` by the socket `fd`, connected, for so long, and print how many have left."""
    batches, sent, began_s = Batches(fd, [payload] * BATCH), 0, time.monotonic()
    while (now_s := time.monotonic() - began_s) < seconds:
        if sent > per_s * now_s:
            time.sleep((sent - per_s * now_s) / per_s)
        sent += batches.send()
    print(sent)


def overheard(network: RunningNetwork, node: int, port: int, count: int) -> list[bytes]:
    """Return `count` sealed messages of the daemon at the other end of the link at `port`."""
    found: list[bytes] = []
    with (
        netns.inside(network.netns(node)),
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0x8) as ear,
    ):
        ear.bind((network.plan.ends[node][port].dev, 0x0800))
        while len(found) < count:
            packet, (_, _, kind, *_) = ear.recvfrom(FRAME_BYTES)
            if kind != socket.PACKET_OUTGOING and packet[16:20] == socket.inet_aton(ROUTINE[0]):
                found.append(packet[28:])
    return found


def lost_elsewhere(network: RunningNetwork, before: int) -> int:
    """Neighbours that were lost since `before`, but for h0 and h3 by each other."""
    each_other = 0
    for name, other in (("h0", "h3"), ("h3", "h0")):
        log = (network.run.directory / "log" / f"{name}.log").read_text()
        each_other += log.count(f"neighbour {other} down")
    return sum(row.losses for row in network.rows().values()) - each_other - before


def one(network: RunningNetwork, payload: bytes) -> tuple[float, int]:
    """Packets a second that left, and neighbours that were lost elsewhere."""
    before = lost_elsewhere(network, 0)
    with (
        netns.inside(network.netns(FLOODER)),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.setsockopt(
            socket.SOL_SOCKET, socket.SO_BINDTODEVICE, network.plan.ends[FLOODER][PORT].dev.encode()
        )
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
        sender.connect(URGENT)
        command = [sys.executable, "-m", "bench.floods", str(sender.fileno()), payload.hex()]
        done = subprocess.run(
            command, cwd=ROOT, pass_fds=[sender.fileno()], stdout=subprocess.PIPE, check=True
        )
    network.wait_until_converged()
    return int(done.stdout) / SECONDS, lost_elsewhere(network, before)


def main() -> None:
    """Exit status 1 if a neighbour was lost that had nothing to do with the flood."""
    if len(sys.argv) > 2:
        flood(int(sys.argv[1]), bytes.fromhex(sys.argv[2]), PER_S, SECONDS)
        return
    lines, failed = [], 0
    network = RunningNetwork.create(build("dcell:n=3,k=1"), None, scheme="dr", packed=0)
    try:
        for name, payload in (
            ("of a stranger", STRANGE),
            ("said by a neighbour before", *overheard(network, VICTIM, PORT, 1)),
        ):
            per_s, lost = one(network, payload)
            failed += lost
            lines += [Line(f"packets a second {name}", per_s, "", at_least=PER_S * 0.9)]
            lines += [Line("  neighbours lost elsewhere", lost, "", at_most=0)]
        refused = control.status(network.run.directory, "h3")["refused"]
    finally:
        network.down()
    show(
        f"Floods of h0-h3, {SECONDS:g} s each, {os.cpu_count()} processors; refused at h3: "
        f"{refused}",
        lines,
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

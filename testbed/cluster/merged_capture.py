"""One capture of links and nodes on several machines: recorders there, one file here."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, replace
from heapq import merge
from operator import attrgetter
from pathlib import Path

from weft.testbed.linux import clock
from weft.testbed.network.network import RunningNetwork
from weft.testbed.observe import pcapng, recorder
from weft.testbed.observe.pcapng import CapturedPacket
from weft.testbed.observe.recorder import CaptureRequest
from weft.testbed.runs import run_process

TIME = attrgetter("time_ns")


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

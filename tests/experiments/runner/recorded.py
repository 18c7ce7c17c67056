"""Started under a virtual clock: one run, with everything that its networks carry and that its
daemons say.

Reads /run/uml/run.json and reports the row, the log of every daemon, and of
each network how many packets arrived at any interface and the digest of all of them with their
times, in order.
"""

import hashlib
import json
import os
import signal
import socket
import struct
import time
from contextlib import suppress
from dataclasses import asdict

from weft.experiments.runner.definition import Run, find
from weft.testbed.linux import netns
from weft.testbed.network import bring_up
from weft.testbed.network.network import RunningNetwork
from weft.testbed.runs.run import RunRecord as NetworkRun
from weft.testbed.uml import host_questions

ETH_P_ALL, SO_RCVBUFFORCE, SO_TIMESTAMPNS, PACKET_OUTGOING = 3, 33, 35, 4
BUFFER_BYTES = 1 << 26
LOOK_S = 0.2  # of virtual time
told: dict[str, list[object]] = {"captures": [], "logs": []}


class Capture:
    """A process that takes down every packet that arrives in the namespaces of a network."""

    def __init__(self, network: RunningNetwork) -> None:
        self.sockets = []
        for space in network.spaces.values():
            with netns.inside(space.fd):
                taken = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            taken.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            taken.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            taken.setblocking(False)
            self.sockets.append(taken)
        self.end, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.write(theirs, json.dumps(self.take()).encode())
            os._exit(0)
        os.close(theirs)
        for taken in self.sockets:
            taken.close()

    def take(self) -> dict[str, object]:
        """Until SIGTERM.  Looks seldom: to be woken for each packet would cost more than all
        else."""
        over: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
        digests, packets = [hashlib.sha256() for _ in self.sockets], 0
        while True:
            last = bool(over)
            for taken, digest in zip(self.sockets, digests, strict=True):
                with suppress(BlockingIOError):
                    while True:
                        frame, about, _, address = taken.recvmsg(1 << 16, 64)
                        if address[2] != PACKET_OUTGOING:
                            packets += 1
                            digest.update(
                                about[0][2][: struct.calcsize("=qq")] + address[0].encode() + frame
                            )
            if last:
                return {"packets": packets, "digests": [digest.hexdigest() for digest in digests]}
            time.sleep(LOOK_S)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        told["captures"].append(json.loads(os.read(self.end, 1 << 20)))
        os.waitpid(self.pid, 0)


def record() -> None:
    """Let every network that comes up from now on be captured, until it goes down."""
    stages, down = bring_up.program_stages, RunningNetwork.down
    captures: dict[NetworkRun, Capture] = {}

    def stages_and_capture(network: RunningNetwork, *args: object) -> list[bring_up.Stage]:
        def begin() -> None:
            captures[network.run] = Capture(network)

        return [("capture", begin), *stages(network, *args)]

    def collect_logs(network: RunningNetwork) -> None:
        captures.pop(network.run).stop()
        logs = sorted((network.run.directory / "log").glob("*.log"))
        told["logs"].append({log.name: log.read_text() for log in logs})
        down(network)

    bring_up.program_stages = stages_and_capture
    RunningNetwork.down = collect_logs


def main() -> None:
    run = Run(**json.loads((host_questions.FOLDER / "run.json").read_text()))
    record()
    row = asdict(find(run.experiment).measure(run))
    host_questions.report(json.dumps({"row": row, **told}))


main()

"""Ten million hostile packets to daemons of every scheme on the kernel.

For each scheme with messages a network comes up, and a process at one node sends hostile packets to
its neighbour.  They are made from messages of that scheme by tests/fuzz and carry no seal.  One in
ONE_IN is a sealed message of the node's own daemon, replayed, most with a bit changed; the filter
of the neighbour's socket lets it pass.  Meanwhile no daemon may end, raise or lose a neighbour.
Afterwards routes must be as before, and no process larger by more than 10 MB.
"""

from __future__ import annotations

import argparse
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

from bench.floods import BATCH, Batches, overheard
from bench.report import Line, show
from tests.fuzz.hostile_messages import Campaign, network_for, schemes
from weft.testbed.linux import fib, netns
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon.sockets import URGENT
from weft.topologies import build

BATCHES = 50  # calls after which packets are the same ones again
MOST_FULL = 60_000  # calls for which there was no room: a minute without a packet
ONE_IN = 100
PER_S, MESSAGES = 50_000, 10_000_000
MOST_GROWTH_BYTES = 10_000_000
ROOT = Path(__file__).parents[1]


def send(fd: int, payloads: list[bytes], per_s: int, count: int) -> None:
    """Send `count` packets by the socket `fd`, which is connected: `payloads` over and over."""
    batches, sent, began_s = Batches(fd, payloads), 0, time.monotonic()
    while sent < count:
        if (early_s := sent / per_s - (time.monotonic() - began_s)) > 0:
            time.sleep(early_s)
        sent += batches.send()
        if batches.full > MOST_FULL:
            raise TimeoutError(
                f"{sent} of {count} packets left, and {MOST_FULL} batches had no room"
            )
    print(time.monotonic() - began_s)


def hostile(scheme: str, sealed: list[bytes], target: int, draw: Random) -> list[bytes]:
    """Payloads for `target`."""
    search, made = Campaign(scheme, draw), []
    while len(made) < BATCH * BATCHES:
        if len(made) % ONE_IN == 0:
            frame = bytearray(draw.choice(sealed))
            if draw.random() < 0.8:
                frame[draw.randrange(len(frame))] ^= 1 << draw.randrange(8)
            made.append(bytes(frame))
        else:
            payload = search._changed(draw.choice(search.kept), target)[:1200]
            made.append(payload or b"\0")
    return made


@contextmanager
def up(scheme: str) -> Iterator[RunningNetwork]:
    """A small network that `scheme` routes, converged."""
    network = RunningNetwork.create(build(network_for(scheme)), None, scheme=scheme)
    try:
        network.wait_until_converged()
        yield network
    finally:
        network.down()


def routes(network: RunningNetwork) -> Mapping[int, object]:
    """The kernel's routes of every node that has a daemon."""
    found = {}
    for node in network.rows():
        with network.at(node) as at:
            found[node] = fib.routes(at)
    return found


def memory(network: RunningNetwork) -> Mapping[int, int]:
    """Bytes of each daemon's process that are in memory."""
    page = resource.getpagesize()
    return {
        row.pid: int(Path(f"/proc/{row.pid}/statm").read_text(encoding="ascii").split()[1]) * page
        for row in network.rows().values()
        if row.pid
    }


def one(scheme: str, count: int, per_s: int, seed: int) -> tuple[float, list[str]]:
    """Packets a second that left, and what was wrong then."""
    with up(scheme) as network:
        topology, daemons = network.topology, network.rows()
        ends = next(
            ends for ends in topology.links.tolist() if {ends[0], ends[2]} <= daemons.keys()
        )
        a, port_a, target, port = ends
        payloads = hostile(
            scheme, overheard(network, target, port, 20), target, Random(f"{seed} {scheme}")
        )
        before, routed, size = network.rows(), routes(network), memory(network)
        with (
            netns.inside(network.netns(a)),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        ):
            sender.setsockopt(
                socket.SOL_SOCKET, socket.SO_BINDTODEVICE, network.plan.ends[a][port_a].dev.encode()
            )
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
            sender.connect(URGENT)
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
                file.write("\n".join(each.hex() for each in payloads))
                file.flush()
                words = ["--send", str(sender.fileno()), file.name, str(per_s), str(count)]
                command = [sys.executable, "-m", "bench.hostile_packets", *words]
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    pass_fds=[sender.fileno()],
                    stdout=subprocess.PIPE,
                    check=True,
                )
        network.wait_until_converged()
        return count / float(done.stdout), list(wrong(network, before, routed, size))


def wrong(
    network: RunningNetwork,
    before: Mapping[int, object],
    routed: Mapping[int, object],
    size: Mapping[int, int],
) -> Iterator[str]:
    """Return the differences from the state before."""
    name = network.topology.naming.name
    for node, row in network.rows().items():
        was = before[node]
        for field in ("pid", "deaths", "packets_failed", "losses"):
            if getattr(row, field) != getattr(was, field):
                yield f"{name(node)}: {field} {getattr(was, field)}, now {getattr(row, field)}"
    for node, now in routes(network).items():
        if now != routed[node]:
            yield f"{name(node)}: other routes than before"
    for pid, now_bytes in memory(network).items():
        if now_bytes > size.get(pid, 0) + MOST_GROWTH_BYTES:
            yield f"process {pid}: {size.get(pid, 0)} bytes, now {now_bytes}"


def main() -> None:
    """Exit status 1 if anything was wrong."""
    if sys.argv[1:2] == ["--send"]:
        fd, file, per_s, count = sys.argv[2:]
        send(
            int(fd),
            [bytes.fromhex(line) for line in Path(file).read_text().split()],
            int(per_s),
            int(count),
        )
        return
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--packets", type=int, default=MESSAGES, help="in all")
    given.add_argument("--per-s", type=int, default=PER_S)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--scheme", action="append", help="default: each that says anything")
    options = given.parse_args()
    wanted = options.scheme or schemes()
    lines, failed = [], []
    for scheme in wanted:
        per_s, found = one(scheme, options.packets // len(wanted), options.per_s, options.seed)
        print(
            f"{scheme}: {per_s:.0f} packets a second, wrong: {found or 'nothing'}",
            file=sys.stderr,
            flush=True,
        )
        lines.append(Line(f"{scheme}: what was wrong", len(found), "", at_most=0))
        failed += [f"{scheme}: {each}" for each in found]
    show(
        f"{options.packets // len(wanted) * len(wanted)} hostile packets, at most "
        f"{options.per_s} a second",
        lines,
    )
    for each in failed:
        print(f"  {each}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

"""Changes and readings of the kernel by our messages, beside pyroute2's calls for the same.

Processor time, in turns.  These rows are why some messages are packed by testbed/linux, and all
others by pyroute2.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from statistics import median

from pyroute2 import IPRoute
from pyroute2.ethtool import Ethtool

from bench.report import Line, arguments, in_turns, show
from weft.testbed.linux import fib, interface, netlink, netns, tc
from weft.testbed.linux.interface import NamedDevice, Offloads
from weft.testbed.linux.iproute import iproute
from weft.topologies.core.address import Prefix
from weft.topologies.core.link import LinkSpec, Mbps

PORT = NamedDevice(1000, "port")
OWN, NEXT_HOP = 0x0A000001, 0x0A000002  # 10.0.0.1 and 10.0.0.2
MAC = bytes.fromhex("020000000002")
LINK = LinkSpec(rate_bps=100 * Mbps, queue_packets=250)


def cpu_us(work: Callable[[], object], count: int) -> float:
    """Return the microseconds of processor time of `work` / `count`, the kernel's included."""
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1000 / count


def pairs(
    own: netlink.Socket, ip: IPRoute, count: int
) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return what ours and pyroute2's side do `count` times, by what it is."""
    times = range(count)
    index = PORT.ifindex
    destinations = [Prefix(0x0B000000 + (i << 8), 24) for i in times]
    texts = [str(destination) for destination in destinations]
    via = [(index, PORT.dev, NEXT_HOP)]
    return {
        "a route": (
            lambda: own.request(fib.route_message(to, via, OWN) for to in destinations),
            lambda: [
                ip.route("replace", dst=to, oif=index, gateway="10.0.0.2", flags=4, proto=177)
                for to in texts
            ],
        ),
        "a neighbour": (
            lambda: own.request(
                fib.neighbour_message(index, PORT.dev, NEXT_HOP + i, MAC) for i in times
            ),
            lambda: [
                ip.neigh(
                    "replace",
                    ifindex=index,
                    dst=f"10.0.{i // 250}.{i % 250}",
                    lladdr=MAC.hex(":"),
                )
                for i in times
            ],
        ),
        "an interface set up": (
            lambda: own.request(interface.set_up(PORT) for _ in times),
            lambda: [ip.link("set", index=index, state="up") for _ in times],
        ),
        "a queue's length": (
            lambda: own.request(tc.fifo(PORT, tc.DATA, tc.FIFO, 100 + i, flags=0) for i in times),
            lambda: [
                ip.tc("replace", "pfifo", index, tc.FIFO, parent=tc.DATA, limit=100 + i)
                for i in times
            ],
        ),
        "interfaces read": (
            lambda: [interface.interfaces(own) for _ in times],
            lambda: [list(ip.get_links()) for _ in times],
        ),
        "queues read": (
            lambda: [list(tc.disciplines(own)) for _ in times],
            lambda: [list(ip.get_qdiscs()) for _ in times],
        ),
    }


def notifications(fd: int, ours: netlink.Socket, count: int) -> tuple[float, float]:
    """Return the microseconds of reading a notification, by us and by pyroute2."""
    with netns.inside(fd):
        listener = netlink.Socket(groups=1 << 6)  # RTNLGRP_IPV4_ROUTE
    events = iproute(fd)
    events.bind()
    via = [(PORT.ifindex, PORT.dev, NEXT_HOP)]
    ours.request(
        fib.route_message(Prefix(0x0E000000 + (i << 8), 24), via, OWN) for i in range(count)
    )

    def by_us() -> None:
        left = count
        while left:
            for _, _, _, body in netlink.split(listener.receive()):
                fib.parse_route(body)
                left -= 1

    def by_pyroute2() -> None:
        left = count
        while left:
            left -= sum(message["event"] == "RTM_NEWROUTE" for message in events.get())

    try:
        return cpu_us(by_us, count), cpu_us(by_pyroute2, count)
    finally:
        listener.close()
        events.close()


def offloads() -> tuple[float, float]:
    """Return the microseconds of turning a port's offloads off by us, and reading by pyroute2."""
    with closing(Offloads()) as ours:
        ours.turn_off(PORT.dev)
        mine = cpu_us(lambda: [ours.turn_off(PORT.dev) for _ in range(20)], 20)
    with closing(Ethtool()) as theirs:
        return mine, cpu_us(lambda: [theirs.get_features(PORT.dev) for _ in range(20)], 20)


def import_ms() -> float:
    """Return the milliseconds of processor time of importing pyroute2."""
    times = []
    for statement in ("pass", "import pyroute2"):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", statement], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * (times[1] - times[0])


def main() -> None:
    """Print each change and reading by us, and pyroute2's time / ours."""
    options = arguments(__doc__, count=200, rounds=5)
    lines: list[Line] = []

    def work() -> None:
        netns.check(netns.libc.unshare(netns.CLONE_NEWNET), "unshare")
        fd = os.open(netns.OWN, os.O_RDONLY | os.O_CLOEXEC)
        with closing(netlink.Socket()) as own, closing(iproute(fd)) as ip:
            ends = PORT, NamedDevice(1001, "other")
            sides = map(interface.veth_side, ends)
            own.request([interface.veth(*sides, fd, "here"), *tc.shape(PORT, LINK)])
            own.request(map(interface.set_up, (interface.LOOPBACK, *ends)))
            own.request([interface.add_address(PORT, Prefix(OWN, 24))])
            for what, (ours, theirs) in pairs(own, ip, options.count).items():
                lines.extend(compared(what, ours, theirs, options.count, options.rounds))
            both = notifications(fd, own, options.count)
            lines.extend(rows("a notification read", *both))
            lines.extend(rows("offloads of a port", *offloads()))
        os.close(fd)

    netns.in_thread(work)
    opened = median(import_ms() for _ in range(options.rounds))
    lines.append(Line("importing pyroute2, processor time", opened, "ms"))
    show("Netlink by us and by pyroute2", lines)


def compared(
    what: str, ours: Callable[[], object], theirs: Callable[[], object], count: int, rounds: int
) -> list[Line]:
    """Return the rows of two ways, measured in turns; the first turn of each is not counted."""
    ours()
    theirs()
    times = in_turns(
        {"ours": lambda: cpu_us(ours, count), "theirs": lambda: cpu_us(theirs, count)}, rounds
    )
    return rows(what, median(times["ours"]), median(times["theirs"]))


def rows(what: str, ours_us: float, theirs_us: float) -> list[Line]:
    """Return the rows of two times."""
    return [
        Line(f"{what}, by us", ours_us, "us"),
        Line(f"{what}, pyroute2 / ours", theirs_us / ours_us, "x"),
    ]


if __name__ == "__main__":
    main()

"""Counters of the kernel during a measurement: of every port, and of the load of the machine.

Ports are read by one dump of disciplines and one of links per namespace, over open netlink sockets.
Load is that of the machine and of the run's processes, from two readings.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from weft.testbed.linux import clock, netlink, tc
from weft.testbed.linux.interface import interfaces
from weft.testbed.linux.process import Closing
from weft.testbed.linux.tc import NO_COUNTS, counters_of
from weft.testbed.runs.network_handle import NetworkHandle, netlink_of, ports

HTB_GLOBAL = struct.Struct("=5I")  # the last: packets that went past the class


class PortCounters(NamedTuple):
    """Counters of one port, since its creation or between two snapshots.

    Attributes:
        control_packets: sent ahead of the queue; included in the sent ones.
        queue_drops: drops by the full queue, as configured.
        header_drops: drops by the full queue of headers, where switches trim.
        blackholed: drops on arrival by a silent failure.
        control_drops: not configured, as are link_drops and link_errors.
        waiting_packets: in the queue now, never a difference; likewise waiting_bytes.
    """

    sent_packets: int = 0
    sent_bytes: int = 0
    control_packets: int = 0
    queue_drops: int = 0
    blackholed: int = 0
    control_drops: int = 0
    link_drops: int = 0
    link_errors: int = 0
    received_packets: int = 0
    received_bytes: int = 0
    waiting_packets: int = 0
    waiting_bytes: int = 0
    header_drops: int = 0

    @property
    def unexplained_drops(self) -> int:
        """Return the packets lost outside the configured queue."""
        return self.control_drops + self.link_drops + self.link_errors

    def since(self, before: PortCounters) -> PortCounters:
        """Return the increase since `before`."""
        counted = PortCounters(*(now - then for now, then in zip(self, before, strict=True)))
        return counted._replace(
            waiting_packets=self.waiting_packets, waiting_bytes=self.waiting_bytes
        )


@dataclass(frozen=True)
class Snapshot:
    """Counters of every port by interface index, at `at_s` on CLOCK_MONOTONIC."""

    at_s: float
    ports: Mapping[int, PortCounters]

    def since(self, before: Snapshot) -> Snapshot:
        """Return the increase since `before`; a new port counts from 0."""
        none = PortCounters()
        return Snapshot(
            self.at_s,
            {index: now.since(before.ports.get(index, none)) for index, now in self.ports.items()},
        )


class PortCounterReader(Closing):
    """Read counters of a network until closed, or until the end of a `with` block."""

    def __init__(self, net: NetworkHandle) -> None:
        self._sockets = [netlink_of(net, node) for node in net.local_nodes]
        self._ports = frozenset(ports(net))

    def close(self) -> None:
        for socket in self._sockets:
            socket.close()
        self._sockets.clear()

    def snapshot(self) -> Snapshot:
        """Return the counters of all ports; those of one node belong to one instant."""
        counters: dict[int, PortCounters] = {}
        at_s = clock.monotonic()
        for socket in self._sockets:
            disciplines = _disciplines(socket)
            for index, link in socket.link_counters().items():
                if index in self._ports:
                    counters[index] = _port(disciplines.get(index, {}), link)
        return Snapshot(at_s, counters)

    def carrier_changes(self) -> dict[int, int]:
        """Return the carrier changes of each port since its creation, by interface index."""
        return {
            index: state.carrier_changes
            for socket in self._sockets
            for index, state in interfaces(socket).items()
            if index in self._ports
        }


def _disciplines(socket: netlink.Socket) -> dict[int, dict[str, dict[int, bytes]]]:
    """Return the attributes of disciplines by interface index and kind.

    The queue of headers has the kind "headers".
    """
    by_index: dict[int, dict[str, dict[int, bytes]]] = defaultdict(dict)
    for index, handle, kind, attributes in tc.disciplines(socket):
        by_index[index]["headers" if handle == tc.HEADER_FIFO else kind] = attributes
    return by_index


def _port(disciplines: Mapping[str, dict[int, bytes]], link: tuple[int, ...]) -> PortCounters:
    """Combine the counters of a port's disciplines and of its link (netlink.LINK_64)."""
    queues = defaultdict(
        lambda: NO_COUNTS, {kind: counters_of(values) for kind, values in disciplines.items()}
    )
    port = _of_link(link)._replace(blackholed=queues["clsact"].drops)
    exact = disciplines.get(tc.EXACT_KIND)
    if not exact and not {"htb", "pfifo"} <= disciplines.keys():
        return port
    root = queues[tc.EXACT_KIND if exact else "htb"]
    control, queue_drops, header_drops = (
        tc.exact_counters(exact)
        if exact
        else (_direct_packets(disciplines["htb"]), queues["pfifo"].drops, queues["headers"].drops)
    )
    return port._replace(
        sent_packets=root.sent_packets,
        sent_bytes=root.sent_bytes,
        control_packets=control,
        queue_drops=queue_drops,
        # the root counts its children's drops as its own
        control_drops=root.drops - queue_drops - header_drops,
        header_drops=header_drops,
        waiting_packets=root.waiting_packets,
        waiting_bytes=root.waiting_bytes,
    )


def _of_link(link: tuple[int, ...]) -> PortCounters:
    """Return the counters of a link without a discipline."""
    received, sent, received_bytes, sent_bytes, *lost = link
    return PortCounters(
        sent_packets=sent,
        sent_bytes=sent_bytes,
        link_errors=lost[0] + lost[1],
        link_drops=lost[2] + lost[3],
        received_packets=received,
        received_bytes=received_bytes,
    )


def _direct_packets(htb: Mapping[int, bytes]) -> int:
    """Return the packets that went past the classes of an HTB."""
    options = netlink.attributes(htb[tc.TCA_OPTIONS])
    *_, packets = HTB_GLOBAL.unpack(options[tc.TCA_HTB_INIT])
    return int(packets)


@dataclass(frozen=True)
class Waits:
    """Time that a process was runnable without running, and its turns, since it began."""

    wait_ns: int
    turns: int


@dataclass(frozen=True)
class HostLoad:
    """Counters at `at_s` on CLOCK_MONOTONIC; None where this kernel keeps none.

    Attributes:
        pressure_us: time in which any process waited for a processor (PSI).
        processors_s: time of all processors.
        steal_s: part of it that the hypervisor gave to others.
        softnet_dropped: packets dropped by a full receive backlog, on the whole machine.
        softnet_squeezed: receive rounds that ended before their work, on the whole machine.
        waits: by name of the process.
    """

    at_s: float
    pressure_us: int | None
    processors_s: float
    steal_s: float
    softnet_dropped: int
    softnet_squeezed: int
    waits: Mapping[str, Waits]


def host_load(processes: Mapping[str, int]) -> HostLoad:
    """Return the counters now.

    Args:
        processes: process ids by name; a process that has ended is left out.
    """
    softnet = [
        [int(word, 16) for word in line.split()] for line in _lines("/proc/net/softnet_stat")
    ]
    import psutil  # not for `weft status`, which has it wait

    cpu = psutil.cpu_times()
    guests_s = cpu.guest + cpu.guest_nice  # the kernel counts them as user time too
    return HostLoad(
        clock.monotonic(),
        pressure_us(),
        sum(cpu) - guests_s,
        cpu.steal,
        sum(row[1] for row in softnet),
        sum(row[2] for row in softnet),
        {name: wait for name, pid in processes.items() if (wait := waits(pid))},
    )


def pressure_us() -> int | None:
    """Return the µs since boot in which any process waited for a processor; None without PSI."""
    try:
        some = _lines("/proc/pressure/cpu")[0]
    except OSError:  # not built in, or switched off: the file is missing or refuses to be read
        return None
    return int(some.rpartition("total=")[2])


def waits(pid: int) -> Waits | None:
    """Return the waits of a process's main thread; None if it has ended, or without schedstat."""
    try:
        _, wait_ns, turns = _lines(f"/proc/{pid}/schedstat")[0].split()
    except OSError:
        return None
    return Waits(int(wait_ns), int(turns))


def steal_percent(before: HostLoad, after: HostLoad) -> float:
    """Return the share of processor time that the hypervisor gave to others."""
    processors_s = after.processors_s - before.processors_s
    return 100 * (after.steal_s - before.steal_s) / processors_s if processors_s else 0.0


def pressure_percent(before: HostLoad, after: HostLoad) -> float | None:
    """Return the share of time in which any process waited for a processor."""
    if before.pressure_us is None or after.pressure_us is None:
        return None
    return 100 * (after.pressure_us - before.pressure_us) / 1e6 / (after.at_s - before.at_s)


def mean_waits_ms(before: HostLoad, after: HostLoad) -> dict[str, float]:
    """Return the mean wait per turn of each process that ran, by name."""
    waits_ms = {}
    for name, now in after.waits.items():
        then = before.waits.get(name, Waits(0, 0))
        if now.turns > then.turns:
            waits_ms[name] = (now.wait_ns - then.wait_ns) / (now.turns - then.turns) / 1e6
    return waits_ms


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def pss_kib(pid: int) -> int:
    """Return the proportional set size of a process."""
    import psutil

    return int(psutil.Process(pid).memory_full_info().pss) // 1024

"""Counters of every port of a network: what was sent, what waits, what was dropped and by whom.

Two dumps for each namespace over a socket that is kept: 1,450 queueing disciplines and 830 links in
18 ms, where `tc -s -j` takes half a second for 1,000.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from weft.testbed.linux import clock, netlink, tc
from weft.testbed.plan.network_plan import IFINFO
from weft.testbed.runs.network_handle import NetworkHandle, netlink_of, ports

TCA_STATS = 3
# bytes, packets, drops, overlimits, two unused, packets and bytes that wait
TC_STATS = struct.Struct("=QIIIIIII")
HTB_GLOBAL = struct.Struct("=5I")  # the last: packets that went past the class
IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS, IFLA_CARRIER_CHANGES = 29, 8, 35


class PortCounters(NamedTuple):
    """One port.  All counts, since it was made or between two snapshots, but for what waits, which
    is as it is.

    sent: by its queue.  control: ahead of the queue, among those sent.  queue_drops: what found the
    queue full: the network that was asked for.  header_drops: headers that found theirs full, where
    switches trim.  blackholed: what a silent failure dropped on arrival.
    control_drops, link_drops, link_errors: all other losses, none of which was configured.
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
        """Packets lost outside the queue that was configured."""
        return self.control_drops + self.link_drops + self.link_errors

    def since(self, before: PortCounters) -> PortCounters:
        """What was counted after `before`."""
        counted = PortCounters(*(now - then for now, then in zip(self, before, strict=True)))
        return counted._replace(
            waiting_packets=self.waiting_packets, waiting_bytes=self.waiting_bytes
        )


@dataclass(frozen=True)
class Snapshot:
    """The counters of every port, by interface index, at `at_s` on CLOCK_MONOTONIC."""

    at_s: float
    ports: Mapping[int, PortCounters]

    def since(self, before: Snapshot) -> Snapshot:
        """What was counted after `before`; a port that is new counts from nothing."""
        none = PortCounters()
        return Snapshot(
            self.at_s,
            {index: now.since(before.ports.get(index, none)) for index, now in self.ports.items()},
        )


class PortCounterReader:
    """Takes snapshots of a network's counters, until closed or until its `with` ends."""

    def __init__(self, net: NetworkHandle) -> None:
        self._sockets = [netlink_of(net, node) for node in range(net.topology.nodes)]
        self._ports = frozenset(ports(net))

    def __enter__(self) -> PortCounterReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for socket in self._sockets:
            socket.close()
        self._sockets.clear()

    def snapshot(self) -> Snapshot:
        """All ports, now; those of one node at one instant."""
        found: dict[int, PortCounters] = {}
        at_s = clock.monotonic()
        for socket in self._sockets:
            queues = _queues(socket)
            for index, link in socket.link_counters().items():
                if index in self._ports:
                    found[index] = _port(queues.get(index, {}), link)
        return Snapshot(at_s, found)

    def carrier_changes(self) -> dict[int, int]:
        """How often each port's carrier came or went since it was made, by interface index."""
        found = {}
        only = IFINFO.pack(0, 0, 0, 0, 0) + netlink.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
        for socket in self._sockets:
            for body in socket.dump(netlink.RTM_GETLINK, only):
                _, _, index, _, _ = IFINFO.unpack_from(body)
                if index in self._ports:
                    (found[index],) = struct.unpack(
                        "=I", netlink.attributes(body, IFINFO.size)[IFLA_CARRIER_CHANGES]
                    )
        return found


class _Queue(NamedTuple):
    """What one queueing discipline tells."""

    bytes: int
    packets: int
    drops: int
    waiting_packets: int
    waiting_bytes: int
    direct_packets: int


def _queues(socket: netlink.Socket) -> dict[int, dict[str, _Queue]]:
    """The queueing disciplines of a namespace by interface index and kind; the queue of headers as
    "headers"."""
    found: dict[int, dict[str, _Queue]] = {}
    for body in socket.dump(netlink.RTM_GETQDISC, tc.TCMSG.pack(0, 0, 0, 0, 0)):
        _, index, handle, _, _ = tc.TCMSG.unpack_from(body)
        has = netlink.attributes(body, tc.TCMSG.size)
        if TCA_STATS not in has:
            continue
        kind = "headers" if handle == tc.HEADER_FIFO else has[tc.TCA_KIND].rstrip(b"\0").decode()
        size, packets, drops, _, _, _, waiting_packets, waiting_bytes = TC_STATS.unpack_from(
            has[TCA_STATS]
        )
        direct = 0
        if kind == "htb":
            direct = HTB_GLOBAL.unpack(netlink.attributes(has[tc.TCA_OPTIONS])[tc.TCA_HTB_INIT])[4]
        found.setdefault(index, {})[kind] = _Queue(
            size, packets, drops, waiting_packets, waiting_bytes, direct
        )
    return found


def _port(queues: Mapping[str, _Queue], link: tuple[int, ...]) -> PortCounters:
    """The counters of a port from those of its queueing disciplines and of its link
    (netlink.LINK_64)."""
    received, sent, received_bytes, sent_bytes, *lost = link
    common = {
        "blackholed": queues["clsact"].drops if "clsact" in queues else 0,
        "link_errors": lost[0] + lost[1],
        "link_drops": lost[2] + lost[3],
        "received_packets": received,
        "received_bytes": received_bytes,
    }
    if "htb" not in queues or "pfifo" not in queues:
        return PortCounters(sent_packets=sent, sent_bytes=sent_bytes, **common)
    root, queue = queues["htb"], queues["pfifo"]
    header_drops = queues["headers"].drops if "headers" in queues else 0
    return PortCounters(
        sent_packets=root.packets,
        sent_bytes=root.bytes,
        control_packets=root.direct_packets,
        queue_drops=queue.drops,
        # the root counts its children's drops as its own
        control_drops=root.drops - queue.drops - header_drops,
        header_drops=header_drops,
        waiting_packets=root.waiting_packets,
        waiting_bytes=root.waiting_bytes,
        **common,
    )

"""Counters of queueing disciplines, by one netlink dump for each namespace."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from weft.testbed.linux import netlink, tc

TCA_STATS = 3
# struct tc_stats: bytes, packets, drops, of no interest, packets and bytes that wait
TC_STATS = struct.Struct("=QII12xII")


class DisciplineCounters(NamedTuple):
    """Counters of one queueing discipline.

    waiting_packets: in the queue now; likewise waiting_bytes.
    """

    sent_bytes: int
    sent_packets: int
    drops: int
    waiting_packets: int
    waiting_bytes: int


NOTHING = DisciplineCounters(0, 0, 0, 0, 0)


def counters_of(attributes: Mapping[int, bytes]) -> DisciplineCounters:
    """Return the counters in the attributes of a discipline; 0 for one without."""
    if TCA_STATS not in attributes:
        return NOTHING
    return DisciplineCounters._make(TC_STATS.unpack_from(attributes[TCA_STATS]))


def at_roots(socket: netlink.Socket) -> Iterator[tuple[int, DisciplineCounters]]:
    """Yield the interface index and the counters of each device's root discipline."""
    for body in socket.dump(netlink.RTM_GETQDISC, tc.TCMSG.pack(0, 0, 0, 0, 0)):
        _, ifindex, _, parent, _ = tc.TCMSG.unpack_from(body)
        if parent == tc.ROOT:
            yield ifindex, counters_of(netlink.attributes(body, tc.TCMSG.size))

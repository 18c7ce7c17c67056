"""Which links of a switch carry less than they should, from what its own queues send.

A queue that a sound link would need longer than the time between two looks to empty cannot have run
empty in between. So if it sent less than `LEAST_FRACTION` of the rate meanwhile, twice in a row,
the link is degraded.  Traffic then leaves it, and nobody can tell when it is sound again; after
`HOLD_S` it is tried again.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from weft.testbed.linux import netlink, tc

LEAST_FRACTION = 0.7
LOOKS = 2  # in a row that must find it slow
HOLD_S = 10.0
TCA_STATS2, TCA_STATS_BASIC, TCA_STATS_QUEUE = 7, 1, 3
BASIC = struct.Struct("=Q")  # bytes, of struct gnet_stats_basic
QUEUE = struct.Struct("=II")  # packets and bytes that wait, of struct gnet_stats_queue


class PortSample(NamedTuple):
    """What a port had sent in all at a time, and what waited."""

    at_s: float
    sent_bytes: int
    waiting_bytes: int


class Meter:
    """Watches `ports`, by number their interface indexes, that should send at `rate_bps`."""

    def __init__(self, ports: Mapping[int, int], rate_bps: int) -> None:
        self._number = {ifindex: port for port, ifindex in ports.items()}
        self._rate_bps = rate_bps
        self._before: dict[int, PortSample] = {}
        self._slow: dict[int, int] = dict.fromkeys(ports, 0)  # looks in a row
        self._until_s: dict[int, float] = {}  # of degraded ports, when they are tried again

    def look(self, socket: netlink.Socket, now: float) -> dict[int, bool]:
        """Ports that have turned out degraded, and those that are to be tried again (False);
        `socket` is one of the switch's namespace."""
        return self.judge(waiting(socket, self._number), now)

    def judge(self, found: Mapping[int, tuple[int, int]], now: float) -> dict[int, bool]:
        """As look(), from (bytes sent in all, bytes that wait) of each port."""
        changed = {port: False for port, until_s in self._until_s.items() if until_s <= now}
        for port in changed:
            del self._until_s[port]
        for port, (sent, waits) in found.items():
            before, self._before[port] = self._before.get(port), PortSample(now, sent, waits)
            if before is None or port in self._until_s:
                continue
            possible = self._rate_bps / 8 * (now - before.at_s)
            slow = (
                before.waiting_bytes > possible
                and sent - before.sent_bytes < LEAST_FRACTION * possible
            )
            self._slow[port] = self._slow[port] + 1 if slow else 0
            if self._slow[port] >= LOOKS:
                self._slow[port], self._until_s[port], changed[port] = 0, now + HOLD_S, True
        return changed


def waiting(socket: netlink.Socket, numbers: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """(bytes sent in all, bytes that wait) at the root queue of each port, `numbers` being by
    interface index."""
    found = {}
    for body in socket.dump(netlink.RTM_GETQDISC, tc.TCMSG.pack(0, 0, 0, 0, 0)):
        _, index, _, parent, _ = tc.TCMSG.unpack_from(body)
        has = netlink.attributes(body, tc.TCMSG.size)
        if index not in numbers or parent != tc.ROOT or TCA_STATS2 not in has:
            continue
        stats = netlink.attributes(has[TCA_STATS2])
        (sent,) = BASIC.unpack_from(stats[TCA_STATS_BASIC])
        _, waits = QUEUE.unpack_from(stats[TCA_STATS_QUEUE])
        found[numbers[index]] = (sent, waits)
    return found

"""News of links that carry less than they should, for a switch's daemon."""

from __future__ import annotations

from collections.abc import Mapping

from weft.daemons.core.events import LinkDegraded
from weft.testbed.data_plane.capability import LinuxCapability
from weft.testbed.data_plane.degraded_link_detector import Meter
from weft.testbed.linux import netlink
from weft.testbed.linux.discipline_counters import at_roots


class LinuxLinkRates(LinuxCapability):
    """Watches `ports`, by number their interface indexes, that should send at `rate_bps`.

    queues: a socket in the switch's namespace, which stays its owner's.
    """

    def __init__(self, ports: Mapping[int, int], rate_bps: int, queues: netlink.Socket) -> None:
        self._meter, self._queues = Meter(ports, rate_bps), queues
        self._port = {ifindex: port for port, ifindex in ports.items()}

    def look(self, now: float) -> list[LinkDegraded]:
        counters = {
            self._port[ifindex]: (queue.sent_bytes, queue.waiting_bytes)
            for ifindex, queue in at_roots(self._queues)
            if ifindex in self._port
        }
        changed = self._meter.judge(counters, now)
        return [LinkDegraded(port, degraded) for port, degraded in changed.items()]

"""News of links that carry less than they should, for a switch's daemon."""

from __future__ import annotations

from collections.abc import Mapping

from weft.daemons.core.events import LinkDegraded
from weft.testbed.data_plane.capability import LinuxCapability
from weft.testbed.data_plane.degraded_link_detector import Meter
from weft.testbed.linux import netlink


class LinuxLinkRates(LinuxCapability):
    """Watches `ports`, by number their interface indexes, that should send at `rate_bps`.

    queues: a socket in the switch's namespace, which stays its owner's.
    """

    def __init__(self, ports: Mapping[int, int], rate_bps: int, queues: netlink.Socket) -> None:
        self._meter, self._queues = Meter(ports, rate_bps), queues

    def look(self, now: float) -> list[LinkDegraded]:
        changed = self._meter.look(self._queues, now)
        return [LinkDegraded(port, degraded) for port, degraded in changed.items()]

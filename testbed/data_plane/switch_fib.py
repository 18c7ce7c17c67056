"""SetRoute at a switch: to the data plane's maps, and to the kernel's forwarding table.

The data plane forwards; the kernel answers what is left to it (traceroute, refusals), and forwards
under `ecmp`.  So both hold the same routes.  The maps come first, since they are what packets wait
for.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.daemons.core.actions import Hop, SetRoute
from weft.testbed.data_plane.groups import Groups
from weft.testbed.linux import netlink
from weft.testbed.linux.fib import KernelFib
from weft.testbed.linux.interface import NodeInterfaces
from weft.testbed.linux.netlink import NetlinkMessage


class SwitchFib(KernelFib):
    """The routes of one switch's daemon, `groups` being its part of the data plane's maps."""

    def __init__(self, socket: netlink.Socket, interfaces: NodeInterfaces, groups: Groups) -> None:
        super().__init__(socket, interfaces)
        self._groups = groups

    def count(self) -> int:
        # The kernel drops routes with their devices, and the maps do not.
        return max(super().count(), len(self._groups.table()))

    def set(self, changes: Sequence[SetRoute]) -> None:
        self._groups.set({change.prefix: self._indexes(change.hops) for change in changes})
        super().set(changes)

    def reconcile(self) -> list[NetlinkMessage]:
        self._groups.replace({prefix: self._indexes(hops) for prefix, hops in self.desired.items()})
        return super().reconcile()

    def _indexes(self, hops: tuple[Hop, ...]) -> list[int]:
        return [self._interfaces.ports[hop.port].ifindex for hop in hops]

"""The node through which hosts reach the machine's network: Mininet's NAT, in a namespace."""

from __future__ import annotations

import ipaddress
from typing import Any

from mininet.log import warn

from weft.testbed.mininet.lan_nodes import LanHost
from weft.testbed.network import outside


class LanNat(LanHost):
    """A host that translates the addresses of `subnet`.

    Raises:
        ValueError: flush, which empties the machine's own tables, or localIntf.
    """

    def __init__(self, name: str, subnet: str = "10.0.0.0/8", **params: Any) -> None:
        for refused in ("flush", "localIntf"):
            if params.pop(refused, None):
                raise ValueError(
                    f"{name}: {refused}: a NAT here changes no rules or interfaces of the machine"
                )
        params.pop("inNamespace", None)
        super().__init__(name, **params)
        self.subnet = str(ipaddress.ip_network(subnet, strict=False))
        self.connected = False

    def config(self, **params: Any) -> Any:
        """Set the address, and connect the node to the machine."""
        result = super().config(**params)  # type: ignore[misc]
        if not self.connected:
            self.connected = True
            if not outside.connect(self.lan.run, self.lan.spaces[self.name], [self.subnet]):
                warn(
                    f"*** {self.name}: this machine does not forward (net.ipv4.ip_forward=0), "
                    "so hosts reach no other machine\n"
                )
        return result

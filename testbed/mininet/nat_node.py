"""The node by which hosts reach the network of the machine: Mininet's NAT, in a namespace of its
own."""

from __future__ import annotations

import ipaddress
from typing import Any

from mininet.log import warn

from weft.testbed.mininet.lan_nodes import LanHost
from weft.testbed.network import outside


class LanNat(LanHost):
    """A host that translates the addresses of `subnet`.  Mininet's flush, which empties the
    machine's own tables, and localIntf are refused."""

    def __init__(self, name: str, subnet: str = "10.0.0.0/8", **params: Any) -> None:
        for refused in ("flush", "localIntf"):
            if params.pop(refused, None):
                raise ValueError(
                    f"{name}: {refused}: a NAT leaves the machine's own rules and "
                    f"interfaces alone here"
                )
        params.pop("inNamespace", None)
        super().__init__(name, **params)
        self.subnet = str(ipaddress.ip_network(subnet, strict=False))
        self.connected = False

    def config(self, **params: Any) -> Any:
        """Set its address, as any host's, and connect it with the machine."""
        result = super().config(**params)  # type: ignore[misc]
        if not self.connected:
            self.connected = True
            if not outside.connect(self.lan.run, self.lan.spaces[self.name], [self.subnet]):
                warn(
                    f"*** {self.name}: this machine does not forward "
                    f"(net.ipv4.ip_forward=0): it alone can be reached\n"
                )
        return result

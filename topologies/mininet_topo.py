"""The families as Mininet Topo classes, for stock Mininet 2.3.

No other file here imports Mininet.

    sudo mn --custom topologies/mininet_topo.py --topo dcell,4,1 --switch lxbr --controller none
    sudo mn --custom topologies/mininet_topo.py --topo fattree,n=2,d=4 --switch lxbr,stp=1
    --controller none

Values are positional, in the order of the family's parameters (dcell: n, k), or key=value.  Servers
and hosts become Mininet hosts, crossbars and switches Mininet switches.  Stock Mininet routes
nothing: its switches learn MAC addresses and its hosts do not forward.  mn runs under the
distribution's Python, which needs its python3-numpy.

Names of nodes and interfaces, and addresses, are those of weft.  A switch's port p is OpenFlow port
p + 1, for there is no OpenFlow port 0, but its interface still is <name>-eth<p>.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mininet.topo import Topo

# mn executes this file without setting __file__ and without its folder on the path
ROOT = str(Path(sys._getframe().f_code.co_filename).resolve().parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from weft.topologies import FAMILY_MODULES, family  # noqa: E402
from weft.topologies.core.address import dotted  # noqa: E402

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


class WeftTopo(Topo):  # type: ignore[misc]  # Mininet has no type hints
    """The network of one family; `topos` has a subclass for each."""

    family: str

    def build(self, *values: object, **named: object) -> None:
        """Add all nodes and links; ValueError for parameters that the family does not take."""
        topology = self._network(*values, **named)
        names = [topology.naming.name(node) for node in range(topology.nodes)]
        for node, name in enumerate(names[: topology.servers]):
            self.addHost(name, **{**self.hopts, "ip": f"{dotted(topology.naming.address(node))}/8"})
        for switch, name in enumerate(names[topology.servers :], 1):
            self.addSwitch(name, **{**self.sopts, "dpid": f"{switch:016x}"})
        for a, port_a, b, port_b in topology.links.tolist():
            options: dict[str, Any] = {
                "intfName1": f"{names[a]}-eth{port_a}",
                "intfName2": f"{names[b]}-eth{port_b}",
                "port1": port_a + (a >= topology.servers),
                "port2": port_b + (b >= topology.servers),
            }
            self.addLink(names[a], names[b], **{**self.lopts, **options})

    def _network(self, *values: object, **named: object) -> Topology:
        """Return the network with these parameters, by position or name."""
        network = family(self.family)
        keys = list(network.parameters)
        if len(values) > len(keys):
            raise ValueError(
                f"{self.family}: takes {', '.join(keys)}, but {len(values)} values are given"
            )
        parameters = dict(zip(keys, values, strict=False)) | named
        return network.build(
            network.parameters_from({key: str(value) for key, value in parameters.items()})
        )


topos = {
    name: type(
        name.title().replace("-", ""),
        (WeftTopo,),
        {"family": name, "__doc__": f"The family {name}."},
    )
    for name in FAMILY_MODULES
}

"""GQ* (Erickson et al., Computer Networks 2017): a generalised hypercube with two servers an edge.

GQ*_{k,n} is the stellar transformation of the generalised hypercube GQ_{k,n} (Bhuyan and Agrawal,
IEEE Trans. Computers 1984), whose n^k nodes are all words of k digits below n, u_{k-1} ... u_0, and
whose edges join the words that differ in one digit.  A node becomes a switch.  An edge becomes a
link between two servers, one at the switch of either end.  So a server has two ports: port 0 leads
to its switch, port 1 to its partner.

The server of switch u on the edge that changes digit d to x is at port d (n - 1) + r of the switch,
where x is the r-th of the values other than u_d.  Its link to its partner has level d + 1.

The text of the paper was not at hand.  Its construction and its letters are those of its abstract,
and of the routing simulator of its authors, INRFlow, whose numbers of servers are these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.topologies.core.address import AddressLayout, CrossbarNaming
from weft.topologies.core.family import Family, IntegerParameter

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


class GqstarNaming(CrossbarNaming):
    """Servers h<number>, switch by switch; the switch of the i-th word is w<i>."""

    def __init__(self, n: int, k: int) -> None:
        self.n, self.k = n, k
        self.switches: int = n**k
        self.ports = k * (n - 1)  # of a switch
        self.servers = self.switches * self.ports
        self.layout = AddressLayout((*[n] * k, self.ports))

    # Switches, dimensions, values and servers below are integers, or arrays of them.

    def digit(self, switch: Any, dimension: Any) -> Any:
        """Return digit `dimension` of the word of `switch`, 0 being the last."""
        return switch // self.n**dimension % self.n

    def beyond(self, switch: Any, dimension: Any, value: Any) -> Any:
        """Return the switch whose word has `value` as its digit `dimension`."""
        return switch + (value - self.digit(switch, dimension)) * self.n**dimension

    def server(self, switch: Any, dimension: Any, value: Any) -> Any:
        """Return the server of `switch` on the edge that changes digit `dimension` to `value`."""
        rank = value - (value > self.digit(switch, dimension))
        return switch * self.ports + dimension * (self.n - 1) + rank

    def edge(self, server: Any) -> tuple[Any, Any, Any]:
        """Return the switch, dimension and value of `server`; server() is the inverse."""
        switch, port = divmod(server, self.ports)
        dimension, rank = divmod(port, self.n - 1)
        return switch, dimension, rank + (rank >= self.digit(switch, dimension))

    def partner(self, server: Any) -> Any:
        """Return the server at the other end of the edge."""
        switch, dimension, value = self.edge(server)
        far = self.beyond(switch, dimension, value)
        return self.server(far, dimension, self.digit(switch, dimension))


def build(parameters: Mapping[str, int]) -> Topology:
    """Return GQ*_{k,n}."""
    import numpy as np  # daemons need the naming alone

    from weft.topologies.core.topology import Topology, require_room, wire

    n, k = parameters["n"], parameters["k"]
    naming = GqstarNaming(n, k)
    require_room("gqstar", naming, naming.servers + naming.servers // 2)
    servers = np.arange(naming.servers)
    partners, (switches, dimensions, _) = naming.partner(servers), naming.edge(servers)
    levels = [wire(servers, 0, naming.servers + switches, servers % naming.ports)]
    for dimension in range(k):
        ends = (dimensions == dimension) & (servers < partners)
        levels.append(wire(servers[ends], 1, partners[ends], 1))
    roles = ("host", "local", *["global"] * (k - 1))  # as of HyperX, the same hypercube
    return Topology.wired("gqstar", parameters, naming, levels, server_centric=True, roles=roles)


FAMILIES = {
    "gqstar": Family(
        name="gqstar",
        summary="GQ*: a generalised hypercube of switches, with two servers on every edge",
        source="Erickson et al., Computer Networks 113 (2017)",
        example="gqstar:n=4,k=2",
        parameters={
            "n": IntegerParameter("switches in each dimension", 2),
            "k": IntegerParameter("dimensions; a switch has k (n - 1) servers", 1, 19),
        },
        build=build,
    ),
}

"""BCube and GQ*: servers at generalised hypercubes.

BCube (Guo et al., SIGCOMM 2009): servers with k + 1 ports, and crossbars of k + 1 levels.

BCube(n, k) has n^(k + 1) servers, whose labels are all words of k + 1 digits below n, a_k ... a_0.
A level-l crossbar joins the n servers that differ in digit l alone; digit l is the server's port
there, and port l of a server leads to it.  Crossbar <l, word> is w<l>.<i>, where i is the word of
the other k digits as a number.  Any two servers have k + 1 paths without a common server or
crossbar.

GQ* (Erickson et al., Computer Networks 2017): a generalised hypercube with two servers an edge.

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

from weft.topologies.core.address import AddressLayout, CrossbarNaming, Naming, parse_digits
from weft.topologies.core.family import Family, IntegerParameter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weft.topologies.core.topology import Topology


class BcubeNaming(Naming):
    """Servers h<number>; crossbar i of level l is w<l>.<i>."""

    def __init__(self, n: int, k: int) -> None:
        self.n, self.k = n, k
        self.of_level: int = n**k  # crossbars
        self.servers = n * self.of_level
        self.switches = (k + 1) * self.of_level
        self.layout = AddressLayout((n,) * (k + 1))

    def switch_name(self, switch: int) -> str:
        return "w{}.{}".format(*divmod(switch, self.of_level))

    def switch_number(self, text: str) -> int:
        digits, of_level = parse_digits(text[1:]), self.of_level
        if text[:1] == "w" and len(digits) == 2 and digits[0] <= self.k and digits[1] < of_level:
            return digits[0] * of_level + digits[1]
        raise ValueError(
            f"no node {text!r}: servers are h0 .. h{self.servers - 1}, "
            f"switches w0.0 .. w{self.k}.{of_level - 1}"
        )


def bcube(parameters: Mapping[str, int]) -> Topology:
    """Return BCube(n, k): port l of a server leads to its level-l crossbar."""
    from weft.topologies.core.topology import Topology, require_room  # daemons need the naming

    n, k = parameters["n"], parameters["k"]
    if n ** (k + 1) > 1 << 24:
        raise ValueError(f"bcube: n={n}, k={k} has too many servers for 24 bits of address")
    naming = BcubeNaming(n, k)
    require_room("bcube", naming, (k + 1) * naming.servers)
    levels = [links(n, k, level) for level in range(k + 1)]
    return Topology.wired(
        "bcube", parameters, naming, levels, server_centric=True, roles=("host",) * (k + 1)
    )


def links(n: int, k: int, level: int) -> NDArray[np.int64]:
    """Return the links between servers and the crossbars of `level`, as rows of Topology.links."""
    import numpy as np

    from weft.topologies.core.topology import wire

    servers = np.arange(n ** (k + 1))
    digit = servers // n**level % n
    word = servers // n ** (level + 1) * n**level + servers % n**level
    return wire(servers, level, n ** (k + 1) + level * n**k + word, digit)


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


def gqstar(parameters: Mapping[str, int]) -> Topology:
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
    "bcube": Family(
        name="bcube",
        summary="a server has k + 1 ports, each to a crossbar of another level",
        source="Guo et al., SIGCOMM 2009",
        example="bcube:n=4,k=1",
        parameters={
            "n": IntegerParameter("servers of a crossbar", 2),
            "k": IntegerParameter("level; a server has k + 1 ports", 0, 23),
        },
        build=bcube,
    ),
    "gqstar": Family(
        name="gqstar",
        summary="GQ*: a generalised hypercube of switches, with two servers on every edge",
        source="Erickson et al., Computer Networks 113 (2017)",
        example="gqstar:n=4,k=2",
        parameters={
            "n": IntegerParameter("switches in each dimension", 2),
            "k": IntegerParameter("dimensions; a switch has k (n - 1) servers", 1, 19),
        },
        build=gqstar,
    ),
}

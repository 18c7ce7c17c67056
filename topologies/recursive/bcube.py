"""BCube (Guo et al., SIGCOMM 2009): servers with k + 1 ports, and crossbars of k + 1 levels.

BCube(n, k) has n^(k + 1) servers, whose labels are all words of k + 1 digits below n, a_k ... a_0.
A level-l crossbar joins the n servers that differ in digit l alone; digit l is the server's port
there, and port l of a server leads to it.  Crossbar <l, word> is w<l>.<i>, where i is the word of
the other k digits as a number.  Any two servers have k + 1 paths without a common server or
crossbar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.topologies.core.address import AddressLayout, Naming, parse_digits
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


def build(parameters: Mapping[str, int]) -> Topology:
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
        build=build,
    ),
}

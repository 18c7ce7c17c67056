"""Planes: k copies of a fabric that share their hosts, each of which has a link to every copy.

The spec planes:k=4,of=clos:n=8,r=16,m=4 has the hosts of the Clos, with its addresses, and four
times its switches.  Port p of a host leads to plane p.  The name of a switch has its plane as the
first digit: e1.3 is leaf e3 of plane 1, with the address 172.17.1.3.  At equal rates of a host the
links of a plane have a k-th of it.  Links of a plane are numbered in the order of the fabric's.

MRC (Multipath Reliable Connection, arXiv 2605.04333) runs on such networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.topologies.core.address import FabricNaming, Tier
from weft.topologies.core.grammar import integer, unknown, unparse
from weft.topologies.core.topology import Topology, require_room

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "planes"
EXAMPLE = "planes:k=4,of=clos:n=8,r=16,m=4"
MOST_PLANES = 64


def spec_of(texts: Mapping[str, str], inner: str) -> str:
    """Return the name of the network `texts`, whose plane has the name `inner`.

    ValueError for a parameter that is unknown, missing or out of range.
    """
    for key in texts:
        if key not in ("k", "of"):
            raise ValueError(f"{NAME}: " + unknown("parameter", key, ["k", "of"]))
    for key in ("k", "of"):
        if key not in texts:
            raise ValueError(f"{NAME}: {key} is missing, for example {EXAMPLE}")
    k = integer(NAME, "k", texts["k"], least=2, most=MOST_PLANES)
    return unparse(NAME, {"k": k, "of": inner})


def planes_of(plane: Topology, k: int, spec: str) -> Topology:
    """Return `k` planes like `plane`, with the name `spec`.

    ValueError unless `plane` is a fabric of a family, whose hosts have one link each.
    """
    import numpy as np

    naming = plane.naming
    if plane.server_centric or plane.planes > 1 or not isinstance(naming, FabricNaming):
        raise ValueError(f"{NAME}: {plane.spec} is no fabric of a family whose hosts have one link")
    wide = FabricNaming(
        naming.layout.radices, [Tier(tier.letter, (k, *tier.radices)) for tier in naming.tiers]
    )
    require_room(NAME, wide, k * len(plane.links))
    require_addresses(wide)
    levels = [
        np.concatenate([in_plane(plane, k, number, level) for number in range(k)])
        for level in range(int(plane.level.max()) + 1)
    ]
    return Topology.wired(
        NAME,
        {"k": k},
        wide,
        levels,
        server_centric=False,
        roles=plane.roles,
        planes=k,
        named=spec,
    )


def require_addresses(naming: FabricNaming) -> None:
    """Raise ValueError if switches of a tier are too many for their addresses."""
    first = 0
    try:
        for tier in naming.tiers:
            naming.switch_address(first)
            first += tier.switches
    except ValueError as error:
        raise ValueError(f"{NAME}: {error}") from None


def in_plane(plane: Topology, k: int, number: int, level: int) -> NDArray[np.int64]:
    """Return the links of one level of plane `number`, as rows of Topology.links."""
    import numpy as np

    assert isinstance(plane.naming, FabricNaming), "planes_of() has made sure"
    rows: NDArray[np.int64] = plane.links[plane.level == level].copy()
    nodes = np.arange(plane.nodes)
    begin = plane.servers
    for tier in plane.naming.tiers:  # all planes' switches of a tier come before the next tier's
        own = slice(begin, begin + tier.switches)
        nodes[own] += (k - 1) * (begin - plane.servers) + number * tier.switches
        begin += tier.switches
    of_host = rows[:, 0] < plane.servers
    rows[of_host, 1] = number
    rows[:, 0], rows[:, 2] = nodes[rows[:, 0]], nodes[rows[:, 2]]
    return rows


def links_of(topology: Topology, plane: int) -> NDArray[np.int64]:
    """Return the numbers of all links of one plane, those of hosts included."""
    import numpy as np

    assert isinstance(topology.naming, FabricNaming), "planes_of() has made sure"
    owner = np.concatenate(
        [
            np.repeat(np.arange(topology.planes), tier.switches // topology.planes)
            for tier in topology.naming.tiers
        ]
    )
    numbers: NDArray[np.int64] = np.flatnonzero(
        owner[topology.links[:, 2] - topology.servers] == plane
    )
    return numbers

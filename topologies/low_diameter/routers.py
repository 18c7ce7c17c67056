"""Names, ports and addresses of networks of equal routers.

Ports: hosts on ports 0 .. p-1 of a router, then the other routers in order of number.

Names and addresses: routers r0, r1, ...; host s<router>.<host> is 10.0.<router>.<host>, so that a
router is a /24; router r1 is 172.17.0.1.  Beyond 256 routers, addresses have as many bits as they
need, see topologies.core.address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from weft.topologies.core.address import FabricNaming, Tier
from weft.topologies.core.topology import Topology, places, require_room, wire

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


MOST_ROUTERS = 1 << 16  # 172.17.0.0/16


def wired(
    family: str,
    parameters: Mapping[str, int],
    *,
    routers: int,
    hosts: int,
    levels: Sequence[NDArray[np.int64]],
    roles: Sequence[str] = (),
) -> Topology:
    """Return the network of `routers` routers with `hosts` hosts each.

    levels: the links of level 1, 2, ..., each of shape (links, 2): the numbers of two routers, no
        pair twice.
    roles: what the links of level 0, 1, ... are, see Topology.
    """
    import numpy as np

    naming = FabricNaming([routers, hosts], [Tier("r", (routers,))])
    servers = np.arange(naming.servers)
    edges = np.sort(np.concatenate(levels), axis=1)
    ports = hosts + places(edges, routers)
    joined = wire(
        naming.servers + edges[:, 0], ports[:, 0], naming.servers + edges[:, 1], ports[:, 1]
    )
    bounds = np.cumsum([len(level) for level in levels])[:-1]
    wired_levels = [
        wire(servers, 0, naming.servers + servers // hosts, servers % hosts),
        *np.split(joined, bounds),
    ]
    return Topology.wired(
        family, parameters, naming, wired_levels, server_centric=False, roles=roles
    )


def require_routers(family: str, routers: int, hosts: int, links: int) -> None:
    """Raise ValueError if there are too many routers, hosts of each, or links between routers."""
    if routers > MOST_ROUTERS:
        raise ValueError(
            f"{family}: {routers:.9g} routers are too many, there are addresses for {MOST_ROUTERS}"
        )
    naming = FabricNaming([routers, hosts], [Tier("r", (routers,))])
    require_room(family, naming, naming.servers + links)

"""The folded Clos network CLOS(n,r,m), also called leaf and spine (DAR, section 2 and figure 2).

The paper's r input and r output switches, folded, are r leaves with n hosts each; its m middle
switches are m spines, each joined to every leaf.

Ports: hosts on ports 0 .. n-1 of a leaf, spine j on its port n + j; leaf i on port i of a spine.

Names and addresses: leaves e0, e1, ..., spines c0, c1, ..., as in a fat-tree of two tiers; host
s<leaf>.<host> is 10.0.<leaf>.<host>, so a leaf is a /24; leaf e1 is 172.17.0.1, spine c3 is
172.18.0.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.topologies.core.address import FabricNaming, Tier
from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology, require_room, wire


def build(parameters: Mapping[str, int]) -> Topology:
    """Return CLOS(n,r,m), folded."""
    import numpy as np

    n, r, m = parameters["n"], parameters["r"], parameters["m"]
    naming = FabricNaming([r, n], [Tier("e", (r,)), Tier("c", (m,))])
    require_room("clos", naming, naming.servers + r * m)
    servers, leaf, spine = np.arange(naming.servers), np.arange(r)[:, None], np.arange(m)
    levels = [
        wire(servers, 0, naming.servers + servers // n, servers % n),
        wire(naming.servers + leaf, n + spine, naming.servers + r + spine, leaf),
    ]
    return Topology.wired("clos", parameters, naming, levels, server_centric=False)


FAMILIES = {
    "clos": Family(
        name="clos",
        summary="folded CLOS(n,r,m): r leaves with n hosts each, every leaf joined to m spines",
        source="DAR, section 2",
        example="clos:n=8,r=2,m=4",
        parameters={
            "n": IntegerParameter("hosts of a leaf", 1),
            "r": IntegerParameter("leaves", 2),
            "m": IntegerParameter("spines", 1),
        },
        build=build,
    ),
}

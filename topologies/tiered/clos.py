"""Tiers of switches: a star, the folded Clos network, and fat-trees.

A star is one router with all the hosts: a network in which only hosts contend (FatPaths, appendix
D).  Host s3 is h3, 10.0.0.3, on port 3 of the router r0, 172.17.0.0.

The folded Clos network CLOS(n,r,m), also called leaf and spine (DAR, section 2 and figure 2).

The paper's r input and r output switches, folded, are r leaves with n hosts each; its m middle
switches are m spines, each joined to every leaf.

Ports: hosts on ports 0 .. n-1 of a leaf, spine j on its port n + j; leaf i on port i of a spine.

Names and addresses: leaves e0, e1, ..., spines c0, c1, ..., as in a fat-tree of two tiers; host
s<leaf>.<host> is 10.0.<leaf>.<host>, so a leaf is a /24; leaf e1 is 172.17.0.1, spine c3 is
172.18.0.3.

Fat-trees: the k-ary one of three tiers, and FT(n,d) of any depth.

The sources are Al-Fares et al., SIGCOMM 2008, and TTC, section 2.

FT(n,d) has n tiers of 2d-port switches and 2 d^n hosts; the k-ary fat-tree is FT(3, k/2).  Tiers
count from 1, at the hosts, to n.  Host h has the code h_n ... h_1, h = sum h_l d^(l-1), h_n below
2d and the others below d; a switch has a code of n-1 digits in the same way, the first below 2d, or
below d in the top tier.  Edge switch s has the hosts whose codes are s but for digit 1, on
down-ports h_1.  A switch s of tier l and a switch s' of tier l+1 are joined if their codes agree
but for digit l; s uses up-port s'_l and s' down-port s_l (TTC, eq. 1).  So the up-ports that a
packet takes name the switch at which it turns, and the down-ports are the digits of its
destination.

Ports: down-ports first, 0 .. d-1 (0 .. 2d-1 in the top tier), then up-ports, up-port u being port d
+ u.

Labels and addresses: host s<pod>.<edge>.<host> of a three-tier fat-tree is 10.<pod>.<edge>.<host>,
so that a pod is a /16 and an edge switch a /24; in general the label is the host's code.  Names:
the letter of the tier, then pod and number within the pod: e1.2 (edge), a0.1 (aggregation), c3
(core).  With two tiers there are only e0, e1 ... and c0, c1 ...; with more than three, the tiers
between e and c are a, b, d, f ... from below.  Switch e1.2 has the address 172.17.1.2, a0.1
172.18.0.1 and c3 172.19.0.3: 172.<16 + tier>.

With fewer than 2d `pods` (with two tiers: edge switches) it is not filled yet: the first ones are
there, and all top switches.  The paths between two pods are those of the whole, so that a fat-tree
too large for the machine can be asked about the pods that carry traffic.

Oversubscription r:1 at the edge gives each edge switch r times as many hosts as up-ports: d r hosts
on down-ports
0 .. dr-1, up-port u being port dr + u.  Ours: LBSP (section 4) gets its 4:1 and 8:1 by slower links
between aggregation and core instead, which is a matter of link rates and not of this graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from weft.topologies.core.address import FabricNaming, Tier
from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology, require_room, wire

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def star(parameters: Mapping[str, int]) -> Topology:
    """The star with n hosts."""
    import numpy as np

    n = parameters["n"]
    naming = FabricNaming([n], [Tier("r", (1,))])
    require_room("star", naming, n)
    servers = np.arange(n)
    return Topology.wired(
        "star", parameters, naming, [wire(servers, 0, n, servers)], server_centric=False
    )


def clos(parameters: Mapping[str, int]) -> Topology:
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


# letters of the tiers between e and c; h, s and w mean other things
MIDDLE = "abdfgijklmnopqrtuvxyz"


class FatTreeShape(NamedTuple):
    """FT(n,d) with `pods` pods (2d in a whole one) and `hosts` hosts at each edge switch."""

    n: int
    d: int
    pods: int
    hosts: int

    @property
    def in_tier(self) -> int:
        """Switches of each tier below the top."""
        return self.pods * int(self.d ** (self.n - 2))

    @property
    def naming(self) -> FabricNaming:
        in_pods = (self.pods, self.d ** (self.n - 2)) if self.n > 2 else (self.pods,)
        tiers = [Tier(letter, in_pods) for letter in "e" + MIDDLE[: self.n - 2]]
        top = Tier("c", (self.d ** (self.n - 1),))
        return FabricNaming([self.pods, *[self.d] * (self.n - 2), self.hosts], [*tiers, top])


def shape(parameters: Mapping[str, int]) -> FatTreeShape:
    """Return the shape of these parameters.

    ValueError unless either k or n and d are set, and at most 2d pods.
    """
    if "k" in parameters:
        if "n" in parameters or "d" in parameters:
            raise ValueError(
                "fattree: give k, or n and d, but not both; fattree:k=4 is the same as "
                "fattree:n=3,d=2"
            )
        if parameters["k"] % 2:
            raise ValueError(f"fattree: k must be even, got {parameters['k']}")
        n, d = 3, parameters["k"] // 2
    elif "n" in parameters and "d" in parameters:
        n, d = parameters["n"], parameters["d"]
    else:
        missing = "d is" if "n" in parameters else "n is" if "d" in parameters else "k is"
        raise ValueError(f"fattree: {missing} missing, for example fattree:k=4 or fattree:n=2,d=4")
    pods = parameters.get("pods", 2 * d)
    if pods > 2 * d:
        raise ValueError(f"fattree: with d = {d} there are at most {2 * d} pods, got {pods}")
    return FatTreeShape(n, d, pods, d * parameters.get("oversubscription", 1))


def fattree(parameters: Mapping[str, int]) -> Topology:
    """Return FT(n,d), or the k-ary fat-tree."""
    import numpy as np

    tree = shape(parameters)
    n, d, _, hosts = tree
    naming = tree.naming
    above = (n - 1) * tree.in_tier * d  # links between switches
    require_room("fattree", naming, naming.servers + above)
    servers = np.arange(naming.servers)
    levels = [wire(servers, 0, naming.servers + servers // hosts, servers % hosts)]
    for tier in range(1, n):
        lower = naming.servers + (tier - 1) * tree.in_tier
        s, up, upper, down = links(tree, tier)
        levels.append(
            wire(lower + s, (hosts if tier == 1 else d) + up, lower + tree.in_tier + upper, down)
        )
    return Topology.wired("fattree", parameters, naming, levels, server_centric=False)


def links(tree: FatTreeShape, tier: int) -> tuple[NDArray[np.int64], ...]:
    """Return the links between `tier` and the tier above (TTC, eq. 1).

    They are switch, up-port, upper switch and down-port.

    Switches are numbered within their tiers, up-ports from 0.
    """
    import numpy as np

    place = tree.d ** (tier - 1)  # what digit `tier` of a code counts
    s, up = np.arange(tree.in_tier)[:, None], np.arange(tree.d)
    digit = s // place % (tree.d if tier < tree.n - 1 else tree.pods)
    return tuple(np.broadcast_arrays(s, up, s + (up - digit) * place, digit))


FAMILIES = {
    "star": Family(
        name="star",
        summary="one router with all the hosts",
        source="FatPaths, appendix D",
        example="star:n=8",
        parameters={"n": IntegerParameter("hosts", 2)},
        build=star,
    ),
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
        build=clos,
    ),
    "fattree": Family(
        name="fattree",
        summary="k-ary fat-tree of three tiers, or FT(n,d) of n tiers of 2d-port switches",
        source="Al-Fares et al., SIGCOMM 2008; TTC, section 2",
        example="fattree:k=4",
        parameters={
            "k": IntegerParameter("ports of a switch of three tiers, even", 2, optional=True),
            "n": IntegerParameter("tiers of switches", 2, 2 + len(MIDDLE), optional=True),
            "d": IntegerParameter("half the ports of a switch", 1, optional=True),
            "pods": IntegerParameter("how many there are, all by default", 1, optional=True),
            "oversubscription": IntegerParameter(
                "hosts of an edge switch for each up-port", 1, optional=True
            ),
        },
        build=fattree,
    ),
}

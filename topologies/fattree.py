"""Fat-trees: the k-ary one of three tiers (Al-Fares et al., SIGCOMM 2008) and FT(n,d) of any depth (TTC, section 2).

FT(n,d) has n tiers of 2d-port switches and 2 d^n hosts; the k-ary fat-tree is FT(3, k/2).  Tiers count from 1, at the
hosts, to n.  Host h has the code h_n ... h_1, h = sum h_l d^(l-1), h_n below 2d and the others below d; a switch has a
code of n-1 digits in the same way, the first below 2d, or below d in the top tier.  Edge switch s has the hosts whose
codes are s but for digit 1, on down-ports h_1.  A switch s of tier l and a switch s' of tier l+1 are joined if their
codes agree but for digit l; s uses up-port s'_l and s' down-port s_l (TTC, eq. 1).  So the up-ports that a packet takes
name the switch at which it turns, and the down-ports are the digits of its destination.

Ports: down-ports first, 0 .. d-1 (0 .. 2d-1 in the top tier), then up-ports, up-port u being port d + u.

Labels and addresses: host s<pod>.<edge>.<host> of a three-tier fat-tree is 10.<pod>.<edge>.<host>, so that a pod is a
/16 and an edge switch a /24; in general the label is the host's code.  Names: the letter of the tier, then pod and
number within the pod: e1.2 (edge), a0.1 (aggregation), c3 (core).  With two tiers there are only e0, e1 ... and c0,
c1 ...; with more than three, the tiers between e and c are a, b, d, f ... from below.  Switch e1.2 has the address
172.17.1.2, a0.1 172.18.0.1 and c3 172.19.0.3: 172.<16 + tier>.

Oversubscription r:1 at the edge gives each edge switch r times as many hosts as up-ports: d r hosts on down-ports
0 .. dr-1, up-port u being port dr + u.  Ours: LBSP (section 4) gets its 4:1 and 8:1 by slower links between aggregation
and core instead, which is a matter of link rates and not of this graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from topologies.address import FabricNaming, Tier
from topologies.registry import Family, Parameter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from topologies.graph import Topology

MIDDLE = "abdfgijklmnopqrtuvxyz"  # letters of the tiers between e and c; h, s and w mean other things


def shape(parameters: Mapping[str, int]) -> tuple[int, int, int]:
    """n, d and the hosts of an edge switch; ValueError unless either k or n and d are given."""
    if "k" in parameters:
        if "n" in parameters or "d" in parameters:
            raise ValueError("fattree: give k, or n and d, but not both; fattree:k=4 is the same as fattree:n=3,d=2")
        if parameters["k"] % 2:
            raise ValueError(f"fattree: k must be even, got {parameters['k']}")
        n, d = 3, parameters["k"] // 2
    elif "n" in parameters and "d" in parameters:
        n, d = parameters["n"], parameters["d"]
    else:
        missing = "d is" if "n" in parameters else "n is" if "d" in parameters else "k is"
        raise ValueError(f"fattree: {missing} missing, for example fattree:k=4 or fattree:n=2,d=4")
    return n, d, d * parameters.get("oversubscription", 1)


def naming_of(n: int, d: int, hosts: int) -> FabricNaming:
    """Names of FT(n,d) with `hosts` hosts an edge switch."""
    in_pods: tuple[int, ...] = (2 * d, d ** (n - 2)) if n > 2 else (2 * d,)
    tiers = [Tier(letter, in_pods) for letter in "e" + MIDDLE[: n - 2]]
    return FabricNaming([2 * d, *[d] * (n - 2), hosts], [*tiers, Tier("c", (d ** (n - 1),))])


def build(parameters: Mapping[str, int]) -> Topology:
    """FT(n,d), or the k-ary fat-tree."""
    import numpy as np

    from topologies.graph import Topology, require_room, wire

    n, d, hosts = shape(parameters)
    naming = naming_of(n, d, hosts)
    above = (n - 1) * 2 * d**n  # links between switches
    require_room("fattree", naming.layout, nodes=naming.servers + naming.switches, links=naming.servers + above)
    servers = np.arange(naming.servers)
    levels = [wire(servers, 0, naming.servers + servers // hosts, servers % hosts)]
    for tier in range(1, n):
        lower = naming.servers + (tier - 1) * 2 * d ** (n - 1)
        s, up, upper, down = links(n, d, tier)
        levels.append(wire(lower + s, (hosts if tier == 1 else d) + up, lower + 2 * d ** (n - 1) + upper, down))
    return Topology.wired("fattree", parameters, naming, levels, server_centric=False)


def links(n: int, d: int, tier: int) -> tuple[NDArray[np.int64], ...]:
    """The links between `tier` and the one above: switch, its up-port, upper switch, its down-port (TTC, eq. 1).

    Switches are numbered within their tiers, up-ports from 0.
    """
    import numpy as np

    place = d ** (tier - 1)  # what digit `tier` of a code counts
    s, up = np.arange(2 * d ** (n - 1))[:, None], np.arange(d)
    digit = s // place % (d if tier < n - 1 else 2 * d)
    return tuple(np.broadcast_arrays(s, up, s + (up - digit) * place, digit))


FAMILIES = {
    "fattree": Family(
        name="fattree",
        summary="k-ary fat-tree of three tiers, or FT(n,d) of n tiers of 2d-port switches",
        source="Al-Fares et al., SIGCOMM 2008; TTC, section 2",
        example="fattree:k=4",
        parameters={
            "k": Parameter(meaning="ports of a switch of three tiers, even", least=2, optional=True),
            "n": Parameter(meaning="tiers of switches", least=2, most=2 + len(MIDDLE), optional=True),
            "d": Parameter(meaning="half the ports of a switch", least=1, optional=True),
            "oversubscription": Parameter(meaning="hosts of an edge switch for each up-port", least=1, optional=True),
        },
        build=build,
    ),
}

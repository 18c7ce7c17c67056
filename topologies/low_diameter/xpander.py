"""Xpander: a random lift of the complete graph (Valadarsky et al., CoNEXT 2016).

See FatPaths, appendix A-D, as well.

Each of the r + 1 vertices of the complete graph becomes a metanode of l routers, and each of its
edges a random matching between the routers of two metanodes, so that every router is joined to one
router of each other metanode. Drawn again until it is connected.  FatPaths takes l = r = k'.  Each
router has p hosts, ceil(r/2) unless it is given.

Router number v l + i is router i of metanode v.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.seeded import SplitMix64
from weft.topologies.core.topology import Topology
from weft.topologies.low_diameter.jellyfish import ATTEMPTS, SEED, RouterPair, connected
from weft.topologies.low_diameter.routers import require_routers, wired


def build(parameters: Mapping[str, int]) -> Topology:
    """Return the Xpander of this seed."""
    import numpy as np

    r, seed = parameters["r"], parameters["seed"]
    lift, hosts = parameters["l"], parameters["p"]
    routers = lift * (r + 1)
    require_routers("xpander", routers, hosts, routers * r // 2)
    random = SplitMix64(seed)
    for _ in range(ATTEMPTS):
        edges = lifted(r, lift, random)
        if connected(routers, edges):
            known = {"r": r, "l": lift, "p": hosts, "seed": seed}
            return wired("xpander", known, routers=routers, hosts=hosts, levels=[np.array(edges)])
    raise ValueError(
        f"xpander: no connected network in {ATTEMPTS} attempts; r = {r} is too small for l = {lift}"
    )


def lifted(r: int, lift: int, random: SplitMix64) -> list[RouterPair]:
    """Draw the edges of a random lift of the complete graph of r + 1 vertices."""
    edges = []
    for u, v in combinations(range(r + 1), 2):
        order = list(range(lift))
        random.shuffle(order)
        edges += [(u * lift + i, v * lift + j) for i, j in enumerate(order)]
    return edges


FAMILIES = {
    "xpander": Family(
        name="xpander",
        summary="a random l-lift of the complete graph of r + 1 vertices",
        source="Valadarsky et al., CoNEXT 2016; FatPaths, appendix A-D",
        example="xpander:r=4,l=4,p=2,seed=1",
        parameters={
            "r": IntegerParameter("routers that each is joined to", 1),
            "l": IntegerParameter("routers of a metanode, r by default", 1, optional=True),
            "p": IntegerParameter("hosts of a router, half its links by default", 1, optional=True),
            "seed": SEED,
        },
        build=build,
        derived=lambda values: {"l": values["r"], "p": -(-values["r"] // 2)},
    ),
}

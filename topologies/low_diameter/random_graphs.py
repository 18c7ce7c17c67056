"""Jellyfish and Xpander: random networks, named with their seed.

Random numbers are a function of the seed in a network's name.  SplitMix64 (Steele, Lea and Flood,
OOPSLA 2014) is three lines of integer arithmetic, so the network
that a spec names is the same on every machine and with every version of every library, which numpy
does not promise of its generators.

Jellyfish: n routers, each joined to r others at random (Singla et al., NSDI 2012).

Free ports are joined in a random order.  Where that would join a router to itself or to a
neighbour, the two ports break up a random link instead and are joined to its ends, as Jellyfish
does with its last ports; if the outcome is not connected, everything is drawn again.  The seed is
part of the name, so that a name is one network.

`equivalent` is the Jellyfish with as many routers, links of a router and hosts as another network
(X-JF in FatPaths, section II-B), and the spec equivalent-jellyfish:seed=1,of=slimfly:q=5 names it.

Xpander: a random lift of the complete graph (Valadarsky et al., CoNEXT 2016).

See FatPaths, appendix A-D, as well.

Each of the r + 1 vertices of the complete graph becomes a metanode of l routers, and each of its
edges a random matching between the routers of two metanodes, so that every router is joined to one
router of each other metanode. Drawn again until it is connected.  FatPaths takes l = r = k'.  Each
router has p hosts, ceil(r/2) unless it is given.

Router number v l + i is router i of metanode v.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableSequence
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology
from weft.topologies.low_diameter.routers import require_routers, wired

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


class SplitMix64:
    """A stream of 64-bit numbers; equal seeds, from 0 on, give equal streams."""

    def __init__(self, seed: int) -> None:
        self._state = seed & MASK

    def bits(self) -> int:
        """Return the next 64 bits."""
        self._state = z = (self._state + GAMMA) & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31

    def below(self, limit: int) -> int:
        """Draw an integer from 0 .. limit - 1 uniformly; `limit` is at least 1."""
        # beyond, some numbers would be more likely than others
        most = (1 << 64) - (1 << 64) % limit
        while (drawn := self.bits()) >= most:
            pass
        return drawn % limit

    def draws(self, limits: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return below(limit) for each of `limits`, in order."""
        import numpy as np

        states = np.uint64(self._state) + np.uint64(GAMMA) * np.arange(
            1, len(limits) + 1, dtype=np.uint64
        )
        z = (states ^ states >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        most = MASK - (MASK % limits + 1) % limits  # largest number that below() takes
        if (z > most).any():
            return np.array([self.below(int(limit)) for limit in limits], dtype=np.uint64)
        self._state = (self._state + GAMMA * len(limits)) & MASK
        return z % limits

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Shuffle `items` in place, every order equally likely (Fisher and Yates)."""
        import numpy as np

        limits = np.arange(len(items), 1, -1, dtype=np.uint64)
        for last, other in zip(
            range(len(items) - 1, 0, -1), self.draws(limits).tolist(), strict=True
        ):
            items[last], items[other] = items[other], items[last]


RouterPair = tuple[int, int]

ATTEMPTS = 20  # of networks, until one is connected
MOST_DRAWS = 100_000  # of links to break up for two ports


def jellyfish(parameters: Mapping[str, int]) -> Topology:
    """Return the Jellyfish of this seed."""
    import numpy as np

    n, r, p = parameters["n"], parameters["r"], parameters["p"]
    if r >= n or n * r % 2 or (r == 1 and n > 2):
        raise ValueError(
            f"jellyfish: {n} routers cannot each be joined to {r} others: n r must be even "
            f"and 1 < r < n"
        )
    require_routers("jellyfish", n, p, n * r // 2)
    random = SplitMix64(parameters["seed"])
    for _ in range(ATTEMPTS):
        edges = regular(n, r, random)
        if edges is not None and connected(n, edges):
            return wired(
                "jellyfish", parameters, routers=n, hosts=p, levels=[np.array(sorted(edges))]
            )
    raise ValueError(
        f"jellyfish: no connected network in {ATTEMPTS} attempts; r = {r} is too small for n = {n}"
    )


def regular(n: int, r: int, random: SplitMix64) -> set[RouterPair] | None:
    """Draw a random graph of n routers with r neighbours each.

    If r is more than half of the other routers, the complement is drawn.

    Returns:
        The edges, lower number first, or None if this draw cannot be completed.
    """
    if 2 * r > n - 1:
        others = regular(n, n - 1 - r, random)
        return None if others is None else set(combinations(range(n), 2)) - others
    ports = [router for router in range(n) for _ in range(r)]
    random.shuffle(ports)
    edges: set[RouterPair] = set()
    clashes = []
    for pair in zip(ports[::2], ports[1::2], strict=True):
        edge = ordered(*pair)
        if edge[0] == edge[1] or edge in edges:
            clashes.append(pair)
        else:
            edges.add(edge)
    order = sorted(edges)
    joined = all(join(clash, edges, order, random) for clash in clashes)
    return edges if joined else None


def join(
    clash: RouterPair, edges: set[RouterPair], order: list[RouterPair], random: SplitMix64
) -> bool:
    """Join two ports to the ends of a random link, which is broken up.

    Args:
        clash: routers of the ports.
        edges: all links; changed.
        order: links among which one is drawn, also broken ones; extended.
        random: random numbers.

    Returns:
        False if there is no such link.
    """
    a, b = clash
    for _ in range(MOST_DRAWS):
        c, d = order[random.below(len(order))] if order else (a, b)
        if random.below(2):
            c, d = d, c
        broken, new = ordered(c, d), {ordered(a, c), ordered(b, d)}
        if a != c and b != d and len(new) == 2 and broken in edges and not new & edges:
            edges.remove(broken)
            edges |= new
            order += sorted(new)
            return True
    return False


def ordered(a: int, b: int) -> RouterPair:
    """Return a pair of routers, the lower number first."""
    return (a, b) if a < b else (b, a)


def connected(n: int, edges: Iterable[RouterPair]) -> bool:
    """Return True if `edges` join all of the routers 0 .. n - 1."""
    beside: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        beside[a].append(b)
        beside[b].append(a)
    reached, frontier = {0}, [0]
    while frontier:
        new = [other for other in beside[frontier.pop()] if other not in reached]
        reached.update(new)
        frontier += new
    return len(reached) == n


def equivalent(topology: Topology, seed: int) -> dict[str, int]:
    """Return the parameters of the Jellyfish with the routers of `topology`.

    Where routers differ, as in a fat-tree, each gets the mean of the hosts and of the links between
    routers, rounded; FatPaths leaves open what it does there (appendix A-F).  ValueError for a
    server-centric network, and for hosts with several links, as on planes.
    """
    if topology.server_centric:
        raise ValueError(
            f"equivalent-jellyfish: {topology.spec} has no routers, its servers forward"
        )
    n = topology.switches
    links = int((topology.links[:, 0] >= topology.servers).sum())
    if len(topology.links) - links > topology.servers:
        raise ValueError(
            f"equivalent-jellyfish: hosts of {topology.spec} have several links, those of a "
            "jellyfish one"
        )
    r = round(2 * links / n)
    return {"n": n, "r": r - (n * r % 2), "p": max(1, round(topology.servers / n)), "seed": seed}


SEED = IntegerParameter("which of the random networks", 0, (1 << 53) - 1)


def xpander(parameters: Mapping[str, int]) -> Topology:
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
    "jellyfish": Family(
        name="jellyfish",
        summary="a random graph of n routers, each joined to r others; "
        "equivalent-jellyfish:seed=1,of=TOPOLOGY has the "
        "routers of another network",
        source="Singla et al., NSDI 2012; FatPaths, appendix A-C",
        example="jellyfish:n=20,r=4,p=2,seed=1",
        parameters={
            "n": IntegerParameter("routers", 2),
            "r": IntegerParameter("routers that each is joined to", 1),
            "p": IntegerParameter("hosts of a router", 1),
            "seed": SEED,
        },
        build=jellyfish,
    ),
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
        build=xpander,
        derived=lambda values: {"l": values["r"], "p": -(-values["r"] // 2)},
    ),
}

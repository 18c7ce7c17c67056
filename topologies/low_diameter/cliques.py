"""Networks of cliques of routers: the complete graph (FatPaths, appendix A-G), HyperX, Dragonfly.

HyperX: s routers in each of l dimensions, all joined along rows (Ahn et al., SC 2009).

This is the regular one, a Hamming graph: s^l routers with k' = l (s - 1).  Each has p hosts, k' / l
= s - 1 unless p is given (FatPaths, appendix A-E).

The digits of a router's number in base s are its coordinates, the first dimension's being the last
digit.  A link along dimension d has level d; those of the first dimension are local, the others
global.

Dragonfly: groups of routers, any two groups joined once (Kim et al., ISCA 2008).

A group has `a` routers with h global links each, so that there are g = a h + 1 groups of a routers.
The balanced one has a = 2p and h = p for p hosts of a router (FatPaths, appendix A-B), which is the
default: 4p^3 + 2p routers with k' = 3p - 1.

Which router of a group has the link to which group is the global arrangement (Hastings et al.,
CLUSTER 2015).  Global link j of group G is on router j // h.  Consecutive (also called absolute):
it leads to group j, or j + 1 from G on. Palm-tree: it leads to group G - j - 1 modulo g, where it
is link a h - 1 - j.

Router number G a + i is router i of group G.  Links within groups have level 1 (local), those
between them level 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.topologies.core.family import Family, IntegerParameter
from weft.topologies.core.topology import Topology
from weft.topologies.low_diameter.routers import require_routers, wired

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def complete(parameters: Mapping[str, int]) -> Topology:
    """Return n routers, any two joined, p hosts each."""
    import numpy as np

    n, p = parameters["n"], parameters["p"]
    require_routers("complete", n, p, n * (n - 1) // 2)
    edges = np.stack(np.triu_indices(n, 1), axis=1)
    return wired("complete", parameters, routers=n, hosts=p, levels=[edges])


def hyperx(parameters: Mapping[str, int]) -> Topology:
    """Return the regular HyperX of l dimensions and s routers in each."""
    import numpy as np

    l, s = parameters["l"], parameters["s"]  # noqa: E741, the paper's letter
    routers, hosts = s**l, parameters["p"]
    require_routers("hyperx", routers, hosts, routers * l * (s - 1) // 2)
    number = np.arange(routers)
    levels = []
    for dimension in range(l):
        step = s**dimension
        digit = number // step % s
        other = np.arange(s)
        far = number[:, None] + (other - digit[:, None]) * step
        ends = np.stack([np.broadcast_to(number[:, None], far.shape), far], axis=-1)
        levels.append(ends[number[:, None] < far])
    roles = ("host", "local", *["global"] * (l - 1))
    return wired(
        "hyperx",
        {"l": l, "s": s, "p": hosts},
        routers=routers,
        hosts=hosts,
        levels=levels,
        roles=roles,
    )


def dragonfly(parameters: Mapping[str, int]) -> Topology:
    """Return the largest Dragonfly of these groups."""
    import numpy as np

    p = parameters["p"]
    a, h, palm = parameters.get("a", 2 * p), parameters.get("h", p), parameters["palm"]
    groups = a * h + 1
    links = groups * (a * (a - 1) + a * h) // 2
    require_routers("dragonfly", groups * a, p, links)
    i, j = np.triu_indices(a, 1)
    first = a * np.arange(groups)[:, None]
    local = np.stack([first + i, first + j], axis=-1).reshape(-1, 2)
    shape = {"a": a, "h": h} if "a" in parameters or "h" in parameters else {}
    return wired(
        "dragonfly",
        {"p": p, **shape, "palm": palm},
        routers=groups * a,
        hosts=p,
        levels=[local, palm_tree(a, h) if palm else consecutive(a, h)],
        roles=("host", "local", "global"),
    )


def consecutive(a: int, h: int) -> NDArray[np.int64]:
    """Return the ends of global links; link j of a group leads to the j-th other group."""
    import numpy as np

    low, high = np.triu_indices(a * h + 1, 1)
    return np.stack([low * a + (high - 1) // h, high * a + low // h], axis=1)


def palm_tree(a: int, h: int) -> NDArray[np.int64]:
    """Return the ends of global links; link j of a group leads to the group j + 1 before it."""
    import numpy as np

    groups = a * h + 1
    group, j = (
        axis.ravel() for axis in np.meshgrid(np.arange(groups), np.arange(a * h), indexing="ij")
    )
    other, far = (group - j - 1) % groups, a * h - 1 - j
    ends = np.stack([group * a + j // h, other * a + far // h], axis=1)
    return ends[group < other]


FAMILIES = {
    "complete": Family(
        name="complete",
        summary="n routers, any two joined, with p hosts each",
        source="FatPaths, appendix A-G",
        example="complete:n=5,p=4",
        parameters={
            "n": IntegerParameter("routers", 2),
            "p": IntegerParameter("hosts of a router", 1),
        },
        build=complete,
    ),
    "hyperx": Family(
        name="hyperx",
        summary="an array of l dimensions and s routers in each, all joined along every row",
        source="Ahn et al., SC 2009; FatPaths, appendix A-E",
        example="hyperx:l=2,s=4,p=3",
        parameters={
            "l": IntegerParameter("dimensions", 1, 16),
            "s": IntegerParameter("routers in each dimension", 2),
            "p": IntegerParameter("hosts of a router, s - 1 by default", 1, optional=True),
        },
        build=hyperx,
        derived=lambda values: {"p": values["s"] - 1},
    ),
    "dragonfly": Family(
        name="dragonfly",
        summary="groups of a routers, all joined within, with h links each to other groups: "
        "a h + 1 groups",
        source="Kim et al., ISCA 2008; FatPaths, appendix A-B",
        example="dragonfly:p=3,palm=0",
        parameters={
            "p": IntegerParameter("hosts of a router", 1),
            "a": IntegerParameter("routers of a group, 2p by default", 1, optional=True),
            "h": IntegerParameter(
                "links of a router to other groups, p by default", 1, optional=True
            ),
            "palm": IntegerParameter(
                "arrangement of links between groups, 0: consecutive, 1: palm-tree", 0, 1, default=0
            ),
        },
        build=dragonfly,
    ),
}

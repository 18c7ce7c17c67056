"""The networks of FatPaths' analysis: table IV, what figures call them, and their sizes.

Sizes are those of the upper part of table IV, and of the formulas of table V.  Counted on the
network itself: routers, hosts, links of a router to others, the diameter and the mean distance
between routers with hosts.  as_table_v: whether routers, links of a router and diameter are what
the forms of table V say; hosts of a router, p, are a parameter, and printed_hosts_of_router what
the form says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from typing import Any, NamedTuple

from weft.experiments.fatpaths.router_graph import RouterGraph, total_network_load
from weft.experiments.report import style
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Spec
from weft.topologies import build, canonical


class PaperNetwork(NamedTuple):
    """A row of table IV: d', D, k', routers, hosts, CDP and PI.

    CDP (mean, 1 % tail) and PI (mean, 99.9 % tail) are in per cent of k' at d' links.  D, k',
    routers and hosts are not printed for Jellyfish, and are those of its counterpart.
    """

    label: str
    hops: int
    diameter: int | None
    radix: int | None
    routers: int | None
    hosts: int | None
    cdp: tuple[int, int]
    interference: tuple[int, int]


TABLE_IV: Mapping[str, PaperNetwork] = {
    "complete:n=101,p=100": PaperNetwork("clique", 2, 1, 100, 101, 10100, (100, 100), (2, 2)),
    "slimfly:q=19,p=14": PaperNetwork("SF", 3, 2, 29, 722, 10108, (89, 10), (26, 79)),
    "xpander:r=32,l=32,p=16,seed=1": PaperNetwork("XP", 3, 3, 32, 1056, 16896, (49, 34), (20, 41)),
    "hyperx:l=3,s=11,p=10": PaperNetwork("HX", 3, 3, 30, 1331, 13310, (25, 10), (9, 67)),
    "dragonfly:p=8,palm=0": PaperNetwork("DF", 4, 3, 23, 2064, 16512, (25, 13), (8, 74)),
    "fattree:k=36": PaperNetwork("FT3", 4, 4, 18, 1620, 11664, (100, 100), (0, 0)),
    "jellyfish:n=722,r=29,p=14,seed=1": PaperNetwork(
        "SF-JF", 3, None, None, None, None, (56, 38), (23, 45)
    ),
    "jellyfish:n=1056,r=32,p=16,seed=1": PaperNetwork(
        "XP-JF", 3, None, None, None, None, (51, 34), (21, 41)
    ),
    "jellyfish:n=1331,r=30,p=10,seed=1": PaperNetwork(
        "HX-JF", 3, None, None, None, None, (50, 23), (17, 37)
    ),
    "jellyfish:n=2064,r=23,p=8,seed=1": PaperNetwork(
        "DF-JF", 4, None, None, None, None, (87, 78), (13, 26)
    ),
    "jellyfish:n=1620,r=29,p=7,seed=1": PaperNetwork(
        "FT3-JF", 4, None, None, None, None, (96, 90), (5, 14)
    ),
}
# Smaller and larger networks of the same families, on which the forms of table V are tried, too.
TABLE_V_SAMPLES = (
    *(f"slimfly:q={q},p={p}" for q, p in ((5, 4), (7, 6), (8, 6), (9, 7), (11, 9), (13, 10))),
    *(f"dragonfly:p={p},palm=0" for p in (2, 4)),
    *(
        "hyperx:l=2,s=10,p=9",
        "hyperx:l=3,s=5,p=4",
        "fattree:k=8",
        "complete:n=32,p=31",
        "xpander:r=16,l=16,p=8,seed=1",
    ),
)


class TableV(NamedTuple):
    """N_r, k', p and D of a network by the forms of table V; D is not printed for Xpander."""

    routers: int
    radix: int
    hosts_of_router: int
    diameter: int | None


def table_v(family: str, parameters: Mapping[str, int]) -> TableV | None:
    """Return the sizes of a network of these parameters by table V; None if it has no such form."""
    form = FORMS.get(family)
    return form(parameters) if form else None


def slimfly(parameters: Mapping[str, int]) -> TableV:
    """Return the sizes with k' = (3 q - delta) / 2."""
    q = parameters["q"]
    radix = (3 * q - ((q + 1) % 4 - 1)) // 2
    return TableV(2 * q * q, radix, -(-radix // 2), 2)


def dragonfly(parameters: Mapping[str, int]) -> TableV:
    """Return the sizes of a balanced Dragonfly."""
    p = parameters["p"]
    return TableV(4 * p**3 + 2 * p, 3 * p - 1, p, 3)


def hyperx(parameters: Mapping[str, int]) -> TableV | None:
    """Return the sizes of a regular HyperX; None unless it has two or three dimensions."""
    dimensions, radix = parameters["l"], parameters["l"] * (parameters["s"] - 1)
    if dimensions not in (2, 3):
        return None
    hosts = -(-radix // (3 if dimensions == 3 else 2))
    return TableV(parameters["s"] ** dimensions, radix, hosts, dimensions)


def fattree(parameters: Mapping[str, int]) -> TableV:
    """Return the sizes of three tiers."""
    k = parameters["k"]
    return TableV(5 * (k * k // 4), k // 2, -(-k // 2), 4)


def complete(parameters: Mapping[str, int]) -> TableV:
    """Return the sizes with as many hosts of a router as links."""
    radix = parameters["n"] - 1
    return TableV(radix + 1, radix, radix, 1)


def xpander(parameters: Mapping[str, int]) -> TableV | None:
    """Return the sizes with l = k'; None for another l."""
    radix = parameters["r"]
    if parameters.get("l") != radix:
        return None
    return TableV(radix * (radix + 1), radix, -(-radix // 2), None)


FORMS: Mapping[str, Callable[[Mapping[str, int]], TableV | None]] = {
    form.__name__: form for form in (slimfly, dragonfly, hyperx, fattree, complete, xpander)
}

SHORT: Mapping[str, str] = {
    "complete": "clique",
    "slimfly": "SF",
    "polarfly": "PF",
    "xpander": "XP",
    "hyperx": "HX",
    "dragonfly": "DF",
    "fattree": "FT3",
    "jellyfish": "JF",
    "clos": "Clos",
    "dcell": "DCell",
    "ficonn": "FiConn",
}
COLOURS: Mapping[str, str] = {
    "clique": style.INK,
    "SF": style.BLUE,
    "PF": style.WINE,
    "XP": style.GREEN,
    "HX": style.ORANGE,
    "DF": style.VERMILION,
    "FT3": style.PURPLE,
    "JF": style.SILVER,
    "Clos": style.SKY,
    "DCell": style.BROWN,
    "FiConn": style.TEAL,
}


def check_network(text: str) -> None:
    """Raise ValueError unless `text` is a network of switches."""
    if build(text).server_centric:
        raise ValueError(
            f"{text}: the servers of this network forward; a network of switches is needed"
        )


NETWORK = Spec(
    meaning="network of switches",
    form="slimfly:q=19,p=14, dragonfly:p=8, hyperx:l=3,s=11, xpander, jellyfish, fattree:k=36, "
    "file:PATH, ...",
    check=check_network,
    canonical=canonical,
)


def label(topology: str) -> str:
    """Return the paper's name of a network, or its family and main parameters."""
    return TABLE_IV[topology].label if topology in TABLE_IV else sized(topology)


def sized(topology: str) -> str:
    """Return the family and main parameters of a network."""
    family, _, rest = topology.partition(":")
    main = rest.split(",p=")[0].removesuffix(",palm=0").replace("oversubscription=2", "2:1")
    return f"{SHORT.get(family, family)} {main}"


def colour(topology: str) -> str:
    """Return the colour of a network's family; unknown families share one."""
    return COLOURS.get(SHORT.get(topology.partition(":")[0], ""), style.WINE)


def in_order(topologies: Iterable[str]) -> list[str]:
    """Return each once, those of table IV first and as there."""
    places = {name: place for place, name in enumerate(TABLE_IV)}
    return sorted(dict.fromkeys(topologies), key=lambda name: (places.get(name, len(places)), name))


def looks(key: str, values: Iterable[Any]) -> style.SeriesLooks:
    """Return the look of each network; dashes and sizes tell those of a family."""
    if key != "topology":
        return style.looks(key, values)
    names = in_order(map(str, values))
    counts, used = Counter(map(colour, names)), Counter[str]()
    series = {}
    for name, marker in zip(names, cycle(style.MARKERS), strict=False):
        shade = colour(name)
        text = label(name) if counts[shade] == 1 or shade == style.SILVER else sized(name)
        series[name] = style.SeriesStyle(text, shade, marker, 4.5, style.DASHES[used[shade] & 3])
        used[shade] += 1
    return series


COLUMNS = {
    "diameter": "D",
    "radix": "k'",
    "routers": "routers, N_r",
    "hosts": "hosts, N",
    "mean_hops": "mean links, d",
    "total_network_load": "TNL",
}


def measure(run: Run) -> Result:
    """Return the columns of table IV, whether they are the paper's, the mean distance and TNL."""
    topology = run.topology
    graph = RouterGraph.of(topology)
    figures: Row = {
        "diameter": graph.diameter,
        "radix": graph.network_radix,
        "routers": graph.routers,
        "hosts": topology.servers,
        "router_links": graph.edges,
        "mean_hops": graph.mean_distance,
        "total_network_load": total_network_load(graph),
    }
    paper = TABLE_IV.get(run.text("topology"))
    if paper and paper.routers is not None:
        printed = (paper.diameter, paper.radix, paper.routers, paper.hosts)
        figures["as_in_paper"] = printed == tuple(figures[key] for key in list(COLUMNS)[:4])
    if form := table_v(topology.family, topology.parameters):
        diameter = graph.diameter if form.diameter else None
        counted = (graph.routers, graph.network_radix, diameter)
        figures["as_table_v"] = counted == (form.routers, form.radix, form.diameter)
        figures["printed_hosts_of_router"] = form.hosts_of_router
    return Result(figures)


EXPERIMENT = Experiment(
    name="lowdiameter_sizes",
    question="How large are the low-diameter networks that FatPaths compares?",
    source="FatPaths, tables IV and V",
    engines=("graph",),
    axes={"topology": NETWORK.over(*TABLE_IV, *TABLE_V_SAMPLES)},
    columns={
        "diameter": "links of the longest of all shortest paths between routers with hosts, D",
        "radix": "links of a router to other routers, k'",
        "routers": "routers, N_r",
        "hosts": "hosts, N",
        "router_links": "links between routers",
        "mean_hops": "mean links between two routers with hosts, d",
        "total_network_load": (
            "TNL, k' N_r / d: the most flows on shortest paths that share no link"
        ),
        "as_in_paper": (
            "whether D, k', N_r and N are those of table IV; missing where it has no such network"
        ),
        "as_table_v": "whether routers, k' and D agree with the formulas of table V",
        "printed_hosts_of_router": "hosts of a router by the forms of table V",
    },
    seeds=1,
    measure=measure,
    plot=Bars(
        columns=COLUMNS,
        by=("topology",),
        log=("routers", "hosts", "total_network_load"),
        looks=looks,
    ),
    takes_s=3,
    must_hold=("as_in_paper", "as_table_v"),
)

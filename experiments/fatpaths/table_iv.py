"""The networks of FatPaths' analysis: table IV, and what figures call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from weft.experiments.report import style
from weft.experiments.runner.definition import canonical
from weft.experiments.runner.parameters import Spec
from weft.topologies import build


class PaperNetwork(NamedTuple):
    """A row of table IV: d', D, k', routers, hosts; then CDP (mean, 1 % tail) and PI (mean, 99.9 %
    tail) in per cent of k' at d' links.  D, k', routers and hosts are not printed for Jellyfish,
    and are those of its counterpart.
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


def table_v(family: str, parameters: Mapping[str, int]) -> tuple[int, int, int, int | None] | None:
    """N_r, k', p and D of a network of these parameters by the forms of table V (D not printed for
    Xpander); None for what is not in the table, or not of its variant.
    """
    given = parameters.get
    if family == "slimfly":
        q = parameters["q"]
        radix = (3 * q - ((q + 1) % 4 - 1)) // 2
        return 2 * q * q, radix, -(-radix // 2), 2
    if family == "dragonfly":
        p = parameters["p"]
        return 4 * p**3 + 2 * p, 3 * p - 1, p, 3
    if family == "hyperx" and given("l") in (2, 3):
        dimensions, s = parameters["l"], parameters["s"]
        radix = dimensions * (s - 1)
        return (
            s**dimensions,
            radix,
            -(-radix // dimensions) if dimensions == 3 else -(-radix // 2),
            dimensions,
        )
    if family == "fattree":
        k = parameters["k"]
        return 5 * (k * k // 4), k // 2, -(-k // 2), 4
    if family == "complete":
        radix = parameters["n"] - 1
        return radix + 1, radix, radix, 1
    if family == "xpander" and given("l") == given("r"):
        radix = parameters["r"]
        return radix * (radix + 1), radix, -(-radix // 2), None
    return None


SHORT: Mapping[str, str] = {
    "complete": "clique",
    "slimfly": "SF",
    "xpander": "XP",
    "hyperx": "HX",
    "dragonfly": "DF",
    "fattree": "FT3",
    "jellyfish": "JF",
}
COLOURS: Mapping[str, str] = {
    "clique": style.INK,
    "SF": style.BLUE,
    "XP": style.GREEN,
    "HX": style.ORANGE,
    "DF": style.VERMILION,
    "FT3": style.PURPLE,
    "JF": style.SILVER,
}


def check_network(text: str) -> None:
    """ValueError for what is no network of switches."""
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
    """What figures call a network: the paper's name where it has one, otherwise the name and its
    main parameter.
    """
    if topology in TABLE_IV:
        return TABLE_IV[topology].label
    family, _, rest = topology.partition(":")
    return f"{SHORT.get(family, family)} {rest.split(',p=')[0].removesuffix(',palm=0')}"


def colour(topology: str) -> str:
    """The colour of a network in figures; a Jellyfish is grey."""
    return COLOURS.get(SHORT.get(topology.partition(":")[0], ""), style.SKY)


def in_order(topologies: list[str]) -> list[str]:
    """Each once, those of table IV first and as there."""
    places = {name: place for place, name in enumerate(TABLE_IV)}
    return sorted(dict.fromkeys(topologies), key=lambda name: (places.get(name, len(places)), name))

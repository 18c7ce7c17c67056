"""How figures look: one table gives each scheme and engine its name, colour and marker, everywhere.

Colours are those of Okabe and Ito, which people with any kind of colour vision tell apart; markers differ as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from topologies.core.grammar import parse, unknown

INK, FAINT, PAPER = "#222222", "#d9d9d9", "#ffffff"
BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7"
LEVELS = ("#9a9a9a", BLUE, VERMILION, GREEN, PURPLE, ORANGE)  # of links: 0 joins a server to a switch
SEVERAL = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)  # for what has no colour of its own, such as networks


DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v")


class Look(NamedTuple):
    """How something appears in every figure; the size of its marks is in points."""

    label: str
    colour: str
    marker: str
    size: float = 5.5


SCHEMES: Mapping[str, Look] = {
    "dr": Look("DR", BLUE, "o"),
    "bfs": Look("shortest path", INK, "s"),
    "pr-gp0": Look("GP_0", ORANGE, "v"),
    "pr-gpi": Look("GP_I", GREEN, "^"),
    "pr-gpe": Look("GP_E", VERMILION, "D"),
    "dfr": Look("DFR", PURPLE, "P"),
    "tar": Look("TAR", SKY, "X"),
    "ecmp": Look("ECMP", ORANGE, "^"),
    "dmodk": Look("D-mod-k", INK, "D"),
    "vlb": Look("VLB", SKY, "v"),
    "rps": Look("random", SKY, "<"),
    "rr": Look("round robin", GREEN, ">"),
    "micro": Look("Micro", PURPLE, "P"),
    "drill": Look("DRILL", VERMILION, "s"),
    "ttc": Look("TTC", BLUE, "o"),
    "jsq": Look("JSQ", "#9a9a9a", "X"),
    "letflow": Look("LetFlow", PURPLE, "d"),
    "lbsp": Look("LBSP", BLUE, "h"),
    "frr-bgp": Look("FRR's BGP", INK, "*"),
    "spray": Look("packet scatter", GREEN, ">"),
}
ENGINES: Mapping[str, Look] = {
    # Marks that are all seen where engines agree: a dot on a cross on a bar.
    "graph": Look("graph", INK, "_", 10),
    "fabric": Look("fabric", ORANGE, "|", 10),
    "kernel": Look("kernel", BLUE, "o", 5),
}

UNITS: Mapping[str, str] = {
    "_bps": "bit/s",
    "_us": "µs",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
    "_packets": "packets",
    "_fraction": "fraction",
    "_hops": "hops",
}

RC: dict[Any, Any] = {
    "figure.figsize": (6.4, 4.2),
    "figure.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.edgecolor": "#888888",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


def scheme(spec: str) -> Look:
    """The look of a routing scheme, whatever its parameters; ValueError if the table lacks it."""
    name, _ = parse(spec)
    if name not in SCHEMES:
        raise ValueError(f"experiments/figures/style.py: {unknown('scheme', name, SCHEMES)}")
    return SCHEMES[name]


def lines(specs: Iterable[str]) -> dict[str, tuple[Look, str]]:
    """The look and the dash of each of `specs`: those that differ in their parameters alone share the colour."""
    found: dict[str, tuple[Look, str]] = {}
    for spec in dict.fromkeys(specs):
        look = scheme(spec)
        dash = DASHES[sum(look.colour == other.colour for other, _ in found.values()) % len(DASHES)]
        same = {other.marker for other, _ in found.values() if other.colour == look.colour}
        marker = next((each for each in (look.marker, *MARKERS) if each not in same), look.marker)
        found[spec] = look._replace(label=f"{look.label} {spec.partition(':')[2]}".strip(), marker=marker), dash
    return found


def in_order(specs: Iterable[str]) -> list[str]:
    """Each of `specs` once, in the order of the table of schemes, however the sweep came."""
    places = list(SCHEMES)
    return sorted(dict.fromkeys(specs), key=lambda spec: (places.index(parse(spec)[0]), spec))


def axis(key: str, label: str = "") -> str:
    """The label of an axis that shows `key`: its unit is the end of its name, or what it counts."""
    for suffix, unit in UNITS.items():
        if key.endswith(suffix):
            return f"{label or words(key.removesuffix(suffix))} ({unit})"
    return label or words(key)


def words(key: str) -> str:
    """A key as a person would write it."""
    return key.replace("_", " ")

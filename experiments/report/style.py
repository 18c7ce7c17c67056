"""The style of figures: name, colour and marker of each scheme and engine, in one table.

Colours are those of Okabe and Ito, safe for colour-blind readers, and nine more; markers and
dashes differ as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from weft.topologies.core.grammar import parse

INK, FAINT, PAPER = "#222222", "#d9d9d9", "#ffffff"
BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#e69f00",
    "#56b4e9",
    "#cc79a7",
)
WINE, INDIGO, BROWN, OLIVE, SILVER = "#882255", "#332288", "#6b3e00", "#d0bc00", "#b0b0b0"
TEAL, ROSE, LIME, MOSS = "#45e8bf", "#cf0a58", "#aadd77", "#446600"
# of links: 0 joins a server to a switch
LEVELS = ("#9a9a9a", BLUE, VERMILION, GREEN, PURPLE, ORANGE)
# for categories without colours of their own, such as networks
SEVERAL = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)
COLOURS = (*SEVERAL, WINE, INDIGO, BROWN, OLIVE, SILVER, TEAL, ROSE, LIME, MOSS)


DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h", "d", "8")


class SeriesStyle(NamedTuple):
    """The look of a scheme or engine in every figure.

    size: of its marks, in points.
    dash: of its line.
    """

    label: str
    colour: str
    marker: str
    size: float = 5.5
    dash: str = "-"


SCHEME_KEYS = ("scheme", "routing")
SeriesLooks = Mapping[Any, SeriesStyle]  # of the values of a key

# Of the schemes that one figure compares, no two share a colour or a marker, and those with the
# same dash differ in lightness, so that a figure printed in black and white can be read.
SERVER_SCHEMES: Mapping[str, SeriesStyle] = {
    "dr": SeriesStyle("DR", BLUE, "o"),
    "bfs": SeriesStyle("shortest path", INK, "s"),
    "pr-gp0": SeriesStyle("GP_0", ORANGE, "v"),
    "pr-gpi": SeriesStyle("GP_I", GREEN, "^", dash="--"),
    "pr-gpe": SeriesStyle("GP_E", VERMILION, "D", dash="-."),
    "dfr": SeriesStyle("DFR", WINE, "P", dash="--"),
    "tar": SeriesStyle("TAR", SKY, "X", dash="-."),
    "frr-bgp": SeriesStyle("FRR's BGP", INDIGO, "*", dash="-."),
}
SWITCH_SCHEMES: Mapping[str, SeriesStyle] = {
    "ecmp": SeriesStyle("ECMP", ORANGE, "^", dash="-."),
    "dmodk": SeriesStyle("D-mod-k", INK, "D"),
    "vlb": SeriesStyle("VLB", SKY, "v"),
    "rps": SeriesStyle("random", PURPLE, "<", dash=":"),
    "rr": SeriesStyle("round robin", BROWN, ">", dash=":"),
    "micro": SeriesStyle("Micro", WINE, "P", dash="--"),
    "drill": SeriesStyle("DRILL", VERMILION, "s", dash="-."),
    "ttc": SeriesStyle("TTC", BLUE, "o"),
    "jsq": SeriesStyle("JSQ", SILVER, "X", dash="--"),
    "letflow": SeriesStyle("LetFlow", INDIGO, "*", dash="-."),
    "lbsp": SeriesStyle("LBSP", GREEN, "h", dash="--"),
    "spray": SeriesStyle("packet scatter", OLIVE, "p", dash=":"),
    "dar": SeriesStyle("DAR", TEAL, "8"),
    "fatpaths": SeriesStyle("FatPaths", ROSE, "d", dash="--"),
    "valiant": SeriesStyle("Valiant", LIME, "$V$", dash="-."),
    "ugal": SeriesStyle("UGAL-L", MOSS, "$U$", dash="-."),
}
SCHEMES: Mapping[str, SeriesStyle] = {**SERVER_SCHEMES, **SWITCH_SCHEMES}
# of FatPaths' layers, and of the paths that they are compared with
CONSTRUCTIONS: Mapping[str, SeriesStyle] = {
    "minimal": SeriesStyle("shortest paths", INK, "D"),
    "valiant": SeriesStyle("Valiant", SKY, "v"),
    "past": SeriesStyle("PAST", SILVER, "X", dash="--"),
    "past-valiant": SeriesStyle("PAST, Valiant", INDIGO, "*", dash="-."),
    "spain": SeriesStyle("SPAIN", VERMILION, "s", dash="-."),
    "random": SeriesStyle("random layers", ORANGE, "^"),
    "overlap": SeriesStyle("overlap", GREEN, "h", dash="--"),
    "intree": SeriesStyle("in-trees", ROSE, "d"),
    "k-shortest-layers": SeriesStyle("k shortest, in layers", PURPLE, "<", dash=":"),
    "k-shortest": SeriesStyle("k shortest paths", BLUE, "o"),
    "lnmp": SeriesStyle("LNMP", TEAL, "8"),
    "lnmp-longer": SeriesStyle("LNMP, longer paths", WINE, "P", dash="--"),
}
ENGINES: Mapping[str, SeriesStyle] = {
    # all marks stay visible if engines agree: a dot on a cross on a bar
    "graph": SeriesStyle("graph", INK, "_", 10),
    "fabric": SeriesStyle("fabric", ORANGE, "|", 10),
    "kernel": SeriesStyle("kernel", BLUE, "o", 5),
}

UNITS: Mapping[str, str] = {
    "_bps": "bit/s",
    "_per_s": "1/s",
    "_us": "µs",
    "_ms": "ms",
    "_s": "s",
    "_bytes": "bytes",
    "_packets": "packets",
    "_fraction": "fraction",
    "_hops": "hops",
    "_periods": "periods",
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
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
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


def scheme(spec: str, beside: Iterable[SeriesStyle] = ()) -> SeriesStyle:
    """Return the look of a scheme.

    That of a scheme from another package follows from its name, and is none of `beside`.
    """
    name, _ = parse(spec)
    if name in SCHEMES:
        return SCHEMES[name]
    number, others = crc32(name.encode()), list(beside)
    return SeriesStyle(
        name,
        _unused(COLOURS, number, {look.colour for look in others}),
        _unused(MARKERS, number, {look.marker for look in others}),
        dash=DASHES[number % len(DASHES)],
    )


def _unused(values: Sequence[str], first: int, used: Collection[str]) -> str:
    """Return the first of `values` from place `first` on that is not used; that one if all are."""
    ordered = [values[(first + place) % len(values)] for place in range(len(values))]
    return next((value for value in ordered if value not in used), ordered[0])


def lines(specs: Iterable[str]) -> dict[str, SeriesStyle]:
    """Return the look of each of `specs`.

    Settings of one scheme share its colour; each has its own dash and marker.
    """
    looks: dict[str, SeriesStyle] = {}
    distinct = list(dict.fromkeys(specs))
    names = [parse(spec)[0] for spec in distinct]
    of_scheme = {name: SCHEMES[name] for name in names if name in SCHEMES}
    for name in sorted(set(names) - set(of_scheme)):
        of_scheme[name] = scheme(name, of_scheme.values())
    used = {look.marker for look in of_scheme.values()}
    for place, (spec, name) in enumerate(zip(distinct, names, strict=True)):
        look = of_scheme[name]
        if variant := names[:place].count(name):
            marker = next((marker for marker in MARKERS if marker not in used), look.marker)
            dash = DASHES[(DASHES.index(look.dash) + variant) % len(DASHES)]
            look = look._replace(marker=marker, dash=dash)
            used.add(marker)
        looks[spec] = look._replace(label=f"{look.label} {spec.partition(':')[2]}".strip())
    return looks


def looks(key: str, values: Iterable[Any]) -> SeriesLooks:
    """Return the look of each value of `key`: of schemes, engines, or series in their order."""
    distinct = list(dict.fromkeys(values))
    if key in SCHEME_KEYS:
        return lines(in_order(distinct))
    table = {"engine": ENGINES, "construction": CONSTRUCTIONS}.get(key, {})
    if distinct and set(distinct) <= table.keys():
        return {name: table[name] for name in table if name in distinct}
    numeric = any(isinstance(value, int | float) for value in distinct)
    return {
        value: SeriesStyle(
            f"{words(key)} {value}" if numeric else str(value),
            SEVERAL[place % len(SEVERAL)],
            MARKERS[place % len(MARKERS)],
            dash=DASHES[place % len(DASHES)],
        )
        for place, value in enumerate(distinct)
    }


def number(value: float, _: object = None) -> str:
    """Return `value` in three digits, with k, M or G for large ones; a formatter of axes, too."""
    for factor, prefix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{prefix}"
    return f"{value:.3g}"


def line(look: SeriesStyle) -> dict[str, Any]:
    """Return the arguments of Axes.plot and Axes.errorbar for a line with marks.

    Solid lines lie below dashed ones and have larger marks, so two equal lines are both visible.
    """
    place = DASHES.index(look.dash)
    return {
        "label": look.label,
        "color": look.colour,
        "linestyle": look.dash,
        "marker": look.marker,
        "markersize": look.size - 0.7 * place,
        "markeredgecolor": PAPER,
        "markeredgewidth": 0.4,
        "zorder": 2 + place / 10,
    }


def in_order(specs: Iterable[str]) -> list[str]:
    """Return each of `specs` once, in the order of the table of schemes; unknown ones last."""
    places = {name: place for place, name in enumerate(SCHEMES)}
    return sorted(
        dict.fromkeys(specs), key=lambda spec: (places.get(parse(spec)[0], len(places)), spec)
    )


def axis(key: str) -> str:
    """Return the label of an axis that shows `key`, whose suffix is the unit."""
    for suffix, unit in UNITS.items():
        if key.endswith(suffix):
            return f"{words(key.removesuffix(suffix))} ({unit})"
    return words(key)


def words(key: str) -> str:
    """Return a key in plain words."""
    return key.replace("_", " ")

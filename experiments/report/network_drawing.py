"""A picture of a network: every node with its name, links coloured by level."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.experiments.report import style
from weft.experiments.report.network_layout import FAMILIES, DrawingLayout, Places, layout
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCHES = 8.0  # the longer side of a network of 60 nodes
MOST_INCHES = 20.0  # the longer side of any network
MOST_SCALE = 0.75  # inches between two servers
MOST_NODES = 2000  # beyond, a picture is ink
SERVER, SWITCH = 0.34, 0.30  # radius, half a side; neighbouring servers are about 1 apart
LEAST_POINTS = 2.5  # a smaller name is not drawn
# links drawn at full strength among groups of routers; more links are fainter
INK_LINKS = 250
# attraction of a link's middle to the centre of its sub-network
BEND = 0.5


def draw(topology: Topology, figure: Figure) -> None:
    """Draw `topology` on an empty figure; raise ValueError if it has too many nodes to be seen."""
    count, nodes = topology.nodes, "nodes"
    if topology.family in FAMILIES:  # whose hosts are not drawn
        count, nodes = topology.switches, "routers"
    if count > MOST_NODES:
        raise ValueError(
            f"{topology.spec} has {count} {nodes}; a picture shows at most {MOST_NODES}"
        )
    places = layout(topology)
    low, high = corners(topology, places)
    size = high - low
    inches = min(INCHES * max(1.0, count / 60) ** 0.4, MOST_INCHES)
    scale = min(inches / max(size.real, size.imag), MOST_SCALE)  # inches per unit
    figure.set_size_inches(max(size.real * scale, 4.5), size.imag * scale + 0.8)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set(xlim=(low.real, high.real), ylim=(low.imag, high.imag), title=title(topology, places))
    draw_groups(axes, places)
    draw_links(axes, topology, places, scale)
    draw_nodes(axes, topology, places, scale)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, handlelength=1.6)


def svg(topology: Topology) -> str:
    """Return the drawing of `topology`, as a notebook shows it; ValueError as of draw()."""
    from weft.experiments.report.figures import new

    drawing = StringIO()
    with new() as figure:
        draw(topology, figure)
        figure.savefig(drawing, format="svg")
    return drawing.getvalue()


def title(topology: Topology, places: DrawingLayout) -> str:
    """Return the network's name and size in words."""
    switches = "1 switch" if topology.switches == 1 else f"{topology.switches} switches"
    hosts = "" if places.hosts else " (not drawn)"
    servers = f"{topology.servers} servers{hosts}"
    return f"{topology.spec}   {servers}, {switches}, {len(topology.links)} links"


def corners(topology: Topology, places: DrawingLayout) -> tuple[complex, complex]:
    """Return the lower left and upper right corner of the drawing."""
    margin = 0.7 + 0.015 * float(np.ptp(places.positions.real))
    edges = [places.positions + step for step in (-margin * (1 + 1j), margin * (1 + 1j))]
    edges += [
        np.array([g.centre - g.radius * (1 + 1j), g.centre + g.radius * (1 + 1j)])
        for g in places.groups
    ]
    a, control, b = curves(topology, places)
    halfway = (a + 2 * control + b) / 4  # where a link is farthest from straight
    edges += [halfway + step for step in (-SWITCH * (1 + 1j), SWITCH * (1 + 1j))]
    points = np.concatenate(edges)
    return complex(points.real.min(), points.imag.min()), complex(
        points.real.max(), points.imag.max()
    )


def curves(topology: Topology, places: DrawingLayout) -> tuple[Places, Places, Places]:
    """Return one end, control point and other end of each link.

    A curve leans to the centre of its sub-network.
    """
    a, b = places.positions[topology.links[:, 0]], places.positions[topology.links[:, 2]]
    middle = (a + b) / 2
    across = abs(a - b) / np.maximum(abs(a - places.towards) + abs(b - places.towards), 1e-9)
    return a, middle + BEND * across**2 * (places.towards - middle), b  # short links are straight


def draw_groups(axes: Axes, places: DrawingLayout) -> None:
    """Draw discs behind the sub-networks, darker inwards."""
    from matplotlib.patches import Circle

    for group in places.groups:
        centre = (group.centre.real, group.centre.imag)
        axes.add_patch(
            Circle(centre, group.radius, facecolor="#0072b2", alpha=0.05, edgecolor="none")
        )


def draw_links(axes: Axes, topology: Topology, places: DrawingLayout, scale: float) -> None:
    """Draw the links, those of higher levels last and heavier, and failed ones dashed."""
    ends = np.stack(curves(topology, places), axis=1)
    width = float(np.clip(2.5 * scale, 0.3, 1.3))
    for level in range(0 if places.hosts else 1, int(topology.level.max()) + 1):
        links = (topology.level == level) & ~topology.failed
        role = topology.roles[level]
        _draw_kind(
            axes,
            ends[links],
            style.LEVELS[level % len(style.LEVELS)],
            f"level {level} ({role}): {links.sum()} links",
            linewidths=width * (1.0 if level else 0.8),
            # among groups of routers, local links are in front
            zorder=2 if places.hosts else 2 - level / 100,
            alpha=_strength(topology, places) if role == "global" else None,
        )
    if topology.failed.any():
        label = f"failed: {topology.failed.sum()} links"
        _draw_kind(axes, ends[topology.failed], style.INK, label, linestyles="dashed", zorder=3)


def _strength(topology: Topology, places: DrawingLayout) -> float:
    """Return the opacity of global links."""
    if places.hosts:
        return 1.0
    return float(np.clip((INK_LINKS / len(topology.links)) ** 0.5, 0.25, 1.0))


def _draw_kind(axes: Axes, points: Places, colour: str, label: str, **form: Any) -> None:
    """Draw curves of one kind, and add them to the legend."""
    draw_curves(axes, points, edgecolors=colour, **form)
    line = form.get("linestyles", "solid")
    axes.plot([], [], color=colour, linewidth=2, linestyle=line, label=label)


def draw_curves(axes: Axes, points: Places, **form: Any) -> None:
    """Draw a curve for each row of `points`: one end, control point, other end."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    codes = [Path.MOVETO, Path.CURVE3, Path.CURVE3]
    paths = [Path(np.stack([row.real, row.imag], axis=1), codes) for row in points]
    axes.add_collection(PathCollection(paths, facecolors="none", **form))


def draw_nodes(axes: Axes, topology: Topology, places: DrawingLayout, scale: float) -> None:
    """Draw servers as circles, crossbars as squares, switches that route as boxes."""
    edge = float(np.clip(1.6 * scale, 0.2, 0.9))
    servers = range(topology.servers)
    switches = range(topology.servers, topology.nodes)
    if not places.hosts:
        draw_circles(axes, places.positions[topology.servers :], style.INK, style.PAPER, edge)
        write_names(axes, topology, places, switches, style.PAPER, 2 * SERVER * scale)
        return
    wide, high = (SWITCH, SWITCH) if topology.server_centric else box(topology, places, scale)
    draw_circles(axes, places.positions[: topology.servers], style.PAPER, style.INK, edge)
    draw_boxes(axes, places.positions[topology.servers :], wide, high)
    write_names(axes, topology, places, servers, style.INK, 2 * SERVER * scale)
    write_names(axes, topology, places, switches, style.PAPER, 2 * wide * scale)


def draw_circles(axes: Axes, centres: Places, face: str, edge: str, width: float) -> None:
    """Draw a circle at each of `centres`; width: of its edge, in points."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Circle

    circles = [Circle((centre.real, centre.imag), SERVER) for centre in centres]
    axes.add_collection(
        PatchCollection(circles, facecolor=face, edgecolor=edge, linewidth=width, zorder=3)
    )


def draw_boxes(axes: Axes, centres: Places, wide: float, high: float) -> None:
    """Draw a rounded box at each of `centres`, `wide` and `high` being half its size."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import FancyBboxPatch

    pad = high / 4
    rounded = f"round,pad={pad},rounding_size={pad}"
    width, height = 2 * (wide - pad), 2 * (high - pad)
    boxes = [
        FancyBboxPatch(
            (centre.real - wide + pad, centre.imag - high + pad), width, height, boxstyle=rounded
        )
        for centre in centres
    ]
    axes.add_collection(PatchCollection(boxes, facecolor=style.INK, edgecolor="none", zorder=3))


def box(topology: Topology, places: DrawingLayout, scale: float) -> tuple[float, float]:
    """Return half the width and height of a switch's box, at most half an inch wide."""
    switches = places.positions[topology.servers :]
    heights = np.unique(switches.imag.round(6))
    rows = [np.sort(switches.real[np.isclose(switches.imag, y)]) for y in heights]
    room = min((float(np.diff(row).min()) for row in rows if len(row) > 1), default=np.inf)
    wide = max(1.6 * SWITCH, min(0.38 * room, 0.26 / scale))
    return wide, 0.6 * wide


def write_names(
    axes: Axes,
    topology: Topology,
    places: DrawingLayout,
    nodes: range,
    colour: str,
    room_inches: float,
) -> None:
    """Write the name of each of `nodes` within its mark, unless it is too small to read."""
    names = [topology.naming.name(node) for node in nodes]
    points = min(9.0, room_inches * 72 * 0.8 / (0.62 * max(map(len, names), default=1)))
    if points < LEAST_POINTS:
        return
    for name, place in zip(names, places.positions[nodes.start : nodes.stop], strict=True):
        axes.text(
            place.real,
            place.imag,
            name,
            color=colour,
            fontsize=points,
            ha="center",
            va="center_baseline",
            zorder=4,
        )

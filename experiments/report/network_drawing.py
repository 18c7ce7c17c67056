"""A picture of a network: every node with its name, links coloured by level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.report import style
from weft.experiments.report.network_layout import DrawingLayout, layout
from weft.experiments.report.router_layout import Places
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INCHES, MOST_INCHES = 8.0, 20.0  # the longer side, of a network of 60 nodes and of any
MOST_SCALE = 0.75  # inches between two servers
MOST_NODES = 2000  # beyond, a picture is ink
SERVER, SWITCH = 0.34, 0.30  # radius, half a side; neighbouring servers are about 1 apart
LEAST_POINTS = 2.5  # a smaller name is not drawn
# links that are drawn at full strength where there are groups of routers; more are fainter
INK_LINKS = 250
# how far the middle of a link is drawn to the centre of the sub-network that it holds together
BEND = 0.5


def draw(topology: Topology, figure: Figure) -> None:
    """Draw `topology` on an empty figure; ValueError if it has too many nodes to be seen."""
    places = layout(topology)
    drawn, what = (topology.nodes, "nodes") if places.hosts else (topology.switches, "routers")
    if drawn > MOST_NODES:
        raise ValueError(
            f"{topology.spec} has {drawn} {what}; a picture shows at most {MOST_NODES}"
        )
    low, high = corners(topology, places)
    width, height = (high - low).real, (high - low).imag
    inches = min(INCHES * max(1.0, drawn / 60) ** 0.4, MOST_INCHES)
    scale = min(inches / max(width, height), MOST_SCALE)  # inches per unit
    figure.set_size_inches(max(width * scale, 4.5), height * scale + 0.8)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set(xlim=(low.real, high.real), ylim=(low.imag, high.imag))
    draw_groups(axes, places)
    draw_links(axes, topology, places, scale)
    draw_nodes(axes, topology, places, scale)
    switches = "1 switch" if topology.switches == 1 else f"{topology.switches} switches"
    hosts = "" if places.hosts else " (not drawn)"
    axes.set_title(
        f"{topology.spec}   {topology.servers} servers{hosts}, {switches}, "
        f"{len(topology.links)} links"
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, handlelength=1.6)


def corners(topology: Topology, places: DrawingLayout) -> tuple[complex, complex]:
    """Lower left and upper right corner of everything that is drawn."""
    margin = 0.7 + 0.015 * float(np.ptp(places.at.real))
    edges = [places.at + step for step in (-margin * (1 + 1j), margin * (1 + 1j))]
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
    """Both ends of each link and what its middle is drawn to: a curve leans to the centre of its
    sub-network."""
    a, b = places.at[topology.links[:, 0]], places.at[topology.links[:, 2]]
    middle = (a + b) / 2
    across = abs(a - b) / np.maximum(abs(a - places.towards) + abs(b - places.towards), 1e-9)
    return a, middle + BEND * across**2 * (places.towards - middle), b  # what is near goes straight


def draw_groups(axes: Axes, places: DrawingLayout) -> None:
    """Discs behind the sub-networks, darker inwards."""
    from matplotlib.patches import Circle

    for group in places.groups:
        centre = (group.centre.real, group.centre.imag)
        axes.add_patch(
            Circle(centre, group.radius, facecolor="#0072b2", alpha=0.05, edgecolor="none")
        )


def draw_links(axes: Axes, topology: Topology, places: DrawingLayout, scale: float) -> None:
    """Links, those of higher levels last and heavier."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    a, control, b = curves(topology, places)
    codes = [Path.MOVETO, Path.CURVE3, Path.CURVE3]
    strength = 1.0 if places.hosts else float(np.clip((INK_LINKS / len(a)) ** 0.5, 0.25, 1.0))
    for level in range(0 if places.hosts else 1, int(topology.level.max()) + 1):
        chosen = np.flatnonzero(topology.level == level)
        points = np.stack([a[chosen], control[chosen], b[chosen]], axis=1)
        paths = [Path(np.stack([three.real, three.imag], axis=1), codes) for three in points]
        width = float(np.clip(2.5 * scale, 0.3, 1.3)) * (1.0 if level else 0.8)
        colour = style.LEVELS[level % len(style.LEVELS)]
        label = f"level {level} ({topology.roles[level]}): {len(chosen)} links"
        # among groups of routers, what is local is in front
        order = 2 if places.hosts else 2 - level / 100
        axes.add_collection(
            PathCollection(
                paths,
                facecolors="none",
                edgecolors=colour,
                linewidths=width,
                zorder=order,
                alpha=strength if topology.roles[level] == "global" else None,
            )
        )
        axes.plot([], [], color=colour, linewidth=2, label=label)


def draw_nodes(axes: Axes, topology: Topology, places: DrawingLayout, scale: float) -> None:
    """Servers as circles, crossbars as squares, switches that route as boxes as wide as they have
    room."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Circle, FancyBboxPatch

    edge = float(np.clip(1.6 * scale, 0.2, 0.9))
    if not places.hosts:
        routers = [Circle((at.real, at.imag), SERVER) for at in places.at[topology.servers :]]
        axes.add_collection(
            PatchCollection(routers, facecolor=style.INK, edgecolor=style.PAPER, lw=edge, zorder=3)
        )
        write_names(
            axes,
            topology,
            places,
            range(topology.servers, topology.nodes),
            style.PAPER,
            2 * SERVER * scale,
        )
        return
    wide, high = (SWITCH, SWITCH) if topology.server_centric else box(topology, places, scale)
    pad = high / 4
    rounded = f"round,pad={pad},rounding_size={pad}"
    servers = [Circle((at.real, at.imag), SERVER) for at in places.at[: topology.servers]]
    switches = [
        FancyBboxPatch(
            (at.real - wide + pad, at.imag - high + pad),
            2 * (wide - pad),
            2 * (high - pad),
            boxstyle=rounded,
        )
        for at in places.at[topology.servers :]
    ]
    axes.add_collection(
        PatchCollection(
            servers, facecolor=style.PAPER, edgecolor=style.INK, linewidth=edge, zorder=3
        )
    )
    axes.add_collection(PatchCollection(switches, facecolor=style.INK, edgecolor="none", zorder=3))
    write_names(axes, topology, places, range(topology.servers), style.INK, 2 * SERVER * scale)
    write_names(
        axes,
        topology,
        places,
        range(topology.servers, topology.nodes),
        style.PAPER,
        2 * wide * scale,
    )


def box(topology: Topology, places: DrawingLayout, scale: float) -> tuple[float, float]:
    """Half the width and height of the box of a switch: up to half an inch wide if its neighbours
    leave room."""
    at = places.at[topology.servers :]
    rows = [np.sort(at.real[np.isclose(at.imag, y)]) for y in np.unique(at.imag.round(6))]
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
    """The name of each of `nodes` within its mark, unless it would be too small to read."""
    names = [topology.naming.name(node) for node in nodes]
    points = min(9.0, room_inches * 72 * 0.8 / (0.62 * max(map(len, names), default=1)))
    if points < LEAST_POINTS:
        return
    for name, at in zip(names, places.at[nodes.start : nodes.stop], strict=True):
        axes.text(
            at.real,
            at.imag,
            name,
            color=colour,
            fontsize=points,
            ha="center",
            va="center_baseline",
            zorder=4,
        )

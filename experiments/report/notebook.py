"""The drawing of a network that a notebook shows."""

from __future__ import annotations

from io import StringIO

from weft.topologies.core import topology as topologies


def svg(topology: topologies.Topology) -> str:
    """Return the drawing of `topology`; ValueError if it has too many nodes to be seen."""
    from weft.experiments.report.figures import new
    from weft.experiments.report.network_drawing import draw

    drawing = StringIO()
    with new() as figure:
        draw(topology, figure)
        figure.savefig(drawing, format="svg")
    return drawing.getvalue()


topologies.DRAWERS.append(svg)

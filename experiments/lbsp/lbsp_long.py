"""How long do long flows take that meet below one edge switch, with a link failed, or a switch?

LBSP, section 4, figures 6b and 3: two flows from S1 to D1, one from S2 to D2, S1 and S2 behind the
edge switch whose link is damaged, and one from S3 in another pod to D3; D1, D2, D3 behind one edge
switch of a third pod.  The least bits of D1 and D2 are such that S1's and S2's flows take one path
group when the link has failed: the scenario does not favour LBSP.  Flows of 100 MB are `flow_bytes`
here, and all four begin anew every `patience_s`, which is about twice as long as they take; one
that has not ended by the end of the run counts with the time that it has had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.daemons.lbsp.routing import shape_of
from weft.experiments.lbsp import columns, lbsp_tcp
from weft.experiments.runner.definition import Experiment, Result, Run
from weft.topologies import build
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from weft.testbed.traffic.flows import Flow


def measure(run: Run) -> Result:
    """Times of all flows."""
    return lbsp_tcp.measure_repeated(run, traffic(run))


def ends(topology: Topology) -> Sequence[tuple[int, int]]:
    """(source, destination) of each flow."""
    shape = shape_of(topology)

    def host(pod: int, edge: int, number: int) -> int:
        return topology.naming.layout.number_of((pod, edge, number))

    s1, s2 = host(2, shape.d - 1, 0), host(2, shape.d - 1, 1)
    d1, d2, d3 = (host(1, 1 % shape.d, number % shape.hosts) for number in (0, 1, 3))
    return [(s1, d1), (s1, d1), (s2, d2), (host(4 % shape.pods, 0, 0), d3)]


def traffic(run: Run) -> list[Flow]:
    """The flows of `run`, the same for every scheme and damage."""
    from weft.testbed.traffic.flows import Flow

    pairs = ends(build(run.text("topology")))
    begins = [number * run.integer("patience_s") for number in range(run.integer("repeats"))]
    return [
        Flow(float(at_s), src, dst, run.integer("flow_bytes"))
        for at_s in begins
        for src, dst in pairs
    ]


EXPERIMENT = Experiment(
    name="lbsp_long",
    question="How long do long flows take under LBSP, packet scatter and others, with all links "
    "sound and one not?",
    source="LBSP, section 4, figure 6b",
    engines=("kernel",),
    axes=lbsp_tcp.LONG_FLOWS,
    columns=columns.TIMES,
    seeds=3,
    version=2,
    takes_s=1700,
    measure=measure,
    plot=lbsp_tcp.plot,
    check=lbsp_tcp.check,
)

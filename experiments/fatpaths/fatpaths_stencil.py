"""Completion time of a stencil with a barrier over layers, beside ECMP.

FatPaths' figure 17: hosts compute, send to their four neighbours of a two-dimensional stencil, and
wait for all others at a barrier.  Here the computing takes no time: in each round every host sends
`flow_bytes` to each of its neighbours at once, and the next round begins when the last flow has
ended.  The result is the sum over the rounds of the time of the last flow, relative to ECMP's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import mean

from weft.experiments.engines.common_parameters import LAYERS, ORDER
from weft.experiments.fatpaths import layered_network
from weft.experiments.fatpaths.fatpaths_fct import IN_TREES, PAPERS, looks
from weft.experiments.fatpaths.layered_network import AXES, PAPERS_LINKS, SETTING
from weft.experiments.report.panels import Bars, relative
from weft.experiments.runner.definition import Experiment, Result, Run, Value
from weft.experiments.runner.parameters import Integer, swept
from weft.testbed.traffic.flows import Flow, FlowResults

PATIENCE_S = 60.0  # for a round
VERDICTS = ("PASS", "WARN", "FAIL")


def measure(run: Run) -> Result:
    """Return the time of each round, and of all of them."""
    with layered_network.brought_up(run) as network:
        pairs = layered_network.pairs_of(run, network.topology.servers)
        flows = [Flow(0.0, src, dst, run.integer("flow_bytes")) for src, dst in pairs]
        rounds = [
            layered_network.tcp(run, network, flows, deadline_s=PATIENCE_S)
            for _ in range(run.integer("rounds"))
        ]
        result = rounds[-1].result(
            {
                **round_figures([observation.flows for observation in rounds]),
                **layered_network.layer_figures(network),
            },
            {"scheme": network.run.journal["scheme"]},
        )
    verdicts = [observation.report.verdict for observation in rounds]
    return replace(result, fidelity=max(verdicts, key=VERDICTS.index))


def round_figures(rounds: Sequence[FlowResults]) -> dict[str, Value]:
    """Return the columns on the time of each round, and of all of them."""
    seconds = [[result.seconds or PATIENCE_S for result in flows.results] for flows in rounds]
    return {
        "completion_s": sum(map(max, seconds)),
        "rounds_s": [max(times) for times in seconds],
        "unfinished": sum(flows.unfinished for flows in rounds),
        "flow_mean_s": mean(mean(times) for times in seconds),
    }


FACET = (*SETTING, "rounds", "flow_bytes")

EXPERIMENT = Experiment(
    name="fatpaths_stencil",
    question="How long does a stencil with a barrier take over FatPaths' layers, beside ECMP?",
    source="FatPaths, figure 17",
    engines=("kernel",),
    axes={
        **swept(
            AXES,
            scheme=["ecmp", PAPERS, IN_TREES],
            pattern=["stencil:offset=42"],
            mapping=["linear"],
            **PAPERS_LINKS,
        ),
        "flow_bytes": Integer(
            meaning="size of the flow from a host to each neighbour",
            unit="bytes",
            least=1,
            most=10**9,
        ).over(200_000, 2_000_000),
        "rounds": Integer(meaning="rounds between barriers", least=1, most=1000).over(1),
    },
    columns={
        "completion_s": "time of all rounds together",
        "rounds_s": "list: time of each round, up to its last flow",
        "unfinished": "flows that did not end in time",
        "flow_mean_s": "mean time of a flow",
        **LAYERS,
        **ORDER,
    },
    version=4,  # the paper's links, ten times slower
    revised=layered_network.moves_by_cuts,
    seeds=5,
    takes_s=400,
    measure=measure,
    plot=Bars(
        columns={"completion_s": "completion time / ECMP's"},
        facet=FACET,
        baseline=1,
        looks=looks,
        rows=partial(
            relative, columns=("completion_s",), over={"scheme": "ecmp"}, same=(*FACET, "seed")
        ),
    ),
    check=layered_network.check,
)

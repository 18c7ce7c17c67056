"""Completion times on Linux over layers, beside ECMP: of flows that collide, and of a stencil.

FatPaths' figures 11, 14, 15 and 16: flows arrive at random (Poisson) at pairs of a fixed pattern,
with the web-search sizes in 20 steps.  Under a skewed off-diagonal all hosts of a router send to
those of one other router, which have one minimal path between them in most cases; with random
mapping hosts are placed at random, as in the paper's runs of TCP (appendix D).  Long flows are
those of the paper's 1 MiB and more, times `size_fraction`.

A load of 0.2 for each of four hosts is 0.8 of the minimal link.  Beyond 0.25 the flows of ECMP
take the longer, the longer the run, so a ratio to it is one of the run's length.  Links are the
paper's, ten times slower (layered_network.py).

In fatpaths_failover links fail at half of the time (section V-G): announced, so that both ends lose
their carriers, or silently, so that daemons notice missing hellos.  A flow over layers leaves a
dead path when TCP cuts its window; under ECMP only daemons move it.

The stencil is that of figure 17: hosts compute, send to their four neighbours of a two-dimensional
stencil, and wait for all others at a barrier.  Here the computing takes no time: in each round
every host sends `flow_bytes` to each of its neighbours at once, and the next round begins when the
last flow has ended.  The result is the sum over the rounds of the time of the last flow, relative
to ECMP's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any

import numpy as np

from weft.experiments.engines import common_parameters as common
from weft.experiments.fatpaths import flow_times, layered_network
from weft.experiments.fatpaths.layered_network import AXES, PAPERS_LINKS, SETTING
from weft.experiments.report import style
from weft.experiments.report.panels import Bars, Curves, Stack, relative
from weft.experiments.runner.definition import Experiment, Result, Run, Value
from weft.experiments.runner.parameters import Integer, Word, swept
from weft.testbed.traffic.flows import Flow, FlowResults

GRACE_S = 15.0  # after the last arrival, for flows to end
OF_FLOWS = {  # columns with TCP's own figures of each flow, by field of TcpInfo
    "repeated": "retransmissions",
    "repeated_in_vain": "spurious",
    "timeouts": "timeouts",
    "timeout_ms": "timeout_ms",
}


def measure(run: Run) -> Result:
    """Return the time of every flow, means and 99th percentiles, and what the layers did."""
    fraction, seconds = run.number("size_fraction"), run.number("seconds")
    with layered_network.brought_up(run) as network:
        flows = flow_times.arrivals(
            run.generator(1),
            layered_network.pairs_of(run, network.topology.servers),
            flow_times.steps(fraction),
            load_fraction=run.number("load_fraction"),
            rate_bps=layered_network.payload_bps(run),
            duration_s=seconds,
        )
        failures = layered_network.failing(run, network)
        observation = layered_network.tcp(
            run, network, list(flows), deadline_s=seconds + GRACE_S, **failures
        )
        return observation.result(
            {
                **times(observation.flows, fraction, seconds),
                **layered_network.layer_figures(network),
            },
            {"scheme": network.run.journal["scheme"]},
        )


def times(table: FlowResults, fraction: float, seconds: float) -> dict[str, Value]:
    """Return the columns about the flows' times; an unfinished one counts with the time it had.

    The flows that begin in the first half of `seconds` are not warm, as in section VII-A8.
    """
    results = table.results
    sizes = np.array([result.flow.size_bytes for result in results])
    ms = 1000 * np.array(
        [
            table.measured_s - result.began_s if result.seconds is None else result.seconds
            for result in results
        ]
    )
    warm = np.array([result.flow.at_s >= seconds / 2 for result in results], dtype=bool)
    return {
        "flows": len(ms),
        "unfinished": table.unfinished,
        **flow_times.columns(sizes, ms, fraction),
        **flow_times.summary("warm_long", ms[warm & (sizes >= flow_times.LONG_BYTES * fraction)]),
        **{name: tcp_figures(table, field) for name, field in OF_FLOWS.items()},
    }


def tcp_figures(table: FlowResults, field: str) -> list[Any]:
    """Return a field of TcpInfo of every flow; None for a flow without it."""
    return [None if result.tcp is None else getattr(result.tcp, field) for result in table.results]


def looks(key: str, values: Iterable[Value]) -> style.SeriesLooks:
    """Return the look of each scheme, with its layers in words."""
    series = dict(style.looks(key, values))
    for spec in LAYERS.keys() & series.keys():
        label, colour = LAYERS[str(spec)]
        series[spec] = series[spec]._replace(label=label, colour=colour)
    return series


FACET = (*SETTING, "load_fraction", "size_fraction", "seconds")
RATIOS = ("long_mean_ms", "long_p99_ms")
PAPERS = "fatpaths:layers=4,rho=0.6,trigger=cut"
RANDOM = "fatpaths:trigger=cut,start=random"
IN_TREES = "fatpaths:construction=intree,trigger=cut,start=random"
LAYERS = {
    PAPERS: ("four random layers", style.GREEN),
    RANDOM: ("nine random layers", style.SKY),
    IN_TREES: ("nine in-trees", style.WINE),
}

EXPERIMENT = Experiment(
    name="fatpaths_fct",
    question="How long do flows take over FatPaths' layers, beside ECMP and LetFlow, under skewed "
    "and random mapping?",
    source="FatPaths, figures 11, 14, 15 and 16",
    engines=("kernel",),
    axes={
        **swept(
            AXES,
            scheme=["ecmp", "letflow:gap_us=500", PAPERS, RANDOM, IN_TREES],
            **PAPERS_LINKS,
        ),
        "load_fraction": common.LOAD_FRACTION.over(0.2),
        "size_fraction": flow_times.SIZE_FRACTION.over(1.0),
        "seconds": common.PART_OF_SECONDS.over(0.2),
    },
    columns=flow_times.TIME_COLUMNS,
    version=4,  # the paper's links, ten times slower
    revised=layered_network.moves_by_cuts,
    seeds=10,
    takes_s=1200,
    measure=measure,
    plot=Stack(
        Bars(
            columns={"long_mean_ms": "long flows, mean / ECMP's"},
            strokes={"long_mean_ms": {"long_p99_ms": "99th percentile / ECMP's"}},
            facet=FACET,
            baseline=1,
            looks=looks,
            rows=partial(relative, columns=RATIOS, over={"scheme": "ecmp"}, same=(*FACET, "seed")),
        ),
        Curves(
            columns={"fraction": "long flows (figure 15)"},
            x="long_times_ms",
            facet=FACET,
            log=("long_times_ms",),
            looks=looks,
            rows=partial(flow_times.long_times, keys=(*FACET, "scheme")),
        ),
        Curves(
            columns={"times_ms": "mean time (ms), figure 14"},
            x="sizes_bytes",
            facet=FACET,
            log=("times_ms", "sizes_bytes"),
            looks=looks,
            rows=flow_times.by_size,
        ),
    ),
    check=layered_network.check,
)


FAILOVER = replace(
    EXPERIMENT,
    name="fatpaths_failover",
    question="How long do TCP's flows take over FatPaths' layers when links fail, announced or "
    "silently, beside ECMP?",
    source="FatPaths, section V-G",
    axes={
        **swept(
            EXPERIMENT.axes,
            topology=["slimfly:q=5,p=2"],
            scheme=["ecmp", RANDOM],
            mapping=["linear"],
            pattern=["permutation"],
            seconds=[0.3],
        ),
        "failed_fraction": common.FAILED_FRACTION.over(0.05),
        "failure": Word(
            meaning="how links fail: not at all, with their carriers, or losing packets silently",
            words=("none", "link", "silent-link"),
        ).over("none", "link", "silent-link"),
    },
    version=1,
    seeds=3,
    takes_s=None,
    plot=Bars(
        columns={"warm_long_mean_ms": "long flows after the failure, mean (ms)"},
        strokes={"warm_long_mean_ms": {"warm_long_p99_ms": "99th percentile (ms)"}},
        facet=("topology", "failed_fraction", "failure"),
        looks=looks,
    ),
)


PATIENCE_S = 60.0  # for a round
VERDICTS = ("PASS", "WARN", "FAIL")


def measure_rounds(run: Run) -> Result:
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


IN_ROUNDS = (*SETTING, "rounds", "flow_bytes")

STENCIL = Experiment(
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
        **common.LAYERS,
        **common.ORDER,
    },
    version=4,  # the paper's links, ten times slower
    revised=layered_network.moves_by_cuts,
    seeds=5,
    takes_s=400,
    measure=measure_rounds,
    plot=Bars(
        columns={"completion_s": "completion time / ECMP's"},
        facet=IN_ROUNDS,
        baseline=1,
        looks=looks,
        rows=partial(
            relative,
            columns=("completion_s",),
            over={"scheme": "ecmp"},
            same=(*IN_ROUNDS, "seed"),
        ),
    ),
    check=layered_network.check,
)

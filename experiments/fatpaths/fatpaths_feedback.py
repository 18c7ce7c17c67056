"""Completion times of flows whose packets choose layers by the answers to earlier ones.

After FatPaths, on its networks: REPS (Bonato et al., EuroSys 2026), and Spritz' Scout and Spray
(Bonato et al., 2026), over the layers of FatPaths, beside its own rule and random layers
(daemons/transport/endpoint.py, LayerChoice).  Some links may lose all packets, which no switch
notices.  Conditions are else those of fatpaths_vs_fattree; switches mark from four packets on.

A run lasts until senders have given up the flows whose packets are lost.  Such flows have no time:
means and percentiles are of the others, beside the share that did not end.

In ndp_failover links fail while flows run (FatPaths, section V-G): at three quarters of the time,
so that half of the counted flows begin before.  They lose all packets from then on.  Once all
switches know, each layer goes on over live links as on Linux (daemons/fatpaths/live_layers.py), and
minimal paths avoid dead ones.  fatpaths_fct.py has flows of TCP on Linux under such failures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from weft.daemons.transport.endpoint import Backoff, Parameters
from weft.experiments.engines import common_parameters as common
from weft.experiments.fatpaths import fatpaths_vs_fattree as vs_fattree
from weft.experiments.fatpaths import flow_times, transports
from weft.experiments.fatpaths.fatpaths_vs_fattree import EXPERIMENT as VS_FATTREE
from weft.experiments.fatpaths.flow_times import ENDED_COLUMNS
from weft.experiments.fatpaths.transports import TRANSPORT_COLUMNS, Carriage
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Result, Run, Table
from weft.experiments.runner.parameters import Integer, Word, swept
from weft.testbed.packets.transport import transport
from weft.topologies.core import failures

CHOICES = {
    "flow": "FatPaths",
    "blind": "random layers",
    "reps": "REPS",
    "scout": "Spritz, Scout",
    "spray": "Spritz, Spray",
}


def with_choices(table: Table) -> Table:
    """Return the rows with the rule of packets and the failed links in words."""
    return [
        {
            **row,
            "rule": "minimal paths"
            if row["routing"] == "ecmp"
            else CHOICES[transport(row["transport"]).choice],
            "failed": f"{100 * row['failed_fraction']:g} % of links",
        }
        for row in table
    ]


def has_layers(run: Run) -> bool:
    """Return True for networks with layers."""
    return run.text("routing") == "layers"


def measure(run: Run) -> Result:
    """Return the times of the flows that end, and the share of the others."""
    return measure_carried(run, carriage(run))


def carriage(run: Run) -> Carriage:
    """Return how flows are carried: as in fatpaths_vs_fattree, until senders have given up."""
    how = vs_fattree.carriage(run, run.topology)
    endpoint: dict[str, Any] = {
        "timeout_ns": 1000 * run.integer("timeout_us"),
        "attempts": run.integer("attempts"),
        "backoff": Backoff[run.text("backoff").upper()],
    }
    lifetime_ns = Parameters(rate_bps=how.rate_bps, **endpoint).lifetime_ns
    return how._replace(endpoint=endpoint, deadline_s=how.deadline_s + lifetime_ns / 1e9)


def measure_carried(run: Run, how: Carriage) -> Result:
    """Return the columns about the flows of `run`, carried as `how` says."""
    flows = vs_fattree.loads(run, run.topology)
    carried = transports.carry(run, run.topology, flows, how)
    warm = vs_fattree.is_warm(run, flows)
    sizes = np.array([load.size_bytes for load in flows])[warm]
    ms = 1000 * carried.until(flows, np.inf)[warm]
    long = sizes >= flow_times.LONG_BYTES * run.number("size_fraction")
    unfinished = int(np.isinf(ms).sum())
    return carried.result(
        {
            "hosts": run.topology.servers,
            "flows": len(ms),
            "unfinished": unfinished,
            "unfinished_fraction": unfinished / len(ms) if len(ms) else None,
            **flow_times.ended_summary("long", ms[long]),
            **flow_times.ended_summary("short", ms[~long]),
        }
    )


PLOT = Bars(
    columns={
        "long_ended_mean_ms": "(a) long flows that ended (ms)",
        "short_ended_mean_ms": "(b) short flows that ended (ms)",
        "unfinished_fraction": "(c) share that did not end",
    },
    strokes={
        "long_ended_mean_ms": {"long_ended_p99_ms": "99th percentile"},
        "short_ended_mean_ms": {"short_ended_p99_ms": "99th percentile"},
    },
    by=("rule",),
    facet=("topology", "mapping", "failed"),
    rows=with_choices,
)
EXPERIMENT = replace(
    VS_FATTREE,
    name="fatpaths_feedback",
    question="How long do flows take whose packets choose layers by feedback on earlier packets?",
    source="REPS, EuroSys 2026; Spritz, 2026; on FatPaths' networks",
    axes={
        **swept(
            VS_FATTREE.axes,
            topology=["slimfly:q=5,p=4", "dragonfly:p=3,a=6,h=2,palm=0"],
            routing=["layers"],
            construction=["random"],
            transport=["ndp", *(f"ndp:choice={word}" for word in CHOICES if word != "flow")],
        ),
        "failed_fraction": common.FAILED_FRACTION.over(0.0, 0.02),
        "timeout_us": Integer(
            "silence after which a sender of ndp asks what became of a packet",
            unit="us",
            least=10,
            most=10**7,
        ).over(2880),  # 400 packets, as transport/endpoint.py has it
        "attempts": Integer(
            "timeouts in a row after which a sender of ndp gives up", unit="", least=1, most=1000
        ).over(10),
        "backoff": Word(
            "what is one timeout in a row: a packet that is late, or a window of them",
            words=tuple(unit.name.lower() for unit in Backoff),
        ).over("window"),
    },
    columns={
        "hosts": VS_FATTREE.columns["hosts"],
        "flows": VS_FATTREE.columns["flows"],
        "unfinished": "flows that did not end; no mean or percentile counts them",
        "unfinished_fraction": "share of those, of all flows",
        **ENDED_COLUMNS,
        **TRANSPORT_COLUMNS,
    },
    goes_together=has_layers,
    compared=("transport",),
    version=2,  # flows that do not end are apart; the sender's timeouts are parameters
    seeds=10,
    takes_s=600,
    measure=measure,
    plot=PLOT,
)


FAILED_AT = 3 / 4  # of the time in which flows begin


def measure_failing(run: Run) -> Result:
    """Return the columns of fatpaths_feedback for a network whose links fail."""
    known_us = run.integer("known_us")
    failed_s = FAILED_AT * run.number("seconds")
    how = carriage(run)._replace(failed_s=failed_s)
    if known_us:
        after = failures.fail_links(run.topology, how.failed)
        detours_s = min(failed_s + known_us / 1e6, how.deadline_s)
        how = how._replace(detours=vs_fattree.next_hops(run, after), detours_s=detours_s)
    return measure_carried(run, how)


def is_compared(run: Run) -> bool:
    """Return True for one transport over minimal paths, and one delay without failures."""
    has_choice = run.text("routing") == "layers" or run.text("transport") == "ndp"
    return has_choice and (run.number("failed_fraction") > 0 or not run.integer("known_us"))


FAILOVER = replace(
    EXPERIMENT,
    name="ndp_failover",
    question="How long do flows of the purified transport take when links fail while they run?",
    source="FatPaths, section V-G",
    engines=("packet",),
    axes={
        **swept(
            EXPERIMENT.axes,
            topology=["slimfly:q=5,p=4", "slimfly:q=7,p=6"],
            routing=["ecmp", "layers"],
            transport=["ndp", "ndp:choice=reps", "ndp:choice=scout"],
            mapping=["random"],
        ),
        "failed_fraction": common.FAILED_FRACTION.over(0.0, 0.02),
        "known_us": Integer(
            "time from the failure until all switches have other routes; 0: never",
            unit="us",
            least=0,
            most=10**7,
        ).over(0, 100, 1000),
    },
    goes_together=is_compared,
    compared=("routing", "transport"),
    seeds=10,
    takes_s=60,
    measure=measure_failing,
    plot=replace(PLOT, facet=("topology", "failed", "known_us"), wrap=4),
)

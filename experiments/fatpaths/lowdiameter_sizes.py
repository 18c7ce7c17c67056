"""Sizes of low-diameter networks: FatPaths, upper part of table IV, and the formulas of table V.

Counted on the network itself: routers, hosts, links of a router to others, the diameter and the
mean distance between routers with hosts.  as_table_v: whether routers, links of a router and
diameter are what the forms of table V say; hosts of a router, p, are a parameter, and
printed_hosts_of_router what the form says.
"""

from __future__ import annotations

from weft.experiments.fatpaths import columns
from weft.experiments.fatpaths.path_diversity import total_network_load
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.fatpaths.table_iv import (
    NETWORK,
    TABLE_IV,
    TABLE_V_SAMPLES,
    looks,
    table_v,
)
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run

COLUMNS = {
    "diameter": "D",
    "radix": "k'",
    "routers": "routers, N_r",
    "hosts": "hosts, N",
    "mean_hops": "mean links, d",
    "total_network_load": "TNL",
}


def measure(run: Run) -> Result:
    """Return the columns of table IV, whether they are the paper's, the mean distance and TNL."""
    topology = run.topology
    graph = RouterGraph.of(topology)
    figures: Row = {
        "diameter": graph.diameter,
        "radix": graph.network_radix,
        "routers": graph.routers,
        "hosts": topology.servers,
        "router_links": graph.edges,
        "mean_hops": graph.mean_distance,
        "total_network_load": total_network_load(graph),
    }
    paper = TABLE_IV.get(run.text("topology"))
    if paper and paper.routers is not None:
        printed = (paper.diameter, paper.radix, paper.routers, paper.hosts)
        figures["as_in_paper"] = printed == tuple(figures[key] for key in list(COLUMNS)[:4])
    if form := table_v(topology.family, topology.parameters):
        diameter = graph.diameter if form.diameter else None
        counted = (graph.routers, graph.network_radix, diameter)
        figures["as_table_v"] = counted == (form.routers, form.radix, form.diameter)
        figures["printed_hosts_of_router"] = form.hosts_of_router
    return Result(figures=figures)


EXPERIMENT = Experiment(
    name="lowdiameter_sizes",
    question="How large are the low-diameter networks that FatPaths compares?",
    source="FatPaths, tables IV and V",
    engines=("graph",),
    axes={"topology": NETWORK.over(*TABLE_IV, *TABLE_V_SAMPLES)},
    columns=columns.SIZES,
    seeds=1,
    measure=measure,
    plot=Bars(
        columns=COLUMNS,
        by=("topology",),
        log=("routers", "hosts", "total_network_load"),
        looks=looks,
    ),
    takes_s=3,
    must_hold=("as_in_paper", "as_table_v"),
)

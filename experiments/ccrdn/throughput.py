"""Flows on each link, the traffic that a network carries, and the time that it takes.

Flows are counted on each direction of a link, as in the authors' simulator, idle links included.

Figures 10 to 12 (section 7.2) have the flows under uniform random traffic.  PR with GP_I takes,
among the shortest routes, the one whose fullest link carries the fewest flows (5.4).  On DCell and
beta-DCell it uses the network less than DR and relieves the fullest links.  On FiConn it does not:
a proxy route crosses two of the scarce links of the highest level.

Figure 13 (sections 6.5 and 7.3) has the traffic under each scheme.  F flows arrive over links of
rate b.  The restricted aggregate throughput RAT, that of tightly coupled tasks, is F b / (flows on
the fullest link).  The unrestricted one, UAT, is F b / (mean flows on a link).

The paper does not say how large the groups of its many-all-to-all traffic are; `traffic` does.

Figure 14 (sections 6.7 and 7.5) has the completion time of a workload.  Messages of 1 GB go over
links of 1 Gbit/s as fluids (experiments/engines/fluid.py).  Each takes the route that its scheme
chooses when it begins; the result is the arrival of the last one.

workload: uniform:messages=1, from each server to as many random ones; many-all-to-all:group=10,
random groups of servers, each server to all others of its group; one-to-all.
causality: rounds, a server sends its next message after its previous one has arrived, and the last
one that it receives before that; none, all at once.  In one-to-all the sender sends all at once.
sharing: max-min fair; or bottleneck, the rule of the authors' simulator: a flow gets its share of
its fullest link, and what other flows cannot use stays idle.

The paper prints no numbers for figure 14; its uniform traffic is 100 million pairs (section 6.2),
ours one message of each server.  It says that PR is up to 40 % faster on beta-DCell, up to 35 % on
DCell, and on FiConn only for one-to-all.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from weft.experiments.ccrdn.recursive import (
    ROUTES,
    ROUTING,
    TOPOLOGY,
    check,
    check_work,
    policy_of,
    routed_with_loads,
    traffic,
    uniform,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Ints, int_zeros
from weft.experiments.engines.fluid import Messages, Sharing, completion
from weft.experiments.engines.graph import graph_of
from weft.experiments.engines.wiring import compiled_for
from weft.experiments.report.panels import Bars, Curves, exploded, relative
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table
from weft.experiments.runner.parameters import Number, Spec, Word
from weft.topologies.core.grammar import integer, parse, unknown
from weft.topologies.core.link import Gbps

BINS_OF_A_MEAN = 25


LOAD_COLUMNS = {
    "mean_flows": "flows on a directed link, mean",
    "bottleneck_flows": "flows on the fullest directed link",
}


def measure_histogram(run: Run) -> Result:
    """Measure the histogram of flows on directed links, in the same bins for all schemes."""
    flows = run.integer("flows")
    _, loads = routed_with_loads(run, uniform(run, flows))
    bin_flows = max(1, 10 * flows // (BINS_OF_A_MEAN * len(loads)))
    return Result(
        {
            "links_by_flows": np.bincount(loads // bin_flows).tolist(),
            "bin_flows": bin_flows,
            "mean_flows": loads.mean(),
            "bottleneck_flows": loads.max(),
            "p99_flows": np.quantile(loads, 0.99),
            "idle_fraction": (loads == 0).mean(),
        }
    )


def by_flows(table: Table) -> Table:
    """Return a row for each bin of a histogram: its flows, and the fraction of links in it."""
    rows: list[Row] = []
    for row in table:
        bins: Any = row["links_by_flows"]
        fractions = {**row, "links_fraction": (np.array(bins) / sum(bins)).tolist()}
        width = row["bin_flows"]
        rows += exploded([fractions], ("links_fraction",), "flows_on_link", width)
    return rows


FLOW_HISTOGRAM = Experiment(
    name="flow_histogram",
    question="How evenly does traffic load the links?",
    source="CCRDN, section 7.2, figures 10 to 12",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over("dcell:n=3,k=3", "beta-dcell:n=3,k=3", "ficonn:n=10,k=3"),
        "routing": ROUTING.over("dr", "pr-gpi"),
        "flows": common.FLOWS.over(10_000_000),
        "apply": common.APPLY.over("algorithm"),
    },
    columns={
        "links_by_flows": (
            "list: how many directed links carry 0 .. b-1, b .. 2b-1, ... flows, b being bin_flows"
        ),
        "bin_flows": "width of a bin of links_by_flows",
        **LOAD_COLUMNS,
        "p99_flows": "99th percentile over directed links of their flows",
        "idle_fraction": "directed links without a flow",
    },
    seeds=1,
    version=3,
    takes_s=9,
    measure=measure_histogram,
    plot=Curves(
        columns={"links_fraction": "directed links (fraction)"},
        x="flows_on_link",
        series="routing",
        facet=("topology", "flows", "apply"),
        rows=by_flows,
    ),
    check=partial(check, loads=True),
)


def check_run(run: Run) -> None:
    """Raise ValueError for runs that the graph engine cannot do."""
    check(run, loads=True)
    check_work(run, traffic(run, run.text("traffic")).total)


def measure_throughput(run: Run) -> Result:
    """Measure both throughputs, and the link loads that they follow from.

    Loads are those of all flows, lost ones as far as they get; only flows that arrive count as
    throughput.
    """
    pairs = traffic(run, run.text("traffic"))
    tally, loads = routed_with_loads(run, pairs)
    mean = float(loads.mean())
    most = int(loads.max())
    delivered = tally.connected
    return Result(
        {
            "uat_bps": delivered * Gbps / mean if delivered else 0.0,
            "rat_bps": delivered * Gbps / most if delivered else 0.0,
            "mean_flows": mean,
            "bottleneck_flows": most,
            "routed_flows": pairs.total,
            "delivered_flows": delivered,
            "mean_hops": tally.mean_hops,
        }
    )


THROUGHPUT = Experiment(
    name="throughput",
    question="How much traffic can a network carry under each scheme?",
    source="CCRDN, sections 6.5 and 7.3, figure 13",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over(
            *("dcell:n=18,k=2", "dcell:n=3,k=3", "dcell:n=4,k=3"),
            *("beta-dcell:n=18,k=2", "beta-dcell:n=3,k=3", "beta-dcell:n=4,k=3"),
            *("ficonn:n=36,k=2", "ficonn:n=10,k=3"),
        ),
        "routing": ROUTING.over("dr", "pr-gp0", "pr-gpi", "pr-gpe"),
        "traffic": common.TRAFFIC.over(
            "uniform:flows=10000000", "many-all-to-all:group=50", "one-to-all"
        ),
        "apply": common.APPLY.over("algorithm"),
    },
    columns={
        "uat_bps": (
            "throughput of all flows if links were loaded alike: delivered flows x 1 "
            "Gbit/s / mean_flows (UAT)"
        ),
        "rat_bps": (
            "throughput of all flows if all get what the most loaded link gives: ... / "
            "bottleneck_flows (RAT)"
        ),
        **LOAD_COLUMNS,
        "routed_flows": "flows of the traffic",
        "delivered_flows": "flows that have a route",
        "mean_hops": "mean length of their routes",
    },
    seeds=1,
    version=3,
    takes_s=240,
    measure=measure_throughput,
    plot=Bars(
        columns={"uat_bps": "UAT over that of DR", "rat_bps": "RAT over that of DR"},
        by=("routing",),
        facet=("topology", "apply"),
        across="traffic",
        baseline=1,
        rows=partial(
            relative,
            columns=("uat_bps", "rat_bps"),
            over={"routing": "dr"},
            same=("topology", "traffic", "seed"),
        ),
    ),
    check=check_run,
)


MESSAGE_BITS = 8e9
WORKLOADS = {"uniform": "messages", "many-all-to-all": "group", "one-to-all": None}
CAUSALITY = ("rounds", "none")
SHARING = ("max-min", "bottleneck")
MOST_MESSAGES, MOST_GROUP = 1000, 1_000_000
WORKLOAD_FORM = "uniform:messages=N, many-all-to-all:group=N or one-to-all"


def check_completion(run: Run) -> None:
    """Raise ValueError unless the network has enough servers for the workload."""
    check(run, loads=True)
    name, number = workload_of(run.text("workload"))
    servers = graph_of(run).servers
    if WORKLOADS[name] == "group" and number > servers:
        raise ValueError(
            f"completion_time: group must be at most {servers} in {run.text('topology')}, "
            f"got {number}"
        )


def workload_of(text: str) -> tuple[str, int]:
    """Return name and parameter of a workload; raise ValueError for an unknown one."""
    name, parameters = parse(text)
    if name not in WORKLOADS:
        raise ValueError("completion_time: " + unknown("workload", name, WORKLOADS))
    parameter = WORKLOADS[name]
    if set(parameters) != ({parameter} if parameter else set()):
        example = f":{parameter}=10" if parameter else ""
        raise ValueError(f"completion_time: write {name}{example}")
    if parameter is None:
        return name, 0
    least, most = (2, MOST_GROUP) if parameter == "group" else (1, MOST_MESSAGES)
    return name, integer(name, parameter, parameters[parameter], least=least, most=most)


def ends(run: Run) -> tuple[Ints, Ints]:
    """Return sources and destinations of all messages.

    The first message of every server comes before the second of any.
    """
    generator = run.generator(0)
    servers = graph_of(run).servers
    name, number = workload_of(run.text("workload"))
    if name == "one-to-all":
        order = generator.permutation(servers)
        return np.repeat(order[:1], servers - 1), order[1:]
    if name == "uniform":
        src = np.tile(np.arange(servers), number)
        return src, (src + 1 + generator.integers(servers - 1, size=len(src))) % servers
    order = generator.permutation(servers)
    src, dst = places_in_groups(servers, number)
    return order[src], order[dst]


def places_in_groups(places: int, group: int) -> tuple[Ints, Ints]:
    """Return sources and destinations of all-to-all messages within each `group` of `places`."""
    every = np.arange(places)
    first = every - every % group  # of a place's group
    size = np.minimum(group, places - first)  # of a place's group; the last may be smaller
    steps = [(every[size > step], step) for step in range(1, group)]
    src = np.concatenate([place for place, _ in steps])
    dst = np.concatenate([first[p] + (p - first[p] + step) % size[p] for p, step in steps])
    return src, dst


def messages(run: Run) -> Messages:
    """Return the workload of `run` with its dependencies between messages."""
    src, dst = ends(run)
    count = len(src)
    if run.text("causality") == "none" or workload_of(run.text("workload"))[0] == "one-to-all":
        after, before = int_zeros(2, 0)
    else:
        after, before = dependencies(src, dst, graph_of(run).servers)
    order = np.argsort(before, kind="stable")
    return Messages(
        src,
        dst,
        np.bincount(after, minlength=count),
        after[order],
        np.searchsorted(before[order], np.arange(count + 1)),
    )


def dependencies(src: Ints, dst: Ints, servers: int) -> tuple[Ints, Ints]:
    """Return pairs (after, before) of messages.

    Each message comes after its sender's previous one and the last one received before that.
    """
    sent = np.full(servers, -1)
    received = np.full(servers, -1)
    after, before = [], []
    for message, (source, target) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        for last in {int(sent[source]), int(received[source])} - {-1}:
            after.append(message)
            before.append(last)
        sent[source] = message
        received[target] = message
    return np.array(after, np.int64), np.array(before, np.int64)


def measure_completion(run: Run) -> Result:
    """Measure when the last message has arrived, and the mean arrival."""
    net = graph_of(run)
    end_s, updates = compiled_for(net.rule, completion)(
        net.tables,
        policy_of(run),
        messages(run),
        Sharing(
            net.channels,
            MESSAGE_BITS,
            float(Gbps),
            float(run.parameters["resolution"]),
            run.text("sharing") == "max-min",
        ),
    )
    return Result(
        {
            "completion_s": float(end_s.max()),
            "mean_end_s": float(end_s.mean()),
            "sent_messages": len(end_s),
            "rate_updates": updates,
        }
    )


COMPLETION_TIME = Experiment(
    name="completion_time",
    question="How long does a workload take under each scheme?",
    source="CCRDN, sections 6.7 and 7.5, figure 14",
    engines=("graph",),
    axes={
        "topology": TOPOLOGY.over(
            *("dcell:n=18,k=2", "dcell:n=4,k=3", "beta-dcell:n=18,k=2", "beta-dcell:n=4,k=3"),
            *("ficonn:n=36,k=2", "ficonn:n=10,k=3"),
        ),
        "routing": ROUTES.over("dr", "pr-gp0", "pr-gpi", "pr-gpe"),
        "workload": Spec("who sends to whom", form=WORKLOAD_FORM, check=workload_of).over(
            "uniform:messages=1", "many-all-to-all:group=5", "one-to-all"
        ),
        "causality": Word(
            "who waits for whom: servers send round after round, or all at once",
            words=CAUSALITY,
        ).over("rounds"),
        "sharing": Word("rule by which flows share a link", words=SHARING).over("max-min"),
        "resolution": Number(
            "part of the time until the next end within which all ends are taken together",
            unit="fraction",
            least=0,
            most=0.2,
        ).over(0.05),
        "apply": common.APPLY.over("algorithm"),
    },
    columns={
        "completion_s": "when the last message has arrived",
        "mean_end_s": "when a message has arrived, mean",
        "sent_messages": "messages of the workload",
        "rate_updates": "how often the rates of flows were worked out anew",
    },
    seeds=1,
    version=2,
    takes_s=110,
    measure=measure_completion,
    plot=Bars(
        columns={"completion_s": "completion time (s)"},
        by=("routing",),
        facet=("topology", "causality", "sharing", "apply", "resolution"),
        across="workload",
    ),
    check=check_completion,
)

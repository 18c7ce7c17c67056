"""How long does a workload take under each scheme?  CCRDN, sections 6.7 and 7.5, figure 14.

Messages of 1 GB over links of 1 Gbit/s as fluids (experiments/engines/fluid.py), each on the route
that its scheme chooses when it begins; the answer is when the last one has arrived.

workload: uniform:messages=1, from each server to as many random ones; many-all-to-all:group=10,
random groups of servers in which everybody sends to everybody; one-to-all.
causality: rounds, a server sends on when its last message has arrived, and the last that it was to
get before that; none, all at once.  In one-to-all the one sender sends all at once.
sharing: max-min fair; or bottleneck, the authors' simulator's rule, where a flow gets its share of
its fullest link and what others cannot use is left idle.

The paper prints no numbers for figure 14, only that PR is up to 40 % faster on beta-DCell, up to 35
% on DCell, and not on FiConn but for one-to-all; nor how many messages there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.ccrdn import columns
from weft.experiments.ccrdn.recursive import (
    ROUTES,
    TOPOLOGY,
    check,
    in_order,
    least_level,
    legend_above,
    series,
    title,
)
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.fluid import Messages, completion
from weft.experiments.engines.graph import graph, policy
from weft.experiments.engines.rules import compiled_for
from weft.experiments.report import style
from weft.experiments.runner.definition import Experiment, Result, Run, Statement, Table
from weft.experiments.runner.parameters import Number, Spec, Word
from weft.topologies.core.grammar import integer, parse, unknown
from weft.topologies.core.link import Gbps

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MESSAGE_BITS = 8e9
WORKLOADS = {"uniform": "messages", "many-all-to-all": "group", "one-to-all": None}
CAUSALITY = ("rounds", "none")
SHARING = ("max-min", "bottleneck")
MOST_MESSAGES, MOST_GROUP = 1000, 1_000_000
WORKLOAD_FORM = "uniform:messages=N, many-all-to-all:group=N or one-to-all"
PAPER = (
    "paper: PR takes up to 40 % less than DR on β-DCell, 35 % on DCell; on FiConn only "
    "one-to-all gains"
)


def check_run(run: Run) -> None:
    """ValueError unless the network has servers enough for the workload."""
    check(run, loads=True)
    name, number = workload_of(run.text("workload"))
    servers = graph(run.text("topology")).servers
    if WORKLOADS[name] == "group" and number > servers:
        raise ValueError(
            f"completion_time: group must be at most {servers} in {run.text('topology')}, "
            f"got {number}"
        )


def workload_of(text: str) -> tuple[str, int]:
    """The name of the workload and its parameter; ValueError for another."""
    name, given = parse(text)
    if name not in WORKLOADS:
        raise ValueError("completion_time: " + unknown("workload", name, WORKLOADS))
    parameter = WORKLOADS[name]
    if set(given) != ({parameter} if parameter else set()):
        raise ValueError(
            f"completion_time: write {name}" + (f":{parameter}=10" if parameter else "")
        )
    if parameter is None:
        return name, 0
    least, most = (2, MOST_GROUP) if parameter == "group" else (1, MOST_MESSAGES)
    return name, integer(name, parameter, given[parameter], least=least, most=most)


def ends(run: Run) -> tuple[Ints, Ints]:
    """Source and destination of every message, in such an order that all servers' first ones come
    first, and so on."""
    rng, servers = np.random.default_rng([run.seed, 0]), graph(run.text("topology")).servers
    name, number = workload_of(run.text("workload"))
    everybody = np.arange(servers)
    if name == "one-to-all":
        order = rng.permutation(servers)
        return np.repeat(order[:1], servers - 1), order[1:]
    if name == "uniform":
        src = np.tile(everybody, number)
        return src, (src + 1 + rng.integers(servers - 1, size=len(src))) % servers
    order = rng.permutation(servers)
    first = everybody - everybody % number  # of a place's group, and how many that has
    size = np.minimum(number, servers - first)
    steps = [(everybody[size > step], step) for step in range(1, number)]
    src = np.concatenate([place for place, _ in steps])
    dst = np.concatenate([first[p] + (p - first[p] + step) % size[p] for p, step in steps])
    return order[src], order[dst]


def messages(run: Run) -> Messages:
    """The workload of `run`, with who waits for whom."""
    src, dst = ends(run)
    count = len(src)
    if run.text("causality") == "none" or workload_of(run.text("workload"))[0] == "one-to-all":
        return Messages(
            src,
            dst,
            np.zeros(count, np.int64),
            np.zeros(0, np.int64),
            np.zeros(count + 1, np.int64),
        )
    after, before = waiting(src, dst, graph(run.text("topology")).servers)
    order = np.argsort(before, kind="stable")
    return Messages(
        src,
        dst,
        np.bincount(after, minlength=count),
        after[order],
        np.searchsorted(before[order], np.arange(count + 1)),
    )


def waiting(src: Ints, dst: Ints, servers: int) -> tuple[Ints, Ints]:
    """Pairs (after, before) of messages: each comes after its sender's last one, and the last that
    its sender is sent before it."""
    sent, received = np.full(servers, -1), np.full(servers, -1)
    after, before = [], []
    for message, (one, other) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        for last in {int(sent[one]), int(received[one])} - {-1}:
            after.append(message)
            before.append(last)
        sent[one] = message
        received[other] = message
    return np.array(after, np.int64), np.array(before, np.int64)


def measure(run: Run) -> Result:
    """When the last message has arrived, and on average each."""
    net, work = graph(run.text("topology")), messages(run)
    end_s, times = compiled_for(net.rule, completion)(
        net.tables,
        policy(run.text("routing"), least_level=least_level(run)),
        work,
        net.channels,
        MESSAGE_BITS,
        float(Gbps),
        float(run.parameters["resolution"]),
        run.text("sharing") == "max-min",
    )
    return Result(
        figures={
            "completion_s": float(end_s.max()),
            "mean_end_s": float(end_s.mean()),
            "sent_messages": len(end_s),
            "rate_updates": times,
        }
    )


def plot(table: Table, figure: Figure) -> None:
    """Figure 14: completion time of each scheme on each network, for each workload."""
    workloads = sorted({str(row["workload"]) for row in table})
    figure.set_size_inches(max(6.4, 4.8 * len(workloads)), 4.2)
    for axes, workload in zip(
        figure.subplots(1, len(workloads), squeeze=False)[0], workloads, strict=True
    ):
        rows = [row for row in table if row["workload"] == workload]
        networks, lines = (
            in_order(rows),
            series(rows, "causality", "sharing", "apply", "resolution"),
        )
        width = 0.8 / len(lines)
        for place, line in enumerate(lines):
            seen = [
                (x, line.at("completion_s", topology=network)) for x, network in enumerate(networks)
            ]
            bars = [
                (x + (place - (len(lines) - 1) / 2) * width, *value) for x, value in seen if value
            ]
            x, y, error = zip(*bars, strict=True)
            axes.bar(
                x,
                y,
                0.9 * width,
                yerr=error if any(error) else None,
                color=line.look.colour,
                label=line.look.label,
            )
        axes.set_xticks(range(len(networks)), [title(network) for network in networks])
        axes.set(title=workload, ylabel=style.axis("completion_s", "completion time"))
        axes.yaxis.set_major_formatter("{x:,.0f}")
    legend_above(figure, PAPER)


EXPERIMENT = Experiment(
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
        "workload": Spec(meaning="who sends to whom", form=WORKLOAD_FORM, check=workload_of).over(
            "uniform:messages=1", "many-all-to-all:group=5", "one-to-all"
        ),
        "causality": Word(
            meaning="who waits for whom: servers send round after round, or all at once",
            words=CAUSALITY,
        ).over("rounds"),
        "sharing": Word(meaning="rule by which flows share a link", words=SHARING).over("max-min"),
        "resolution": Number(
            meaning="part of the time until the next end within which all ends are taken together",
            unit="fraction",
            least=0,
            most=0.99,
        ).over(0.05),
        "apply": common.APPLY.over("algorithm"),
    },
    columns=columns.COMPLETION,
    statements=[
        Statement(
            says=f"proxies shorten the completion time by up to {percent} % on {name} (figure 14)",
            paper=f"{1 - percent / 100:.2f} at best",
            column="completion_s",
            cell={"topology": topology, "routing": "pr-gpe"},
            over={"routing": "dr"},
        )
        for name, topology, percent in (
            ("DCell", "dcell:n=4,k=3", 35),
            ("beta-DCell", "beta-dcell:n=4,k=3", 40),
        )
    ],
    seeds=1,
    version=2,
    takes_s=110,
    measure=measure,
    plot=plot,
    check=check_run,
)

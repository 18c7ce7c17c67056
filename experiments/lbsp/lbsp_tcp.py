"""What LBSP's experiments under TCP share (its section 4): the fabric and its damage, TCP as the
paper had it, figures.

The paper's network has 1 Gbit/s, queues of 250 packets, 50 us a link, TCP Reno and a retransmission
timer of 20 ms; an emulated one is `rate_mbps` slow.  Queues and thresholds count packets and need
no scaling; the retransmission timer is given as many packet times as in the paper, 20 ms x 1000 /
rate_mbps.  What does not scale: in real time there is no propagation delay, for what a delay holds
back misses the data plane, so that the empty path holds a packet a hop and not 50 more; delayed
acknowledgements, 40 ms, and the first timeout, 1 s, are the kernel's; flows are shorter, by a
stated size.  Under the virtual clock rate_mbps=1000 delay_us=50 is the paper's network itself.

Damage is on the link between the last edge and the last aggregation switch of pod 2 (figure 3: T11
and A11), or is that aggregation switch.  Every scheme knows of what has failed, as if its daemons
had had their time; of the degraded link, to a tenth of its rate, only LBSP is told (lbsp_recovery
asks how long it takes to learn).  spray, ECMP, LetFlow, DRILL and TTC then choose among the
shortest paths that are left.

tcp=rack is Linux as it is: SACK, RACK, and a reordering tolerance that grows.  tcp=reno has all of
that turned off: three duplicate acknowledgements are a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.daemons.core import registry
from weft.daemons.lbsp.routing import shape_of
from weft.experiments.engines import common_parameters as common
from weft.experiments.report import figures, style
from weft.experiments.report.statistics import bootstrap_interval
from weft.experiments.runner.definition import Result, Run, Table, Value
from weft.experiments.runner.parameters import Axis, Integer, Word
from weft.topologies import build
from weft.topologies.core.failures import fail_links, fail_nodes
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from weft.experiments.engines.fabric_run import FabricObservation, FabricRun
    from weft.testbed.data_plane.data_plane import DataPlane
    from weft.testbed.network.network import RunningNetwork
    from weft.testbed.traffic.flows import Flow

DAMAGE = ("none", "link", "node", "degraded")
DEGRADED_FRACTION = 0.1
PAPERS_RATE_MBPS, PAPERS_RTO_MS = 1000, 20
TCP: Mapping[str, Mapping[str, str]] = {
    "rack": {"recovery": "1", "sack": "1", "dsack": "1", "reordering": "3", "max_reordering": "300",
             "early_retrans": "3", "frto": "2"},
    "reno": {"recovery": "0", "sack": "0", "dsack": "0", "reordering": "3", "max_reordering": "3",
             "early_retrans": "0", "frto": "0"},
}  # fmt: skip


DAMAGE_OF_A_LINK = Word(meaning="what is damaged in pod 2", words=DAMAGE)
KIND_OF_TCP = Word(
    meaning="Linux as it is, or without SACK, RACK and a tolerance of reordering", words=[*TCP]
)
FLOW_BYTES = Integer(meaning="size of every flow", unit="bytes", least=1, most=10**12)
OVERSUBSCRIPTION = Integer(
    meaning="how many times slower links between aggregation and core switches are",
    least=1,
    most=1000,
)
REPEATS = Integer(meaning="times that all flows begin anew", unit="times", least=1, most=1000)
PATIENCE_S = Integer(meaning="from one such time to the next", unit="s", least=1, most=3600)
LONG_FLOWS: Mapping[str, Axis] = {
    "topology": common.TOPOLOGY.over("fattree:k=8"),
    "scheme": common.SCHEME.over("lbsp", "spray", "ecmp", "letflow", "drill", "ttc"),
    "damage": DAMAGE_OF_A_LINK.over("none", "link", "node"),
    "tcp": KIND_OF_TCP.over(*TCP),
    "rate_mbps": common.RATE_MBPS.over(20),
    "queue_packets": common.QUEUE_PACKETS.over(250),
    "delay_us": common.DELAY_US.over(0),
    "flow_bytes": FLOW_BYTES.over(2_000_000),
    "oversubscription": OVERSUBSCRIPTION.over(1),
    "repeats": REPEATS.over(4),
    "patience_s": PATIENCE_S.over(4),
}


def damaged(topology: Topology) -> str:
    """The link that is damaged, by name."""
    last = shape_of(topology).d - 1
    return f"e2.{last}-a2.{last}"


def check(run: Run) -> None:
    """ValueError unless `run` names a fat-tree that has what is damaged, and whose paths its scheme
    can part, and its slowest links have a rate."""
    topology = common.network(run)
    selection, options = registry.data_plane(run.text("scheme"))
    shape_of(topology)  # the damage is where a fat-tree has it
    selection.check(topology, options)
    topology.link(damaged(topology))
    slowest = run.integer("rate_mbps") * Mbps // run.integer("oversubscription")
    common.check_delay(run)
    LinkSpec(
        rate_bps=round(slowest * DEGRADED_FRACTION), queue_packets=run.integer("queue_packets")
    )


@contextmanager
def fabric(run: Run) -> Iterator[FabricRun]:
    """The network of `run`, damaged, up for the length of a `with`."""
    from weft.experiments.engines.fabric_run import FabricRun
    from weft.testbed.data_plane.data_plane import DataPlane
    from weft.testbed.network.network import RunningNetwork

    topology = build(run.text("topology"))
    link = common.link(run)
    network = RunningNetwork.create(topology, link, scheme="static")
    try:
        with DataPlane.load(network, run.text("scheme"), seed=run.seed) as plane:
            plane.attach()
            slow_core_links(network, link, run.integer("oversubscription"))
            left = damage(network, plane, run, link)
            seeds = plane.set_scheme(run.text("scheme"), seed=run.seed)
            yield FabricRun(network, plane, left, seeds)
    finally:
        network.down()


def slow_core_links(network: RunningNetwork, link: LinkSpec, oversubscription: int) -> None:
    """Ratios as the paper makes them: slower links between aggregation and core switches."""
    from weft.testbed.network.degrade import set_rate

    for at in np.flatnonzero(network.topology.level == 2).tolist() if oversubscription > 1 else ():
        set_rate(network, network.topology.link_name(at), link.rate_bps // oversubscription)


def damage(network: RunningNetwork, plane: DataPlane, run: Run, link: LinkSpec) -> Topology:
    """Do it, and let the routes be those of switches that know; the topology that is left."""
    from weft.testbed.network.degrade import set_rate

    topology, kind = network.topology, run.text("damage")
    name = damaged(topology)
    if kind == "degraded":
        set_rate(network, name, round(link.rate_bps * DEGRADED_FRACTION))
    left = topology
    if kind == "link":
        left = fail_links(topology, [topology.link(name)])
    elif kind == "node":
        left = fail_nodes(topology, [topology.naming.node(name.partition("-")[2])])
    gone = np.flatnonzero(left.failed).tolist()
    for at in gone:
        network.fail(topology.link_name(at))
    if kind == "degraded":
        plane.follow(left, degraded=[topology.link(name)])
    elif gone:
        plane.follow(left)
    return left


def rto_us(run: Run) -> int:
    """The least retransmission timeout: as many packet times as in the paper."""
    return PAPERS_RTO_MS * 1000 * PAPERS_RATE_MBPS // run.integer("rate_mbps")


def tcp(run: Run, on: FabricRun, wanted: Sequence[Flow], *, deadline_s: float) -> FabricObservation:
    """Let the flows happen over the TCP of `run`, every packet watched."""
    from weft.experiments.engines.fabric_run import FabricObservation
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.measure.reordering import Reordering
    from weft.testbed.traffic import flows, tcp_settings

    tcp_settings.tune(
        on.network,
        {
            **{f"ipv4/tcp_{key}": value for key, value in TCP[run.text("tcp")].items()},
            "ipv4/tcp_rto_min_us": str(rto_us(run)),
        },
    )
    with Reordering(on.network) as order, Fidelity(on.network) as fidelity:
        table = flows.run(on.network, wanted, deadline_s=deadline_s, congestion_control="reno")
    return FabricObservation(table, order.table, fidelity.report)


def measure(run: Run, wanted: Sequence[Flow], *, deadline_s: float) -> Result:
    """Completion times and reordering of the flows `wanted`; one that has not ended in time counts
    with the time that it has had."""
    from weft.experiments.engines.fabric_run import circumstances, order_figures

    with fabric(run) as on:
        seen = tcp(run, on, wanted, deadline_s=deadline_s)
        ms = [
            1000 * (deadline_s - one.flow.at_s if one.seconds is None else one.seconds)
            for one in seen.flows.results
        ]
        row: dict[str, Value] = {
            "flows": len(ms),
            "unfinished": seen.flows.unfinished,
            "mean_ms": float(np.mean(ms)),
            "p50_ms": float(np.percentile(ms, 50)),
            "p99_ms": float(np.percentile(ms, 99)),
            "p999_ms": float(np.percentile(ms, 99.9)),
            "times_ms": [round(one, 3) for one in ms],
            **order_figures(seen),
        }
        return Result(
            figures=row, fidelity=seen.report.verdict, circumstances=circumstances(on, seen)
        )


def measure_repeated(run: Run, wanted: Sequence[Flow]) -> Result:
    """The same of flows that begin anew `repeats` times, each time after `patience_s`."""
    return measure(run, wanted, deadline_s=run.integer("repeats") * run.integer("patience_s"))


SETTING = (
    "topology",
    "tcp",
    "flow_bytes",
    "rate_mbps",
    "queue_packets",
    "delay_us",
    "load_fraction",
    "oversubscription",
    "damage",
    "repeats",
    "rounds",
    "patience_s",
)
HATCHES = ("", "////", "....", "xxxx")  # of schemes that differ in their parameters alone


def plot(table: Table, figure: Figure, *, across: str = "damage", key: str = "p999_ms") -> None:
    """For each setting, TCP and size of flows among it, a panel: bars of `key` for each value of
    `across` and each scheme.

    Marks are single runs, hollow where fidelity failed, which bars and their 95 % intervals leave
    out.
    """
    keys = [one for one in SETTING if one != across and all(one in row for row in table)]
    groups = figures.by_setting(table, keys, always=3)
    values = list(dict.fromkeys(row[across] for row in table))
    order = {kind: at for at, kind in enumerate(DAMAGE)}
    values.sort(key=lambda one: order.get(str(one), 0) if isinstance(one, str) else float(str(one)))
    looks = style.lines(style.in_order(str(row["scheme"]) for row in table))
    figure.set_size_inches(7.6, 0.4 + 2.4 * len(groups))
    panels = figure.subplots(max(1, len(groups)), 1, squeeze=False).flat
    for axes, (title, rows) in zip(panels, groups.items(), strict=False):
        for at, (scheme, (look, _)) in enumerate(looks.items()):
            of_scheme = [row for row in rows if row["scheme"] == scheme]
            chosen = [[row for row in of_scheme if row[across] == one] for one in values]
            x = np.arange(len(values)) + (at - (len(looks) - 1) / 2) * 0.8 / len(looks)
            bars(axes, x, chosen, look, key, width=0.8 / len(looks))
        axes.set_xticks(range(len(values)), [str(one) for one in values])
        axes.set(ylabel=style.axis(key, "99.9th percentile"), ylim=(0, None), xlabel=across)
        axes.set_title(title, fontsize=8)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=6, fontsize=7
    )


def bars(
    axes: Axes,
    x: NDArray[Any],
    chosen: Sequence[Table],
    look: style.SeriesStyle,
    key: str,
    *,
    width: float,
) -> None:
    """A bar at each `x` for the runs that did not fail fidelity, with its 95 % interval, and a mark
    for each run."""
    sound = [
        [float(str(row[key])) for row in one if not figures.failed_fidelity(row)] for one in chosen
    ]
    heights = np.array([np.mean(one) if one else 0.0 for one in sound])
    ends = np.array([bootstrap_interval(one) if one else (0.0, 0.0) for one in sound]).T
    hatch = HATCHES[look.variant % len(HATCHES)]
    axes.bar(
        x,
        heights,
        width,
        facecolor=look.colour,
        edgecolor=style.PAPER,
        hatch=hatch,
        label=look.label,
        alpha=0.85,
    )
    axes.errorbar(x, heights, abs(ends - heights), fmt="none", ecolor=style.INK, elinewidth=0.9)
    for place, runs in zip(x, chosen, strict=True):
        for row in runs:
            failed = figures.failed_fidelity(row)
            fill, edge = ("none", look.colour) if failed else (style.INK, style.INK)
            axes.plot(
                [place],
                [float(str(row[key]))],
                "o",
                markeredgecolor=edge,
                markerfacecolor=fill,
                markersize=2.5,
            )

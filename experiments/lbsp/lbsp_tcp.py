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

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.daemons.core import registry
from weft.daemons.lbsp.routing import shape_of
from weft.experiments.engines import common_parameters as common
from weft.experiments.report import figures, panels, style
from weft.experiments.report.statistics import bootstrap_interval
from weft.experiments.runner.definition import Result, Run, Table, Value
from weft.experiments.runner.parameters import Axis, Integer, Word
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
    can part, and its slowest links have a rate.
    """
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


def fabric(run: Run) -> AbstractContextManager[FabricRun]:
    """Bring up the damaged network of `run` for the length of a `with`."""
    from weft.experiments.engines import fabric_run

    return fabric_run.fabric(run, common.link(run), damage=partial(prepare, run))


def prepare(run: Run, network: RunningNetwork, plane: DataPlane) -> Topology:
    """Slow the core links, then damage the network; return the topology that is left."""
    rate_bps = run.integer("rate_mbps") * Mbps
    slow_core_links(network, rate_bps, run.integer("oversubscription"))
    return damage(network, plane, run.text("damage"), rate_bps)


def slow_core_links(network: RunningNetwork, rate_bps: int, oversubscription: int) -> None:
    """Divide the rate of links between aggregation and core switches, as the paper does."""
    from weft.testbed.network.degrade import set_rate

    if oversubscription > 1:
        for link in np.flatnonzero(network.topology.level == 2).tolist():
            name = network.topology.link_name(link)
            set_rate(network, name, rate_bps // oversubscription)


def damage(network: RunningNetwork, plane: DataPlane, kind: str, rate_bps: int) -> Topology:
    """Damage the network, and route as switches that know; return the topology that is left."""
    from weft.testbed.network.degrade import set_rate

    topology = network.topology
    name = damaged(topology)
    if kind == "degraded":
        set_rate(network, name, round(rate_bps * DEGRADED_FRACTION))
        plane.follow(topology, degraded=[topology.link(name)])
        return topology
    left = topology
    if kind == "link":
        left = fail_links(topology, [topology.link(name)])
    elif kind == "node":
        left = fail_nodes(topology, [topology.naming.node(name.partition("-")[2])])
    failed = np.flatnonzero(left.failed).tolist()
    for link in failed:
        network.fail(topology.link_name(link))
    if failed:
        plane.follow(left)
    return left


def rto_us(run: Run) -> int:
    """The least retransmission timeout: as many packet times as in the paper."""
    return PAPERS_RTO_MS * 1000 * PAPERS_RATE_MBPS // run.integer("rate_mbps")


def tcp(run: Run, on: FabricRun, wanted: Sequence[Flow], *, deadline_s: float) -> FabricObservation:
    """Run the flows over the TCP of `run`, and observe every packet."""
    from weft.experiments.engines import fabric_run

    sysctls = {f"tcp_{key}": value for key, value in TCP[run.text("tcp")].items()}
    sysctls["tcp_rto_min_us"] = str(rto_us(run))
    return fabric_run.observe(
        on.network, sysctls, wanted, deadline_s=deadline_s, congestion_control="reno"
    )


def measure(run: Run, wanted: Sequence[Flow], *, deadline_s: float) -> Result:
    """Completion times and reordering of the flows `wanted`.

    One that has not ended in time counts with the time that it has had.
    """
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
    """Draw bars of `key` for each value of `across` and each scheme, a panel for each setting.

    Marks are single runs, hollow where fidelity failed; bars and their 95 % intervals omit these.
    """
    keys = [name for name in SETTING if name != across and all(name in row for row in table)]
    groups = figures.by_setting(table, keys, always=3)
    values = list(dict.fromkeys(row[across] for row in table))
    values.sort(key=place_of)
    looks = style.lines(style.in_order(str(row["scheme"]) for row in table))
    lines = panels.lines_of_panels(figure, groups, 1, width=7.6, heights=[2.4] * len(groups))
    width = 0.8 / len(looks)
    shifts = panels.offsets(len(looks), width)
    for (axes,), rows in lines:
        for shift, (scheme, (look, _)) in zip(shifts, looks.items(), strict=True):
            of_scheme = panels.select(rows, scheme=scheme)
            runs = [panels.select(of_scheme, **{across: value}) for value in values]
            bars(axes, np.arange(len(values)) + shift, runs, look, key, width=width)
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        axes.set(ylabel=style.axis(key, "99.9th percentile"), ylim=(0, None), xlabel=across)
    panels.legend(figure, loc="outside upper center", ncols=6, fontsize=7)


def place_of(value: Value) -> float:
    """Return the key of the order of a damage or a number."""
    return DAMAGE.index(value) if isinstance(value, str) else float(str(value))


def bars(
    axes: Axes,
    x: NDArray[Any],
    runs_of_bars: Sequence[Table],
    look: style.SeriesStyle,
    key: str,
    *,
    width: float,
) -> None:
    """Draw a bar at each `x` with its 95 % interval, and a mark for each run."""
    form: dict[str, Any] = {"facecolor": look.colour, "edgecolor": style.PAPER, "label": look.label}
    hatch = HATCHES[look.variant % len(HATCHES)]
    valid = [
        panels.numbers([row for row in runs if not figures.failed_fidelity(row)], key)
        for runs in runs_of_bars
    ]
    heights = np.array([np.mean(values) if values else 0.0 for values in valid])
    ends = np.array([bootstrap_interval(values) if values else (0.0, 0.0) for values in valid]).T
    axes.bar(x, heights, width, hatch=hatch, alpha=0.85, **form)
    axes.errorbar(x, heights, abs(ends - heights), fmt="none", ecolor=style.INK, elinewidth=0.9)
    for place, runs in zip(x, runs_of_bars, strict=True):
        for row in runs:
            failed = figures.failed_fidelity(row)
            fill, edge = ("none", look.colour) if failed else (style.INK, style.INK)
            marker: dict[str, Any] = {
                "markeredgecolor": edge,
                "markerfacecolor": fill,
                "markersize": 2.5,
            }
            axes.plot([place], [float(str(row[key]))], "o", **marker)

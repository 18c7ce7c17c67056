"""What TCP gets out of a Clos network under DAR, beside other schemes and a central optimum.

Beyond DAR's paper, whose section 5.2 simulates InfiniBand: endless TCP flows from every host to
another, a worst permutation of section 5 with an order of its own at each leaf; hosts have
`host_percent` of the links' rate.
With `traffic=messages` hosts send message after message instead, each to a random permutation of
the hosts, and do not wait for others (the traffic of section 5.2).

`central` knows all flows and colours the multigraph of leaves (engines/edge_colouring.py); its
controller places flows in DAR's table.  Goodputs are fractions of what hosts' links carry of TCP's
payload, counted after `warm_up_s`; reordering is counted throughout.

Settled is when the last flow was moved; messages never are.  On the engine `fabric` DAR's daemons
see the same permutation in simulated time, all of its flows at once.  DAR's period is 16 packet
times of a link unless the scheme says otherwise.
LBSP is for fat-trees of three tiers, which DAR is not, so that no network has both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from weft.daemons.dar.scheme import sizes
from weft.experiments.dar import columns
from weft.experiments.engines import common_parameters as common
from weft.experiments.report import figures, panels, style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Spec, Word
from weft.topologies.core.grammar import parse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.experiments.engines.fabric_run import FabricRun
    from weft.testbed.traffic.flows import Flow, FlowResults
    from weft.topologies.core.topology import Topology

MIN_RTT_WINDOW_S = 300  # Linux's own
ENDLESS = "endless"


def measure(run: Run) -> Result:
    """On the kernel, or what the daemons alone do about the same permutation in simulated time."""
    return on_kernel(run) if run.engine == "kernel" else simulated(run)


def simulated(run: Run) -> Result:
    """Moves, requests and the time to settle on wires in memory, where all flows are seen at
    once.
    """
    from weft.daemons.simulator.simulator import Simulator
    from weft.experiments.dar import clos_run
    from weft.topologies import build

    topology = build(run.text("topology"))
    scheme = clos_run.scheme_of(run.text("scheme"), clos_run.links_of(run)[0].rate_bps)
    simulator = Simulator(topology, scheme)
    simulator.run_until_converged()
    chosen = clos_run.worst_permutation(np.random.default_rng(run.seed), topology)
    began_s = simulator.now
    for at, (src, dst) in enumerate(chosen):
        simulator.flows.begin(src, dst, at)
    simulator.run_for(run.integer("warm_up_s"))
    warm = clos_run.together(
        simulator.status(node) for node in range(topology.servers, topology.nodes)
    )
    simulator.run_for(run.integer("seconds"))
    done = clos_run.together(
        simulator.status(node) for node in range(topology.servers, topology.nodes)
    )
    return Result(
        figures={
            "most_flows": max(simulator.flows.loads().values(), default=0),
            "settled_ms": max(0.0, 1000 * (simulator.changed_s - began_s)),
            **moves(done, warm, dict.fromkeys(done, 0), len(chosen)),
        }
    )


def on_kernel(run: Run) -> Result:
    """Goodput of the flows together and of the slowest, what was overtaken, and what DAR did for
    that.
    """
    from weft.experiments.dar import clos_run
    from weft.experiments.dar.clos_messages import controlled
    from weft.experiments.engines import fabric_run
    from weft.testbed.linux import clock
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.measure.reordering import Reordering
    from weft.testbed.traffic import flows, tcp_settings

    warm_up_s, seconds = run.integer("warm_up_s"), run.integer("seconds")
    with clos_run.clos(run) as on, controlled(on, run.text("scheme")):
        wanted, then = flows_of(run, on.topology)
        tcp_settings.tune(
            on.network, {"ipv4/tcp_min_rtt_wlen": str(MIN_RTT_WINDOW_S), "ipv4/tcp_ecn": "1"}
        )
        before, warm = clos_run.counted(on), dict[str, int]()
        with Reordering(on.network) as order, Fidelity(on.network) as fidelity:
            began_s = clock.monotonic() + flows.BEGIN_S
            table = flows.run(
                on.network,
                wanted,
                deadline_s=warm_up_s + seconds,
                warm_up_s=warm_up_s,
                congestion_control=run.text("congestion_control"),
                transport=run.text("transport"),
                at_warm_up=lambda: warm.update(clos_run.counted(on)),
                then=then,
            )
            placed = where(on)
        seen = fabric_run.FabricObservation(table, order.table, fidelity.report)
        host_bps = clos_run.links_of(run)[1].rate_bps * fabric_run.PAYLOAD_FRACTION
        each = by_receiver(seen.flows, on.topology.servers)
        moved = {key: value - before[key] for key, value in clos_run.counted(on).items()}
        return Result(
            figures={
                "goodput_fraction": mean(each) / host_bps,
                "slowest_fraction": min(each) / host_bps,
                **fabric_run.order_figures(seen),
                **placement(placed, on, began_s if run.text("traffic") == ENDLESS else None),
                **moves(moved, warm, before, len(table.results)),
            },
            fidelity=seen.report.verdict,
            circumstances=fabric_run.circumstances(on, seen),
        )


def flows_of(run: Run, topology: Topology) -> tuple[list[Flow], Callable[[Flow], Flow | None]]:
    """The flows of `run`: endless ones, or of each host its first message, and which comes after
    which.
    """
    from weft.experiments.dar import clos_run
    from weft.experiments.engines.workloads import derangements, endless

    rng = np.random.default_rng(run.seed)
    if run.text("traffic") == ENDLESS:
        return endless(clos_run.worst_permutation(rng, topology)), lambda arrived: None
    size_bytes, seconds = (
        run.integer("message_kb") * 1024,
        run.integer("warm_up_s") + run.integer("seconds"),
    )
    count = 1 + clos_run.links_of(run)[1].rate_bps * seconds // (8 * size_bytes)
    sequences = derangements(rng, topology.servers, count)
    return clos_run.messages(sequences[:1], size_bytes, 0.0), clos_run.in_turn(sequences)


def by_receiver(table: FlowResults, hosts: int) -> list[float]:
    """What each host receives, in bit/s."""
    found = [0.0] * hosts
    for one in table.results:
        found[one.flow.dst] += 8 * one.received_bytes / table.measured_s
    return found


def where(on: FabricRun) -> list[object]:
    """The flows in the data plane's table at the end; none where it keeps none."""
    from weft.experiments.dar.clos_run import SpineFlowTable as FlowTable

    table = FlowTable.open(on.network)
    try:
        return list(table.read())
    finally:
        table.close()


def placement(placed: list[object], on: FabricRun, began_s: float | None) -> dict[str, Value]:
    """The most flows on a link, and when the last was moved if all `began_s`.

    None under schemes that place none.
    """
    from weft.experiments.dar.clos_run import Placed, loads

    known = [each for each in placed if isinstance(each, Placed)]
    if not known:
        return {"most_flows": None, "settled_ms": None}
    last_s = max(each.noted.moved_ns for each in known) / 1e9
    return {
        "most_flows": max(loads(known, on.topology).values()),
        "settled_ms": None if began_s is None else max(0.0, 1000 * (last_s - began_s)),
    }


def moves(
    moved: Mapping[str, int], warm: Mapping[str, int], before: Mapping[str, int], flows: int
) -> dict[str, Value]:
    """Moves and swaps for each flow, flows that left links that were taken for dead, requests, and
    moves after the warm-up; None without DAR's daemons.
    """
    if not moved:
        return dict.fromkeys(
            ("moves_per_flow", "swaps", "replaced", "requests", "stale_requests", "late_moves")
        )
    late = moved["moves"] + before["moves"] - warm.get("moves", before["moves"])
    return {
        "moves_per_flow": (moved["moves"] + moved["swaps"]) / flows,
        "swaps": moved["swaps"],
        "replaced": moved["replaced"],
        "requests": moved["requests_sent"],
        "stale_requests": moved["requests_stale"],
        "late_moves": late,
    }


def check_scheme(text: str) -> None:
    """ValueError unless there is such a scheme of the data plane, or it is the central
    controller.
    """
    from weft.experiments.dar.clos_run import check_scheme

    check_scheme(text)


def check(run: Run) -> None:
    """ValueError unless `run` names a folded Clos network that its scheme is for, and a transport
    and a control.
    """
    from weft.daemons.core import registry
    from weft.experiments.dar.clos_run import CENTRAL

    topology, scheme = common.network(run), run.text("scheme")
    sizes(topology)
    if run.engine == "fabric" and run.text("traffic") != ENDLESS:
        raise ValueError("dar_goodput: simulated flows have no end: take traffic=endless")
    if run.engine == "fabric" and parse(scheme)[0] != "dar":
        raise ValueError(
            f"dar_goodput: only dar has daemons that could be simulated alone, {scheme} has not"
        )
    if scheme != CENTRAL:
        registry.checked(topology, scheme)
    common.check_tcp(run)


SETTING = (
    *("topology", "traffic", "message_kb", "rate_mbps", "host_percent"),
    *("queue_packets", "congestion_control", "warm_up_s", "seconds"),
)
PANELS = {  # of rows of the kernel
    "goodput_fraction": "mean goodput (fraction)",
    "slowest_fraction": "slowest flow (fraction)",
    "late_fraction": "overtaken packets (fraction)",
    "settled_ms": "until the last move (ms)",
}


def plot(table: Table, figure: Figure) -> None:
    """Draw a bar for each scheme, the mean of its runs, and a mark for each run on the kernel."""
    on_kernel = panels.select(table, engine="kernel")
    groups = figures.by_setting(on_kernel, SETTING)
    order = style.in_order(str(row["scheme"]) for row in on_kernel)
    runs = sorted(on_kernel, key=lambda row: (order.index(str(row["scheme"])), name_of(row)))
    names = {name_of(row): {key: row[key] for key in ("scheme", "transport")} for row in runs}
    heights = [0.5 + 0.28 * len(names)] * len(groups)
    lines = panels.lines_of_panels(
        figure, groups, len(PANELS), width=12.8, heights=heights, sharey=True
    )
    for line, rows in lines:
        for axes, (key, label) in zip(line, PANELS.items(), strict=True):
            draw_panel(axes, [panels.select(rows, **named) for named in names.values()], key)
            axes.set(xlabel=label)
        panels.name_rows(line[0], list(names))


def draw_panel(axes: Axes, runs_of_bars: Sequence[Sequence[Row]], key: str) -> None:
    """Draw a bar for each list of runs."""
    for place, runs in enumerate(runs_of_bars):
        draw_runs(axes, place, runs, key)
    axes.margins(x=0.22)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=5)


def draw_runs(axes: Axes, place: int, rows: Sequence[Row], key: str) -> None:
    """Draw the mean of `key` as a bar with its number, and a mark for each run that has it."""
    runs = [row for row in rows if row.get(key) is not None]
    if not runs:
        return
    values = panels.numbers(runs, key)
    look = style.scheme(str(runs[0]["scheme"]))
    axes.barh(place, mean(values), color=look.colour, alpha=0.5)
    panels.write_beside(axes, max(values), place, f"{mean(values):.3g}")
    panels.run_marks(axes, runs, values, [place] * len(values), look)


def name_of(row: Mapping[str, Value]) -> str:
    """The scheme of a row, and its transport if that is not TCP."""
    return (
        str(row["scheme"]) if row["transport"] == "tcp" else f"{row['scheme']} {row['transport']}"
    )


EXPERIMENT = Experiment(
    name="dar_goodput",
    question="What does TCP get out of a Clos network under DAR, beside other schemes and a "
    "central optimum?",
    source="DAR, sections 2 and 4; beyond the paper",
    engines=("kernel", "fabric"),
    axes={
        "topology": common.TOPOLOGY.over("clos:n=8,r=8,m=8"),
        "scheme": Spec(
            meaning="scheme by which switches choose ports",
            form="SCHEME:key=value,... (`weft list`), or central",
            check=check_scheme,
        ).over(
            "ecmp",
            "dmodk",
            "letflow",
            "drill",
            "ttc",
            "dar",
            "dar:informed=1",
            "dar:detect=queue",
            "central",
        ),
        "transport": common.TRANSPORT.over("tcp"),
        "traffic": Word(
            meaning="endless flows of a worst permutation, or message after message, each host at "
            "its own pace",
            words=(ENDLESS, "messages"),
        ).over(ENDLESS),
        "message_kb": Integer(meaning="size of a message", unit="KiB", least=1, most=65_536).over(
            256
        ),
        "rate_mbps": common.RATE_MBPS.over(5),
        "host_percent": Integer(
            meaning="rate of hosts' links, of the others'", unit="%", least=1, most=100
        ).over(48),
        "queue_packets": common.QUEUE_PACKETS.over(32),
        "congestion_control": common.CONGESTION_CONTROL.over("cubic"),
        "warm_up_s": Integer(
            meaning="time before received bytes count", unit="s", least=1, most=3600
        ).over(2),
        "seconds": common.SECONDS.over(6),
    },
    columns=columns.GOODPUT,
    seeds=3,
    takes_s=400,
    measure=measure,
    plot=plot,
    check=check,
)

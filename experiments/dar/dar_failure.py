"""How long until no flow is on a bad link again when a spine or a link dies under DAR, and what
that costs the flows?

Beyond DAR's paper, which has no failures.  Every host sends one endless TCP flow, a worst
permutation of section 5. After `before_s` something fails:

link         between the first leaf and the first spine: both ends lose their carrier
silent-link  packets vanish there, carriers stay
spine        the first spine loses its power

Every 10 ms the data plane's tables are read.  A flow is on a dead link until it has been placed on
another; `off_dead_ms` is when none was any more, `settled_ms` when in addition no link had more
than p flows, and stayed so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from weft.experiments.dar import columns
from weft.experiments.engines import common_parameters as common
from weft.experiments.report import figures, panels, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Spec, Word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from weft.experiments.dar.clos_run import LinkEnds
    from weft.experiments.engines.fabric_run import FabricRun

FAILURES = ("link", "silent-link", "spine")
MIN_RTT_WINDOW_S = 300


def measure(run: Run) -> Result:
    """Times until the flows are off what has died, and until nothing is bad."""
    from weft.experiments.dar import clos_run
    from weft.experiments.engines import fabric_run
    from weft.experiments.engines.workloads import endless
    from weft.testbed.measure.fidelity import Fidelity
    from weft.testbed.measure.reordering import Reordering
    from weft.testbed.traffic import flows, tcp_settings

    seconds = run.integer("before_s") + run.integer("after_s")
    with clos_run.clos(run) as on:
        chosen = clos_run.worst_permutation(np.random.default_rng(run.seed), on.topology)
        tcp_settings.tune(
            on.network, {"ipv4/tcp_min_rtt_wlen": str(MIN_RTT_WINDOW_S), "ipv4/tcp_ecn": "1"}
        )
        before = clos_run.counted(on)
        seen: dict[str, Value] = {}
        watcher = threading.Thread(target=partial(watch, on, run, seen))
        with Reordering(on.network) as order, Fidelity(on.network) as fidelity:
            watcher.start()
            try:
                table = flows.run(
                    on.network,
                    endless(chosen),
                    deadline_s=seconds,
                    warm_up_s=run.integer("before_s"),
                    congestion_control=run.text("congestion_control"),
                )
            finally:
                watcher.join()
        got = fabric_run.FabricObservation(table, order.table, fidelity.report)
        host_bps = clos_run.links_of(run)[1].rate_bps * fabric_run.PAYLOAD_FRACTION
        goodputs = [8 * one.received_bytes / table.measured_s / host_bps for one in table.results]
        moved = {key: value - before[key] for key, value in clos_run.counted(on).items()}
        return Result(
            figures={
                **seen,
                "goodput_fraction": sum(goodputs) / len(goodputs),
                "slowest_fraction": min(goodputs),
                "moves": moved["moves"] + moved["swaps"],
                "replaced": moved["replaced"],
                **fabric_run.order_figures(got),
            },
            fidelity=got.report.verdict,
            circumstances=fabric_run.circumstances(on, got),
        )


def watch(on: FabricRun, run: Run, into: dict[str, Value]) -> None:
    """Let it fail in time, and tell what the tables say from then on until the flows end."""
    from weft.daemons.core import registry
    from weft.experiments.dar import clos_run
    from weft.experiments.dar.clos_run import POLL_S
    from weft.testbed.linux import clock

    p = registry.scheme(run.text("scheme"))[1]["p"]
    table = clos_run.SpineFlowTable.open(on.network)
    try:
        clock.sleep(run.integer("before_s"))
        dead, fail = act(on, run.text("failure"))
        hit = sum(bool({*ways(on, placed)} & dead) for placed in table.read())
        failed_s = clock.monotonic()
        fail()
        on_dead_s = bad_s = failed_s
        while clock.monotonic() < failed_s + run.integer("after_s") - 2 * POLL_S:
            found = table.read(within_s=run.integer("after_s"))
            now_s, loads = clock.monotonic(), clos_run.loads(found, on.topology)
            if dead & loads.keys():
                on_dead_s = now_s
            if dead & loads.keys() or max(loads.values(), default=0) > p:
                bad_s = now_s
            clock.sleep(POLL_S)
        into.update(
            flows_hit=hit,
            off_dead_ms=1000 * (on_dead_s - failed_s),
            settled_ms=1000 * (bad_s - failed_s),
            most_flows=max(loads.values(), default=0),
        )
    finally:
        table.close()


def ways(on: FabricRun, placed: object) -> list[LinkEnds]:
    """The links between switches that a flow takes."""
    from weft.experiments.dar.clos_run import Placed, loads

    assert isinstance(placed, Placed)
    return list(loads([placed], on.topology))


def act(on: FabricRun, failure: str) -> tuple[set[LinkEnds], Callable[[], None]]:
    """The links that will be dead, in both directions, and what brings that about."""
    from weft.daemons.dar.scheme import sizes

    topology = on.topology
    _, r, _ = sizes(topology)
    leaf, spine = topology.servers, topology.servers + r
    if failure == "spine":
        leaves = range(topology.servers, topology.servers + r)
        dead = {link for each in leaves for link in ((each, spine), (spine, each))}
        return dead, partial(on.network.fail, topology.naming.name(spine))
    name = topology.link_name(topology.link_between(leaf, spine))
    return {(leaf, spine), (spine, leaf)}, partial(
        on.network.fail, name, silent=failure == "silent-link"
    )


def check_scheme(text: str) -> None:
    """Raise ValueError unless `text` is DAR with any of its parameters."""
    common.refuse_others(text, ["dar"], "dar_failure measures when DAR has moved its flows")
    common.daemon_scheme(text)


def check(run: Run) -> None:
    """ValueError unless `run` names a folded Clos network that DAR is for, and a congestion
    control.
    """
    from weft.daemons.core import registry

    registry.checked(common.network(run), run.text("scheme"))
    common.check_tcp(run)


SETTING = ("topology", "rate_mbps", "host_percent", "queue_packets", "congestion_control")
PANELS = {
    "off_dead_ms": "until no flow was on a dead link (ms)",
    "settled_ms": "until no link was bad (ms)",
}


def plot(table: Table, figure: Figure) -> None:
    """Draw both times for each network, setting and failure: a mark for each run."""
    groups = figures.by_setting(table, SETTING)
    looks = style.lines(style.in_order(str(row["scheme"]) for row in table))
    lines = panels.lines_of_panels(
        figure, groups, len(PANELS), width=3.8 * len(PANELS), heights=[3.0] * len(groups)
    )
    for line, rows in lines:
        for axes, (key, label) in zip(line, PANELS.items(), strict=True):
            draw_times(axes, rows, key, looks)
            axes.set(ylabel=label)
    panels.legend(figure, loc="outside upper right", ncols=4, fontsize=7)


def draw_times(
    axes: Axes, rows: Table, key: str, looks: Mapping[str, tuple[style.SeriesStyle, str]]
) -> None:
    """Draw `key` over the failures, the schemes side by side."""
    shifts = panels.offsets(len(looks), 0.15)
    for shift, (scheme, (look, _)) in zip(shifts, looks.items(), strict=True):
        runs = panels.select(rows, scheme=scheme)
        places = [FAILURES.index(str(row["failure"])) + shift for row in runs]
        panels.run_marks(axes, runs, places, panels.numbers(runs, key), look, look.label)
    axes.set_xticks(range(len(FAILURES)), FAILURES)
    top = max(1.0, axes.get_ylim()[1])
    # marks at 0 are whole
    axes.set(xlim=(-0.5, len(FAILURES) - 0.5), ylim=(-0.03 * top, 1.08 * top))


EXPERIMENT = Experiment(
    name="dar_failure",
    question="How long until no flow is on a bad link again when a spine or a link dies under DAR?",
    source="DAR, beyond the paper",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("clos:n=8,r=8,m=8"),
        "scheme": Spec(
            meaning="DAR with its parameters",
            form="dar:key=value,... (`weft list`)",
            check=check_scheme,
        ).over("dar", "dar:informed=1"),
        "failure": Word(meaning="what fails", words=FAILURES).over(*list(FAILURES)),
        "rate_mbps": common.RATE_MBPS.over(5),
        "host_percent": Integer(
            meaning="rate of hosts' links, of the others'", unit="%", least=1, most=100
        ).over(48),
        "queue_packets": common.QUEUE_PACKETS.over(32),
        "congestion_control": common.CONGESTION_CONTROL.over("cubic"),
        "before_s": Integer(meaning="time before the failure", unit="s", least=1, most=3600).over(
            3
        ),
        "after_s": Integer(meaning="time after it", unit="s", least=1, most=3600).over(4),
    },
    columns=columns.FAILURE,
    seeds=3,
    takes_s=250,
    measure=measure,
    plot=plot,
    check=check,
)

"""What do 1,152 hosts get, and in which order?  DAR, section 5.2, its table, by the slotted model.

Every host sends a message of 256 kB to one other, a random permutation of the hosts, then to the
next, and does not wait for others.  Hosts send at the links' rate, where a link carries p = 1 flow,
or at 0.48 of it: p = 2.  The paper's simulator is one of InfiniBand, by flits; here a slot is the
time of a packet of 2 kB, switches and cables take no time, and a packet that is stopped for lack of
room waits in the switch before.  Beside DAR: schemes with which the paper does not compare it.

On the engine `kernel` messages are flows of TCP through links of `kernel_mbps`, each host's next
one beginning when the last has arrived; packets carry 1,448 bytes, and rates and times are told as
if packets had the size and the links the rate that were asked for.  DAR's flows count from their
first packet on.  What is held is not known there.

A packet is held if an earlier one of its message has not arrived; the ratio of held packets to
others is the paper's "out-of-order / in-order", as far as its text tells, and how far ahead of the
first missing packet they are its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.daemons.dar import iteration
from weft.daemons.dar.iteration import KEYS, STARTS, IterationRules
from weft.experiments.dar import columns
from weft.experiments.dar.settings import (
    check_kernel,
    flows_of_link,
    kernel_plan,
    kernel_slot_s,
    message_packets,
    size,
    slot_us,
    slots,
    slots_of_10_us,
)
from weft.experiments.dar.slotted_control import (
    COUNT,
    D_MOD_K,
    DRILL,
    GIVEN,
    HASH,
    QUEUE,
    RANDOM,
    SENT,
    SHORTEST,
    STALE,
    SpineScheme,
)
from weft.experiments.dar.slotted_model import SlottedOutcome, destinations, simulate
from weft.experiments.report import figures, panels, style
from weft.experiments.runner.definition import Experiment, Result, Run, Table, canonical
from weft.experiments.runner.parameters import Axis, Integer, Number, Spec, Word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINK_SLOTS = 3 * 10**9
MOST_RECEIVED, MOST_WAITING = 2 * 10**8, 10**7  # packets that memory has room for
SCHEMES = {
    "dar": (QUEUE, "DAR"),
    "dar-count": (COUNT, "DAR, counting flows"),
    "dar-informed": (COUNT, "DAR, counting flows, informed"),
    "central": (GIVEN, "central optimum"),
    "ecmp": (HASH, "ECMP"),
    "dmodk": (D_MOD_K, "D-mod-k"),
    "rps": (RANDOM, "random, by packet"),
    "drill": (DRILL, "DRILL"),
    "jsq": (SHORTEST, "shortest queue"),
}


def way(run: Run) -> SpineScheme:
    """The scheme of `run`."""
    name = run.text("scheme")
    rules = IterationRules(
        p=flows_of_link(run),
        start=STARTS[run.text("start")],
        every_link=int(run.text("requests") == "every-link"),
        swap=int(run.text("swap") == "yes"),
        informed=int(name == "dar-informed"),
        folded=1,
        key=KEYS[run.text("key")],
        rest=run.integer("rest_slots"),
    )
    first = int(run.text("ears") == "first")
    return SpineScheme(
        SCHEMES[name][0], rules, run.integer("queue_packets"), run.integer("period_slots"), first
    )


def check(run: Run) -> None:
    """ValueError for what does not converge, does not fit into memory, or takes too long."""
    n, r, m = size(run.text("topology"))
    if run.number("host_gbps") > run.number("link_gbps"):
        raise ValueError(
            f"{run.experiment}: a host's link has the rate of any other, "
            f"{run.number('link_gbps'):g} Gbit/s, "
            f"got host_gbps={run.number('host_gbps'):g}"
        )
    if run.number("skipped_us") >= run.number("time_us"):
        raise ValueError(
            f"{run.experiment}: skipped_us must be less than time_us, {run.number('time_us'):g}"
        )
    iteration.check(n, r, m, way(run).rules)
    if run.engine != "graph":
        return check_kernel(run)
    if (2 * r * m + n * r) * slots(run, "time_us") > MOST_LINK_SLOTS:
        raise ValueError(
            f"{run.experiment}: {run.number('time_us'):g} us of {run.text('topology')} take "
            f"too long"
        )
    waiting, received = (
        (2 * r * m + n * r) * run.integer("room_packets"),
        n * r * slots(run, "time_us"),
    )
    if waiting > MOST_WAITING or received > MOST_RECEIVED:
        raise ValueError(
            f"{run.experiment}: more packets than memory has room for: take a shorter time "
            f"or less room"
        )


def outcome(run: Run) -> SlottedOutcome:
    """What the slotted model makes of `run`."""
    return simulate(
        size(run.text("topology")),
        way(run),
        run.number("host_gbps") / run.number("link_gbps"),
        traffic=run.text("traffic"),
        size=message_packets(run),
        room=run.integer("room_packets"),
        slots=slots(run, "time_us"),
        warm=slots(run, "skipped_us") if run.number("skipped_us") else 0,
        per=slots_of_10_us(run),
        rng=np.random.default_rng(run.seed),
    )


def ratio(above: NDArray[np.int64], below: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each receiver, 0 where there is nothing below."""
    return np.where(below > 0, above / np.maximum(below, 1), 0.0)


def on_kernel(run: Run) -> Result:
    """What of the table can be told of TCP."""
    from weft.experiments.dar import clos_messages, clos_run

    n, r, _ = size(run.text("topology"))
    slot_s, us = kernel_slot_s(run), slot_us(run)
    seconds, size_bytes = (
        slots(run, "time_us") * slot_s,
        message_packets(run) * clos_messages.PAYLOAD_BYTES,
    )
    count = 2 + int(
        slots(run, "time_us")
        * run.number("host_gbps")
        / run.number("link_gbps")
        / message_packets(run)
    )
    sequences = destinations(n, r, run.text("traffic"), count, np.random.default_rng(run.seed))
    found = clos_messages.carry_out(
        kernel_plan(
            run,
            clos_run.messages(sequences[:1], size_bytes, 0.0),
            seconds,
            then=clos_run.in_turn(sequences),
            warm_up_s=slots(run, "skipped_us") * slot_s if run.number("skipped_us") else 0.0,
        )
    )
    table, order = found.seen.flows, found.seen.order
    packets = np.zeros(n * r)
    for one in table.results:
        packets[one.flow.dst] += one.received_bytes / clos_messages.PAYLOAD_BYTES
    gbps = packets * slot_s / table.measured_s * run.number("link_gbps")
    late, sent = sum(order.extents), found.counted.get("requests_sent", 0)
    moves = found.counted.get("moves", 0) + found.counted.get("swaps", 0)
    return Result(
        figures={
            **dict.fromkeys(columns.TABLE),
            "mean_throughput_gbps": float(gbps.mean()),
            "min_throughput_gbps": float(gbps.min()),
            "mean_latency_us": order.mean_delay_us * us / slot_s / 1e6,
            "max_latency_us": order.delay_us(100) * us / slot_s / 1e6,
            "late_fraction": order.late_fraction,
            "mean_extent_packets": sum(at * many for at, many in enumerate(order.extents))
            / max(1, late),
            "reroutes_per_message": moves / len(table.results),
            "ears_per_message": sent / len(table.results),
            "stale_ears_fraction": found.counted.get("requests_stale", 0) / max(1, sent),
        },
        fidelity=found.seen.report.verdict,
        circumstances=found.circumstances,
    )


def measure(run: Run) -> Result:
    """The lines of the paper's table, over receivers.

    Reroutes, EARs and stale ones of a message.
    """
    if run.engine == "kernel":
        return on_kernel(run)
    found = outcome(run)
    seen, known, us = found.net.received, found.known, slot_us(run)
    if not seen.packets.all():
        raise ValueError(
            f"{run.experiment}: a host received nothing after {run.number('skipped_us'):g} "
            f"us: take longer"
        )
    gbps = seen.packets / (slots(run, "time_us") - int(seen.begin[0])) * run.number("link_gbps")
    held, messages = (
        ratio(seen.held, seen.packets - seen.held),
        max(1, int((known.message + 1).sum())),
    )
    gaps, some = ratio(seen.gap, seen.held), seen.held > 0
    return Result(
        figures={
            "mean_throughput_gbps": float(gbps.mean()),
            "min_throughput_gbps": float(gbps.min()),
            "mean_latency_us": float((seen.latency / seen.packets).mean() * us),
            "max_latency_us": float(seen.worst_latency.max() * us),
            "mean_held_ratio": float(held.mean()),
            "max_held_ratio": float(held.max()),
            "mean_window_packets": float(gaps[some].mean()) if some.any() else 0.0,
            "max_window_packets": float(gaps.max()),
            "late_fraction": float(seen.late.sum() / seen.packets.sum()),
            "mean_extent_packets": float(seen.extent.sum() / max(1, seen.late.sum())),
            "reroutes_per_message": float(known.reroutes.sum() / messages),
            "ears_per_message": float(known.ears[SENT] / messages),
            "stale_ears_fraction": float(known.ears[STALE] / max(1, known.ears[SENT])),
        }
    )


PANELS = {
    "mean_throughput_gbps": ("throughput of a receiver (Gbit/s)", "min_throughput_gbps"),
    "mean_latency_us": ("latency (µs)", "max_latency_us"),
    "mean_held_ratio": ("out-of-order / in-order packets", "max_held_ratio"),
    "mean_window_packets": ("out-of-order window (packets)", "max_window_packets"),
}
ON_KERNEL = {  # where what is held is not known
    **dict(list(PANELS.items())[:2]),
    "late_fraction": ("overtaken packets (fraction)", ""),
    "mean_extent_packets": ("how far behind they are (packets)", ""),
}


def plot(table: Table, figure: Figure) -> None:
    """Draw means as bars and minima or maxima over receivers as strokes.

    A line of panels stands for a network, rate and setting; bars are hollow if fidelity failed.
    """
    keys = ("topology", "host_gbps", "engine", *VARIED)
    groups = figures.by_setting(table, keys, always=2)
    heights = [0.95 + 0.26 * len({row["scheme"] for row in rows}) for rows in groups.values()]
    lines = panels.lines_of_panels(figure, groups, len(PANELS), width=11.5, heights=heights)
    for line, rows in lines:
        by_scheme = {name: panels.select(rows, scheme=name) for name in SCHEMES}
        by_scheme = {name: runs for name, runs in by_scheme.items() if runs}
        on_kernel = all(row.get("engine") == "kernel" for row in rows)
        shown = ON_KERNEL if on_kernel else PANELS
        for axes, (key, (label, other)) in zip(line, shown.items(), strict=True):
            draw_bars(axes, list(by_scheme.values()), key, other)
            axes.set(xlabel=label)
        line[0].set_yticklabels([SCHEMES[name][1] for name in by_scheme])
    figure.suptitle(
        "bars, first numbers: means; strokes, second numbers: the least throughput of a receiver, "
        "otherwise the most",
        fontsize=9,
    )


def draw_bars(axes: Axes, runs_of_schemes: Sequence[Table], key: str, other: str) -> None:
    """Draw a panel: a bar for each scheme."""
    for place, runs in enumerate(runs_of_schemes):
        draw_bar(axes, place, [row for row in runs if row[key] is not None], key, other)
    panels.name_rows(axes, [""] * len(runs_of_schemes))
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.32)
    axes.set_xlim(left=0)


def draw_bar(axes: Axes, place: int, runs: Table, key: str, other: str) -> None:
    """Draw the mean of `key` over `runs`, and of `other`, unless that is empty, as a stroke."""
    if not runs:
        return
    is_dar = str(runs[0]["scheme"]).startswith("dar")
    look = style.scheme("dar" if is_dar else "jsq")  # jsq is grey
    values = panels.numbers(runs, key)
    hollow = any(figures.failed_fidelity(row) for row in runs)
    panels.bar(axes, place, values, look, hollow=hollow)
    text, end = f"{mean(values):.3g}", mean(values)
    if other:
        extreme = mean(panels.numbers(runs, other))
        panels.stroke(axes, extreme, place)
        text, end = f"{text}; {extreme:.3g}", max(end, extreme)
    panels.write_beside(axes, end, place, text)


AXES: dict[str, Axis] = {
    "topology": Spec(
        meaning="network", form="clos:n=..,r=..,m=..", check=size, canonical=canonical
    ).over("clos:n=24,r=48,m=48", "clos:n=24,r=48,m=24"),
    "host_gbps": Number(
        meaning="rate at which hosts send", unit="Gbit/s", least=0.1, most=1000
    ).over(40.0, 19.2),
    "link_gbps": Number(meaning="rate of every link", unit="Gbit/s", least=0.1, most=1000).over(
        40.0
    ),
    "scheme": Word(
        meaning="DAR by queues (section 4), by counts (section 2), by counts with the map of "
        "spines; or another",
        words=tuple(SCHEMES),
    ).over(*SCHEMES),
    "key": Word(
        meaning="what DAR moves: a host's flow, or all flows of a leaf to the same host",
        words=tuple(KEYS),
    ).over("dest"),
    "start": Word(
        meaning="with key=flow, the spine of a new message: see dar_convergence",
        words=tuple(STARTS),
    ).over("modulo"),
    "requests": Word(
        meaning="where flows are counted: bad links of a leaf that it asks about",
        words=("fullest-link", "every-link"),
    ).over("fullest-link"),
    "swap": Word(
        meaning="whether DAR swaps a flow back from an uplink that is full", words=("yes", "no")
    ).over("yes"),
    "queue_packets": Integer(
        meaning="packets that may wait at a port before DAR moves a flow",
        unit="packets",
        least=1,
        most=10_000,
    ).over(3),
    "rest_slots": Integer(
        meaning="hold-down time of a flow that has moved", unit="packet times", least=0, most=10_000
    ).over(16),
    "period_slots": Integer(
        meaning="time between counts", unit="packet times", least=1, most=10_000
    ).over(16),
    "ears": Word(
        meaning="EARs at a spine's port: behind packets, or before them", words=("behind", "first")
    ).over("behind"),
    "traffic": Word(
        meaning="permutations: random ones, or those of section 5 that are hard",
        words=("random", "worst"),
    ).over("random"),
    "message_kb": Integer(meaning="size of a message", unit="KiB", least=1, most=65_536).over(256),
    "packet_bytes": Integer(meaning="size of a packet", unit="bytes", least=64, most=65_536).over(
        2048
    ),
    "room_packets": Integer(
        meaning="room of a switch behind each link", unit="packets", least=2, most=10_000
    ).over(16),
    "kernel_mbps": Integer(
        meaning="on the kernel, rate of links between switches: packet times are told as those of "
        "link_gbps",
        unit="Mbit/s",
        least=1,
        most=100_000,
    ).over(5),
    "time_us": Number(meaning="time that is simulated", unit="us", least=1, most=10**6).over(
        1300.0
    ),
    "skipped_us": Number(
        meaning="time at the beginning that is not counted", unit="us", least=0, most=10**6
    ).over(200.0),
}
VARIED = tuple(key for key in AXES if key not in ("topology", "host_gbps", "scheme"))
EXPERIMENT = Experiment(
    name="dar_table",
    question="What do 1,152 hosts get under DAR, and in which order?",
    source="DAR, section 5.2, table 1",
    engines=("graph", "kernel"),
    axes=AXES,
    columns=columns.TABLE,
    seeds=1,
    measure=measure,
    plot=plot,
    check=check,
    takes_s=100,
)

"""Goodput of TCP on a Clos network under DAR, other schemes and a central optimum.

Beyond DAR's paper, whose section 5.2 simulates InfiniBand: endless TCP flows from every host to
another, a worst permutation of section 5 with an order of its own at each leaf; hosts have
`host_percent` of the links' rate.  With `traffic=messages` hosts send message after message
instead, each to a random permutation of the hosts, and do not wait for others (section 5.2).

`central` knows all flows and colours the multigraph of leaves (dar/clos_run.py); its
controller places flows in DAR's table.  Goodputs are fractions of TCP's payload on hosts' links,
counted after `warm_up_s`; reordering is counted throughout.

Flows are settled when the last flow has moved; messages never are.  On the engine `fabric` DAR's
daemons see the same permutation in simulated time, all of its flows at once.  DAR's period is 16
packet times of a link unless the scheme says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from statistics import mean
from typing import Any

import numpy as np

from weft.daemons.core import registry
from weft.daemons.dar.scheme import sizes
from weft.daemons.simulator.simulator import Simulator
from weft.experiments.dar import clos_messages, clos_run, columns
from weft.experiments.dar.clos_messages import ClosOutcome
from weft.experiments.dar.clos_run import CENTRAL, ClosPlan, has_own_daemons, loads
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import kernel_run
from weft.experiments.engines.workloads import derangements, endless
from weft.experiments.report.panels import Bars, select
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Spec, Word
from weft.topologies import build

ENDLESS = "endless"


def measure(run: Run) -> Result:
    """Measure on the kernel, or what the daemons alone do in simulated time."""
    return on_kernel(run) if run.engine == "kernel" else simulated(run)


def simulated(run: Run) -> Result:
    """Return moves, requests and the time to settle on wires in memory."""
    plan = kernel_plan(run)
    topology = build(plan.topology)
    switches = [*range(topology.servers, topology.nodes)]
    simulator = Simulator(topology, plan.scheme)
    flows = simulator.flows
    flows.rate = run.integer("host_percent") / 100
    simulator.run_until_converged()
    began_s = simulator.now
    for number, flow in enumerate(plan.flows):
        flows.begin(flow.src, flow.dst, number)
    simulator.run_for(plan.warm_up_s)
    warm = clos_run.together(map(simulator.status, switches))
    simulator.run_for(plan.seconds - plan.warm_up_s)
    counted = clos_run.together(map(simulator.status, switches))
    return Result(
        figures={
            "p": flows_of_link(run),
            "most_flows": max(flows.loads().values(), default=0),
            "settled_ms": max(0.0, 1000 * (simulator.changed_s - began_s)),
            **moves(counted, clos_run.difference(counted, warm), len(plan.flows)),
        }
    )


def flows_of_link(run: Run) -> int | None:
    """Return p of DAR's daemons; None for a scheme without them."""
    scheme = run.text("scheme")
    return int(registry.scheme(scheme)[1]["p"]) if has_own_daemons(scheme) else None


def on_kernel(run: Run) -> Result:
    """Return goodput of the flows together and of the slowest, reordering, and DAR's work."""
    plan = kernel_plan(run)
    done = clos_messages.carry_out(plan)
    table = done.observed.flows
    received = clos_messages.received_bytes(table, done.topology.servers)
    bits_of_host = table.measured_s * plan.host_link.rate_bps * kernel_run.PAYLOAD_FRACTION
    return done.result(
        {
            "p": flows_of_link(run),
            "goodput_fraction": 8 * mean(received) / bits_of_host,
            "slowest_fraction": 8 * min(received) / bits_of_host,
            **kernel_run.order_figures(done.observed),
            **placement(done, endless=run.text("traffic") == ENDLESS),
            **moves(done.counted, done.late, len(table.results)),
        }
    )


def kernel_plan(run: Run) -> ClosPlan:
    """Return the plan of `run`: endless flows, or message after message of each host."""
    topology, rng = run.topology, np.random.default_rng(run.seed)
    warm_up_s, seconds = run.integer("warm_up_s"), run.integer("seconds")
    plan = partial(clos_run.plan_of, run, warm_up_s, seconds, transport=run.text("transport"))
    if run.text("traffic") == ENDLESS:
        return plan(flows=endless(clos_run.worst_permutation(rng, topology)))
    size_bytes = run.integer("message_kb") * 1024
    host_bps = clos_run.links_of(run)[1].rate_bps
    count = 1 + host_bps * (warm_up_s + seconds) // (8 * size_bytes)
    sequences = derangements(rng, topology.servers, count)
    first = clos_run.messages(sequences[:1], size_bytes, 0.0)
    return plan(flows=first, then=clos_run.in_turn(sequences))


def placement(done: ClosOutcome, *, endless: bool) -> Row:
    """Return the most flows on a link, and when the last of endless flows moved.

    None under schemes that place no flows.
    """
    if not done.placed:
        return {"most_flows": None, "settled_ms": None}
    last_s = max(placed.noted.moved_ns for placed in done.placed) / 1e9
    return {
        "most_flows": max(loads(done.placed, done.topology).values()),
        "settled_ms": max(0.0, 1000 * (last_s - done.began_s)) if endless else None,
    }


def moves(counted: Mapping[str, int], late: Mapping[str, int], flows: int) -> Row:
    """Return the columns about moves and requests; None without DAR's daemons.

    counted, late: counters from the beginning on, and after the warm-up.
    """
    if not counted:
        return dict.fromkeys(
            ("moves_per_flow", "swaps", "replaced", "requests", "stale_requests", "late_moves")
        )
    return {
        "moves_per_flow": (counted["moves"] + counted["swaps"]) / flows,
        "swaps": counted["swaps"],
        "replaced": counted["replaced"],
        "requests": counted["requests_sent"],
        "stale_requests": counted["requests_stale"],
        "late_moves": late["moves"],
    }


def check(run: Run) -> None:
    """Raise ValueError unless `run` names a folded Clos network that its scheme is for."""
    topology, scheme = common.network(run), run.text("scheme")
    sizes(topology)
    if run.engine == "fabric" and run.text("traffic") != ENDLESS:
        raise ValueError("dar_goodput: simulated flows have no end: take traffic=endless")
    if run.engine == "fabric" and not has_own_daemons(scheme):
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
NETWORK_AXES: dict[str, Any] = {
    "rate_mbps": common.RATE_MBPS.over(5),
    "host_percent": Integer(
        "rate of hosts' links, of the others'", unit="%", least=1, most=100
    ).over(48),
    "queue_packets": common.QUEUE_PACKETS.over(32),
    "congestion_control": common.CONGESTION_CONTROL.over("cubic"),
}
EXPERIMENT = Experiment(
    name="dar_goodput",
    question=(
        "Which goodput does TCP reach on a Clos network under DAR, other schemes and a central "
        "optimum?"
    ),
    source="DAR, sections 2 and 4; beyond the paper",
    engines=("kernel", "fabric"),
    axes={
        "topology": common.TOPOLOGY.over("clos:n=8,r=8,m=8"),
        "scheme": Spec(
            "scheme by which switches choose ports",
            form="SCHEME:key=value,... (`weft list`), or central",
            check=clos_run.check_scheme,
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
            "endless flows of a worst permutation, or message after message, each host at "
            "its own pace",
            words=(ENDLESS, "messages"),
        ).over(ENDLESS),
        "message_kb": Integer("size of a message", unit="KiB", least=1, most=65_536).over(256),
        **NETWORK_AXES,
        "warm_up_s": Integer("time before received bytes count", unit="s", least=1, most=3600).over(
            2
        ),
        "seconds": common.SECONDS.over(6),
    },
    columns=columns.GOODPUT,
    version=3,
    revised=clos_run.queues_on_kernel,
    seeds=3,
    takes_s=400,
    measure=measure,
    plot=Bars(
        columns={
            "goodput_fraction": "mean goodput (fraction)",
            "slowest_fraction": "slowest flow (fraction)",
            "late_fraction": "overtaken packets (fraction)",
            "settled_ms": "until the last move (ms)",
        },
        by=("scheme", "transport"),
        facet=SETTING,
        rows=partial(select, engine="kernel"),
    ),
    check=check,
)

"""TCP on a Clos network: goodput under DAR, other schemes and an optimum, and DAR after failures.

Both are beyond DAR's paper, whose section 5.2 simulates InfiniBand.  Goodput is that of endless
TCP flows from every host to another, a worst permutation of section 5 with an order of its own at
each leaf; hosts have `host_percent` of the links' rate.  With `traffic=messages` hosts send
message after message instead, each to a random permutation of the hosts, and do not wait for
others (section 5.2).

`central` knows all flows and colours the multigraph of leaves (clos_run.py); its controller places
flows in DAR's table.  Goodputs are fractions of TCP's payload on hosts' links, counted after
`warm_up_s`; reordering is counted throughout.

Flows are settled when the last flow has moved; messages never are.  On the engine `fabric` DAR's
daemons see the same permutation in simulated time, all of its flows at once.  DAR's period is 16
packet times of a link unless the scheme says otherwise.

dar_failure measures the time until no flow is on a bad link.  Every host sends one endless TCP
flow, the same permutation.  After `before_s` and a random time of at most 0.3 s something fails:

link         between the first leaf and the first spine: both ends lose their carrier
silent-link  packets vanish there, carriers stay
spine        the first spine loses its power

Every 10 ms the data plane's tables are read.  A flow is on a dead link until it has been placed on
another; after `off_dead_ms` no flow is.  From `settled_ms` on, no link has more than p flows
either, or more than an even share of a leaf's remaining links.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from statistics import mean
from typing import Any

from weft.daemons.core import registry
from weft.daemons.dar.scheme import sizes
from weft.daemons.simulator.simulator import Simulator
from weft.experiments.dar import clos_messages, clos_run
from weft.experiments.dar.clos_messages import ClosOutcome
from weft.experiments.dar.clos_run import CENTRAL, ClosPlan, LinkEnds, has_own_daemons, loads
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import kernel_run
from weft.experiments.engines.common_parameters import ORDER
from weft.experiments.engines.kernel_run import FabricRun
from weft.experiments.engines.workloads import derangements, endless
from weft.experiments.report.panels import Bars, select
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Spec, Word
from weft.testbed.linux import clock
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic.flows import FlowResults
from weft.topologies import build
from weft.topologies.core.topology import Topology

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
        {
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
    bits = bits_of_host(plan, table)
    return done.result(
        {
            "p": flows_of_link(run),
            "goodput_fraction": 8 * mean(received) / bits,
            "slowest_fraction": 8 * min(received) / bits,
            **kernel_run.order_figures(done.observed),
            **placement(done, endless=run.text("traffic") == ENDLESS),
            **moves(done.counted, done.late, len(table.results)),
        }
    )


def bits_of_host(plan: ClosPlan, table: FlowResults) -> float:
    """Return the bits of payload that the link of a host can carry in the time that counts."""
    return table.measured_s * plan.host_link.rate_bps * kernel_run.PAYLOAD_FRACTION


def kernel_plan(run: Run) -> ClosPlan:
    """Return the plan of `run`: endless flows, or message after message of each host."""
    topology, rng = run.topology, run.generator()
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
GOODPUT = Experiment(
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
    columns={
        "p": "flows that a link carries, as DAR's daemons have it; null without them",
        "goodput_fraction": "goodput of a flow, of what the host's link can carry, mean",
        "slowest_fraction": "that of the slowest flow",
        **ORDER,
        "most_flows": (
            "flows on the most loaded link at the end; null under schemes that place none"
        ),
        "settled_ms": "from the flows' beginning to their last move",
        "moves_per_flow": "moves and swaps of a flow; null without DAR's daemons, as below",
        "swaps": "swaps of two flows",
        "replaced": "flows that left links that were taken for dead",
        "requests": "requests that leaves sent",
        "stale_requests": "requests that arrived when their flow had already moved",
        "late_moves": "moves after the warm-up",
    },
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


FAILURES = ("link", "silent-link", "spine")
# several intervals of hellos, so that failures are not in step with them
SPREAD_S = 0.3


def measure_failure(run: Run) -> Result:
    """Return times until the flows are off what has died, and until nothing is bad."""
    rng = run.generator()
    pairs = clos_run.worst_permutation(rng, run.topology)
    plan = clos_run.plan_of(
        run, run.integer("before_s"), run.integer("after_s"), flows=endless(pairs)
    )
    done = clos_messages.carry_out(plan, partial(watch, run))
    table = done.observed.flows
    bits = bits_of_host(plan, table)
    goodputs = [8 * flow.received_bytes / bits for flow in table.results]
    return done.result(
        {
            **done.watched,
            "goodput_fraction": sum(goodputs) / len(goodputs),
            "slowest_fraction": min(goodputs),
            "moves": done.counted["moves"] + done.counted["swaps"],
            "replaced": done.counted["replaced"],
            **kernel_run.order_figures(done.observed),
        }
    )


def watch(run: Run, fabric: FabricRun, began: threading.Event, end: threading.Event) -> Row:
    """Fail the element when the warm-up is over; return the columns about the flows' spines."""
    p = flows_of_link(run) or 0
    dead, fail = damage(fabric.network, run.text("failure"))
    table = clos_run.SpineFlowTable.open(fabric.network)
    began.wait()
    clock.sleep(SPREAD_S * run.generator(1).random())
    hit = sum(clos_run.crosses(placed, dead, fabric.topology) for placed in table.read())
    failed_s = clock.monotonic()
    fail()
    samples = [
        (1000 * (now_s - failed_s), loads)
        for now_s, loads in clos_run.loads_until(end, table, run.integer("after_s"))
    ]
    table.close()
    most = flows_of_links(fabric.topology, p, dead)
    return {"p": p, "flows_hit": hit, **times(samples, dead, most)}


def times(
    samples: list[tuple[float, Counter[LinkEnds]]], dead: set[LinkEnds], most: Counter[LinkEnds]
) -> Row:
    """Return the columns about time from flows on each link at so many ms after the failure."""
    off_dead_ms = max((ms for ms, loads in samples if dead & loads.keys()), default=0.0)
    bad_ms = max((ms for ms, loads in samples if loads - most), default=0.0)
    return {
        "off_dead_ms": off_dead_ms,
        "settled_ms": max(off_dead_ms, bad_ms),
        "most_flows": max(samples[-1][1].values(), default=0),
    }


def flows_of_links(topology: Topology, p: int, dead: set[LinkEnds]) -> Counter[LinkEnds]:
    """Return the flows above which each link is bad: p, or an even share of a leaf's live links."""
    n, r, m = sizes(topology)
    most: Counter[LinkEnds] = Counter()
    for leaf in range(topology.servers, topology.servers + r):
        spines = range(topology.servers + r, topology.nodes)
        live = m - sum((leaf, spine) in dead for spine in spines)
        for spine in spines:
            most[leaf, spine] = most[spine, leaf] = max(p, -(-n // live))
    return most


def damage(network: RunningNetwork, failure: str) -> tuple[set[LinkEnds], Callable[[], None]]:
    """Return the links that will be dead, in both directions, and the function that fails them."""
    topology = network.topology
    _, r, _ = sizes(topology)
    leaf, spine = topology.servers, topology.servers + r
    if failure == "spine":
        leaves = range(topology.servers, topology.servers + r)
        dead = {link for leaf in leaves for link in ((leaf, spine), (spine, leaf))}
        return dead, partial(network.fail, topology.naming.name(spine))
    name = topology.link_name(topology.link_between(leaf, spine))
    silent = failure == "silent-link"
    return {(leaf, spine), (spine, leaf)}, partial(network.fail, name, silent=silent)


def check_scheme(text: str) -> None:
    """Raise ValueError unless `text` is DAR with any of its parameters."""
    common.refuse_others(text, ["dar"], "dar_failure measures when DAR has moved its flows")
    common.daemon_scheme(text)


def check_failure(run: Run) -> None:
    """Raise ValueError unless `run` names a folded Clos network that DAR is for."""
    registry.checked(common.network(run), run.text("scheme"))
    common.check_tcp(run)


FAILURE_SETTING = ("topology", "rate_mbps", "host_percent", "queue_packets", "congestion_control")
FAILURE = Experiment(
    name="dar_failure",
    question=(
        "How long until no flow is on a bad link again after a spine or a link fails under DAR?"
    ),
    source="DAR, beyond the paper",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("clos:n=8,r=8,m=8"),
        "scheme": Spec(
            "DAR with its parameters",
            form="dar:key=value,... (`weft list`)",
            check=check_scheme,
        ).over("dar", "dar:informed=1"),
        "failure": Word("what fails", words=FAILURES).over(*FAILURES),
        **NETWORK_AXES,
        "before_s": Integer("time before the failure", unit="s", least=1, most=3600).over(3),
        "after_s": Integer("time after it", unit="s", least=1, most=3600).over(4),
    },
    columns={
        "p": "flows that a link carries",
        "flows_hit": "flows that were on what failed",
        "off_dead_ms": "from the failure until no flow was on a dead link",
        "settled_ms": (
            "from the failure until, in addition, no link had more than p flows or than an "
            "even share"
        ),
        "most_flows": "flows on the most loaded link at the end",
        "goodput_fraction": "goodput of a flow, of what the host's link can carry, mean",
        "slowest_fraction": "that of the slowest flow",
        "moves": "moves and swaps of flows",
        "replaced": "flows that left links that were taken for dead",
        **ORDER,
    },
    version=3,
    revised=clos_run.queues_on_kernel,
    seeds=10,
    takes_s=250,
    measure=measure_failure,
    plot=Bars(
        columns={
            "off_dead_ms": "until no flow was on a dead link (ms)",
            "settled_ms": "until no link was bad (ms)",
        },
        by=("scheme", "failure"),
        facet=FAILURE_SETTING,
    ),
    check=check_failure,
)

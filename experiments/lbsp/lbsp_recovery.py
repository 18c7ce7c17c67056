"""Time until the last affected flow is rerouted after a failure, and packets lost until then.

Beyond LBSP's paper, which has its switches detect failures by hellos (section 3.3.1) and does not
say how fast.  What fails is the link between the last edge and the last aggregation switch of pod
2, or that aggregation switch:

link         both ends lose their carrier
silent-link  packets vanish, carriers stay
node         the aggregation switch loses its power
degraded     the link carries a tenth of its rate, and two TCP flows cross it

`pairs` random pairs with an end behind that edge switch ping each other every 10 ms.  A switch that
takes ports in turns loses every second packet or fewer, so `outage_ms` is the time from the failure
to the first answer after the last lost ping, over all pairs.  Meanwhile each host behind that edge
switch and one elsewhere send each other full UDP packets, `load_fraction` of a link's rate.  In the
degraded case `outage_ms` is the time until an edge switch of another pod avoids the link; only a
scheme that finds degraded links, lbsp with `rate_kbps`, ever does.

The scheme frr-bgp is FRR's BGP with equal-cost paths and BFD (testbed/frr/frr_config.py).
`neighbours_lost` counts at both ends: more than 2 for a link are false alarms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from weft.daemons.core import registry
from weft.daemons.lbsp.routing import shape_of
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.kernel_run import running
from weft.experiments.lbsp import lbsp_tcp
from weft.experiments.report.claims import Sweep, Where
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Number, Spec, Word
from weft.testbed.frr.frr import frr
from weft.testbed.frr.frr_config import Bgp
from weft.testbed.linux import clock
from weft.testbed.machine import doctor
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.measure.kernel_counters import pss_kib
from weft.testbed.measure.outage import Outage, OutageProbe
from weft.testbed.measure.reordering import Reordering
from weft.testbed.network.impair import set_rate
from weft.testbed.network.network import RunningNetwork
from weft.testbed.node_daemon import control
from weft.testbed.plan.network_plan import NetworkPlan
from weft.testbed.traffic import flows, slotted_udp
from weft.testbed.traffic.flows import Flow
from weft.topologies.core.grammar import integer, parse, unknown
from weft.topologies.core.link import Mbps

FAILURES = ("link", "silent-link", "node", "degraded")
FRR = "frr-bgp"
HELLO_MS = 30  # default of every scheme
FRR_PARAMETERS = {"hello_ms": HELLO_MS, "dead": 3}
INTERVAL_MS = 10.0
BEFORE_S, AFTER_S = 0.3, 1.5
HELLOS = 4  # intervals within which a failure is detected
LEARN_S = 6.0  # time in which a degraded link must be detected
WATCHER = "e0.0"


class Routed(NamedTuple):
    """A network and the daemons that route it.

    wait: returns when they have converged.
    losses: returns the number of neighbours that they have lost.
    pss_kib: memory of each switch's daemons; empty where switches share processes.
    """

    network: RunningNetwork
    wait: Callable[[], None]
    losses: Callable[[], int]
    pss_kib: list[int]


def measure(run: Run) -> Result:
    """Return outages of the pairs, lost and overtaken packets, and the memory of the daemons."""
    with routed(run) as fabric, Fidelity(fabric.network) as fidelity:
        is_degraded = run.text("failure") == "degraded"
        figures = degraded(fabric.network, run) if is_degraded else outages(fabric, run)
    report = fidelity.report
    return Result(
        {
            **figures,
            "pss_median_kib": median(fabric.pss_kib) if fabric.pss_kib else None,
            "pss_max_kib": max(fabric.pss_kib, default=None),
        },
        fidelity=report.verdict,
        circumstances={"fidelity_report": report.as_dict()},
    )


@contextmanager
def routed(run: Run) -> Iterator[Routed]:
    """Bring up the network of `run` with its scheme for the length of a `with`."""
    topology, scheme = run.topology, run.text("scheme")
    packed = run.integer("processes")
    ours = "none" if is_frr(scheme) else scheme
    with running(topology, common.link(run), ours, packed=packed) as network:
        if is_frr(scheme):
            with frr(network, bgp(scheme, network.plan)) as theirs:
                yield Routed(
                    network, theirs.wait_until_converged, theirs.losses, theirs.memory_kib()
                )
        else:
            kib = [pss_kib(row.pid) for row in network.rows().values()] if not packed else []
            yield Routed(network, network.wait_until_converged, partial(losses, network), kib)


def losses(network: RunningNetwork) -> int:
    """Return the number of neighbours that our daemons have lost."""
    return sum(row.losses for row in network.rows().values())


def is_frr(scheme: str) -> bool:
    """Return whether `scheme` is FRR's BGP."""
    return parse(scheme)[0] == FRR


def frr_options(scheme: str) -> dict[str, int]:
    """Return the parameters of frr-bgp; ValueError for an unknown one."""
    _, options = parse(scheme)
    for key in options:
        if key not in FRR_PARAMETERS:
            raise ValueError(unknown(f"parameter of {FRR}", key, FRR_PARAMETERS))
    return FRR_PARAMETERS | {key: integer(FRR, key, text, least=1) for key, text in options.items()}


def bgp(scheme: str, plan: NetworkPlan) -> Bgp:
    """Return the configuration of FRR."""
    return Bgp(plan, **frr_options(scheme))


def outages(fabric: Routed, run: Run) -> Row:
    """Fail and mend; return what pings and UDP packets lost."""
    network = fabric.network
    fail, mend = acts(network, run.text("failure"))
    after_s = failure_s(run.text("scheme"))
    lost_before = fabric.losses()
    with (
        Reordering(network) as order,
        OutageProbe(network, some_pairs(network, run), interval_ms=INTERVAL_MS) as probe,
    ):
        with traffic(network, run, BEFORE_S + after_s):
            clock.sleep(BEFORE_S)
            failed_s = clock.monotonic()
            fail()
            clock.sleep(after_s)
        neighbours_lost = fabric.losses() - lost_before
        packets = order.read()
        mended_s = clock.monotonic()
        mend()
        fabric.wait()
        clock.sleep(BEFORE_S)
    return {
        **of_pings(probe.table.outages, failed_s, mended_s),
        "sent_packets": packets.total("sent"),
        "lost_packets": packets.lost,
        "overtaken_packets": packets.total("late"),
        "neighbours_lost": neighbours_lost,
        "prober_late_ms": 1000 * probe.table.late_s,
    }


def of_pings(pairs: Sequence[Outage], failed_s: float, mended_s: float) -> Row:
    """Return the columns about the outages of `pairs`."""
    rerouted_ms = [1000 * rerouted_s(pair, failed_s, mended_s) for pair in pairs]
    gaps = [gap for pair in pairs for gap in pair.gaps]
    lost_pings = sum(gap.lost for gap in gaps if gap.begin_s < mended_s)
    return {
        "pairs_hit": sum(outage_ms > 0 for outage_ms in rerouted_ms),
        "outage_ms": max(rerouted_ms),
        "median_ms": median([outage_ms for outage_ms in rerouted_ms if outage_ms > 0] or [0.0]),
        "unreachable_pairs": sum(cut_off(pair, mended_s) for pair in pairs),
        "lost_pings": lost_pings,
        "lost_by_mending": sum(gap.lost for gap in gaps) - lost_pings,
    }


def failure_s(scheme: str) -> float:
    """Return how long a failure lasts: until its detection, and AFTER_S more."""
    return AFTER_S + HELLOS * float(parse(scheme)[1].get("hello_ms", HELLO_MS)) / 1000


@contextmanager
def traffic(network: RunningNetwork, run: Run, seconds: float) -> Iterator[None]:
    """Send UDP between the hosts behind the edge switch and as many others meanwhile."""
    rate_bps = run.integer("rate_mbps") * Mbps
    packets = udp(network, run, round(seconds / slotted_udp.slot_s(rate_bps)))
    sender = threading.Thread(target=partial(slotted_udp.run, network, packets, rate_bps=rate_bps))
    sender.start()
    try:
        yield
    finally:
        sender.join()


def udp(network: RunningNetwork, run: Run, slots: int) -> Sequence[Sequence[int]]:
    """Return for each slot and host the destination of its packet, or -1 for none."""
    rng = run.generator()
    near, far = sides(network)
    others = rng.choice(far, len(near), replace=False)
    packets = np.full((slots, network.topology.servers), -1)
    for a, b in zip(near, others.tolist(), strict=True):
        packets[:, a] = b
        packets[:, b] = a
    packets[rng.random(packets.shape) >= run.number("load_fraction")] = -1
    destinations: list[list[int]] = packets.tolist()
    return destinations


def rerouted_s(outage: Outage, failed_s: float, mended_s: float) -> float:
    """Return the time from the failure to the first answer after its last lost ping, or 0."""
    ends = [min(gap.end_s or mended_s, mended_s) for gap in outage.gaps if gap.begin_s < mended_s]
    return max((end - failed_s for end in ends if end > failed_s), default=0.0)


def cut_off(outage: Outage, time_s: float) -> bool:
    """Return whether a pair has lost several pings in a row at `time_s`."""
    return any(
        gap.lost > 3 and gap.begin_s < time_s and (gap.end_s is None or gap.end_s > time_s)
        for gap in outage.gaps
    )


def damaged_link(network: RunningNetwork) -> str:
    """Return the name of the link that is damaged."""
    return network.topology.link_name(lbsp_tcp.damaged(network.topology))


def acts(network: RunningNetwork, failure: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return the functions that fail an element and mend it."""
    name = damaged_link(network)
    if failure == "node":
        name = name.partition("-")[2]
        return partial(network.fail, name), partial(network.restore, name)
    silent = failure == "silent-link"
    return partial(network.fail, name, silent=silent), partial(network.restore, name)


def some_pairs(network: RunningNetwork, run: Run) -> list[tuple[int, int]]:
    """Return random pairs with one end behind the edge switch, in both directions."""
    rng = run.generator()
    near, far = sides(network)
    pairs = []
    for number in range(run.integer("pairs")):
        pair = int(rng.choice(near)), int(rng.choice(far))
        pairs.append(pair if number % 2 else pair[::-1])
    return pairs


def sides(network: RunningNetwork) -> tuple[list[int], list[int]]:
    """Return the hosts behind the edge switch of the damaged link, and all others."""
    topology = network.topology
    edge = topology.naming.node(damaged_link(network).partition("-")[0])
    near = [peer for _, peer, _, _ in topology.ports(edge) if peer < topology.servers]
    return near, [host for host in range(topology.servers) if host not in near]


def degraded(network: RunningNetwork, run: Run) -> Row:
    """Degrade the link; return how long until an edge switch of another pod avoids it."""
    traffic = threading.Thread(
        target=partial(
            flows.run,
            network,
            crossing_flows(network),
            flows.FlowOptions(deadline_s=BEFORE_S + 2 * LEARN_S, congestion_control="reno"),
        )
    )
    traffic.start()
    clock.sleep(LEARN_S / 2)
    set_rate(network, damaged_link(network), lbsp_tcp.degraded_bps(run))
    outage_ms = avoided_ms(network)
    traffic.join()
    return {"outage_ms": outage_ms, "unreachable_pairs": 0}


def crossing_flows(network: RunningNetwork) -> list[Flow]:
    """Return an endless flow over the damaged link, and one back."""
    topology = network.topology
    d, number_of = shape_of(topology).d, topology.naming.layout.number_of
    source = number_of((2, d - 1, 0))
    destination = number_of((0, 0, (d - 1) % 2))  # of the link group of the link
    return [Flow(0.0, source, destination, None), Flow(0.0, destination, source, None)]


def avoided_ms(network: RunningNetwork) -> float | None:
    """Return when the switch WATCHER knows of the degraded link; None if not within LEARN_S."""
    name, degraded_s = damaged_link(network), clock.monotonic()
    while clock.monotonic() < degraded_s + LEARN_S:
        known = control.status(network.run.directory, WATCHER)["protocol"].get("failures", ())
        if any(failure["link"] == name and failure["degraded"] for failure in known):
            return 1000 * (clock.monotonic() - degraded_s)
        clock.sleep(0.005)
    return None


def check_scheme(text: str) -> None:
    """Raise ValueError unless daemons or FRR route by the scheme `text`."""
    if is_frr(text):
        frr_options(text)
    else:
        registry.scheme(text)


def check(run: Run) -> None:
    """Raise ValueError unless `run` has a fat-tree that its scheme suits, and FRR if needed."""
    scheme, failure = run.text("scheme"), run.text("failure")
    shape_of(common.network(run))
    if not is_frr(scheme):
        registry.checked(common.network(run), scheme)
        return
    if failure == "degraded" or run.integer("processes"):
        raise ValueError(
            f"lbsp_recovery: {FRR} does not find degraded links, and its processes cannot be shared"
        )
    doctor.require("frr", f"scheme {FRR}")


SETTING = ("topology", "rate_mbps", "queue_packets", "pairs", "load_fraction", "processes")


# Fidelity has no rule for a rate that changes (degraded).
LOST_LINKS: Where = {
    **{"clock": "virtual", "topology": "fattree:k=4"},
    "failure": ("link", "silent-link", "node"),
}
SWEEPS = (Sweep("lbsp_recovery", LOST_LINKS, 3),)
EXPERIMENT = Experiment(
    name="lbsp_recovery",
    question="How long until the last flow that a failure affects is rerouted, and what is lost "
    "meanwhile?",
    source="LBSP, section 3.3; beyond the paper",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("fattree:k=4", "fattree:k=8"),
        "scheme": Spec(
            "routing scheme of the switches",
            form="SCHEME:key=value,... (`weft list`), or frr-bgp",
            check=check_scheme,
        ).over("lbsp:rate_kbps=20000", "spray", "ecmp", "letflow", "drill", "ttc"),
        "failure": Word("what fails", words=FAILURES).over(*list(FAILURES)),
        "rate_mbps": common.RATE_MBPS.over(20),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "pairs": Integer(
            "pairs of hosts that ping each other", unit="pairs", least=1, most=10_000
        ).over(20),
        "load_fraction": Number(
            "load of the links of hosts that send UDP", unit="fraction", least=0, most=1
        ).over(0.3),
        "processes": common.PROCESSES.over(0),
    },
    columns={
        "pairs_hit": "pairs that lost a ping to the failure",
        "outage_ms": (
            "from the failure to the first answer after the last lost ping, over all pairs; "
            "of a degraded link, until it is avoided, null if it never is"
        ),
        "median_ms": "the same of a pair that was hit, median",
        "unreachable_pairs": "pairs without an answer until the repair",
        "lost_pings": "pings lost to the failure",
        "lost_by_mending": "pings lost after the repair",
        "sent_packets": "UDP packets that were sent meanwhile",
        "lost_packets": "packets that did not arrive",
        "overtaken_packets": "packets that arrived behind a later one of their flow",
        "neighbours_lost": (
            "neighbours given up, counted at both ends; more than the failure's are false alarms"
        ),
        "prober_late_ms": "how late the pings were sent at the worst",
        "pss_median_kib": (
            "proportional set size of a switch's daemons, median; null where switches share "
            "processes"
        ),
        "pss_max_kib": "proportional set size of a switch's daemons, the largest",
    },
    seeds=5,
    version=2,
    timed_columns=("pss_median_kib", "pss_max_kib"),  # memory, of the machine as times are
    takes_s=1900,
    measure=measure,
    plot=Bars(
        columns={
            "outage_ms": "until the last was rerouted (ms)",
            "lost_pings": "pings lost to the failure",
        },
        facet=("failure", *SETTING),
        always=2,
    ),
    check=check,
)

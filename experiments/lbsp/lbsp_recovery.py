"""How long until the last flow that a failure affects is rerouted, and what is lost meanwhile?

Beyond LBSP's paper, which has its switches detect failures by hellos (section 3.3.1) and does not
say how fast.  What fails is the link between the last edge and the last aggregation switch of pod
2, or that aggregation switch:

link         both ends lose their carrier
silent-link  packets vanish, carriers stay
node         the aggregation switch loses its power
degraded     the link carries a tenth of its rate, and two TCP flows cross it

`pairs` random pairs with an end behind that edge switch ping each other every 10 ms.  A switch that
takes ports in turns loses every second packet or fewer, so what counts is when the last loss was
over: `outage_ms` is the time from the failure to the first answer after the last lost ping, over
all pairs.  Meanwhile each host behind that edge switch and one elsewhere send each other full UDP
packets, `load_fraction` of a link's rate each: of those, the lost ones and those that were
overtaken are counted.  In the degraded case `outage_ms` is the time until an edge switch of another
pod avoids the link; only a scheme that finds degraded links, lbsp with `rate_kbps`, ever does.

The scheme frr-bgp is FRR's BGP, equal-cost paths and BFD (testbed/frr/frr_config.py), where FRR is
installed. `neighbours_lost` counts at both ends: more than 2 for a link are false alarms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.daemons.lbsp.routing import shape_of
from weft.experiments.engines import common_parameters as common
from weft.experiments.lbsp import columns, lbsp_tcp
from weft.experiments.report.panels import Bars
from weft.experiments.runner.definition import Experiment, Result, Run, Value
from weft.experiments.runner.parameters import Integer, Number, Spec, Word
from weft.testbed.linux import clock
from weft.topologies import build
from weft.topologies.core.grammar import integer, parse, unknown
from weft.topologies.core.link import LinkSpec, Mbps

if TYPE_CHECKING:
    from weft.testbed.frr.frr_config import Bgp
    from weft.testbed.measure.outage import Outage
    from weft.testbed.network.network import RunningNetwork
    from weft.testbed.plan.network_plan import NetworkPlan

FAILURES = ("link", "silent-link", "node", "degraded")
FRR = "frr-bgp"
HELLO_MS = 30  # of every scheme that is not told otherwise
FRR_PARAMETERS = {"hello_ms": HELLO_MS, "dead": 3}
INTERVAL_MS = 10.0
BEFORE_S, AFTER_S = 0.3, 1.5
HELLOS = 4  # within which a failure has been found
LEARN_S = 6.0  # that a degraded link may take to be found


class Routed(NamedTuple):
    """A network and who routes it: how to wait until that has converged, how many neighbours it has
    lost, and the memory of each switch's share of it, [] where switches share processes.
    """

    network: RunningNetwork
    wait: Callable[[], None]
    losses: Callable[[], int]
    pss_kib: list[int]


def measure(run: Run) -> Result:
    """Outages of the pairs, what was lost and overtaken, and what the daemons cost."""
    from weft.testbed.measure.fidelity import Fidelity

    with routed(run) as on:
        with Fidelity(on.network) as fidelity:
            degrades = run.text("failure") == "degraded"
            seen = degraded(on.network, run) if degrades else outages(on, run)
        memory: dict[str, Value] = {
            "pss_median_kib": median(on.pss_kib) if on.pss_kib else None,
            "pss_max_kib": max(on.pss_kib, default=None),
        }
        report = fidelity.report
        return Result(
            figures={**seen, **memory},
            fidelity=report.verdict,
            circumstances={"fidelity_report": report.as_dict()},
        )


@contextmanager
def routed(run: Run) -> Iterator[Routed]:
    """The network of `run` with its scheme, up for the length of a `with`."""
    from weft.testbed.frr.frr import frr
    from weft.testbed.measure.host_load import pss_kib
    from weft.testbed.network.network import RunningNetwork

    topology, scheme = build(run.text("topology")), run.text("scheme")
    link = LinkSpec(
        rate_bps=run.integer("rate_mbps") * Mbps, queue_packets=run.integer("queue_packets")
    )
    packed = run.integer("processes")
    network = RunningNetwork.create(
        topology, link, scheme="none" if is_frr(scheme) else scheme, packed=packed
    )
    try:
        if is_frr(scheme):
            with frr(network, bgp(scheme, network.plan)) as theirs:
                yield Routed(
                    network, theirs.wait_until_converged, theirs.losses, theirs.memory_kib()
                )
        else:
            kib = [pss_kib(row.pid) for row in network.rows().values()] if not packed else []
            yield Routed(network, network.wait_until_converged, partial(losses, network), kib)
    finally:
        network.down()


def losses(network: RunningNetwork) -> int:
    """How many neighbours our daemons have lost since they began."""
    return sum(row.losses for row in network.rows().values())


def is_frr(scheme: str) -> bool:
    """Whether `scheme` is FRR's BGP and not one of weft's."""
    return parse(scheme)[0] == FRR


def frr_options(scheme: str) -> dict[str, int]:
    """The parameters of frr-bgp; ValueError for one that it has not."""
    _, given = parse(scheme)
    for key in given:
        if key not in FRR_PARAMETERS:
            raise ValueError(unknown(f"parameter of {FRR}", key, FRR_PARAMETERS))
    return FRR_PARAMETERS | {key: integer(FRR, key, text, least=1) for key, text in given.items()}


def bgp(scheme: str, plan: NetworkPlan) -> Bgp:
    """What FRR is told."""
    from weft.testbed.frr.frr_config import Bgp

    return Bgp(plan, **frr_options(scheme))


def outages(on: Routed, run: Run) -> dict[str, Value]:
    """What pings tell of a failure and of its end, and what the failure does to the packets of
    flows.
    """
    from weft.testbed.measure.outage import OutageProbe
    from weft.testbed.measure.reordering import Reordering

    network = on.network
    fail, mend = acts(network, run.text("failure"))
    after_s = patience_s(run.text("scheme"))
    lost_before = on.losses()
    with (
        Reordering(network) as order,
        OutageProbe(network, some_pairs(network, run), interval_ms=INTERVAL_MS) as probe,
    ):
        with traffic(network, run, BEFORE_S + after_s):
            clock.sleep(BEFORE_S)
            failed_s = clock.monotonic()
            fail()
            clock.sleep(after_s)
        lost_neighbours = on.losses() - lost_before
        packets = order.read()
        mended_s = clock.monotonic()
        mend()
        on.wait()
        clock.sleep(BEFORE_S)
    found = probe.table.outages
    rerouted = [1000 * rerouted_s(one, failed_s, mended_s) for one in found]
    early = [gap.lost for one in found for gap in one.gaps if gap.begin_s < mended_s]
    return {
        "pairs_hit": sum(one > 0 for one in rerouted),
        "outage_ms": max(rerouted),
        "median_ms": median([one for one in rerouted if one > 0] or [0.0]),
        "unreachable_pairs": sum(cut_off(one, mended_s) for one in found),
        "lost_pings": sum(early),
        "lost_by_mending": sum(gap.lost for one in found for gap in one.gaps) - sum(early),
        "sent_packets": packets.total("sent"),
        "lost_packets": packets.lost,
        "overtaken_packets": packets.total("late"),
        "neighbours_lost": lost_neighbours,
        "prober_late_ms": 1000 * probe.table.late_s,
    }


def patience_s(scheme: str) -> float:
    """How long a failure lasts: until it has surely been found, and AFTER_S more."""
    return AFTER_S + HELLOS * float(parse(scheme)[1].get("hello_ms", HELLO_MS)) / 1000


@contextmanager
def traffic(network: RunningNetwork, run: Run, seconds: float) -> Iterator[None]:
    """UDP between the hosts behind the edge switch concerned and as many others.

    It has arrived when this ends.
    """
    from weft.testbed.traffic import slotted_udp

    rate_bps = run.integer("rate_mbps") * Mbps
    plan = udp(network, run, round(seconds / slotted_udp.slot_s(rate_bps)))
    sender = threading.Thread(target=partial(slotted_udp.run, network, plan, rate_bps=rate_bps))
    sender.start()
    try:
        yield
    finally:
        sender.join()


def udp(network: RunningNetwork, run: Run, count: int) -> Sequence[Sequence[int]]:
    """Slot by slot, to which host each sends a packet, -1 for none."""
    rng = np.random.default_rng(run.seed)
    near, far = sides(network)
    others = rng.choice(far, len(near), replace=False)
    plan = np.full((count, network.topology.servers), -1)
    for a, b in zip(near, others.tolist(), strict=True):
        plan[:, a], plan[:, b] = b, a
    plan[rng.random(plan.shape) >= float(run.parameters["load_fraction"])] = -1
    sent: list[list[int]] = plan.tolist()
    return sent


def rerouted_s(outage: Outage, failed_s: float, mended_s: float) -> float:
    """From the failure to the first answer after the last ping that it cost; 0 if it cost none."""
    ends = [min(gap.end_s or mended_s, mended_s) for gap in outage.gaps if gap.begin_s < mended_s]
    return max((end - failed_s for end in ends if end > failed_s), default=0.0)


def cut_off(outage: Outage, at_s: float) -> bool:
    """Whether a pair has no answer then, of several pings."""
    return any(
        gap.lost > 3 and gap.begin_s < at_s and (gap.end_s is None or gap.end_s > at_s)
        for gap in outage.gaps
    )


def damaged_link(network: RunningNetwork) -> str:
    """Return the name of the link that is damaged."""
    return network.topology.link_name(lbsp_tcp.damaged(network.topology))


def acts(network: RunningNetwork, failure: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """What brings the failure about, and what undoes it."""
    name = damaged_link(network)
    if failure == "node":
        switch = name.partition("-")[2]
        return partial(network.fail, switch), partial(network.restore, switch)
    return partial(network.fail, name, silent=failure == "silent-link"), partial(
        network.restore, name
    )


def some_pairs(network: RunningNetwork, run: Run) -> list[tuple[int, int]]:
    """Random pairs, one end of each behind the edge switch concerned, in both directions."""
    rng = np.random.default_rng(run.seed)
    near, far = sides(network)
    found = []
    for i in range(run.integer("pairs")):
        pair = int(rng.choice(near)), int(rng.choice(far))
        found.append(pair if i % 2 else pair[::-1])
    return found


def sides(network: RunningNetwork) -> tuple[list[int], list[int]]:
    """The hosts behind the edge switch concerned, and all others."""
    topology = network.topology
    edge = topology.naming.node(damaged_link(network).partition("-")[0])
    near = [peer for _, peer, _, _ in topology.ports(edge) if peer < topology.servers]
    return near, [host for host in range(topology.servers) if host not in near]


def degraded(network: RunningNetwork, run: Run) -> dict[str, Value]:
    """How long until an edge switch of another pod avoids a link that has lost most of its rate."""
    from weft.testbed.network.degrade import set_rate
    from weft.testbed.node_daemon import control
    from weft.testbed.traffic import flows
    from weft.testbed.traffic.flows import Flow

    topology = network.topology
    name = damaged_link(network)
    watcher, d = "e0.0", shape_of(topology).d
    source = topology.naming.layout.number_of((2, d - 1, 0))
    # to a destination of the link group that the link is in, and back
    destination = topology.naming.layout.number_of((0, 0, (d - 1) % 2))
    endless = [Flow(0.0, source, destination, None), Flow(0.0, destination, source, None)]
    traffic = threading.Thread(
        target=partial(
            flows.run,
            network,
            endless,
            flows.FlowOptions(deadline_s=BEFORE_S + 2 * LEARN_S, congestion_control="reno"),
        )
    )
    traffic.start()
    clock.sleep(LEARN_S / 2)
    set_rate(network, name, lbsp_tcp.degraded_bps(run))
    failed_s = clock.monotonic()
    learned_s = None
    while learned_s is None and clock.monotonic() < failed_s + LEARN_S:
        known = control.status(network.run.directory, watcher)["protocol"].get("failures", ())
        if any(each["link"] == name and each["degraded"] for each in known):
            learned_s = clock.monotonic() - failed_s
        clock.sleep(0.005)
    traffic.join()
    return {"outage_ms": None if learned_s is None else 1000 * learned_s, "unreachable_pairs": 0}


def check_scheme(text: str) -> None:
    """ValueError unless daemons or FRR route by the scheme `text`."""
    from weft.daemons.core import registry

    if is_frr(text):
        frr_options(text)
    else:
        registry.scheme(text)


def check(run: Run) -> None:
    """Raise ValueError unless `run` names a fat-tree that its scheme is for, or FRR is there and
    does what is asked.
    """
    from weft.daemons.core import registry
    from weft.testbed.machine import doctor

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


EXPERIMENT = Experiment(
    name="lbsp_recovery",
    question="How long until the last flow that a failure affects is rerouted, and what is lost "
    "meanwhile?",
    source="LBSP, section 3.3; beyond the paper",
    engines=("kernel",),
    axes={
        "topology": common.TOPOLOGY.over("fattree:k=4", "fattree:k=8"),
        "scheme": Spec(
            meaning="routing scheme of the switches",
            form="SCHEME:key=value,... (`weft list`), or frr-bgp",
            check=check_scheme,
        ).over("lbsp:rate_kbps=20000", "spray", "ecmp", "letflow", "drill", "ttc"),
        "failure": Word(meaning="what fails", words=FAILURES).over(*list(FAILURES)),
        "rate_mbps": common.RATE_MBPS.over(20),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "pairs": Integer(
            meaning="pairs of hosts that ping each other", unit="pairs", least=1, most=10_000
        ).over(20),
        "load_fraction": Number(
            meaning="load of the links of hosts that send UDP", unit="fraction", least=0, most=1
        ).over(0.3),
        "processes": common.PROCESSES.over(0),
    },
    columns=columns.RECOVERY,
    seeds=5,
    version=2,
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

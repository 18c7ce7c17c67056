"""Completion times of flows by fabric and routing, at equal cost of a host.

Flows arrive at random (Poisson), in an open loop, between the pairs of a pattern:

uniform           any two hosts
worst             all hosts of a router send to those of another, so matched that distances sum to
                  the most (FatPaths, section VI-C; Jyothi et al., SC 2016)
skewed            ... to those of the router that is half of all routers farther on
permutation, ...  see engines/workloads.py

With load_fraction=0 each pair sends one flow, and all begin at once.  Tables of switches know of
failed links from the beginning, or never do (silent).  A link to one of k planes has a k-th of the
host's rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.random import Generator

from weft.experiments.collectives import equal_cost, replays
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import workloads
from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.fatpaths import (
    achievable_throughput,
    fatpaths_vs_fattree,
    table_iv,
    transports,
)
from weft.experiments.fatpaths.layered_network import ECN_PACKETS, KERNEL_FRAME_BYTES, failed
from weft.experiments.fatpaths.router_graph import RouterGraph
from weft.experiments.fatpaths.topology_cost import PRICES, of_a_host
from weft.experiments.report import style
from weft.experiments.report.claims import Sweep, Where
from weft.experiments.report.panels import Bars, Curves, Stack, number_of, numbers, select, varied
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Number, Scalar, Spec, Word
from weft.experiments.runner.rows import grouped
from weft.testbed.packets.network import PacketNetwork
from weft.testbed.packets.simulation import Fault, PacketFlows, SimulatedFlows, Simulation
from weft.testbed.packets.switching import Switching
from weft.testbed.packets.transport import IPV6_BYTES, transport
from weft.topologies import build
from weft.topologies.core.failures import fail_links
from weft.topologies.core.grammar import parse
from weft.topologies.core.link import ETHERNET_BYTES, LinkSpec
from weft.topologies.core.topology import Topology
from weft.topologies.tiered import planes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHORTEST_BOUND = "shortest_bound_fraction"
COLUMNS = {
    "hosts": "hosts of the network",
    "ports": "ports of all routers, those to hosts counted",
    "cables": "links of the network, those of hosts counted",
    "radix": "ports of the router with the most",
    "host_cost_usd": "cost of a host by the model of topology_cost, at its prices",
    **common.UNFINISHED,
    "unfinished_fraction": "flows that had not ended when the run did, of all",
    "offered_fraction": "payload of flows that began in the second half of `seconds`, as below",
    "accepted_fraction": (
        "payload that arrived in that time, of what the busiest hosts' links carry; with "
        "load_fraction=0 until the last flow ended"
    ),
    "mean_ms": "time of a flow that began in that time, mean",
    "p99_ms": "99th percentile of that",
    "mean_slowdown": "time of such a flow over that on an idle network by a shortest path, mean",
    "p99_slowdown": "99th percentile of that",
    SHORTEST_BOUND: "load that fills a link if shortest paths share it evenly",
    "valiant_bound_fraction": (
        "load that fills a link under Valiant's routing; null if not all routers have hosts"
    ),
}
ANNOUNCED, SILENT = "announced", "silent"
LAYERS = "fatpaths:trigger=cut,start=random"
# those of 256 ranks, but for Xpander, which is much like Jellyfish; a Slim Fly whose hosts cost as
# much; and planes of Clos that cost what the one Clos does
PLANES = ("planes:k=2,of=clos:n=16,r=16,m=14", "planes:k=4,of=clos:n=32,r=8,m=19")
NETWORKS = (
    "slimfly:q=5,p=4",
    *(spec for spec in equal_cost.one_of_each(256) if not spec.startswith("xpander")),
    *PLANES,
)
# of about 10,000 hosts, for 1650 to 1683 USD each; the spines of a Clos would need 300 ports
LARGE_LOW = (
    *("slimfly:q=19,p=15", "polarfly:q=25,p=15", "dragonfly:p=9,a=14,h=6,palm=0"),
    *("hyperx:l=3,s=9,p=13", "jellyfish:n=722,r=25,p=15,seed=1"),
)
LARGE_TREES = ("fattree:k=28,oversubscription=2",)
# links of a part of the rate give a chip more ports, so that two tiers suffice: no leaf or spine
# has the capacity of more than 41 of a host's links, and no router above that of more than 44
LARGE_PLANES = ("planes:k=4,of=clos:n=90,r=112,m=74", "planes:k=8,of=clos:n=128,r=80,m=93")
LARGE = (*LARGE_LOW, *LARGE_TREES, *LARGE_PLANES)
TREES = ("clos:n=8,r=32,m=8", "fattree:k=8,oversubscription=2")
GRAPHS = tuple(f"jellyfish:n=64,r=7,p=4,seed={seed}" for seed in range(2, 11))
CARRIED = {"uniform": 0.4, "worst": 0.2}  # loads that the best choices of all networks carry
# labels of layers by when a flow takes another one
WAYS_OF_LAYERS = {
    LAYERS: "layers",
    "fatpaths:trigger=gap,gap_us=50,start=random": "layers, gaps",
    "fatpaths:trigger=drained,start=random": "Flowcut",
    "fatpaths:trigger=bytes,start=random,choice=turn": "Presto",
}
BY_FLOW: Where = {
    "scheme": ("ecmp", "letflow:gap_us=50", "ugal:gap_us=50", *WAYS_OF_LAYERS),
    "transport": "tcp:control=dctcp",
}
DRAWN_LABELS = {"tcp:control=dctcp,label=prr": "PRR", "tcp:control=dctcp,label=plb": "PLB"}
BY_LABEL: Where = {"scheme": "ecmp", "transport": tuple(DRAWN_LABELS)}
# which flows of TCP leave a path that is silent
LEAVING: tuple[Where, ...] = (
    {"scheme": ("ecmp", LAYERS), "transport": "tcp:control=dctcp"},
    {**BY_LABEL, "transport": "tcp:control=dctcp,label=prr"},
)
FROM_LOW_TO_HIGH: Mapping[str, tuple[float, ...]] = {
    "uniform": (0.2, 0.4, 0.6, 0.8),
    "worst": (0.1, 0.2, 0.4, 0.6),
}
REPS: Where = {"scheme": LAYERS, "transport": "ndp:choice=reps"}
SPRITZ: Where = {"scheme": LAYERS, "transport": ("ndp:choice=scout", "ndp:choice=spray")}
FEEDBACK = {"reps": "REPS", "scout": "Scout", "spray": "Spray"}
# REPS as in its paper: a packet's entropy value is hashed, and marks come before trimming
ENTROPIES: Where = {"scheme": "ecmp:ecn=4", "transport": "ndp:choice=reps,entropies=128"}
HASHED: Where = {"topology": (*TREES, *PLANES), "scheme": "ecmp:ecn=4"}
MRC: Where = {**HASHED, "transport": "ndp:choice=mrc,entropies=128"}
FEW_VALUES: Where = {**MRC, "topology": PLANES, "transport": "ndp:choice=mrc,entropies=16"}
# what makes four planes slower: fewer uplinks, longer frames, or a window of more packets
WHOLE_PLANES = "planes:k=4,of=clos:n=32,r=8,m=32"
SHORT_FRAMES: Where = {"frame_bytes": 2250, "header_packets": 4500}
CAUSES: tuple[Where, ...] = (
    {**MRC, "topology": WHOLE_PLANES},
    {**MRC, "topology": PLANES[1], "transport": "ndp:choice=mrc,window=16,entropies=128"},
    *(
        {**MRC, "topology": topology, "transport": transport, **SHORT_FRAMES}
        for topology, transport in (
            (TREES[0], "ndp:choice=mrc,window=32,entropies=128"),
            (PLANES[1], "ndp:choice=mrc,window=128,entropies=128"),
        )
    ),
)
SPRAYED: tuple[Where, ...] = ({**ENTROPIES, **HASHED}, MRC)
SWEPT: tuple[Where, ...] = (
    {"scheme": ("ecmp", "valiant", "ugal"), "transport": "ndp"},
    REPS,
)
SWEPT_NETWORKS = ("slimfly:q=5,p=4", "dragonfly:p=4,a=4,h=4,palm=0", "clos:n=8,r=32,m=8")
ALL_TO_ALL: Where = {**{"traffic": "all-to-all", "sizes": "fixed:bytes=8936", "load_fraction": 0}}
INCAST: Where = {
    **{"traffic": "incast:senders=64", "sizes": "fixed:bytes=89360", "load_fraction": 0}
}


def best_and_ecmp(networks: tuple[str, ...], trees: tuple[str, ...]) -> tuple[Where, ...]:
    """Return the choices ECMP, layers with REPS, and UGAL or on trees DRILL."""
    return (
        {"topology": networks, "scheme": ("ecmp", "ugal"), "transport": "ndp"},
        {"topology": trees, "scheme": ("ecmp", "drill"), "transport": "ndp"},
        {"topology": (*networks, *trees), **REPS},
    )


LOW = tuple(spec for spec in NETWORKS if spec not in (*TREES, *PLANES))
WITHOUT_PLANES = best_and_ecmp(LOW, TREES)
FEW = best_and_ecmp(LOW, (*TREES, *PLANES))
# three seeds beside those of which verdicts are
ASIDE: tuple[Where, ...] = (
    {"scheme": LAYERS, "transport": "ndp"},
    SPRITZ,
    {"topology": LOW, "scheme": "drill", "transport": "ndp"},
)
FAILING: tuple[Where, ...] = (*FEW, ENTROPIES, MRC)
SILENT_LINKS: Where = {"failed_fraction": 0.01, "failure": SILENT}
MORE_SILENT: Where = {"failed_fraction": 0.05, "failure": SILENT}
FEW_LINKS: Where = {"failed_fraction": 0.01, "failure": ANNOUNCED}
LOW_LOAD, LONG_S = 0.05, 0.1  # half of what shortest paths carry of the worst pairs, or less
# twenty times as large flows, and ten times as long: nearly all of web search
ELEPHANTS: Where = {"sizes": "web-search:most_bytes=10000000", "seconds": LONG_S}
OF_TEN: tuple[Where, ...] = (  # choices whose ratios the page names
    {"scheme": "ecmp", "transport": "ndp"},
    *FEW[:2],
    REPS,
    SPRITZ,
    ENTROPIES,
    MRC,
)
# as long again ten times: a fabric of each kind, with ECMP and with its best choice
LONG: tuple[Where, ...] = tuple(
    {"topology": spec, "scheme": ("ecmp", best), "transport": "ndp", "seconds": LONG_S}
    for spec, best in ((NETWORKS[0], "ugal"), ("polarfly:q=7,p=5", "ugal"), (TREES[0], "drill"))
)
# 10,000 hosts by the choices of 256 that stand in verdicts
AT_LARGE: tuple[Where, ...] = (
    *best_and_ecmp(LARGE_LOW, LARGE_TREES),
    {"topology": LARGE_PLANES, "scheme": "ecmp", "transport": "ndp"},
    *({**choice, "topology": (*LARGE_TREES, *LARGE_PLANES)} for choice in (ENTROPIES, MRC)),
)
MORE_LAYERS: Where = {
    **{"topology": (*LARGE_LOW, *LARGE_TREES), "transport": "ndp:choice=reps"},
    **{"scheme": "fatpaths:layers=32,trigger=cut,start=random", "traffic": "worst"},
}


def by_tcp(label: str) -> tuple[Where, ...]:
    """Return ECMP of 10,000 hosts under DCTCP, with and without labels, and layers."""
    tcp = "tcp:control=dctcp"
    return (
        {"topology": LARGE, "scheme": "ecmp", "transport": (tcp, f"{tcp},label={label}")},
        {"topology": (*LARGE_LOW, *LARGE_TREES), "scheme": LAYERS, "transport": tcp},
    )


SWEEPS = (
    *(
        Sweep("fabrics", {"traffic": name, "load_fraction": load, **further}, number)
        for further, *seeds in (
            ({}, 10, 3),
            *((choice, 10, 10) for choice in OF_TEN),
            (BY_FLOW, 3, 3),
            (BY_LABEL, 3, 3),
            *(({**choice, **SILENT_LINKS}, 3, 3) for choice in LEAVING),
            *(({**choice, "failed_fraction": 0.05}, 3, 3) for choice in ({}, *SPRAYED)),
            *(({**choice, **FEW_LINKS}, 3, 3) for choice in WITHOUT_PLANES[:2]),
            *((choice, 1, 1) for choice in LONG),
            *(({**choice, **SILENT_LINKS}, 3, 3) for choice in (*FAILING, *ASIDE)),
            *(({**choice, **MORE_SILENT}, 3, 3) for choice in ASIDE),
            *(({**choice, **MORE_SILENT}, 10, 3) for choice in FAILING),
            *(({**choice, "topology": GRAPHS}, 1, 1) for choice in (FEW[0], FEW[2])),
            *((choice, 3, 1) for choice in AT_LARGE),
        )
        for (name, load), number in zip(CARRIED.items(), seeds, strict=True)
    ),
    Sweep("fabrics", {**FEW_VALUES, **SILENT_LINKS, "traffic": "uniform"}),
    *(Sweep("fabrics", {**choice, "traffic": "uniform"}) for choice in CAUSES),
    *(Sweep("fabrics", {**choice, "traffic": "uniform", **ELEPHANTS}) for choice in FAILING),
    Sweep("fabrics", {**MORE_LAYERS, "load_fraction": CARRIED["worst"]}, 1),
    *(
        Sweep("fabrics", {**choice, "traffic": "uniform", **failures}, 1)
        for choices, failures in (
            (by_tcp("plb"), {}),
            ((*AT_LARGE, *by_tcp("prr")), SILENT_LINKS),
        )
        for choice in choices
    ),
    *(
        Sweep(
            "fabrics",
            {**choice, "traffic": "worst", "load_fraction": LOW_LOAD, "seconds": LONG_S},
        )
        for choice in WITHOUT_PLANES
    ),
    *(
        Sweep("fabrics", {**choice, "traffic": "skewed", "load_fraction": 0.2})
        for choice in ({}, *SPRAYED)
    ),
    *(
        Sweep(
            "fabrics",
            {"topology": SWEPT_NETWORKS, "traffic": name, "load_fraction": loads, **choice},
            1,
        )
        for name, loads in FROM_LOW_TO_HIGH.items()
        for choice in SWEPT
    ),
    *(Sweep("fabrics", {**choice, **ALL_TO_ALL}) for choice in ({}, *SPRAYED)),
    *(Sweep("fabrics", {**choice, **INCAST}) for choice in (*FEW, MRC)),
)
OPEN: Row = {
    **{"load_fraction": 0.4, "traffic": "uniform", "failed_fraction": 0.0, "carrier": "NDP"},
    **{"failure": ANNOUNCED, "seconds": 0.01, "is_large": False},
}
WORST: Row = {**OPEN, "load_fraction": 0.2, "traffic": "worst"}
LINES: Mapping[str, Row] = {
    "random pairs, load 0.4": OPEN,
    "... 10,000 hosts": {**OPEN, "is_large": True},
    "... 5 % of links failed": {**OPEN, "failed_fraction": 0.05},
    "... by DCTCP": {**OPEN, "carrier": "TCP"},
    "worst pairs, load 0.2": WORST,
    "...  10,000 hosts": {**WORST, "is_large": True},
    "...  5 % of links failed": {**WORST, "failed_fraction": 0.05},
    "...  by DCTCP": {**WORST, "carrier": "TCP"},
    "skewed pairs, load 0.2": {**WORST, "traffic": "skewed"},
    "all to all at once": {**OPEN, "traffic": "all-to-all", "load_fraction": 0.0},
}
LEAST_LINES = 4  # of a map
EVERY_PAIR = ("uniform", "all-to-all")
OWN_PATTERNS = ("uniform", "worst", "skewed")
GRACE = 4  # times `seconds`, in which flows may end
TCP_GRACE = 100  # as long as a few timeouts in a row, each of which doubles the next
MOST_FRAMES = 10**7


class SentPairs(NamedTuple):
    """Pairs of hosts, numbered from 0, and the most of them that one host sends or receives.

    ends: returns the sources and destinations of the pairs with such numbers.
    """

    total: int
    most: int
    ends: Callable[[Ints], tuple[Ints, Ints]]

    @property
    def busy_hosts(self) -> float:
        """Return how many hosts' links the pairs fill, if they fill that of the busiest host."""
        return self.total / self.most


def plane_of(topology: Topology, number: int) -> Topology:
    """Return plane `number` as a network of its own, without its failed links.

    Return `topology` itself if hosts have one link.
    """
    if topology.planes == 1:
        return topology
    failed_links = topology.failed[planes.links_of(topology, number)]
    return fail_links(build(parse(topology.spec)[1]["of"]), np.flatnonzero(failed_links))


def pattern_of(run: Run, topology: Topology) -> SentPairs:
    """Return who sends to whom, the same for every scheme; ValueError without such pairs."""
    topology = plane_of(topology, 0)
    name, rng = run.text("traffic"), np.random.default_rng([run.seed, 1])
    if name in EVERY_PAIR:
        all_hosts = topology.servers  # 10,000 have too many pairs to list
        ends = partial(workloads.in_turn, all_hosts)
        return SentPairs(all_hosts * (all_hosts - 1), all_hosts - 1, ends)
    src, dst = np.array(listed_pairs(name, topology, rng), dtype=np.int64).T
    most = max(np.bincount(src).max(), np.bincount(dst).max())
    return SentPairs(len(src), int(most), lambda number: (src[number], dst[number]))


def listed_pairs(name: str, topology: Topology, rng: Generator) -> list[tuple[int, int]]:
    """Return the pairs of a pattern of few pairs."""
    if name == "skewed":
        return fatpaths_vs_fattree.skewed(topology)
    if name == "worst":
        return fatpaths_vs_fattree.worst(topology, rng)
    return workloads.pairs(name, topology.servers, rng)


def payload_bytes(run: Run) -> int:
    """Return the payload of a full frame."""
    cost = replays.frame_cost(run)
    return cost.frame_bytes - cost.header_bytes


def payload_bps(run: Run) -> float:
    """Return the payload that a link carries in full frames."""
    cost = replays.frame_cost(run)
    return cost.rate_bps * payload_bytes(run) / cost.frame_bytes


def flows_of(run: Run, pattern: SentPairs) -> PacketFlows:
    """Return the flows of `run`, the same for every scheme."""
    rng, load = np.random.default_rng([run.seed, 2]), run.number("load_fraction")
    sizes, seconds = workloads.sizes(run.text("sizes")), run.number("seconds")
    if load:
        per_s = load * pattern.busy_hosts * payload_bps(run) / (8 * sizes.mean_bytes)
        start_s = np.sort(seconds * rng.random(max(1, rng.poisson(per_s * seconds))))
        chosen = rng.integers(pattern.total, size=len(start_s))
    else:
        chosen, start_s = np.arange(pattern.total), np.zeros(pattern.total)
    return PacketFlows(start_s, *pattern.ends(chosen), sizes.draw(rng, len(chosen)))


def link_of(run: Run, topology: Topology, host_bps: int) -> LinkSpec:
    """Return a link of `run`, on several planes with its part of the rate of a host."""
    return LinkSpec(
        rate_bps=host_bps // topology.planes,
        delay_us=run.integer("delay_us"),
        queue_packets=run.integer("queue_packets"),
        header_packets=run.integer("header_packets"),
        mtu_bytes=run.integer("frame_bytes") - ETHERNET_BYTES,
    )


def simulation(run: Run, topology: Topology, flows: PacketFlows) -> Simulation:
    """Return the simulation of `flows` on the links and under the scheme of `run`."""
    link = link_of(run, topology, replays.frame_cost(run).rate_bps)
    return Simulation(
        topology,
        replays.scheme_of(run),
        flows,
        transports.transport_of(run),
        [link] * len(topology.links),
        Switching(),
        1 + run.seed,
        run.integer("rto_min_us"),
        daemons=False,
    )


def arrived_packets(network: PacketNetwork, *, is_tcp: bool) -> int:
    """Return how many different packets have arrived at all hosts."""
    if is_tcp:
        return int(network.delivered_packets().sum())
    return sum(host.data - host.duplicates for host in network.host_counters())


class WindowArrivals(NamedTuple):
    """Packets that arrived at all hosts between two times."""

    begin_s: float
    end_s: float
    packets: int


def carried(
    run: Run, topology: Topology, flows: PacketFlows
) -> tuple[SimulatedFlows, WindowArrivals]:
    """Return what becomes of `flows`, and what arrives while they are counted."""
    links, is_known = failed(run, topology), run.text("failure") == ANNOUNCED
    simulated = simulation(run, fail_links(topology, links) if is_known else topology, flows)
    is_tcp = transports.transport_of(run).name == "tcp"
    packets: list[int] = []

    def read() -> None:
        packets.append(arrived_packets(simulated.network, is_tcp=is_tcp))

    window = window_s(run)
    faults = [] if is_known else [Fault(links, 0.0)]
    done = simulated.run(faults, deadline_s(run), (), looks=[(at_s, read) for at_s in window])
    if run.number("load_fraction"):
        return done, WindowArrivals(*window, packets[1] - packets[0])
    read()
    return done, WindowArrivals(0.0, float(np.nanmax(done.delivered_s, initial=0)), packets[-1])


def measure(run: Run) -> Result:
    """Return times of flows, the load that arrives, and what the network costs."""
    topology = run.topology
    pattern = pattern_of(run, topology)
    done, arrivals = carried(run, topology, flows_of(run, pattern))
    flows = len(done.flows.src)
    return Result(
        figures={
            **size_figures(topology),
            "flows": flows,
            "unfinished": done.unfinished,
            "unfinished_fraction": done.unfinished / flows,
            **load_figures(run, pattern, done.flows, arrivals),
            **time_figures(run, topology, done),
        }
    )


def size_figures(topology: Topology) -> Row:
    """Return what a network is made of, and what a host of it costs."""
    cost = of_a_host(topology, PRICES)
    return {
        "hosts": topology.servers,
        "ports": 2 * len(topology.links) - topology.servers * topology.planes,
        "cables": len(topology.links),
        **{name: cost[name] for name in ("radix", "host_cost_usd")},
    }


def window_s(run: Run) -> tuple[float, float]:
    """Return the time of which flows and packets are counted: all, if flows begin at once."""
    seconds = run.number("seconds")
    return (seconds / 2 if run.number("load_fraction") else 0.0), seconds


def deadline_s(run: Run) -> float:
    """Return when the simulation ends."""
    is_tcp = transports.transport_of(run).name == "tcp"
    return (1 + (TCP_GRACE if is_tcp else GRACE)) * run.number("seconds")


def load_figures(run: Run, pattern: SentPairs, flows: PacketFlows, arrivals: WindowArrivals) -> Row:
    """Return the loads of the busiest hosts' links that begin and arrive in a time."""
    begin_s, end_s, packets = arrivals
    bytes_of_link = (end_s - begin_s) * pattern.busy_hosts * payload_bps(run) / 8
    if not bytes_of_link:  # no flow ended
        return {"offered_fraction": None, "accepted_fraction": 0.0}
    labels = transports.transport_of(run).label != "none"
    frames = -(-flows.size_bytes // (payload_bytes(run) - IPV6_BYTES * labels)).sum()
    arrived = packets * flows.size_bytes.sum() / frames
    began = flows.size_bytes[(flows.start_s >= begin_s) & (flows.start_s <= end_s)].sum()
    return {
        "offered_fraction": float(began / bytes_of_link),
        "accepted_fraction": float(arrived / bytes_of_link),
    }


def time_figures(run: Run, topology: Topology, done: SimulatedFlows) -> Row:
    """Return times of the counted flows; None without any."""
    flows = done.flows
    taken_s = np.where(
        np.isnan(done.delivered_s), deadline_s(run) - flows.start_s, done.completion_s
    )
    least_s = alone_s(run, topology, flows)
    counted = flows.start_s >= window_s(run)[0]
    figures: Row = {}
    for name, values in (("ms", 1000 * taken_s), ("slowdown", taken_s / least_s)):
        own = values[counted]
        figures[f"mean_{name}"] = float(own.mean()) if len(own) else None
        figures[f"p99_{name}"] = float(np.percentile(own, 99)) if len(own) else None
    return figures


def alone_s(run: Run, topology: Topology, flows: PacketFlows) -> Floats:
    """Return the times of `flows` on an idle network by shortest paths, evenly over planes."""
    usual = replays.frame_cost(run)
    cost = usual._replace(rate_bps=usual.rate_bps // topology.planes)
    graph, router = RouterGraph.of(plane_of(topology, 0)), router_of_hosts(topology)
    # what the busiest of a host's links carries
    frames = -(-flows.size_bytes // (payload_bytes(run) * topology.planes))
    share_bytes = np.minimum(flows.size_bytes, frames * payload_bytes(run))
    hops = 2 + graph.distance[router[flows.src], router[flows.dst]]
    # the frames on the first link, and the last full one on the others
    least_s = [
        (cost.sending_ns(cost.frames_bytes(size)) + cost.latency_ns(size, length)) / 1e9
        for size, length in zip(share_bytes.tolist(), hops.tolist(), strict=True)
    ]
    return np.array(least_s)


def router_of_hosts(topology: Topology) -> Ints:
    """Return the router of each host, numbered from 0."""
    plane = plane_of(topology, 0)
    links = plane.links[plane.level == 0]
    routers: Ints = links[np.argsort(links[:, 0]), 2] - plane.servers
    return routers


def between_routers(run: Run, graph: RouterGraph) -> Floats:
    """Return the traffic between any two routers if the busiest hosts' links are full."""
    pattern, routers = pattern_of(run, run.topology), graph.routers
    if run.text("traffic") in EVERY_PAIR:
        counts = np.multiply.outer(graph.hosts, graph.hosts)
    else:
        src, dst = map(router_of_hosts(run.topology).take, pattern.ends(np.arange(pattern.total)))
        counts = np.bincount(src * routers + dst, minlength=routers**2).reshape(routers, routers)
    np.fill_diagonal(counts, 0)
    # a sum over pairs, whose last bits are those of published rows
    sums = np.cumsum(np.full(counts.max(), 1 / pattern.most))
    traffic: Floats = np.append(0.0, sums)[counts]
    return traffic


def bounds(run: Run) -> Mapping[str, Value]:
    """Return the loads that fill a link on paths of equal shares, of those that know failures."""
    live = fail_links(run.topology, failed(run, run.topology))
    graphs = [RouterGraph.of(plane_of(live, number)) for number in range(live.planes)]
    return min((plane_bounds(run, graph) for graph in graphs), key=itemgetter(SHORTEST_BOUND))


def plane_bounds(run: Run, graph: RouterGraph) -> dict[str, float | None]:
    """Return the bounds of a plane that has its part of all traffic."""
    traffic = between_routers(run, graph)
    loads = {"shortest": achievable_throughput.shortest_load(graph, traffic)}
    if graph.hosts.all() and graph.routers > 2:
        # by way of each router but the ends, as weft's switches do
        sent, received = traffic.sum(axis=1, keepdims=True), traffic.sum(axis=0)
        detours = (sent + received - 2 * traffic) / (graph.routers - 2)
        np.fill_diagonal(detours, 0)
        loads["valiant"] = achievable_throughput.shortest_load(graph, detours)
    return {
        f"{name}_bound_fraction": float(1 / loads[name].max(initial=1)) if name in loads else None
        for name in ("shortest", "valiant")
    }


def check(run: Run) -> None:
    """Raise ValueError unless the network has such traffic and routing, and a run ends in time."""
    topology = run.topology
    transports.check(run, has_planes=True)
    replays.check(run, topology)
    pattern, sizes = pattern_of(run, topology), workloads.sizes(run.text("sizes"))
    payload = pattern.total * sizes.mean_bytes
    if load := run.number("load_fraction"):
        payload = load * pattern.busy_hosts * payload_bps(run) * run.number("seconds") / 8
    frames = max(payload, max(sizes.bytes_)) / payload_bytes(run)
    if frames > MOST_FRAMES:
        raise ValueError(
            f"{run.experiment}: {frames:.2g} frames take too long, at most {MOST_FRAMES:.0e}; take "
            "fewer seconds or smaller flows"
        )


def revisions(engine: str, parameters: Mapping[str, Scalar]) -> int:
    """Return how often results have changed: those of TCP, and the load that arrives by labels."""
    has_labels = transport(str(parameters["transport"])).label != "none"
    return transports.changes_tcp(engine, parameters) + has_labels


def traffic(text: str) -> None:
    """Raise ValueError unless `text` is a pattern."""
    if text not in OWN_PATTERNS:
        common.pattern(text, workloads.PATTERNS)


def is_sensible(run: Run) -> bool:
    """Return True for one kind of failure where nothing fails, and a choice that packets have."""
    is_once = run.number("failed_fraction") > 0 or run.text("failure") == ANNOUNCED
    transport = transports.transport_of(run)
    chooses = transport.choice != "flow" and not transport.entropies
    return is_once and (not chooses or run.text("scheme").startswith("fatpaths"))


def marked(table: Table) -> list[Row]:
    """Return the rows with the family of the network, the carrier, the way of packets and a time.

    That is the 99th percentile, or of flows at once the time up to the last one for each frame of a
    host, because networks have not equally many hosts.
    """
    rows = []
    for row in table:
        name, transport = parse(row["scheme"])[0], row["transport"]
        way = WAYS_OF_LAYERS.get(row["scheme"], style.scheme(name).label)
        if label := FEEDBACK.get(parse(transport)[1].get("choice", "")):
            # entropy values need no name, and a cell has little room
            way = label if "entropies" in transport else f"{way}+{label}"
        way = "MRC-like" if "mrc" in transport else DRAWN_LABELS.get(transport, way)
        carrier = "TCP" if transport.startswith("tcp") else "NDP"
        about: Row = {"family": equal_cost.family(row), "carrier": carrier, "way": way}
        about["network"] = table_iv.label(row["topology"])
        about["is_large"] = row["topology"] in LARGE
        time = row["p99_ms"] if row["load_fraction"] else 1 / number_of(row, "accepted_fraction")
        rows.append(row | about | {"time": time})
    return rows


def beside_fastest(table: Table) -> dict[str, list[Row]]:
    """Return for each line of the map, by its title, a cell for each family of networks.

    A cell has the 99th percentile of times with the best way of packets over that of the fastest
    family.  Flow labels are left out: they are ECMP by another hash, the better of which is chance.
    """
    lines: dict[str, list[Row]] = {}
    studied = (*NETWORKS, *LARGE)
    rows = [
        row
        for row in marked(table)
        if row["topology"] in studied and row["transport"] not in DRAWN_LABELS
    ]
    for title, where in LINES.items():
        best = best_ways(select(rows, **where))
        if best:
            least_ms = min(best.values())[0]
            lines[title] = [
                {"family": family, "ratio": ms / least_ms, "below": way}
                for family, (ms, way) in best.items()
            ]
    return lines


def best_ways(rows: Table) -> dict[Value, tuple[float, Value]]:
    """Return the least mean time of each family and its way, of those under which all flows ended.

    The mean is over the seeds that all ways have: each seed has other flows.
    """
    best: dict[Value, tuple[float, Value]] = {}
    groups = grouped(rows, ("family", "way"))
    seeds = min(map(len, groups.values()), default=0)
    for (family, way), own in groups.items():
        if not any(row["unfinished"] for row in own):
            same = [row for row in own if number_of(row, "seed") < seeds]
            choice = mean(numbers(same, "time")), way
            best[family] = min(best.get(family, choice), choice)
    return best


def draw_map(lines: Mapping[str, Sequence[Row]], figure: Figure) -> None:
    """Draw a line for each traffic and a column for each family, the fastest first."""
    figure.set_size_inches(7.4, 0.7 + 0.36 * len(lines))
    axes = figure.subplots()
    equal_cost.draw_map(axes, lines)
    axes.set_title(
        "99th percentile of completion times, by the best routing, over that of the fastest fabric",
        fontsize=9,
    )


FACET = ("traffic", "failed_fraction", "failure", "sizes", "seconds", "carrier")


def of_several_loads(table: Table) -> list[Row]:
    """Return the rows of choices that have several loads on a network."""
    return varied(marked(table), ("topology", "way", *FACET), "load_fraction", 3)


def of_one_load(table: Table) -> list[Row]:
    """Return the rows unless they have several loads."""
    return [] if of_several_loads(table) else marked(table)


BARS_AND_CURVES = Stack(
    Bars(
        columns={"p99_ms": "99th percentile of times (ms)", "mean_slowdown": "mean slowdown"},
        by=("family", "way"),
        facet=("load_fraction", *FACET),
        rows=of_one_load,
    ),
    Curves(
        columns={"accepted_fraction": "load that arrives"},
        x="load_fraction",
        series="way",
        facet=("network", *FACET),
        rows=of_several_loads,
    ),
)


def draw(table: Table, figure: Figure) -> None:
    """Draw a map of traffics, curves by load, or bars: what the rows are enough for."""
    usual = {key: only for key, (only, *more) in EXPERIMENT.sweep.items() if not more}
    of_lines = ("load_fraction", "failed_fraction", "failure", "sizes", "seconds")
    study = select(table, **{key: usual[key] for key in usual if key not in of_lines})
    lines = beside_fastest(study)
    if len(lines) >= LEAST_LINES:
        draw_map(lines, figure)
    else:
        BARS_AND_CURVES(table, figure)


EXPERIMENT = Experiment(
    name="fabrics",
    question="Which routing on which fabric has the shortest flows, at equal cost of a host?",
    source="FatPaths, section VII; Kim et al., ISCA 2008; Besta and Hoefler, SC 2014",
    engines=("packet",),
    axes={
        "topology": common.TOPOLOGY.over(*NETWORKS),
        "scheme": common.ROUTING.over("ecmp", "drill", "valiant", "ugal", LAYERS),
        "transport": transports.TRANSPORT.over("ndp", "ndp:choice=reps"),
        "traffic": Spec(
            "who sends to whom",
            form=f"{', '.join(OWN_PATTERNS)}, permutation, incast:senders=N, all-to-all, ...",
            check=traffic,
        ).over("uniform", "worst"),
        "load_fraction": Number(
            "payload on the link of the busiest host; 0: all flows begin at once, one of a pair",
            unit="fraction",
            least=0,
            most=1,
        ).over(0.4),
        "sizes": common.SIZES.over("web-search:most_bytes=500000"),
        "failed_fraction": Number(
            "links between routers that have failed", unit="fraction", least=0, most=0.5
        ).over(0.0),
        "failure": Word("whether switches know of failed links", words=(ANNOUNCED, SILENT)).over(
            ANNOUNCED
        ),
        "seconds": Number("time during which flows begin", unit="s", least=1e-4, most=10).over(
            0.01
        ),
        "rate_mbps": common.RATE_MBPS.over(10_000),
        "frame_bytes": KERNEL_FRAME_BYTES.over(9000),
        "delay_us": common.DELAY_US.over(1),
        "queue_packets": common.QUEUE_PACKETS.over(transports.QUEUE_PACKETS),
        "ecn_packets": ECN_PACKETS.over(transports.ECN_PACKETS),
        "header_packets": transports.HEADER_PACKETS.over(1125),
        "rto_min_us": common.RTO_MIN_US.over(200),
    },
    columns=COLUMNS,
    compared=("topology", "scheme"),
    goes_together=is_sensible,
    seeds=3,
    revised=revisions,
    measure=measure,
    predict=bounds,
    plot=draw,
    check=check,
)

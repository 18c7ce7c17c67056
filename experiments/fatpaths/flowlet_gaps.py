"""Do flowlets exist?  How long flows are silent between two packets, where hosts send them.

LetFlow and FatPaths give a flow another path after a silence, of 50 us in FatPaths: seven times as
long as a frame of 9 kB takes at 10 Gbit/s.  Here every silence is counted, by transport, congestion
control and rate, and given in packet times: how long a full frame takes on a link.  Flows are
endless, or come and go as in fatpaths_fct.

Beside the kernel's goodput stand max-min fair rates of the same flows, as fluids on the paths of
their packets.  Flows without an end have one path each: the one of the layer that the host has
drawn, or the only shortest one.  A fluid has full frames with the headers of TCP, and no
acknowledgements, queues or windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.daemons.fatpaths import scheme
from weft.daemons.fatpaths.scheme import Trigger
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.arrays import Floats, Ints
from weft.experiments.engines.common_parameters import ORDER
from weft.experiments.engines.fluid import fair_rates
from weft.experiments.engines.workloads import endless
from weft.experiments.fatpaths import flow_times, layered_network
from weft.experiments.fatpaths.layered_network import AXES
from weft.experiments.report.panels import Curves
from weft.experiments.runner.definition import Experiment, Result, Run, Table
from weft.experiments.runner.parameters import Word, swept
from weft.testbed.data_plane.layer_program import FlowKey, LayerProgram, program_of
from weft.testbed.measure.reordering import FlowGaps, bounds_us
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic.flows import PORT, Flow
from weft.topologies.core.topology import Topology

LOAD_FRACTION, SIZE_FRACTION = 0.2, 0.25
MULTIPLES = (2, 7, 30)  # of a packet time; the paper's is 7
WARM_UP = 0.1  # of the time
TCP = 6
NONE = -1  # no channel
HostPairs = Sequence[tuple[int, int]]


def measure(run: Run) -> Result:
    """Return the histogram of silences, and how many packets came after the longer ones."""
    seconds, packet_us = run.number("seconds"), layered_network.packet_time_us(run.parameters)
    with layered_network.brought_up(run) as network:
        pairs = layered_network.pairs_of(run, network.topology.servers)
        with FlowGaps(network) as gaps:
            observation = layered_network.tcp(
                run, network, flows_of(run, pairs), deadline_s=seconds, warm_up_s=seconds * WARM_UP
            )
        table = gaps.table
        return observation.result(
            {
                "packets": table.packets,
                "median_packet_times": table.quantile_us(50) / packet_us,
                "p99_packet_times": table.quantile_us(99) / packet_us,
                **{f"beyond_{n}_fraction": table.beyond(n * packet_us) for n in MULTIPLES},
                "gaps": list(table.gaps),
                "goodput_bps": observation.flows.goodput_bps,
                "fluid_bps": fluid_bps(run, network, pairs),
            },
            {"scheme": network.run.journal["scheme"]},
        )


def flows_of(run: Run, pairs: HostPairs) -> list[Flow]:
    """Return the flows of `run` between `pairs`."""
    if run.text("flows") == "endless":
        return endless(pairs)
    return list(
        flow_times.arrivals(
            run.generator(1),
            pairs,
            flow_times.steps(SIZE_FRACTION),
            load_fraction=LOAD_FRACTION,
            rate_bps=layered_network.payload_bps(run),
            duration_s=run.number("seconds"),
        )
    )


def fluid_bps(run: Run, network: RunningNetwork, pairs: HostPairs) -> float | None:
    """Return what max-min fair fluids would carry on the paths of the endless flows of `pairs`.

    None for other flows, and where paths change or are not known.
    """
    if (run.text("flows"), run.text("transport")) != ("endless", "tcp"):
        return None
    shares = max_min_shares(network, layered_network.scheme_of(run), pairs, PORT)
    if shares is None:
        return None
    return float(shares.sum()) * layered_network.payload_bps(run)


def silences(table: Table) -> Table:
    """Return a row for each class of silences: the fraction of packets behind a longer one."""
    rows = []
    for row in table:
        gaps = np.array(row["gaps"], float)
        beyond = gaps[::-1].cumsum()[::-1] / max(1, gaps.sum())
        times = np.maximum(bounds_us(), 1) / layered_network.packet_time_us(row)
        control = f"{row['transport']} {row['congestion_control']}"
        rows += [
            {**row, "silence": time, "beyond_fraction": fraction, "control": control}
            for time, fraction in zip(times.tolist(), beyond.tolist(), strict=False)
            if fraction > 0
        ]
    return rows


def channels(topology: Topology, tables: NDArray[np.int32], ends: Ints, layers: Ints) -> Ints:
    """Return the channels that each flow takes in its layer, numbered from 0.

    Args:
        topology: the network.
        tables: of the layers.
        ends: source and destination of each flow.
        layers: layer of each flow.

    Returns:
        shape (flows, hops): links from and to hosts, then those between routers, NONE behind the
        last hop.
    """
    hosts, routers = topology.servers, tables.shape[1]
    router_of = np.array([topology.edge(host) - hosts for host in range(hosts)])
    src, dst = router_of[ends.T]
    hops = [*(routers**2 + ends + [0, hosts]).T]
    while (src != dst).any():
        after = tables[layers, dst, src]
        hops.append(np.where(src == dst, NONE, src * routers + after))
        src = after
    used, numbers = np.unique(np.stack(hops, axis=1), return_inverse=True)
    return np.asarray(numbers.reshape(len(ends), -1) - int(used[0] == NONE), np.int64)


def fair_shares(routes: Ints) -> Floats:
    """Return the rate of each flow, as a fraction of a channel's.

    `fair_rates` is not compiled here: that takes a second under the virtual clock, a thousand flows
    without it milliseconds.

    routes: shape (flows, hops), NONE behind the last hop.
    """
    rates, used = np.zeros(len(routes)), np.bincount(routes[routes != NONE])
    fair_rates(np.arange(len(routes)), routes, (routes != NONE).sum(axis=1), None, used, 1.0, rates)
    return rates


def max_min_shares(
    network: RunningNetwork, spec: str, pairs: Sequence[tuple[int, int]], port: int
) -> Floats | None:
    """Return the fair share of a link of the flow to `port` of each of `pairs`.

    None where paths are not known: flows change their paths, a pair of hosts that choose no layers
    has several shortest paths, a pair has several flows, or the hosts' program has forgotten one.

    spec: scheme of `network`.
    """
    topology = network.topology
    layers: Ints | None = np.zeros(len(pairs), dtype=np.int64)
    if program_of(network) is None:
        spec = "fatpaths:layers=1"
        if not all(only_one_shortest(topology, src, dst) for src, dst in set(pairs)):
            return None
    else:
        with closing(LayerProgram.open(network)) as program:
            settings = program.settings()
            if settings["trigger"] != Trigger.NONE and settings["layers"] > 1:
                return None
            layers = chosen_layers(topology, program.layers_of_flows(), pairs, port)
    if layers is None:
        return None
    tables = scheme.tables(topology, registry.scheme(spec)[1])
    return fair_shares(channels(topology, tables, np.array(pairs, dtype=np.int64), layers))


def chosen_layers(
    topology: Topology, flows: Mapping[FlowKey, int], pairs: Sequence[tuple[int, int]], port: int
) -> Ints | None:
    """Return the layer of the TCP flow to `port` of each pair of hosts.

    None if a pair occurs twice or has no flow.

    flows: layers of the flows that were used last.
    """
    if len(set(pairs)) < len(pairs):
        return None
    layer_of = {
        (key.source, key.destination): layer
        for key, layer in flows.items()
        if key[3:] == (port, TCP)
    }
    address = topology.naming.address
    layers = [layer_of.get((address(src), address(dst))) for src, dst in pairs]
    return None if None in layers else np.array(layers, dtype=np.int64)


def only_one_shortest(topology: Topology, src: int, dst: int) -> bool:
    """Return True if exactly one shortest path joins two hosts."""
    count, level, reached = {src: 1}, {src}, {src}
    while dst not in level and level:
        following: dict[int, int] = {}
        for node in level:
            for _, peer, *_ in topology.ports(node):
                if peer not in reached:
                    following[peer] = following.get(peer, 0) + count[node]
        reached |= following.keys()
        count, level = following, set(following)
    return count.get(dst) == 1


EXPERIMENT = Experiment(
    name="flowlet_gaps",
    question="Do flowlets exist: how long are flows silent between two packets?",
    source="FatPaths, sections III-B and VII-A6; LetFlow (NSDI 2017), section 2",
    engines=("kernel",),
    axes={
        **swept(
            AXES,
            topology=["slimfly:q=3,p=2"],
            pattern=["off-diagonal:c=18"],
            mapping=["linear"],
            rate_mbps=[10, 1000],
            ecn_packets=[0],
            congestion_control=["reno", "cubic", "bbr"],
            transport=["tcp", "mptcp:subflows=4"],
        ),
        "flows": Word(
            "whether flows last, or arrive as in fatpaths_fct",
            words=("endless", "arriving"),
        ).over("endless", "arriving"),
        "seconds": common.PART_OF_SECONDS.over(0.5),
    },
    columns={
        "packets": "packets that left hosts",
        "median_packet_times": (
            "median silence of a flow before its packet, over the time of a full packet on a link"
        ),
        "p99_packet_times": "99th percentile of that",
        "beyond_*_fraction": (
            "packets before which their flow was silent for longer than so many packet times"
        ),
        "gaps": (
            "list: packets by the silence before them, in the classes of bounds_us() of "
            "testbed/measure/reordering.py"
        ),
        "goodput_bps": "payload of all flows that arrives in a second",
        "fluid_bps": (
            "the same of max-min fair fluids on the same paths; null where flows end, or paths are "
            "not known"
        ),
        **ORDER,
    },
    version=2,  # 1 MB in the mean
    seeds=3,
    takes_s=250,
    measure=measure,
    plot=Curves(
        columns={"beyond_fraction": "packets after a longer silence (fraction)"},
        x="silence",
        series="control",
        dash="rate_mbps",
        facet=("topology", "flows", "scheme", "pattern", "queue_packets", "frame_bytes", "seconds"),
        always=3,
        log=("silence", "beyond_fraction"),
        rows=silences,
    ),
    check=layered_network.check,
)

"""Goodput of Linux' TCP when flows collide or links die silently, by how paths are chosen.

Every host sends endless flows over DCTCP to another one.  After `before_s` links fail silently:
they lose all packets.  Flows are counted from then on, for `after_s`.  Nothing of the kernel is
modified; a program marks packets at long queues.  `way` is how a flow's path is chosen:

ports    ECMP over IPv4, by addresses and ports (fib_multipath_hash_policy=1); the switches' program
         drops the sender's hash, which packets carry within one kernel
label    ECMP over IPv6, by addresses and flow label, which stays (txrehash=0)
prr      the same, with a new label after each retransmission timeout, Linux' default
plb      prr, and a new label after rounds with many marks (tcp_plb_enabled=1)
letflow  the switches' program over IPv4: another port after a gap
ugal     the switches' program: a flowlet takes a shortest path or a random detour
layers   FatPaths: the hosts' program gives a flow another layer after a cut of its window
gaps     ... after a gap;  in-trees: other layers
flowcut  ... when all that the flow has sent is acknowledged
presto   ... after 64 kB, the next one
SCHEME   any other scheme with a data plane, as it is: its daemons find what has failed

Under a word no switch notices a failure.  On the engine `packet` TCP and switches are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.kernel_run import PAYLOAD_FRACTION, running
from weft.experiments.engines.workloads import endless, pairs
from weft.experiments.fatpaths import fatpaths_vs_fattree, layered_network
from weft.experiments.fatpaths.layered_network import ECN_PACKETS
from weft.experiments.flow_labels import columns, maps
from weft.experiments.report.claims import Sweep, Where
from weft.experiments.runner.definition import Experiment, Result, Row, Run
from weft.experiments.runner.parameters import Integer, Scalar, Spec
from weft.testbed.data_plane import layer_program, marks
from weft.testbed.data_plane.data_plane import DataPlane, program_of
from weft.testbed.linux import clock
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.measure.flow_labels import READ_S, LabelCapture
from weft.testbed.network.network import RunningNetwork
from weft.testbed.packets.simulation import Fault, PacketFlows, SimulatedFlows, Simulation
from weft.testbed.packets.switching import Switching
from weft.testbed.packets.transport import transport
from weft.testbed.traffic import flows, tcp
from weft.testbed.traffic.flows import FlowOptions, FlowResults
from weft.topologies.core.address import IPV4, IPV6
from weft.topologies.core.grammar import parse, unknown, unparse
from weft.topologies.core.topology import Topology

GAP_US = 500  # silence that ends a flowlet, as in fatpaths_fct
LINUX_ROUNDS = 12
DEAF = "dead=100"  # daemons miss 100 hellos, 3 s, before they find a neighbour dead
PROCESSES = 2  # that the daemons share
WORST = "worst"
DRAWS = ("gaps", "cuts", "echoes", "errors", "drains", "cells", "repeats")  # of LayerCounts
REHASHES = {
    "timeout_rehashes": "TcpTimeoutRehash",
    "duplicate_rehashes": "TcpDuplicateDataRehash",
    "plb_rehashes": "TCPPLBRehash",
}


class Way(NamedTuple):
    """Sysctls of hosts, daemons and programs by which paths are chosen.

    sysctls: of hosts.
    balancing: the scheme of the switches' program beside fixed routes; "" without one.
    scheme: with daemons and data plane; "" for fixed routes.
    label: of IPv6, as simulated TCP has it.
    """

    sysctls: dict[str, str]
    balancing: str = ""
    scheme: str = ""
    label: str = "none"

    @property
    def ipv6(self) -> bool:
        """Return True if flows are of IPv6."""
        return self.label != "none"


def layers(options: str) -> Way:
    """Return the way of FatPaths' layers, whose flows begin in a random one."""
    return Way({}, scheme=f"fatpaths:{options},start=random,{DEAF}")


WAYS = {
    "ports": Way({}, "ecmp"),
    "label": Way({"core/txrehash": "0"}, label="stays"),
    "prr": Way({}, label="prr"),
    "plb": Way({"ipv4/tcp_plb_enabled": "1"}, label="plb"),
    "letflow": Way({}, f"letflow:gap_us={GAP_US}"),
    "ugal": Way({}, scheme=f"ugal:gap_us={GAP_US},{DEAF}"),
    "layers": layers("trigger=cut"),
    "in-trees": layers("construction=intree,trigger=cut"),
    "gaps": layers(f"trigger=gap,gap_us={GAP_US}"),
    "flowcut": layers("trigger=drained"),
    "presto": layers("trigger=bytes,choice=turn"),
}


def way_of(run: Run) -> Way:
    """Return how flows of `run` choose paths, with layers of its seed."""
    text = run.text("way")
    way = WAYS.get(text, Way({}, scheme=text))
    return way._replace(scheme=layered_network.seeded(way.scheme, run.seed) if way.scheme else "")


def check_way(text: str) -> None:
    """Raise ValueError unless `text` is a word of WAYS or a scheme with a data plane."""
    if text not in WAYS:
        if parse(text)[0] not in registry.schemes():
            raise ValueError(unknown("way", parse(text)[0], {*WAYS, *registry.with_data_plane()}))
        layered_network.check_scheme(text)


def pairs_of(run: Run, topology: Topology) -> list[tuple[int, int]]:
    """Return who sends to whom, the same for every way."""
    generator = np.random.default_rng(run.seed)
    if run.text("pattern") == WORST:
        return fatpaths_vs_fattree.worst(topology, generator)
    return pairs(run.text("pattern"), topology.servers, generator)


class LabelObservation(NamedTuple):
    """Flows of one run, what arrived of them, counters of TCP and of programs, and the fidelity."""

    flows: FlowResults
    capture: LabelCapture
    counters: dict[str, int]
    draws: Row
    fidelity: Fidelity


def measure(run: Run) -> Result:
    """Return the goodput of all flows after the failure, and how often labels changed."""
    return (simulated if run.engine == "packet" else on_kernel)(run)


def on_kernel(run: Run) -> Result:
    """Measure flows of Linux' TCP."""
    with brought_up(run) as network:
        observation = observe(run, network)
    report = observation.fidelity.report
    table = observation.flows
    circumstances = {
        "fidelity_report": report.as_dict(),
        "failed": [network.topology.link_name(link) for link in failed(run, network.topology)],
        "tcp": {"congestion_control": table.congestion_control, **table.sysctls},
    }
    figures = figures_of(run, observation)
    return Result(figures=figures, fidelity=report.verdict, circumstances=circumstances)


@contextmanager
def brought_up(run: Run) -> Iterator[RunningNetwork]:
    """Bring up the network of `run`, with marks at its switches, for the length of a `with`."""
    way = way_of(run)
    scheme = way.scheme or f"static:ipv6={int(way.ipv6)}"
    with running(run.topology, common.link(run), scheme, packed=PROCESSES) as network:
        marks.attach(network, run.integer("ecn_packets"))
        if way.scheme:
            layered_network.seed_switches(network, way.scheme, run.seed)
        elif way.balancing:
            with DataPlane.load(network, way.balancing, seed=run.seed) as plane:
                plane.attach()
                plane.set_scheme(way.balancing, seed=run.seed)
        sysctls = {
            "ipv4/tcp_ecn": "1",
            "ipv4/tcp_rto_min_us": run.text("rto_min_us"),
            "ipv4/tcp_plb_rehash_rounds": run.text("plb_rounds"),
            **way.sysctls,
        }
        tcp.tune(network, sysctls)
        yield network


def failed(run: Run, topology: Topology) -> list[int]:
    """Return random links between switches, the same for every way."""
    links = np.flatnonzero(topology.level > 0)
    generator = np.random.default_rng([run.seed, 1])
    return sorted(generator.choice(links, run.integer("failed_links"), replace=False).tolist())


def observe(run: Run, network: RunningNetwork) -> LabelObservation:
    """Run the flows, and fail links meanwhile."""
    family = IPV6 if way_of(run).ipv6 else IPV4

    def fail() -> None:
        for link in failed(run, network.topology):
            network.fail(network.topology.link_name(link), silent=True)
        capture.since_s = clock.monotonic()

    options = FlowOptions(
        deadline_s=run.number("before_s") + run.number("after_s"),
        congestion_control="dctcp",
        warm_up_s=run.number("before_s"),
        at_warm_up=fail,
        open_before=True,
        family=family,
    )
    sent = endless(pairs_of(run, network.topology))
    with Fidelity(network) as fidelity, LabelCapture(network, family, flows.PORT) as capture:
        table = flows.run(network, sent, options)
    counters = tcp.counters(network, REHASHES.values())
    return LabelObservation(table, capture, counters, drawn(network), fidelity)


def drawn(network: RunningNetwork) -> Row:
    """Return the columns about the counters of programs of hosts and switches."""
    counts, detoured = layer_program.counted(network), None
    if program_of(network) is not None:
        with DataPlane.open(network) as plane:
            detoured = sum(port.moved for port in plane.counters().values())
    draws = sum(counts[reason] for reason in DRAWS) if counts else None
    return {"layer_draws": draws, "detoured_packets": detoured}


def figures_of(run: Run, observation: LabelObservation) -> Row:
    """Return the columns of a run."""
    table = observation.flows
    bits_of_host = table.measured_s * run.integer("rate_mbps") * 1e6 * PAYLOAD_FRACTION
    goodputs = [8 * flow.received_bytes / bits_of_host for flow in table.results]
    segments = max(1, table.total("segments"))
    return {
        **goodput_figures(goodputs),
        **arrivals(observation.capture, table.measured_s),
        **observation.draws,
        **{column: observation.counters[name] for column, name in REHASHES.items()},
        "timeouts": table.total("timeouts"),
        "marked_fraction": table.total("marked") / segments,
        "retransmitted_fraction": table.total("retransmissions") / segments,
    }


def goodput_figures(goodputs: Sequence[float]) -> Row:
    """Return the columns about the goodput of flows, as fractions of a host's link."""
    return {
        "flows": len(goodputs),
        "goodput_fraction": sum(goodputs) / len(goodputs),
        "slowest_fraction": min(goodputs),
        "goodputs_fraction": list(goodputs),
    }


def arrivals(capture: LabelCapture, measured_s: float) -> Row:
    """Return the columns about what the capture saw in the counted time."""
    captured = [capture.flows[key] for key in sorted(capture.flows)]
    begin_s = capture.since_s
    still_ms = [1000 * flow.still_until(begin_s + measured_s, begin_s) for flow in captured]
    return {
        "stopped_flows": sum(flow.last_s < begin_s + measured_s / 2 for flow in captured),
        "still_ms": still_ms,
        "longest_still_ms": max(still_ms),
        "new_labels": sum(len(flow.labels) - 1 for flow in captured),
    }


def simulated_scheme(run: Run) -> str:
    """Return the scheme of simulated switches and hosts."""
    way = way_of(run)
    name, options = parse(way.scheme or way.balancing or "ecmp")
    return unparse(name, {"ecn": run.text("ecn_packets"), **options})


def simulated(run: Run) -> Result:
    """Measure flows of simulated TCP."""
    begin_s, bits_s = run.number("before_s"), run.integer("rate_mbps") * 1e6
    reads = round(run.number("after_s") / READ_S)
    times_s = [begin_s + READ_S * number for number in range(1 + reads)]
    done = simulation(run, int(bits_s * times_s[-1] / 8)).run(faults(run), times_s[-1], times_s)
    figures = simulated_figures(done, bits_s * PAYLOAD_FRACTION)
    return Result(figures | label_figures(done) if way_of(run).ipv6 else figures)


def simulation(run: Run, size_bytes: int) -> Simulation:
    """Return the simulation of `run`, with flows of `size_bytes`."""
    topology = run.topology
    return Simulation(
        topology,
        simulated_scheme(run),
        PacketFlows.of((src, dst, size_bytes) for src, dst in pairs_of(run, topology)),
        transport(
            f"tcp:control=dctcp,label={way_of(run).label},plb_rounds={run.text('plb_rounds')}"
        ),
        [common.link(run)] * len(topology.links),
        Switching(),
        1 + run.seed,
        run.integer("rto_min_us"),
        daemons=False,
    )


def faults(run: Run) -> list[Fault]:
    """Return the failure of `run`, known when daemons of its scheme, if any, have missed hellos.

    The last hello arrived up to an interval before: they know after `dead` intervals less a half.
    """
    links, begin_s = failed(run, run.topology), run.number("before_s")
    if not links:
        return []
    if not way_of(run).scheme:
        return [Fault(links, begin_s)]
    _, options = registry.checked(run.topology, simulated_scheme(run))
    known_s = begin_s + options["hello_ms"] * (options["dead"] - 0.5) / 1000
    return [Fault(links, begin_s, known_s, silent=True)]


def simulated_figures(done: SimulatedFlows, bits_s: float) -> Row:
    """Return the columns of a simulated run; `bits_s`: payload that a host's link carries."""
    times_s, arrived, latest = done.progress
    received = (arrived[-1] - arrived[0]).tolist()
    grown = np.diff(latest, axis=0) > 0  # as LabelCapture
    still_ms = [1000 * READ_S * longest_run(~flow) for flow in grown.T]
    counters = done.counters
    return {
        **goodput_figures([8 * each / bits_s / (times_s[-1] - times_s[0]) for each in received]),
        "stopped_flows": int((~grown[len(grown) // 2 :]).all(axis=0).sum()),
        "still_ms": still_ms,
        "longest_still_ms": max(still_ms),
        "timeouts": int(counters["timeouts"].sum()),
        "retransmitted_fraction": float(counters["retransmissions"].sum() / counters["sent"].sum()),
    }


def label_figures(done: SimulatedFlows) -> Row:
    """Return the columns about flow labels."""
    return {name: int(done.counters[name].sum()) for name in ("new_labels", *REHASHES)}


def longest_run(still: NDArray[np.bool_]) -> int:
    """Return the length of the longest run of True."""
    ends = np.flatnonzero(np.diff(still, prepend=False, append=False))
    return int(np.diff(ends)[::2].max(initial=0))


def check(run: Run) -> None:
    """Raise ValueError unless `run` has a fabric whose links can fail, and this kernel's TCP."""
    topology = common.network(run)
    links = int((topology.level > 0).sum())
    if topology.server_centric or not links:
        raise ValueError(f"flow_labels: topology must have linked switches, not {topology.spec}")
    if run.integer("failed_links") > links:
        raise ValueError(f"flow_labels: {topology.spec} has {links} links between switches")
    pairs_of(run, topology)
    if scheme := way_of(run).scheme:
        registry.checked(topology, scheme)
    if run.engine == "packet":
        simulated_scheme(run)
        return
    common.check_control(run, "dctcp")
    common.check_tcp(run)
    common.check_delay(run)


def revisions(engine: str, parameters: Mapping[str, Scalar]) -> int:
    """Return how often results have changed: thrice of simulated flows, and by cuts in layers.

    On Linux also of `ports`: its switches took the sender's hash, which a timeout draws again.
    Simulated schemes also by when they know of failures.
    """
    name = parse(str(parameters["way"]))[0]
    is_simulated = engine == "packet"
    by_cuts = name in (*BY_CUTS, "fatpaths")
    is_heard = is_simulated and name not in WAYS and parameters["failed_links"] != 0
    return 2 * is_simulated + (is_simulated or name == "ports") + 2 * by_cuts + is_heard


def is_compared(run: Run) -> bool:
    """Return True for several numbers of rounds of PLB alone."""
    return run.text("way") == "plb" or run.integer("plb_rounds") == LINUX_ROUNDS


PART_S = common.PART_OF_SECONDS
LINUX_TIMEOUT: Where = {
    **{"topology": "clos:n=4,r=4,m=4", "way": ("ports", "prr"), "failed_links": 2},
    **{"rto_min_us": 200_000, "after_s": 2.0},
}
SMALL_FABRICS = (
    *("clos:n=4,r=4,m=4", "hyperx:l=2,s=3,p=2", "polarfly:q=3,p=2", "slimfly:q=3,p=2"),
    "jellyfish:n=8,r=3,p=2,seed=1",
)
BY_CUTS = ("layers", "in-trees")
BY_LAYERS = ("layers", "gaps", "flowcut", "presto")
BY_PATHS = ("ports", "letflow", "ugal", *BY_LAYERS)
HEARD = ("ecmp", "fatpaths:trigger=cut,start=random")  # whose daemons find failures
BY_LABELS = ("label", "prr", "plb")
DIED: Where = {"topology": SMALL_FABRICS, "failed_links": 2}
WORST_PAIRS: Where = {"topology": SMALL_FABRICS, "failed_links": 0, "pattern": WORST}
CELLS: Sequence[Where] = (
    {},
    LINUX_TIMEOUT,
    {"way": ("in-trees", *BY_PATHS, *HEARD, *BY_LABELS), **DIED},
    {"way": ("in-trees", *BY_PATHS, *BY_LABELS), **WORST_PAIRS},
)
SWEEPS = tuple(
    Sweep("flow_labels", {"engine": engine, **where}, 10)
    for engine in ("kernel", "packet")
    for where in CELLS
)
EXPERIMENT = Experiment(
    name="flow_labels",
    question="How much goodput do flows of Linux' TCP keep when they collide or links die "
    "silently, by how they choose paths?",
    source="PLB, SIGCOMM 2022; PRR, SIGCOMM 2023; FatPaths, section V; Linux",
    engines=("kernel", "packet"),
    revised=revisions,
    axes={
        "topology": common.TOPOLOGY.over("clos:n=4,r=4,m=4", "hyperx:l=2,s=3,p=2"),
        "way": Spec(
            "how a flow's path is chosen",
            form=f"{', '.join(WAYS)}, or a scheme with a data plane",
            check=check_way,
        ).over("ports", "label", "prr", "plb", "letflow"),
        "failed_links": Integer(
            "links between switches that fail silently", unit="links", least=0, most=10**6
        ).over(0, 2),
        "pattern": Spec(
            "who sends to whom",
            form="permutation, worst (hosts of a router to those of another), stride:step=N, ...",
            check=lambda text: None,
        ).over("permutation"),
        "rate_mbps": common.RATE_MBPS.over(100),
        "delay_us": common.DELAY_US.over(10),
        "queue_packets": common.QUEUE_PACKETS.over(250),
        "ecn_packets": ECN_PACKETS.over(20),
        "rto_min_us": common.RTO_MIN_US.over(10_000),
        "plb_rounds": Integer(
            "marked rounds in a row after which PLB draws a label; Linux has 12",
            unit="rounds",
            least=1,
            most=31,
        ).over(LINUX_ROUNDS, 3),
        "before_s": PART_S.over(0.1),
        "after_s": PART_S.over(0.5),
    },
    columns=columns.FLOW_LABELS,
    seeds=3,
    takes_s=900,
    measure=measure,
    plot=maps.draw,
    goes_together=is_compared,
    compared=("way", "plb_rounds"),
    check=check,
)

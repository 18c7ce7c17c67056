"""A network with layers on the kernel for one run, and its traffic in FatPaths' patterns.

The paper simulates 10 Gbit/s, frames of 9 kB, links of 1 us and a least retransmission timeout of
200 us.  PAPERS_LINKS are these, ten times slower: Linux' timers tick each 1,000 us, so that 2,000
us is the same number of packet times, and 200 us cannot be set.  In real time links have no delay
of their own, and flows are shorter by `size_fraction`, so that a run ends in time.  Not scaled are
delayed acknowledgements and the processing of hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from weft.daemons.core import registry
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines import kernel_run
from weft.experiments.engines.kernel_run import HEADER_BYTES, FabricObservation, running
from weft.experiments.engines.workloads import mapped, pairs
from weft.experiments.fatpaths.flow_times import MAPPING
from weft.experiments.runner.definition import Row, Run
from weft.experiments.runner.parameters import Integer, Scalar, Spec, Word
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.data_plane.layer_program import LayerProgram, program_of
from weft.testbed.network.network import RunningNetwork
from weft.testbed.plan.plane_selection import balancing
from weft.testbed.traffic.flows import Flow
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.link import ETHERNET_BYTES, MOST_MTU_BYTES, MTU_BYTES, Mbps
from weft.topologies.core.topology import Topology

FRAME_BYTES = MTU_BYTES + ETHERNET_BYTES  # by default
MOST_REORDERING = 300  # Linux' tcp_max_reordering
PROCESSES = 2  # that the daemons share


def check_scheme(text: str) -> None:
    """Raise ValueError unless `text` names a scheme that has daemons and a data plane."""
    common.refuse_others(
        text, registry.with_data_plane(), "this experiment compares rules of a switch's data plane"
    )
    common.daemon_scheme(text)
    scheme, options = registry.scheme(text)
    scheme.rule(options)


SCHEME = Spec(
    "routing scheme, with daemons and data plane; its layers are drawn anew for each seed",
    form="ecmp, letflow, rps, fatpaths:layers=9,trigger=cut, ... (`weft list`)",
    check=check_scheme,
)
PATTERN = Spec(
    "who sends to whom",
    form="off-diagonal:c=N, permutation, stencil:offset=N, ...",
    check=lambda text: None,
)
ECN_PACKETS = Integer(
    "packets in a queue from which on they are marked, 0: never",
    unit="packets",
    least=0,
    most=10**6,
)
CONNECTIONS = Word(
    "whether each flow opens a connection, whose first packet Linux repeats after 1 s, or "
    "finds one open",
    words=("new", "open"),
)
REORDERING = Integer(
    "segments that may overtake one before TCP takes it for lost; 0: by time, as Linux "
    "does (RACK, RFC 8985)",
    unit="segments",
    least=0,
    most=10_000,
)
KERNEL_FRAME_BYTES = Integer(
    "a full packet on a link, with its Ethernet header",
    unit="bytes",
    least=FRAME_BYTES,
    most=MOST_MTU_BYTES + ETHERNET_BYTES,
)


def packet_time_us(row: Mapping[str, Any]) -> float:
    """Return how long a full frame takes on a link; `row`: parameters of a run."""
    return float(row.get("frame_bytes", FRAME_BYTES) * 8 / row["rate_mbps"])


def payload_bps(run: Run) -> float:
    """Return the bits of payload that TCP can carry in a second on a link of `run`."""
    return run.integer("rate_mbps") * Mbps * (1 - HEADER_BYTES / run.integer("frame_bytes"))


def seeded(text: str, seed: int) -> str:
    """Return the scheme `text` with the layers of a run's seed, unless it names its own."""
    name, options = parse(text)
    own = {"seed": str(1 + seed)} if "seed" in registry.find(name).parameters else {}
    return unparse(name, {**own, **options})


def scheme_of(run: Run) -> str:
    """Return the scheme of `run` with FatPaths' seed, and the threshold of marks."""
    name, options = parse(seeded(run.text("scheme"), run.seed))
    if ecn := run.integer("ecn_packets"):
        options = {"ecn": str(ecn), **options}
    return unparse(name, options)


@contextmanager
def brought_up(run: Run) -> Iterator[RunningNetwork]:
    """Bring up the network of `run` with its scheme for the length of a `with`."""
    link = replace(common.link(run), mtu_bytes=run.integer("frame_bytes") - ETHERNET_BYTES)
    spec = scheme_of(run)
    with running(run.topology, link, spec, packed=PROCESSES) as network:
        seed_switches(network, spec, run.seed)
        yield network


def seed_switches(network: RunningNetwork, spec: str, seed: int) -> None:
    """Draw the seeds of the switches' choices under the scheme `spec` from `seed`."""
    with DataPlane.open(network) as plane:
        plane.set_scheme(balancing(registry.scheme(spec)[0], spec, delayed=False), seed=seed)


def moves_by_cuts(engine: str, parameters: Mapping[str, Scalar]) -> int:
    """Return how often the rule has changed by which flows leave layers after cuts.

    Once it left some in dead ones, and then their acknowledgements.
    """
    name, options = parse(str(parameters["scheme"]))
    return 2 * (name == "fatpaths" and "cut" in options.get("trigger", "gap-cut"))


def check(run: Run) -> None:
    """Raise ValueError unless `run` has a network, traffic and TCP that this machine carries."""
    topology = common.network(run)
    registry.checked(topology, scheme_of(run))
    pairs(run.text("pattern"), topology.servers, np.random.default_rng(0))
    common.check_tcp(run)
    common.check_delay(run)


def pairs_of(run: Run, hosts: int) -> list[tuple[int, int]]:
    """Return the pairs that send in `run`, the same for every scheme."""
    rng = run.generator()
    senders = pairs(run.text("pattern"), hosts, rng)
    return mapped(rng, hosts, senders) if run.text("mapping") == "random" else senders


def failed(run: Run, topology: Topology) -> list[int]:
    """Return random links between switches, if the experiment lets some fail."""
    fraction = float(run.parameters.get("failed_fraction", 0))
    links = np.flatnonzero(topology.level > 0)
    generator = run.generator(3)
    return sorted(generator.choice(links, round(fraction * len(links)), replace=False).tolist())


def failing(run: Run, network: RunningNetwork) -> dict[str, Any]:
    """Return options of flows by which links fail at half of the time, if `run` has failures."""
    failure = run.parameters.get("failure", "none")
    if failure == "none":
        return {}

    def fail() -> None:
        for link in failed(run, network.topology):
            network.fail(network.topology.link_name(link), silent=failure == "silent-link")

    return {"warm_up_s": run.number("seconds") / 2, "at_warm_up": fail}


def tcp(
    run: Run,
    network: RunningNetwork,
    flows: Sequence[Flow],
    **options: Any,
) -> FabricObservation:
    """Run the flows over the TCP of `run` with `options` of FlowOptions, and observe packets."""
    sysctls = {"tcp_ecn": int(run.integer("ecn_packets") > 0)}
    if segments := run.integer("reordering"):
        sysctls |= {"tcp_recovery": 0, "tcp_reordering": segments}
        sysctls["tcp_max_reordering"] = max(segments, MOST_REORDERING)
    return kernel_run.send_tcp(
        run,
        network,
        flows,
        sysctls=sysctls,
        open_before=run.text("connections") == "open",
        **options,
    )


def layer_figures(network: RunningNetwork) -> Row:
    """Return how often flows drew a layer again, by reason, and the packets in layer 0.

    None where hosts choose no layers.
    """
    names = ("flows", "gaps", "cuts", "echoes", "errors")
    if program_of(network) is None:
        return {**{f"layer_{name}": None for name in names}, "first_layer_fraction": None}
    with closing(LayerProgram.open(network)) as program:
        counters = program.counters()
    figures: Row = {f"layer_{name}": getattr(counters, name) for name in names}
    first = counters.packets[0] / max(1, sum(counters.packets))
    return {**figures, "first_layer_fraction": first}


AXES = {
    "topology": common.TOPOLOGY.over("slimfly:q=5,p=4"),
    "scheme": SCHEME.over("ecmp"),
    "pattern": PATTERN.over("off-diagonal:c=100"),
    "mapping": MAPPING.over("linear", "random"),
    "rate_mbps": common.RATE_MBPS.over(1000),
    "frame_bytes": KERNEL_FRAME_BYTES.over(FRAME_BYTES),
    "delay_us": common.DELAY_US.over(0),
    "queue_packets": common.QUEUE_PACKETS.over(100),
    "ecn_packets": ECN_PACKETS.over(33),
    "congestion_control": common.CONGESTION_CONTROL.over("reno"),
    "transport": common.TRANSPORT.over("tcp"),
    "min_rtt_window_s": common.MIN_RTT_WINDOW_S.over(300),
    "rto_min_us": common.RTO_MIN_US,
    "connections": CONNECTIONS.over("open"),
    "reordering": REORDERING.over(0),
}
PAPERS_LINKS = {"frame_bytes": [9000], "delay_us": [10], "rto_min_us": [2000]}
SETTING = tuple(key for key in AXES if key != "scheme")

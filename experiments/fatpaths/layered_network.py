"""A network with layers on the kernel for one run, traffic in FatPaths' patterns, and what was seen
meanwhile.

The paper simulates 10 Gbit/s, frames of 9 kB and links of 1 us; so can the virtual clock.  In real
time all is slower by a stated factor, packet for packet: queues, thresholds and gaps count packets
or packet times, and flows are shorter by `size_fraction`, so that a run ends in time.  What does
not scale: links have no delay of their own then, and the least retransmission timeout, delayed
acknowledgements and the processing of hosts are those of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from weft.daemons.core import registry
from weft.experiments.engines import common_parameters as common
from weft.experiments.engines.workloads import SIZES, mapped, pairs
from weft.experiments.runner.definition import Run, Value
from weft.experiments.runner.parameters import Integer, Number, Spec, Word
from weft.topologies import build
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.link import ETHERNET_BYTES, MOST_MTU_BYTES, MTU_BYTES, Mbps

if TYPE_CHECKING:
    from weft.experiments.engines.fabric_run import FabricObservation
    from weft.testbed.network.network import RunningNetwork
    from weft.testbed.traffic.flows import Flow

FRAME_BYTES = MTU_BYTES + ETHERNET_BYTES  # by default
MOST_REORDERING = 300  # Linux' tcp_max_reordering
PROCESSES = 2  # that the daemons share
SIZE_STEPS, LEAST_BYTES, MOST_BYTES = 20, 32 << 10, 2 << 20  # section VII-A4
LONG_BYTES = 1 << 20  # "long flows (1MiB)", figures 15 and 16
PAPERS_PACKET_TIMES = 7  # silence of 50 us at 10 Gbit/s and 9 kB a frame


def scheme_of_a_fabric(text: str) -> None:
    """Raise ValueError unless `text` names a scheme that has daemons and a data plane."""
    common.refuse_others(
        text, registry.with_data_plane(), "this experiment compares rules of a switch's data plane"
    )
    common.daemon_scheme(text)
    found, options = registry.scheme(text)
    found.rule(options)


SCHEME = Spec(
    meaning="routing scheme, with daemons and data plane; its layers are drawn anew for each seed",
    form="ecmp, letflow, rps, fatpaths:layers=9,trigger=cut, ... (`weft list`)",
    check=scheme_of_a_fabric,
)
PATTERN = Spec(
    meaning="who sends to whom",
    form="off-diagonal:c=N, permutation, stencil:offset=N, ...",
    check=lambda text: None,
)
MAPPING = Word(
    meaning="whether hosts are placed at random (section III-D)", words=("linear", "random")
)
ECN_PACKETS = Integer(
    meaning="packets in a queue from which on they are marked, 0: never",
    unit="packets",
    least=0,
    most=10**6,
)
SIZE_FRACTION = Number(
    meaning="size of flows, as a fraction of the paper's", unit="fraction", least=1e-4, most=1
)
SECONDS = Number(meaning="time during which flows begin", unit="s", least=1e-3, most=3600)
CONNECTIONS = Word(
    meaning="whether each flow opens a connection, whose first packet Linux repeats after 1 s, or "
    "finds one open",
    words=("new", "open"),
)
REORDERING = Integer(
    meaning="segments that may overtake one before TCP takes it for lost; 0: by time, as Linux "
    "does (RACK, RFC 8985)",
    unit="segments",
    least=0,
    most=10_000,
)
KERNEL_FRAME_BYTES = Integer(
    meaning="a full packet on a link, with its Ethernet header",
    unit="bytes",
    least=FRAME_BYTES,
    most=MOST_MTU_BYTES + ETHERNET_BYTES,
)
RTO_MS = Integer(meaning="TCP's least retransmission timeout", unit="ms", least=1, most=10_000)


def packet_time_us(row: Mapping[str, object]) -> float:
    """How long a full frame takes on a link, and the gap behind it; `row`: parameters of a run."""
    return int(str(row.get("frame_bytes", FRAME_BYTES))) * 8 / int(str(row["rate_mbps"]))


def payload_bps(run: Run) -> float:
    """Bits of payload that TCP can carry in a second on a link of `run`."""
    from weft.experiments.engines.fabric_run import HEADER_BYTES

    return run.integer("rate_mbps") * Mbps * (1 - HEADER_BYTES / run.integer("frame_bytes"))


def complete(spec: str, *, seed: int, ecn: int) -> str:
    """`spec` with what the run decides: FatPaths' seed, and from when on packets are marked."""
    name, given = parse(spec)
    known = registry.find(name).parameters
    if "seed" in known:
        given = {"seed": str(1 + seed), **given}
    if ecn:
        given = {"ecn": str(ecn), **given}
    return unparse(name, given)


@contextmanager
def brought_up(run: Run) -> Iterator[RunningNetwork]:
    """The network of `run` with its scheme, up for the length of a `with`."""
    from weft.testbed.data_plane.data_plane import DataPlane
    from weft.testbed.network.network import RunningNetwork
    from weft.testbed.plan.plane_selection import balancing

    link = replace(common.link(run), mtu_bytes=run.integer("frame_bytes") - ETHERNET_BYTES)
    spec = complete(run.text("scheme"), seed=run.seed, ecn=run.integer("ecn_packets"))
    network = RunningNetwork.create(
        build(run.text("topology")), link, scheme=spec, packed=PROCESSES
    )
    try:
        with DataPlane.open(network) as plane:
            plane.set_scheme(
                balancing(registry.scheme(spec)[0], spec, delayed=False), seed=run.seed
            )
        yield network
    finally:
        network.down()


def check(run: Run) -> None:
    """ValueError unless `run` names a network of switches that its scheme suits, traffic that it
    has hosts for, and a TCP that this kernel has.
    """
    topology = common.network(run)
    registry.checked(
        topology, complete(run.text("scheme"), seed=run.seed, ecn=run.integer("ecn_packets"))
    )
    pairs(run.text("pattern"), topology.servers, np.random.default_rng(0))
    common.check_tcp(run)
    common.check_delay(run)


def who(run: Run, hosts: int) -> list[tuple[int, int]]:
    """The pairs that send in `run`, the same for every scheme."""
    rng = np.random.default_rng(run.seed)
    chosen = pairs(run.text("pattern"), hosts, rng)
    return mapped(rng, hosts, chosen) if run.text("mapping") == "random" else chosen


def steps(fraction: float) -> NDArray[np.int64]:
    """The paper's flow sizes: the web-search distribution in 20 equally likely steps, from 32 KiB
    to 2 MiB, times `fraction`.
    """
    of = SIZES["web-search"]
    middle = (np.arange(SIZE_STEPS) + 0.5) / SIZE_STEPS
    sizes = np.clip(np.interp(middle, of.fraction, of.bytes_), LEAST_BYTES, MOST_BYTES)
    return np.maximum(1, sizes * fraction).astype(np.int64)


def arrivals(
    rng: Generator,
    chosen: Sequence[tuple[int, int]],
    sizes: NDArray[np.int64],
    *,
    load_fraction: float,
    rate_bps: float,
    duration_s: float,
) -> Iterator[Flow]:
    """Flows that arrive at random between the pairs `chosen`, so many that a pair's sender uses
    `load_fraction` of `rate_bps`, headers aside.
    """
    from weft.testbed.traffic.flows import Flow

    per_s = len(chosen) * load_fraction * rate_bps / (8 * float(sizes.mean()))
    at_s = rng.exponential(1 / per_s)
    while at_s < duration_s:
        src, dst = chosen[int(rng.integers(len(chosen)))]
        yield Flow(at_s, src, dst, int(rng.choice(sizes)))
        at_s += rng.exponential(1 / per_s)


def tcp(
    run: Run,
    network: RunningNetwork,
    wanted: Sequence[Flow],
    *,
    deadline_s: float,
    warm_up_s: float = 0.0,
) -> FabricObservation:
    """Run the flows over the TCP of `run`, and observe every packet."""
    from weft.experiments.engines import fabric_run

    sysctls = {
        "tcp_min_rtt_wlen": run.integer("min_rtt_window_s"),
        "tcp_ecn": int(run.integer("ecn_packets") > 0),
        "tcp_rto_min_us": 1000 * run.integer("rto_ms"),
    }
    if segments := run.integer("reordering"):
        sysctls |= {"tcp_recovery": 0, "tcp_reordering": segments}
        sysctls["tcp_max_reordering"] = max(segments, MOST_REORDERING)
    return fabric_run.observe(
        network,
        sysctls,
        wanted,
        deadline_s=deadline_s,
        warm_up_s=warm_up_s,
        congestion_control=run.text("congestion_control"),
        transport=run.text("transport"),
        open_before=run.text("connections") == "open",
    )


def layer_figures(network: RunningNetwork) -> dict[str, Value]:
    """How often flows of hosts drew a layer again, by reason, and the fraction of packets in layer
    0; None where hosts choose no layers.
    """
    from weft.testbed.data_plane.layer_program import LayerProgram, program_of

    names = ("flows", "gaps", "cuts", "echoes", "errors")
    if program_of(network) is None:
        return {**{f"layer_{name}": None for name in names}, "first_layer_fraction": None}
    with closing(LayerProgram.open(network)) as program:
        counted = program.counters()
    found: dict[str, Value] = {f"layer_{name}": getattr(counted, name) for name in names}
    return {**found, "first_layer_fraction": counted.packets[0] / max(1, sum(counted.packets))}


def circumstances(network: RunningNetwork, seen: FabricObservation) -> dict[str, object]:
    """What a reader may ask for later."""
    return {
        "scheme": network.run.journal["scheme"],
        "fidelity_report": seen.report.as_dict(),
        "tcp": {
            "transport": seen.flows.transport,
            "congestion_control": seen.flows.congestion_control,
            "subflows": seen.flows.total("subflows"),
            **seen.flows.sysctls,
        },
        "generator_late_s": seen.flows.late_s,
    }


AXES = {
    "topology": common.TOPOLOGY.over("slimfly:q=5,p=4"),
    "scheme": SCHEME.over("ecmp"),
    "pattern": PATTERN.over("off-diagonal:c=100"),
    "mapping": MAPPING.over("linear", "random"),
    "rate_mbps": common.RATE_MBPS.over(1),
    "frame_bytes": KERNEL_FRAME_BYTES.over(1514),
    "delay_us": common.DELAY_US.over(0),
    "queue_packets": common.QUEUE_PACKETS.over(100),
    "ecn_packets": ECN_PACKETS.over(33),
    "congestion_control": common.CONGESTION_CONTROL.over("reno"),
    "transport": common.TRANSPORT.over("tcp"),
    "min_rtt_window_s": common.MIN_RTT_WINDOW_S.over(300),
    "rto_ms": RTO_MS.over(200),
    "connections": CONNECTIONS.over("new"),
    "reordering": REORDERING.over(0),
}

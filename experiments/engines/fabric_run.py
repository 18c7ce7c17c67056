"""A switch fabric on the kernel for one run: network, data plane, damage, TCP traffic, and what was
seen meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.daemons.core import registry
from weft.experiments.engines.common_parameters import network
from weft.experiments.runner.definition import Run, Value
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.measure.fidelity import Fidelity, FidelityReport
from weft.testbed.measure.reordering import OrderTable, Reordering
from weft.testbed.network.degrade import set_rate
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import flows, tcp_settings
from weft.testbed.traffic.flows import Flow, FlowResults
from weft.topologies import build
from weft.topologies.core.failures import fail_links
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology

# of a full TCP packet with timestamps, Ethernet header included
PAYLOAD_BYTES, HEADER_BYTES = 1448, 66
PAYLOAD_FRACTION = PAYLOAD_BYTES / (PAYLOAD_BYTES + HEADER_BYTES)
DAMAGE = ("none", "failed", "degraded")
FabricDamage = Callable[[RunningNetwork, DataPlane], Topology]
DEGRADED_FRACTION = 0.2  # of its rate, that a degraded link still carries


@dataclass(frozen=True)
class FabricRun:
    """topology: with the failures of this run.  seeds: of each switch's choices."""

    network: RunningNetwork
    plane: DataPlane
    topology: Topology
    seeds: Mapping[int, int]


@dataclass(frozen=True)
class FabricObservation:
    """What the flows were like, how much their packets overtook each other, and whether the machine
    kept up.
    """

    flows: FlowResults
    order: OrderTable
    report: FidelityReport


def damaged_link(topology: Topology) -> int:
    """The link that is damaged: the first between the two lowest tiers of switches."""
    return int(np.flatnonzero(topology.level == 1)[0])


def check_scheme(run: Run) -> None:
    """ValueError unless `run` names a load-balancing scheme and a fabric of switches in tiers that
    it suits.
    """
    selection, options = registry.data_plane(run.text("scheme"))
    topology = network(run)
    if topology.server_centric or not (topology.level == 1).any():
        raise ValueError(
            f"{run.experiment}: topology must be a fabric of switches, not {topology.spec}"
        )
    selection.check(topology, options)


def undamaged(network: RunningNetwork, plane: DataPlane) -> Topology:
    """Return the topology as it is."""
    return network.topology


@contextmanager
def fabric(run: Run, link: LinkSpec, *, damage: FabricDamage = undamaged) -> Iterator[FabricRun]:
    """Bring up the network of `run` with its scheme for the length of a `with`.

    Args:
        damage: called between loading the data plane and setting its scheme; returns the topology
            that is left.
    """
    network = RunningNetwork.create(build(run.text("topology")), link, scheme="static")
    try:
        with DataPlane.load(network, run.text("scheme"), seed=run.seed) as plane:
            plane.attach()
            topology = damage(network, plane)
            seeds = plane.set_scheme(run.text("scheme"), seed=run.seed)
            yield FabricRun(network, plane, topology, seeds)
    finally:
        network.down()


def damage_link(kind: str, link: LinkSpec, network: RunningNetwork, plane: DataPlane) -> Topology:
    """Fail or degrade one link, or neither; return the topology that is left.

    Every switch, program and kernel knows of a failed link: the schemes are compared on the paths
    that are left, not by their time of detection. No scheme knows of a degraded link.
    """
    topology = network.topology
    number = damaged_link(topology)
    name = topology.link_name(number)
    if kind == "failed":
        topology = fail_links(topology, [number])
        network.fail(name)
        plane.follow(topology)
    elif kind == "degraded":
        set_rate(network, name, round(link.rate_bps * DEGRADED_FRACTION))
    return topology


def tcp(
    on: FabricRun,
    wanted: Sequence[Flow],
    *,
    deadline_s: float,
    warm_up_s: float,
    control: str,
    transport: str = "tcp",
    min_rtt_window_s: int,
    at_warm_up: Callable[[], None] = lambda: None,
) -> FabricObservation:
    """Run the flows `wanted` and observe every packet.

    at_warm_up: called at the end of `warm_up_s`, for example to start an instrument.
    """
    return observe(
        on.network,
        {"tcp_min_rtt_wlen": min_rtt_window_s, "tcp_ecn": 1},
        wanted,
        deadline_s=deadline_s,
        warm_up_s=warm_up_s,
        congestion_control=control,
        transport=transport,
        at_warm_up=at_warm_up,
    )


def observe(
    network: RunningNetwork,
    tcp_sysctls: Mapping[str, object],
    wanted: Sequence[Flow],
    **options: Any,
) -> FabricObservation:
    """Run the flows `wanted` with `options` of flows.run(), and observe order and fidelity."""
    sysctls = {f"ipv4/{name}": str(value) for name, value in tcp_sysctls.items()}
    tcp_settings.tune(network, sysctls)
    with Reordering(network) as order, Fidelity(network) as fidelity:
        table = flows.run(network, wanted, **options)
    return FabricObservation(table, order.table, fidelity.report)


def order_figures(seen: FabricObservation) -> dict[str, Value]:
    """The columns about reordering and retransmission that every TCP experiment has."""
    packets = max(1, seen.order.total("sent"))
    retransmissions, spurious = seen.flows.total("retransmissions"), seen.flows.total("spurious")
    return {
        "late_fraction": seen.order.late_fraction,
        "extent_p99_packets": seen.order.extent(99),
        "delay_mean_us": seen.order.mean_delay_us,
        "delay_p99_us": seen.order.delay_us(99),
        "retransmitted_fraction": retransmissions / packets,
        "spurious_fraction": min(spurious, retransmissions) / packets,
    }


def circumstances(on: FabricRun, seen: FabricObservation) -> dict[str, Any]:
    """What a reader may ask for later."""
    name = on.topology.naming.name
    return {
        "fidelity_report": seen.report.as_dict(),
        "tcp": {
            "transport": seen.flows.transport,
            "congestion_control": seen.flows.congestion_control,
            "subflows": seen.flows.total("subflows"),
            **seen.flows.sysctls,
        },
        "queue_reader": on.plane.queue_reader,
        "bypassed_packets": on.plane.bypassed(),
        "switch_seeds": {name(node): seed for node, seed in on.seeds.items()},
        "generator_late_s": seen.flows.late_s,
    }

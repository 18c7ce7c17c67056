"""A switch fabric on the kernel for one run: network, data plane, damage, and TCP traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from weft.daemons.core import registry
from weft.experiments.engines.common_parameters import LINUX_RTO_MIN_US, network
from weft.experiments.engines.network_run import running
from weft.experiments.runner.definition import Result, Row, Run, Value
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.measure.fidelity import Fidelity, FidelityReport
from weft.testbed.measure.reordering import OrderTable, Reordering
from weft.testbed.network.degrade import set_rate
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import flows, tcp_settings
from weft.testbed.traffic.flows import Flow, FlowResults
from weft.topologies.core.failures import fail_links, fail_nodes
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology

# of a full TCP packet with timestamps, Ethernet header included
PAYLOAD_BYTES, HEADER_BYTES = 1448, 66
PAYLOAD_FRACTION = PAYLOAD_BYTES / (PAYLOAD_BYTES + HEADER_BYTES)
FabricDamage = Callable[[RunningNetwork, DataPlane], Topology]
SYSCTL_OF_PARAMETER = {"rto_min_us": "tcp_rto_min_us", "min_rtt_window_s": "tcp_min_rtt_wlen"}


@dataclass(frozen=True)
class FabricRun:
    """A fabric that is up.

    topology: the one that the failures of this run leave.
    seeds: of each switch's choices.
    """

    network: RunningNetwork
    plane: DataPlane
    topology: Topology
    seeds: Mapping[int, int]

    def facts(self) -> dict[str, Any]:
        """Return the provenance of the data plane, JSON-able."""
        name = self.topology.naming.name
        return {
            "queue_reader": self.plane.queue_reader,
            "bypassed_packets": self.plane.bypassed(),
            "switch_seeds": {name(node): seed for node, seed in self.seeds.items()},
        }


@dataclass(frozen=True)
class FabricObservation:
    """Flows, the order of their packets, and whether the machine kept up."""

    flows: FlowResults
    order: OrderTable
    report: FidelityReport

    def facts(self) -> dict[str, Any]:
        """Return the provenance of a run with TCP flows, JSON-able."""
        return {
            "fidelity_report": self.report.as_dict(),
            "tcp": {
                "transport": self.flows.transport,
                "congestion_control": self.flows.congestion_control,
                "subflows": self.flows.total("subflows"),
                **self.flows.sysctls,
            },
            "generator_late_s": self.flows.late_s,
        }

    def result(self, figures: Mapping[str, Value], facts: Mapping[str, Any]) -> Result:
        """Return a result with `figures`, those of the order of packets, and further `facts`."""
        return Result(
            figures={**figures, **order_figures(self)},
            fidelity=self.report.verdict,
            circumstances={**self.facts(), **facts},
        )


def check_scheme(run: Run) -> None:
    """Raise ValueError unless `run` has a fabric of switches in tiers that its scheme suits."""
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

    Between loading the data plane and setting its scheme `damage` is called; it returns the
    topology that is left.
    """
    scheme = run.text("scheme")
    with (
        running(run.topology, link, "static") as network,
        DataPlane.load(network, scheme, seed=run.seed) as plane,
    ):
        plane.attach()
        topology = damage(network, plane)
        seeds = plane.set_scheme(scheme, seed=run.seed)
        yield FabricRun(network, plane, topology, seeds)


def damage(
    network: RunningNetwork, plane: DataPlane, kind: str, link: int, *, degraded_bps: int
) -> Topology:
    """Damage a link, or fail the switch at its upper end; return the topology that is left.

    Every switch, program and kernel knows of a failure: schemes are compared on the paths that are
    left, not by their time of detection.

    kind: one of common_parameters.DAMAGE.
    degraded_bps: the rate of the link if it is degraded.
    """
    topology = network.topology
    if kind == "degraded":
        set_rate(network, topology.link_name(link), degraded_bps)
        return topology
    if kind == "none":
        return topology
    upper = int(topology.links[link, 2])
    remaining = fail_links(topology, [link]) if kind == "link" else fail_nodes(topology, [upper])
    for failed in np.flatnonzero(remaining.failed).tolist():
        network.fail(topology.link_name(failed))
    plane.follow(remaining)
    return remaining


def tcp(
    run: Run,
    network: RunningNetwork,
    workload: Sequence[Flow],
    *,
    sysctls: Mapping[str, object] = MappingProxyType({}),
    **options: Any,
) -> FabricObservation:
    """Run the flows `workload` over the TCP of `run`, and observe every packet.

    The parameters rto_min_us, min_rtt_window_s, congestion_control and transport count, if the
    experiment has them.

    sysctls: further ones of TCP.
    options: of FlowOptions.
    """
    parameters = run.parameters
    settings = {
        key: parameters[key] for key in ("congestion_control", "transport") if key in parameters
    }
    of_run = {
        sysctl: parameters[key]
        for key, sysctl in SYSCTL_OF_PARAMETER.items()
        if parameters.get(key, LINUX_RTO_MIN_US) != LINUX_RTO_MIN_US
    }
    return observe(network, {"tcp_ecn": 1, **of_run, **sysctls}, workload, **settings, **options)


def observe(
    network: RunningNetwork,
    tcp_sysctls: Mapping[str, object],
    workload: Sequence[Flow],
    **options: Any,
) -> FabricObservation:
    """Run the flows `workload` with `options` of FlowOptions, and observe order and fidelity."""
    sysctls = {f"ipv4/{name}": str(value) for name, value in tcp_sysctls.items()}
    tcp_settings.tune(network, sysctls)
    with Reordering(network) as order, Fidelity(network) as fidelity:
        table = flows.run(network, workload, flows.FlowOptions(**options))
    return FabricObservation(table, order.table, fidelity.report)


def order_figures(observation: FabricObservation) -> Row:
    """Return the columns about reordering and retransmission that every TCP experiment has."""
    packets = max(1, observation.order.total("sent"))
    retransmissions, spurious = (
        observation.flows.total("retransmissions"),
        observation.flows.total("spurious"),
    )
    return {
        "late_fraction": observation.order.late_fraction,
        "extent_p99_packets": observation.order.extent(99),
        "delay_mean_us": observation.order.mean_delay_us,
        "delay_p99_us": observation.order.delay_us(99),
        "retransmitted_fraction": retransmissions / packets,
        "spurious_fraction": min(spurious, retransmissions) / packets,
    }

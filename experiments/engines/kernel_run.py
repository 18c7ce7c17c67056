"""One measurement on the kernel: its network, a switch fabric with damage, and the traffic on it.

Traffic is TCP, or UDP that is sent slot by slot and fills queues.  The fidelity of the emulation
comes with the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from weft.daemons.core import registry
from weft.experiments.engines.arrays import Ints
from weft.experiments.engines.common_parameters import LINUX_RTO_MIN_US, network
from weft.experiments.runner.definition import Result, Row, Run, Value
from weft.testbed.data_plane.data_plane import DataPlane
from weft.testbed.measure.fidelity import Fidelity, FidelityReport
from weft.testbed.measure.queues import Occupancies, Occupancy
from weft.testbed.measure.reordering import OrderTable, Reordering
from weft.testbed.network.impair import set_rate
from weft.testbed.network.network import RunningNetwork
from weft.testbed.traffic import flows, slotted_udp, tcp
from weft.testbed.traffic.flows import Flow, FlowResults
from weft.topologies.core.failures import fail_links, fail_nodes
from weft.topologies.core.link import LinkSpec
from weft.topologies.core.topology import Topology

# of a full TCP packet with timestamps, Ethernet header included
PAYLOAD_BYTES, HEADER_BYTES = 1448, 66
PAYLOAD_FRACTION = PAYLOAD_BYTES / (PAYLOAD_BYTES + HEADER_BYTES)
FabricDamage = Callable[[RunningNetwork, DataPlane], Topology]
SYSCTL_OF_PARAMETER = {"rto_min_us": "tcp_rto_min_us", "min_rtt_window_s": "tcp_min_rtt_wlen"}
MOST_LATE, MOST_LATE_WARNED = 0.05, 0.01  # fractions of slots


@contextmanager
def running(
    topology: Topology, link: LinkSpec | None, scheme: str, **options: Any
) -> Iterator[RunningNetwork]:
    """Bring up a network with `options` of RunningNetwork.create() for the length of a `with`."""
    network = RunningNetwork.create(topology, link, scheme=scheme, **options)
    try:
        yield network
    finally:
        network.down()


def measured(
    run: Run,
    measure: Callable[[RunningNetwork], Row],
    *,
    routing: str | None = None,
    link: LinkSpec | None = None,
) -> Result:
    """Bring up the network of `run`, call `measure`, and return its figures with the fidelity.

    Args:
        run: run of an experiment on the kernel.
        measure: returns the figures of the network.
        routing: scheme of the daemons; that of `run` if None.
        link: every link; without rate and delay if None.
    """
    topology, scheme = run.topology, routing or run.text("routing")
    with (
        running(topology, link, scheme, packed=run.integer("processes")) as network,
        Fidelity(network) as fidelity,
    ):
        figures = measure(network)
    report = fidelity.report
    return Result(
        figures,
        fidelity=report.verdict,
        circumstances={"fidelity_report": report.as_dict()},
    )


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
            {**figures, **order_figures(self)},
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
    remaining = left_over(topology, kind, link)
    if remaining is not topology:
        for failed in np.flatnonzero(remaining.failed).tolist():
            network.fail(topology.link_name(failed))
        plane.follow(remaining)
    return remaining


def left_over(topology: Topology, kind: str, link: int) -> Topology:
    """Return what is left of `topology` after the damage of damage()."""
    if kind not in ("link", "node"):
        return topology
    if kind == "link":
        return fail_links(topology, [link])
    return fail_nodes(topology, [int(topology.links[link, 2])])


def send_tcp(
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
    tcp.tune(network, sysctls)
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


class SlottedObservation(NamedTuple):
    """Queues by node and port while the slots took place, and the slots that were sent late."""

    queues: Mapping[tuple[int, int], Occupancy]
    late_slots: int


def send_slots(network: RunningNetwork, destinations: Ints, rate_bps: int) -> SlottedObservation:
    """Send the packets destinations[slot, host], -1 for none; a slot is a packet's time."""
    tables: list[Mapping[tuple[int, int], Occupancy]] = []
    with Occupancies(network) as queues:
        sent = slotted_udp.run(
            network,
            destinations.tolist(),
            rate_bps=rate_bps,
            at_begin=queues.begin,
            at_end=lambda: tables.append(queues.read()),
        )
    return SlottedObservation(tables[0], sent.late_slots)


def with_late_slots(verdict: str, late_fraction: float) -> str:
    """Return the fidelity verdict of a run in which so many slots were sent late."""
    if late_fraction > MOST_LATE:
        return "FAIL"
    return "WARN" if late_fraction > MOST_LATE_WARNED and verdict == "PASS" else verdict

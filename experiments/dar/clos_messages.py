"""Flows of TCP through a folded Clos network on the kernel, under a scheme or a controller.

CENTRAL is a controller that knows all flows (dar/clos_run.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from weft.daemons.core.actions import FiveTuple
from weft.daemons.dar.scheme import sizes
from weft.experiments.dar import clos_run
from weft.experiments.dar.clos_run import (
    CENTRAL,
    POLL_S,
    ClosPlan,
    Placed,
    SpineFlowTable,
    assign,
    host_of,
)
from weft.experiments.engines import kernel_run
from weft.experiments.engines.kernel_run import FabricObservation, FabricRun
from weft.experiments.runner.definition import Result, Value
from weft.testbed.linux import clock
from weft.testbed.traffic import flows
from weft.testbed.traffic.flows import FlowResults
from weft.topologies.core.topology import Topology

TCP_SYSCTLS = {"tcp_min_rtt_wlen": 300, "tcp_ecn": 1}  # Linux's own window
Watch = Callable[[FabricRun, threading.Event, threading.Event], Any]


class ClosOutcome(NamedTuple):
    """Outcome of a plan.

    counted, late: counters of DAR's daemons, see clos_run.counted(): from the beginning on, and
        after the warm-up.
    placed: flows in the data plane's table at the end.
    began_s: time of the first flow.
    watched: result of the function that watched.
    """

    topology: Topology
    observed: FabricObservation
    counted: Mapping[str, int]
    late: Mapping[str, int]
    placed: list[Placed]
    began_s: float
    watched: Any
    circumstances: Mapping[str, Any]

    def result(self, figures: Mapping[str, Value]) -> Result:
        """Return the result of a run with these figures."""
        return Result(
            figures,
            fidelity=self.observed.report.verdict,
            circumstances=self.circumstances,
        )


def received_bytes(table: FlowResults, hosts: int) -> list[int]:
    """Return the bytes that each host receives."""
    received = [0] * hosts
    for flow in table.results:
        received[flow.flow.dst] += flow.received_bytes
    return received


def nothing_watched(fabric: FabricRun, began: threading.Event, end: threading.Event) -> None:
    """Watch nothing."""


def observe(fabric: FabricRun, plan: ClosPlan, at_warm_up: Callable[[], None]) -> FabricObservation:
    """Run the flows and observe every packet."""
    return kernel_run.observe(
        fabric.network,
        TCP_SYSCTLS,
        plan.flows,
        deadline_s=plan.seconds,
        warm_up_s=plan.warm_up_s,
        congestion_control=plan.congestion_control,
        transport=plan.transport,
        at_warm_up=at_warm_up,
        then=plan.then,
    )


def carry_out(plan: ClosPlan, watch: Watch = nothing_watched) -> ClosOutcome:
    """Run the flows of `plan`.

    watch: runs in a thread of its own beside the flows.  Its events are set when the warm-up is
        over, and when the flows have ended.
    """
    began, end = threading.Event(), threading.Event()
    warm: dict[str, int] = {}
    with (
        clos_run.up(plan) as fabric,
        ThreadPoolExecutor() as threads,
    ):
        before = clos_run.counted(fabric)

        def at_warm_up() -> None:
            warm.update(clos_run.counted(fabric))
            began.set()

        watching = threads.submit(watch, fabric, began, end)
        controlling = threads.submit(control, fabric, plan.scheme, end)
        began_s = clock.monotonic() + flows.BEGIN_S
        try:
            observed = observe(fabric, plan, at_warm_up)
        finally:
            end.set()
            began.set()
        controlling.result()
        after = clos_run.counted(fabric)
        return ClosOutcome(
            fabric.topology,
            observed,
            counted=clos_run.difference(after, before),
            late=clos_run.difference(after, warm),
            placed=clos_run.placed_flows(fabric.network),
            began_s=began_s,
            watched=watching.result(),
            circumstances={**observed.facts(), **fabric.facts()},
        )


def watch_moves(
    every_s: float, fabric: FabricRun, began: threading.Event, end: threading.Event
) -> list[list[int]]:
    """Return the moves and swaps of each leaf in each `every_s`, in order."""
    moves: list[list[int]] = []
    before = moves_of_leaves(fabric)
    began.wait()
    next_s = clock.monotonic() + every_s
    while not end.is_set():
        clock.sleep(max(0.0, next_s - clock.monotonic()))
        now = moves_of_leaves(fabric)
        moves.append([after - earlier for after, earlier in zip(now, before, strict=True)])
        before = now
        next_s += every_s
    return moves


def moves_of_leaves(fabric: FabricRun) -> list[int]:
    """Return the moves and swaps of each leaf since its daemon began."""
    return clos_run.moves_of(clos_run.statuses(fabric)[: sizes(fabric.topology)[1]])


def control(fabric: FabricRun, scheme: str, end: threading.Event) -> None:
    """Give every flow its spine whenever the flows have changed, if `scheme` is CENTRAL."""
    if scheme != CENTRAL:
        return
    topology = fabric.topology
    n, r, m = sizes(topology)
    table, known = SpineFlowTable.open(fabric.network), set[FiveTuple]()
    try:
        while not end.is_set():
            placed_flows = table.read()
            if {placed.flow for placed in placed_flows} != known:
                known = {placed.flow for placed in placed_flows}
                edges = [
                    (
                        placed.leaf - topology.servers,
                        host_of(topology, placed.flow.destination) // n,
                    )
                    for placed in placed_flows
                ]
                for placed, spine in zip(placed_flows, assign(edges, m), strict=True):
                    if placed.spine != topology.servers + r + spine:
                        table.place(placed, topology.servers + r + spine)
            clock.sleep(5 * POLL_S)
    finally:
        table.close()

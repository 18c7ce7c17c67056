"""Messages over TCP through a folded Clos network on the kernel: what hosts get, and when leaves
move flows; and in place of DAR's daemons a controller that knows all flows (CENTRAL,
engines/edge_colouring.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from weft.daemons.core.actions import FiveTuple
from weft.daemons.dar.scheme import sizes
from weft.experiments.dar import clos_run
from weft.experiments.dar.clos_run import CENTRAL, POLL_S, host_of
from weft.experiments.dar.clos_run import SpineFlowTable as FlowTable
from weft.experiments.engines import fabric_run
from weft.experiments.engines.edge_colouring import assign
from weft.experiments.engines.fabric_run import FabricObservation, FabricRun
from weft.testbed.linux import clock
from weft.testbed.measure.fidelity import Fidelity
from weft.testbed.measure.reordering import Reordering
from weft.testbed.node_daemon import control
from weft.testbed.traffic import flows, tcp_settings
from weft.topologies import build
from weft.topologies.core.link import LinkSpec

FRAME_BYTES, PAYLOAD_BYTES = clos_run.FRAME_BYTES, fabric_run.PAYLOAD_BYTES
SYSCTLS = {"ipv4/tcp_min_rtt_wlen": "300", "ipv4/tcp_ecn": "1"}


@dataclass(frozen=True)
class ClosMessagesPlan:
    """What is to be sent for `seconds`, of which `warm_up_s` do not count.

    then: what is sent after what, as in flows.run().
    spec: the scheme, or clos_run.CENTRAL.  every_s: how often the leaves' counters are read; 0:
        never.
    """

    topology: str
    spec: str
    rate_bps: int
    host_fraction: float
    queue_packets: int
    wanted: Sequence[flows.Flow]
    seconds: float
    warm_up_s: float = 0.0
    every_s: float = 0.0
    then: Callable[[flows.Flow], flows.Flow | None] = lambda arrived: None
    seed: int = 0

    @property
    def slot_s(self) -> float:
        """The time of a full packet on a link between switches."""
        return 8 * FRAME_BYTES / self.rate_bps

    def links(self) -> tuple[LinkSpec, LinkSpec]:
        """Those between switches, and those of hosts."""
        host_bps = round(self.rate_bps * self.host_fraction)
        return (
            LinkSpec(rate_bps=self.rate_bps, queue_packets=self.queue_packets),
            LinkSpec(rate_bps=host_bps, queue_packets=self.queue_packets),
        )


class ClosMessagesOutcome(NamedTuple):
    """moved: moves and swaps of each leaf in each `every_s`, in order.  counted: as
    clos_run.counted().
    """

    seen: FabricObservation
    moved: list[list[int]]
    counted: dict[str, int]
    circumstances: dict[str, Any]


def carry_out(plan: ClosMessagesPlan) -> ClosMessagesOutcome:
    """What came of `plan`."""
    began = threading.Event()
    with (
        clos_run.up(build(plan.topology), plan.links(), plan.spec, plan.seed) as on,
        controlled(on, plan.spec),
    ):
        tcp_settings.tune(on.network, SYSCTLS)
        before = clos_run.counted(on)
        with (
            Reordering(on.network) as order,
            Fidelity(on.network) as fidelity,
            watched(on, plan, began) as moved,
        ):
            table = flows.run(
                on.network,
                plan.wanted,
                deadline_s=plan.seconds,
                warm_up_s=plan.warm_up_s,
                congestion_control="cubic",
                at_warm_up=began.set,
                then=plan.then,
            )
        seen = FabricObservation(table, order.table, fidelity.report)
        counted = {key: value - before[key] for key, value in clos_run.counted(on).items()}
        return ClosMessagesOutcome(seen, moved, counted, fabric_run.circumstances(on, seen))


@contextmanager
def watched(
    on: FabricRun, plan: ClosMessagesPlan, began: threading.Event
) -> Iterator[list[list[int]]]:
    """What leaves move, looked at every `every_s` from the event `began` on until the end of the
    `with`.
    """
    found: list[list[int]] = []
    end = threading.Event()
    if not plan.every_s:
        yield found
        return
    thread = threading.Thread(target=partial(_watch, on, plan.every_s, began, end, found))
    thread.start()
    try:
        yield found
    finally:
        end.set()
        began.set()
        thread.join()


def _watch(
    on: FabricRun,
    every_s: float,
    began: threading.Event,
    end: threading.Event,
    into: list[list[int]],
) -> None:
    before = moves_of_leaves(on)
    began.wait()
    next_s = clock.monotonic() + every_s
    while not end.is_set():
        clock.sleep(max(0.0, next_s - clock.monotonic()))
        now = moves_of_leaves(on)
        into.append([after - earlier for after, earlier in zip(now, before, strict=True)])
        before, next_s = now, next_s + every_s


def moves_of_leaves(on: FabricRun) -> list[int]:
    """How often each leaf has moved or swapped a flow."""
    first, (_, r, _) = on.topology.servers, sizes(on.topology)
    names = [on.topology.naming.name(leaf) for leaf in range(first, first + r)]
    told = [control.status(on.network.run.directory, name)["protocol"] for name in names]
    return [one["moves"] + one["swaps"] for one in told]


@contextmanager
def controlled(on: FabricRun, scheme: str) -> Iterator[None]:
    """Let a central controller place the flows that appear, if that is what `scheme` says."""
    stop = threading.Event()
    threads = [threading.Thread(target=partial(_control, on, stop))] if scheme == CENTRAL else []
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _control(on: FabricRun, stop: threading.Event) -> None:
    """Give every flow its spine whenever the flows have changed."""
    topology = on.topology
    n, r, m = sizes(topology)
    table, known = FlowTable.open(on.network), set[FiveTuple]()
    try:
        while not stop.is_set():
            found = table.read()
            if {placed.flow for placed in found} != known:
                known = {placed.flow for placed in found}
                edges = [
                    (
                        placed.leaf - topology.servers,
                        host_of(topology, placed.flow.destination) // n,
                    )
                    for placed in found
                ]
                for placed, spine in zip(found, assign(edges, m), strict=True):
                    if placed.spine != topology.servers + r + spine:
                        table.place(placed, topology.servers + r + spine)
            clock.sleep(5 * POLL_S)
    finally:
        table.close()

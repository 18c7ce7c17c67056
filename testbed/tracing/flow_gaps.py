"""How long flows are silent between two packets, where hosts send them: bpf/flow_gaps.bpf.c, attached for a `with`.

    with FlowGaps(net) as watched:
        flows.run(...)
    watched.table.beyond(500)     # the fraction of packets that came after more than 500 us of silence

Whoever chooses a path for each flowlet sees these gaps (LetFlow, FatPaths).
"""

from __future__ import annotations

import errno
import struct
from contextlib import ExitStack, closing
from dataclasses import dataclass
from types import TracebackType

from weft.testbed.linux import libbpf, netlink, tc
from weft.testbed.plan.network_handle import NetworkHandle, device, netlink_of
from weft.testbed.tracing.reordering import bounds_us

OBJECT = libbpf.DIRECTORY / "flow_gaps.bpf.o"
PROGRAM = "gaps"
PRIORITY = 5  # of the filters: before layers are chosen
CLASSES = 128


@dataclass(frozen=True)
class GapTable:
    """gaps: packets by the silence of their flow before them, the lower bounds of whose classes are bounds_us().
    flows: how many there were, whose first packets have none."""

    gaps: tuple[int, ...]
    flows: int

    @property
    def packets(self) -> int:
        """Packets that were not their flow's first."""
        return sum(self.gaps)

    def beyond(self, us: float) -> float:
        """The fraction of packets before which their flow was silent for at least `us`, to the next lower bound of a
        class."""
        counted = sum(count for count, low in zip(self.gaps, bounds_us(), strict=True) if low >= us)
        return counted / max(1, self.packets)

    def quantile_us(self, percent: float) -> float:
        """What `percent` % of the gaps do not exceed, to the next class."""
        wanted, count = self.packets * percent / 100, 0
        bounds = bounds_us()
        for at, here in enumerate(self.gaps):
            count += here
            if here and count >= wanted:
                return bounds[min(CLASSES - 1, at + 1)]
        return 0.0


class FlowGaps:
    """Watches what the hosts of a fabric send during its `with`; then `table` has it."""

    def __init__(self, net: NetworkHandle) -> None:
        self.net = net
        self._stack = ExitStack()
        self._table: GapTable | None = None

    @property
    def table(self) -> GapTable:
        """What was seen; RuntimeError before the end of the `with`."""
        if self._table is None:
            raise RuntimeError("gaps of flows: not finished yet")
        return self._table

    def __enter__(self) -> FlowGaps:
        with ExitStack() as stack:
            self._object = libbpf.Object(OBJECT)
            stack.callback(self._object.close)
            stack.callback(self._detach)
            for host in range(self.net.topology.servers):
                index, dev = self._port(host)
                attached = libbpf.filter_message(
                    index, dev, self._object.program_fd(PROGRAM), PROGRAM, hook=tc.EGRESS_HOOK, priority=PRIORITY
                )
                self._request(host, [tc.clsact(index, dev), attached])
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            self._table = self.read()

    def _port(self, host: int) -> tuple[int, str]:
        """Index and name of the interface of `host`."""
        ((port, *_),) = self.net.topology.ports(host)
        return self.net.ifindex(host, port), device(self.net, host, port)

    def _detach(self) -> None:
        for host in range(self.net.topology.servers):
            index, dev = self._port(host)
            body = tc.TCMSG.pack(0, index, 0, tc.EGRESS_HOOK, PRIORITY << 16)
            self._request(host, [
                netlink.Message(netlink.RTM_DELTFILTER, 0, body, f"tc filter del dev {dev} egress prio {PRIORITY}")
            ])  # fmt: skip

    def _request(self, host: int, messages: list[netlink.Message]) -> None:
        with closing(netlink_of(self.net, host)) as socket:
            socket.request(messages, tolerate=frozenset({errno.ENOENT, errno.EINVAL}))

    def read(self) -> GapTable:
        """What has been seen so far."""
        found = self._object.map("histograms", "=I", f"={CLASSES + 1}Q")
        of_all = struct.Struct(f"={libbpf.possible_cpus() * (CLASSES + 1)}Q")
        each = libbpf.Map(found.fd, struct.Struct("=I"), of_all)[0,]
        sums = [sum(each[at :: CLASSES + 1]) for at in range(CLASSES + 1)]
        return GapTable(tuple(sums[:CLASSES]), sums[CLASSES])

"""A BPF program at ports of a fabric, attached for a `with`, and what it has counted."""

from __future__ import annotations

import errno
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

from weft.testbed.linux import libbpf, netlink, tc
from weft.testbed.runs.network_handle import NetworkHandle, device, netlink_of

PRIORITY = 5  # of the filters: before the data plane's, and before layers are chosen
SIDES = {tc.INGRESS_HOOK: "ingress", tc.EGRESS_HOOK: "egress"}
Observation = TypeVar("Observation")


class Attachment(NamedTuple):
    """Where one of the object's programs is attached."""

    node: int
    port: int
    program: str


class WatchedPorts(ABC, Generic[Observation]):
    """Watches packets during its `with`; then `table` has what was seen.

    hook: on which side of the ports' interfaces.
    """

    hook = tc.INGRESS_HOOK

    def __init__(self, net: NetworkHandle) -> None:
        self.net = net
        self._stack = ExitStack()
        self._table: Observation | None = None

    @abstractmethod
    def load(self) -> libbpf.Object:
        """The programs."""

    @abstractmethod
    def places(self) -> Sequence[Attachment]:
        """Where they are attached."""

    @abstractmethod
    def read(self) -> Observation:
        """What has been seen so far."""

    @property
    def table(self) -> Observation:
        """What was seen; RuntimeError before the end of the `with`."""
        if self._table is None:
            raise RuntimeError(f"{type(self).__name__}: not finished yet")
        return self._table

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._object = self.load()
            stack.callback(self._object.close)
            stack.callback(self._detach)
            for place in self.places():
                index, dev = self._interface(place)
                program = self._object.program_fd(place.program)
                name, hook = place.program, self.hook
                attached = libbpf.filter_message(
                    index, dev, program, name, hook=hook, priority=PRIORITY
                )
                self._request(place, [tc.clsact(index, dev), attached])
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._stack:
            self._table = self.read()

    def totals(self, name: str, count: int) -> list[int]:
        """The `count` counters of the map called `name`, each the sum of every processor's."""
        found = self._object.map(name, "=I", f"={count}Q")
        of_all = struct.Struct(f"={libbpf.possible_cpus() * count}Q")
        each = libbpf.Map(found.fd, struct.Struct("=I"), of_all)[0,]
        return [sum(each[at::count]) for at in range(count)]

    def _interface(self, place: Attachment) -> tuple[int, str]:
        """Index and name of the interface there."""
        return self.net.ifindex(place.node, place.port), device(self.net, place.node, place.port)

    def _detach(self) -> None:
        for place in self.places():
            index, dev = self._interface(place)
            body = tc.TCMSG.pack(0, index, 0, self.hook, PRIORITY << 16)
            command = f"tc filter del dev {dev} {SIDES[self.hook]} prio {PRIORITY}"
            self._request(place, [netlink.NetlinkMessage(netlink.RTM_DELTFILTER, 0, body, command)])

    def _request(self, place: Attachment, messages: list[netlink.NetlinkMessage]) -> None:
        with closing(netlink_of(self.net, place.node)) as socket:
            socket.request(messages, tolerate=frozenset({errno.ENOENT, errno.EINVAL}))

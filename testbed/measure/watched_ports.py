"""BPF programs at ports of a fabric, attached during a `with` block, and their counters."""

from __future__ import annotations

import errno
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

from weft.testbed.linux import libbpf, netlink, tc
from weft.testbed.linux.interface import NamedDevice
from weft.testbed.runs.network_handle import NetworkHandle, device, netlink_of

PRIORITY = 5  # of the filters: before those of the data plane and of the choice of layers
SIDES = {tc.INGRESS_HOOK: "ingress", tc.EGRESS_HOOK: "egress"}
Observation = TypeVar("Observation")


class Attachment(NamedTuple):
    """Port that one of the object's programs is attached to."""

    node: int
    port: int
    program: str


class WatchedPorts(ABC, Generic[Observation]):
    """Watch packets during a `with` block; then read `table`.

    Attributes:
        hook: side of the ports' interfaces.
    """

    hook = tc.INGRESS_HOOK

    def __init__(self, net: NetworkHandle) -> None:
        self.net = net
        self._stack = ExitStack()
        self._table: Observation | None = None

    @abstractmethod
    def load(self) -> libbpf.Object:
        """Return the loaded programs."""

    @abstractmethod
    def places(self) -> Sequence[Attachment]:
        """Return the ports, with the program for each."""

    @abstractmethod
    def read(self) -> Observation:
        """Return the result so far."""

    @property
    def table(self) -> Observation:
        """Return the result.

        Raises:
            RuntimeError: the `with` block has not ended.
        """
        if self._table is None:
            raise RuntimeError(f"{type(self).__name__}: not finished yet")
        return self._table

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._object = self.load()
            stack.callback(self._object.close)
            stack.callback(self._detach)
            for place in self.places():
                port = NamedDevice(*self._interface(place))
                program_filter = libbpf.filter_message(
                    port,
                    self._object.program_fd(place.program),
                    place.program,
                    hook=self.hook,
                    priority=PRIORITY,
                )
                self._request(place, [tc.clsact(port), program_filter])
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
        """Return the `count` counters of the map called `name`, summed over processors."""
        fd = self._object.map(name, "=I", f"={count}Q").fd
        per_cpu = struct.Struct(f"={libbpf.possible_cpus() * count}Q")
        values = libbpf.Map(fd, struct.Struct("=I"), per_cpu)[0,]
        return [sum(values[counter::count]) for counter in range(count)]

    def _interface(self, place: Attachment) -> tuple[int, str]:
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

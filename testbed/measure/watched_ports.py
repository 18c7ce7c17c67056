"""BPF programs at ports of a fabric, attached during a `with` block, and their counters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Generic, NamedTuple, Self, TypeVar

from weft.testbed.data_plane import port_filters
from weft.testbed.data_plane.counter_map import CounterMap
from weft.testbed.data_plane.port_filters import PortFilter
from weft.testbed.linux import libbpf, tc
from weft.testbed.runs.network_handle import NetworkHandle

PRIORITY = 5  # of the filters: before those of the data plane and of the choice of layers
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
            for node, port, program in self.places():
                fd = self._object.program_fd(program)
                port_filter = PortFilter(program, fd, self.hook)
                port_filters.attach(self.net, node, [port], [port_filter], PRIORITY)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            self._table = self.read()

    def totals(self, name: str, count: int) -> list[int]:
        """Return the `count` counters of the map called `name`, summed over processors."""
        return CounterMap(self._object, name, count).sums()

    def _detach(self) -> None:
        for node, port, _ in self.places():
            port_filters.detach(self.net, node, [port], self.hook, PRIORITY)

"""A TCP flow to generate, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from weft.testbed.traffic.tcp_info import TcpInfo


class Flow(NamedTuple):
    """`size_bytes` of payload from host `src` to host `dst`, `at_s` after the beginning.

    None: until the end.
    """

    at_s: float
    src: int
    dst: int
    size_bytes: int | None


@dataclass(frozen=True)
class FlowResult:
    """Result of a flow; times are since the beginning of the run.

    ended_s: time at which the receiver had all bytes; None for an endless or unfinished flow.
    received_bytes: within the measured time.
    error: reason of a broken connection.
    number: of the flow among those of all machines, in order; 0 on one machine.
    """

    flow: Flow
    began_s: float
    ended_s: float | None
    received_bytes: int
    tcp: TcpInfo | None
    error: str | None
    number: int = 0

    @property
    def seconds(self) -> float | None:
        """Completion time, from the first packet of the handshake to the last byte."""
        return None if self.ended_s is None else self.ended_s - self.began_s


@dataclass(frozen=True)
class FlowResults:
    """All flows of one run, in order of their beginning.

    measured_s: time in which received_bytes were counted.
    late_s: largest delay of a flow's start, by the generator.
    congestion_control, transport, sysctls: of the measured TCP.
    """

    results: tuple[FlowResult, ...]
    measured_s: float
    late_s: float
    congestion_control: str
    sysctls: Mapping[str, str]
    transport: str = "tcp"

    @property
    def goodput_bps(self) -> float:
        """Payload bits received per second, all flows together."""
        return 8 * sum(result.received_bytes for result in self.results) / self.measured_s

    @property
    def unfinished(self) -> int:
        """Number of finite flows that did not end."""
        return sum(
            result.flow.size_bytes is not None and result.ended_s is None for result in self.results
        )

    def total(self, key: str) -> int:
        """Return the sum of a field of TcpInfo over all flows."""
        return sum(getattr(result.tcp, key) for result in self.results if result.tcp)

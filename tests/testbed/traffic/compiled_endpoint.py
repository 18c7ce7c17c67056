"""The endpoint of the purified transport in C, for tests that compare it with the one in Python."""

from __future__ import annotations

import os
from ctypes import POINTER, byref
from pathlib import Path

from tests.daemons.transport.endpoint import Transmission
from weft.daemons.transport.endpoint import Delivered, EndpointCounters, Finished, Parameters
from weft.daemons.transport.packets import TransportPacket
from weft.testbed.traffic.ndp_library import (
    NEVER,
    PATH,
    CCounters,
    CEvent,
    CPacket,
    CParameters,
    CTransmission,
    library,
)


class CompiledEndpoint:
    """Run the endpoint in C with the interface of tests/daemons/transport/endpoint.py."""

    def __init__(self, parameters: Parameters, path: Path = PATH) -> None:
        self._library = library(path)
        self._endpoint = self._library.ndp_new(byref(CParameters.of(parameters)))
        self.events: list[Delivered | Finished] = []

    def __del__(self) -> None:
        self._library.ndp_free(self._endpoint)

    @property
    def counters(self) -> EndpointCounters:
        """Return the counters."""
        counters: CCounters = self._library.ndp_counters(self._endpoint).contents
        return counters.counters()

    def send(self, now: int, flow: int, peer: int, size_bytes: int) -> None:
        """Send as Endpoint.send()."""
        if not 0 <= size_bytes <= NEVER or self._library.ndp_send(
            self._endpoint, now, flow, peer, size_bytes
        ):
            raise ValueError(f"transport: flow {flow} of {size_bytes} bytes")

    def receive(
        self, now: int, peer: int, packet: TransportPacket, whole: bool, congested: bool = False
    ) -> None:
        """Receive as Endpoint.receive()."""
        self._library.ndp_receive(
            self._endpoint, now, peer, byref(CPacket.of(packet)), whole, congested
        )
        self._take_events()

    def poll(self, now: int) -> list[Transmission]:
        """Return packets as Endpoint.poll()."""
        sent = POINTER(CTransmission)()
        count = self._library.ndp_poll(self._endpoint, now, byref(sent))
        if count < 0:
            raise MemoryError(os.strerror(-count))
        self._take_events()
        return [
            Transmission(
                sent[i].peer,
                sent[i].packet.packet(),
                sent[i].payload_bytes,
                bool(sent[i].retransmitted),
            )
            for i in range(count)
        ]

    def deadline(self) -> int | None:
        """Return the deadline as Endpoint.deadline()."""
        deadline_ns: int = self._library.ndp_deadline(self._endpoint)
        return None if deadline_ns == NEVER else deadline_ns

    def _take_events(self) -> None:
        event = CEvent()
        while self._library.ndp_take_event(self._endpoint, byref(event)):
            self.events.append(event.event())

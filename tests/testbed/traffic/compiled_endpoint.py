"""The endpoint of the purified transport in C, for tests that compare it with the one in Python."""

from __future__ import annotations

import os
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_ssize_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

from tests.daemons.transport.endpoint import Transmission
from tests.daemons.transport.packets import (
    ACK,
    DATA,
    NACK,
    PULL,
    Ack,
    Data,
    Nack,
    Pull,
    TransportPacket,
)
from weft.daemons.transport.endpoint import Delivered, EndpointCounters, Finished, Parameters
from weft.testbed.traffic.ndp_library import (
    NEVER,
    PATH,
    CCounters,
    CEvent,
    CParameters,
    declare,
    library,
)


class CPacket(Structure):
    """struct ndp_packet."""

    _fields_ = (
        ("number", c_uint64),
        ("flow", c_uint32),
        ("sequence", c_uint32),
        ("payload_bytes", c_uint16),
        ("kind", c_uint8),
        ("layer", c_uint8),
        ("detail", c_uint8),
        ("unused", c_uint8 * 3),
    )

    @classmethod
    def of(cls, packet: TransportPacket) -> CPacket:
        """Return `packet` as the library takes it."""
        match packet:
            case Data(flow, sequence, layer, window, size_bytes, payload_bytes):
                return cls(size_bytes, flow, sequence, payload_bytes, DATA, layer, window)
            case Ack(flow, sequence, layer, pulls, congested):
                return cls(pulls, flow, sequence, 0, ACK, layer, congested)
            case Nack(flow, sequence, layer, pulls, congested):
                return cls(pulls, flow, sequence, 0, NACK, layer, congested)
            case Pull(flow, layer, pulls):
                return cls(pulls, flow, 0, 0, PULL, layer)

    def packet(self) -> TransportPacket:
        """Return the packet as a class of daemons.transport."""
        if self.kind == DATA:
            return Data(
                self.flow, self.sequence, self.layer, self.detail, self.number, self.payload_bytes
            )
        if self.kind == ACK:
            return Ack(self.flow, self.sequence, self.layer, self.number, bool(self.detail))
        if self.kind == NACK:
            return Nack(self.flow, self.sequence, self.layer, self.number, bool(self.detail))
        return Pull(self.flow, self.layer, self.number)


class CTransmission(Structure):
    """struct ndp_transmission."""

    _fields_ = (
        ("packet", CPacket),
        ("peer", c_uint32),
        ("payload_bytes", c_uint16),
        ("retransmitted", c_uint16),
    )


def endpoint_library(path: Path = PATH) -> CDLL:
    """Return libndp.so with the types of the functions of an endpoint."""
    libndp = library(path)
    declare(
        libndp,
        [
            ("ndp_new", c_void_p, [POINTER(CParameters)]),
            ("ndp_free", None, [c_void_p]),
            ("ndp_send", c_int, [c_void_p, c_uint64, c_uint32, c_uint32, c_uint64]),
            ("ndp_receive", None, [c_void_p, c_uint64, c_uint32, POINTER(CPacket), c_int, c_int]),
            ("ndp_poll", c_ssize_t, [c_void_p, c_uint64, POINTER(POINTER(CTransmission))]),
            ("ndp_deadline", c_uint64, [c_void_p]),
            ("ndp_take_event", c_int, [c_void_p, POINTER(CEvent)]),
            ("ndp_counters", POINTER(CCounters), [c_void_p]),
            ("ndp_encode", None, [POINTER(CPacket), c_char_p]),
            ("ndp_decode", c_int, [c_char_p, c_size_t, c_uint32, POINTER(CPacket), POINTER(c_int)]),
        ],
    )
    return libndp


class CompiledEndpoint:
    """Run the endpoint in C with the interface of tests/daemons/transport/endpoint.py."""

    def __init__(self, parameters: Parameters, path: Path = PATH) -> None:
        self._library = endpoint_library(path)
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

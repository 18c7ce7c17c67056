"""libndp.so, the purified transport in C: its structures, and its endpoint as a Python class."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_uint16,
    c_uint32,
    c_uint64,
)
from functools import cache
from pathlib import Path
from typing import Any

from weft.daemons.transport.endpoint import (
    Delivered,
    EndpointCounters,
    Finished,
    Parameters,
    reason,
)
from weft.testbed.linux import compiled

PATH = Path(__file__).with_name("libndp.so")
NEVER = (1 << 64) - 1
FunctionTypes = tuple[str, Any, list[Any]]  # name, type of the result, types of the arguments
DELIVERED, FAILED = 1, 3


class CParameters(Structure):
    """struct ndp_parameters."""

    _fields_ = (
        ("rate_bps", c_uint64),
        ("timeout_ns", c_uint64),
        ("frame_bytes", c_uint32),
        ("window", c_uint32),
        ("layers", c_uint32),
        ("attempts", c_uint32),
        ("burst", c_uint32),
        ("seed", c_uint32),
        ("choice", c_uint32),
        ("backoff", c_uint32),
    )

    @classmethod
    def of(cls, parameters: Parameters) -> CParameters:
        """Return `parameters` as the library takes them."""
        return cls(*(getattr(parameters, name) for name, _ in cls._fields_))


class CEvent(Structure):
    """struct ndp_event."""

    _fields_ = (
        ("time_ns", c_uint64),
        ("size_bytes", c_uint64),
        ("silent_ns", c_uint64),
        ("peer", c_uint32),
        ("flow", c_uint32),
        ("unacknowledged", c_uint32),
        ("packets", c_uint32),
        ("kind", c_uint32),
        ("unused", c_uint32),
    )

    def event(self) -> Delivered | Finished:
        """Return the event as a class of daemons.transport."""
        if self.kind == DELIVERED:
            return Delivered(self.peer, self.flow, self.size_bytes, self.time_ns)
        failed = (
            reason(self.peer, self.silent_ns, self.unacknowledged, self.packets)
            if self.kind == FAILED
            else None
        )
        return Finished(self.peer, self.flow, self.time_ns, failed)


class CCounters(Structure):
    """struct ndp_counters."""

    _fields_ = tuple((name, c_uint64) for name in EndpointCounters.__dataclass_fields__)

    def counters(self) -> EndpointCounters:
        """Return the counters as a class of daemons.transport."""
        return EndpointCounters(
            *(getattr(self, name) for name in EndpointCounters.__dataclass_fields__)
        )


class CHost(Structure):
    """struct ndp_host."""

    _fields_ = (("data", c_int), ("control", c_int), ("address", c_uint32), ("unused", c_uint32))


class CMessage(Structure):
    """struct ndp_message."""

    _fields_ = (
        ("due_ns", c_uint64),
        ("size_bytes", c_uint64),
        ("src", c_uint32),
        ("dst", c_uint32),
        ("began", c_uint64),
        ("delivered", c_uint64),
        ("finished", c_uint64),
        ("silent_ns", c_uint64),
        ("unacknowledged", c_uint32),
        ("packets", c_uint32),
    )


class CRun(Structure):
    """struct ndp_run."""

    _fields_ = (
        ("hosts", POINTER(CHost)),
        ("messages", POINTER(CMessage)),
        ("octets", c_char_p),
        ("parameters", CParameters),
        ("deadline", c_uint64),
        ("n_hosts", c_uint32),
        ("n_messages", c_uint32),
        ("first_flow", c_uint32),
        ("port", c_uint16),
        ("unused", c_uint16),
        ("counters", CCounters),
        ("late_ns", c_uint64),
        ("garbage", c_uint64),
        ("unknown", c_uint64),
        ("corrupt", c_uint64),
        ("unsent", c_uint64),
        ("wakes", c_uint64),
    )


@cache
def library(path: Path = PATH) -> ctypes.CDLL:
    """Return libndp.so with the types of its functions.

    Raises:
        OSError: it is not compiled, or from another version.
    """
    compiled.require(path)
    libndp = ctypes.CDLL(str(path), use_errno=True)
    declare(libndp, [("ndp_run", c_int, [POINTER(CRun)])])
    return libndp


def declare(libndp: ctypes.CDLL, functions: Iterable[FunctionTypes]) -> None:
    """Set the types of `functions` of libndp.so; raise OSError if it lacks one of them."""
    for name, result, arguments in functions:
        function = getattr(libndp, name, None)
        if function is None:
            raise OSError(f"libndp.so lacks {name}, as of another version: `make bpf` compiles it")
        function.restype, function.argtypes = result, arguments

"""Formats of all messages of all schemes."""

from __future__ import annotations

from typing import Any

from weft.daemons.core import registry, wire
from weft.daemons.core.message_formats import (
    BYTES,
    MAGIC,
    VERSION,
    MalformedMessage,
    fields,
    take_apart,
)

HEADER = fields("magic:u8 version:u8 type:u8")
# appended by weft.testbed.node_daemon
SEAL = fields("number:u64 sealer:u32 cookie:u32 tag_high:u64 tag_low:u32")
SEAL_BYTES = sum(BYTES[field.kind] for field in SEAL)
BY_KIND = {message.kind: message for message in wire.FORMATS} | {
    message.kind: message for scheme in registry.schemes().values() for message in scheme.messages
}
FORMATS = tuple(BY_KIND[kind] for kind in sorted(BY_KIND))


def dissect(payload: bytes) -> dict[str, Any]:
    """Return the fields of a message, its name as `message`, and its `seal` if it has one.

    Args:
        payload: of a UDP packet.

    Raises:
        MalformedMessage: no message, or of an unknown type.
    """
    header, offset = take_apart(HEADER, payload, 0)
    if (header["magic"], header["version"]) != (MAGIC, VERSION):
        raise MalformedMessage(
            f"begins with {payload[:2].hex()}, expected {MAGIC:02x}{VERSION:02x}"
        )
    if header["type"] not in BY_KIND:
        raise MalformedMessage(f"of type {header['type']}, which no scheme has")
    message = BY_KIND[header["type"]]
    values, end = take_apart(message.parts, payload, offset)
    named_values = {"message": message.name, **values}
    if end == len(payload):
        return named_values
    if len(payload) - end != SEAL_BYTES:
        raise MalformedMessage(f"{len(payload) - end} bytes too many for a {message.name}")
    seal, _ = take_apart(SEAL, payload, end)
    return named_values | {"seal": {name: seal[name] for name in ("number", "sealer", "cookie")}}

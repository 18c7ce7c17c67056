"""Formats of all messages of this project's schemes."""

from __future__ import annotations

from typing import Any

from weft.daemons.core import wire
from weft.daemons.core.message_formats import (
    BYTES,
    Bits,
    Format,
    Malformed,
    MessageField,
    Repeat,
    fields,
    take_apart,
)

FLOW = "source:address destination:address protocol:u8 ports:u32"
NOTICE = "sender:u32 target:u32 origin:u32 sequence:u64 lifetime_ms:u32 hops:u8"
VISITED = Repeat("visited", "visited_count", fields("node:u32"))
HEADER = "magic:u8 version:u8 type:u8"
# appended by weft.testbed.node_daemon
SEAL = "number:u64 sealer:u32 cookie:u32 tag_high:u64 tag_low:u32"
SEAL_BYTES = sum(BYTES[field.kind] for field in fields(SEAL))

FORMATS = (
    Format(
        wire.HELLO,
        "hello",
        (
            *fields("sender:u32 incarnation:u64 interval_ms:u16 digest:u64 heard_count:u16"),
            Repeat("heard", "heard_count", fields("node:u32 incarnation:u64")),
            MessageField("sequence", "u32"),
        ),
    ),
    Format(
        wire.LINK_STATES,
        "link_states",
        (
            *fields("sender:u32 advertisements_count:u16"),
            Repeat(
                "advertisements",
                "advertisements_count",
                (
                    *fields("origin:u32 sequence:u64 lifetime_ms:u32 links_count:u16"),
                    Repeat("links", "links_count", fields("port:u16 neighbour:u32")),
                ),
            ),
        ),
    ),
    Format(
        wire.SUMMARY,
        "summary",
        (
            *fields("sender:u32 target:u32 first:u32 last:u32 entries_count:u16"),
            Repeat("entries", "entries_count", fields("origin:u32 sequence:u64 check:u32")),
        ),
    ),
    Format(
        wire.PROBE,
        "probe",
        (
            *fields("sender:u32 target:u32 source:u32 destination:u32 token:u32 way:u16 load:u32"),
            *fields("verdict:u8 urgent:u8 visited_count:u8"),
            VISITED,
        ),
    ),
    Format(
        wire.HOP_DIED,
        "hop_died",
        (*fields("sender:u32 target:u32 near:u32 far:u32 visited_count:u8"), VISITED),
    ),
    Format(
        wire.LBSP_FAILURES,
        "lbsp_failures",
        (
            *fields(f"{NOTICE} failures_count:u16"),
            Repeat(
                "failures",
                "failures_count",
                fields("kind:u8 degraded:u8 network:address length:u8 neighbour:u32"),
            ),
        ),
    ),
    Format(wire.LBSP_CROWDING, "lbsp_crowding", fields(f"{NOTICE} state:u8")),
    Format(
        wire.FLOW_PROBE,
        "flow_probe",
        (
            *fields(
                f"sender:u32 target:u32 {FLOW} token:u32 attempt:u32 lifetime_ms:u32 verdict:u8"
            ),
            *fields("marks_count:u8 visited_count:u8"),
            Repeat("marks", "marks_count", fields("mark:i32")),
            Repeat("visited", "visited_count", fields("node:i32")),
        ),
    ),
    Format(
        wire.FLOW_BREAKS,
        "flow_breaks",
        (
            *fields("sender:u32 target:u32 flows_count:u8"),
            Repeat("flows", "flows_count", fields(f"{FLOW} token:u32")),
        ),
    ),
    Format(
        wire.DAR_EAR,
        "dar_ear",
        (
            *fields(f"sender:u32 target:u32 origin:u32 leaf:u32 sequence:u64 {FLOW}"),
            *fields("spine:u32 count:u16 spines:u8"),
            Bits("room", "spines"),
        ),
    ),
)
BY_KIND = {message.kind: message for message in FORMATS}


def dissect(payload: bytes) -> dict[str, Any]:
    """Return the fields of a message, its name as `message`, and its `seal` if it has one.

    Args:
        payload: of a UDP packet.

    Raises:
        Malformed: no message, or a message of another package.
    """
    header, offset = take_apart(fields(HEADER), payload, 0)
    if (header["magic"], header["version"]) != (wire.MAGIC, wire.VERSION):
        raise Malformed(
            f"begins with {payload[:2].hex()}, expected {wire.MAGIC:02x}{wire.VERSION:02x}"
        )
    if header["type"] not in BY_KIND:
        raise Malformed(f"of type {header['type']}, which is another package's")
    message = BY_KIND[header["type"]]
    values, end = take_apart(message.parts, payload, offset)
    named_values = {"message": message.name, **values}
    if end == len(payload):
        return named_values
    if len(payload) - end != SEAL_BYTES:
        raise Malformed(f"{len(payload) - end} bytes too many for a {message.name}")
    seal, _ = take_apart(fields(SEAL), payload, end)
    return named_values | {"seal": {name: seal[name] for name in ("number", "sealer", "cookie")}}

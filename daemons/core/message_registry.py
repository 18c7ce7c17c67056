"""Formats of all messages of all schemes, and a dissector of them for Wireshark in Lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.daemons.core import registry, wire
from weft.daemons.core.message_formats import (
    BYTES,
    MAGIC,
    VERSION,
    Bits,
    Format,
    MalformedMessage,
    MessageField,
    Part,
    fields,
    flat,
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
FIELD_TYPES = {
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i32": "int32",
    "address": "ipv4",
}
LOOP = """
local function show(parts, names, buffer, at, tree)
  local values = {}
  for _, part in ipairs(parts) do
    if part.fields then
      for number = 1, values[part.count] do
        local entry = tree:add(weft, buffer(at), part.name .. " " .. number)
        local first = at
        at = show(part.fields, names .. part.name .. ".", buffer, at, entry)
        entry:set_len(at - first)
      end
    else
      local size = part.size or math.floor((values[part.count] + 7) / 8)
      if size > 0 then
        local range = buffer(at, size)
        tree:add(declared[names .. part.name], range)
        if size <= 4 then values[part.name] = range:uint() end
      end
      at = at + size
    end
  end
  return at
end

function weft.dissector(buffer, packet, tree)
  if buffer:len() < 3 or buffer(0, 1):uint() ~= @MAGIC@ or buffer(1, 1):uint() ~= @VERSION@ then return 0 end
  local kind = formats[buffer(2, 1):uint()]
  if not kind then return 0 end
  packet.cols.protocol = "weft"
  packet.cols.info = kind.name
  local top = tree:add(weft, buffer(), "weft " .. kind.name)
  show(header, "", buffer, 0, top)
  local at = show(kind.parts, kind.name .. ".", buffer, 3, top)
  if buffer:len() - at == @SEAL_BYTES@ then show(seal, "seal.", buffer, at, top:add(weft, buffer(at), "seal")) end
  return buffer:len()
end

DissectorTable.get("udp.port"):add(@PORT@, weft)
"""  # noqa: E501


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


def dissector(port: int) -> str:
    """Return the Lua program for messages to UDP `port`."""
    declared = dict(flat(HEADER))
    for name, parts in (
        ("seal", SEAL),
        *((message.name, message.parts) for message in FORMATS),
    ):
        declared |= {f"{name}.{path}": kind for path, kind in flat(parts).items()}
    lines = [
        "-- Made by `weft decode --wireshark` from the list of messages; do not edit.",
        "",
        'weft = Proto("weft", "weft")',
    ]
    lines += [
        "local declared = {",
        *(_declaration(path, kind) for path, kind in declared.items() if kind != "entries"),
        "}",
    ]
    lines += [
        "local all = {}",
        "for _, field in pairs(declared) do all[#all + 1] = field end",
        "weft.fields = all",
    ]
    lines += [f"local header = {_parts(HEADER)}", f"local seal = {_parts(SEAL)}"]
    lines += ["local formats = {", *map(_format, FORMATS), "}"]
    loop = LOOP
    for name, value in {
        "MAGIC": MAGIC,
        "VERSION": VERSION,
        "SEAL_BYTES": SEAL_BYTES,
        "PORT": port,
    }.items():
        loop = loop.replace(f"@{name}@", str(value))
    return "\n".join(lines) + "\n" + loop


def _declaration(path: str, kind: str) -> str:
    field = f'ProtoField.bytes("weft.{path}", "{path}")'
    if kind != "bits":
        field = f'ProtoField.{FIELD_TYPES[kind]}("weft.{path}", "{path.rpartition(".")[2]}")'
    return f'  ["{path}"] = {field},'


def _format(message: Format[Any]) -> str:
    return f'  [{message.kind}] = {{ name = "{message.name}", parts = {_parts(message.parts)} }},'


def _parts(parts: Sequence[Part]) -> str:
    return "{ " + ", ".join(map(_part, parts)) + " }"


def _part(part: Part) -> str:
    if isinstance(part, MessageField):
        return f'{{ name = "{part.name}", size = {BYTES[part.kind]} }}'
    if isinstance(part, Bits):
        return f'{{ name = "{part.name}", count = "{part.count}" }}'
    return f'{{ name = "{part.name}", count = "{part.count}", fields = {_parts(part.fields)} }}'

"""Layers for scapy of all messages that daemons exchange, derived from the registry.

    from scapy.all import rdpcap
    from weft.testbed.observe.scapy_layers import ENTRIES, LAYERS, Weft

    for packet in rdpcap("packets/h0-h4.pcapng").filter(lambda packet: Weft in packet):
        packet[Weft].show()

scapy dissects UDP to the daemons' port as `Weft`, which is magic, version and type.  The message
follows, then `Seal` if the message is sealed.  Packets can be built, too; scapy fills in counts and
types:

    UDP() / Weft() / LAYERS["hello"](sender=7, heard=[ENTRIES["hello.heard"](node=5)])

Daemons of an authenticated run refuse such packets, because scapy has no key of the run.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from weft.daemons.core.message_formats import CODES, MAGIC, VERSION, Bits, Part, Repeat
from weft.daemons.core.message_registry import FORMATS, HEADER, SEAL, SEAL_BYTES
from weft.testbed.linux.tc_filters import CONTROL_PORT

try:
    from scapy.fields import (
        BitLenField,
        ByteEnumField,
        ByteField,
        FieldLenField,
        IntField,
        IPField,
        LongField,
        PacketListField,
        ShortField,
        SignedIntField,
        XByteField,
    )
    from scapy.layers.inet import UDP
    from scapy.packet import Packet, bind_layers
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "layers for scapy need it: pip install 'weft-testbed[packets]'", name="scapy"
    ) from missing

NUMBERS = {
    "u8": ByteField,
    "u16": ShortField,
    "u32": IntField,
    "u64": LongField,
    "i32": SignedIntField,
    "address": IPField,
}


class MessageLayer(Packet):
    """A message; the rest of the packet is a seal if it has the size of one."""

    def guess_payload_class(self, payload: bytes) -> Any:
        """Return the class of the next layer, as scapy asks."""
        return Seal if len(payload) == SEAL_BYTES else super().guess_payload_class(payload)


class RepeatedEntry(Packet):
    """An entry of a list; the next entry follows."""

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """Return this layer's payload, which is empty, and the rest, as scapy asks."""
        return b"", s


# classes of entries by path, such as link_states.advertisements.links
ENTRIES: dict[str, type[Any]] = {}


def _layer(path: str, base: type[Any], fields: list[Any]) -> type[Any]:
    """Return a class of packets; scapy shows the last word of `path`."""
    words = "".join(word.title() for word in path.replace(".", "_").split("_"))
    members = {"name": path.rpartition(".")[2], "fields_desc": fields, "__module__": __name__}
    return type(words, (base,), members)


def _fields(parts: tuple[Part, ...], path: str) -> list[Any]:
    """Return scapy's fields of `parts`, which belong to the message or entry at `path`."""
    repeats = {part.count: part.name for part in parts if isinstance(part, Repeat)}
    return [_field(part, repeats, f"{path}.{part.name}") for part in parts]


def _field(part: Part, repeats: dict[str, str], path: str) -> Any:
    """Return scapy's field of `part`.

    repeats: names of lists by the names of their counts.
    """
    if isinstance(part, Repeat):
        ENTRIES[path] = _layer(path, RepeatedEntry, _fields(part.fields, path))
        return PacketListField(part.name, [], ENTRIES[path], count_from=attrgetter(part.count))
    if isinstance(part, Bits):
        return BitLenField(part.name, 0, length_from=_whole_bytes(part.count))
    if part.name in repeats:
        return FieldLenField(part.name, None, count_of=repeats[part.name], fmt=CODES[part.kind])
    return NUMBERS[part.kind](part.name, "0.0.0.0" if part.kind == "address" else 0)


def _whole_bytes(field: str) -> Any:
    return lambda packet: -(-getattr(packet, field) // 8) * 8


HEADER_FIELDS = {
    "magic": XByteField("magic", MAGIC),
    "version": ByteField("version", VERSION),
    "type": ByteEnumField(
        "type", FORMATS[0].kind, {message.kind: message.name for message in FORMATS}
    ),
}
Weft = _layer("weft", Packet, [HEADER_FIELDS[field.name] for field in HEADER])
Seal = _layer("seal", RepeatedEntry, _fields(SEAL, "seal"))
LAYERS = {
    message.name: _layer(message.name, MessageLayer, _fields(message.parts, message.name))
    for message in FORMATS
}
for _message in FORMATS:
    bind_layers(Weft, LAYERS[_message.name], type=_message.kind)
bind_layers(UDP, Weft, dport=CONTROL_PORT)  # daemons send from ports that the kernel chooses

"""Layers for scapy, out of the registry: a class of packets for every message that daemons
exchange.

    from scapy.all import rdpcap
    from weft.testbed.observe.scapy_layers import ENTRIES, LAYERS, Weft

    for packet in rdpcap("packets/h0-h4.pcapng").filter(lambda packet: Weft in packet):
        packet[Weft].show()

`Weft` is magic, version and type; UDP to the daemons' port is taken apart by it.  Behind it comes
the message, and behind that `Seal`, if it was sealed.  Packets can be made, too, with counts and
types filled in:

    UDP() / Weft() / LAYERS["hello"](sender=7, heard=[ENTRIES["hello.heard"](node=5)])

scapy has no key of the run, so its daemons, unless they are unauthenticated, refuse what is
made.
"""

from __future__ import annotations

from typing import Any

from weft.daemons.core.message_formats import MAGIC, VERSION, Bits, Part, Repeat
from weft.daemons.core.message_registry import FORMATS, HEADER, SEAL, SEAL_BYTES
from weft.testbed.linux.tc import CONTROL_PORT

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
COUNTS = {"u8": "B", "u16": "H", "u32": "I"}  # how scapy calls them


class MessageLayer(Packet):
    """What follows the header; what is left behind it is a seal if it has the size of one."""

    def guess_payload_class(self, payload: bytes) -> Any:
        """What follows this layer, as scapy asks: the seal, by its size."""
        return Seal if len(payload) == SEAL_BYTES else super().guess_payload_class(payload)


class RepeatedEntry(Packet):
    """One of several of the same form, which end where the next begins."""

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """What of `s` is this layer's payload, none, and what is left for the next entry, as scapy
        asks.
        """
        return b"", s


# what messages have several of, by path: link_states.advertisements.links
ENTRIES: dict[str, type[Any]] = {}


def _described(parts: tuple[Part, ...], path: str) -> list[Any]:
    """The fields of a class of packets; path: of the registry, to what they are part of."""
    repeats = {part.count: part.name for part in parts if isinstance(part, Repeat)}
    found: list[Any] = []
    for part in parts:
        if isinstance(part, Repeat):
            inner = f"{path}.{part.name}"
            ENTRIES[inner] = _made(inner, RepeatedEntry, part.fields)
            found.append(
                PacketListField(part.name, [], ENTRIES[inner], count_from=_number(part.count))
            )
        elif isinstance(part, Bits):
            found.append(BitLenField(part.name, 0, length_from=_whole_bytes(part.count)))
        elif part.name in repeats:
            found.append(
                FieldLenField(part.name, None, count_of=repeats[part.name], fmt=COUNTS[part.kind])
            )
        else:
            found.append(NUMBERS[part.kind](part.name, "0.0.0.0" if part.kind == "address" else 0))
    return found


def _number(field: str) -> Any:
    return lambda packet: getattr(packet, field)


def _whole_bytes(field: str) -> Any:
    return lambda packet: -(-getattr(packet, field) // 8) * 8


def _made(path: str, base: type[Any], parts: tuple[Part, ...]) -> type[Any]:
    """A class of packets; scapy shows the last word of `path`, and hop_died is class HopDied."""
    words = "".join(word.title() for word in path.replace(".", "_").split("_"))
    described = _described(parts, path)
    return type(
        words,
        (base,),
        {"name": path.rpartition(".")[2], "fields_desc": described, "__module__": __name__},
    )


def _header() -> type[Any]:
    names = {each.kind: each.name for each in FORMATS}
    of = {
        "magic": XByteField("magic", MAGIC),
        "version": ByteField("version", VERSION),
        "type": ByteEnumField("type", FORMATS[0].kind, names),
    }
    described = [of[one.name] for one in HEADER]
    return type(
        "Weft", (Packet,), {"name": "weft", "fields_desc": described, "__module__": __name__}
    )


Weft = _header()
Seal = _made("seal", RepeatedEntry, SEAL)
LAYERS = {each.name: _made(each.name, MessageLayer, each.parts) for each in FORMATS}
for _each in FORMATS:
    bind_layers(Weft, LAYERS[_each.name], type=_each.kind)
bind_layers(UDP, Weft, sport=CONTROL_PORT, dport=CONTROL_PORT)

"""The layers for scapy, against the codecs that the daemons use."""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import optional_parts

pytest.importorskip("scapy", reason=optional_parts.PARTS["scapy"].get)
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from tests.daemons.core import drawn_messages as drawn
from weft.daemons.core import wire
from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.message_registry import FORMATS, SEAL_BYTES, dissect
from weft.daemons.dar import daemon as dar
from weft.testbed.observe.pcapng import OUTBOUND, Files
from weft.testbed.observe.scapy_layers import ENTRIES, LAYERS, Seal, Weft


def message_values(packet: Any) -> dict[str, Any]:
    """Return the dissected message of a `Weft` packet."""
    message = packet.payload
    fields = {"message": message.name, **values(message)}
    if Seal in packet:
        fields["seal"] = {
            name: value
            for name, value in values(packet[Seal]).items()
            if not name.startswith("tag")
        }
    return fields


def values(packet: Any) -> dict[str, Any]:
    fields = {field.name: packet.getfieldval(field.name) for field in packet.fields_desc}
    return {
        key: list(map(values, value)) if isinstance(value, list) else value
        for key, value in fields.items()
    }


def made_anew(packet: Any) -> Any:
    """The packet out of its values alone, counts left out: nothing of the bytes that it was read
    from."""
    left_out = {f"{field.name}_count" for field in packet.fields_desc}
    kept = {}
    for field in packet.fields_desc:
        value = packet.getfieldval(field.name)
        if isinstance(value, list):
            value = [made_anew(one) for one in value]
        if field.name not in left_out:
            kept[field.name] = value
    return type(packet)(**kept)


EAR = dar.encode(
    dar.Ear(1, 2, 3, 4, 5, FiveTuple(6, 7, 8, 9), 10, 11, 12, 0xABC)
)  # bits, of which hypothesis draws few


@example(payload=EAR, sealed=True)
@example(payload=EAR, sealed=False)
@given(payload=drawn.ENCODED, sealed=st.booleans())
def test_messages_are_taken_apart_and_made_as_the_codecs_do(payload: bytes, sealed: bool) -> None:
    seal = bytes(range(SEAL_BYTES)) if sealed else b""
    packet = Weft(payload + seal)
    assert message_values(packet) == dissect(payload + seal)
    again = Weft() / made_anew(packet.payload)
    assert bytes(again / made_anew(packet[Seal]) if sealed else again) == payload + seal


def test_every_message_of_the_registry_has_a_layer() -> None:
    assert list(LAYERS) == [each.name for each in FORMATS]
    for each in FORMATS:
        assert Weft(bytes(Weft() / LAYERS[each.name]())).type == each.kind


def test_a_message_may_be_made_by_hand() -> None:
    heard = [ENTRIES["hello.heard"](node=5, incarnation=6)]
    hello = LAYERS["hello"](sender=7, incarnation=3, sequence=9, interval_ms=30, heard=heard)
    assert bytes(Weft() / hello) == wire.encode(wire.Hello(7, 3, 30, 0, ((5, 6),), 9))


def test_captures_are_read_with_their_messages(tmp_path: Path) -> None:
    payload = wire.encode(wire.HopDied(1, 2, 3, 4, (5, 6)))
    frames = [Ether() / IP() / UDP(sport=47306, dport=port) / payload for port in (6330, 6331)]
    files = Files(tmp_path, "h0", ["h0-eth0"], 1 << 16, most_bytes=0, most_files=0)
    for at_ns, frame in enumerate(map(bytes, frames)):
        files.write(0, at_ns, frame, len(frame), OUTBOUND)
    files.close(2)
    ours, other = rdpcap(str(tmp_path / "h0.pcapng"))
    assert message_values(ours[Weft]) == dissect(payload)
    assert Weft not in other


@optional_parts.with_and_without("scapy")
def test_without_scapy_the_layers_say_how_to_get_it(part, monkeypatch):
    monkeypatch.delitem(sys.modules, "weft.testbed.observe.scapy_layers")
    missing = pytest.raises(ModuleNotFoundError, match=r"pip install 'weft-testbed\[packets\]'$")
    with nullcontext() if part else missing:
        importlib.import_module("weft.testbed.observe.scapy_layers")

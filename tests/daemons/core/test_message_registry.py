"""The description of every message, against the codecs that the daemons use."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.daemons.core import drawn_messages as drawn
from weft.daemons.control.scoped_flooding import Notice
from weft.daemons.core import wire
from weft.daemons.core.actions import FiveTuple
from weft.daemons.core.message_formats import (
    BYTES,
    MAGIC,
    VERSION,
    MalformedMessage,
    flat,
    take_apart,
)
from weft.daemons.core.message_registry import (
    BY_KIND,
    FORMATS,
    SEAL,
    SEAL_BYTES,
    dissect,
    dissector,
)
from weft.daemons.dar import daemon as dar
from weft.daemons.lbsp import messages as lbsp
from weft.daemons.tar import messages as tar
from weft.topologies.core.address import Prefix, dotted


def flow(of: FiveTuple) -> dict[str, Any]:
    return {**of._asdict(), "source": dotted(of.source), "destination": dotted(of.destination)}


def counted_list(name: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {f"{name}_count": len(entries), name: entries}


def visited_list(nodes: tuple[int, ...]) -> dict[str, Any]:
    return counted_list("visited", [{"node": node} for node in nodes])


def plain(message: Any) -> dict[str, Any]:
    """The fields of a message under the names of the registry."""
    values = dict(message._asdict()) if hasattr(message, "_asdict") else dict(vars_of(message))
    match message:
        case wire.Hello():
            return values | counted_list(
                "heard", [{"node": a, "incarnation": b} for a, b in message.heard]
            )
        case wire.LinkStates():
            return {"sender": message.sender} | counted_list(
                "advertisements", list(map(advertisement_fields, message.advertisements))
            )
        case wire.Summary():
            return values | counted_list("entries", [entry(*row) for row in message.entries])
        case Notice():
            del values["body"]
            return values | body(message.body)
        case dar.Ear():
            return {key: value for key, value in values.items() if key != "flow"} | flow(
                message.flow
            )
        case tar.FlowProbe():
            del values["flow"]
            marks = counted_list("marks", [{"mark": mark} for mark in message.marks])
            return values | flow(message.flow) | marks | visited_list(message.visited)
    return values | visited_list(message.visited)


def entry(origin: int, sequence: int, check: int) -> dict[str, int]:
    return {"origin": origin, "sequence": sequence, "check": check}


def vars_of(message: Any) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}


def advertisement_fields(advertisement: wire.Advertisement) -> dict[str, Any]:
    links = [
        {"port": port, "neighbour": node} for port, node in wire.unpack_links(advertisement.links)
    ]
    return {
        "origin": advertisement.origin,
        "sequence": advertisement.sequence,
        "lifetime_ms": advertisement.lifetime_ms,
        **counted_list("links", links),
    }


def body(of: lbsp.LbspBody) -> dict[str, Any]:
    if isinstance(of, lbsp.Crowding):
        return {"state": of.state}
    return counted_list(
        "failures",
        [
            {
                "kind": failure.kind,
                "degraded": int(failure.degraded),
                "network": dotted(failure.affected.network),
                "length": failure.affected.length,
                "neighbour": failure.neighbour,
            }
            for failure in of.failures
        ],
    )


def check(name: str, payload: bytes, fields: dict[str, Any]) -> None:
    assert dissect(payload) == {"message": name, **fields}
    sealed = dissect(payload + bytes(7) + b"\x05" + bytes(3) + b"\x09" + bytes(SEAL_BYTES - 12))
    assert sealed.pop("seal") == {"number": 5, "sealer": 9, "cookie": 0}
    assert sealed == {"message": name, **fields}
    for size in (0, 2, len(payload) - 1):
        with pytest.raises(MalformedMessage):
            dissect(payload[:size])


@given(drawn.HEARD | drawn.STATES | drawn.SUMMARY | drawn.PROBE | drawn.DIED)
def test_messages_that_schemes_share_are_dissected_as_their_codec_made_them(
    message: wire.DaemonMessage,
) -> None:
    names = {
        wire.Hello: "hello",
        wire.LinkStates: "link_states",
        wire.Summary: "summary",
        wire.Probe: "probe",
    }
    check(names.get(type(message), "hop_died"), wire.encode(message), plain(message))


@given(drawn.NOTICE)
def test_messages_of_lbsp_are(message: lbsp.LbspNotice) -> None:
    name = "lbsp_crowding" if isinstance(message.body, lbsp.Crowding) else "lbsp_failures"
    check(name, lbsp.encode(message), plain(message))


@given(drawn.ears())
def test_requests_of_dar_are(message: dar.Ear) -> None:
    check("dar_ear", dar.encode(message), plain(message))


@given(drawn.ears())
def test_a_node_is_one_of_those_that_there_are(message: dar.Ear) -> None:
    payload = dar.encode(message)
    assert dar.decode(payload, message.origin + 1) == message
    with pytest.raises(wire.MalformedMessage):
        dar.decode(payload, message.origin)


@given(drawn.FLOW_PROBE)
def test_probes_of_tar_are(message: tar.FlowProbe) -> None:
    check("flow_probe", tar.encode(message), plain(message))


@given(drawn.BREAKS)
def test_breaks_of_tar_are(given_: tuple[int, int, list[tuple[FiveTuple, int]]]) -> None:
    sender, target, flows = given_
    (payload,) = tar.breaks(sender, target, flows)
    entries = [flow(flow_and_token) | {"token": token} for flow_and_token, token in flows]
    check(
        "flow_breaks",
        payload,
        {"sender": sender, "target": target, **counted_list("flows", entries)},
    )


def test_no_type_of_message_is_missing() -> None:
    names = {
        name: value
        for name, value in vars(wire).items()
        if name.isupper() and isinstance(value, int)
    }
    kinds = {value for name, value in names.items() if name.startswith(("LBSP_", "FLOW_", "DAR_"))}
    kinds |= {wire.HELLO, wire.LINK_STATES, wire.SUMMARY, wire.PROBE, wire.HOP_DIED}
    assert set(BY_KIND) == kinds
    assert len(BY_KIND) == len(FORMATS)


@given(st.binary(max_size=80))
def test_any_bytes_are_dissected_or_refused(data: bytes) -> None:
    for payload in (data, bytes([MAGIC, VERSION]) + data):
        try:
            dissect(payload)
        except MalformedMessage:
            continue


def lua() -> str:
    return dissector(6330)


def test_the_dissector_declares_every_field_and_lists_every_message() -> None:
    text = lua()
    for opening, closing in ("()", "{}", "[]"):
        assert text.count(opening) == text.count(closing)
    words = text.replace("(", " ").split()
    assert sum(words.count(word) for word in ("function", "if", "for")) == words.count("end")
    for form in FORMATS:
        assert f'[{form.kind}] = {{ name = "{form.name}", parts = ' in text
        for path, kind in flat(form.parts).items():
            assert (f'["{form.name}.{path}"] = ProtoField.' in text) == (kind != "entries")
            size = BYTES.get(kind)
            assert (
                f'name = "{path.rpartition(".")[2]}"'
                + (f", size = {size}" if size else ", count = ")
                in text
            )
    assert "@" not in text


TSHARK = shutil.which("tshark")  # setup does not install it


def tshark_fields(fields: dict[str, Any], path: str) -> dict[str, list[str]]:
    """Return the values that tshark should show of a dissected message, in order, by field."""
    found: dict[str, list[str]] = {}
    for key, value in fields.items():
        if isinstance(value, list):
            for one in value:
                for name, values in tshark_fields(one, f"{path}.{key}").items():
                    found.setdefault(name, []).extend(values)
        else:
            found[f"{path}.{key}"] = [str(value)]
    return found


def columns() -> list[str]:
    """The names of all fields in Wireshark."""
    kinds = [("seal", SEAL), *((form.name, form.parts) for form in FORMATS)]
    found = [
        (f"weft.{name}.{path}", kind) for name, parts in kinds for path, kind in flat(parts).items()
    ]
    return [name for name, kind in found if kind not in ("entries", "bits") and ".tag_" not in name]


@pytest.mark.skipif(TSHARK is None, reason="no tshark on this machine")
@settings(max_examples=4, deadline=None, database=None)
@given(payloads=st.lists(drawn.ENCODED, min_size=30, max_size=30), sealed=st.booleans())
def test_wireshark_shows_what_the_codecs_wrote(
    tmp_path_factory: Any, payloads: list[bytes], sealed: bool
) -> None:
    from weft.testbed.observe.pcapng import OUTBOUND, Files

    folder = tmp_path_factory.mktemp("tshark")
    (folder / "weft.lua").write_text(lua())
    payloads = [payload + bytes(range(SEAL_BYTES)) for payload in payloads] if sealed else payloads
    files = Files(folder, "one", ["h0-eth0"], 1 << 16, most_bytes=0, most_files=0)
    for at_ns, payload in enumerate(payloads):
        frame = bytes.fromhex("01005e0000ea020000000000 0800") + udp(payload)
        files.write(0, at_ns, frame, len(frame), OUTBOUND)
    files.close(len(payloads))
    names = columns()
    command = [
        str(TSHARK),
        "-X",
        f"lua_script:{folder / 'weft.lua'}",
        "-r",
        str(folder / "one.pcapng"),
        "-T",
        "fields",
    ]
    command += [word for name in names for word in ("-e", name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "error" not in done.stderr.lower()
    lines = done.stdout.split("\n")[:-1]
    assert len(lines) == len(payloads)
    for line, payload in zip(lines, payloads, strict=True):
        fields = dissect(payload)
        seal = tshark_fields(fields.pop("seal", {}), "weft.seal")
        expected = tshark_fields(fields, f"weft.{fields.pop('message')}") | seal
        given_ = {
            name: cell.split(",")
            for name, cell in zip(names, line.split("\t"), strict=True)
            if cell
        }
        assert given_ == {name: values for name, values in expected.items() if name in names}


def udp(payload: bytes) -> bytes:
    head = (
        bytes.fromhex("4500")
        + (28 + len(payload)).to_bytes(2, "big")
        + bytes.fromhex("00000000ff110000 0a000001e00000ea")
    )
    return (
        head
        + bytes.fromhex("18ba18ba")
        + (8 + len(payload)).to_bytes(2, "big")
        + bytes(2)
        + payload
    )


def test_parts_are_taken_apart_in_order() -> None:
    parts = BY_KIND[wire.LBSP_CROWDING].parts
    assert take_apart(parts, bytes(26), 0)[1] == 26


FLOW = FiveTuple(0x0A010203, 0x0A040506, 17, 0x12345678)
LINKS = wire.pack_links([(1, 2), (3, 0xFFFFFFFE)])
FAILED = (
    lbsp.LinkFailure(7, True, Prefix(0x0A010000, 16), 8),
    lbsp.LinkFailure(1, False, Prefix(0x0A010200, 24), 9),
)
ENCODED = {
    "hello": (
        wire.encode(wire.Hello(3, 7 << 40, 30, 9 << 60, ((4, 1), (5, 1 << 63)), 258)),
        "770101000000030000070000000000001e9000000000000000000200000004000000000000000100"
        "000005800000000000000000000102",
    ),
    "link_states": (
        wire.encode(
            wire.LinkStates(
                1, (wire.Advertisement(2, 3 << 33, 4, LINKS), wire.Advertisement(5, 6, 7, b""))
            )
        ),
        "7701020000000100020000000200000006000000000000000400020001000000020003fffffffe00"
        "0000050000000000000006000000070000",
    ),
    "summary": (
        wire.encode(wire.Summary(1, 2, 3, 4, ((5, 6 << 33, 7), (8, 9, 10)))),
        "770103000000010000000200000003000000040002000000050000000c0000000000000007000000"
        "0800000000000000090000000a",
    ),
    "probe": (
        wire.encode(wire.Probe(1, 2, 3, 4, 5, 6, 7, 2, 1, (8, 9))),
        "77010400000001000000020000000300000004000000050006000000070201020000000800000009",
    ),
    "hop_died": (
        wire.encode(wire.HopDied(1, 2, 3, 4, (5, 6, 7))),
        "7701050000000100000002000000030000000403000000050000000600000007",
    ),
    "lbsp_failures": (
        lbsp.encode(Notice(1, 2, 3, 4 << 33, 5, 6, lbsp.Failures(FAILED))),
        "77011000000001000000020000000300000008000000000000000506000207010a01000010000000"
        "0801000a0102001800000009",
    ),
    "lbsp_crowding": (
        lbsp.encode(Notice(1, 2, 3, 4, 5, 6, lbsp.Crowding(2))),
        "7701110000000100000002000000030000000000000004000000050602",
    ),
    "flow_probe": (
        tar.encode(tar.FlowProbe(1, 2, FLOW, 3, 4, 5, 1, (-1, -2, 7), (8, 9))),
        "77011800000001000000020a0102030a0405061112345678000000030000000400000005010302ff"
        "fffffffffffffe000000070000000800000009",
    ),
    "flow_breaks": (
        tar.breaks(1, 2, [(FLOW, 3), (FLOW, 4)])[0],
        "7701190000000100000002020a0102030a0405061112345678000000030a0102030a040506111234"
        "567800000004",
    ),
    "dar_ear": (
        dar.encode(dar.Ear(1, 2, 3, 4, 5 << 33, FLOW, 6, 7, 10, 0b1000000001)),
        "770120000000010000000200000003000000040000000a000000000a0102030a0405061112345678"
        "0000000600070a0201",
    ),
}


@pytest.mark.parametrize("name", [message.name for message in FORMATS])
def test_the_bytes_of_a_message_stay_as_they_were(name: str) -> None:
    payload, expected = ENCODED[name]
    assert payload.hex() == expected

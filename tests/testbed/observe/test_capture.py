"""Packets on a link, in files, and read back."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.daemons.core import wire
from weft.experiments.cli.cli import main
from weft.testbed.linux.clock import wait_until
from weft.testbed.linux.tc_filters import CONTROL_PORT
from weft.testbed.measure.ping import ping
from weft.testbed.network.network import RunningNetwork
from weft.testbed.observe.pcapng import (
    INBOUND,
    INTERFACE,
    OUTBOUND,
    PACKET,
    SECTION,
    Files,
    control_payload,
    messages,
    read,
)

ROOT = Path(__file__).parents[3]
WEFT = [sys.executable, "-m", "weft.experiments.cli.cli"]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    files = Files(tmp_path, "h0", ["h0-eth0", "h0-eth1"], 65536, most_bytes=0, most_files=0)
    at = 1_795_325_285_123_456_789
    sent = [(1, at, b"abc", OUTBOUND), (0, at + 1, bytes(60), INBOUND), (1, at + 2, b"", OUTBOUND)]
    for interface, at_ns, data, direction in sent:
        files.write(interface, at_ns, data, len(data) + 5, direction)
    files.flush()
    assert len(list(read(tmp_path / "h0.pcapng"))) == 3, "while it goes on"
    files.close(at + 3)
    assert [tuple(packet) for packet in read(tmp_path / "h0.pcapng")] == [
        (f"h0-eth{interface}", at_ns, data, len(data) + 5, direction)
        for interface, at_ns, data, direction in sent
    ]
    whole = (tmp_path / "h0.pcapng").read_bytes()
    (tmp_path / "cut.pcapng").write_bytes(whole[:-90])
    assert len(list(read(tmp_path / "cut.pcapng"))) < 4


def test_names_in_a_capture_cannot_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = wire.encode(wire.Hello(3, 7, 30, 0, (), 1))
    udp = struct.pack(">HHHH", CONTROL_PORT, CONTROL_PORT, 8 + len(payload), 0) + payload
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 255, 17, 0, bytes(4), bytes(4))
    files = Files(
        tmp_path, "x", ["h0\x1b[2J\n1.0 h1", "h0-eth0"], 65536, most_bytes=0, most_files=0
    )
    for interface in (0, 1):
        files.write(
            interface, 10**9, bytes(12) + b"\x08\x00" + ip + udp, 14 + len(ip + udp), OUTBOUND
        )
    files.close(10**9)
    assert main(["decode", str(tmp_path / "x.pcapng")]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith('1.000000 "h0\\u001b[2J\\n1.0 h1" 0.0.0.0 ')
    assert second.startswith("1.000000 h0-eth0 0.0.0.0 ")


def test_a_ring_keeps_the_newest_files_and_each_can_be_read(tmp_path: Path) -> None:
    files = Files(tmp_path, "h0-w0", ["h0-eth0"], 65536, most_bytes=1000, most_files=3)
    for number in range(40):
        files.write(0, number, number.to_bytes(2, "big") + bytes(98), 100, OUTBOUND)
    files.close(40)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 3
    assert all(path.stat().st_size <= 1000 + 40 for path in paths)
    numbers = [int.from_bytes(packet.data[:2], "big") for path in paths for packet in read(path)]
    assert numbers == list(range(numbers[0], 40))
    assert numbers[0] > 0


def test_what_is_no_capture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for data in (b"\xd4\xc3\xb2\xa1" + bytes(40), b"text" * 20):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="no pcapng file"):
            list(messages(path))
    assert control_payload(bytes(60)) is None


def _alter(folder: Path, kind: int, change: Callable[[bytearray], None]) -> Path:
    """A capture of one packet, whose first block of that kind, from its kind on, is changed."""
    files = Files(folder, "h0", ["h0-eth0"], 65536, most_bytes=0, most_files=0)
    files.write(0, 1, b"abcd", 4, OUTBOUND)
    files.close(2)
    data = bytearray((folder / "h0.pcapng").read_bytes())
    at = 0
    while struct.unpack_from("<I", data, at)[0] != kind:
        at += struct.unpack_from("<I", data, at + 4)[0]
    block = data[at:]
    change(block)
    (folder / "x").write_bytes(data[:at] + block)
    return folder / "x"


def _short(block: bytearray) -> None:
    block[4:] = struct.pack("<I", 28) + block[8:24] + struct.pack("<I", 28)


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (
            SECTION,
            lambda block: block.__setitem__(slice(4, 12), block[4:12][::-1]),
            "another kind of machine",
        ),
        (
            PACKET,
            lambda block: block.__setitem__(8, 1),
            "a packet of interface 1, which is not declared",
        ),
        (PACKET, _short, "the block of a packet is too short"),
        (
            INTERFACE,
            lambda block: block.__setitem__(slice(16, 36), bytes(20)),
            "times are not in ns",
        ),
    ],
)
def test_a_capture_that_is_wrong_is_refused(
    tmp_path: Path, kind: int, change: Callable[[bytearray], None], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        list(read(_alter(tmp_path, kind, change)))


@pytest.mark.kernel
def test_links_and_nodes_are_captured_together_and_control_messages_decoded(
    network: Callable[..., RunningNetwork], tmp_path: Path
) -> None:
    net = network("dcell:n=3,k=1", scheme="dr")
    process = subprocess.Popen(
        [*WEFT, "capture", "h0-h3", "h1", "-o", str(tmp_path / "new"), "--run", net.run.id],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "capturing\n"
    assert ping(net, [(0, 3), (1, 2)], count=3)
    paths = [tmp_path / "new" / f"{name}.pcapng" for name in ("h0-h3", "h1")]
    echoes = (b"\x08\x00", b"\x00\x00")
    wait_until(
        "echoes and their answers on both, and hellos both ways",
        lambda: (
            all(
                sum(one.data[23] == 1 and one.data[34:36] == kind for one in read(path)) >= 3
                for path in paths
                for kind in echoes
            )
            and {message.get("sender") for message in messages(paths[0])} >= {0, 3}
        ),
    )
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert {line.split(":")[0] for line in out.splitlines()} == {"h0-h3", "h1"}
    assert {packet.interface for packet in read(paths[1])} == {"h1-eth0", "h1-eth1"}
    told = list(messages(paths[0]))
    assert {one["message"] for one in told} == {"hello"}, "DR says nothing else"
    assert {one["from"] for one in told} == {"10.0.0.0", "10.0.1.0"}
    assert {one["seal"]["sealer"] for one in told} == {0, 3}
    shown = subprocess.run(
        [*WEFT, "decode", str(paths[0]), "--json"], cwd=ROOT, capture_output=True, check=True
    )
    assert [json.loads(line) for line in shown.stdout.splitlines()] == json.loads(json.dumps(told))
    dumped = subprocess.run(
        ["tcpdump", "-nr", str(paths[0])], capture_output=True, text=True, check=True
    )
    assert len(dumped.stdout.splitlines()) == len(list(read(paths[0])))


@pytest.mark.kernel
def test_a_capture_ends_with_its_run_and_wrong_words_are_refused(
    network: Callable[..., RunningNetwork], tmp_path: Path
) -> None:
    net = network("star:n=2", scheme="ecmp")
    of_run = ["-o", str(tmp_path), "--run", net.run.id]
    for words, said in (
        (["h0-h9"], "h9"),
        (["h0", "--snap", "3"], "--snap"),
        (["h0", "--files", "2"], "--file-kb"),
    ):
        done = subprocess.run(
            [*WEFT, "capture", *words, *of_run],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert said in done.stderr
    process = subprocess.Popen(
        [*WEFT, "capture", "h0", "--control", *of_run], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    process.stdout.readline()
    ping(net, [(0, 1)], count=1)
    net.down()
    process.stdout.close()
    assert process.wait(20) == 0
    assert all(control_payload(packet.data) for packet in read(tmp_path / "h0.pcapng"))

"""Messages to nf_tables against those of `nft` 1.0.6, recorded with strace."""

from __future__ import annotations

from contextlib import closing

import pytest

from weft.daemons.core.actions import FiveTuple
from weft.testbed.data_plane import flow_rewrite
from weft.testbed.linux import netlink, nft
from weft.testbed.linux.netlink import NetlinkMessage
from weft.topologies.core.address import Prefix

GENMSG = "02000000"
T = nft.NftTable("t")
TABLE = "06000100 74000000"
SET = "06000200 6d000000"
KEY = bytes.fromhex("0a000001")


@pytest.mark.parametrize(
    ("message", "kind", "body"),
    [
        (
            T.chain("out", "route", nft.LOCAL_OUT),
            0xA03,
            TABLE
            + "08000300 6f757400 0a000700 726f757465000000"
            + "14000480 08000100 00000003 08000200 ffffff6a",
        ),
        (
            T.map("m", 1, nft.ADDRESS, nft.ADDRESS),
            0xA09,
            TABLE
            + SET
            + "08000300 00000008 08000400 00000007 08000500 00000004"
            + "08000600 00000007 08000700 00000004 08000a00 00000001",
        ),
        (
            T.element("m", KEY, bytes.fromhex("40000001")),
            0xA0C,
            TABLE + SET + "20000380 1c000180 0c000180 08000100 0a000001 0c000280 08000100 40000001",
        ),
        (
            T.element("m", KEY, None),
            0xA0E,
            TABLE + SET + "14000380 10000180 0c000180 08000100 0a000001",
        ),
    ],
    ids=["chain", "map", "new element", "removed element"],
)
def test_a_message_is_that_of_nft(message: NetlinkMessage, kind: int, body: str) -> None:
    assert message.kind == kind
    assert message.body == bytes.fromhex(GENMSG + body)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (
            nft.load(nft.NETWORK_HEADER, 16, 4),
            "34000180 0c000100 7061796c 6f616400 24000280 08000100 00000001"
            "08000200 00000001 08000300 00000010 08000400 00000004",
        ),
        (
            nft.store(nft.NETWORK_HEADER, 16, 4, 10, pseudo_header=True),
            "4c000180 0c000100 7061796c 6f616400 3c000280 08000500 00000001 08000200 00000001"
            "08000300 00000010 08000400 00000004 08000600 00000001 08000700 0000000a"
            "08000800 00000001",
        ),
        (
            nft.accept(),
            "30000180 0e000100 696d6d65 64696174 65000000 1c000280 08000100 00000000"
            "10000280 0c000280 08000100 00000001",
        ),
    ],
    ids=["load", "store", "accept"],
)
def test_an_expression_is_that_of_nft(expression: bytes, expected: str) -> None:
    assert expression == bytes.fromhex(expected)


def test_a_prefix_is_an_interval_whose_end_is_an_element_of_its_own() -> None:
    prefix = Prefix(0x40000000, 8)
    flush, change = T.prefixes("m", {prefix: 65})
    assert (flush.kind & 0xFF, change.kind & 0xFF) == (nft.DELSETELEM, nft.NEWSETELEM)
    elements = netlink.attributes(change.body, nft.GENMSG.size)[3]
    begin = "1c000180 0c000180 08000100 40000000 0c000280 05000100 41000000"
    end = "18000180 0c000180 08000100 41000000 08000300 00000001"
    assert elements == bytes.fromhex(begin + end)
    assert change.command == "nft add element ip t m { 64.0.0.0/8 : 65 }"


def test_a_flow_key_has_four_words() -> None:
    key = flow_rewrite.key_of(FiveTuple(0x0A000001, 0x0A000002, 6, 0x03E807D0))
    assert key == bytes.fromhex("0a000001 40000002 06000000 03e807d0")
    assert len(key) == nft.FLOW.size_bytes


def test_a_new_table_replaces_one_of_that_name() -> None:
    messages = T.replace()
    assert [message.kind & 0xFF for message in messages] == [
        nft.NEWTABLE,
        nft.DELTABLE,
        nft.NEWTABLE,
    ]
    assert [message.command for message in messages] == [
        "nft add table ip t",
        "nft delete table ip t",
        "nft add table ip t",
    ]


@pytest.mark.parametrize("intervals", [False, True])
def test_a_map_of_prefixes_has_intervals(intervals: bool) -> None:
    message = T.map("m", 1, nft.ADDRESS, nft.OCTET, intervals=intervals)
    flags = netlink.attributes(message.body, nft.GENMSG.size)[3]
    assert flags == bytes([0, 0, 0, nft.SET_MAP | (nft.SET_INTERVAL if intervals else 0)])
    assert ("flags interval;" in message.command) == intervals


def test_a_transaction_that_is_refused_as_a_whole_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nft, "NF_TABLES", 4)  # nfnetlink_log, which has no transactions
    tables = nft.Ruleset()
    tables.socket.settimeout(10)
    with closing(tables), pytest.raises(netlink.NetlinkError, match="nft add table ip t: "):
        tables.change(T.replace())

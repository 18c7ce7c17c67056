"""Every message that we pack, decoded by pyroute2: its names, and its values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest
from pyroute2.netlink import nla_base, nlmsg_base
from pyroute2.netlink.nfnetlink.nftsocket import AsyncNFTSocket

from weft.testbed.linux import fib, interface, live_port, netlink, nft, tc, tc_filters
from weft.testbed.linux.interface import NamedDevice, Tunnel
from weft.testbed.linux.iproute import decoded
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.plan import network_plan
from weft.topologies.core.address import IPV6, Prefix
from weft.topologies.core.link import LinkSpec, Mbps

PREFIXES = ("IFLA_", "IFA_", "RTA_", "NDA_", "TCA_", "NFTA_", "VETH_", "NLMSGERR_ATTR_")
MODULES = (interface, fib, tc, tc_filters, nft, netlink, network_plan)
# that pyroute2 0.9.7 has no names for; tests of those modules compare with tc and nft
UNKNOWN_TO_PYROUTE2 = {
    "NFTA_LIST_ELEM",  # an element of an unnamed list
    "NFTA_SET_DESC_SIZE",
    "TCA_BPF_FLAG_ACT_DIRECT",  # a value
    "TCA_NETEM_JITTER64",
    "TCA_NETEM_LATENCY64",
}
DEVICE = NamedDevice(77, "h0-eth0")
LINK = LinkSpec(rate_bps=100 * Mbps, queue_packets=250, trim_packets=8)


def classes(base: type) -> Iterator[type]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from classes(subclass)


def numbers() -> dict[str, set[int]]:
    """Return the numbers of every attribute that pyroute2 knows, by name."""
    known: dict[str, set[int]] = defaultdict(set)
    packed = {*classes(nlmsg_base), *classes(nla_base)}
    tables = [
        vars(parent).get("nla_map", ())
        for parent in {parent for kind in packed for parent in kind.__mro__}
    ]
    for position, entry in (pair for table in tables for pair in enumerate(table)):
        number, name = entry[:2] if isinstance(entry[0], int) else (position, entry[0])
        known[name].add(number)
    return known


def constants(module: ModuleType) -> dict[str, int]:
    return {
        name: value
        for name, value in vars(module).items()
        if name.startswith(PREFIXES) and isinstance(value, int)
    }


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_an_attribute_has_the_number_that_pyroute2_knows_by_its_name(module):
    known = numbers()
    ours = constants(module)
    assert ours
    assert {name for name in ours if name not in known} <= UNKNOWN_TO_PYROUTE2
    assert all(number in known[name] for name, number in ours.items() if name in known)


def command_of(value: Any) -> str:
    return getattr(value, "command", "")


def plain(value: Any) -> Any:
    """Return what pyroute2 decoded as dicts and lists, without zeros and headers."""
    if isinstance(value, Mapping):
        fields = {
            name: plain(field)
            for name, field in value.items()
            if field and name not in ("attrs", "header", "event", "state", "ifi_type")
        }
        return fields | {name: plain(field) for name, field in value.get("attrs") or ()}
    return [*map(plain, value)] if isinstance(value, list | tuple) else value


MAC = "02:00:00:01:00:02"
SIDE = interface.veth_side(DEVICE, bytes.fromhex(MAC.replace(":", "")), up=True)
END = {
    "index": 77,
    "flags": 1,
    "change": 1,
    "IFLA_IFNAME": "h0-eth0",
    "IFLA_ADDRESS": MAC,
    "IFLA_NUM_TX_QUEUES": 1,
    "IFLA_NUM_RX_QUEUES": 1,
}
VXLAN = {
    "IFLA_VXLAN_ID": 5,
    "IFLA_VXLAN_GROUP": "192.0.2.2",
    "IFLA_VXLAN_LOCAL": "192.0.2.1",
    "IFLA_VXLAN_LEARNING": 0,
    "IFLA_VXLAN_PORT": 4790,
}
ROUTE = {"family": 2, "table": 254, "proto": 177, "dst_len": 8, "RTA_DST": "10.0.0.0"}
ROUTE_6 = {"family": 10, "table": 254, "proto": 177}
HTB_RATES = {
    "rate___reserved": 1,
    "rate": 12_500_000,
    "ceil___reserved": 1,
    "ceil": 12_500_000,
    "buffer": 15625,
    "cbuffer": 15625,
    "quantum": 1600,
}
DATA, HEADERS = tc.classes(DEVICE, LINK)[1:]
OF_DATA = {**HTB_RATES, "rate": 1, "buffer": 15_625_000, "quantum": 1514}
REDIRECT = {"action": 4, "eaction": 1, "ifindex": 78}
MESSAGES: list[tuple[NetlinkMessage, dict[str, Any]]] = [
    (interface.set_up(DEVICE), {"index": 77, "flags": 1, "change": 1}),
    (interface.set_up(DEVICE, False), {"index": 77, "change": 1}),
    (interface.set_carrier(DEVICE, False), {"index": 77, "IFLA_PROTO_DOWN": 1}),
    (
        network_plan.new_bridge(DEVICE),
        {
            **{"index": 77, "flags": 1, "change": 1, "IFLA_IFNAME": "h0-eth0"},
            "IFLA_LINKINFO": {
                "IFLA_INFO_KIND": "bridge",
                "IFLA_INFO_DATA": {"IFLA_BR_MCAST_SNOOPING": 0},
            },
        },
    ),
    (
        interface.veth(SIDE, SIDE, 9, "far"),
        {
            **END,
            "IFLA_LINKINFO": {
                "IFLA_INFO_KIND": "veth",
                "IFLA_INFO_DATA": {"VETH_INFO_PEER": {**END, "IFLA_NET_NS_FD": 9}},
            },
        },
    ),
    (
        interface.vxlan(SIDE, (9, "far"), Tunnel(5, "192.0.2.1", "192.0.2.2", 4790)),
        {
            **END,
            "IFLA_NET_NS_FD": 9,
            "IFLA_LINKINFO": {"IFLA_INFO_KIND": "vxlan", "IFLA_INFO_DATA": VXLAN},
        },
    ),
    (
        interface.add_address(DEVICE, Prefix(0x0A000001, 24)),
        {
            **{"family": 2, "prefixlen": 24, "index": 77},
            **{"IFA_LOCAL": "10.0.0.1", "IFA_ADDRESS": "10.0.0.1"},
        },
    ),
    (
        fib.route_message(Prefix(0x0A000000, 8), [(77, "h0-eth0", 0x0A000002)], 0x0A000001),
        {
            **ROUTE,
            **{"type": 1, "flags": 4, "RTA_PREFSRC": "10.0.0.1"},
            **{"RTA_OIF": 77, "RTA_GATEWAY": "10.0.0.2"},
        },
    ),
    (
        fib.route_message(Prefix(0x0A000000, 8), [(77, "a", 1 << 24), (78, "b", 2 << 24)], 3 << 24),
        {
            **ROUTE,
            **{"type": 1, "RTA_PREFSRC": "3.0.0.0"},
            "RTA_MULTIPATH": [
                {"flags": 4, "oif": 77, "RTA_GATEWAY": "1.0.0.0"},
                {"flags": 4, "oif": 78, "RTA_GATEWAY": "2.0.0.0"},
            ],
        },
    ),
    (fib.route_message(Prefix(0x0A000000, 8), [], 0), {**ROUTE, "type": 7}),
    (
        interface.add_address(DEVICE, Prefix(0x0A000001, 32), IPV6),
        {
            **{"family": 10, "prefixlen": 128, "index": 77, "flags": 2},
            "IFA_ADDRESS": "fd77:6566:7400::a00:1",
        },
    ),
    (
        fib.route_message(Prefix(0, 0), [(77, "a", 1 << 24)], 3 << 24, IPV6),
        {
            **ROUTE_6,
            **{"dst_len": 96, "RTA_DST": "fd77:6566:7400::", "type": 1, "flags": 4},
            **{"RTA_OIF": 77, "RTA_GATEWAY": "fe80::100:0"},
            "RTA_PREFSRC": "fd77:6566:7400::300:0",
        },
    ),
    (
        fib.route_message(
            Prefix(0x0A000000, 8), [(77, "a", 1 << 24), (78, "b", 2 << 24)], 3 << 24, IPV6
        ),
        {
            **ROUTE_6,
            **{"dst_len": 104, "RTA_DST": "fd77:6566:7400::a00:0", "type": 1},
            "RTA_PREFSRC": "fd77:6566:7400::300:0",
            "RTA_MULTIPATH": [
                {"flags": 4, "oif": 77, "RTA_GATEWAY": "fe80::100:0"},
                {"flags": 4, "oif": 78, "RTA_GATEWAY": "fe80::200:0"},
            ],
        },
    ),
    (
        fib.route_message(Prefix(0x0A000000, 8), [], 0, IPV6),
        {**ROUTE_6, "dst_len": 104, "RTA_DST": "fd77:6566:7400::a00:0", "type": 7},
    ),
    (
        fib.neighbour_message(77, "h0-eth0", 0x0A000002, bytes([2, 0, 0, 1, 0, 2]), IPV6),
        {"family": 10, "ifindex": 77, "NDA_DST": "fe80::a00:2", "NDA_LLADDR": MAC},
    ),
    (fib.removal_message(Prefix(0x0A000000, 8)), {**ROUTE, "scope": 255}),
    (
        fib.static_route(Prefix(0x0A000000, 8), DEVICE, gateway=1 << 24, source=5, table=6330),
        {
            **{"family": 2, "dst_len": 8, "proto": 4, "type": 1, "flags": 4},
            **{"RTA_DST": "10.0.0.0", "RTA_TABLE": 6330, "RTA_OIF": 77},
            **{"RTA_GATEWAY": "1.0.0.0", "RTA_PREFSRC": "0.0.0.5"},
        },
    ),
    (
        fib.neighbour_message(77, "h0-eth0", 0x0A000002, bytes([2, 0, 0, 1, 0, 2])),
        {"family": 2, "ifindex": 77, "NDA_DST": "10.0.0.2", "NDA_LLADDR": MAC},
    ),
    (
        tc.shape(DEVICE, LINK)[0],
        {
            **{"index": 77, "handle": 0x10000, "parent": 0xFFFFFFFF, "TCA_KIND": "htb"},
            "TCA_OPTIONS": {
                "TCA_HTB_INIT": {"version": 3, "rate2quantum": 10, "defcls": 0x10},
                "TCA_HTB_DIRECT_QLEN": 1000,
            },
        },
    ),
    (
        tc.classes(DEVICE, LINK)[0],
        {
            **{"index": 77, "handle": 0x10001, "parent": 0x10000, "TCA_KIND": "htb"},
            "TCA_OPTIONS": {"TCA_HTB_PARMS": HTB_RATES},
        },
    ),
    (
        DATA,
        {
            **{"index": 77, "handle": 0x10010, "parent": 0x10001, "TCA_KIND": "htb"},
            "TCA_OPTIONS": {"TCA_HTB_PARMS": OF_DATA},
        },
    ),
    (
        HEADERS,
        {
            **{"index": 77, "handle": 0x10020, "parent": 0x10001, "TCA_KIND": "htb"},
            "TCA_OPTIONS": {"TCA_HTB_PARMS": {**OF_DATA, "quantum": 640}},
        },
    ),
    (
        tc.fifo(DEVICE, tc.DATA, tc.FIFO, 250),
        {
            **{"index": 77, "handle": 0x100000, "parent": 0x10010, "TCA_KIND": "pfifo"},
            "TCA_OPTIONS": {"limit": 250},
        },
    ),
    (
        tc.clsact(DEVICE),
        {"index": 77, "handle": 0xFFFF0000, "parent": 0xFFFFFFF1, "TCA_KIND": "clsact"},
    ),
    (
        tc.delay(DEVICE, 100, jitter_us=5),
        {
            **{"index": 77, "handle": 0x20000, "parent": 0xFFFFFFFF, "TCA_KIND": "netem"},
            "TCA_OPTIONS": {"delay": 1562, "limit": 1_000_000, "jitter": 78, "UNKNOWN": {}},
        },
    ),
    (
        tc_filters.redirect_arrivals(DEVICE, NamedDevice(78, "ifb")),
        {
            **{"index": 77, "parent": 0xFFFFFFF2, "info": 10 << 16 | 0x300, "TCA_KIND": "u32"},
            "TCA_OPTIONS": {
                "TCA_U32_SEL": {"flags": 1, "nkeys": 1, "keys": [{}]},
                "TCA_U32_ACT": {
                    "TCA_ACT_PRIO_1": {
                        "TCA_ACT_KIND": "mirred",
                        "TCA_ACT_OPTIONS": {"TCA_MIRRED_PARMS": REDIRECT},
                    }
                },
            },
        },
    ),
    (
        live_port.loss(DEVICE, 1_000_000),
        {
            **{"index": 77, "parent": 0xFFFFFFF2, "info": 2 << 16 | 0x300, "TCA_KIND": "bpf"},
            # pyroute2 reads the first of four instructions: ld rand
            "TCA_OPTIONS": {"TCA_BPF_OPS_LEN": 4, "TCA_BPF_OPS": 0x20, "TCA_BPF_FLAGS": 1},
        },
    ),
    (tc_filters.remove_filter(DEVICE, 2), {"index": 77, "parent": 0xFFFFFFF2, "info": 2 << 16}),
]


@pytest.mark.parametrize(("message", "expected"), MESSAGES, ids=command_of)
def test_pyroute2_reads_in_a_message_what_it_should_change(message, expected):
    read = plain(decoded(message))
    if message.kind == netlink.RTM_NEWNEIGH:
        assert decoded(message)["state"] == fib.NUD_PERMANENT
    assert read == expected


def test_every_message_of_the_family_route_is_among_them():
    kinds = {message.kind for message, _ in MESSAGES}
    named = {value for name, value in vars(netlink).items() if name.startswith("RTM_")}
    asked = {netlink.RTM_GETLINK, netlink.RTM_GETROUTE, netlink.RTM_GETQDISC}
    asked |= {netlink.RTM_GETTCLASS, netlink.RTM_GETTFILTER, netlink.RTM_GETSTATS}
    assert named - asked - kinds <= {netlink.RTM_DELLINK, netlink.RTM_DELQDISC}


def nft_decoded(message: NetlinkMessage) -> Any:
    """Return an nftables message as pyroute2 decodes it."""
    header = netlink.HEADER.pack(16 + len(message.body), message.kind, message.flags, 1, 0)
    read = AsyncNFTSocket.policy[message.kind & 0xFF](header + message.body)
    read.decode()
    return plain(read)


TABLE = nft.NftTable("weft")
FIRST = {"NFTA_SET_ELEM_KEY": {"NFTA_DATA_VALUE": b"\x0a\0\0\0"}}
NFT_MESSAGES: list[tuple[NetlinkMessage, dict[str, Any]]] = [
    (TABLE.replace()[0], {"NFTA_TABLE_NAME": "weft"}),
    (
        TABLE.chain("out", "route", nft.LOCAL_OUT),
        {
            **{"NFTA_CHAIN_TABLE": "weft", "NFTA_CHAIN_NAME": "out", "NFTA_CHAIN_TYPE": "route"},
            "NFTA_CHAIN_HOOK": {"NFTA_HOOK_HOOKNUM": 3, "NFTA_HOOK_PRIORITY": -150},
        },
    ),
    (
        TABLE.map("to", 3, nft.ADDRESS, nft.OCTET, intervals=True),
        {
            **{"NFTA_SET_TABLE": "weft", "NFTA_SET_NAME": "to", "NFTA_SET_ID": 3},
            "NFTA_SET_FLAGS": {"NFT_SET_MAP", "NFT_SET_INTERVAL"},
            **{"NFTA_SET_KEY_TYPE": 7, "NFTA_SET_KEY_LEN": 4},
            **{"NFTA_SET_DATA_TYPE": 4, "NFTA_SET_DATA_LEN": 1},
        },
    ),
    (
        TABLE.memory("seen", 4, nft.ADDRESS, 1000, 65536),
        {
            **{"NFTA_SET_TABLE": "weft", "NFTA_SET_NAME": "seen", "NFTA_SET_ID": 4},
            "NFTA_SET_FLAGS": {"NFT_SET_EVAL", "NFT_SET_TIMEOUT"},
            **{"NFTA_SET_KEY_TYPE": 7, "NFTA_SET_KEY_LEN": 4, "NFTA_SET_TIMEOUT": 1000},
            "NFTA_SET_DESC": {"NFTA_SET_DESC_SIZE": 65536},
        },
    ),
    (
        TABLE.prefixes("to", {Prefix(0x0A000000, 8): 7})[1],
        {
            **{"NFTA_SET_ELEM_LIST_TABLE": "weft", "NFTA_SET_ELEM_LIST_SET": "to"},
            "NFTA_SET_ELEM_LIST_ELEMENTS": [
                {**FIRST, "NFTA_SET_ELEM_DATA": {"NFTA_DATA_VALUE": b"\x07"}},
                {
                    "NFTA_SET_ELEM_KEY": {"NFTA_DATA_VALUE": b"\x0b\0\0\0"},
                    "NFTA_SET_ELEM_FLAGS": {1},
                },
            ],
        },
    ),
    (
        TABLE.element("to", b"\x0a\0\0\0", None),
        {
            **{"NFTA_SET_ELEM_LIST_TABLE": "weft", "NFTA_SET_ELEM_LIST_SET": "to"},
            "NFTA_SET_ELEM_LIST_ELEMENTS": [FIRST],
        },
    ),
]


@pytest.mark.parametrize(("message", "expected"), NFT_MESSAGES, ids=command_of)
def test_pyroute2_reads_in_a_message_of_nft_what_it_should_change(message, expected):
    assert nft_decoded(message) == {"nfgen_family": 2, **expected}


NETWORK = "NFT_PAYLOAD_NETWORK_HEADER"
EXPRESSIONS = [
    (
        nft.load(nft.NETWORK_HEADER, 16, 4),
        "payload",
        {
            **{"NFTA_PAYLOAD_DREG": "NFT_REG_1", "NFTA_PAYLOAD_BASE": NETWORK},
            **{"NFTA_PAYLOAD_OFFSET": 16, "NFTA_PAYLOAD_LEN": 4},
        },
    ),
    (
        nft.store(nft.NETWORK_HEADER, 16, 4, 10, pseudo_header=True),
        "payload",
        {
            **{"NFTA_PAYLOAD_SREG": "NFT_REG_1", "NFTA_PAYLOAD_BASE": NETWORK},
            **{"NFTA_PAYLOAD_OFFSET": 16, "NFTA_PAYLOAD_LEN": 4},
            **{"NFTA_PAYLOAD_CSUM_TYPE": "NFT_PAYLOAD_CSUM_INET", "NFTA_PAYLOAD_CSUM_OFFSET": 10},
            "NFTA_PAYLOAD_CSUM_FLAGS": {"NFT_PAYLOAD_L4CSUM_PSEUDOHDR"},
        },
    ),
    (
        nft.load_meta(nft.INPUT_DEVICE),
        "meta",
        {"NFTA_META_KEY": "NFT_META_IIF", "NFTA_META_DREG": "NFT_REG_1"},
    ),
    (
        nft.compare(nft.UNEQUAL, b"x", nft.WORDS[2]),
        "cmp",
        {
            **{"NFTA_CMP_SREG": "NFT_REG32_02", "NFTA_CMP_OP": "NFT_CMP_NEQ"},
            "NFTA_CMP_DATA": {"NFTA_DATA_VALUE": b"x"},
        },
    ),
    (
        nft.mask(0xFF, 0x100),
        "bitwise",
        {
            **{"NFTA_BITWISE_SREG": "NFT_REG_1", "NFTA_BITWISE_DREG": "NFT_REG_1"},
            "NFTA_BITWISE_LEN": 4,
            "NFTA_BITWISE_MASK": {"NFTA_DATA_VALUE": b"\0\0\0\xff"},
            "NFTA_BITWISE_XOR": {"NFTA_DATA_VALUE": b"\0\0\1\0"},
        },
    ),
    (
        nft.constant(b"abcd"),
        "immediate",
        {
            "NFTA_IMMEDIATE_DREG": "NFT_REG_1",
            "NFTA_IMMEDIATE_DATA": {"NFTA_DATA_VALUE": b"abcd"},
        },
    ),
    (
        nft.accept(),
        "immediate",
        {
            "NFTA_IMMEDIATE_DREG": "NFT_REG_VERDICT",
            "NFTA_IMMEDIATE_DATA": {"NFTA_DATA_VERDICT": {"NFTA_VERDICT_CODE": "NF_ACCEPT"}},
        },
    ),
    (
        nft.look_up("to"),
        "lookup",
        {
            **{"NFTA_LOOKUP_SET": "to", "NFTA_LOOKUP_SREG": "NFT_REG_1"},
            "NFTA_LOOKUP_DREG": "NFT_REG_1",
        },
    ),
    (
        nft.unless_in("seen"),
        "lookup",
        {
            **{"NFTA_LOOKUP_SET": "seen", "NFTA_LOOKUP_SREG": "NFT_REG_1"},
            "NFTA_LOOKUP_FLAGS": {"NFT_LOOKUP_F_INV"},
        },
    ),
    (
        nft.remember_in("seen"),
        "dynset",
        {
            **{"NFTA_DYNSET_SET_NAME": "seen", "NFTA_DYNSET_OP": "NFT_DYNSET_OP_ADD"},
            "NFTA_DYNSET_SREG_KEY": "NFT_REG_1",
        },
    ),
    (
        nft.log(6330, 24),
        "log",
        # pyroute2 reads 32 bits of it; the kernel has 16 (nft_log.c)
        {"NFTA_LOG_GROUP": 6330 << 16, "NFTA_LOG_SNAPLEN": 24},
    ),
]


@pytest.mark.parametrize(("expression", "name", "data"), EXPRESSIONS)
def test_pyroute2_reads_in_an_expression_what_it_should_do(expression, name, data):
    (read,) = nft_decoded(TABLE.rule("out", [expression], ""))["NFTA_RULE_EXPRESSIONS"]
    assert read == {"NFTA_EXPR_NAME": name, "NFTA_EXPR_DATA": data}

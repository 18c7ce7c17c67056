import ipaddress
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.topologies import build
from weft.topologies.core.address import (
    IPV4,
    IPV6,
    AddressLayout,
    FabricNaming,
    Prefix,
    Tier,
    dotted,
)
from weft.topologies.recursive.ccrdn import BETA_DCELL, DCELL, FICONN, Ccrdn, CcrdnNaming

NETWORKS = [
    *(
        "dcell:n=4,k=1",
        "dcell:n=3,k=2",
        "beta-dcell:n=3,k=2",
        "ficonn:n=4,k=3",
        "dcell:n=300,k=0",
        "dcell:n=3,k=0",
    ),
    *("bcube:n=4,k=2", "gqstar:n=4,k=2", "gqstar:n=2,k=9"),
    *("fattree:k=4", "fattree:k=2", "fattree:n=2,d=4", "fattree:n=4,d=3", "fattree:n=6,d=2"),
    *("fattree:k=4,oversubscription=200", "clos:n=3,r=300,m=2", "star:n=300", "complete:n=7,p=2"),
    *(
        "slimfly:q=3,p=2",
        "dragonfly:p=2",
        "hyperx:l=3,s=3",
        "jellyfish:n=300,r=3,p=2,seed=1",
        "xpander:r=3,l=2,seed=5",
    ),
]
# digits over 255
LARGE = [(FICONN, 16, 3), (FICONN, 48, 2), (DCELL, 43, 2), (DCELL, 6, 3), (BETA_DCELL, 18, 2)]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), st.data())
def test_labels_numbers_and_addresses_say_the_same(radices, data):
    layout = AddressLayout(tuple(radices))
    if (len(radices) > 3 or max(radices) > 256) and sum(
        max(1, (radix - 1).bit_length()) for radix in radices
    ) > 24:
        with pytest.raises(ValueError, match=r"bits of address; 10\.0\.0\.0/8 has 24$"):
            layout.address([0] * len(radices))
        return
    digits = tuple(data.draw(st.integers(0, radix - 1)) for radix in radices)
    number = layout.number_of(digits)
    assert layout.label_of(number) == digits
    assert layout.digits(layout.address(digits)) == digits
    assert layout.address(digits) >> 24 == 10
    for length in range(len(digits) + 1):
        assert layout.prefix(digits[:length]).holds(layout.address(digits))


@pytest.mark.parametrize(("rule", "n", "k"), LARGE)
def test_a_large_network_has_an_address_for_each_server(rule, n, k):
    naming = CcrdnNaming(Ccrdn(rule, n, k))
    assert naming.layout.radices[0] > 255
    for server in [*range(0, naming.servers, naming.servers // 500), naming.servers - 1]:
        digits = naming.layout.digits(naming.address(server))
        assert naming.node(naming.label(server)) == naming.node(naming.name(server)) == server
        assert naming.label(server) == "s" + ".".join(map(str, digits))
        # CCRDN 3.1: uid_k(x) = x_k t_{k-1} + ... + x_1 t_0 + x_0
        assert server == sum(
            x * t for x, t in zip(digits, [*reversed(naming.network.t[:-1]), 1], strict=True)
        )


@pytest.mark.parametrize("spec", NETWORKS)
def test_names_labels_and_addresses_of_all_nodes_are_distinct_and_lead_back(spec):
    topology = build(spec)
    naming = topology.naming
    nodes = range(topology.nodes)
    names = [naming.name(node) for node in nodes]
    assert [naming.node(name) for name in names] == list(nodes)
    assert [naming.node(naming.label(node)) for node in nodes] == list(nodes)
    assert len({naming.label(node) for node in nodes}) == len(set(names)) == topology.nodes
    routing = [node for node in nodes if not topology.is_crossbar(node)]
    addresses = {ipaddress.IPv4Address(naming.address(node)) for node in routing}
    assert len(addresses) == len(routing)
    blocks = [ipaddress.IPv4Network("10.0.0.0/8"), ipaddress.IPv4Network("172.16.0.0/12")]
    assert all(any(address in block for block in blocks) for address in addresses)
    longest = max(
        len(f"{names[node]}-eth{port}") for node in nodes for port, *_ in topology.ports(node)
    )
    assert longest <= 15  # what the kernel allows an interface


@pytest.mark.parametrize(
    ("spec", "name", "label", "address"),
    [
        ("dcell:n=3,k=2", "h15", "s1.1.0", "10.1.1.0"),
        ("dcell:n=4,k=1", "h7", "s1.3", "10.0.1.3"),
        ("gqstar:n=4,k=2", "h44", "s1.3.2", "10.1.3.2"),
        ("fattree:k=4", "h7", "s1.1.1", "10.1.1.1"),
        ("fattree:k=4", "e1.1", "e1.1", "172.17.1.1"),
        ("fattree:k=4", "a0.1", "a0.1", "172.18.0.1"),
        ("fattree:k=4", "c3", "c3", "172.19.0.3"),
        ("fattree:n=4,d=2", "b3.2", "b3.2", "172.19.3.2"),
        ("fattree:n=2,d=4", "e7", "e7", "172.17.0.7"),
        ("clos:n=8,r=2,m=4", "h9", "s1.1", "10.0.1.1"),
        ("clos:n=8,r=2,m=4", "c3", "c3", "172.18.0.3"),
        ("star:n=8", "h3", "s3", "10.0.0.3"),
        ("star:n=8", "r0", "r0", "172.17.0.0"),
        ("complete:n=5,p=4", "r4", "r4", "172.17.0.4"),
    ],
)
def test_an_address_can_be_worked_out_in_the_head(spec, name, label, address):
    naming = build(spec).naming
    node = naming.node(name)
    assert (naming.label(node), dotted(naming.address(node))) == (label, address)


@pytest.mark.parametrize(
    ("spec", "text", "line"),
    [
        ("dcell:n=4,k=1", "h20", "no server h20: they are h0 .. h19"),
        ("dcell:n=4,k=1", "w5", "no node 'w5': servers are h0 .. h19, switches w0 .. w4"),
        ("dcell:n=4,k=1", "s1.4", "label 1.4: its digits are at most 4.3"),
        ("dcell:n=4,k=1", "s1", "no label 1: they are 0.0 .. 4.3"),
        (
            "fattree:k=4",
            "e4.0",
            "no node 'e4.0': servers are h0 .. h15, switches e0.0 .. e3.1, a0.0 .. a3.1, c0 .. c3",
        ),
        (
            "fattree:k=4",
            "c0.1",
            "no node 'c0.1': servers are h0 .. h15, switches e0.0 .. e3.1, a0.0 .. a3.1, c0 .. c3",
        ),
        ("star:n=8", "r1", "no node 'r1': servers are h0 .. h7, switches r0"),
        ("star:n=8", "", "no node '': servers are h0 .. h7, switches r0"),
        ("star:n=8", "h٣", "no node 'h٣': servers are h0 .. h7, switches r0"),
    ],
)
def test_a_name_that_is_none(spec, text, line):
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        build(spec).naming.node(text)


def test_what_has_no_address():
    with pytest.raises(ValueError, match="w0 is a crossbar and has no address"):
        (dcell := build("dcell:n=4,k=1")).naming.address(dcell.servers)
    highest = build("fattree:n=15,d=1").naming
    assert dotted(highest.address(highest.node("c0"))) == "172.31.0.0"
    wide = FabricNaming([2], [Tier("r", (70_000,))])
    assert (
        dotted(FabricNaming([2], [Tier("r", (1 << 16,))]).address(2 + 65_535)) == "172.17.255.255"
    )
    with pytest.raises(ValueError, match=r"need 17 bits of address; 172\.17\.0\.0/16 has 16"):
        wide.address(2)
    deep = build("fattree:n=17,d=1").naming
    with pytest.raises(ValueError, match="room for 15 tiers"):
        deep.address(deep.node("c0"))
    with pytest.raises(ValueError, match=r"10\.4\.0\.0 is no server's address"):
        deep.layout.digits(10 << 24 | 2 << 17)


@pytest.mark.parametrize("spec", ["fattree:k=4", "fattree:n=4,d=2", "clos:n=2,r=3,m=2", "star:n=3"])
def test_the_tier_of_a_node_is_its_distance_from_the_hosts(spec):
    topology = build(spec)
    assert isinstance(topology.naming, FabricNaming)
    tier = dict.fromkeys(range(topology.servers), 0)
    while len(tier) < topology.nodes:
        above = {peer for node in tier for _, peer, *_ in topology.ports(node)} - set(tier)
        tier |= dict.fromkeys(above, max(tier.values()) + 1)
    assert {node: topology.naming.tier(node) for node in range(topology.nodes)} == tier


def test_prefix():
    prefix = Prefix(10 << 24 | 1 << 16, 16)
    assert str(prefix) == "10.1.0.0/16"
    assert prefix.holds(10 << 24 | 1 << 16 | 77)
    assert not prefix.holds(10 << 24 | 2 << 16)
    assert Prefix(0, 0).holds(10 << 24)


def test_an_ipv6_address_ends_with_that_of_ipv4():
    host = build("fattree:k=4").naming.address(5)
    assert ipaddress.IPv6Address(IPV6.address(host)).packed[-4:] == host.to_bytes(4, "big")
    assert ipaddress.IPv6Address(IPV6.address(host)).is_private
    assert ipaddress.IPv6Address(IPV6.next_hop(host)).is_link_local
    assert IPV6.prefix(Prefix(10 << 24, 8)) == "fd77:6566:7400::10.0.0.0/104"
    assert ipaddress.IPv6Network(IPV6.prefix(Prefix(10 << 24, 8))).num_addresses == 1 << 24
    assert (IPV4.address(host), IPV4.next_hop(host)) == ("10.1.0.1", "10.1.0.1")
    assert IPV4.prefix(Prefix(10 << 24, 8)) == "10.0.0.0/8"

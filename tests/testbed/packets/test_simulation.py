"""Flows on simulated networks: paths, loads, rates, failures, from other code or a pencil."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.daemons.core import registry
from weft.testbed.packets import simulation
from weft.testbed.packets.network import PortTable
from weft.testbed.packets.simulation import Fault, PacketFlows, simulate
from weft.testbed.packets.transport import ALL, PARAMETERS, SUMMARIES, transport
from weft.topologies import build
from weft.topologies.core.failures import fail_links
from weft.topologies.core.link import Gbps, LinkSpec, Mbps
from weft.topologies.core.topology import Topology
from weft.topologies.core.user_graph import topology_of

FRAME_BYTES, HEADER_BYTES = 1514, 66
LINK = LinkSpec(rate_bps=Gbps, queue_packets=1000, delay_us=1)
SCHEMES = {
    "dcell:n=3,k=1": ("dr", "pr-gpi", "bfs", "dfr"),
    "beta-dcell:n=4,k=1": ("pr-gpe",),
    "ficonn:n=4,k=2": ("tar",),
    "fattree:k=4": ("static",),
}


def crossed(topology: Topology, nodes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return (node, link) of each port along a path."""
    ports, node = [], nodes[0]
    for a, b in pairwise(nodes):
        for link in topology.hop_links(a, b):
            ports.append((node, link))
            near, _, far, _ = topology.ends(link)
            node = far if node == near else near
    return ports


@pytest.mark.parametrize(
    ("spec", "scheme"), [(spec, scheme) for spec, names in SCHEMES.items() for scheme in names]
)
def test_each_port_carries_the_flows_whose_paths_cross_it(spec: str, scheme: str) -> None:
    """Send one packet between all pairs, one after another, and count the frames of each port."""
    topology = build(spec)
    pairs = list(permutations(range(topology.servers), 2))[:400]
    registered, options = registry.checked(topology, scheme)
    rows = [(src, dst, 100, 0.001 * number) for number, (src, dst) in enumerate(pairs)]
    outcome = simulate(topology, scheme, rows, link=LINK)
    frames: Counter[tuple[int, int]] = Counter()
    paths = {
        pair: registered.path(topology, options, *pair)
        for pair in {*pairs, *((dst, src) for src, dst in pairs)}
    }
    if all(len(found) == 1 for found in paths.values()):
        for src, dst in pairs:
            for ends in ((src, dst), (dst, src)):  # a packet there, its acknowledgement back
                frames.update(crossed(topology, paths[ends][0].nodes))
        ports = outcome.ports
        counted = zip(
            ports["node"].tolist(), ports["link"].tolist(), ports["frames"].tolist(), strict=True
        )
        assert {(node, link): count for node, link, count in counted if count} == frames
    hops = [len(crossed(topology, paths[pair][0].nodes)) for pair in pairs]
    assert outcome.unfinished == 0
    # stored and forwarded at each hop
    frame_s = 8 * (100 + HEADER_BYTES) / Gbps + 1e-6
    assert outcome.completion_s == pytest.approx(np.array(hops) * frame_s, rel=1e-4)


def test_a_slow_link_sets_the_rate() -> None:
    """Let a link of a user's graph carry a tenth; a flow over it takes ten times as long."""
    topology = build("dcell:n=4,k=1")
    link = topology.link("h0-h4")
    own = {link: LinkSpec(rate_bps=100 * Mbps, queue_packets=1000, delay_us=1)}
    size_bytes = 10_000_000
    wire_bits = 8 * size_bytes * FRAME_BYTES / (FRAME_BYTES - HEADER_BYTES)
    for own_links, rate_bps in (({}, Gbps), (own, 100 * Mbps)):
        outcome = simulate(topology, "dr", [(0, 4, size_bytes)], link=LINK, own_links=own_links)
        assert outcome.completion_s[0] == pytest.approx(wire_bits / rate_bps, rel=0.02)


def test_a_failed_link_stops_its_flows_until_they_are_routed_around_it() -> None:
    topology = build("dcell:n=4,k=1")
    link, rows = topology.link("h0-h4"), [(0, 4, 5_000_000), (1, 8, 5_000_000)]
    ways = {
        "healthy": (),
        "unnoticed": (Fault([link], 0.01),),
        "noticed": (Fault([link], 0.01, 0.03),),
    }
    times = {
        name: simulate(topology, "bfs", rows, link=LINK, faults=faults, deadline_s=5.0)
        for name, faults in ways.items()
    }
    assert np.isnan(times["unnoticed"].completion_s).tolist() == [True, False]
    assert times["noticed"].unfinished == 0
    assert times["noticed"].completion_s[0] > times["healthy"].completion_s[0] + 0.02
    assert len({outcome.completion_s[1] for outcome in times.values()}) == 1
    assert times["unnoticed"].counters["timeouts"].tolist()[0] > 3


def test_routes_avoid_all_links_that_are_known_to_be_dead() -> None:
    """Let the second failure be known while the first one lasts: no flow goes back to that."""
    topology = build("dcell:n=4,k=1")
    faults = [
        Fault([topology.link("h0-h4")], 0.0, 0.01),
        Fault([topology.link("h1-h8")], 0.02, 0.03),
    ]
    rows = [(0, 4, 5_000_000), (0, 4, 5_000_000, 0.05)]
    outcome = simulate(topology, "bfs", rows, link=LINK, faults=faults, deadline_s=5.0)
    assert outcome.unfinished == 0


def test_a_failure_after_the_end_drops_nothing() -> None:
    link = build("star:n=3").link("h2-r0")
    rows = [(0, 2, 10_000_000), (1, 2, 10_000_000)]
    outcomes = [
        simulate("star:n=3", "ecmp", rows, link=LINK, faults=faults, deadline_s=0.01)
        for faults in ((), (Fault([link], 0.02),))
    ]
    assert outcomes[0].unfinished == 2
    assert outcomes[0].ports["dropped"].tolist() == outcomes[1].ports["dropped"].tolist()


def test_switches_route_around_links_that_they_know_to_be_dead() -> None:
    """Let a fat-tree lose an uplink of a rack; flows hashed to it wait until it is known."""
    topology = build("fattree:k=4")
    uplink = int(np.flatnonzero(topology.level == 1)[0])
    rows = [(0, dst, 200_000) for dst in range(4, 16)]
    unnoticed, noticed = (
        simulate(topology, "ecmp", rows, link=LINK, faults=[fault], deadline_s=20.0)
        for fault in (Fault([uplink], 0.0), Fault([uplink], 0.0, 0.1))
    )
    assert 0 < unnoticed.unfinished < len(rows)
    assert noticed.unfinished == 0


@pytest.mark.parametrize("scheme", ["ecmp", "ugal"])
def test_a_fabric_that_known_failures_part_loses_packets_between_its_parts(scheme: str) -> None:
    """Let the first group of a Dragonfly lose its links to the others."""
    topology = build("dragonfly:p=1,a=2,h=1")
    rows = [(src, dst, 50_000) for src in range(6) for dst in range(6) if src != dst]
    ends = topology.links[:, [0, 2]] - topology.servers
    cut = np.flatnonzero((ends >= 0).all(axis=1) & ((ends < 2).sum(axis=1) == 1)).tolist()
    outcome = simulate(topology, scheme, rows, faults=[Fault(cut, 0.0, 0.0)], deadline_s=1.0)
    assert np.isnan(outcome.completion_s).tolist() == [
        (src < 2) != (dst < 2) for src, dst, _ in rows
    ]
    assert outcome.unrouted


@pytest.mark.parametrize("scheme", ["ecmp", "vlb", "letflow"])
@pytest.mark.parametrize("shift", [0, 512])
def test_flows_take_uplinks_as_random_ones_do(scheme: str, shift: int) -> None:
    """Number flows as their sources, or by a fixed distance: a weak hash then gives all one port.

    Of eight uplinks eight flows at random use 8 (1 - (7/8)^8) = 5.25; means over 128 switches.
    """
    topology = build("fattree:k=16")
    sources = (np.arange(1024) + shift) % 1024
    rows = [(src, (src + 300) % 1024, 1_000, 0.00001 * n) for n, src in enumerate(sources.tolist())]
    means = []
    for seed in (1, 2):
        outcome = simulate(topology, scheme, rows, seed=seed)
        up = np.isin(outcome.ports["link"], np.flatnonzero(topology.level == 1))
        up &= outcome.ports["node"] == topology.links[outcome.ports["link"], 0]
        sent = outcome.ports["bytes"][up].reshape(128, 8)
        means.append((sent > 1_000).sum(axis=1).mean())  # data, not answers alone
    assert means == pytest.approx([5.25, 5.25], abs=0.35)
    assert means[0] != means[1]


def test_switches_that_hash_alike_use_fewer_links() -> None:
    """Let flows that one switch sends to a second by a hash be sent on by the same hash."""
    topology = build("fattree:k=8")
    rows = [(host, 127 - host, 1_000, 0.001 * host) for host in range(64)]
    top = topology.level == 2
    used = {
        scheme: int((simulate(topology, scheme, rows).ports["frames"] > 0)[top_ports].sum())
        for scheme in ("ecmp:seeds=own", "ecmp:seeds=same")
        for top_ports in [np.isin(PortTable.of(topology).link, np.flatnonzero(top))]
    }
    assert used["ecmp:seeds=same"] < 0.6 * used["ecmp:seeds=own"]


def ring(switches: int) -> Topology:
    """Return a ring of switches with two hosts each."""
    graph = nx.cycle_graph(switches)
    hosts = {f"h{n}": n // 2 for n in range(2 * switches)}
    graph.add_nodes_from(hosts, kind="host")
    graph.add_edges_from(hosts.items())
    return topology_of(graph)


@pytest.mark.parametrize("flow_control", ["credits:room_kb=8", "pause:room_kb=8"])
@pytest.mark.parametrize("transport", ["tcp", "ndp:window=64"])
def test_a_ring_whose_packets_all_go_round_deadlocks(flow_control: str, transport: str) -> None:
    """Let each flow take two hops clockwise: all rooms fill, and each waits for the next.

    A line, the ring without a link, has no circle; neither has the ring where rooms hold all.
    """
    rows = [(host, (host + 4) % 10, 300_000) for host in range(10)]
    how = {"transport": transport, "deadline_s": 0.5}
    stuck = simulate(ring(5), "ecmp", rows, flow_control=flow_control, **how)
    assert (stuck.unfinished, stuck.deadlocked) == (10, 15)
    in_circle = stuck.ports["deadlocked"] > 0
    assert (stuck.ports["waited_ns"][in_circle] > 0.9e9 * stuck.ended_s).all()
    line = fail_links(ring(5), [int(np.flatnonzero(ring(5).level > 0)[0])])
    for other, text in ((line, flow_control), (ring(5), "credits:room_kb=3000")):
        passed = simulate(other, "ecmp", rows, flow_control=text, **how)
        assert (passed.unfinished, passed.deadlocked) == (0, 0)
        assert passed.ports["dropped"].sum() + passed.ports["trimmed"].sum() == 0


@pytest.mark.parametrize(
    ("spec", "scheme"),
    [
        ("fattree:k=4", "rps"),
        ("dcell:n=4,k=1", "dr"),
        ("bcube:n=3,k=1", "dr"),
        ("gqstar:n=3,k=2", "dr"),
        ("slimfly:q=3,p=2", "ecmp"),
        ("complete:n=5,p=2", "ecmp"),
    ],
)
def test_only_routes_with_a_circle_of_ports_deadlock(spec: str, scheme: str) -> None:
    """Dally and Seitz (1987): ports wait in a circle only if routes go from each to the next.

    Here routes are walked with networkx, not with the engine's tables.
    """
    topology = build(spec)
    registered, options = registry.checked(topology, scheme)
    waits = nx.DiGraph()
    for src, dst in permutations(range(topology.servers), 2):
        for path in registered.path(topology, options, src, dst):
            waits.add_edges_from(pairwise(crossed(topology, path.nodes)))
    circular = not nx.is_directed_acyclic_graph(waits)
    rows = [
        (src, dst, 200_000)
        for src, dst in permutations(range(topology.servers), 2)
        if (dst - src) % 3 == 1
    ]
    outcome = simulate(topology, scheme, rows, flow_control="credits:room_kb=2", deadline_s=0.2)
    assert circular or not outcome.deadlocked
    assert circular == (spec in ("dcell:n=4,k=1", "gqstar:n=3,k=2", "slimfly:q=3,p=2"))
    assert (outcome.deadlocked > 0) == (outcome.unfinished > 0)


def test_ports_that_wait_for_a_full_host_are_no_deadlock() -> None:
    """Look at each time whether ports wait for good, of flows that all end."""
    rows = [(host, 0, 100_000) for host in range(1, 16)]
    link = LinkSpec(rate_bps=10 * Gbps, queue_packets=5, delay_us=1)
    how = {"link": link, "flow_control": "credits:room_kb=20"}
    for at_s in np.arange(10e-6, 300e-6, 10e-6).tolist():
        outcome = simulate("fattree:k=4", "ecmp", rows, **how, deadline_s=at_s)
        assert outcome.unfinished
        assert not outcome.deadlocked
    assert outcome.ports["waited_ns"].any()
    whole = simulate("fattree:k=4", "ecmp", rows, **how)
    assert whole.unfinished == whole.counters["retransmissions"].sum() == 0


def test_ports_that_wait_for_a_notice_are_no_deadlock() -> None:
    """Let a ring nearly fill: notices take long on its links."""
    link = LinkSpec(rate_bps=10 * Gbps, queue_packets=100, delay_us=50)
    sizes = {0: 6, 1: 1.5, 2: 20, 3: 6, 4: 1.5, 6: 20, 7: 1.5, 8: 6, 9: 1.5}
    rows = [(host, (host + 4) % 10, int(1_000 * kb)) for host, kb in sizes.items()]
    how = {"link": link, "flow_control": "credits:room_kb=4"}
    assert simulate(ring(5), "ecmp", rows, **how).unfinished == 0
    for at_s in np.arange(10e-6, 300e-6, 4e-6).tolist():
        assert not simulate(ring(5), "ecmp", rows, **how, deadline_s=at_s).deadlocked


def test_cut_through_saves_the_time_of_a_packet_at_each_switch() -> None:
    """Send one packet of 1,000 bytes over three switches: one wire time, not four."""
    row = [(0, 15, 1_000)]
    link = LinkSpec(rate_bps=Gbps, queue_packets=9, delay_us=1)
    whole, cut = (
        float(simulate("fattree:k=4", "ecmp", row, link=link, cut_through=cut).completion_s[0])
        for cut in (False, True)
    )
    hops = 6
    assert whole == pytest.approx(hops * (8 * 1_066 / Gbps + 1e-6))
    assert cut == pytest.approx(8 * 1_066 / Gbps + hops * 1e-6 + (hops - 1) * 8 * 64 / Gbps)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"flow_control": "xon"}, "no flow control 'xon'"),
        ({"flow_control": ""}, "no flow control '' \\(there are: credits, none, pause\\)"),
        ({"flow_control": "credits:resume_kb=3"}, "parameter of credits"),
        ({"flow_control": "credits:room_kb=1"}, "a packet of 1514 bytes needs room"),
        ({"flow_control": "pause:room_kb=9,resume_kb=10"}, "resume_kb"),
        (
            {"cut_through": True, "host_link": LinkSpec(rate_bps=Mbps, queue_packets=9)},
            "links of one rate",
        ),
    ],
)
def test_flow_control_that_cannot_be_is_refused(words: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        simulate("fattree:k=4", "ecmp", [(0, 1, 1)], **words)


def test_flows_over_a_server_fill_its_queue() -> None:
    """Let three flows enter a server by three links and leave it by one."""
    link = LinkSpec(rate_bps=Gbps, queue_packets=20, delay_us=1)
    rows = [(src, 4, 3_000_000) for src in (0, 1, 2)]  # all by h0-h4
    outcome = simulate("dcell:n=4,k=1", "dr", rows, link=link, rto_min_us=5_000)
    topology = build("dcell:n=4,k=1")
    at = (outcome.ports["node"] == 0) & (outcome.ports["link"] == topology.link("h0-h4"))
    assert outcome.ports["most_data_bytes"][at].tolist() == [20 * FRAME_BYTES]
    assert outcome.ports["dropped"][at][0] > 0
    wire_s = 3 * 8 * 3_000_000 / Gbps
    assert wire_s < np.max(outcome.completion_s) < 1.5 * wire_s


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_every_flow_ends_on_any_network_and_twice_alike(data) -> None:
    spec, names = data.draw(st.sampled_from(sorted(SCHEMES.items())))
    scheme = data.draw(st.sampled_from(names))
    hosts = st.integers(0, build(spec).servers - 1)
    flow = st.tuples(hosts, hosts, st.integers(1, 300_000), st.floats(0, 0.01))
    rows = [row for row in data.draw(st.lists(flow, min_size=1, max_size=12)) if row[0] != row[1]]
    rows = rows or [(0, 1, 1, 0.0)]
    transport = data.draw(st.sampled_from(["tcp", "tcp:control=dctcp", "ndp", "ndp:window=30"]))
    queue = LinkSpec(rate_bps=Gbps, queue_packets=data.draw(st.integers(10, 100)), delay_us=2)
    outcomes = [
        simulate(spec, scheme, rows, transport=transport, link=queue, seed=7) for _ in range(2)
    ]
    assert outcomes[0].unfinished == 0
    ideal_s = 8 * outcomes[0].flows.size_bytes / Gbps
    assert (outcomes[0].completion_s > ideal_s).all()
    assert outcomes[0].completion_s.tolist() == outcomes[1].completion_s.tolist()


def test_flows_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "flows.csv"
    file.write_text("dst,src,bytes,start_s\nh1,0,1000,0.5\n3,h2,2000,0\n")
    flows = PacketFlows.read(file, build("star:n=4"))
    assert [column.tolist() for column in flows] == [[0.5, 0.0], [0, 2], [1, 3], [1000, 2000]]
    columns = simulate("star:n=4", "ecmp", flows).columns()
    assert [*columns][:5] == ["start_s", "src", "dst", "size_bytes", "completion_s"]
    assert {len(values) for values in columns.values()} == {2}
    file.write_text("start_s,src,dst,bytes\n0,0,1,1e3\n", encoding="utf-8-sig")
    assert PacketFlows.read(file, build("star:n=4")).size_bytes.tolist() == [1000]


def test_a_file_with_more_flows_than_fit_is_read_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "MOST_FLOWS", 10)
    file = tmp_path / "flows.csv"
    file.write_text("start_s,src,dst,bytes\n" + 20 * "0,h0,h1,1\n")
    with pytest.raises(ValueError, match=r"give 1 to 10 flows, not 11$"):
        PacketFlows.read(file, build("star:n=4"))


def test_flows_are_counted_in_whole_numbers_that_a_float_has() -> None:
    assert PacketFlows.of([(0, 1, 2**53)]).size_bytes.tolist() == [2**53]
    with pytest.raises(ValueError, match=r"^flow 1: hosts and bytes are whole .* up to 2\^53$"):
        PacketFlows.of([(0, 1, 1), (0, 1, 2**53 + 2)])


def test_columns_are_of_flows_alone() -> None:
    """Let there be as many flows as hosts, and one that does not begin in time."""
    rows = [(0, 1, 1_000, 9.0), *((host, (host + 1) % 4, 5_000) for host in (1, 2, 3))]
    by_tcp, by_ndp = (
        simulate("star:n=4", "ecmp", rows, transport=name, deadline_s=1.0).columns()
        for name in ("tcp", "ndp")
    )
    assert by_tcp["sent"].tolist() == [0, 4, 4, 4]
    assert [*by_ndp] == ["start_s", "src", "dst", "size_bytes", "completion_s"]
    assert np.isnan(by_ndp["completion_s"]).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("src,dst,bytes\n", r":1: the columns must be start_s,src,dst,bytes, not src,dst,bytes$"),
        ("", r":1: the columns must be .*, not an empty line$"),
        ("start_s,src,dst,bytes\n0,h0,h1,1\n0,h2,h2,1\n", r": flow 1 leads to its own source$"),
        ("start_s,src,dst,bytes\n", r": give 1 to .* flows, not 0$"),
        ("start_s,src,dst,bytes\n0,h0,h\udc81,1\n", r": it is not text in UTF-8$"),
        ("\udc81", r": it is not text in UTF-8$"),
        ("start_s,src,dst,bytes\n0,h0,h9,1\n", r":2: .*h9"),
        ("start_s,src,dst,bytes\n0,h0,h1,1\n0,h0,h1\n", r":3: a flow has 4 values$"),
        ("start_s,src,dst,bytes\n0,h0,h1,1,5\n", r":2: a flow has 4 values$"),
        ("start_s,src,dst,bytes\nx,h0,h1,1\n", r":2: could not convert"),
        ("start_s,src,dst,bytes\n0,h0,h1,1.5\n", r": flow 0: hosts and bytes are whole numbers"),
        (f"start_s,src,dst,bytes\n0,h0,h1,{'9' * 400}\n", r": flow 0: hosts and bytes are whole"),
        (f"start_s,src,dst,bytes\n0,{'9' * 5000},h1,1\n", r":2: no node '9"),
    ],
)
def test_a_wrong_file_is_refused_by_its_line(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "flows.csv"
    file.write_text(text, errors="surrogateescape")
    with pytest.raises(ValueError, match=r"flows\.csv" + reason):
        PacketFlows.read(file, build("star:n=4"))


@pytest.mark.parametrize(
    ("network", "scheme", "rows", "options", "reason"),
    [
        ("star:n=4", "ecmp", [(0, 0, 1)], {}, "^flow 0 leads to its own source$"),
        ("star:n=4", "ecmp", [(0, 1, 1), (0, 9, 1)], {}, "^flow 1 has an end that is no host"),
        ("star:n=4", "ecmp", [(0, 1, 0)], {}, "^flow 0 has no bytes$"),
        ("star:n=4", "ecmp", [(0, 1, 1, -1)], {}, "^flow 0 begins before 0 s"),
        ("star:n=4", "ecmp", [(0, 1, 1, float("nan"))], {}, "^flow 0 begins before 0 s"),
        ("star:n=4", "ecmp", [(0, 1)], {}, "^a flow is "),
        ("star:n=4", "ecmp", [], {}, "^give 1 to"),
        ("star:n=4", "ecmp", [(0, 1, 9), (0.5, 1, 9)], {}, "^flow 1: hosts and bytes are whole"),
        ("star:n=4", "ecmp", [(0, 1, 10**20)], {}, "^flow 0: hosts and bytes are whole"),
        ("star:n=4", "ecmp", [(0, 1, float("nan"))], {}, "^flow 0: hosts and bytes are whole"),
        ("star:n=4", "ecmp", [(0, 1, 9)], {"seed": -1}, "^the seed must be 0 to"),
        ("star:n=4", "lbsp", [(0, 1, 1)], {}, "^LBSP needs a fat-tree"),
        ("fattree:k=4", "lbsp:states=1", [(0, 1, 1)], {}, "take states=0"),
        ("star:n=4", "dr", [(0, 1, 1)], {}, "dr runs on server-centric networks"),
        ("star:n=4", "ecmp", [(0, 1, 1)], {"transport": "quic"}, "^no transport 'quic'"),
        ("star:n=4", "ecmp", [(0, 1, 1)], {"transport": "tcp:control=bbr"}, "^no simulated"),
        ("star:n=4", "ecmp", [(0, 1, 1 << 50)], {}, "of memory, and"),
        ("star:n=4", "ecmp", [(0, 1, 1 << 50)], {"transport": "ndp"}, "too many packets"),
        ("fattree:k=128", "ecmp", [(0, 1, 1)], {}, "at most 120,000 nodes"),
    ],
)
def test_what_cannot_be_simulated_is_refused_at_once(
    network: str, scheme: str, rows: list, options: dict, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        simulate(network, scheme, rows, **options)


def test_links_with_loss_are_refused() -> None:
    lossy = LinkSpec(rate_bps=Gbps, queue_packets=10, loss_ppb=1000)
    with pytest.raises(ValueError, match=r"^h0-r0: simulated links have one MTU"):
        simulate("star:n=3", "ecmp", [(0, 1, 1)], link=lossy)


def test_progress_is_told_with_the_share_of_bytes() -> None:
    told: list[tuple[float, float]] = []
    simulate(
        "fattree:k=4",
        "ecmp",
        [(host, 15 - host, 3_000_000) for host in range(16) if host != 15 - host],
        watch=lambda share, now_s: told.append((share, now_s)),
    )
    assert told == sorted(told)
    assert told[-1][0] == 1.0


def test_it_is_there_by_its_short_name() -> None:
    assert weft.simulate is simulation.simulate


def test_progress_is_sampled_as_bytes_arrive() -> None:
    """Let a flow fill a link: it has all its bytes, one packet after the other, at its rate."""
    size_bytes, link = 5_000_000, LinkSpec(rate_bps=Gbps, queue_packets=50, delay_us=0)
    result = simulate("star:n=3", "ecmp", [(0, 1, size_bytes)], link=link, sample_s=0.001)
    times_s, arrived_bytes, _ = result.progress
    assert len(times_s) == len(arrived_bytes) == 60_000
    steps = np.diff(arrived_bytes[:, 0][times_s < result.completion_s[0]])
    per_ms = 0.001 * Gbps / 8 / FRAME_BYTES  # packets
    packets = np.rint(steps / (FRAME_BYTES - HEADER_BYTES))
    assert abs(packets[len(packets) // 2 :] - per_ms).max() < 1
    assert arrived_bytes[-1].tolist() == [size_bytes]
    unsampled = simulate("star:n=3", "ecmp", [(0, 1, size_bytes)], link=link)
    assert unsampled.completion_s.tolist() == result.completion_s.tolist()
    assert unsampled.progress.arrived_bytes.shape == (0, 1)


def test_later_data_are_ahead_while_a_gap_is_open() -> None:
    link, rows = LinkSpec(rate_bps=Gbps, queue_packets=10), [(0, 2, 10**6), (1, 2, 10**6)]
    result = simulate("star:n=3", "ecmp", rows, link=link, sample_s=0.0001, deadline_s=0.5)
    _, arrived_bytes, latest_bytes = result.progress
    ahead_bytes = latest_bytes - arrived_bytes
    assert ahead_bytes.min() == 0 < ahead_bytes.max()
    assert ahead_bytes[-1].tolist() == [0, 0]


def test_a_transport_has_the_defaults_that_are_listed():
    assert SUMMARIES.keys() == PARAMETERS.keys()
    for name in ALL:
        usual = transport(name, ALL)
        assert (usual.window, usual.choice, usual.start) == (0, "flow", "random")
        assert usual.small_queues == 1
    assert transport("tcp:recovery=reno").small_queues == 0

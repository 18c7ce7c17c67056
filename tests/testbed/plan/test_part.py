"""The parts of several machines are together the undivided plan."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace

import pytest

from tests.testbed.cluster.test_placement import cut_links
from weft.testbed.cluster.placement import place
from weft.testbed.plan.network_plan import NetworkPlan
from weft.testbed.plan.part import PlanPart, part_from, split
from weft.testbed.runs.run import UNNAMED
from weft.topologies import build
from weft.topologies.core.link import LinkSpec, Mbps

SPECS = [
    "dcell:n=3,k=1",
    "beta-dcell:n=3,k=1",
    "gamma-dcell:n=4,k=1",
    "delta-dcell:n=4,k=1",
    "ficonn:n=4,k=1",
    "fattree:k=4",
    "clos:n=4,r=4,m=2",
    "complete:n=5,p=2",
    "slimfly:q=5",
    "dragonfly:p=1",
    "hyperx:l=2,s=3",
    "jellyfish:n=10,r=3,p=1,seed=1",
    "xpander:r=4,l=2,seed=1",
]
LINK = LinkSpec(rate_bps=20 * Mbps, queue_packets=250, delay_us=100)
LINKS = re.compile(r"ip (?:-n \S+ )?link add .* type (?:veth|vxlan) ")
TUNNEL = re.compile(
    r"ip link add (?P<side>.*) netns \S+ type vxlan id (?P<link>\d+) remote (?P<remote>\S+) "
    r"local (?P<local>\S+) dstport 61000 nolearning"
)


def parts(spec: str, machines: int) -> tuple[NetworkPlan, list[PlanPart], list[int]]:
    topology = build(spec)
    machine_of = place(topology, [1 / machines] * machines)
    addresses = {f"m{number}": f"10.0.0.{number + 1}" for number in range(machines)}
    plan = NetworkPlan(UNNAMED, topology, LINK, static=topology.server_centric)
    return plan, split(topology, machine_of, addresses, 61000), cut_links(topology, machine_of)


def lines(plans: Iterable[NetworkPlan]) -> tuple[Counter[str], list[str]]:
    """Return the commands of `plans`, those that make links apart."""
    all_lines = [line for plan in plans for line in plan.text()]
    links = [line for line in all_lines if LINKS.match(line)]
    return Counter(line for line in all_lines if not LINKS.match(line)), links


@pytest.mark.parametrize("machines", [2, 3])
@pytest.mark.parametrize("spec", SPECS)
def test_the_union_of_the_parts_is_the_undivided_plan(spec, machines):
    whole, documents, cut = parts(spec, machines)
    divided = [replace(whole, part=part) for part in documents]
    commands, links = lines([whole])
    parts_commands, parts_links = lines(divided)
    assert parts_commands == commands
    assert sorted(node for plan in divided for node in plan.nodes) == [*range(whole.topology.nodes)]
    for plan, part in zip(divided, documents, strict=True):
        matches = [match for line in plan.text() if (match := TUNNEL.fullmatch(line))]
        assert {match["local"] for match in matches} <= {part.address}
    tunnels = [match for line in parts_links if (match := TUNNEL.fullmatch(line))]
    veths = [line for line in parts_links if " type veth " in line]
    assert Counter(int(match["link"]) for match in tunnels) == dict.fromkeys(cut, 2)
    assert len(veths) + len(cut) == len(links)
    assert set(veths) <= set(links)
    for link in cut:
        one, other = (match for match in tunnels if int(match["link"]) == link)
        assert (one["local"], one["remote"]) == (other["remote"], other["local"])
        # its two ends are those of the veth of the undivided plan
        assert sum(is_veth(line, one, other) for line in set(links) - set(veths)) == 1


def is_veth(line: str, *ends: re.Match[str]) -> bool:
    return all(f" {end['side'].split(' master')[0]} " in line for end in ends)


@pytest.mark.parametrize("spec", ["dcell:n=3,k=1", "fattree:k=4"])
def test_a_part_survives_json(spec):
    _, documents, _ = parts(spec, 3)
    assert [part_from(json.loads(json.dumps(asdict(part)))) for part in documents] == documents


def test_a_cut_link_is_made_shorter_by_what_the_underlay_adds_and_no_other_link():
    whole, documents, cut = parts("dcell:n=3,k=1", 2)
    part = replace(documents[0], underlay_us=dict.fromkeys(documents[0].peers, 30))
    delays_us = {
        link: replace(whole, part=part).link_spec(link).delay_us
        for link in range(len(whole.topology.links))
    }
    assert delays_us == {link: 70 if link in cut else 100 for link in delays_us}
    far = replace(part, underlay_us=dict.fromkeys(part.peers, 170))
    assert replace(whole, part=far).link_spec(next(iter(cut))).delay_us == 0

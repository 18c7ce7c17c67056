"""LBSP (Lim, Appl. Sci. 2021): symmetric path groups of a k-ary fat-tree, and each destination's.

The d = k/2 uplinks of an edge (ToR) or aggregation switch form `groups` link groups of equal size:
uplink u is in group u mod groups (section 3.2).  A link group of the edge switch and one of the
aggregation switches above make a path group: groups^2 disjoint path groups of (d / groups)^2 paths,
together all shortest paths (Table 1).  Destination t takes link group t mod groups at the edge
switch and floor(t / groups) mod groups at the aggregation switches; packets use the ports of a link
group in turn.  For k >= 16 the paper leaves the number of groups open (3.4): it is a parameter.

A link group is intact for a destination if every path over it works; for an edge switch, over one
and the same link group of all aggregation switches above.  If its own group is not intact, a
destination takes the next intact one in circular order (3.3).  Aggregation switches of one group
carry the same flows and choose alike (figure 5: A1 and A3 both leave the group of a link of A31).
Degraded links count as failed while there is a group without them, otherwise as healthy.  The paper
has no rule without an intact group; we then use all ports that lead on, in turn.

A link is named by its lower end and its uplink; ports are as in topologies/tiered/clos.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from weft.topologies.core.address import EVERYTHING, AddressLayout, Prefix

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology

EDGE, AGGREGATION, CORE = 1, 2, 3  # tiers of switches
MOST_PORTS = 64  # ports of a route in the data plane
Columns = tuple[tuple[int, ...], ...]


class SwitchPosition(NamedTuple):
    """A switch: its tier, its pod and its number there.

    Core switches of one stride share their `pod`.  Aggregation switch `number` of every pod reaches
    the core switches of that number by uplink `pod`.
    """

    tier: int
    pod: int
    number: int


class Uplink(NamedTuple):
    """The link at uplink `up` of the edge or aggregation switch `lower`."""

    lower: SwitchPosition
    up: int

    @property
    def upper(self) -> SwitchPosition:
        tier, pod, number = self.lower
        return (
            SwitchPosition(AGGREGATION, pod, self.up)
            if tier == EDGE
            else SwitchPosition(CORE, self.up, number)
        )


class LbspRoute(NamedTuple):
    """Ports of a route, a column for each own link group of destinations; one column downwards.

    symmetric: True if each column is a link group without known failures.
    """

    columns: Columns
    symmetric: bool = True

    @property
    def ports(self) -> tuple[int, ...]:
        """Return the columns row by row: the i-th port of group g is at position i * groups + g.

        If equal columns have too many ports, each group takes a part of them, so that none is idle.

        Raises:
            ValueError: different columns have too many ports.
        """
        groups, columns = len(self.columns), self.columns
        if groups * len(columns[0]) > MOST_PORTS:
            if len(set(columns)) > 1:
                raise ValueError(
                    f"{groups} groups of {len(columns[0])} ports: a route has at most {MOST_PORTS}"
                )
            columns = tuple(columns[0][group::groups] for group in range(groups))
        return tuple(column[i % len(column)] for i in range(len(columns[0])) for column in columns)


@dataclass(frozen=True)
class LbspShape:
    """Sizes of a k-ary fat-tree: at most k pods, d = k/2, `hosts` of an edge switch.

    groups: link groups of a switch.

    Raises:
        ValueError: fewer than two pods, or d or groups is no power of two with 2 <= groups <= d.
    """

    pods: int
    d: int
    hosts: int
    groups: int = 2

    @classmethod
    def of(cls, radices: Sequence[int], groups: int = 2) -> LbspShape:
        """Return the sizes of the fat-tree whose host labels have these radices."""
        pods, d, hosts = radices
        return cls(pods, d, hosts, groups)

    def __post_init__(self) -> None:
        if self.d < 2 or self.d & (self.d - 1):
            raise ValueError(
                f"LBSP needs a fat-tree whose k is a power of two from 4 on, got k = {2 * self.d}"
            )
        if self.pods < 2:
            raise ValueError("LBSP needs a fat-tree of two pods or more")
        if self.groups < 2 or self.groups & (self.groups - 1) or self.groups > self.d:
            raise ValueError(
                f"LBSP: groups must be a power of two from 2 to k/2 = {self.d}, got {self.groups}"
            )

    @property
    def servers(self) -> int:
        return self.pods * self.d * self.hosts

    @cached_property
    def layout(self) -> AddressLayout:
        return AddressLayout((self.pods, self.d, self.hosts))

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Return the uplinks of each link group.

        Also the numbers of aggregation switches that choose alike.
        """
        return tuple(tuple(range(group, self.d, self.groups)) for group in range(self.groups))

    def position(self, node: int) -> SwitchPosition:
        """Return the position of switch `node`; ValueError if it is none."""
        rest, in_tier = node - self.servers, self.pods * self.d
        if not 0 <= rest < 2 * in_tier + self.d * self.d:
            raise ValueError(f"node {node} is no switch of a fat-tree with k = {2 * self.d}")
        below = min(rest // in_tier, 2)  # tiers
        return SwitchPosition(below + 1, *divmod(rest - below * in_tier, self.d))

    def node(self, position: SwitchPosition) -> int:
        """Return the node number of the switch at `position`."""
        switches_below = ((position.tier - 1) * self.pods + position.pod) * self.d
        return self.servers + switches_below + position.number

    def down_ports(self, tier: int) -> int:
        """Return the number of ports that lead down; the uplinks follow them."""
        return {EDGE: self.hosts, AGGREGATION: self.d, CORE: self.pods}[tier]

    def link(self, node: int, neighbour: int) -> Uplink:
        """Return the link between two switches; ValueError if there is none."""
        low, high = self.position(min(node, neighbour)), self.position(max(node, neighbour))
        link = Uplink(low, high.number if low.tier == EDGE else high.pod)
        if low.tier == CORE or link.upper != high:
            raise ValueError(f"no link joins switches {node} and {neighbour}")
        return link

    def links(self) -> list[Uplink]:
        """Return all links between switches."""
        return [
            Uplink(SwitchPosition(tier, pod, number), up)
            for tier in (EDGE, AGGREGATION)
            for pod in range(self.pods)
            for number in range(self.d)
            for up in range(self.d)
        ]

    def link_group(self, tier: int, destination: int) -> int:
        """Return the own link group of host `destination` at switches of `tier` (section 3.2)."""
        return (destination if tier == EDGE else destination // self.groups) % self.groups

    def own_range(self, position: SwitchPosition) -> Prefix:
        """Return the prefix of all addresses below an edge or aggregation switch."""
        return self.layout.prefix(
            (position.pod, position.number) if position.tier == EDGE else (position.pod,)
        )

    def kind(self, link: Uplink) -> int:
        """Return the failure type of `link` (Table 2).

        It is 0 .. groups - 1 below aggregation switches, groups .. 2 groups - 1 above.
        """
        return (link.lower.tier - 1) * self.groups + link.up % self.groups

    def affected(self, link: Uplink, reporter: SwitchPosition) -> Prefix:
        """Return the destinations that a failure of `link` affects, as `reporter` announces.

        The upper end announces those below the link, the lower end all.
        """
        if reporter == link.lower:
            return EVERYTHING
        return self.own_range(link.lower)


def shape_of(topology: Topology, groups: int = 2) -> LbspShape:
    """Return the sizes of the fat-tree `topology`.

    Raises:
        ValueError: LBSP cannot group its paths, or a route of the data plane cannot hold them.
    """
    radices = topology.naming.layout.radices
    if topology.family != "fattree" or len(radices) != 3:
        raise ValueError(
            f"LBSP needs a fat-tree of three tiers such as fattree:k=8, not {topology.spec}"
        )
    shape = LbspShape.of(radices, groups)
    if shape.d > MOST_PORTS:
        raise ValueError(
            f"LBSP: a switch has at most {MOST_PORTS} uplinks here, got k = {2 * shape.d}"
        )
    return shape


def next_state(state: int, crowd: tuple[int, int], threshold: int, percent: int) -> int:
    """Return the next state of a switch (section 5.1, figure 8).

    From 0 to 1 if group 0 has over `threshold` packets and over `percent` / 100 times those of
    group 1; to 2 with the groups exchanged.  Back to 0 if the queues are almost equal; we require
    that the longer has at most one packet more.

    Args:
        state: present state.
        crowd: packets in the queues of link groups 0 and 1, per port.
        threshold: packets.
        percent: ratio t of the paper, in %.
    """
    group_0, group_1 = crowd
    if state == 1 and group_0 > group_1 + 1:
        return 1
    if state == 2 and group_1 > group_0 + 1:
        return 2
    if group_0 > threshold and group_0 * 100 > group_1 * percent:
        return 1
    if group_1 > threshold and group_1 * 100 > group_0 * percent:
        return 2
    return 0


def group_in_state(state: int, own: int, input_port: int) -> int:
    """Return the link group of a packet from `input_port`; `own` is its destination's (Table 3).

    In state 1 packets of group 0, and in state 2 packets of group 1, take the group of their input
    port's parity; all others take their own.
    """
    by_input_port = (state == 1 and own == 0) or (state == 2 and own == 1)
    return input_port & 1 if by_input_port else own


def agreed(required: Iterable[int]) -> int:
    """Return the common state of aggregation switches that choose alike.

    It is the one state other than 0 that their queues require; 0 if they require both.
    """
    states = {state for state in required if state}
    return states.pop() if len(states) == 1 else 0


LbspTable = Mapping[Prefix, LbspRoute]


def table(
    shape: LbspShape,
    position: SwitchPosition,
    dead: Collection[Uplink],
    degraded: Collection[Uplink] = (),
) -> LbspTable:
    """Return the routes of the switch at `position`.

    There is one for all destinations above, one for each range with an alternative group, and
    the routes down.

    An edge switch adds the routes of its own hosts.  The rest of a switch's own range has no ports;
    otherwise packets for unused addresses would come down and go up again.

    Args:
        shape: sizes of the fat-tree.
        position: the switch.
        dead: failed links that it knows.
        degraded: links that are slower than they should be.
    """
    if position.tier == CORE:
        return {
            shape.layout.prefix((pod,)): way_down(
                pod,
                Uplink(SwitchPosition(AGGREGATION, pod, position.number), position.pod) not in dead,
            )
            for pod in range(shape.pods)
        }
    view = _View(shape, position, frozenset(dead), frozenset(degraded) | frozenset(dead))
    return view.edge() if position.tier == EDGE else view.aggregation()


NOWHERE = LbspRoute(((),))


def way_down(port: int, works: bool) -> LbspRoute:
    """Return the route to a destination below: `port`, or none.

    A packet must not go up again.
    """
    return LbspRoute(((port,) if works else (),))


class _View:
    """Computation of a switch's routes from the failures that it knows.

    bad: links to avoid, dead or degraded.
    """

    def __init__(
        self,
        shape: LbspShape,
        position: SwitchPosition,
        dead: frozenset[Uplink],
        bad: frozenset[Uplink],
    ) -> None:
        self.shape, self.position, self.dead, self.bad = shape, position, dead, bad
        self.ups = range(shape.d)
        self.suspect_pods = {link.lower.pod for link in bad if link.lower.tier == AGGREGATION}
        self.suspect_edges = {link.lower[1:] for link in bad if link.lower.tier == EDGE}

    def edge(self) -> LbspTable:
        """Return the routes of an edge switch: columns for each other edge switch.

        The most common ones are the default route.
        """
        shape, table = self.shape, {}
        healthy = self.pick(self.first_hop, self.up_works)
        for pod in range(shape.pods):
            trouble_above = pod != self.position.pod and self.suspect_pods & {
                pod,
                self.position.pod,
            }
            for number in range(shape.d):
                if (pod, number) == self.position[1:]:
                    continue
                if not trouble_above and (pod, number) not in self.suspect_edges:
                    table[pod, number] = healthy
                else:
                    table[pod, number] = self.to_edge(pod, number)
        return {**self.compressed(table), self.shape.own_range(self.position): NOWHERE}

    def up_works(self, up: int) -> bool:
        return Uplink(self.position, up) not in self.dead

    def first_hop(self, group: int, avoid: frozenset[Uplink]) -> bool:
        """Return True if all our uplinks of a link group work."""
        return not any(Uplink(self.position, up) in avoid for up in self.shape.members[group])

    def to_edge(self, pod: int, number: int) -> LbspRoute:
        """Return the columns for the hosts of an edge switch."""
        below = SwitchPosition(EDGE, pod, number)

        def intact(group: int, avoid: frozenset[Uplink]) -> bool:
            members = self.shape.members[group]
            if not self.first_hop(group, avoid) or any(Uplink(below, j) in avoid for j in members):
                return False
            return pod == self.position.pod or any(
                self.second_hops(group, h, pod, avoid) for h in range(self.shape.groups)
            )

        def leads_on(j: int) -> bool:
            if not self.up_works(j) or Uplink(below, j) in self.dead:
                return False
            return pod == self.position.pod or any(
                self.path_above(j, u, pod, self.dead) for u in self.ups
            )

        return self.pick(intact, leads_on)

    def second_hops(self, group: int, h: int, pod: int, avoid: frozenset[Uplink]) -> bool:
        """Return True if link group `h` of our switches of `group` works down to `pod`."""
        members = self.shape.members
        return all(self.path_above(j, u, pod, avoid) for j in members[group] for u in members[h])

    def path_above(self, j: int, u: int, pod: int, avoid: frozenset[Uplink]) -> bool:
        """Return True if both links by core switch (u, j) work.

        They join aggregation switches j of our pod and of `pod`.
        """
        own = SwitchPosition(AGGREGATION, self.position.pod, j)
        other = SwitchPosition(AGGREGATION, pod, j)
        return Uplink(own, u) not in avoid and Uplink(other, u) not in avoid

    def aggregation(self) -> LbspTable:
        """Return the routes of an aggregation switch: ports of edge switches, columns of pods."""
        shape, (_, own, j) = self.shape, self.position
        table = {(pod, 0): self.to_pod(pod) for pod in range(shape.pods) if pod != own}
        down = {
            shape.layout.prefix((own, number)): way_down(
                number, Uplink(SwitchPosition(EDGE, own, number), j) not in self.dead
            )
            for number in range(shape.d)
        }
        return {**self.compressed(table), **down, shape.own_range(self.position): NOWHERE}

    def to_pod(self, pod: int) -> LbspRoute:
        """Return the columns for the hosts of another pod."""
        j = self.position.number
        return self.pick(
            lambda h, avoid: self.second_hops(j % self.shape.groups, h, pod, avoid),
            lambda u: self.path_above(j, u, pod, self.dead),
        )

    def pick(
        self, intact: Callable[[int, frozenset[Uplink]], bool], leads_on: Callable[[int], bool]
    ) -> LbspRoute:
        """Return, for each own group, the next intact one.

        If none is intact, all uplinks that lead on.
        """
        count = self.shape.groups
        first = self.shape.down_ports(self.position.tier)
        ports = [tuple(first + up for up in members) for members in self.shape.members]
        for avoid in (self.bad, self.dead):
            good = [group for group in range(count) if intact(group, avoid)]
            if good:
                offsets = [min((group - own) % count for group in good) for own in range(count)]
                return LbspRoute(
                    tuple(ports[(own + offset) % count] for own, offset in enumerate(offsets))
                )
        rest = tuple(first + up for up in self.ups if leads_on(up))
        return LbspRoute((rest,) * count, symmetric=False)

    def compressed(self, routes: Mapping[tuple[int, int], LbspRoute]) -> dict[Prefix, LbspRoute]:
        """Return routes by (pod, edge switch) as a default route, and those that differ."""
        layout = self.shape.layout
        usual = _most_common(routes.values())
        table = {layout.prefix(()): usual}
        for pod in sorted({pod for pod, _ in routes}):
            in_pod = {number: route for (other, number), route in routes.items() if other == pod}
            common = _most_common(in_pod.values())
            if common != usual:
                table[layout.prefix((pod,))] = common
            for number, route in in_pod.items():
                if route != common:
                    table[layout.prefix((pod, number))] = route
        return table


def _most_common(routes: Iterable[LbspRoute]) -> LbspRoute:
    ((route, _),) = Counter(routes).most_common(1)
    return route

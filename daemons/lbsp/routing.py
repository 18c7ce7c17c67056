"""LBSP (Lim, Appl. Sci. 2021): symmetric path groups of a k-ary fat-tree, and which of them a
destination takes.

The d = k/2 uplinks of each edge (ToR) switch and of each aggregation switch are parted into
`groups` link groups of equal size: uplink u is of group u mod groups (section 3.2: by the parity of
the port).  A link group of the edge switch and one of the aggregation switches it leads to make a
path group: groups^2 path groups of (d / groups)^2 paths each, disjoint, and together all shortest
paths (Table 1).  Destination number t takes link group t mod groups at the edge switch and floor(t
/ groups) mod groups at the aggregation switches (its least bits); within a link group packets take
turns.

For k >= 16 the paper leaves two choices open (3.4): more path groups, or more paths in each.  Ours:
`groups` is a parameter, 2 by default at every k, as in its simulations; 4 at k = 16 is the other
choice.

Failures.  A link group is intact for a destination if every path over it works: for an edge switch,
there must be a link group of the aggregation switches above, the same for all of them, over which
all paths work.  A destination whose own group is not intact takes the next one that is, in circular
order (3.3).  The aggregation switches whose numbers are of one group choose alike, for they carry
the same flows (figure 5: A1 and A3 both leave the group of a link that only A31 has).  Degraded
links count as failed as long as there is a group without them, and then as sound.  Ours: where no
group is intact, packets take turns over all ports that lead on, and the table says so.

Links are named by their lower end and its uplink; ports are numbered as in
topologies/tiered/fattree.py.
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
MOST_PORTS = 64  # candidates that a route of the data plane holds
Columns = tuple[tuple[int, ...], ...]


class SwitchPosition(NamedTuple):
    """A switch: its tier, its pod and its number there; core switches of one stride share their
    `pod`.

    Aggregation switch `number` of every pod reaches the core switches of that number, by uplink
    `pod`.
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
    """Ports of a switch by the link group that is the destination's own; a single column for the
    one way down.

    symmetric: whether each column is a link group, intact as far as is known.
    """

    columns: Columns
    symmetric: bool = True

    @property
    def ports(self) -> tuple[int, ...]:
        """The columns, all of one length, row by row: the i-th packet of group g takes place i *
        groups + g.

        Where the columns are the same ports and too many, each group takes a part of them, so that
        none is idle. ValueError where columns that differ are too long.
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
    """A k-ary fat-tree of so many pods (at most k), with d = k/2, `hosts` at each edge switch, and
    `groups` link groups at each switch.

    ValueError unless there are two pods, d is a power of two, and groups one that leaves a choice:
    from 2 to d.
    """

    pods: int
    d: int
    hosts: int
    groups: int = 2

    @classmethod
    def of(cls, radices: Sequence[int], groups: int = 2) -> LbspShape:
        """The fat-tree whose hosts' labels have these radices."""
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
        """The uplinks of each link group; also the numbers of the aggregation switches that choose
        alike."""
        return tuple(tuple(range(group, self.d, self.groups)) for group in range(self.groups))

    def place(self, node: int) -> SwitchPosition:
        """Which switch `node` is; ValueError if it is none."""
        rest, in_tier = node - self.servers, self.pods * self.d
        if not 0 <= rest < 2 * in_tier + self.d * self.d:
            raise ValueError(f"node {node} is no switch of a fat-tree with k = {2 * self.d}")
        below = min(rest // in_tier, 2)  # tiers
        return SwitchPosition(below + 1, *divmod(rest - below * in_tier, self.d))

    def node(self, place: SwitchPosition) -> int:
        """The switch at `place`."""
        return (
            self.servers + (place.tier - 1) * self.pods * self.d + place.pod * self.d + place.number
        )

    def down_ports(self, tier: int) -> int:
        """How many ports of a switch lead down; its uplinks follow them."""
        return {EDGE: self.hosts, AGGREGATION: self.d, CORE: self.pods}[tier]

    def link(self, node: int, neighbour: int) -> Uplink:
        """The link between two switches; ValueError if there is none."""
        low, high = self.place(min(node, neighbour)), self.place(max(node, neighbour))
        link = Uplink(low, high.number if low.tier == EDGE else high.pod)
        if low.tier == CORE or link.upper != high:
            raise ValueError(f"no link joins switches {node} and {neighbour}")
        return link

    def links(self) -> list[Uplink]:
        """All links between switches."""
        return [
            Uplink(SwitchPosition(tier, pod, number), up)
            for tier in (EDGE, AGGREGATION)
            for pod in range(self.pods)
            for number in range(self.d)
            for up in range(self.d)
        ]

    def link_group(self, tier: int, destination: int) -> int:
        """The link group of its own that host number `destination` has at switches of `tier`
        (section 3.2)."""
        return (destination if tier == EDGE else destination // self.groups) % self.groups

    def own_range(self, at: SwitchPosition) -> Prefix:
        """The addresses below an edge or aggregation switch, those that no host has included."""
        return self.layout.prefix((at.pod, at.number) if at.tier == EDGE else (at.pod,))

    def kind(self, link: Uplink) -> int:
        """The failure type of `link` (Table 2): 0 .. groups-1 below, groups .. 2 groups - 1 above
        aggregation."""
        return (link.lower.tier - 1) * self.groups + link.up % self.groups

    def affected(self, link: Uplink, reporter: SwitchPosition) -> Prefix:
        """The destinations that the failure of `link` affects, as the switch at `reporter`, an end
        of it, tells (3.3.1): from above, those that the port leads down to; from below, all."""
        if reporter == link.lower:
            return EVERYTHING
        return self.own_range(link.lower)


def shape_of(topology: Topology, groups: int = 2) -> LbspShape:
    """The fat-tree that `topology` is, its switches with so many link groups; ValueError if LBSP
    cannot part its paths, or a route of the data plane cannot hold them."""
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
    """The state of a switch (section 5.1, figure 8) whose link groups 0 and 1 have so many packets
    waiting at a port.

    From 0 to 1 if group 0 has over `threshold` and over t = `percent` / 100 times as many as group
    1; to 2 the other way round.  Back to 0 when they are almost equal: ours, when the crowded one
    has at most one packet more.
    """
    zero, one = crowd
    if state == 1 and zero > one + 1:
        return 1
    if state == 2 and one > zero + 1:
        return 2
    if zero > threshold and zero * 100 > one * percent:
        return 1
    if one > threshold and one * 100 > zero * percent:
        return 2
    return 0


def group_in_state(state: int, own: int, input_port: int) -> int:
    """The link group for a packet whose destination's own is `own`, that came in by `input_port`
    (Table 3).

    In state 1 packets of group 0, in state 2 packets of group 1, take the group that the parity of
    their input port says; all others take their own.
    """
    by_input_port = (state == 1 and own == 0) or (state == 2 and own == 1)
    return input_port & 1 if by_input_port else own


def agreed(wants: Iterable[int]) -> int:
    """The state in which aggregation switches that choose alike are, given what the queues of each
    call for: what some want and none opposes."""
    called = {want for want in wants if want}
    return called.pop() if len(called) == 1 else 0


LbspTable = Mapping[Prefix, LbspRoute]


def table(
    shape: LbspShape,
    at: SwitchPosition,
    dead: Collection[Uplink],
    degraded: Collection[Uplink] = (),
) -> LbspTable:
    """The routes of the switch at `at` that knows of these links: one for everything above, one for
    each range that an alternative group serves, and the ways down.

    dead: failed.  degraded: they work, but slower.
    Its own hosts an edge switch routes by itself.  What else lies in a switch's own range has no
    ports: packets for addresses that no host has would come down and go up again.
    """
    if at.tier == CORE:
        return {
            shape.layout.prefix((pod,)): way_down(
                pod, Uplink(SwitchPosition(AGGREGATION, pod, at.number), at.pod) not in dead
            )
            for pod in range(shape.pods)
        }
    view = _View(shape, at, frozenset(dead), frozenset(degraded) | frozenset(dead))
    return view.edge() if at.tier == EDGE else view.aggregation()


NOWHERE = LbspRoute(((),))


def way_down(port: int, works: bool) -> LbspRoute:
    """By the one port that leads to a destination below, or not at all: a packet must not go up
    again."""
    return LbspRoute(((port,) if works else (),))


class _View:
    """What the switch at `at` makes of the failures it knows; `bad` are links to be avoided, dead
    ones included."""

    def __init__(
        self, shape: LbspShape, at: SwitchPosition, dead: frozenset[Uplink], bad: frozenset[Uplink]
    ) -> None:
        self.shape, self.at, self.dead, self.bad = shape, at, dead, bad
        self.ups = range(shape.d)
        self.suspect_pods = {link.lower.pod for link in bad if link.lower.tier == AGGREGATION}
        self.suspect_edges = {link.lower[1:] for link in bad if link.lower.tier == EDGE}

    def edge(self) -> LbspTable:
        """Columns for each edge switch elsewhere, those that most have told once."""
        shape, found = self.shape, {}
        sound = self.pick(self.first_hop, self.up_works)
        for pod in range(shape.pods):
            trouble_above = pod != self.at.pod and self.suspect_pods & {pod, self.at.pod}
            for number in range(shape.d):
                if (pod, number) == self.at[1:]:
                    continue
                if not trouble_above and (pod, number) not in self.suspect_edges:
                    found[pod, number] = sound
                else:
                    found[pod, number] = self.to_edge(pod, number)
        return {**self.compressed(found), self.shape.own_range(self.at): NOWHERE}

    def up_works(self, up: int) -> bool:
        return Uplink(self.at, up) not in self.dead

    def first_hop(self, group: int, avoid: frozenset[Uplink]) -> bool:
        """Whether all our uplinks of a link group work."""
        return not any(Uplink(self.at, up) in avoid for up in self.shape.members[group])

    def to_edge(self, pod: int, number: int) -> LbspRoute:
        """The columns for the hosts of an edge switch."""
        below = SwitchPosition(EDGE, pod, number)

        def intact(group: int, avoid: frozenset[Uplink]) -> bool:
            members = self.shape.members[group]
            if not self.first_hop(group, avoid) or any(Uplink(below, j) in avoid for j in members):
                return False
            return pod == self.at.pod or any(
                self.second_hops(group, h, pod, avoid) for h in range(self.shape.groups)
            )

        def leads_on(j: int) -> bool:
            if not self.up_works(j) or Uplink(below, j) in self.dead:
                return False
            return pod == self.at.pod or any(
                self.path_above(j, u, pod, self.dead) for u in self.ups
            )

        return self.pick(intact, leads_on)

    def second_hops(self, group: int, h: int, pod: int, avoid: frozenset[Uplink]) -> bool:
        """Whether link group `h` of all aggregation switches of a group here works all the way down
        into `pod`."""
        members = self.shape.members
        return all(self.path_above(j, u, pod, avoid) for j in members[group] for u in members[h])

    def path_above(self, j: int, u: int, pod: int, avoid: frozenset[Uplink]) -> bool:
        """Whether both links between aggregation switches j here and in `pod` by core switch (u, j)
        work."""
        here, there = (
            SwitchPosition(AGGREGATION, self.at.pod, j),
            SwitchPosition(AGGREGATION, pod, j),
        )
        return Uplink(here, u) not in avoid and Uplink(there, u) not in avoid

    def aggregation(self) -> LbspTable:
        """One column for each edge switch below, columns for each other pod."""
        shape, (_, own, j) = self.shape, self.at
        found = {(pod, 0): self.to_pod(pod) for pod in range(shape.pods) if pod != own}
        down = {
            shape.layout.prefix((own, number)): way_down(
                number, Uplink(SwitchPosition(EDGE, own, number), j) not in self.dead
            )
            for number in range(shape.d)
        }
        return {**self.compressed(found), **down, shape.own_range(self.at): NOWHERE}

    def to_pod(self, pod: int) -> LbspRoute:
        """The columns for the hosts of another pod."""
        j = self.at.number
        return self.pick(
            lambda h, avoid: self.second_hops(j % self.shape.groups, h, pod, avoid),
            lambda u: self.path_above(j, u, pod, self.dead),
        )

    def pick(
        self, intact: Callable[[int, frozenset[Uplink]], bool], leads_on: Callable[[int], bool]
    ) -> LbspRoute:
        """For each group of its own that a destination may have, the first from there on that is
        intact; if none is, all uplinks that lead on."""
        shape = self.shape
        first = shape.down_ports(self.at.tier)
        for avoid in (self.bad, self.dead):
            good = [group for group in range(shape.groups) if intact(group, avoid)]
            if good:
                chosen = [
                    own + min((group - own) % shape.groups for group in good)
                    for own in range(shape.groups)
                ]
                return LbspRoute(
                    tuple(
                        tuple(first + up for up in shape.members[g % shape.groups]) for g in chosen
                    )
                )
        rest = tuple(first + up for up in self.ups if leads_on(up))
        return LbspRoute((rest,) * shape.groups, symmetric=False)

    def compressed(self, routes: Mapping[tuple[int, int], LbspRoute]) -> dict[Prefix, LbspRoute]:
        """Routes by (pod, edge switch) as one for everything, and those of pods and edge switches
        that differ."""
        layout, found = self.shape.layout, {}
        usual = _most_common(routes.values())
        found[layout.prefix(())] = usual
        for pod in sorted({pod for pod, _ in routes}):
            here = {number: route for (at, number), route in routes.items() if at == pod}
            common = _most_common(here.values())
            if common != usual:
                found[layout.prefix((pod,))] = common
            for number, route in here.items():
                if route != common:
                    found[layout.prefix((pod, number))] = route
        return found


def _most_common(routes: Iterable[LbspRoute]) -> LbspRoute:
    ((route, _),) = Counter(routes).most_common(1)
    return route

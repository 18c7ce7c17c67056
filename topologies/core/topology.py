"""A network as integer arrays.

Nodes are numbered: servers 0 .. servers-1 (hosts of a switch fabric are servers too), then
switches.  A port is numbered within its node from 0.  A link joins two ports and runs both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from weft.topologies.core.address import Naming
from weft.topologies.core.grammar import MOST_LISTED, service, unparse
from weft.topologies.core.link import LinkSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

MOST = 1 << 24  # nodes, since a MAC has three bytes for one; and links, whose array is then 512 MiB


def wire(a: ArrayLike, port_a: ArrayLike, b: ArrayLike, port_b: ArrayLike) -> NDArray[np.int64]:
    """Return rows of Topology.links for ends whose arrays broadcast to one shape."""
    import numpy as np

    ends = np.broadcast_arrays(a, port_a, b, port_b)
    return np.stack([end.ravel() for end in ends], axis=1).astype(np.int64)


def places(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Return the rank of the far end of each edge among the neighbours of either end.

    Args:
        edges: shape (number of edges, 2).
        nodes: number of nodes.

    Returns:
        Shape (number of edges, 2).
    """
    import numpy as np

    near, far = edges.ravel(), edges[:, ::-1].ravel()
    order = np.lexsort((far, near))
    start = np.searchsorted(near[order], np.arange(nodes))
    rank = np.empty(len(near), dtype=np.int64)
    rank[order] = np.arange(len(near)) - start[near[order]]
    return rank.reshape(-1, 2)


class Size(NamedTuple):
    """Size of a network, before it is wired or after.

    name: its family, or its spec.
    """

    name: str
    servers: int
    switches: int
    links: int

    @property
    def nodes(self) -> int:
        return self.servers + self.switches

    def __str__(self) -> str:
        sizes = f"{self.servers:,} servers, {self.switches:,} switches, {self.links:,} links"
        return f"{self.name}: {sizes}"


Limit = Callable[[Size], object]  # raises ValueError for a network that is too large for its use
_LIMITS: ContextVar[tuple[Limit, ...]] = ContextVar("limits", default=())


@contextmanager
def limited(limit: Limit) -> Iterator[None]:
    """Let `limit` refuse networks that the block builds, as soon as their size is known."""
    token = _LIMITS.set((*_LIMITS.get(), limit))
    try:
        yield
    finally:
        _LIMITS.reset(token)


def require_limits(size: Size) -> None:
    """Raise ValueError if a limit that holds here refuses a network of this size."""
    for limit in _LIMITS.get():
        limit(size)


def require_room(family: str, naming: Naming, links: int) -> None:
    """Raise ValueError for a network that is too large, or lacks addresses for its servers.

    A family asks before it makes the first array.
    """
    size = Size(family, naming.servers, naming.switches, links)
    if max(size.nodes, links) > MOST:
        raise ValueError(
            f"{family}: {size.nodes:.3g} nodes and {links:.3g} links are too many, the most is "
            f"{MOST} each"
        )
    require_limits(size)
    try:
        _ = naming.layout.shifts
    except ValueError as error:
        raise ValueError(f"{family}: {error}") from None


def require_one_plane(owner: str, topology: Topology) -> None:
    """Raise ValueError if hosts have links to several planes, which `owner` does not have."""
    if topology.planes > 1:
        raise ValueError(
            f"{owner}: a host has one link, and those of {topology.spec} have {topology.planes}; "
            "`weft simulate` has them without daemons, with tcp and ndp"
        )


def _no_flags() -> NDArray[np.bool_]:
    import numpy as np

    return np.zeros(0, dtype=bool)


def _no_rates() -> NDArray[np.int64]:
    import numpy as np

    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Topology:
    """A network: its nodes, links and names.

    links: shape (number of links, 4), int64: node a, its port, node b, its port; a < b.
    level: shape (number of links,), int8: level of the link; 0 joins a server to a switch.  In a
        server-centric network a level-l link joins two level-(l-1) copies; in a switch fabric a
        level-l link joins tiers l and l+1.
    server_centric: servers forward and switches are dumb crossbars; otherwise switches route and
        servers are hosts.
    naming: node number <-> name, label and address.
    failed: shape (number of links,), bool: links that are there but dead (see failures.py).
    rates_bps: shape (number of links,), int64: what each link carries where a user's graph says so,
        0 where it does not; empty for networks of families, whose links get their rate at bring-up.
    own_links: by link, rate, queue, delay and loss from a user's graph, where it has them.
    planes: links of a host of a switch fabric, port p of it to plane p (tiered/planes.py).
    named: the spec of a network that is no family's.
    """

    family: str
    parameters: Mapping[str, int]
    servers: int
    switches: int
    links: NDArray[np.int64]
    level: NDArray[np.int8]
    server_centric: bool
    naming: Naming
    roles: tuple[str, ...] = ()
    failed: NDArray[np.bool_] = field(default_factory=_no_flags)
    rates_bps: NDArray[np.int64] = field(default_factory=_no_rates)
    own_links: Mapping[int, LinkSpec] = field(default_factory=dict)
    planes: int = 1
    named: str = ""

    def __post_init__(self) -> None:
        import numpy as np

        if self.failed.size == 0:
            object.__setattr__(self, "failed", np.zeros(len(self.links), dtype=bool))
        if not self.roles:
            highest = int(self.level.max(initial=0))
            object.__setattr__(
                self, "roles", ("host", *["local"] * (highest - 1), *["global"] * (highest > 0))
            )
        # Properties derived from these arrays are cached, so the arrays must not change.
        for name in ("links", "level", "failed", "rates_bps"):
            view = getattr(self, name).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    @classmethod
    def wired(
        cls,
        family: str,
        parameters: Mapping[str, int],
        naming: Naming,
        levels: Sequence[NDArray[np.int64]],
        *,
        server_centric: bool,
        roles: Sequence[str] = (),
        planes: int = 1,
        named: str = "",
    ) -> Topology:
        """Return the network whose level-l links are levels[l], in that order."""
        import numpy as np

        return cls(
            family=family,
            parameters=dict(parameters),
            servers=naming.servers,
            switches=naming.switches,
            links=np.concatenate(levels),
            level=np.repeat(
                np.arange(len(levels), dtype=np.int8), [len(links) for links in levels]
            ),
            server_centric=server_centric,
            naming=naming,
            roles=tuple(roles),
            planes=planes,
            named=named,
        )

    @property
    def spec(self) -> str:
        """Text from which build() makes this network again, failures aside."""
        return self.named or unparse(self.family, self.parameters)

    @property
    def nodes(self) -> int:
        return self.servers + self.switches

    @property
    def size(self) -> Size:
        return Size(self.spec, self.servers, self.switches, len(self.links))

    @cached_property
    def _ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Link ends sorted by (node, port), and where each node's begin.

        Rows are node, port, peer, peer port, link.
        """
        import numpy as np

        index = np.arange(len(self.links))[:, None]
        ends = np.concatenate(
            [np.hstack([self.links, index]), np.hstack([self.links[:, [2, 3, 0, 1]], index])]
        )
        ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
        return ends, np.searchsorted(ends[:, 0], np.arange(self.nodes + 1))

    @property
    def host_links(self) -> NDArray[np.int64]:
        """Ends of the links of level 0, each from a server to a switch."""
        links: NDArray[np.int64] = self.links[self.level == 0]
        return links

    def edge(self, host: int) -> int:
        """Return the switch that a host's first link leads to."""
        return self.ports(host)[0][1]

    def ports(self, node: int) -> list[tuple[int, int, int, int]]:
        """Return (port, peer, peer's port, link) of every port of `node`, also of failed links."""
        ends, start = self._ends
        return [
            (port, peer, far, link)
            for _, port, peer, far, link in ends[start[node] : start[node + 1]].tolist()
        ]

    def live_ports(self, node: int) -> list[tuple[int, int, int, int]]:
        """Return ports() without failed links."""
        return [row for row in self.ports(node) if not self.failed[row[3]]]

    def ends(self, link: int) -> list[int]:
        """Return node a of `link`, its port, node b, and its port."""
        row: list[int] = self.links[link].tolist()
        return row

    def link_level(self, link: int) -> int:
        return int(self.level[link])

    def live_ends(self) -> list[list[int]]:
        """Return ends() of all healthy links."""
        rows: list[list[int]] = self.links[~self.failed].tolist()
        return rows

    def failed_links(self) -> list[int]:
        """Return the numbers of the failed links."""
        numbers: list[int] = self.failed.nonzero()[0].tolist()
        return numbers

    @cached_property
    def adjacency(self) -> Mapping[int, tuple[int, ...]]:
        """Routing nodes one hop away from each routing node over healthy links, in order of number.

        Routing nodes are the servers of a server-centric network, where a crossbar costs nothing
        and a hop through one needs both of its links; in a switch fabric, hosts and switches.
        """
        beside: list[list[int]] = [[] for _ in range(self.nodes)]
        for a, _, b, _ in self.live_ends():
            beside[a].append(b)
            beside[b].append(a)
        if not self.server_centric:
            return {node: tuple(sorted(peers)) for node, peers in enumerate(beside)}
        return {
            server: tuple(
                sorted(
                    other
                    for peer in beside[server]
                    for other in (beside[peer] if self.is_crossbar(peer) else [peer])
                    if other != server
                )
            )
            for server in range(self.servers)
        }

    def neighbours(self, node: int) -> dict[int, tuple[int, ...]]:
        """Return the routing nodes behind each port, failed or not.

        These are all others at the crossbar, or the peer.
        """
        by_port = {}
        for port, peer, _, _ in self.ports(node):
            behind = (
                [other for _, other, _, _ in self.ports(peer)] if self.is_crossbar(peer) else [peer]
            )
            by_port[port] = tuple(other for other in behind if other != node)
        return by_port

    def is_crossbar(self, node: int) -> bool:
        """Return True for a switch of a server-centric network, which routes nothing."""
        return self.server_centric and node >= self.servers

    def link_between(self, a: int, b: int) -> int:
        """Return the link that joins nodes `a` and `b`; ValueError if there is none."""
        for _, peer, _, link in self.ports(a):
            if peer == b:
                return link
        name = self.naming.name(a)
        links = [self.link_name(link) for _, _, _, link in self.ports(a)]
        more = f" and {len(links) - MOST_LISTED} more" if len(links) > MOST_LISTED else ""
        listed = f"{', '.join(links[:MOST_LISTED])}{more}"
        raise ValueError(
            f"no link joins {name} and {self.naming.name(b)} (links of {name}: {listed})"
        )

    def links_between(self, a: int, b: int) -> list[int]:
        """Return the links that join nodes `a` and `b`, in order of number."""
        return sorted(link for _, peer, _, link in self.ports(a) if peer == b)

    def hop_links(self, a: int, b: int) -> list[int]:
        """Return a link from `a` to `b`, or the two by way of their crossbar; else none."""
        for _, peer, _, link in self.ports(a):
            if peer == b:
                return [link]
            if self.is_crossbar(peer):
                for second in self.links_between(peer, b):
                    return [link, second]
        return []

    def link_name(self, link: int) -> str:
        """Return the name of `link`, h0-w0; the second of parallel links is h0-w0:2."""
        a, _, b, _ = self.ends(link)
        parallel = self.links_between(a, b).index(link)
        return f"{self.naming.name(a)}-{self.naming.name(b)}" + (
            f":{parallel + 1}" if parallel else ""
        )

    def link(self, text: str) -> int:
        """Return the link named `text`, h0-w0 or h0-w0:2.

        Raises:
            ValueError: no such link; one line says why.
        """
        ends, colon, number = text.partition(":")
        a, dash, b = ends.partition("-")
        if not dash:
            raise ValueError(
                f"{text!r} is not a link; write its two ends as in {self.link_name(0)}"
            )
        parallel = self.links_between(self.naming.node(a), self.naming.node(b))
        if not colon:
            return self.link_between(self.naming.node(a), self.naming.node(b))
        if not number.isdecimal() or not 1 <= int(number) <= len(parallel):
            raise ValueError(f"no link {text}: {len(parallel)} join {a} and {b}")
        return parallel[int(number) - 1]

    def _repr_svg_(self) -> str | None:
        """Return the drawing that a notebook shows; None where weft is not installed."""
        draw = service("drawing")
        return draw(self) if draw else None

    def check(self) -> None:
        """Raise ValueError unless links have two ends, ports one link, and servers at least one."""
        import numpy as np

        a, pa, b, pb = self.links.T
        if len(self.links) != len(self.level) or len(self.links) != len(self.failed):
            raise ValueError(f"{self.spec}: links, level and failed differ in length")
        if ((self.links < 0).any()) or (a >= b).any() or (b >= self.nodes).any():
            raise ValueError(
                f"{self.spec}: a link's ends must be two nodes of the network, the smaller first"
            )
        ports = np.sort(np.concatenate([a << 32 | pa, b << 32 | pb]))
        if (ports[1:] == ports[:-1]).any():
            raise ValueError(f"{self.spec}: a port is used twice")
        if not np.bincount(a, minlength=self.servers)[: self.servers].all():
            raise ValueError(f"{self.spec}: a server has no link")

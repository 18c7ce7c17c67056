"""Completely connected recursively defined networks: DCell, beta-DCell, FiConn.

Any two copies are joined by one link.

An X(h) is made of g_h copies of X(h-1), numbered 0 .. g_h - 1, and one level-h link between any two
of them.  An X(0) is a crossbar with n servers.  Server u of X(k) is number u % t_h of its X(h),
where t_h is the size of an X(h). (CCRDN, section 3.)

Everything here is arithmetic on integers, so that the same source serves a daemon on one server
and, compiled, millions of pairs: `rule` is one of the three constants below or the number of one of
RULES, `t` is the sequence of sizes t_0 .. t_k.

RULES are other connection rules, of Generalized DCell (CCRDN 3.1.1).  In an X(level) of size + 1
copies of X(level-1), of `size` servers each, a rule says which server of copy i is joined to copy
j.  Whatever it says, provided that each copy gives every other one a server of its own, the links
are a perfect matching: that between copies i and j joins the server of i for j to the server of j
for i.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from weft.topologies.core.address import AddressLayout, CrossbarNaming

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


DCELL, BETA_DCELL, FICONN = 0, 1, 2
FAMILY = {DCELL: "dcell", BETA_DCELL: "beta-dcell", FICONN: "ficonn"}
IntegerOrArray = TypeVar("IntegerOrArray", int, "NDArray[np.int64]")

FIRST = 3  # numbers below are DCELL, BETA_DCELL and FICONN
CHECKED = 200  # copies that are checked of those that are more


@dataclass(frozen=True, eq=False)
class ConnectionRule:
    """A rule as two functions, the second the inverse of the first in its last argument.

    gateway(size, i, j): the server 0 .. size-1 of copy i that is joined to copy j; i and j,
    different, are 0 .. size. far_subnetwork(size, i, p): the j for which gateway(size, i, j) is p.
    needs: for people, which sizes it takes; takes(size): whether it takes this one.
    orders: of a rule by permutations, what by_permutation() was given.

    The graph engine compiles both functions: they may use integers, `if`, loops, and functions of
    the same module.
    """

    gateway: Callable[[int, int, int], int]
    far_subnetwork: Callable[[int, int, int], int]
    needs: str = "any size"
    takes: Callable[[int], bool] = lambda size: True
    orders: Mapping[int, Sequence[int]] = field(default_factory=dict)


RULES: dict[int, ConnectionRule] = {}


def add(rule: ConnectionRule) -> int:
    """Number `rule`; the number is what functions here take as `rule`."""
    number = FIRST + len(RULES)
    RULES[number] = rule
    return number


def own_gateway(rule: int, size: int, i: Any, j: Any) -> Any:
    """gateway() of the rule of this number."""
    return RULES[rule].gateway(size, i, j)


def own_far_subnetwork(rule: int, size: int, i: int, p: int) -> int:
    """far_subnetwork() of the rule of this number."""
    return RULES[rule].far_subnetwork(size, i, p)


@cache
def require_matching(rule: int, size: int) -> None:
    """Raise ValueError unless the rule joins copies of `size` servers by a perfect matching.

    Each copy is asked about each other one; where these are many, some about some.
    """
    own = RULES[rule]
    if not own.takes(size):
        raise ValueError(f"its connection rule needs {own.needs} in a copy, not {size}")
    step = max(1, size // CHECKED)
    for i in range(0, size + 1, step):
        for j in range(0, size + 1, step):
            if i != j:
                p = own.gateway(size, i, j)
                if not 0 <= p < size or own.far_subnetwork(size, i, p) != j:
                    raise ValueError(
                        f"its connection rule gives copy {i} server {p} of {size} for copy {j}, "
                        f"and that server"
                        f" copy {own.far_subnetwork(size, i, p)}: far_subnetwork() must be the "
                        f"inverse of gateway()"
                    )


def by_permutation(orders: Mapping[int, Sequence[int]]) -> ConnectionRule:
    """Return the rule that gives the d-th copy after i server orders[size][d - 1] of copy i.

    d is 1 .. size, and copies are counted round.

    orders: a permutation of 0 .. size-1 for each size of a copy; beta-DCell's is 0, 1, 2, ...
    (CCRDN 3.1.1). ValueError if one is no permutation.
    """
    inverse: dict[int, list[int]] = {}
    for size, order in orders.items():
        if sorted(order) != list(range(size)):
            raise ValueError(
                f"the order for copies of {size} servers is no permutation of 0 .. {size - 1}"
            )
        inverse[size] = sorted(range(size), key=order.__getitem__)

    def gateway(size: int, i: int, j: int) -> int:
        return orders[size][(j - i - 1) % (size + 1)]

    def far_subnetwork(size: int, i: int, p: int) -> int:
        return (i + inverse[size][p] + 1) % (size + 1)

    needs = f"{' or '.join(map(str, sorted(orders)))} servers"
    return ConnectionRule(gateway, far_subnetwork, needs, orders.__contains__, dict(orders))


def gateway(
    rule: int, t: Sequence[int], level: int, i: IntegerOrArray, j: IntegerOrArray
) -> IntegerOrArray:
    """Return the server of copy `i` of X(level-1) whose level-`level` link leads to copy `j`.

    I != j.

    The server is numbered within its copy.  `i` and `j` may be arrays of the same shape.

    Those of RULES are functions of their own.
    DCell, CCRDN 3.1: uid y-1 of copy x is joined to uid x of copy y, for x < y.
    beta-DCell, 3.1.1: uid y-x-1 of copy x to uid t_{level-1} - y + x of copy y.
    FiConn, 3.2: uid (y-1) 2^level + 2^(level-1) - 1 of copy x to uid x 2^level + 2^(level-1) - 1 of
    copy y.
    """
    if rule == BETA_DCELL:
        ahead = j - i - 1
        # modulo t + 1: a division would take most of a search
        return ahead + ((ahead >> 63) & (t[level - 1] + 1))
    if rule >= FIRST:
        own: IntegerOrArray = own_gateway(rule, t[level - 1], i, j)
        return own
    slot = j - (j > i)  # the other copies in order, this one left out
    if rule == FICONN:
        return (slot << level) + (1 << (level - 1)) - 1
    return slot


def bridge(rule: int, t: Sequence[int], level: int, i: int, j: int) -> tuple[int, int]:
    """Return the ends of the link between copies `i` and `j` of X(level-1), that in `i` first."""
    near = gateway(rule, t, level, i, j)
    if rule == BETA_DCELL:
        return near, t[level - 1] - 1 - near
    return near, gateway(rule, t, level, j, i)


def far_subnetwork(rule: int, t: Sequence[int], level: int, i: int, p: int) -> int:
    """Return the copy to which server `p` of copy `i` of X(level-1) is joined, or -1.

    Inverse of gateway() in its last argument.
    """
    if rule == BETA_DCELL:
        j = i + p + 1
        return j - (((t[level - 1] - j) >> 63) & (t[level - 1] + 1))
    if rule >= FIRST:
        return own_far_subnetwork(rule, t[level - 1], i, p)
    if rule == FICONN:
        if p & ((1 << level) - 1) != (1 << (level - 1)) - 1:
            return -1
        p >>= level
    return p + (p >= i)


def peer(rule: int, t: Sequence[int], server: int, level: int) -> int:
    """Return the server at the far end of `server`'s level-`level` link, `level` >= 1.

    -1 if there is none (FiConn).
    """
    sub = t[level - 1]
    i = server % t[level] // sub
    j = far_subnetwork(rule, t, level, i, server % sub)
    if j < 0:
        return -1
    return server - server % t[level] + j * sub + gateway(rule, t, level, j, i)


def common_level(t: Sequence[int], a: int, b: int) -> int:
    """Return the least h for which servers `a` and `b` lie in the same X(h)."""
    level = 0
    while a // t[level] != b // t[level]:
        level += 1
    return level


@dataclass(frozen=True)
class Ccrdn:
    """The sizes of one network: connection rule, servers n of a crossbar, depth k.

    ValueError if uids pass 63 bits, or if one of RULES joins no copies of these
    sizes.
    """

    rule: int
    n: int
    k: int

    def __post_init__(self) -> None:
        size = self.n
        for level in range(1, self.k + 1):
            if self.rule >= FIRST:
                try:
                    require_matching(self.rule, size)
                except ValueError as error:
                    raise ValueError(
                        f"{FAMILY[self.rule]}: n={self.n}, k={self.k}: {error}"
                    ) from error
            size *= (size >> level if self.rule == FICONN else size) + 1
            if size >> 63:
                raise ValueError(
                    f"{FAMILY[self.rule]}: n={self.n}, k={self.k} has too many servers for 63 bits"
                )

    @cached_property
    def copies(self) -> tuple[int, ...]:
        """g_0 .. g_k: g_h copies of X(h-1) make an X(h); g_0 = n servers."""
        g, size = [self.n], self.n
        for level in range(1, self.k + 1):
            g.append((size >> level if self.rule == FICONN else size) + 1)
            size *= g[-1]
        return tuple(g)

    @cached_property
    def t(self) -> tuple[int, ...]:
        """t_0 .. t_k, the number of servers of an X(0) .. X(k)."""
        sizes = [self.n]
        for g in self.copies[1:]:
            sizes.append(sizes[-1] * g)
        return tuple(sizes)

    @cached_property
    def layout(self) -> AddressLayout:
        """Labels x_k .. x_0 as addresses."""
        return AddressLayout(tuple(reversed(self.copies)))

    def peer(self, server: int, level: int) -> int:
        """Return the server at the far end of `server`'s level-`level` link.

        -1 if there is none.
        """
        return peer(self.rule, self.t, server, level)

    def port(self, level: int) -> int:
        """Return the port of a server's level-`level` link.

        A FiConn server has at most two (CCRDN 3.2, dual-port).
        """
        return min(level, 1) if self.rule == FICONN else level

    def levels(self, server: int) -> list[int]:
        """Return the levels >= 1 at which `server` has a link."""
        return [level for level in range(1, self.k + 1) if self.peer(server, level) >= 0]


class CcrdnNaming(CrossbarNaming):
    """Servers h<uid>; the crossbar of the i-th X(0) is w<i>."""

    def __init__(self, network: Ccrdn) -> None:
        self.network = network
        self.servers = network.t[-1]
        self.switches = network.t[-1] // network.n
        self.layout = network.layout

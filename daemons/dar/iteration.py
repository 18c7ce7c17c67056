"""The synchronous iteration of distributed adaptive routing (DAR, section 2 and figure 9), as pure
functions.

CLOS(n,r,m) has r input leaves and r output leaves of n hosts each, and m spines.  Flow f comes from
host f, at input leaf f // n, and goes to host destination[f], at output leaf destination[f] // n;
its spine is its whole path.  A flow has 1/p of a link's rate, so a link with more than p flows is
bad.  In an iteration every output leaf with a bad link picks a flow of its fullest one and asks the
flow's input leaf to move it.  Destinations need not be a permutation, if no output leaf has more
than n flows.

What the paper leaves open is a field of Rules.  Everything is integers in flat arrays (lists do as
well), no function allocates, and numba compiles the same source.  Randomness is an argument: four
words of generator state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from weft.daemons.routing.selection import WORD, below

MODULO, RANDOM, LIMITED, SPREAD = range(4)
STARTS = {"modulo": MODULO, "random": RANDOM, "limited": LIMITED, "spread": SPREAD}
FLOW, DEST = range(2)
KEYS = {"flow": FLOW, "dest": DEST}
NOWHERE = -1  # the spine of a flow that needs none
REQUESTS, MOVES, SWAPS = range(3)  # what `counts` counts


class MutableIntSequence(Protocol):
    """Integers in a row that can be replaced: a list, or an array."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...

    def __getitem__(self, i: int, /) -> int: ...

    def __setitem__(self, i: int, value: int, /) -> None: ...


class IterationRules(NamedTuple):
    """Choices that the paper leaves open; flags are 0 or 1.

    p: flows that a link carries.
    start: MODULO, flow f on spine f mod n (figure 9; mod m where there are fewer spines); RANDOM,
        any spine; LIMITED, any spine whose uplink has fewer than p flows (section 2); SPREAD, flow
        f on spine f mod m, which uses all of them where there are more than n.
    every_link: an output leaf asks for one flow of each of its bad links, instead of one flow of
        the fullest.
    swap: a flow that is moved to an uplink with p flows changes places with one of them.  Without
        it, and from a start that overfills uplinks, input leaves move flows of their own fullest
        uplinks as well (section 4).
    stay: a new spine is drawn from all of them, the present one included.
    informed: a request carries the map of spines with fewer than p flows towards the output leaf.
        The input leaf takes one of them whose uplink has room, or else any of them.  Not in the
        paper.
    folded: input leaf i and output leaf i are one switch, and flows within it need no spine.
    key: what an input leaf places and moves: FLOW, each flow by itself; DEST, all of its flows to
        one host together (section 4, where the tables of switches are by destination).
    rest: iterations without a request for a flow that has moved or was swapped
        back (section 4's timer).  A flow that rests may still be swapped back.
    """

    p: int = 1
    start: int = MODULO
    every_link: int = 0
    swap: int = 1
    stay: int = 1
    informed: int = 0
    folded: int = 0
    key: int = FLOW
    rest: int = 0


class ClosFlows(NamedTuple):
    """Flows on CLOS(n,r,m) and where they are, changed in place.

    destination: of each of the n r flows.  source: source[o n : o n + n] are the flows to output
        leaf o, or NOWHERE; of a permutation, the inverse.
    spine: of each flow, or NOWHERE.
    up, down: flows on each link, by leaf * m + spine: from an input leaf, and to an output leaf.
    requested: working space for (m + 1) r flows.  room: working space for r m flags.
    rest: of each flow, iterations for which it still rests.
    """

    n: int
    r: int
    m: int
    destination: MutableIntSequence
    source: MutableIntSequence
    spine: MutableIntSequence
    up: MutableIntSequence
    down: MutableIntSequence
    requested: MutableIntSequence
    room: MutableIntSequence
    rest: MutableIntSequence


def rearrangeable(n: int, m: int, p: int) -> bool:
    """Return True if every permutation has a routing without bad links (section 5)."""
    return m * p >= n


def strictly_nonblocking(n: int, m: int, p: int) -> bool:
    """Return True if a new flow always finds a spine with room at both ends.

    Derived: n-1 other flows fill at most floor((n-1) / p) uplinks, and as many links down.
    """
    return m >= 2 * ((n - 1) // p) + 1


def check(n: int, r: int, m: int, rules: IterationRules) -> None:
    """ValueError, in one line, for a network or rules under which the iteration cannot converge."""
    if min(n, r, m, rules.p) < 1:
        raise ValueError(f"dar: n, r, m and p must be at least 1, got {n}, {r}, {m} and {rules.p}")
    if not rearrangeable(n, m, rules.p):
        least = -(-n // rules.p)
        raise ValueError(
            f"dar: {m} spines carry {m * rules.p} of a leaf's {n} flows at p={rules.p}: "
            f"take m >= {least}"
        )
    for_ever = n == m == 2 or (m == 2 and not rules.swap)  # found by exhaustive search
    if for_ever and m * rules.p == n and not rules.stay and not rules.informed:
        raise ValueError(
            f"dar: with m=2 at p={rules.p}, flows that never stay may move for ever: "
            "take new_spine=any"
        )
    if rules.rest < 0:
        raise ValueError(f"dar: flows rest for 0 iterations or more, got {rules.rest}")


def check_traffic(network: ClosFlows, rules: IterationRules) -> None:
    """ValueError, in one line, for flows that no routing without bad links has room for, as far as
    counting tells.
    """
    n, p = network.n, rules.p
    outputs = Counter(host // n for host in network.destination)
    if outputs and max(outputs.values()) > n:
        raise ValueError(
            f"dar: a leaf takes {n} flows, got {max(outputs.values())}: send no leaf more"
        )
    if rules.key == DEST:
        together = Counter((flow // n, host) for flow, host in enumerate(network.destination))
        sizes = set(together.values())
        if max(sizes) > p:
            most = max(sizes)
            raise ValueError(
                f"dar: {most} flows of a leaf go to one host, and a link carries {p}: take key=flow"
            )
        if len(sizes) == 1 and network.m * (p // max(sizes)) * max(sizes) < n:
            raise ValueError(
                f"dar: {n} flows by {max(sizes)} do not fit {network.m} spines at p={p}: "
                f"take key=flow"
            )


def draw(state: MutableIntSequence) -> int:
    """The next 32 random bits of `state`, four words of 32 bits that are not all 0 (xoshiro128++,
    Blackman, Vigna).
    """
    a, b, c, d = state[0], state[1], state[2], state[3]
    total = a + d & WORD
    found = ((total << 7 | total >> 25) & WORD) + a & WORD
    c ^= a
    d ^= b
    state[1], state[0] = b ^ c, a ^ d
    state[2] = c ^ (b << 9 & WORD)
    state[3] = (d << 11 | d >> 21) & WORD
    return found


def invert(network: ClosFlows) -> None:
    """Set `source` by `destination`: a flow is at its host's place, or at the next free one of that
    leaf.

    Where a leaf has more than n flows, those with the highest numbers are left out.
    """
    for place in range(len(network.source)):
        network.source[place] = NOWHERE
    for flow in range(len(network.destination)):
        host = network.destination[flow]
        first = host // network.n * network.n
        for step in range(network.n):
            place = first + (host - first + step) % network.n
            if network.source[place] < 0:
                network.source[place] = flow
                break


def place(network: ClosFlows, rules: IterationRules, state: MutableIntSequence) -> None:
    """Give every flow its first spine, and count the flows on every link."""
    n, m = network.n, network.m
    for link in range(network.r * m):
        network.up[link], network.down[link] = 0, 0
    for flow in range(network.r * n):
        network.spine[flow], network.rest[flow] = NOWHERE, 0
    for flow in range(network.r * n):
        leaf, output = flow // n, network.destination[flow] // n
        if not (rules.folded and leaf == output):
            spine = first_spine(network, rules, flow, state)
            network.spine[flow] = spine
            network.up[leaf * m + spine] += 1
            network.down[output * m + spine] += 1


def first_spine(
    network: ClosFlows, rules: IterationRules, flow: int, state: MutableIntSequence
) -> int:
    """The spine that `flow` starts on."""
    n, m, first = network.n, network.m, flow // network.n * network.n
    size = 1
    if rules.key == DEST:
        for other in range(first, first + n):
            if other != flow and network.destination[other] == network.destination[flow]:
                size += 1
                if network.spine[other] >= 0:
                    return network.spine[other]
    if rules.start == RANDOM:
        return below(draw(state), m)
    if rules.start == LIMITED:
        leaf = flow // n * m
        spine = random_with_room(network.up, leaf, network.up, leaf, m, rules.p - size + 1, state)
        return spine if spine >= 0 else below(draw(state), m)
    if rules.start == SPREAD:
        return flow % m
    return flow % n % m


def random_with_room(
    one: MutableIntSequence,
    first: int,
    other: MutableIntSequence,
    start: int,
    m: int,
    p: int,
    state: MutableIntSequence,
) -> int:
    """A random spine with fewer than p in both of one[first:first+m] and other[start:start+m],
    NOWHERE if none has.
    """
    found, seen = NOWHERE, 0
    for spine in range(m):
        if one[first + spine] < p and other[start + spine] < p:
            seen += 1
            if below(draw(state), seen) == 0:
                found = spine
    return found


def settled(network: ClosFlows, p: int) -> bool:
    """Return True if no link has more than p flows."""
    link, links = 0, network.r * network.m
    while link < links and network.up[link] <= p and network.down[link] <= p:
        link += 1
    return link == links


def fullest(load: MutableIntSequence, first: int, m: int) -> int:
    """The most flows on one of the links load[first:first+m]."""
    most = 0
    for link in range(first, first + m):
        most = max(most, load[link])
    return most


def of_output(
    network: ClosFlows, output: int, least: int, only: int, state: MutableIntSequence
) -> int:
    """A random flow of `output` that does not rest, whose link has `least` flows or more and whose
    spine is `only`, if that is one; NOWHERE if there is none.
    """
    found, seen = NOWHERE, 0
    for host in range(output * network.n, (output + 1) * network.n):
        flow = network.source[host]
        if flow < 0 or network.rest[flow] > 0:
            continue
        spine = network.spine[flow]
        if (
            spine >= 0
            and (only < 0 or spine == only)
            and network.down[output * network.m + spine] >= least
        ):
            seen += 1
            if below(draw(state), seen) == 0:
                found = flow
    return found


def of_input(network: ClosFlows, leaf: int, least: int, state: MutableIntSequence) -> int:
    """A random flow of input `leaf` that does not rest and whose uplink has `least` flows or more,
    or NOWHERE.
    """
    found, seen = NOWHERE, 0
    for flow in range(leaf * network.n, (leaf + 1) * network.n):
        spine = network.spine[flow]
        if spine >= 0 and network.rest[flow] == 0 and network.up[leaf * network.m + spine] >= least:
            seen += 1
            if below(draw(state), seen) == 0:
                found = flow
    return found


def victim(network: ClosFlows, rules: IterationRules, flow: int, state: MutableIntSequence) -> int:
    """A random flow on the uplink of `flow` that is not placed together with it, or NOWHERE."""
    found, seen, first = NOWHERE, 0, flow // network.n * network.n
    for other in range(first, first + network.n):
        if network.spine[other] == network.spine[flow] and not together(
            network, rules, flow, other
        ):
            seen += 1
            if below(draw(state), seen) == 0:
                found = other
    return found


def together(network: ClosFlows, rules: IterationRules, flow: int, other: int) -> bool:
    """Whether `other`, of the same input leaf, is placed and moved with `flow`, as `flow` itself
    is.
    """
    if flow == other:
        return True
    return rules.key == DEST and network.destination[flow] == network.destination[other]


def request(
    network: ClosFlows, rules: IterationRules, state: MutableIntSequence
) -> tuple[int, int]:
    """Write to `requested` the flows that leaves want moved: first those of output leaves, then
    those of input leaves.

    Returns how many there are of output leaves, and of all.
    """
    m, p, count = network.m, rules.p, 0
    for output in range(network.r):
        most = fullest(network.down, output * m, m)
        if most > p and not rules.every_link:
            network.requested[count] = of_output(network, output, most, NOWHERE, state)
            count += network.requested[count] >= 0
        if most > p and rules.every_link:
            for spine in range(m):
                if network.down[output * m + spine] > p:
                    network.requested[count] = of_output(network, output, p + 1, spine, state)
                    count += network.requested[count] >= 0
    of_outputs = count
    for leaf in range(network.r):
        most = fullest(network.up, leaf * m, m)
        if most > p:
            network.requested[count] = of_input(network, leaf, most, state)
            count += network.requested[count] >= 0
    return of_outputs, count


def new_spine(
    network: ClosFlows, rules: IterationRules, flow: int, informed: int, state: MutableIntSequence
) -> int:
    """The spine that `flow` moves to.

    `informed` if the request for it carries the output leaf's map `room`.
    """
    m, leaf, output = network.m, flow // network.n, network.destination[flow] // network.n
    if informed:
        least = rules.p  # fewer flows than this on a link, and all that move have room
        if rules.key == DEST:
            for other in range(leaf * network.n, (leaf + 1) * network.n):
                least -= other != flow and together(network, rules, flow, other)
        spine = random_with_room(network.up, leaf * m, network.room, output * m, m, least, state)
        if spine < 0:
            spine = random_with_room(
                network.room, output * m, network.room, output * m, m, least, state
            )
        if spine >= 0:
            return spine
    if rules.stay or m == 1:
        return below(draw(state), m)
    return (network.spine[flow] + 1 + below(draw(state), m - 1)) % m


def put(network: ClosFlows, rules: IterationRules, flow: int, spine: int) -> int:
    """Move `flow`, and what is placed together with it, to `spine`.

    Returns how many flows those are.
    """
    leaf, output = flow // network.n * network.m, network.destination[flow] // network.n * network.m
    old, first, count = network.spine[flow], flow // network.n * network.n, 0
    for other in range(first, first + network.n) if rules.key == DEST else range(flow, flow + 1):
        if together(network, rules, flow, other):
            network.spine[other], network.rest[other] = spine, rules.rest
            count += 1
    network.up[leaf + old] -= count
    network.down[output + old] -= count
    network.up[leaf + spine] += count
    network.down[output + spine] += count
    return count


def move(
    network: ClosFlows,
    rules: IterationRules,
    flow: int,
    informed: int,
    counts: MutableIntSequence,
    state: MutableIntSequence,
) -> None:
    """Move `flow` to a new spine, and swap as many flows back as have moved, while its uplink is
    overfull.
    """
    old, spine = network.spine[flow], new_spine(network, rules, flow, informed, state)
    if spine == old:
        return
    back, moved = 0, put(network, rules, flow, spine)
    counts[MOVES] += moved
    while (
        rules.swap and back < moved and network.up[flow // network.n * network.m + spine] > rules.p
    ):
        other = victim(network, rules, flow, state)
        if other < 0:
            break
        back += put(network, rules, other, old)
    counts[SWAPS] += back


def iterate(
    network: ClosFlows, rules: IterationRules, counts: MutableIntSequence, state: MutableIntSequence
) -> None:
    """One iteration: all requests are made before the first flow moves, and are served in random
    order.

    counts: requests (one EAR message each, unless an input leaf makes it for itself), flows moved
    on request, and flows swapped back for them, raised in place.
    """
    of_outputs, count = request(network, rules, state)
    if rules.rest:
        for flow in range(len(network.rest)):
            network.rest[flow] -= network.rest[flow] > 0
    if rules.informed:
        for link in range(network.r * network.m):
            network.room[link] = network.down[link]
    counts[REQUESTS] += of_outputs
    # A request is kept as 2 flow + 1 if an output leaf made it, so that the order can be shuffled.
    for at in range(count):
        network.requested[at] = 2 * network.requested[at] + (at < of_outputs)
    for left in range(count, 0, -1):
        taken = below(draw(state), left)
        wanted = network.requested[taken]
        network.requested[taken] = network.requested[left - 1]
        move(network, rules, wanted // 2, rules.informed * (wanted % 2), counts, state)


def converge(
    network: ClosFlows,
    rules: IterationRules,
    most: int,
    counts: MutableIntSequence,
    state: MutableIntSequence,
) -> int:
    """Iterations until no link is bad, or -1 if `most` of them are not enough."""
    for iterations in range(most + 1):
        if settled(network, rules.p):
            return iterations
        if iterations < most:
            iterate(network, rules, counts, state)
    return -1

"""Synchronous iteration of distributed adaptive routing (DAR, section 2 and figure 9).

CLOS(n,r,m) has r input leaves and r output leaves of n hosts each, and m spines.  Flow f comes from
host f, at input leaf f // n, and goes to host destination[f], at output leaf destination[f] // n;
its spine is its whole path.  A flow has 1/p of a link's rate, so a link with more than p flows is
bad.  In an iteration every output leaf with a bad link picks a flow of its fullest one and asks the
flow's input leaf to move it.  Destinations need not be a permutation, if no output leaf has more
than n flows.

The excess is the number of flows above p, summed over links.  With informed requests, one for each
output leaf, and swaps, it never grows: docs/dar.md has the proof.

Choices that the paper leaves open are fields of IterationRules.  All functions are pure, work on
flat arrays (or lists) of integers and allocate nothing; numba compiles the same source.  Randomness
is an argument: four words of generator state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from weft.daemons.routing.selection import WORD, below

MODULO, RANDOM, LIMITED, SPREAD = range(4)
STARTS = {"modulo": MODULO, "random": RANDOM, "limited": LIMITED, "spread": SPREAD}
FLOW, DEST = range(2)
KEYS = {"flow": FLOW, "dest": DEST}
NOWHERE = -1  # the spine of a flow that needs none
REQUESTS, MOVES, SWAPS, SPOILT, GROWTHS = range(5)  # indices of `counts`
COUNTERS = 5
PAUSE_PERCENT = 10  # of the persistent walk; 5 to 20 differ by a tenth on CLOS(24,48,24)


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
    pause_percent: of its iterations with a bad link, those in which an output leaf asks for
        nothing.  With rest = 1 a bad link then wanders in one direction from leaf to leaf, and
        turns after some pauses: the persistent walk of docs/dar.md.  Not in the paper.
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
    pause_percent: int = 0


PERSISTENT = IterationRules(informed=1, rest=1, pause_percent=PAUSE_PERCENT)


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


def check(n: int, r: int, m: int, rules: IterationRules) -> None:
    """Raise ValueError for a network or rules under which the iteration cannot converge.

    A routing without bad links exists for every permutation if and only if m p >= n (section 5).
    """
    if min(n, r, m, rules.p) < 1:
        raise ValueError(f"dar: n, r, m and p must be at least 1, got {n}, {r}, {m} and {rules.p}")
    if m * rules.p < n:
        least = -(-n // rules.p)
        raise ValueError(
            f"dar: {m} spines carry {m * rules.p} of a leaf's {n} flows at p={rules.p}: "
            f"take m >= {least}"
        )
    # an exhaustive search has runs that never end
    endless = n == m == 2 or (m == 2 and not rules.swap)
    if endless and m * rules.p == n and not rules.stay and not rules.informed:
        raise ValueError(
            f"dar: with m=2 at p={rules.p}, flows that never stay may move for ever: "
            "take new_spine=any"
        )
    if rules.rest < 0:
        raise ValueError(f"dar: flows rest for 0 iterations or more, got {rules.rest}")
    if not 0 <= rules.pause_percent < 100:
        raise ValueError(f"dar: leaves pause for 0 to 99 %, got {rules.pause_percent}")


def draw(state: MutableIntSequence) -> int:
    """Return the next 32 random bits of `state`, four words of 32 bits that are not all 0.

    The generator is xoshiro128++ (Blackman, Vigna).
    """
    a, b, c, d = state[0], state[1], state[2], state[3]
    total = a + d & WORD
    bits = ((total << 7 | total >> 25) & WORD) + a & WORD
    c ^= a
    d ^= b
    state[0] = a ^ d
    state[1] = b ^ c
    state[2] = c ^ (b << 9 & WORD)
    state[3] = (d << 11 | d >> 21) & WORD
    return bits


def invert(network: ClosFlows) -> None:
    """Set `source` from `destination`.

    A flow has its host's place, or the next free one of that leaf.  If a leaf has more than n
    flows, those with the highest numbers are left out.
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
    """Return the first spine of `flow`."""
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
    up: MutableIntSequence,
    first_up: int,
    down: MutableIntSequence,
    first_down: int,
    m: int,
    p: int,
    state: MutableIntSequence,
) -> int:
    """Return a random spine whose loads in `up` and `down` are below p, or NOWHERE.

    The loads of m spines begin at `first_up` and `first_down`.
    """
    choice, count = NOWHERE, 0
    for spine in range(m):
        if up[first_up + spine] < p and down[first_down + spine] < p:
            count += 1
            if below(draw(state), count) == 0:
                choice = spine
    return choice


def excess(network: ClosFlows, p: int) -> int:
    """Return the flows above p, summed over all links; 0 if no link is bad."""
    flows = 0
    for link in range(network.r * network.m):
        flows += max(0, network.up[link] - p) + max(0, network.down[link] - p)
    return flows


def fullest(load: MutableIntSequence, first: int, m: int) -> int:
    """Return the most flows on one of the links load[first:first+m]."""
    most = 0
    for link in range(first, first + m):
        most = max(most, load[link])
    return most


def of_output(
    network: ClosFlows, output: int, least: int, only: int, state: MutableIntSequence
) -> int:
    """Return a random flow to `output` that does not rest and whose link has `least` flows or more.

    only: the spine of the flow, or NOWHERE for any spine.  Returns NOWHERE if there is no flow.
    """
    choice, count = NOWHERE, 0
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
            count += 1
            if below(draw(state), count) == 0:
                choice = flow
    return choice


def of_input(network: ClosFlows, leaf: int, least: int, state: MutableIntSequence) -> int:
    """Return a random flow of `leaf` that does not rest and whose uplink has `least` flows or more.

    Returns NOWHERE if there is none.
    """
    choice, count = NOWHERE, 0
    for flow in range(leaf * network.n, (leaf + 1) * network.n):
        spine = network.spine[flow]
        if spine >= 0 and network.rest[flow] == 0 and network.up[leaf * network.m + spine] >= least:
            count += 1
            if below(draw(state), count) == 0:
                choice = flow
    return choice


def victim(network: ClosFlows, rules: IterationRules, flow: int, state: MutableIntSequence) -> int:
    """Return a random flow on the uplink of `flow` that is not placed with it, or NOWHERE."""
    choice, count, first = NOWHERE, 0, flow // network.n * network.n
    for other in range(first, first + network.n):
        if network.spine[other] == network.spine[flow] and not together(
            network, rules, flow, other
        ):
            count += 1
            if below(draw(state), count) == 0:
                choice = other
    return choice


def together(network: ClosFlows, rules: IterationRules, flow: int, other: int) -> bool:
    """Return True if `other`, of the same input leaf, is placed and moved with `flow`."""
    if flow == other:
        return True
    return rules.key == DEST and network.destination[flow] == network.destination[other]


def request(
    network: ClosFlows, rules: IterationRules, state: MutableIntSequence
) -> tuple[int, int]:
    """Write the flows that leaves want moved to `requested`, output leaves first.

    Returns the number of output leaves' flows, and of all.
    """
    m, p, count = network.m, rules.p, 0
    for output in range(network.r):
        most = fullest(network.down, output * m, m)
        if most > p and rules.pause_percent and below(draw(state), 100) < rules.pause_percent:
            continue
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
    """Return the spine that `flow` moves to.

    informed: 1 if the request carries the output leaf's map `room`.
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


def put(
    network: ClosFlows, rules: IterationRules, flow: int, spine: int, counts: MutableIntSequence
) -> int:
    """Move `flow` and those placed with it to `spine`; return their number.

    counts: raised in place if a link to an output leaf becomes bad.
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
    counts[SPOILT] += network.down[output + spine] - count <= rules.p < network.down[output + spine]
    return count


def move(
    network: ClosFlows,
    rules: IterationRules,
    flow: int,
    informed: int,
    counts: MutableIntSequence,
    state: MutableIntSequence,
) -> None:
    """Move `flow` to a new spine.

    While its uplink is overfull, swap flows back, at most as many as have moved.
    """
    old, spine = network.spine[flow], new_spine(network, rules, flow, informed, state)
    if spine == old:
        return
    back, moved = 0, put(network, rules, flow, spine, counts)
    counts[MOVES] += moved
    while (
        rules.swap and back < moved and network.up[flow // network.n * network.m + spine] > rules.p
    ):
        other = victim(network, rules, flow, state)
        if other < 0:
            break
        back += put(network, rules, other, old, counts)
    counts[SWAPS] += back


def iterate(
    network: ClosFlows, rules: IterationRules, counts: MutableIntSequence, state: MutableIntSequence
) -> None:
    """Carry out one iteration.

    All requests are made before the first flow moves, and are served in random order.

    counts: raised in place: requests (one EAR message each; requests of an input leaf to itself do
        not count), flows moved on request, flows swapped back for them, and links to output leaves
        that have become bad.
    """
    of_outputs, count = request(network, rules, state)
    if rules.rest:
        for flow in range(len(network.rest)):
            network.rest[flow] -= network.rest[flow] > 0
    if rules.informed:
        for link in range(network.r * network.m):
            network.room[link] = network.down[link]
    counts[REQUESTS] += of_outputs
    # 2 flow + 1 for the request of an output leaf, so that the order can be shuffled
    for place in range(count):
        network.requested[place] = 2 * network.requested[place] + (place < of_outputs)
    for remaining in range(count, 0, -1):
        place = below(draw(state), remaining)
        flow, by_output = divmod(network.requested[place], 2)
        network.requested[place] = network.requested[remaining - 1]
        move(network, rules, flow, rules.informed * by_output, counts, state)


def converge(
    network: ClosFlows,
    rules: IterationRules,
    most: int,
    counts: MutableIntSequence,
    state: MutableIntSequence,
) -> int:
    """Return the iterations until no link is bad, or -1 if `most` of them are not enough.

    counts: as in iterate(), and the iterations in which the excess grew.
    """
    before = excess(network, rules.p)
    for iterations in range(most):
        if not before:
            return iterations
        iterate(network, rules, counts, state)
        after = excess(network, rules.p)
        counts[GROWTHS] += after > before
        before = after
    return -1 if before else most

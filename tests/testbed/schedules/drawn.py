"""Random schedules."""

from __future__ import annotations

from hypothesis import strategies as st

from weft.testbed.schedules.goal import Kind, Operation, Schedule


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw ranks with messages, computations and dependencies on earlier operations."""
    ranks = draw(st.integers(1, 4))
    own: list[list[Operation]] = [[] for _ in range(ranks)]
    small = st.integers(0, 9)

    def add(rank: int, operation: Operation) -> None:
        earlier = st.lists(st.integers(0, len(own[rank]) - 1), max_size=3, unique=True)
        waits = [tuple(draw(earlier)) if own[rank] else () for _ in range(2)]
        own[rank].append(operation._replace(requires=waits[0], begins_after=waits[1]))

    for _ in range(draw(st.integers(0, 12))):
        rank, peer = draw(small) % ranks, draw(small) % ranks
        amount = draw(st.integers(0, 10**12))
        if rank == peer:
            add(rank, Operation(Kind.CALC, amount, cpu=draw(small)))
            continue
        tag = draw(small)
        for kind, place, other in ((Kind.SEND, rank, peer), (Kind.RECV, peer, rank)):
            add(place, Operation(kind, amount, other, tag, draw(small), draw(small)))
    return own

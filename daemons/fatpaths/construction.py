"""Constructions of layers: at random (FatPaths, listing 1), with little overlap (listing 2), as
in-trees (ours); trees.py has those that layers are compared with.

Every construction takes the graph, the number of layers n with layer 0 counted, and a generator of
random numbers, and returns tables as layers.py has them.  Loops that take long are written over
arrays, so that `accelerate`, a compiler of such functions, can make machine code of them; without
one they run as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from weft.daemons.fatpaths import in_trees, near_minimal, overlap, trees
from weft.daemons.fatpaths.layers import (
    RouterArrays,
    as_it_is,
    distances,
    everything,
    next_hops,
    tables,
    with_fallback,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    from weft.daemons.fatpaths.layers import Compiler

ATTEMPTS = 1000


def check(n: int, rho: float = 1.0) -> None:
    """ValueError unless there can be `n` layers with a fraction `rho` of the links."""
    if not 1 <= n <= 64:
        raise ValueError(f"layered routing: there can be 1 .. 64 layers, got {n}")
    if not 0 < rho <= 1:
        raise ValueError(f"layered routing: rho must lie in (0, 1], got {rho}")


def random_layers(
    graph: RouterArrays, n: int, rho: float, generator: Generator
) -> NDArray[np.int32]:
    """Listing 1: each layer but the first has floor(rho |E|) links, drawn until they join all
    routers.

    Ours: a link runs both ways in a layer; the listing's "pi(u) < pi(v)", "if needed", would leave
    every second ordered pair without a path.  ValueError where no draw is connected.
    """
    import numpy as np

    check(n, rho)
    back, upward = graph.back(), np.flatnonzero(graph.tail < graph.peer)
    layers = []
    for _ in range(n - 1):
        for _ in range(ATTEMPTS):
            drawn = generator.choice(upward, int(rho * len(upward)), replace=False)
            arcs = np.zeros(len(graph.peer), dtype=bool)
            arcs[drawn], arcs[back[drawn]] = True, True
            if _joined(graph, arcs):
                break
        else:
            raise ValueError(
                f"layered routing: no draw of {rho:g} of the links joins all routers; raise rho"
            )
        layers.append(arcs)
    return tables(graph, layers, generator)


def _joined(graph: RouterArrays, arcs: NDArray[np.bool_]) -> bool:
    import numpy as np

    reached = np.zeros(graph.routers, dtype=bool)
    reached[0], tail, peer = True, graph.tail[arcs], graph.peer[arcs]
    while True:
        before = reached.sum()
        reached[peer[reached[tail]]] = True
        if reached.sum() == before:
            return bool(before == graph.routers)


def overlap_layers(
    graph: RouterArrays,
    n: int,
    generator: Generator,
    *,
    most_paths: int = 0,
    accelerate: Compiler = as_it_is,
) -> NDArray[np.int32]:
    """Listing 2: each layer but the first is a union of paths of D + 1 links that share little with
    earlier ones.

    most_paths: the listing's M, paths of a layer at most; 0: as many as there are routers.
    Ours: paths are D + 1 links long (V-B3: "we prefer paths one hop longer than minimal"); a path
    of d routers adds i (d - i) to the weight of its i-th link, counted from 1, as many sub-paths as
    cross it, where the listing's factor gives one end 0.  The links of a layer run both ways, as in
    listing 1: if they ran only as the paths do, from lower to higher ranks, every second ordered
    pair would have no path but layer 0's.
    """
    import numpy as np

    check(n)
    first = next_hops(graph, everything(graph), generator)
    length = int(distances(graph, everything(graph)).max()) + 1
    weight, count = (
        np.zeros(len(graph.peer)),
        np.zeros((graph.routers, graph.routers), dtype=np.int64),
    )
    back, work = graph.back(), accelerate(overlap.layer)
    found = [first]
    for _ in range(n - 1):
        rank = generator.permutation(graph.routers)
        u, v = np.nonzero(rank[:, None] < rank)
        order = np.lexsort((generator.random(len(u)), count[u, v]))
        available, chosen = (
            rank[graph.tail] < rank[graph.peer],
            np.zeros(len(graph.peer), dtype=bool),
        )
        open_pairs = np.zeros((graph.routers, graph.routers), dtype=bool)
        open_pairs[u, v] = True
        pairs = np.stack([u, v], axis=1)[order]
        scratch = (
            np.empty((length + 1, graph.routers)),
            np.empty((length + 1, graph.routers), dtype=np.int64),
        )
        work(
            *(graph.start, graph.peer, pairs, length, most_paths or graph.routers),
            *(
                available,
                chosen,
                weight,
                count,
                open_pairs,
                *scratch,
                np.empty(length + 1, dtype=np.int64),
            ),
        )
        found.append(with_fallback(next_hops(graph, chosen | chosen[back], generator), first))
    return np.stack(found)


def near_minimal_layers(
    graph: RouterArrays, n: int, generator: Generator, *, accelerate: Compiler = as_it_is
) -> NDArray[np.int32]:
    """The authors' later construction (see near_minimal.py): in-trees of paths of D + 1 links.

    Ours: with paths of D links, as the original has them, pairs at distance D would keep their
    shortest ones.
    """
    import numpy as np

    first = next_hops(graph, everything(graph), generator)
    far = distances(graph, everything(graph))
    length = int(far.max()) + 1
    weight = generator.random(len(graph.peer)) / 2  # ties are broken at random
    count, work = (
        np.zeros((graph.routers, graph.routers), dtype=np.int64),
        accelerate(near_minimal.layer),
    )
    found = [trees.connected(first)]
    for _ in range(n - 1):
        s, t = np.nonzero(far > 0)
        order = np.lexsort((generator.random(len(s)), count[s, t]))
        table = np.full_like(first, -1)
        np.fill_diagonal(table, np.arange(graph.routers))
        scratch = np.empty((3, length + 1), dtype=np.int64)
        work(
            graph.start,
            graph.peer,
            far,
            np.stack([s, t], axis=1)[order],
            length,
            table,
            weight,
            count,
            *scratch,
        )
        found.append(with_fallback(table, first))
    return np.stack(found)


def in_tree_layers(
    graph: RouterArrays,
    n: int,
    generator: Generator,
    *,
    first: NDArray[np.int32] | None = None,
    planned: Iterable[Sequence[int]] = (),
    accelerate: Compiler = as_it_is,
) -> NDArray[np.int32]:
    """Ours: for each layer and destination an in-tree in which routers with the fewest distinct
    paths choose first.

    A layer need not be a set of links: forwarding to one destination is free of loops if it is a
    tree to it.  See in_trees.py.
    first: layer 0, drawn at random if it is None.
    planned: paths, as routers from source to destination, which enter no router twice.  Each goes
        into the first layer that has no other path of its source and goes along with those that are
        there; it is left out if there is none.
    """
    import numpy as np

    check(n)
    first = trees.connected(
        next_hops(graph, everything(graph), generator) if first is None else first
    )
    found = np.full((n, graph.routers, graph.routers), -1, dtype=np.int32)
    found[0] = first
    for path in planned:
        trees.plant(found[1:], tuple(path))
    most_hops = int(distances(graph, everything(graph)).max()) + 1
    ties = np.argsort(generator.random((graph.routers, graph.routers)), axis=1)
    accelerate(in_trees.grow)(
        *(graph.start, graph.peer, graph.arc_of(), found, np.zeros(len(graph.peer)), most_hops),
        *(generator.permutation(graph.routers), ties),
        *(np.empty(len(graph.peer), dtype=np.int64), np.empty(graph.routers, dtype=np.int64)),
    )
    return found


def layers_of(
    name: str,
    graph: RouterArrays,
    n: int,
    generator: Generator,
    *,
    rho: float = 1.0,
    accelerate: Compiler = as_it_is,
) -> NDArray[np.int32]:
    """The layers that the construction called `name`, one of CONSTRUCTIONS, makes.

    rho: what `random` takes.  ValueError, in one line, where there are none such.
    """
    check(n, rho)
    return CONSTRUCTIONS[name](graph, n, rho, generator, accelerate)


CONSTRUCTIONS: Mapping[
    str, Callable[[RouterArrays, int, float, Generator, Compiler], NDArray[np.int32]]
] = {
    "random": lambda graph, n, rho, generator, _: random_layers(graph, n, rho, generator),
    "overlap": lambda graph, n, _, generator, accelerate: overlap_layers(
        graph, n, generator, accelerate=accelerate
    ),
    "lnmp": lambda graph, n, _, generator, accelerate: near_minimal_layers(
        graph, n, generator, accelerate=accelerate
    ),
    "intree": lambda graph, n, _, generator, accelerate: in_tree_layers(
        graph, n, generator, accelerate=accelerate
    ),
    "spain": lambda graph, n, _, generator, accelerate: trees.spain_layers(
        graph, n, generator, accelerate=accelerate
    ),
    "past": lambda graph, n, _, generator, __: trees.past_layers(graph, n, generator),
    "past-valiant": lambda graph, n, _, generator, __: trees.past_valiant_layers(
        graph, n, generator
    ),
    "k-shortest": lambda graph, n, _, generator, fast: trees.k_shortest_layers(
        graph, n, generator, accelerate=fast
    ),
}

"""What does a host cost in each network, in cables, radix and money?  FatPaths, figures 10 and 19.

For each family the network whose number of hosts is nearest to `hosts` is taken, of those whose
routers have at most 64 ports (k <= 64, as in figure 19).  Edge density is cables for each host,
those of hosts counted.  The cost model is the linear one of Slim Fly (SC 2014, section VI): a
router costs a fixed part and a part for each port; host links and local links are copper, global
ones fibre.  The paper's prices are not in its text, so they are parameters, and the defaults are
round numbers for 100 Gbit/s equipment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.experiments.fatpaths import graph_columns
from weft.experiments.fatpaths.table_iv import COLOURS, SHORT
from weft.experiments.report import style
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Word
from weft.topologies import build
from weft.topologies.low_diameter.finite_field import prime_power

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weft.topologies.core.topology import Topology

MOST_RADIX = 64
PRICES = {"router_usd": 2_000, "port_usd": 350, "copper_usd": 100, "fibre_usd": 600}
MOST_APART = float(np.log(2))  # of a size, as the logarithm of a ratio


class Instance(NamedTuple):
    """A network by its spec, its hosts and the ports of a router, hosts counted."""

    spec: str
    hosts: int
    radix: int


def slimflies() -> Iterator[Instance]:
    """p = ceil(k'/2), the text's."""
    for q in range(3, MOST_RADIX):
        if q % 4 != 2 and prime_power(q):
            radix = (3 * q - ((q + 1) % 4 - 1)) // 2
            yield Instance(f"slimfly:q={q}", 2 * q * q * -(-radix // 2), radix + -(-radix // 2))


def dragonflies() -> Iterator[Instance]:
    """Balanced."""
    for p in range(1, MOST_RADIX):
        yield Instance(f"dragonfly:p={p}", (4 * p**3 + 2 * p) * p, 4 * p - 1)


def hyperxes(dimensions: int) -> Callable[[], Iterator[Instance]]:
    """Regular, p = s - 1."""

    def found() -> Iterator[Instance]:
        for s in range(2, MOST_RADIX):
            yield Instance(
                f"hyperx:l={dimensions},s={s}", s**dimensions * (s - 1), (dimensions + 1) * (s - 1)
            )

    return found


def xpanders() -> Iterator[Instance]:
    """l = r, p = ceil(r/2)."""
    for r in range(3, MOST_RADIX):
        yield Instance(f"xpander:r={r},seed=1", r * (r + 1) * -(-r // 2), r + -(-r // 2))


def fat_trees(oversubscription: int) -> Callable[[], Iterator[Instance]]:
    """Of three tiers; oversubscribed at the edge."""

    def found() -> Iterator[Instance]:
        for k in range(4, MOST_RADIX + 1, 2):
            edge = k // 2 * (1 + oversubscription)
            spec = f"fattree:k={k}" + (
                f",oversubscription={oversubscription}" if oversubscription > 1 else ""
            )
            yield Instance(spec, k**3 // 4 * oversubscription, max(k, edge))

    return found


def cliques() -> Iterator[Instance]:
    """p = k'."""
    for n in range(3, MOST_RADIX):
        yield Instance(f"complete:n={n},p={n - 1}", n * (n - 1), 2 * (n - 1))


FAMILIES: Mapping[str, Callable[[], Iterator[Instance]]] = {
    "slimfly": slimflies,
    "dragonfly": dragonflies,
    "hyperx2": hyperxes(2),
    "hyperx3": hyperxes(3),
    "xpander": xpanders,
    "fattree": fat_trees(1),
    "fattree2": fat_trees(2),
    "complete": cliques,
}


def nearest(family: str, hosts: int) -> Instance:
    """The network of `family` with about so many hosts."""
    instances = [one for one in FAMILIES[family]() if one.radix <= MOST_RADIX]
    return min(instances, key=lambda one: abs(np.log(one.hosts / hosts)))


def measure(run: Run) -> Result:
    """Counted on the network: cables for each host, the radix, and the cost of a host by part."""
    chosen = nearest(run.text("family"), run.integer("hosts"))
    topology = build(chosen.spec)
    prices = {name: run.integer(name) for name in PRICES}
    return Result(
        figures={
            "network": chosen.spec,
            "network_hosts": topology.servers,
            **of_a_host(topology, prices),
        },
    )


def of_a_host(topology: Topology, prices: Mapping[str, int]) -> dict[str, Value]:
    """What a host of `topology` costs, by part, and in cables and radix, at such PRICES."""
    ports = np.bincount(topology.links[:, [0, 2]].ravel(), minlength=topology.nodes)[
        topology.servers :
    ]
    role = np.array(topology.roles)[topology.level]
    routers = topology.switches * prices["router_usd"] + int(ports.sum()) * prices["port_usd"]
    copper = int((role != "global").sum()) * prices["copper_usd"]
    fibre = int((role == "global").sum()) * prices["fibre_usd"]
    return {
        "radix": int(ports.max()),
        "edge_density": len(topology.links) / topology.servers,
        "router_cost_usd": routers / topology.servers,
        "copper_cost_usd": copper / topology.servers,
        "fibre_cost_usd": fibre / topology.servers,
        "host_cost_usd": (routers + copper + fibre) / topology.servers,
    }


def plot(table: Table, figure: Figure) -> None:
    """Edge density and radix over hosts (figure 19).

    The cost of a host by part at the size nearest to 10,000.
    """
    families = list(dict.fromkeys(str(row["family"]) for row in table))
    figure.set_size_inches(11, 3.8)
    density, radix, cost = figure.subplots(1, 3)
    for number, family in enumerate(families):
        rows = sorted(
            (row for row in table if row["family"] == family),
            key=lambda row: float(str(row["network_hosts"])),
        )
        hosts = [float(str(row["network_hosts"])) for row in rows]
        look = {
            "color": colour(family),
            "marker": style.MARKERS[number],
            "label": family,
            "ms": 4.0,
        }
        density.plot(hosts, [float(str(row["edge_density"])) for row in rows], "-", **look)
        radix.plot(hosts, [float(str(row["radix"])) for row in rows], "-", **look)
    density.set(xscale="log", xlabel="hosts", title="cables for each host", ylim=(0, None))
    radix.set(xscale="log", xlabel="hosts", title="ports of a router")
    density.legend(ncols=2, fontsize=7)
    nearest = [
        min((row for row in table if row["family"] == family), key=size_apart)
        for family in families
    ]
    # with so few ports a clique has no such size
    middle = [row for row in nearest if size_apart(row) < MOST_APART]
    names = [str(row["family"]) for row in middle]
    bottom = np.zeros(len(names))
    for part, shade in (("router", style.INK), ("copper", style.ORANGE), ("fibre", style.SKY)):
        heights = np.array([float(str(row[f"{part}_cost_usd"])) for row in middle])
        cost.bar(names, heights, bottom=bottom, color=shade, label=part)
        bottom += heights
    cost.tick_params(axis="x", rotation=45)
    cost.set(title="cost of a host, about 10,000 hosts (USD)")
    cost.legend(fontsize=7.5, loc="upper right")
    cost.margins(y=0.22)


def size_apart(row: Row) -> float:
    """How far the network of `row` is from 10,000 hosts, as a ratio."""
    return abs(float(np.log(float(str(row["network_hosts"])) / 10_000)))


def colour(family: str) -> str:
    """The colour of a family; the second variant of one is lighter."""
    base = COLOURS[SHORT[family.rstrip("23")]]
    return {"hyperx3": style.BROWN, "fattree2": style.WINE}.get(family, base)


def price(meaning: str) -> Integer:
    """A parameter in dollars."""
    return Integer(meaning=meaning, unit="USD", least=0, most=10_000_000)


EXPERIMENT = Experiment(
    name="topology_cost",
    question="How many cables, which radix and what money does a host cost in each low-diameter "
    "network?",
    source="FatPaths, figures 10 and 19",
    engines=("graph",),
    axes={
        "family": Word(meaning="family of networks", words=tuple(FAMILIES)).over(*FAMILIES),
        "hosts": Integer(meaning="least number of hosts", unit="hosts", least=6, most=300_000).over(
            200, 1_000, 3_000, 10_000, 30_000, 100_000
        ),
        "router_usd": price("fixed part of a router's price").over(PRICES["router_usd"]),
        "port_usd": price("part of it for each port").over(PRICES["port_usd"]),
        "copper_usd": price("a host's or local cable").over(PRICES["copper_usd"]),
        "fibre_usd": price("a global cable").over(PRICES["fibre_usd"]),
    },
    columns=graph_columns.COST,
    seeds=1,
    measure=measure,
    plot=plot,
    takes_s=2,
)

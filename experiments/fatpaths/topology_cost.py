"""Cost of a host in cables, radix and money, by network: FatPaths, figures 10 and 19.

For each family the network whose number of hosts is nearest to `hosts` is taken, of those whose
routers have at most 64 ports (k <= 64, as in figure 19).  Edge density is cables for each host,
those of hosts counted.  The cost model is the linear one of Slim Fly (SC 2014, section VI): a
router costs a fixed part and a part for each port; host links and local links are copper, global
ones fibre.  The paper's prices are not in its text, so they are parameters, and the defaults are
round numbers for 100 Gbit/s equipment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log
from typing import NamedTuple

import numpy as np

from weft.experiments.fatpaths.table_iv import COLOURS, SHORT, table_v
from weft.experiments.report import style
from weft.experiments.report.panels import Bars, Curves, Stack
from weft.experiments.runner.definition import Experiment, Result, Row, Run, Table, Value
from weft.experiments.runner.parameters import Integer, Word
from weft.topologies import build
from weft.topologies.core.grammar import parse
from weft.topologies.core.topology import Topology
from weft.topologies.low_diameter.diameter_two import prime_power

MOST_RADIX = 64
PRICES = {"router_usd": 2_000, "port_usd": 350, "copper_usd": 100, "fibre_usd": 600}
DRAWN_HOSTS = 10_000  # of figure 10


class Instance(NamedTuple):
    """A network by its spec, its hosts and the ports of a router, hosts counted."""

    spec: str
    hosts: int
    radix: int


def instance(spec: str) -> Instance:
    """Return the sizes of a network by the forms of table V; HyperX has s - 1 hosts a router."""
    family, texts = parse(spec)
    parameters = {key: int(value) for key, value in texts.items()}
    if family == "fattree":
        hosts = parameters.get("oversubscription", 1)
        return Instance(
            spec,
            parameters["k"] ** 3 // 4 * hosts,
            max(parameters["k"], parameters["k"] // 2 * (1 + hosts)),
        )
    form = table_v(family, {"l": parameters.get("r", 0), **parameters})
    assert form, f"table V has no {spec}"
    hosts = parameters["s"] - 1 if family == "hyperx" else form.hosts_of_router
    return Instance(spec, form.routers * hosts, form.radix + hosts)


SIZES = range(1, MOST_RADIX + 1)
FAMILIES: Mapping[str, list[str]] = {
    "slimfly": [f"slimfly:q={q}" for q in SIZES if q > 2 and q % 4 != 2 and prime_power(q)],
    "dragonfly": [f"dragonfly:p={p}" for p in SIZES],
    "hyperx2": [f"hyperx:l=2,s={s}" for s in SIZES if s > 1],
    "hyperx3": [f"hyperx:l=3,s={s}" for s in SIZES if s > 1],
    "xpander": [f"xpander:r={r},seed=1" for r in SIZES if r > 2],
    "fattree": [f"fattree:k={k}" for k in SIZES if k > 2 and k % 2 == 0],
    "fattree2": [f"fattree:k={k},oversubscription=2" for k in SIZES if k > 2 and k % 2 == 0],
    "complete": [f"complete:n={n},p={n - 1}" for n in SIZES if n > 2],
}


def nearest(family: str, hosts: int) -> Instance:
    """Return the network of `family` with about so many hosts."""
    instances = [size for size in map(instance, FAMILIES[family]) if size.radix <= MOST_RADIX]
    return min(instances, key=lambda size: abs(log(size.hosts / hosts)))


def measure(run: Run) -> Result:
    """Return cables for each host, the radix, and the cost of a host by part."""
    network = nearest(run.text("family"), run.integer("hosts"))
    topology = build(network.spec)
    prices = {name: run.integer(name) for name in PRICES}
    return Result(
        {
            "network": network.spec,
            "network_hosts": topology.servers,
            **of_a_host(topology, prices),
        },
    )


def of_a_host(topology: Topology, prices: Mapping[str, int]) -> Row:
    """Return what a host of `topology` costs, by part, and in cables and radix, at such PRICES.

    A link to one of k planes has a k-th of a host's rate: it and its ports cost a k-th.
    """
    ends = np.bincount(topology.links[:, [0, 2]].ravel(), minlength=topology.nodes)
    ports = ends[topology.servers :]
    role = np.array(topology.roles)[topology.level]
    by_rate = {name: price / topology.planes for name, price in prices.items()}
    routers = topology.switches * prices["router_usd"] + int(ports.sum()) * by_rate["port_usd"]
    copper = int((role != "global").sum()) * by_rate["copper_usd"]
    fibre = int((role == "global").sum()) * by_rate["fibre_usd"]
    return {
        "radix": ports.max(),
        "edge_density": len(topology.links) / topology.servers,
        "router_cost_usd": routers / topology.servers,
        "copper_cost_usd": copper / topology.servers,
        "fibre_cost_usd": fibre / topology.servers,
        "host_cost_usd": (routers + copper + fibre) / topology.servers,
    }


def figure_10(table: Table) -> Table:
    """Return the rows of networks with about DRAWN_HOSTS; a clique of 64 ports has fewer."""
    return [row for row in table if 0.5 < row["network_hosts"] / DRAWN_HOSTS < 2]


def looks(key: str, families: Iterable[Value]) -> style.SeriesLooks:
    """Return the look of each family; the second variant of one has a colour of its own."""
    colours = {family: COLOURS[SHORT[family.rstrip("23")]] for family in FAMILIES} | {
        "hyperx3": style.BROWN,
        "fattree2": style.WINE,
    }
    return {
        family: style.SeriesStyle(str(family), colours[str(family)], marker, 4.0)
        for family, marker in zip(families, style.MARKERS, strict=False)
    }


def price(meaning: str) -> Integer:
    """Return a parameter in dollars."""
    return Integer(meaning, unit="USD", least=0, most=10_000_000)


EXPERIMENT = Experiment(
    name="topology_cost",
    question=(
        "How many cables, router ports and dollars does a host cost in each low-diameter network?"
    ),
    source="FatPaths, figures 10 and 19",
    engines=("graph",),
    axes={
        "family": Word("family of networks", words=tuple(FAMILIES)).over(*FAMILIES),
        "hosts": Integer("least number of hosts", unit="hosts", least=6, most=300_000).over(
            200, 1_000, 3_000, 10_000, 30_000, 100_000
        ),
        "router_usd": price("fixed part of a router's price").over(PRICES["router_usd"]),
        "port_usd": price("part of it for each port").over(PRICES["port_usd"]),
        "copper_usd": price("a host's or local cable").over(PRICES["copper_usd"]),
        "fibre_usd": price("a global cable").over(PRICES["fibre_usd"]),
    },
    columns={
        "network": "the family's network of nearest size",
        "network_hosts": "its hosts",
        "radix": "ports of a router",
        "edge_density": "cables for each host",
        "router_cost_usd": "routers and their ports, for each host",
        "copper_cost_usd": "copper cables, for each host",
        "fibre_cost_usd": "fibre cables, for each host",
        "host_cost_usd": "all of it, for each host",
    },
    seeds=1,
    measure=measure,
    plot=Stack(
        Curves(
            columns={
                "edge_density": "cables for each host (figure 19)",
                "radix": "ports of a router (figure 19)",
            },
            x="network_hosts",
            series="family",
            facet=tuple(PRICES),
            always=len(PRICES),
            log=("network_hosts",),
            looks=looks,
        ),
        Bars(
            columns={
                f"{part}_cost_usd": f"{part}, USD for each host (figure 10)"
                for part in ("host", "router", "copper", "fibre")
            },
            by=("family",),
            rows=figure_10,
            looks=looks,
        ),
    ),
    takes_s=2,
)

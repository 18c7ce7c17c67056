"""Parameters of dar_table and dar_settling, for simulated packets, daemons and the kernel.

A slot is the time of a packet on a link.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from weft.daemons.core import registry
from weft.daemons.dar.iteration import PAUSE_PERCENT
from weft.experiments.dar.clos_run import ClosPlan, assign
from weft.experiments.dar.simulation import TRAFFIC, network, permute
from weft.experiments.engines.arrays import Ints, int_zeros
from weft.experiments.engines.workloads import cross, derangements
from weft.experiments.runner.definition import Run
from weft.experiments.runner.parameters import Scalar
from weft.topologies.core.grammar import parse, unparse
from weft.topologies.core.link import LinkSpec

KERNEL_FRAME_BYTES, KERNEL_PAYLOAD_BYTES, MOST_KERNEL_HOSTS = 1514, 1448, 256
MOST_HOSTS = 4096
ACTIVE_PERIODS = 4  # of silence of a simulated flow that counts


class TableScheme(NamedTuple):
    """A scheme of dar_table.

    label: its name in figures.
    detect: detector of DAR's daemons; empty for a scheme without them.
    informed: 1 if requests carry the map of spines with room.
    pause_percent: as in iteration.IterationRules.
    transport: of hosts; with any but `plain` on simulated packets alone.
    spec: routing there, if it has another name.
    """

    label: str
    detect: str = ""
    informed: int = 0
    pause_percent: int = 0
    transport: str = "plain"
    spec: str = ""


class SwitchSettings(NamedTuple):
    """Settings of switches: threshold and room in packets, rest in packet times.

    output_bytes: of the output buffer of a port; its packets do not count for the threshold.
    node_ns: time that a switch takes to forward a packet.
    cut_through_bytes: of a packet, from which on a switch forwards it; 0: all of it.
    """

    queue_packets: int
    rest_slots: int
    room_packets: int
    output_bytes: int = 0
    node_ns: int = 0
    cut_through_bytes: int = 0


# a layer is a spine of each pair of leaves, at random, as for an entropy value that switches hash
REPS_SPEC = "fatpaths:layers=63,rho=1,ecn=4"
SCHEMES = {
    "dar": TableScheme("DAR", "queue"),
    "dar-count": TableScheme("DAR, counting flows", "count"),
    "dar-informed": TableScheme("DAR, counting flows, informed", "count", 1),
    "dar-persistent": TableScheme(
        "DAR, counting flows, informed, persistent", "count", 1, PAUSE_PERCENT
    ),
    "central": TableScheme("central optimum", spec="ecmp"),
    "ecmp": TableScheme("ECMP"),
    "dmodk": TableScheme("D-mod-k"),
    "rps": TableScheme("random, by packet"),
    "drill": TableScheme("DRILL"),
    "jsq": TableScheme("shortest queue"),
    "ndp": TableScheme("NDP, random by packet", transport="ndp:window=23", spec="rps"),
    "ndp-drill": TableScheme("NDP, DRILL", transport="ndp:window=23", spec="drill"),
    "reps": TableScheme("NDP, REPS", transport="ndp:window=23,choice=reps", spec=REPS_SPEC),
}
PLAIN = tuple(name for name, scheme in SCHEMES.items() if scheme.transport == "plain")
# `infiniband`: defaults of the authors' simulator, in flits of 64 bytes: threshold of 80, rest of
# 2 us, room for 200 at the input and 78 at the output, with its delays and cut-through
PRESETS = {
    "ours": SwitchSettings(3, 16, 16),
    "infiniband": SwitchSettings(2, 5, 6, output_bytes=78 * 64, node_ns=100, cut_through_bytes=64),
}


def queues_on_kernel(engine: str, parameters: Mapping[str, Scalar]) -> bool:
    """Return whether DAR compares queues on Linux, once packets, now full ones."""
    return engine == "kernel" and SCHEMES[str(parameters["scheme"])].detect == "queue"


def clos_size(topology: str) -> tuple[int, int, int]:
    """Return n, r and m of `topology`; ValueError unless it is a Clos network."""
    name, parameters = parse(topology)
    if name != "clos":
        raise ValueError(f"the network must be clos:n=..,r=..,m=.., got {topology}")
    n, r, m = (int(parameters[key]) for key in "nrm")
    return n, r, m


def size(topology: str) -> tuple[int, int, int]:
    """Return n, r and m of `topology`; ValueError unless it is a small enough Clos network."""
    n, r, m = clos_size(topology)
    if n * r > MOST_HOSTS or r * m > 4 * MOST_HOSTS:
        raise ValueError(
            f"take at most {MOST_HOSTS} hosts and {4 * MOST_HOSTS} links of spines, got {topology}"
        )
    return n, r, m


def scheme(run: Run) -> TableScheme:
    """Return the scheme of `run`."""
    return SCHEMES[run.text("scheme")]


def switches(run: Run) -> SwitchSettings:
    """Return the preset of `run` with the values that it sets itself."""
    preset = PRESETS[run.text("preset")]
    keys = ("queue_packets", "rest_slots", "room_packets")
    own = {key: run.integer(key) for key in keys if run.integer(key)}
    return preset._replace(**own)


def slot_us(run: Run) -> float:
    """Return the time of a packet on a link."""
    return run.integer("packet_bytes") * 8 / run.number("link_gbps") / 1000


def slots(run: Run, key: str) -> int:
    """Return the time `key` of `run` in slots."""
    return round(run.number(key) / slot_us(run))


def slots_of_10_us(run: Run) -> int:
    """Return the period in which the paper counts reroutes."""
    return max(1, round(10 / slot_us(run)))


def rate(run: Run) -> float:
    """Return the rate of a host, as a fraction of a link's."""
    return run.number("host_gbps") / run.number("link_gbps")


def flows_of_link(run: Run) -> int:
    """Return p: hosts' rates that a link carries, rounded: 2 at 0.48 and at 0.52 of its rate."""
    return max(1, round(1 / rate(run)))


def message_packets(run: Run) -> int:
    """Return the packets of a message."""
    return -(-run.integer("message_kb") * 1024 // run.integer("packet_bytes"))


def payload_bytes(run: Run) -> int:
    """Return the bytes of a message of TCP."""
    return message_packets(run) * KERNEL_PAYLOAD_BYTES


def message_slots(run: Run) -> float:
    """Return the time in which a host sends a message."""
    return message_packets(run) / rate(run)


def generator(run: Run) -> Generator:
    """Return random numbers of `run` alone, so that cells of a sweep are independent."""
    return np.random.default_rng(int(run.id, 16))


def destinations(n: int, r: int, traffic: str, messages: int, rng: Generator) -> Ints:
    """Return a permutation of the hosts for each message, shape (messages, hosts).

    traffic: `random`, no host to itself; `cross`, no host to its own leaf, so that no link is
        spare; or another word of simulation.TRAFFIC.
    """
    if traffic == "cross":
        drawn = [[dst for _, dst in cross(rng, n * r, n)] for _ in range(messages)]
        return np.array(drawn)
    if traffic == "random":
        return derangements(rng, n * r, messages)
    flows, state = network(n, r, 1), rng.integers(1, 1 << 32, 4)
    rows = int_zeros(messages, n * r)
    for row in rows:
        permute(flows, TRAFFIC[traffic], state)
        row[:] = list(flows.destination)
    return rows


def optimum(n: int, m: int, destination: Ints) -> Ints:
    """Return spines of each message's flows by an edge colouring, -1 within a leaf."""
    spines = np.full(destination.shape, -1)
    for row, permutation in zip(spines, destination, strict=True):
        away = np.flatnonzero(permutation // n != np.arange(len(permutation)) // n)
        row[away] = assign(
            list(zip((away // n).tolist(), (permutation[away] // n).tolist(), strict=True)), m
        )
    return spines


def sequence(run: Run, messages: int) -> Ints:
    """Return a permutation of the hosts for each message, shape (messages, hosts)."""
    n, r, _ = size(run.text("topology"))
    return destinations(n, r, run.text("traffic"), messages, generator(run))


def daemon_options(run: Run, period_s: float) -> dict[str, str | int]:
    """Return the options of DAR's daemons for `run`."""
    return {
        "p": flows_of_link(run),
        "detect": scheme(run).detect,
        "informed": scheme(run).informed,
        "period_us": max(1, round(period_s * 1e6)),
        "cool": -(-switches(run).rest_slots // run.integer("period_slots")),
        "queue": switches(run).queue_packets,
        "rest_us": round(1e6 * period_s * switches(run).rest_slots / run.integer("period_slots")),
        "ears": run.text("ears"),
        "key": run.text("key"),
        "every": int(run.text("requests") == "every-link"),
        "swap": int(run.text("swap") == "yes"),
        "start": {"random": "hash"}.get(run.text("start"), "modulo"),
        "active_us": 1000,
        "pause": scheme(run).pause_percent,
    }


def spec_on_kernel(run: Run) -> str:
    """Return the scheme of `run` on the kernel."""
    if not scheme(run).detect:
        return run.text("scheme")
    period_s = run.integer("period_slots") * kernel_slot_s(run)
    own = {
        "active_us": round(2e6 * period_s),
        "elephant_kb": 0,
    }
    return unparse("dar", {**daemon_options(run, period_s), **own})


def spec_on_packets(run: Run) -> str:
    """Return the scheme of `run` on simulated packets.

    Flows count from their first packet on, and until they have been silent for a while.
    """
    if not scheme(run).detect:
        return scheme(run).spec or run.text("scheme")
    period_us = max(1, round(run.integer("period_slots") * slot_us(run)))
    by_destination = run.text("key") == "dest" and run.text("start") == "modulo"
    own = {
        "elephant_kb": 0,
        "active_us": ACTIVE_PERIODS * period_us,
        "idle_ms": 1,
        "hello_ms": 2,
    }
    start = {"start": "destination"} if by_destination else {}
    return unparse("dar", {**daemon_options(run, period_us / 1e6), **own, **start})


def kernel_slot_s(run: Run) -> float:
    """Return the time of a packet on a link of the kernel."""
    return 8e-6 * KERNEL_FRAME_BYTES / run.integer("kernel_mbps")


def check_kernel(run: Run) -> None:
    """Raise ValueError if the kernel or simulated daemons cannot do `run`."""
    n, r, _ = size(run.text("topology"))
    if n * r > MOST_KERNEL_HOSTS:
        raise ValueError(
            f"{run.experiment}: at most {MOST_KERNEL_HOSTS} hosts on {run.engine}, "
            f"{run.text('topology')} has {n * r}"
        )
    check_daemons(run)


def check_daemons(run: Run) -> None:
    """Raise ValueError if daemons of DAR cannot do `run`."""
    if scheme(run).detect:
        registry.checked(run.topology, unparse("dar", daemon_options(run, 0.01)))


def kernel_plan(run: Run, **fields: Any) -> ClosPlan:
    """Return the plan of `run` on the kernel with further `fields`."""
    rate_bps, queue = run.integer("kernel_mbps") * 10**6, switches(run).room_packets
    return ClosPlan(
        topology=run.text("topology"),
        scheme=spec_on_kernel(run),
        link=LinkSpec(rate_bps=rate_bps, queue_packets=queue),
        host_link=LinkSpec(rate_bps=round(rate_bps * rate(run)), queue_packets=queue),
        seed=run.seed,
        **fields,
    )

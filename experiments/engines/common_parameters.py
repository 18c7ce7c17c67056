"""Parameters and columns that several experiments have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from weft.daemons.core import registry
from weft.experiments.engines.pairs import PATTERNS
from weft.experiments.engines.workloads import WithParameter, pattern_of, sizes
from weft.experiments.runner.definition import Run
from weft.experiments.runner.parameters import Integer, Number, Spec, Word
from weft.testbed.traffic import mptcp
from weft.topologies import canonical
from weft.topologies.core.grammar import integer, parse
from weft.topologies.core.link import LinkSpec, Mbps
from weft.topologies.core.topology import Size, Topology, limited

# Of kernel_run.order_figures().
ORDER = {
    "late_fraction": "packets that arrived behind a later one of their flow, of those received",
    "extent_p99_packets": (
        "packets since the first later one, 99th percentile of late packets (RFC 4737); at most 255"
    ),
    "delay_mean_us": "mean time of a packet from the first switch to the receiver",
    "delay_p99_us": "99th percentile of that time, up to the next class of a histogram",
    "retransmitted_fraction": "segments that TCP sent again, of all packets",
    "spurious_fraction": "segments sent again although they had arrived, of all packets",
}
# Of flows that end.
UNFINISHED = {
    "flows": "flows that began",
    "unfinished": (
        "flows that had not ended when the run did; they count with the time that they had"
    ),
}
# Of layered_network.layer_figures(): None where hosts choose no layers.
LAYERS = {
    "layer_flows": "flows that drew a first layer; null where hosts choose no layers",
    "layer_gaps": "draws of another layer because a flow had been silent",
    "layer_cuts": "draws of another layer because TCP reduced its window",
    "layer_echoes": "draws of another layer because congestion was echoed to the sender",
    "layer_errors": "draws of another layer because an ICMP error came back",
    "first_layer_fraction": "packets that went by layer 0, of all",
}


# Those of Linux; the kernel at hand need not have them all.
CONTROLS = (
    *(
        "bbr",
        "bic",
        "cdg",
        "cubic",
        "dctcp",
        "highspeed",
        "htcp",
        "hybla",
        "illinois",
        "lp",
        "nv",
        "reno",
        "scalable",
    ),
    *("vegas", "veno", "westwood", "yeah"),
)
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
RTO_MIN_SYSCTL = Path("/proc/sys/net/ipv4/tcp_rto_min_us")
LINUX_RTO_MIN_US = 200_000
MOST_PAIRS = 10**10
MOST_NODES = 2000  # half as many again as FiConn_{2,10} has, the largest that was measured here


def data_plane_scheme(text: str) -> None:
    """Raise ValueError unless the data plane of a switch fabric has the scheme `text`."""
    refuse_others(
        text, registry.with_data_plane(), "this experiment compares rules of a switch's data plane"
    )
    registry.rule(text)


def refuse_others(text: str, schemes: Collection[str], why: str) -> None:
    """Raise ValueError, with `why`, if `text` is a scheme that exists and is none of `schemes`."""
    name, _ = parse(text)
    if name in registry.schemes() and name not in schemes:
        instead = "`weft run one_failure` takes any scheme that has daemons"
        raise ValueError(f"{why}: it takes {', '.join(sorted(schemes))}, not {name}; {instead}")


def daemon_scheme(text: str) -> None:
    """Raise ValueError unless there are daemons for the scheme `text`."""
    if registry.scheme(text)[0].machine is None:
        raise ValueError(f"scheme {text} has no daemons")


def traffic(text: str) -> None:
    """Raise ValueError unless there is the traffic pattern `text`.

    Whether a network has servers enough is not asked.
    """
    pattern(text, PATTERNS)


def pattern(text: str, patterns: Mapping[str, WithParameter]) -> None:
    """Raise ValueError unless `patterns` has the pattern `text`, with its integer if any."""
    name, entry, number = pattern_of("traffic", text, patterns, 100)
    if number:
        integer(name, str(entry.parameter), number, least=1, most=MOST_PAIRS)


def network(run: Run) -> Topology:
    """Return the network of `run`; ValueError if one machine's kernel cannot carry it."""
    return network_up_to(run, MOST_NODES)


def network_up_to(run: Run, most_nodes: int) -> Topology:
    """Return the network of `run`; ValueError, before it is wired, for one with more nodes."""

    def limit(size: Size) -> None:
        if size.nodes > most_nodes:
            raise ValueError(f"{run.experiment}: at most {most_nodes} nodes, {size}")

    with limited(limit):
        return run.topology


def server_centric(run: Run) -> Topology:
    """Return the network of `run`; ValueError unless servers forward in it."""
    topology = network(run)
    if not topology.server_centric:
        raise ValueError(
            f"{run.experiment}: topology must be dcell, beta-dcell or ficonn, got {topology.spec}"
        )
    return topology


def check_routing(run: Run) -> None:
    """Raise ValueError unless the scheme of `run` suits its network, which is not too large."""
    registry.checked(network(run), run.text("routing"))


def link_with_queues(routing: str) -> LinkSpec | None:
    """Return a link with a rate for a scheme that compares queues; None for another."""
    scheme, options = registry.scheme(routing)
    rule = scheme.rule(options)
    return (
        LinkSpec(rate_bps=20 * Mbps, queue_packets=250) if rule and rule.compares_queues else None
    )


def link(run: Run) -> LinkSpec:
    """Return every link of `run`."""
    return LinkSpec(
        rate_bps=run.integer("rate_mbps") * Mbps,
        queue_packets=run.integer("queue_packets"),
        delay_us=int(run.parameters.get("delay_us", 0)),
    )


def check_delay(run: Run) -> None:
    """Raise ValueError if links of a fabric with a data plane have a delay in real time."""
    if run.integer("delay_us") and run.clock == "real":
        raise ValueError(
            f"{run.experiment}: delay_us={run.integer('delay_us')} needs --clock virtual: in real "
            "time a packet that a delay holds back misses the data plane; set delay_us=0"
        )


def check_tcp(run: Run) -> None:
    """Raise ValueError unless the kernel has the TCP settings of `run`."""
    if "congestion_control" in run.parameters:
        check_control(run, run.text("congestion_control"))
    rto_min_us = run.parameters.get("rto_min_us", LINUX_RTO_MIN_US)
    is_settable = run.clock == "virtual" or RTO_MIN_SYSCTL.exists()
    if rto_min_us != LINUX_RTO_MIN_US and not is_settable:
        raise ValueError(
            f"{run.experiment}: rto_min_us={rto_min_us} needs Linux 6.11 or --clock virtual; this "
            f"kernel has {LINUX_RTO_MIN_US}"
        )


def check_control(run: Run, control: str) -> None:
    """Raise ValueError unless this kernel has the congestion control `control`.

    Under the virtual clock another kernel than this one measures, and has its own say then.
    """
    available = AVAILABLE.read_text(encoding="utf-8").split()
    if run.clock != "virtual" and control not in available:
        raise ValueError(
            f"{run.experiment}: this kernel has no congestion control {control} (it has "
            f"{', '.join(available)})"
        )


DAMAGE = Word(
    "what is damaged: a link, which fails or loses most of its rate, or the node above it",
    words=("none", "link", "node", "degraded"),
)
TOPOLOGY = Spec(
    "network",
    form="FAMILY:key=value,... (`weft list networks`)",
    check=lambda text: None,
    canonical=canonical,
)
ROUTING = Spec(
    "routing scheme of the daemons",
    form="SCHEME:key=value,... (`weft list schemes`)",
    check=daemon_scheme,
)
SCHEME = Spec(
    "scheme by which switches choose ports",
    form="SCHEME:key=value,... (`weft list schemes`)",
    check=data_plane_scheme,
)
TRAFFIC = Spec(
    "who sends to whom",
    form="uniform:flows=N, all-to-all, one-to-all, permutation or many-all-to-all:group=N",
    check=traffic,
)
FAILED = Word("what has failed", words=("links", "nodes", "racks"))
FAILED_FRACTION = Number("how much of it has failed", unit="fraction", least=0, most=1)
FLOWS = Integer("random pairs that are routed", unit="pairs", least=1, most=MOST_PAIRS)
APPLY = Word(
    "where PR tries proxies: at the levels that its algorithm names, at the top "
    "level only, or at all levels",
    words=("algorithm", "top", "all"),
)
RATE_MBPS = Integer("rate of every link", unit="Mbit/s", least=1, most=100_000)
QUEUE_PACKETS = Integer("length of every queue", unit="packets", least=1, most=1_000_000)
CONGESTION_CONTROL = Word("TCP's congestion control, of those that the kernel has", words=CONTROLS)
# 10 ms as in data centers (DCTCP, SIGCOMM 2010, section 4); Linux has 200 ms.
RTO_MIN_US = Integer(
    "TCP's least retransmission timeout; Linux has 200000",
    unit="us",
    least=100,
    most=10_000_000,
).over(10_000)
TRANSPORT = Spec("transport protocol", form="tcp or mptcp:subflows=1..8", check=mptcp.subflows)
MIN_RTT_WINDOW_S = Integer(
    "how long TCP remembers its least round-trip time", unit="s", least=0, most=86_400
)
SIZES = Spec(
    "distribution of flow sizes",
    form="web-search, data-mining (each also with :most_bytes=N) or fixed:bytes=N",
    check=sizes,
)
DELAY_US = Integer(
    "delay of every link, one way (--clock virtual)", unit="us", least=0, most=1_000_000
)
PART_OF_SECONDS = Number(
    "time during which flows begin or are counted", unit="s", least=0.001, most=3600
)
SECONDS = Integer("time during which flows begin or are counted", unit="s", least=1, most=3600)
LOAD_FRACTION = Number("load of the hosts' links", unit="fraction", least=0.01, most=0.99)
PROCESSES = Integer("processes that the daemons share; 0: a process each", least=0, most=1024)
QUESTIONS_PER_S = Integer(
    "questions about paths that a source of PR may ask; 0: as many as it usually does",
    unit="1/s",
    least=0,
    most=100_000,
)

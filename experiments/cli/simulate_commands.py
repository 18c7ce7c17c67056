"""The command simulate: flows on any network, packet by packet, without root."""

from __future__ import annotations

import json
import math
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.experiments.cli.options import (
    Commands,
    add_command,
    add_flag,
    add_json,
    add_network,
    add_output,
    add_seed,
    seconds,
    whole,
)
from weft.experiments.runner.console import QUIET_S, duration, show_one, stages
from weft.testbed.linux import clock
from weft.topologies.core.grammar import quoted

if TYPE_CHECKING:
    from weft.testbed.labs.lab_file import Lab
    from weft.testbed.packets.simulation import Fault, PacketFlows, SimulatedFlows


def add_commands(commands: Commands) -> None:
    """Add simulate."""
    parser = add_command(
        commands,
        "simulate",
        simulate,
        "simulate flows on a network packet by packet, up to tens of thousands of hosts",
    )
    add_network(parser)
    _add_flows(parser)
    parser.add_argument(
        "--transport",
        default="tcp",
        help="tcp, tcp:control=cubic, ndp, plain:rate_mbps=5000, ...; default: tcp",
    )
    parser.add_argument(
        "--flow-control",
        metavar="SPEC",
        default="none",
        help="of all links, which then lose nothing: credits:room_kb=64, or "
        "pause:room_kb=64,resume_kb=32; default: none, links drop packets",
    )
    add_flag(parser, "--cut-through", help="let nodes forward a packet while it arrives")
    add_seed(parser, 1, "default: 1")
    parser.add_argument(
        "--fail",
        metavar="LINK@TIME[-TIME]",
        type=_failure,
        action="append",
        default=[],
        help="let a link lose all packets from then on, such as h0-h4@2ms, or until it is "
        "restored, such as h0-h4@2ms-1s",
    )
    parser.add_argument(
        "--detect",
        metavar="TIME",
        type=_time_s,
        default=math.inf,
        help="route around a failed link after this time, such as 10ms; default: never",
    )
    parser.add_argument(
        "--daemons",
        action="store_true",
        help="run the scheme's daemons in the same time; they find failures and change routes",
    )
    parser.add_argument(
        "--silent",
        action="store_true",
        help="failed links keep their carrier, so that daemons must miss hellos",
    )
    parser.add_argument(
        "--timeout-s",
        metavar="S",
        type=seconds,
        default=60.0,
        help="simulated time at which unfinished flows are given up; default: 60",
    )
    parser.add_argument(
        "--threads",
        metavar="N",
        type=int,
        help="processors for this one network, 1 to 8; any number gives the same results",
    )
    add_output(parser, "write each flow and its completion time as CSV")
    add_json(parser)


def _add_flows(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--flows", metavar="FILE", help="CSV with the columns start_s, src, dst and bytes"
    )
    parser.add_argument(
        "--traffic",
        metavar="PATTERN",
        default="permutation",
        help="without --flows: permutation, all-to-all, incast:senders=8, ...; "
        "default: permutation",
    )
    parser.add_argument(
        "--bytes",
        metavar="N",
        type=whole(1),
        default=1_000_000,
        help="without --flows: payload of each flow; default: 1000000",
    )


def _time_s(text: str) -> float:
    """Return a time in s from text such as 2ms; ArgumentTypeError for other text."""
    from weft.topologies.core.link import delay_us

    try:
        return delay_us(text, "time") / 1e6
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _failure(text: str) -> tuple[str, float, float]:
    """Return a link and the times (s) of failure and repair, infinite if there is none.

    ArgumentTypeError unless `text` is LINK@TIME or LINK@TIME-TIME.
    """
    link, at, times = text.rpartition("@")
    if not at or times.startswith("-"):
        raise ArgumentTypeError(f"must be like h0-h4@2ms, got {quoted(text)}")
    failed, dash, restored = times.partition("-")
    return link, _time_s(failed), _time_s(restored) if dash else math.inf


def simulate(arguments: Namespace) -> int:
    """Simulate, and print what became of the flows; return 1 if one did not end."""
    from weft.daemons.core.registry import usual
    from weft.experiments.cli.lab_commands import lab_from
    from weft.testbed.packets.simulation import require_room
    from weft.topologies.core.topology import limited

    if arguments.output and not Path(arguments.output).parent.is_dir():
        raise ValueError(f"{arguments.output}: there is no such folder")
    with limited(require_room):
        lab = lab_from(arguments)
    scheme = usual(lab.topology) if lab.scheme is None else lab.scheme
    began_s = clock.monotonic()
    outcome = _simulated(lab, scheme, arguments)
    per_s = outcome.transmissions / (clock.monotonic() - began_s)
    row = {"scheme": scheme, "transport": arguments.transport, **_summary(outcome)}
    if arguments.flow_control != "none":
        row |= _waiting(outcome)
    row["transmissions_per_s"] = round(per_s)
    if arguments.json:
        print(json.dumps(row))
    else:
        show_one(row)
    if arguments.output:
        _write(outcome, arguments.output)
    return int(outcome.unfinished > 0)


def _simulated(lab: Lab, scheme: str, arguments: Namespace) -> SimulatedFlows:
    from weft.testbed.packets import simulation

    with stages("simulating") as tell:
        return simulation.simulate(
            lab.topology,
            scheme,
            _flows(lab, arguments),
            transport=arguments.transport,
            link=lab.link or simulation.LINK,
            host_link=lab.host_link,
            own_links=lab.own_links,
            seed=arguments.seed,
            faults=_faults(lab, arguments),
            daemons=arguments.daemons,
            flow_control=arguments.flow_control,
            cut_through=arguments.cut_through,
            deadline_s=arguments.timeout_s,
            watch=_watch(tell),
            threads=arguments.threads,
        )


def _flows(lab: Lab, arguments: Namespace) -> PacketFlows:
    import numpy as np

    from weft.experiments.engines.workloads import pairs
    from weft.testbed.packets.simulation import PacketFlows

    if arguments.flows:
        return PacketFlows.read(arguments.flows, lab.topology)
    generator = np.random.default_rng(arguments.seed)
    ends = pairs(arguments.traffic, lab.topology.servers, generator)
    return PacketFlows.of((src, dst, arguments.bytes) for src, dst in ends)


def _faults(lab: Lab, arguments: Namespace) -> list[Fault]:
    from weft.testbed.packets.simulation import Fault

    return [
        Fault([lab.topology.link(link)], at_s, at_s + arguments.detect, end_s, arguments.silent)
        for link, at_s, end_s in arguments.fail
    ]


def _watch(tell: Callable[[str], None]) -> Callable[[float, float], None]:
    """Return the function that reports progress, with an estimate of the time that is left."""
    began_s = said_s = clock.monotonic()

    def watch(share: float, now_s: float) -> None:
        nonlocal said_s
        real_s = clock.monotonic()
        if real_s - said_s < QUIET_S:
            return
        said_s = real_s
        left_s = (real_s - began_s) * (1 - share) / share if share else 0.0
        left = f", {duration(left_s)} left" if share else ""
        tell(f"{100 * share:.0f} % of bytes after {duration(now_s)}{left}")

    return watch


def _summary(outcome: SimulatedFlows) -> dict[str, Any]:
    import numpy as np

    times_ms = 1000 * outcome.completion_s[~np.isnan(outcome.completion_s)]
    figures = {}
    if len(times_ms):
        median, p99, last = np.percentile(times_ms, (50, 99, 100)).tolist()
        mean = float(times_ms.mean())
        figures = {"mean_ms": mean, "median_ms": median, "p99_ms": p99, "last_ms": last}
    return {
        "flows": len(outcome.delivered_s),
        "unfinished": outcome.unfinished,
        **figures,
        **_of_packets(outcome.counters),
        "dropped_packets": int(outcome.ports["dropped"].sum()) + outcome.unrouted,
        "trimmed_packets": int(outcome.ports["trimmed"].sum()),
        "simulated_ms": 1000 * outcome.ended_s,
        "transmissions": outcome.transmissions,
    }


def _of_packets(counters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a transport had to send again, or order and latency without one."""
    if "retransmissions" in counters:
        return {"retransmissions": int(counters["retransmissions"].sum())}
    packets = max(1, int(counters["packets"].sum()))
    return {
        "late_packets": int(counters["late"].sum()),
        "mean_latency_us": float(counters["latency_ns"].sum()) / packets / 1000,
        "most_latency_us": float(counters["worst_ns"].max()) / 1000,
    }


def _waiting(outcome: SimulatedFlows) -> dict[str, Any]:
    """Return how long ports waited for room, and how much a node held of a link's packets."""
    ports = outcome.ports
    return {
        "waiting_ms": float(ports["waited_ns"].sum()) / 1e6,
        "waiting_ports": int((ports["waited_ns"] > 0).sum()),
        "most_room_kb": float(ports["most_room_bytes"].max()) / 1000,
        "deadlocked_ports": outcome.deadlocked,
    }


def _write(outcome: SimulatedFlows, path: str) -> None:
    import csv

    columns = outcome.columns()
    names = [re.sub("^size_bytes$", "bytes", name) for name in columns]
    with open(path, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(names)
        lines.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))

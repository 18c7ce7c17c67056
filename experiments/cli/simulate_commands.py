"""The command simulate: flows on any network, packet by packet, without root."""

from __future__ import annotations

import io
import json
import math
import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict
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
    some,
    whole,
)
from weft.experiments.runner.console import QUIET_S, duration, say, show_one, stages
from weft.testbed.linux import clock
from weft.testbed.runs.private_files import require_writable, write_whole
from weft.topologies.core.grammar import quoted
from weft.topologies.core.link import delay_us
from weft.topologies.core.topology import limited

if TYPE_CHECKING:
    from weft.testbed.labs.lab_file import Lab
    from weft.testbed.packets.simulation import Fault, PacketFlows, SimulatedFlows
    from weft.topologies.core.link import LinkSpec

# as simulation.LINK, whose module takes long to import
LINK = {"rate": "10gbit", "queue": 100, "delay": "1us"}
OF_FLOWS: Mapping[str, Any] = {
    "traffic": "permutation",
    "bytes": 1_000_000,
}  # unless a file has the flows
LEFT_OUT = ", which the times leave out"
TIMES = ("mean_ms", "median_ms", "p99_ms", "last_ms")


def add_commands(commands: Commands) -> None:
    """Add simulate."""
    parser = add_command(
        commands,
        "simulate",
        simulate,
        "simulate flows on a network packet by packet, up to tens of thousands of hosts",
    )
    add_network(parser, link=LINK, simulated=True)
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
        type=whole(1, 8),
        help="processors for this one network, 1 to 8; any number gives the same results",
    )
    add_output(parser, "write each flow and its completion time as CSV")
    add_json(parser)


def _add_flows(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--flows",
        metavar="FILE",
        type=some,
        help="CSV with the columns start_s, src, dst and bytes",
    )
    parser.add_argument(
        "--traffic",
        metavar="PATTERN",
        type=some,
        help="without --flows: permutation, all-to-all, incast:senders=8, ...; "
        "default: permutation",
    )
    parser.add_argument(
        "--bytes",
        metavar="N",
        type=whole(1),
        help="without --flows: payload of each flow; default: 1000000",
    )


def _time_s(text: str) -> float:
    """Return a time in s from text such as 2ms; ArgumentTypeError for other text."""
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

    _check(arguments)
    with limited(require_room):
        lab = lab_from(arguments, LINK)
    scheme = usual(lab.topology) if lab.scheme is None else lab.scheme
    began_s = clock.monotonic()
    outcome = _simulated(lab, scheme, arguments)
    per_s = outcome.transmissions / (clock.monotonic() - began_s)
    row = {"scheme": scheme, "transport": arguments.transport, "seed": arguments.seed}
    row |= _summary(outcome, lab.topology.servers)
    if arguments.flow_control != "none":
        row |= _waiting(outcome)
    row["transmissions_per_s"] = round(per_s)
    if arguments.json:
        print(json.dumps({**_network(lab), "threads": arguments.threads, **row}))
    else:
        row["unfinished"] = f"{outcome.unfinished}{LEFT_OUT * (outcome.unfinished > 0)}"
        show_one({"network": _written(lab), **row})
    if arguments.output:
        _write(outcome, arguments.output)
    return int(outcome.unfinished > 0)


def _check(arguments: Namespace) -> None:
    """Raise ValueError for options that would have no effect; warn of threads that only wait."""
    if path := arguments.output and Path(arguments.output):
        require_writable(path)
        if arguments.flows and path.is_file() and path.samefile(arguments.flows):
            raise ValueError(f"--output would replace {arguments.flows}, the file of --flows")
    needs = {
        "--fail has no effect after --timeout-s": any(
            at_s >= arguments.timeout_s for _, at_s, _ in arguments.fail
        ),
        "--detect needs --fail": arguments.detect is not None and not arguments.fail,
        "--silent needs --fail and --daemons": arguments.silent
        and not (arguments.fail and arguments.daemons),
        **{
            f"--{name} has no effect with --flows": arguments.flows
            and getattr(arguments, name) is not None
            for name in OF_FLOWS
        },
    }
    for reason, applies in needs.items():
        if applies:
            raise ValueError(reason)
    cores = len(os.sched_getaffinity(0))
    if (arguments.threads or 0) > cores:
        s = "s" * (cores > 1)
        say(f"weft: {arguments.threads} threads wait for each other on {cores} processor{s}")


def _link(lab: Lab) -> LinkSpec:
    """Return the links of `lab`; those of simulations if it has none."""
    from weft.testbed.packets import simulation

    return lab.link or simulation.LINK


def _network(lab: Lab) -> dict[str, Any]:
    """Return topology and links of `lab`, JSON-able."""
    return {
        "topology": lab.topology.spec,
        "link": asdict(_link(lab)),
        "host_link": lab.host_link and asdict(lab.host_link),
        "own_links": len(lab.own_links),
    }


def _written(lab: Lab) -> str:
    """Return topology and links of `lab` in a line."""
    from weft.testbed.labs.lab_file import link_keys

    link = _link(lab)
    keys = {**link_keys(link), "mtu": link.mtu_bytes}
    if lab.host_link:
        keys["host rate"] = link_keys(lab.host_link)["rate"]
    own = f", {len(lab.own_links)} links of their own" * bool(lab.own_links)
    return ", ".join([lab.topology.spec, *(f"{key} {keys[key]}" for key in keys)]) + own


def _simulated(lab: Lab, scheme: str, arguments: Namespace) -> SimulatedFlows:
    from weft.testbed.packets import simulation

    load = [getattr(arguments, name) for name in ("transport", "traffic", "bytes", "flows")]
    with stages("simulating", f"simulate {lab.topology.spec} {scheme} {load}") as tell:
        tell("setting the network up")
        return simulation.simulate(
            lab.topology,
            scheme,
            _flows(lab, arguments),
            transport=arguments.transport,
            link=_link(lab),
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
        flows = PacketFlows.read(arguments.flows, lab.topology)
        last_s = float(flows.start_s.max())
        if last_s >= arguments.timeout_s:
            raise ValueError(f"{arguments.flows}: a flow begins at {last_s:g} s, see --timeout-s")
        return flows
    traffic, size_bytes = (getattr(arguments, name) or usual for name, usual in OF_FLOWS.items())
    generator = np.random.default_rng(arguments.seed)
    ends = pairs(traffic, lab.topology.servers, generator)
    return PacketFlows.of((src, dst, size_bytes) for src, dst in ends)


def _faults(lab: Lab, arguments: Namespace) -> list[Fault]:
    from weft.testbed.packets.simulation import Fault

    detect_s = math.inf if arguments.detect is None else arguments.detect
    return [
        Fault([lab.topology.link(link)], at_s, at_s + detect_s, end_s, arguments.silent)
        for link, at_s, end_s in arguments.fail
    ]


def _watch(tell: Callable[[str], None]) -> Callable[[float, float], None]:
    """Return the function that reports progress."""
    said_s = clock.monotonic()

    def watch(share: float, now_s: float) -> None:
        nonlocal said_s
        if clock.monotonic() - said_s >= QUIET_S:
            said_s = clock.monotonic()
            tell(f"{100 * share:.0f} % of bytes after {duration(now_s)}")

    return watch


def _summary(outcome: SimulatedFlows, hosts: int) -> dict[str, Any]:
    import numpy as np

    dropped = outcome.ports["dropped"]
    times_ms = 1000 * outcome.completion_s[~np.isnan(outcome.completion_s)]
    figures: dict[str, float | None] = dict.fromkeys(TIMES)
    if len(times_ms):
        rest = np.percentile(times_ms, (50, 99, 100)).tolist()
        figures = dict(zip(TIMES, (float(times_ms.mean()), *rest), strict=True))
    return {
        "flows": len(outcome.delivered_s),
        "unfinished": outcome.unfinished,
        **figures,
        **_of_packets(outcome.counters),
        "dropped_packets": int(dropped.sum()) + outcome.unrouted,
        "dropped_by_hosts": int(dropped[outcome.ports["node"] < hosts].sum()),
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
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(names)
    lines.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    write_whole(Path(path), text.getvalue().encode())

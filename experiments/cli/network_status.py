"""Text of `weft status` and `weft up --dry-run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.experiments.runner.console import show
from weft.testbed.runs.run import UNNAMED

if TYPE_CHECKING:
    from weft.testbed.labs.lab_file import Lab
    from weft.testbed.plan.part import PlanPart


def show_status(state: Mapping[str, Any]) -> None:
    """Print the result of RunningNetwork.status()."""
    print(
        f"{state['run']}: {state['topology']}, {state['scheme']}, failed links: "
        f"{', '.join(state['failed']) or 'none'}"
    )
    if not state["authenticated"]:
        print("control messages are not authenticated: daemons believe whatever they hear")
    for link, (near, far) in state["mtu_bytes"].items():
        print(
            f"{link} has MTU {near} at one end and {far} at the other: larger packets are "
            f"dropped on arrival"
        )
    if state["bypassed_packets"]:
        print(
            f"{state['bypassed_packets']} packets bypassed the scheme: fragments, IP "
            f"options, or longer than an MTU"
        )
    if trimming := state["trimming"]:
        print(
            f"{trimming['trimmed_packets']} packets trimmed to headers, "
            f"{trimming['untrimmed_packets']} could not be, "
            f"{trimming['header_drops']} headers dropped"
        )
    if layers := state["layers"]:
        sent = " ".join(map(str, layers["packets"])) or "none: hosts send to plain addresses"
        print(f"packets by layer: {sent}")
        drawn = ", ".join(f"{layers[name]} {name}" for name in ("gaps", "cuts", "echoes", "errors"))
        print(f"{layers['flows']} flows, which drew a layer again: {drawn}")
    if flows := state["flows"]:
        show([written(row) for row in flows])
    if line := lateness(state["nodes"]):
        print(line)
    if state["nodes"]:
        show(state["nodes"])


def lateness(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return a line that says how late the machine was; empty if it was in time."""
    late, losses = (sum(row[column] for row in nodes) for column in ("late_ticks", "losses"))
    if not late:
        return ""
    return (
        f"the machine was late: hellos were handled more than an interval late {late} times, on "
        f"{sum(row['late_ticks'] > 0 for row in nodes)} of {len(nodes)} nodes; neighbours were "
        f"lost {losses} times"
    )


def written(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row about a node's flows with counts and lists as text: c0:2 c1:1."""
    return {column: _text(value) for column, value in row.items()}


def _text(value: object) -> object:
    if isinstance(value, Mapping):
        return " ".join(f"{name}:{count}" for name, count in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return value


def print_plan(lab: Lab, routing: str, *, name: str | None, part: PlanPart | None = None) -> int:
    """Print the commands that would make such a network, or a part of it, as run `name`."""
    from weft.testbed.plan.network_plan import NetworkPlan
    from weft.testbed.plan.plane_selection import fixed_routes

    run = UNNAMED if name is None else replace(UNNAMED, id=name)
    plan = NetworkPlan(
        run,
        lab.topology,
        lab.link,
        **fixed_routes(routing),
        host_link=lab.host_link,
        own_links=lab.own_links,
        part=part,
    )
    for line in plan.text():
        print(line)
    return 0

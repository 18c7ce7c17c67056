"""Another scheme of the data plane for a running fabric: what its daemons' routes can be used
for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.daemons.core import registry
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.topologies.core.grammar import parse

NEED_THEIR_DAEMONS = (ChoiceRule.LBSP, ChoiceRule.DAR)


def routing(journal: Mapping[str, Any]) -> str:
    """The scheme that the run of this journal came up with, which its daemons still route by."""
    return str(journal.get("routing", journal["scheme"]))


def changed(journal: Mapping[str, Any], spec: str) -> dict[str, Any]:
    """The journal of a run whose data plane has been given `spec`."""
    return {**journal, "scheme": spec, "routing": routing(journal)}


def check(came_up_with: str, spec: str) -> None:
    """ValueError unless the routes of daemons that route by `came_up_with` are such as `spec`
    needs.

    LBSP's rule takes the ports of a route for columns of link groups, which only its own daemons
    keep when links fail. Flows that DAR's rule notes only its own daemons move.
    FatPaths' hosts need routes in as many layers as they choose among.
    """
    chosen = registry.rule(spec)
    if chosen.rule not in NEED_THEIR_DAEMONS and not chosen.hosts:
        return
    name, given = parse(came_up_with)
    advice = f"take the run down and bring it up with --routing {spec}"
    if name != parse(spec)[0]:
        raise ValueError(
            f"{spec} needs the routes of its own daemons, and those of {came_up_with} route "
            f"here; {advice}"
        )
    if chosen.hosts:
        layers = int(given.get("layers", registry.rule(name).hosts["layers"]))
        if chosen.hosts["layers"] > layers:
            raise ValueError(
                f"{spec}: the daemons of this run have routes in {layers} layers; {advice}"
            )
        return
    if chosen.rule == ChoiceRule.DAR:
        return
    groups = int(given.get("groups", registry.rule("lbsp")["groups"]))
    if groups != chosen["groups"]:
        raise ValueError(
            f"{spec}: the daemons of this run part a switch's uplinks into {groups} link "
            f"groups; {advice}"
        )

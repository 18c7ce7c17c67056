"""Change the data plane's scheme of a running fabric, as far as its daemons' routes allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.daemons.core import registry
from weft.daemons.load_balancing.scheme import ChoiceRule
from weft.topologies.core.grammar import parse

NEED_THEIR_DAEMONS = (ChoiceRule.LBSP, ChoiceRule.DAR)


def routing(journal: Mapping[str, Any]) -> str:
    """Return the scheme that the run came up with, by which its daemons still route."""
    return str(journal.get("routing", journal["scheme"]))


def changed(journal: Mapping[str, Any], spec: str) -> dict[str, Any]:
    """Return the journal of the run after its data plane has changed to `spec`."""
    return {**journal, "scheme": spec, "routing": routing(journal)}


def check(daemon_spec: str, spec: str) -> None:
    """Raise ValueError if `spec` cannot use the routes of daemons that route by `daemon_spec`.

    LBSP's rule reads the ports of a route as columns of link groups; only its own daemons keep
    these columns when links fail.  Only DAR's own daemons move the flows that its rule records.
    Hosts of FatPaths need routes in as many layers as they choose among.
    """
    rule = registry.rule(spec)
    if rule.rule not in NEED_THEIR_DAEMONS and not rule.hosts:
        return
    name, texts = parse(daemon_spec)
    advice = f"take the run down and bring it up with --routing {spec}"
    if name != parse(spec)[0]:
        raise ValueError(
            f"{spec} needs the routes of its own daemons, and those of {daemon_spec} route "
            f"here; {advice}"
        )
    if rule.hosts:
        layers = int(texts.get("layers", registry.rule(name).hosts["layers"]))
        if rule.hosts["layers"] > layers:
            raise ValueError(
                f"{spec}: the daemons of this run have routes in {layers} layers; {advice}"
            )
    elif rule.rule == ChoiceRule.LBSP:
        groups = int(texts.get("groups", registry.rule("lbsp")["groups"]))
        if groups != rule["groups"]:
            raise ValueError(
                f"{spec}: the daemons of this run part a switch's uplinks into {groups} link "
                f"groups; {advice}"
            )

"""Change the data plane's scheme of a running fabric, as far as its daemons' routes allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.daemons.core import registry
from weft.topologies.core.grammar import parse


def routing(journal: Mapping[str, Any]) -> str:
    """Return the scheme that the run came up with, by which its daemons still route."""
    return str(journal.get("routing", journal["scheme"]))


def changed(journal: Mapping[str, Any], spec: str) -> dict[str, Any]:
    """Return the journal of a run after its data plane was changed to `spec`."""
    return {**journal, "scheme": spec, "routing": routing(journal)}


def check(daemons_spec: str, spec: str) -> None:
    """Raise ValueError unless the routes of daemons of `daemons_spec` serve the rule of `spec`."""
    selection, options = registry.data_plane(spec)
    if selection.check_daemons is None:
        return
    advice = f"take the run down and bring it up with --routing {spec}"
    if parse(daemons_spec)[0] != parse(spec)[0]:
        raise ValueError(
            f"{spec} needs the routes of its own daemons, and those of {daemons_spec} route "
            f"here; {advice}"
        )
    try:
        selection.check_daemons(registry.scheme(daemons_spec)[1], options)
    except ValueError as error:
        raise ValueError(f"{spec}: {error}; {advice}") from None

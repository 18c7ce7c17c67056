"""Catalogue of experiments, families of networks, routing schemes and link options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from weft.daemons.core import registry
from weft.daemons.core.scheme import Scheme
from weft.experiments.runner.console import say
from weft.experiments.runner.definition import Experiment, discover
from weft.topologies import families
from weft.topologies.core.family import IntegerParameter
from weft.topologies.core.link import MOST_MTU_BYTES, MTU_BYTES

LINKS = {
    "--queue": IntegerParameter(meaning="packets that wait at a port", least=1, default=250),
    "--trim": IntegerParameter(
        meaning="queued packets above which a switch trims UDP packets of code point 3 to headers, "
        "under schemes of the data plane; 0 for never",
        least=0,
        default=0,
    ),
    "--headers": IntegerParameter(
        meaning="headers that wait at a port that trims", least=1, default=1125
    ),
    "--mtu": IntegerParameter(
        meaning="bytes of the longest packet",
        least=MTU_BYTES,
        most=MOST_MTU_BYTES,
        default=MTU_BYTES,
    ),
}


def catalogue(*kinds: str) -> dict[str, list[dict[str, Any]]]:
    """Return what has a name, JSON-able: for each of `kinds`, all by default, a list of entries.

    Only modules of these kinds are imported.

    links: options of a network's links.
    data_plane: schemes that a running switch fabric can change to; their daemons are ecmp's.
    """
    return {kind: ENTRIES[kind]() for kind in kinds or ENTRIES}


def _families() -> list[dict[str, Any]]:
    return [
        {
            "name": family.name,
            "summary": family.summary,
            "source": family.source,
            "example": family.example,
            "parameters": as_dicts(family.parameters),
        }
        for family in families().values()
    ]


def _schemes(*, balancing: bool) -> list[dict[str, Any]]:
    schemes = registry.schemes().values()
    for failure in registry.failures() if balancing else ():  # once, of both kinds
        say(f"weft: left out: {failure}")
    return [as_dict(scheme) for scheme in schemes if only_balances(scheme) == balancing]


def experiment_entry(experiment: Experiment) -> dict[str, Any]:
    """Return the entry of an experiment."""
    parameters = {
        key: {"meaning": parameter.meaning, "unit": parameter.unit, "values": parameter.range}
        for key, (parameter, _) in experiment.axes.items()
    }
    return {
        "name": experiment.name,
        "question": experiment.question,
        "source": experiment.source,
        "engines": list(experiment.engines),
        "sweep": {key: list(values) for key, values in experiment.sweep.items()},
        "parameters": parameters,
        "seeds": experiment.seeds,
        "takes_s": experiment.takes_s,
    }


def only_balances(scheme: Scheme) -> bool:
    """Return True if `scheme` differs from ecmp in its data plane alone."""
    ecmp = registry.find("ecmp")
    return scheme is not ecmp and scheme.machine is ecmp.machine and scheme.selection is not None


def as_dict(scheme: Scheme) -> dict[str, Any]:
    """Return the entry of a scheme."""
    parameters = scheme.parameters
    if scheme.selection and only_balances(scheme):
        parameters = scheme.selection.parameters
    return {
        "name": scheme.name,
        "summary": scheme.summary,
        "source": scheme.source,
        "parameters": as_dicts(parameters),
    }


def as_dicts(parameters: Mapping[str, IntegerParameter]) -> dict[str, dict[str, Any]]:
    """Return the parameters with default and range as users write them."""
    entries = {key: asdict(parameter) for key, parameter in parameters.items()}
    for key, entry in entries.items():
        if entry["words"]:
            entry["default"] = entry["words"][entry["default"]]
        elif parameters[key].decimals:
            for name in ("default", "least", "most"):
                if entry[name] is not None:
                    entry[name] = float(parameters[key].written(entry[name]))
    return entries


def _transports() -> list[dict[str, Any]]:
    from weft.testbed.packets.transport import PARAMETERS, SUMMARIES

    return [
        {"name": name, "summary": summary, "parameters": as_dicts(PARAMETERS[name])}
        for name, summary in SUMMARIES.items()
    ]


def _patterns() -> list[dict[str, Any]]:
    from weft.experiments.engines.workloads import PATTERNS

    return [
        {
            "name": f"{name}:{pattern.parameter}=N" if pattern.parameter else name,
            "summary": pattern.meaning,
        }
        for name, pattern in PATTERNS.items()
    ]


ENTRIES: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "experiments": lambda: [experiment_entry(experiment) for experiment in discover().values()],
    "topologies": _families,
    "routing": partial(_schemes, balancing=False),
    "data_plane": partial(_schemes, balancing=True),
    "transports": _transports,
    "patterns": _patterns,
    "links": lambda: [{"name": name, **parameter} for name, parameter in as_dicts(LINKS).items()],
}

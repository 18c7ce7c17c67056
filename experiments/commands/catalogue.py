"""Everything that has a name: experiments, families of networks, routing schemes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from daemons.core.schemes import SCHEMES
from daemons.routing import load_balancing
from experiments.runner.definition import discover
from topologies import families
from topologies.core.family import Parameter


def catalogue() -> dict[str, Any]:
    """What exists, JSON-able: for each kind of thing a list, each entry with its name and what there is to know."""
    return {
        "experiments": [
            {
                "name": experiment.name,
                "question": experiment.question,
                "source": experiment.source,
                "engines": list(experiment.engines),
                "sweep": {key: list(values) for key, values in experiment.sweep.items()},
                "parameters": {
                    key: {"meaning": one.meaning, "unit": one.unit, "values": one.range}
                    for key, one in experiment.parameters.items()
                },
                "seeds": experiment.seeds,
                "takes_s": experiment.takes_s,
            }
            for experiment in discover().values()
        ],
        "topologies": [
            {
                "name": family.name,
                "summary": family.summary,
                "source": family.source,
                "example": family.example,
                "parameters": as_dicts(family.parameters),
            }
            for family in families().values()
        ],
        "routing": [
            {"name": scheme.name, "summary": scheme.summary, "parameters": as_dicts(scheme.parameters)}
            for scheme in SCHEMES.values()
        ],
        "data_plane": [
            {
                "name": name,
                "summary": kind.summary,
                "source": kind.source,
                "parameters": {key: value._asdict() for key, value in load_balancing.keys(name).items()},
            }
            for name, kind in load_balancing.KINDS.items()
            if name not in SCHEMES
        ],
    }


def as_dicts(parameters: Mapping[str, Parameter]) -> dict[str, dict[str, Any]]:
    return {key: asdict(parameter) for key, parameter in parameters.items()}

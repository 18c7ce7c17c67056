"""Everything that has a name: experiments, families of networks, routing schemes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from weft.daemons.core import registry
from weft.daemons.core.scheme import Scheme
from weft.experiments.runner.definition import discover
from weft.topologies import families
from weft.topologies.core.family import IntegerParameter
from weft.topologies.core.link import MOST_MTU_BYTES, MTU_BYTES

LINKS = {
    "--queue": IntegerParameter(meaning="packets that wait at a port", least=1, default=250),
    "--trim": IntegerParameter(
        meaning="full packets of data that wait at a switch's port before what follows is trimmed "
        "to headers, if it is "
        "UDP of code point 3, under schemes that choose ports in the data plane; 0 for never",
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


def catalogue() -> dict[str, Any]:
    """What exists, JSON-able: for each kind of thing a list, each entry with its name and what
    there is to know.

    links: what a network's links can be given.
    data_plane: schemes of a switch fabric that a running network can change to, whose daemons are
        those of ecmp.
    """
    schemes = registry.schemes().values()
    return {
        "experiments": [
            {
                "name": experiment.name,
                "question": experiment.question,
                "source": experiment.source,
                "engines": list(experiment.engines),
                "sweep": {key: list(values) for key, values in experiment.sweep.items()},
                "parameters": {
                    key: {
                        "meaning": parameter.meaning,
                        "unit": parameter.unit,
                        "values": parameter.range,
                    }
                    for key, (parameter, _) in experiment.axes.items()
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
        "routing": [as_dict(scheme) for scheme in schemes if not only_balances(scheme)],
        "data_plane": [as_dict(scheme) for scheme in schemes if only_balances(scheme)],
        "links": [{"name": name, **parameter} for name, parameter in as_dicts(LINKS).items()],
    }


def only_balances(scheme: Scheme) -> bool:
    """Whether what is special to `scheme` is its data plane alone."""
    ecmp = registry.find("ecmp")
    return scheme is not ecmp and scheme.machine is ecmp.machine and scheme.selection is not None


def as_dict(scheme: Scheme) -> dict[str, Any]:
    """What a person may want to know of a scheme."""
    parameters = (
        scheme.selection.parameters
        if scheme.selection and only_balances(scheme)
        else scheme.parameters
    )
    return {
        "name": scheme.name,
        "summary": scheme.summary,
        "source": scheme.source,
        "parameters": as_dicts(parameters),
    }


def as_dicts(parameters: Mapping[str, IntegerParameter]) -> dict[str, dict[str, Any]]:
    """Each parameter, its default and its range as they are written."""
    found = {key: asdict(parameter) for key, parameter in parameters.items()}
    for key, has in found.items():
        if has["words"]:
            has["default"] = has["words"][has["default"]]
        elif parameters[key].decimals:
            numbers = ("default", "least", "most")
            has |= {
                name: float(parameters[key].written(has[name]))
                for name in numbers
                if has[name] is not None
            }
    return found

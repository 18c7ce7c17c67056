"""What a family of networks tells about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topologies.spec import integer, unknown

if TYPE_CHECKING:
    from topologies.graph import Topology


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An integer parameter of a family; `default` None means that it must be given."""

    meaning: str
    least: int
    default: int | None = None


@dataclass(frozen=True, kw_only=True)
class Family:
    """A parameterised kind of network.

    `build` takes exactly the keys of `parameters` and raises ValueError for values that do not go together.
    """

    name: str
    summary: str
    source: str
    example: str
    parameters: Mapping[str, Parameter]
    build: Callable[[Mapping[str, int]], Topology]

    def parameters_from(self, given: Mapping[str, str]) -> dict[str, int]:
        """`given`, still text, as integers with the defaults filled in; ValueError for unknown, missing or too small."""
        for key in given:
            if key not in self.parameters:
                raise ValueError(f"{self.name}: " + unknown("parameter", key, self.parameters))
        values = {}
        for key, parameter in self.parameters.items():
            if key in given:
                values[key] = integer(self.name, key, given[key], least=parameter.least)
            elif parameter.default is not None:
                values[key] = parameter.default
            else:
                raise ValueError(f"{self.name}: {key} is missing, for example {self.example}")
        return values

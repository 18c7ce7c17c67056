"""What a family of networks tells about itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.topologies.core.grammar import decimal, integer, unknown

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An integer parameter of a family or a scheme, least .. most.

    It must be given unless it has a default or is `optional`: the builder says what its absence means.
    words: what a user writes in place of 0, 1, ...; empty if that is the number itself.
    decimals: how many digits after the point a user may write; the integer is the value times 10^decimals.
    """

    meaning: str
    least: int
    most: int = 1 << 24  # more than any network's nodes, see graph.require_room
    default: int | None = None
    optional: bool = False
    words: tuple[str, ...] = ()
    decimals: int = 0

    def value(self, owner: str, key: str, text: str) -> int:
        """`text`, which a user wrote, as the integer; ValueError, in one line that begins with `owner`, if it is none
        of this parameter."""
        if self.words:
            if text not in self.words:
                raise ValueError(f"{owner}: {key} must be {' or '.join(self.words)}, got {text!r}")
            return self.words.index(text)
        if self.decimals:
            return decimal(owner, key, text, decimals=self.decimals, least=self.least, most=self.most)
        return integer(owner, key, text, least=self.least, most=self.most)

    @classmethod
    def flag(cls, meaning: str, *, default: bool = False) -> Parameter:
        """One that is 1 or 0."""
        return cls(meaning=meaning, least=0, most=1, default=int(default))

    @classmethod
    def word(cls, meaning: str, words: Iterable[str], *, default: str | None = None) -> Parameter:
        """One of `words`, the first unless another is the default."""
        known = tuple(words)
        chosen = known.index(default) if default else 0
        return cls(meaning=meaning, least=0, most=len(known) - 1, default=chosen, words=known)

    def written(self, value: int) -> str:
        """What a user writes for `value`."""
        if self.words:
            return self.words[value]
        return f"{value / 10**self.decimals:.{self.decimals}f}".rstrip("0").rstrip(".") if self.decimals else str(value)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A parameterised kind of network.

    `derived` gives optional parameters that follow from the others, where they are not given themselves.
    `build` takes exactly the keys of `parameters`, optional ones only if given, and raises ValueError, in one line that
    begins with the name, for values that do not go together.
    """

    name: str
    summary: str
    source: str
    example: str
    parameters: Mapping[str, Parameter]
    build: Callable[[Mapping[str, int]], Topology]
    derived: Callable[[Mapping[str, int]], Mapping[str, int]] = lambda given: {}

    def parameters_from(self, given: Mapping[str, str]) -> dict[str, int]:
        """`given`, text, as integers, defaults filled in; ValueError if any is unknown, missing or out of range."""
        for key in given:
            if key not in self.parameters:
                raise ValueError(f"{self.name}: " + unknown("parameter", key, self.parameters))
        values = {}
        for key, parameter in self.parameters.items():
            if key in given:
                values[key] = parameter.value(self.name, key, given[key])
            elif parameter.default is not None:
                values[key] = parameter.default
            elif not parameter.optional:
                raise ValueError(f"{self.name}: {key} is missing, for example {self.example}")
        values = {**self.derived(values), **values}
        return {key: values[key] for key in self.parameters if key in values}

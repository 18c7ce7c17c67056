"""Families of networks, and the integer parameters of families and schemes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from weft.topologies.core.grammar import decimal, integer, unknown

if TYPE_CHECKING:
    from weft.topologies.core.topology import Topology


@dataclass(frozen=True)
class IntegerParameter:
    """An integer parameter of a family or a scheme, from least to most.

    It is required unless it has a default or is `optional`; the builder decides what its absence
    means.
    words: names for the values 0, 1, ...; empty if users write the number itself.
    decimals: digits after the point in users' text; the integer is the number times 10^decimals.
    """

    meaning: str
    least: int
    most: int = 1 << 24  # more than any network's nodes, see graph.require_room
    _: KW_ONLY
    default: int | None = None
    optional: bool = False
    words: tuple[str, ...] = ()
    decimals: int = 0

    def value(self, owner: str, key: str, text: str) -> int:
        """Return the integer that `text` stands for.

        Raises:
            ValueError: not a value of this parameter; one line that begins with `owner`.
        """
        if self.words:
            if text not in self.words:
                raise ValueError(f"{owner}: {key} must be {' or '.join(self.words)}, got {text!r}")
            return self.words.index(text)
        if self.decimals:
            return decimal(
                owner, key, text, decimals=self.decimals, least=self.least, most=self.most
            )
        return integer(owner, key, text, least=self.least, most=self.most)

    @classmethod
    def flag(cls, meaning: str, *, default: bool = False) -> IntegerParameter:
        """Return a parameter that is 1 or 0."""
        return cls(meaning, least=0, most=1, default=int(default))

    @classmethod
    def word(
        cls, meaning: str, words: Iterable[str], *, default: str | None = None
    ) -> IntegerParameter:
        """Return a parameter with named values.

        The first is the default unless `default` names another.
        """
        names = tuple(words)
        default_value = names.index(default) if default else 0
        return cls(
            meaning=meaning, least=0, most=len(names) - 1, default=default_value, words=names
        )

    def written(self, value: int) -> str:
        """Return `value` as users write it."""
        if self.words:
            return self.words[value]
        return (
            f"{value / 10**self.decimals:.{self.decimals}f}".rstrip("0").rstrip(".")
            if self.decimals
            else str(value)
        )


@dataclass(frozen=True, kw_only=True)
class Family:
    """A parameterised kind of network.

    derived: values of absent optional parameters, computed from the others.
    build: takes the keys of `parameters`, absent optional ones left out.  Raises ValueError, one
        line that begins with the name, for values that do not go together.
    """

    name: str
    summary: str
    source: str
    example: str
    parameters: Mapping[str, IntegerParameter]
    build: Callable[[Mapping[str, int]], Topology]
    derived: Callable[[Mapping[str, int]], Mapping[str, int]] = lambda values: {}

    def parameters_from(self, texts: Mapping[str, str]) -> dict[str, int]:
        """Return the parameters in `texts` as integers, with defaults filled in.

        Raises:
            ValueError: a parameter is unknown, missing or out of range.
        """
        for key in texts:
            if key not in self.parameters:
                raise ValueError(f"{self.name}: " + unknown("parameter", key, self.parameters))
        values = {}
        for key, parameter in self.parameters.items():
            if key in texts:
                values[key] = parameter.value(self.name, key, texts[key])
            elif parameter.default is not None:
                values[key] = parameter.default
            elif not parameter.optional:
                raise ValueError(f"{self.name}: {key} is missing, for example {self.example}")
        values = {**self.derived(values), **values}
        return {key: values[key] for key in self.parameters if key in values}

"""Parameters of experiments: type, range or check, unit and meaning; and the axes of a sweep.

An experiment declares an axis for each parameter.  The parameter reads every value, from the sweep
as from the command line, before anything is made; `weft run EXPERIMENT --help` shows it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from weft.topologies.core.grammar import integer, unknown

Scalar = int | float | str
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Parameter:
    """Type and range of a parameter.

    meaning: in words, without the unit.
    unit: that of the value, empty for a pure number or a name.
    """

    meaning: str
    unit: str = field(default="", kw_only=True)

    @property
    def range(self) -> str:
        """Return the permitted values in a few words."""
        raise NotImplementedError

    def read(self, owner: str, key: str, text: str) -> Scalar:
        """Return the value that `text` stands for.

        Raises:
            ValueError: not a value of this parameter; one line that begins with `owner`.
        """
        raise NotImplementedError

    def over(self, *values: Scalar) -> Axis:
        """Return the axis of a sweep on which this parameter takes `values`."""
        return Axis(self, values)


class Axis(NamedTuple):
    """A parameter and the values that it takes in the default sweep."""

    parameter: Parameter
    values: Sequence[Scalar]

    def over(self, *values: Scalar) -> Axis:
        """Return the axis of the same parameter with other values."""
        return Axis(self.parameter, values)


def swept(axes: Mapping[str, Axis], **values: Sequence[Scalar]) -> dict[str, Axis]:
    """Return `axes` with other values for some parameters: swept(AXES, seconds=[0.3])."""
    return {**axes, **{key: axes[key].over(*own) for key, own in values.items()}}


@dataclass(frozen=True, kw_only=True)
class Integer(Parameter):
    """An integer within [least, most]."""

    least: int
    most: int

    @property
    def range(self) -> str:
        return f"{self.least} .. {self.most}"

    def read(self, owner: str, key: str, text: str) -> int:
        return integer(owner, key, text, least=self.least, most=self.most)


@dataclass(frozen=True, kw_only=True)
class Number(Parameter):
    """A finite number within [least, most]."""

    least: float
    most: float

    @property
    def range(self) -> str:
        return f"{self.least:g} .. {self.most:g}"

    def read(self, owner: str, key: str, text: str) -> float:
        value = float(text) if NUMBER.fullmatch(text) else math.nan
        if not math.isfinite(value):
            raise ValueError(f"{owner}: {key} must be a number, got {shortened(text)}")
        if not self.least <= value <= self.most:
            raise ValueError(
                f"{owner}: {key} must lie in {self.least:g} .. {self.most:g}, got {shortened(text)}"
            )
        return value


@dataclass(frozen=True, kw_only=True)
class Word(Parameter):
    """One of `words`."""

    words: Sequence[str]

    @property
    def range(self) -> str:
        return ", ".join(self.words)

    def read(self, owner: str, key: str, text: str) -> str:
        if text not in self.words:
            raise ValueError(f"{owner}: " + unknown(key, text, self.words))
        return text


@dataclass(frozen=True, kw_only=True)
class Spec(Parameter):
    """A name, most often with parameters of its own, in the grammar of topologies/core/grammar.py.

    form: how it is written, or where it is listed.
    check: (text) -> anything; ValueError, one line that begins with the name or the kind of thing,
        for what there is not.
    canonical: the one way to write what `text` names; None if every text stays as it is.
    """

    form: str
    check: Callable[[str], object]
    canonical: Callable[[str], str] | None = None

    @property
    def range(self) -> str:
        return self.form

    def read(self, owner: str, key: str, text: str) -> str:
        value = self.canonical(text) if self.canonical else text
        self.check(value)
        return value


def shortened(text: str) -> str:
    """Return `text` quoted, cut to fit a line."""
    return repr(text if len(text) <= 40 else text[:37] + "...")

"""Table of a bench's figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One figure, with its required minimum or maximum."""

    what: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def told(self) -> str:
        """A count as it is, a measurement to three digits."""
        return str(self.value) if isinstance(self.value, int) else f"{self.value:.3g}"

    @property
    def verdict(self) -> str:
        if self.at_least is not None:
            return (
                f"{'reached' if self.value >= self.at_least else 'MISSED'} (at least "
                f"{self.at_least:g})"
            )
        if self.at_most is not None:
            return (
                f"{'reached' if self.value <= self.at_most else 'MISSED'} (at most "
                f"{self.at_most:g})"
            )
        return ""


def show(title: str, lines: list[Line]) -> None:
    """Print `lines` as a table."""
    print(title)
    width = max(len(line.what) for line in lines)
    for line in lines:
        print(f"  {line.what:<{width}}  {line.told:>10} {line.unit:<6} {line.verdict}".rstrip())

"""The one grammar of every command and file: name:key=value,key=value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from reprlib import Repr
from typing import Any, TypeVar

INTEGER = re.compile(r"-?[0-9]+")
DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")
NAME = re.compile(r"[a-z][a-z0-9_-]*")
KEY = re.compile(r"[a-z][a-z0-9_]*")
MOST_LISTED = 40  # names in an error
Loaded = TypeVar("Loaded")
SERVICES = "weft.services"  # entry points of functions that do I/O for topologies
ALIKE = 0.65  # part of the letters of a proposed name: dfr is proposed for drf
OF_KEY = re.compile(r"(?:[^=,]*=[^,]*,)*?(?P<of>of=)(?=.)")


class PackageError(ValueError):
    """A line about an installed package that cannot be loaded."""


@contextmanager
def package_errors(title: str) -> Iterator[None]:
    """Let what an installed package raises while it loads be a PackageError.

    title: what is loaded, and from which module.
    """
    try:
        yield
    except (Exception, SystemExit) as error:  # importing a package runs any code
        text = f"{title}: {type(error).__name__}: {' '.join(str(error).split())}"
        raise PackageError(text.removesuffix(": ")) from error


def loaded(
    find: Callable[[str], Loaded], names: Iterable[str]
) -> tuple[dict[str, Loaded], list[str]]:
    """Return what `find` returns by name, and a line for each that a package cannot load."""
    entries: dict[str, Loaded] = {}
    failures: list[str] = []
    for name in names:
        try:
            entries[name] = find(name)
        except PackageError as error:
            failures.append(str(error))
    return entries, failures


def module_in(entry: str) -> str:
    """Return the module in the value of an entry point, MODULE or MODULE:OBJECT.

    EntryPoint.module raises AttributeError for a malformed one, which need not hinder others.
    """
    return entry.partition(":")[0].strip()


def service(name: str) -> Callable[..., Any] | None:
    """Return the function `name` of the group weft.services; None where weft is not installed.

    drawing: of a Topology, as SVG.
    text: of the file at a path.

    Raises:
        ValueError: its module cannot be imported.
    """
    from importlib import metadata

    for entry in metadata.entry_points(group=SERVICES, name=name):
        with package_errors(f"{entry.value}, {name} of {SERVICES}"):
            function: Callable[..., Any] = entry.load()
            return function
    return None


def parse(spec: str) -> tuple[str, dict[str, str]]:
    """Return the name in `spec`, and its keys with their values as text.

    The key `of` comes last: its value is a spec itself and takes the rest of the text.

    Raises:
        ValueError: not name or name:key=value,...
    """
    name, colon, rest = spec.strip().partition(":")
    if not NAME.fullmatch(name):
        lower = f"; names are in lower case: {name.lower()}" if NAME.fullmatch(name.lower()) else ""
        raise ValueError(
            f"{spec!r}: expected name:key=value,... such as dcell:n=4,k=1 or dr:hello_ms=50{lower}"
        )
    values: dict[str, str] = {}
    if colon and not rest:
        raise ValueError(f"{spec!r}: nothing after the colon; expected {name}:key=value,...")
    nested = OF_KEY.match(rest)
    before = rest[: nested.start("of")].removesuffix(",") if nested else rest
    for item in before.split(",") if before else []:
        key, equals, value = item.partition("=")
        if not equals or not KEY.fullmatch(key) or not value:
            raise ValueError(f"{spec!r}: {item!r} is not key=value")
        if key in values:
            raise ValueError(f"{spec!r}: {key} is given twice")
        values[key] = value
    if nested:
        values["of"] = rest[nested.end() :]
    return name, values


def unparse(name: str, values: Mapping[str, object]) -> str:
    """Return the text that parse() reads as `name` and `values`."""
    return (
        name + (":" if values else "") + ",".join(f"{key}={value}" for key, value in values.items())
    )


def integer(owner: str, key: str, text: str, *, least: int, most: int | None = None) -> int:
    """Return `text` as an integer within [least, most].

    Raises:
        ValueError: as in "dcell: n must be at least 3, got 1".
    """
    if not INTEGER.fullmatch(text):
        raise ValueError(f"{owner}: {key} must be an integer, got {text!r}")
    if len(text) > 18:
        raise ValueError(
            f"{owner}: {key} must be an integer of at most 18 digits, got {text[:18]}..."
        )
    value = int(text)
    if value < least:
        raise ValueError(f"{owner}: {key} must be at least {least}, got {value}")
    if most is not None and value > most:
        raise ValueError(f"{owner}: {key} must be at most {most}, got {value}")
    return value


def decimal(owner: str, key: str, text: str, *, decimals: int, least: int, most: int) -> int:
    """Return the number `text` times 10^decimals, as an integer.

    It has at most `decimals` digits after the point, and the result lies within [least, most].

    Raises:
        ValueError: no such number, or out of range.
    """
    if not DECIMAL.fullmatch(text) or len(text.partition(".")[2]) > decimals or len(text) > 18:
        raise ValueError(
            f"{owner}: {key} must be a number with at most {decimals} decimals, got {text[:18]!r}"
        )
    whole, _, rest = text.partition(".")
    value = int(whole + rest.ljust(decimals, "0"))
    if not least <= value <= most:
        low, high = least / 10**decimals, most / 10**decimals
        raise ValueError(f"{owner}: {key} must be {low:g} .. {high:g}, got {text}")
    return value


def quoted(value: object) -> str:
    """Return the Python literal of `value` for an error: one line, cut where it is long."""
    short = Repr()
    short.maxstring = short.maxother = short.maxlong = 80
    return short.repr(value)


def printable(text: str) -> str:
    """Return `text` for a terminal, with escapes for control characters and line breaks."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def unknown(kind: str, name: str, known: Iterable[str], *, installed_in: str = "") -> str:
    """Return the line "no KIND NAME, did you mean X? (there are: ...)".

    installed_in: environment whose packages were searched, where packages bring such names.
    """
    known = sorted(known)
    close = get_close_matches(name[:MOST_LISTED], known, n=1, cutoff=ALIKE)
    guess = f", did you mean {close[0]}?" if close else ""
    more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
    names = f": {', '.join(known[:MOST_LISTED])}{more}" if known else " none"
    searched = f"; packages of {installed_in} are searched" if installed_in else ""
    return f"no {kind} {quoted(name)}{guess} (there are{names}{searched})"

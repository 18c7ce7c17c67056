"""Answers to a lab, which may set what the lab's key `answer` allows and nothing else.

    answer:
      scheme: [ecmp, "bfs:hello_ms=10..1000,dead=1..9"]
      link: {trim: 1..8}
      commands: any

The key has the shape of an answer, with the values that are allowed in the place of each value:

    any         every value that the key takes
    LOW..HIGH   a quantity between two of its kind, both included
    A           this value; parameters of a scheme may have ranges
    own         for scheme: one that is not part of weft
    [A, B]      one of these

An answer may repeat a value of the lab, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NamedTuple

from weft.daemons.core import registry
from weft.testbed.labs.text_file import Keys, YamlLineError, keys, position
from weft.topologies.core.grammar import INTEGER, parse, quoted, unparse
from weft.topologies.core.link import delay_us, loss_ppb, rate_bps

ANY = "any"
OWN = "own"
WORDS = {OWN: "a scheme of your own"}  # in errors
RANGE = ".."
LINK_KEYS = ("rate", "queue", "delay", "loss", "trim")
OF_LINKS = ("link", "host_link")  # their values are keys of LINK_KEYS
WHOLE = ("links", "commands")  # allowed as a whole or not at all
ANSWER_KEYS = ("scheme", *OF_LINKS, "mtu", "packed", *WHOLE)
Path = tuple[str, ...]  # keys of a value from the outermost one on


class AnswerEntry(NamedTuple):
    """A value of an answer or of the key `answer`, and the mapping that holds it."""

    content: Keys
    path: Path

    @property
    def value(self) -> Any:
        """The value as YAML has it."""
        return self.content[self.path[-1]]

    @property
    def title(self) -> str:
        """Name of the value in errors."""
        return ".".join(self.path)


def whole(text: str) -> int:
    """Return a whole number; ValueError otherwise."""
    if not INTEGER.fullmatch(text) or len(text) > 18:
        raise ValueError(f"a whole number, got {quoted(text)}")
    return int(text)


QUANTITIES: Mapping[str, Callable[[str], int]] = {
    "rate": rate_bps,
    "delay": delay_us,
    "loss": loss_ppb,
    **dict.fromkeys(("queue", "trim", "mtu", "packed"), whole),
}


def allowed(content: Any) -> dict[Path, tuple[str, ...]]:
    """Return the alternatives for each value that the key `answer` of a lab allows.

    Raises:
        ValueError: the key is malformed; the message has its line.
    """
    alternatives = {}
    for entry in _entries("answer", content):
        with _named("answer: ", entry):
            values = entry.value if isinstance(entry.value, list) else [entry.value]
            for value in values or [None]:
                _check_alternative(entry.path[-1], str(value))
            alternatives[entry.path] = tuple(map(str, values))
    return alternatives


def merge(lab: Keys, answer: Any, name: str) -> None:
    """Set the values of `answer` in the content of the lab called `name`.

    Raises:
        ValueError: the lab does not allow a value; the message has the answer's line.
    """
    alternatives = allowed(lab["answer"]) if "answer" in lab else {}
    names = ", ".join(map(".".join, alternatives))
    alone = f"{names} alone" if names else "nothing: it has no key answer"
    limits = f"{name} lets an answer set {alone}"
    if not isinstance(answer, Keys):
        raise ValueError(f"an answer has keys with values, got {_in_words(answer)}; {limits}")
    for key in [key for key in answer if key not in ANSWER_KEYS]:
        close = get_close_matches(key, [path[0] for path in alternatives], n=1)
        guess = f"did you mean {close[0]}? " if close else ""
        raise YamlLineError(answer.places[key], f"no key {quoted(key)}: {guess}{limits}")
    for entry in _entries("an answer", answer):
        with _named("", entry):
            if _repeats(entry, lab):
                continue
            if entry.path not in alternatives:
                raise ValueError(limits)
            if entry.value is None:
                raise ValueError("a value is missing after the colon")
            texts = alternatives[entry.path]
            if not any(_admits(text, entry.path[-1], entry.value) for text in texts):
                expected = " or ".join(WORDS.get(text, text) for text in texts)
                raise ValueError(f"{name} allows {expected}, got {quoted(entry.value)}")
            _set(entry, lab, answer)


def _in_words(answer: Any) -> str:
    return "nothing" if answer is None else quoted(answer)


def _entries(title: str, content: Any) -> Iterator[AnswerEntry]:
    """Yield the values of an answer, or of the key `answer`."""
    for key in keys(title, content, ANSWER_KEYS):
        if key in OF_LINKS:
            with position(content, key):
                link = keys(f"{title}: {key}", content[key], LINK_KEYS)
            yield from (AnswerEntry(link, (key, name)) for name in link)
        else:
            yield AnswerEntry(content, (key,))


@contextmanager
def _named(title: str, entry: AnswerEntry) -> Iterator[None]:
    """Begin a ValueError of the block with the place of `entry`, `title` and its name."""
    with position(entry.content, entry.path[-1]):
        try:
            yield
        except ValueError as error:
            raise ValueError(f"{title}{entry.title}: {error}") from None


def _check_alternative(key: str, text: str) -> None:
    """Raise ValueError unless `text` is an alternative for values of `key`."""
    if text == ANY or (key == "scheme" and text == OWN):
        return
    if key in WHOLE:
        raise ValueError(f"{ANY}, or leave the key out; got {quoted(text)}")
    if key in QUANTITIES:
        _bounds(text, QUANTITIES[key])
        return
    name, ranges = parse(text)
    for end in (0, -1):
        values = {key: value.split(RANGE)[end] for key, value in ranges.items()}
        registry.scheme(unparse(name, values))


def _repeats(entry: AnswerEntry, lab: Keys) -> bool:
    """Return True if the lab has this value already."""
    content: Any = lab
    for key in entry.path:
        content = (content or {}).get(key)
    return content is not None and str(content) == str(entry.value)


def _admits(alternative: str, key: str, value: Any) -> bool:
    """Return True if `alternative` allows `value`; ValueError if the value is malformed."""
    if alternative == ANY:
        return True
    if key == "scheme":
        return _admits_scheme(alternative, str(value))
    return _within(QUANTITIES[key](str(value)), _bounds(alternative, QUANTITIES[key]))


def _admits_scheme(alternative: str, spec: str) -> bool:
    name, values = parse(spec)
    if alternative == OWN:
        return registry.find(name) not in registry.of_weft()
    allowed_name, ranges = parse(alternative)
    if name != allowed_name or values.keys() - ranges.keys():
        return False
    return all(
        value == ranges[key]
        or (RANGE in ranges[key] and _within(whole(value), _bounds(ranges[key], whole)))
        for key, value in values.items()
    )


def _bounds(text: str, quantity: Callable[[str], int]) -> tuple[int, int]:
    """Return both ends of a range; a value is a range of its own."""
    first, dots, last = text.partition(RANGE)
    low, high = quantity(first), quantity(last if dots else first)
    if low > high:
        raise ValueError(f"{text} is empty")
    return low, high


def _within(quantity: int, bounds: tuple[int, int]) -> bool:
    low, high = bounds
    return low <= quantity <= high


def _set(entry: AnswerEntry, lab: Keys, answer: Keys) -> None:
    """Set the value in the lab, whose errors about it then name the answer's line."""
    key, *inner = entry.path
    content = lab
    if inner:
        lab.places[key] = answer.places[key]
        content = lab.setdefault(key, answer[key])
    content[entry.path[-1]] = entry.value
    content.places[entry.path[-1]] = entry.content.places[entry.path[-1]]

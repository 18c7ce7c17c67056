"""Text files that a user names, and YAML in them whose mappings know the lines of their keys.

So an error can name the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.topologies.core.grammar import quoted, unknown

MOST_CHARACTERS = 1 << 20
MOST_GRAPH_CHARACTERS = 1 << 28


def text_of(path: str, most_characters: int = MOST_CHARACTERS) -> str:
    """Return the text of a file, cut after one character more than the most.

    A file without end, such as a device, is read to there.

    Raises:
        ValueError: it cannot be read; one line says why.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(most_characters + 1)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: it is not text in UTF-8") from None


def graph(path: str) -> str:
    """Return the text of the graph file:PATH; ValueError, in one line, if it cannot be read."""
    try:
        text = text_of(path, MOST_GRAPH_CHARACTERS)
    except ValueError as error:
        hint = "; p=N, hosts of each router, may follow the path" if "," in path else ""
        raise ValueError(f"file:{error}{hint}") from None
    if len(text) > MOST_GRAPH_CHARACTERS:
        raise ValueError(f"file:{path}: it is larger than {MOST_GRAPH_CHARACTERS} characters")
    return text


MOST_DEPTH = 32  # of lists and mappings in each other; the parser's time grows with its square


class Keys(dict[str, Any]):
    """A mapping of a file, at `line`, from 1; `places` has FILE:LINE of each key; "" is its own."""

    def __init__(self, name: str, line: int) -> None:
        super().__init__()
        self.line = line
        self.places = {"": f"{name}:{line}"}


class YamlLineError(ValueError):
    """A refusal that begins with the place, FILE:LINE."""

    def __init__(self, place: str, reason: object) -> None:
        super().__init__(f"{place}: {reason}")


def read(text: str, name: str) -> Any:
    """Return the content of YAML `text`, of the file called `name`; every mapping is a Keys.

    Aliases are refused: a few lines of them can expand beyond the memory.

    Raises:
        ValueError: the text is malformed, too long, nested too deeply, or repeats a key.
    """
    import yaml

    if len(text) > MOST_CHARACTERS:
        reason = f"it has more than {MOST_CHARACTERS} characters"
        raise YamlLineError(f"{name}:1", reason)
    try:
        _check_events(yaml.parse(text, yaml.SafeLoader), name)
        return yaml.load(text, _loader(name))
    except yaml.MarkedYAMLError as error:
        place = _place(name, error.problem_mark or error.context_mark)
        raise YamlLineError(place, f"malformed YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"malformed YAML: {' '.join(str(error).split())}") from None


def _check_events(events: Iterable[Any], name: str) -> None:
    """Raise ValueError at the first alias, and where lists and mappings are nested too deeply."""
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            reason = f"*{event.anchor} is an alias; write its value out"
            raise YamlLineError(_place(name, event.start_mark), reason)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            reason = f"nested too deeply: at most {MOST_DEPTH} lists and mappings in each other"
            raise YamlLineError(_place(name, event.start_mark), reason)


def _place(name: str, mark: Any) -> str:
    return f"{name}:{mark.line + 1 if mark else 1}"


def _loader(name: str) -> Any:
    """Return a SafeLoader of Keys, which refuses keys that are no texts or occur twice."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        pass

    def mapping(loader: Any, node: Any) -> Keys:
        content = Keys(name, node.start_mark.line + 1)
        for key_node, value_node in node.value:
            place = _place(name, key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlLineError(place, "a key is a text, not a list or mapping")
            if key_node.value in content:
                raise YamlLineError(place, f"{quoted(key_node.value)} occurs twice")
            content[key_node.value] = loader.construct_object(value_node, deep=True)
            content.places[key_node.value] = place
        return content

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    return Loader


@contextmanager
def position(content: Any, key: str = "") -> Iterator[None]:
    """Begin a ValueError of the block with the place of `key` of `content`, unless it has one."""
    try:
        yield
    except YamlLineError:
        raise
    except ValueError as error:
        if not isinstance(content, Keys):
            raise
        raise YamlLineError(content.places.get(key, content.places[""]), error) from None


def keys(title: str, content: Any, known: tuple[str, ...] = ()) -> Keys:
    """Return `content` if it is a mapping with known keys; () allows any key.

    Raises:
        ValueError: it is not; the line names the nearest known key.
    """
    if not isinstance(content, Keys):
        raise ValueError(f"{title}: keys with values, got {quoted(content)}")
    for key in content:
        if known and key not in known:
            reason = f"{title}: {unknown('key', key, known)}"
            raise YamlLineError(content.places[key], reason)
    return content

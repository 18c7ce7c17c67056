"""YAML whose mappings know the lines of their keys, so that an error can name the line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.topologies.core.grammar import quoted, unknown


class Keys(dict[str, Any]):
    """A mapping of the file; `lines` has the line of each key, from 1."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


class YamlLineError(ValueError):
    """A refusal, and the line that it is about."""

    def __init__(self, line: int, reason: object) -> None:
        super().__init__(str(reason))
        self.line = line


def read(text: str) -> Any:
    """Return the content of YAML `text`; every mapping is a Keys.

    Aliases are refused: a few lines of them can expand beyond the memory.

    Raises:
        ValueError: the text is malformed, nested too deeply, or repeats a key.
    """
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """SafeLoader that keeps lines and refuses keys that are no texts or occur twice."""

    def mapping(loader: Any, node: Any) -> Keys:
        content = Keys(node.start_mark.line + 1)
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlLineError(line, "a key is a text, not a list or mapping")
            if key_node.value in content:
                raise YamlLineError(line, f"{quoted(key_node.value)} occurs twice")
            content[key_node.value] = loader.construct_object(value_node, deep=True)
            content.lines[key_node.value] = line
        return content

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                reason = f"*{event.anchor} is an alias; write its value out"
                raise YamlLineError(event.start_mark.line + 1, reason)
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = f"no YAML: {error.problem or error.context}"
        raise YamlLineError(mark.line + 1 if mark else 1, reason) from None
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@contextmanager
def position(content: Any, key: str | None = None) -> Iterator[None]:
    """Give a ValueError of the block the line of `key` of `content`, unless it has one."""
    try:
        yield
    except YamlLineError:
        raise
    except ValueError as error:
        if not isinstance(content, Keys):
            raise
        raise YamlLineError(content.lines.get(key or "", content.line), error) from None


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
            raise YamlLineError(content.lines[key], reason)
    return content

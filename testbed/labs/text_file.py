"""Text files that a user names."""

from __future__ import annotations

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

"""Reader of graph files, `file:PATH`."""

from __future__ import annotations

from weft import topologies

MOST_BYTES = 1 << 28


def read(path: str) -> str:
    """Return the text of the file at `path`; ValueError, in one line, if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        hint = "; p=N, hosts of each router, may follow the path" if "," in path else ""
        raise ValueError(f"file:{path}: {reason}{hint}") from None
    if len(text) > MOST_BYTES:
        raise ValueError(f"file:{path}: it is larger than {MOST_BYTES} characters")
    return text


topologies.READ_TEXT.append(read)

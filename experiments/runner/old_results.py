"""Results as they were kept before results.sqlite: a Parquet and a JSON file for each run.

    results/<experiment>/<run id>.parquet   the row
    results/<experiment>/<run id>.json      its provenance

They are read in when results.sqlite is made beside them, and left where they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from weft.experiments.runner.console import say
from weft.experiments.runner.definition import Row, Run


class Old(NamedTuple):
    """A run with its row and its provenance."""

    run: Run
    row: Row
    provenance: dict[str, Any]


def there_are(root: Path) -> bool:
    """Whether there are such results in the directory `root`."""
    return any(root.glob("*/*.parquet"))


def read(root: Path) -> Iterator[Old]:
    """Every such result in the directory `root`; one line on standard error for each that cannot be
    read.

    ValueError if pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            f"{root}: Parquet files need pyarrow: pip install 'weft-testbed[parquet]'"
        ) from None
    for path in sorted(root.glob("*/*.parquet")):
        try:
            provenance = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            content = {key: value for key, value in provenance["run"].items() if key != "id"}
            with pyarrow.parquet.ParquetFile(path) as file:
                (row,) = file.read(use_threads=False).to_pylist()
            yield Old(Run(**content), row, provenance)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            pyarrow.ArrowException,
        ) as error:
            say(f"weft: {path} cannot be read and is left out: {' '.join(str(error).split())}")

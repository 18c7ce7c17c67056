"""What this kernel can do, and what to do where it cannot.

Everything is tried once per boot and remembered; what was found absent is tried again before anybody is refused for it,
as it may have been installed since.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.testbed.host.features import PROGRAMS, TRIES, Scratch, Try
from weft.testbed.linux import netns
from weft.testbed.linux.netlink import NetlinkError
from weft.testbed.plan.run import DIRECTORY
from weft.testbed.processes import private_files

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UNTRIED = "trying needs root"
KERNEL_HINT = (
    f"modules may be in Ubuntu's linux-modules-extra-{os.uname().release}; `weft uml -- COMMAND` has a kernel with all"
)


@dataclass(frozen=True)
class Feature:
    """present: None if that could not be tried.  detail: what was found, or what the kernel said.
    needed_for: what weft does with it.  get: how to get it."""

    name: str
    present: bool | None
    detail: str
    needed_for: str
    get: str


def probe(*, fresh: bool = False) -> list[Feature]:
    """Every feature; `fresh`: tried now, whatever is remembered."""
    known = [] if fresh else _remembered()
    if not known:
        known = examine(TRIES)
        _remember(known)
    return known + examine(PROGRAMS)


def require(name: str, why: str) -> None:
    """Return if the feature called `name` is there; ValueError, in one line, says who needs it and how to get it."""
    tries = {one.name: one for one in (*TRIES, *PROGRAMS)}
    if any(feature.name == name and feature.present for feature in _remembered()):
        return
    (feature,) = examine([tries[name]])
    if not feature.present:
        hint = f" ({KERNEL_HINT})" if tries[name] in TRIES else ""
        raise ValueError(f"{why} needs {name}, which is missing ({feature.detail}): {feature.get}{hint}")


def examine(tries: Iterable[Try]) -> list[Feature]:
    """Try each now."""

    def work() -> list[Feature]:
        with Scratch(private=os.geteuid() == 0) as scratch:
            return [_try(one, scratch) for one in tries]

    return netns.in_thread(work)


def _try(one: Try, scratch: Scratch) -> Feature:
    if one.root and not scratch.private:
        return Feature(one.name, None, UNTRIED, one.needed_for, one.get)
    try:
        detail, present = one.attempt(scratch), True
    except NetlinkError as error:
        detail, present = (error.strerror or "").rpartition(": ")[2], False  # without the command
    except OSError as error:
        detail, present = error.strerror or str(error), False
    return Feature(one.name, present, detail, one.needed_for, one.get)


def as_json(features: Sequence[Feature]) -> dict[str, Any]:
    """JSON-able: {"kernel": release, "root": bool, "features": [{"name", "present", "detail", "needed_for", "get"}]};
    "present" is null where trying needs root."""
    return {
        "kernel": os.uname().release,
        "root": os.geteuid() == 0,
        "features": [asdict(feature) for feature in features],
    }


def show(features: Sequence[Feature]) -> None:
    """Print a table for a person: what there is, what is missing and how to get it."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Linux {os.uname().release}", title_justify="left", box=None)
    for column in ("", "feature", "needed for", "what was found, or how to get it"):
        table.add_column(column, overflow="fold")
    marks = {True: "[green]yes[/]", False: "[red]no[/]", None: "[yellow]?[/]"}
    for feature in features:
        table.add_row(
            marks[feature.present],
            feature.name,
            feature.needed_for,
            feature.detail if feature.present is not False else feature.get,
        )
    console = Console()
    console.print(table)
    if not all(feature.present for feature in features):
        console.print(KERNEL_HINT)


def _memory() -> Path | None:
    """The file in which what was found is kept until the next boot; None if this user has no place for one."""
    if os.geteuid() == 0:
        return DIRECTORY / "doctor.json"
    place = os.environ.get("XDG_RUNTIME_DIR")
    return Path(place) / "weft-doctor.json" if place else None


def _key() -> dict[str, Any]:
    """What must be the same for something remembered to hold."""
    return {"boot": BOOT_ID.read_text().strip(), "tries": [one.name for one in TRIES]}


def _remembered() -> list[Feature]:
    """What was found since the boot; [] if nothing was, or not by this version."""
    file = _memory()
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        told = json.loads(file.read_text()) if file else {}
        if told["key"] == _key():
            return [Feature(**feature) for feature in told["features"]]
    return []


def _remember(features: Sequence[Feature]) -> None:
    file = _memory()
    if not file:
        return
    private_files.make_folder(file.parent)
    draft = file.with_suffix(f".{os.getpid()}")
    private_files.write(draft, json.dumps({"key": _key(), "features": [asdict(one) for one in features]}).encode())
    draft.rename(file)

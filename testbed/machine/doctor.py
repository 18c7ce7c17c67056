"""Features of this kernel, and how to get missing ones.

Each feature is tried once per boot, and the result is stored.  A command that needs a missing
feature tries it again, because it may have been installed since.
"""

from __future__ import annotations

import json
import os
import platform
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.testbed.linux import netns
from weft.testbed.linux.netlink import NetlinkError
from weft.testbed.machine.features import PROGRAMS, TRIES, Scratch, Try
from weft.testbed.runs import private_files
from weft.testbed.runs.run import DIRECTORY

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UNTRIED = "trying needs root"
KERNEL_HINT = "`weft uml -- COMMAND` has a kernel with every feature"
UBUNTU_HINT = f"modules may be in the package linux-modules-extra-{os.uname().release}; "
WIDTH = 80


@dataclass(frozen=True)
class Feature:
    """A feature of the kernel or the machine.

    present: None if it could not be tried.
    detail: the result, or the kernel's message.
    needed_for: its use in weft.
    get: how to get it.
    """

    name: str
    present: bool | None
    detail: str
    needed_for: str
    get: str


def probe(*, fresh: bool = False) -> list[Feature]:
    """Return every feature; with `fresh`, tried now instead of read from the stored results."""
    kernel_features = [] if fresh else _stored()
    if not kernel_features:
        kernel_features = examine(TRIES)
        _store(kernel_features)
    return kernel_features + examine(PROGRAMS)


def require(name: str, why: str) -> None:
    """Raise ValueError unless the feature called `name` is present.

    Args:
        name: of the feature.
        why: subject of the message, which says how to get it.
    """
    tries = {attempt.name: attempt for attempt in (*TRIES, *PROGRAMS)}
    if any(feature.name == name and feature.present for feature in _stored()):
        return
    (feature,) = examine([tries[name]])
    if not feature.present:
        hint = f" ({kernel_hint()})" if tries[name] in TRIES else ""
        raise ValueError(
            f"{why} needs {name}, which is missing ({feature.detail}): {feature.get}{hint}"
        )


def examine(tries: Iterable[Try]) -> list[Feature]:
    """Try these features now."""

    def work() -> list[Feature]:
        with Scratch(private=os.geteuid() == 0) as scratch:
            return [_examined(attempt, scratch) for attempt in tries]

    return netns.in_thread(work)


def _examined(attempt: Try, scratch: Scratch) -> Feature:
    present: bool | None
    if attempt.root and not scratch.private:
        present, detail = None, UNTRIED
    else:
        present, detail = _outcome(attempt, scratch)
    return Feature(attempt.name, present, detail, attempt.needed_for, attempt.get)


def _outcome(attempt: Try, scratch: Scratch) -> tuple[bool, str]:
    try:
        return True, attempt.attempt(scratch) or ""
    except NetlinkError as error:
        return False, (error.strerror or "").rpartition(": ")[2]  # without the command
    except OSError as error:
        return False, error.strerror or str(error)


def as_json(features: Sequence[Feature]) -> dict[str, Any]:
    """Return the kernel's release, `root`, and the fields of each feature; JSON-able."""
    return {
        "kernel": os.uname().release,
        "root": os.geteuid() == 0,
        "features": [asdict(feature) for feature in features],
    }


def show(features: Sequence[Feature]) -> None:
    """Print a summary, the missing features, and the others, 80 columns wide."""
    names = {
        state: [feature.name for feature in features if feature.present is state]
        for state in (True, False, None)
    }
    summary = (
        f"Linux {os.uname().release}: {len(names[True])} of {len(features)} features are there"
    )
    summary += f"; missing: {', '.join(names[False])}" if names[False] else ""
    summary += f"; trying needs root: {', '.join(names[None])}" if names[None] else ""
    print(_wrapped(f"{summary}."))
    if names[False] or names[None]:
        print(_wrapped(f"Where one is needed: {kernel_hint()}."))
    for state, mark in ((False, "no"), (None, "?"), (True, "yes")):
        for feature in features:
            if feature.present is state:
                more = feature.get if state is False else feature.detail
                line = f"{mark:<4} {feature.name}: {feature.needed_for}" + (
                    f" ({more})" if more else ""
                )
                print(_wrapped(line, later=" " * 9))


def kernel_hint() -> str:
    """Return how this system gets a kernel with more features."""
    with suppress(OSError):
        if platform.freedesktop_os_release()["ID"] == "ubuntu":
            return UBUNTU_HINT + KERNEL_HINT
    return KERNEL_HINT


def _wrapped(text: str, later: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=later, break_on_hyphens=False)


def _file() -> Path | None:
    """Return the file of the results since the boot; None if this user has no place for one."""
    if os.geteuid() == 0:
        return DIRECTORY / "doctor.json"
    place = os.environ.get("XDG_RUNTIME_DIR")
    return Path(place) / "weft-doctor.json" if place else None


def _key() -> dict[str, Any]:
    """Return the conditions under which stored results hold."""
    return {"boot": BOOT_ID.read_text().strip(), "tries": [attempt.name for attempt in TRIES]}


def _stored() -> list[Feature]:
    """Return the results stored since the boot by this version; empty without."""
    file = _file()
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        content = json.loads(file.read_text()) if file else {}
        if content["key"] == _key():
            return [Feature(**feature) for feature in content["features"]]
    return []


def _store(features: Sequence[Feature]) -> None:
    file = _file()
    if not file:
        return
    content = {"key": _key(), "features": [asdict(feature) for feature in features]}
    private_files.make_folder(file.parent)
    draft = file.with_suffix(f".{os.getpid()}")  # of this process alone
    private_files.write(draft, json.dumps(content).encode())
    draft.rename(file)

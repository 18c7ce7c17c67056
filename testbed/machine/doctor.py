"""What this kernel can do, and what to do where it cannot.

Everything is tried once per boot and remembered; what was found absent is tried again before
a command is refused for it, as it may have been installed since.
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
    """present: None if that could not be tried.  detail: what was found, or what the kernel said.

    needed_for: what weft does with it.  get: how to get it.
    """

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
    """Return if the feature called `name` is there.

    ValueError, in one line, says who needs it and how to get it.
    """
    tries = {one.name: one for one in (*TRIES, *PROGRAMS)}
    if any(feature.name == name and feature.present for feature in _remembered()):
        return
    (feature,) = examine([tries[name]])
    if not feature.present:
        hint = f" ({kernel_hint()})" if tries[name] in TRIES else ""
        raise ValueError(
            f"{why} needs {name}, which is missing ({feature.detail}): {feature.get}{hint}"
        )


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
    """JSON-able: {"kernel": release, "root": bool, "features": [{"name", "present", "detail",
    "needed_for", "get"}]}; "present" is null where trying needs root.
    """
    return {
        "kernel": os.uname().release,
        "root": os.geteuid() == 0,
        "features": [asdict(feature) for feature in features],
    }


def show(features: Sequence[Feature]) -> None:
    """Print what there is for a person, 80 columns wide: a summary, what is missing, and the
    rest.
    """
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


def _memory() -> Path | None:
    """The file in which what was found is kept until the next boot.

    None if this user has no place for one.
    """
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
    private_files.write(
        draft, json.dumps({"key": _key(), "features": [asdict(one) for one in features]}).encode()
    )
    draft.rename(file)

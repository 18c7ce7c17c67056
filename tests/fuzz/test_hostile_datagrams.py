"""Hostile datagrams leave the transport in C without a fault that a sanitizer sees, within its
bounds."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.fuzz.hostile_datagrams import program


def test_hostile_datagrams_are_refused_and_counted(tmp_path: Path) -> None:
    attack = subprocess.run([program(tmp_path), "500000", "1"], capture_output=True, text=True)
    assert (attack.returncode, attack.stderr) == (0, "")
    words = attack.stdout.split()
    counted = {name: int(count) for name, count in zip(words[::2], words[1::2], strict=True)}
    assert all(counted.values()), "every way through is taken"

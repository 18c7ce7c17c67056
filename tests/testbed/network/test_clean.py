"""A clean-up ends the processes of the run, by their mark or namespace, and no others."""

from __future__ import annotations

import os
import subprocess

import pytest

from weft.testbed.linux import netns
from weft.testbed.network import clean
from weft.testbed.runs.run import ENVIRONMENT


def sleeper(**options):
    return subprocess.Popen(["sleep", "1000"], **options)


def unmarked():
    return {name: value for name, value in os.environ.items() if name != ENVIRONMENT}


@pytest.mark.kernel
def test_those_with_the_mark_and_those_in_a_namespace_of_the_run_are_ended(spare_netns):
    with netns.inside(spare_netns.fd):
        inside = sleeper(env=unmarked())
    marked = sleeper(env=unmarked() | {ENVIRONMENT: "testrun"})
    others = [sleeper(env=unmarked() | {ENVIRONMENT: "testrunner"}), sleeper(env=unmarked())]
    try:
        found = clean.processes("testrun", [spare_netns.name, "weft.gone.h0"])
        assert sorted(found) == sorted([inside.pid, marked.pid])
        clean.kill(found)
        assert inside.wait(10) == marked.wait(10) == -9
        assert [other.poll() for other in others] == [None, None]
        clean.kill(found)  # who has ended already is no failure
    finally:
        for process in (inside, marked, *others):
            process.kill()
            process.wait()

"""Run one test of Mininet's in this process, with Mininet's names meaning ours, and print what
became of it as JSON.

python -m tests.mininet_suite.one FILE CLASS.METHOD
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
import unittest

from weft.testbed.mininet.scripts import give_names

with contextlib.suppress(ImportError):
    import setuptools  # noqa: F401  # brings distutils, which Mininet's tests import and Python 3.12 has no more


def run(file: str, name: str) -> dict[str, str]:
    """The outcome, "pass", "skip" or "fail", of the test called `name` in `file`, and why."""
    give_names()
    spec = importlib.util.spec_from_file_location("mininet_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suite = unittest.defaultTestLoader.loadTestsFromName(name, module)
    result = unittest.TestResult()
    suite.run(result)
    problems = [text for _, text in [*result.failures, *result.errors]]
    if problems:
        return {"outcome": "fail", "why": problems[0]}
    if result.skipped:
        return {"outcome": "skip", "why": result.skipped[0][1]}
    return {
        "outcome": "pass" if result.testsRun else "fail",
        "why": "" if result.testsRun else "no test ran",
    }


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            found = run(sys.argv[1], sys.argv[2])
        except SystemExit as ended:
            found = {"outcome": "fail", "why": f"ended with status {ended.code}"}
    print(f"@result {json.dumps(found)}")

"""The controller's requests, with programs in place of agents."""

from __future__ import annotations

import json
import sys

from weft.testbed.cluster.agent import NEWS
from weft.testbed.cluster.controller import Controller
from weft.testbed.runs.run import RunRecord

# it answers at once, or after the other has heard a beat
AGENT = """
import json, pathlib, sys, time
folder, is_late = pathlib.Path(sys.argv[1]), sys.argv[2] == "late"
for line in sys.stdin:
    word = json.loads(line)["do"]
    if word == "beat":
        (folder / "beat").touch()
    end_s = time.monotonic() + 60
    while word == "apply" and is_late and not (folder / "beat").exists():
        time.sleep(0.01)
        if time.monotonic() > end_s:
            sys.exit("no beat")
    print(json.dumps({"answer": word, **json.loads(sys.argv[3])}), flush=True)
"""


def test_a_machine_that_waits_for_a_slower_one_gets_beats(tmp_path):
    """An agent removes its part if it hears nothing for ten seconds."""
    (tmp_path / "agent.py").write_text(AGENT)
    program = [sys.executable, f"{tmp_path}/agent.py", str(tmp_path)]
    machines = {
        name: {"name": name, "start": [*program, name, json.dumps(NEWS)]}
        for name in ("early", "late")
    }
    journal = {"parts": [], "machines": {name: machines[name] | {"weft": []} for name in machines}}
    (tmp_path / "run.json").write_text(json.dumps(journal))
    controller = Controller(RunRecord("demo", 1, tmp_path))
    controller.connect()
    try:
        for word in ("apply", "facts"):
            answers = controller.ask({name: {"do": word} for name in machines})
            assert {name: answers[name]["answer"] for name in answers} == dict.fromkeys(
                machines, word
            )
    finally:
        controller.end()

"""Errors of a supervisor that cannot start its daemons."""

from weft.testbed.node_daemon.control import errors_in

LOG = """\
Traceback (most recent call last):
  File "/weft/testbed/node_daemon/child_process.py", line 41, in run
    loop.run()
ModuleNotFoundError: No module named 'weft_deflection'
process 41 died before it had started; see /run/weft/demo/log
"""


def test_the_cause_comes_first_and_no_traceback():
    cause, consequence = errors_in(LOG + LOG).split("; ", 1)
    assert cause == "ModuleNotFoundError: No module named 'weft_deflection'"
    assert consequence == "process 41 died before it had started; see /run/weft/demo/log"
    assert errors_in("") == "the supervisor ended without a message"

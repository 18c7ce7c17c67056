"""The process that watches a supervisor, and takes its place when it dies.

    python -m weft.testbed.supervision.successor SUPERVISOR LOCK COMMAND

It waits for the process of the descriptor SUPERVISOR to end, holding the run's lock (descriptor LOCK, -1 for none), and
then becomes COMMAND: a supervisor that finds daemons to be started again.  A supervisor that ends as it should ends its
successor first; it starts another one if that dies.  So one of the two is there, unless both are killed at once.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Sequence

from weft.testbed.processes import isolated_python

AGAIN = "again"  # the last argument of a supervisor that takes another's place


def start(lock: int) -> int:
    """Start the successor of this process, a supervisor, which holds the descriptor `lock` (-1: none); a descriptor
    that tells when it has ended."""
    own = sys.orig_argv if sys.orig_argv[-1] == AGAIN else [*sys.orig_argv, AGAIN]
    me = os.pidfd_open(os.getpid())
    argv = isolated_python.command("weft.testbed.supervision.successor", [str(me), str(lock), *own], packages=False)
    if not (pid := os.fork()):
        for fd in (me, lock):
            if fd >= 0:
                os.set_inheritable(fd, True)
        os.execv(argv[0], argv)  # which closes all else that is open
    os.close(me)
    return os.pidfd_open(pid)


def main(argv: Sequence[str]) -> None:
    supervisor, lock, *command = argv
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 1)  # who waited for the first supervisor waits no more
    if int(lock) >= 0:
        os.set_inheritable(int(lock), True)
    poll = select.poll()
    poll.register(int(supervisor), select.POLLIN)
    poll.poll()
    os.close(int(supervisor))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])

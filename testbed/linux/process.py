"""Rights and limits of this process."""

from __future__ import annotations

import os
import resource

SPARE_DESCRIPTORS = 50


def need_root() -> None:
    """Raise ValueError unless this process may make namespaces."""
    if os.geteuid():
        raise ValueError(
            "networks need root: use sudo, or `weft uml -- COMMAND` for a kernel of your own"
        )


def allow_descriptors(count: int) -> None:
    """Let this process have `count` files open.

    Raises:
        ValueError: the system allows fewer; as many as it allows may be open now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(hard, count)))
    except ValueError:  # not root, or root without CAP_SYS_RESOURCE
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        raise ValueError(
            f"this network needs {count} open files and the limit is {hard}; "
            "raise it with ulimit -n"
        ) from None


def allow_more_descriptors(count: int) -> None:
    """Let this process open `count` more files and a few others; see allow_descriptors()."""
    allow_descriptors(len(os.listdir("/proc/self/fd")) + count + SPARE_DESCRIPTORS)

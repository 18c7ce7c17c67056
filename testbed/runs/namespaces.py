"""The namespaces of a run, by node, for changes in pyroute2's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from weft.testbed.linux.closing import Closing
from weft.testbed.linux.iproute import Namespace
from weft.testbed.linux.process import need_root
from weft.testbed.runs import run
from weft.testbed.runs.run import RunRecord


class Namespaces(Mapping[str, Namespace], Closing):
    """The namespace of each node of `record`, by the node's name, until closed.

    with weft.namespaces("demo") as nodes:
        nodes["h0"].ip.link("set", ifname="h0-eth0", mtu=1400)
    """

    def __init__(self, record: RunRecord) -> None:
        names = record.journal["namespaces"]
        start = len(record.namespace(""))
        self._by_node = {name[start:]: Namespace(name) for name in names}

    def __getitem__(self, node: str) -> Namespace:
        return self._by_node[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_node)

    def __len__(self) -> int:
        return len(self._by_node)

    def close(self) -> None:
        """Close every IPRoute; the namespaces stay."""
        for namespace in self._by_node.values():
            namespace.close()


def namespaces(name: str | None = None) -> Namespaces:
    """Return the namespaces of a live run, also of one that another process created.

    Args:
        name: of the run; None: $WEFT_RUN, or the only live run.

    Raises:
        ValueError: there is no such run, or this process is not root's.
    """
    need_root()
    return Namespaces(run.find(name))

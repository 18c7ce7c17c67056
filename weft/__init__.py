"""weft: data-center routing on a real Linux kernel.

    from weft import LinkSpec, Mbps, Net, OutageProbe, build, run

What a program of your own needs is here; each name is imported when it is first used, so that a
daemon, which needs none, does not pay for it.

The rooms of this package are the four folders that lie beside this one in the repository; here are
links to them, so that they are parts of one package and clash with no package of a user.
"""

TYPE_CHECKING = False  # as typing has it, without importing that

if TYPE_CHECKING:
    __version__: str
    from weft.experiments.runner.python_interface import build as build
    from weft.experiments.runner.python_interface import run as run
    from weft.testbed.measure.outage import OutageProbe as OutageProbe
    from weft.testbed.mininet.net import Net as Net
    from weft.testbed.packets.simulation import simulate as simulate
    from weft.testbed.runs.network_handle import namespaces as namespaces
    from weft.topologies.core.link import Gbps as Gbps
    from weft.topologies.core.link import LinkSpec as LinkSpec
    from weft.topologies.core.link import Mbps as Mbps

_MODULES = {
    "Gbps": "weft.topologies.core.link",
    "LinkSpec": "weft.topologies.core.link",
    "Mbps": "weft.topologies.core.link",
    "Net": "weft.testbed.mininet.net",
    "OutageProbe": "weft.testbed.measure.outage",
    "build": "weft.experiments.runner.python_interface",
    "namespaces": "weft.testbed.runs.network_handle",
    "run": "weft.experiments.runner.python_interface",
    "simulate": "weft.testbed.packets.simulation",
}

__all__ = [
    "Gbps",
    "LinkSpec",
    "Mbps",
    "Net",
    "OutageProbe",
    "build",
    "namespaces",
    "run",
    "simulate",
]


if not TYPE_CHECKING:  # or a type checker would believe that there is every name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "__version__":
            value = import_module("weft.testbed.machine.installation").version()
        elif name in _MODULES:
            value = getattr(_imported(_MODULES[name]), name)
        else:
            raise AttributeError(f"module 'weft' has no attribute {name!r}")
        globals()[name] = value
        return value


def _imported(module: str) -> object:
    """Return a module; ModuleNotFoundError says how to install a package that it lacks."""
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        from weft.testbed.machine.installation import missing

        raise missing(error) or error from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})

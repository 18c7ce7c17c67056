"""Pure functions as machine code, see daemons/core/compiled.py, for the graph engine."""

from weft.daemons.core.compiled import allocates_nothing, compiled

__all__ = ["allocates_nothing", "compiled"]

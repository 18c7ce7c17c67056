"""The pure functions of topologies/ and daemons/ as machine code: the very same source, compiled by numba.

compiled(f) is f again, in a namespace where every function of this project that it calls is compiled too.  So nothing
that is evaluated a hundred million times has a second implementation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

PURE = ("weft.topologies", "weft.daemons")
PACKAGES = (*PURE, "weft.experiments")
MARK = "allocates_nothing"


Instead = tuple[tuple[str, FunctionType], ...]


def compiled(function: F, **instead: Callable[..., Any]) -> F:
    """`function` as machine code, compiled when it is first called with arguments of some types.

    The code is kept on disk if all of its source is this project's.  It lets other threads run beside it.
    instead: for some of the names by which it or a function below it calls others, other functions, which take the
        same arguments.  These may be a user's own; functions of the same module that they call are compiled too.
    """
    return cast(F, _outer(function, cast(Instead, tuple(sorted(instead.items())))))


def allocates_nothing(function: F) -> F:
    """Marks a function that gets arrays and makes none, as those of PURE all are: compiled() makes it part of whoever
    calls it.  Counting references to arrays costs more than arithmetic, and a call that passes a dozen words costs more
    than most of what is called: the packet model of TTC is three to six times as fast for it."""
    function.__dict__[MARK] = True
    return function


@cache
def _outer(function: FunctionType, instead: Instead) -> Any:
    calls = _replaced(function, instead)
    copy = _copy(function, {name: _inner(called, instead) for name, called in calls.items()})
    # numba finds its work again by this name and by the source of this function alone: name the rest
    others = [other for _, other in instead]
    copy.__qualname__ += "_" + _digest([function, *calls.values(), *others])
    return _jit(copy, cache=all(other.__module__.startswith(PACKAGES) and not other.__closure__ for other in others))


@cache
def _inner(function: FunctionType, instead: Instead) -> Any:
    calls = _replaced(function, instead)
    if function in calls.values():
        # A copy that numba keeps on disk has lost the way from such a function to itself, and jumps to address 0.
        raise ValueError(f"{function.__qualname__} calls itself: write it as a loop")
    options: dict[str, Any] = {}
    if function.__module__.startswith(PURE) or MARK in function.__dict__:
        options = {"_nrt": False, "forceinline": True}
    return _jit(_copy(function, {name: _inner(called, instead) for name, called in calls.items()}), **options)


def _jit(function: FunctionType, **options: Any) -> Any:
    from numba import njit  # half a second, for which a command that only lists need not wait

    return njit(nogil=True, error_model="numpy", **options)(function)


def _replaced(function: FunctionType, instead: Instead) -> dict[str, FunctionType]:
    """_called(), with the functions of `instead` for those of their names."""
    others = dict(instead)
    return {name: others.get(name, called) for name, called in _called(function).items()}


def _called(function: FunctionType) -> dict[str, FunctionType]:
    """The functions of this project or of its own module that `function` calls, by the names that it has for them."""
    named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {
        name: value
        for name, value in named.items()
        if isinstance(value, FunctionType)
        and (value.__module__ == function.__module__ or value.__module__.startswith(PACKAGES))
    }


def _copy(function: FunctionType, calls: dict[str, Any]) -> FunctionType:
    """`function` with `calls` for the names by which it calls."""
    namespace = {**function.__globals__, **calls}
    copy = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return copy


def _digest(functions: list[FunctionType]) -> str:
    """Eight hexadecimal digits for the source of `functions` and of everything that they call."""
    sources: dict[str, None] = {}
    for function in _reached(functions):
        sources[function.__code__.co_filename] = None
    names = " ".join(function.__qualname__ for function in functions)
    return hashlib.sha256(names.encode() + b"".join(Path(file).read_bytes() for file in sorted(sources))).hexdigest()[
        :8
    ]


def _reached(functions: list[FunctionType]) -> Iterator[FunctionType]:
    """`functions` and everything of this project that they call, directly or not, each once."""
    found, left = set(functions), list(functions)
    while left:
        function = left.pop()
        yield function
        new = set(_called(function).values()) - found
        found |= new
        left += new

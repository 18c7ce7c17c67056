"""Machine code from the pure functions of topologies/ and daemons/, by numba.

compiled(f) is f in a namespace where every function of this project that it calls is compiled, too.
So a function that is evaluated a hundred million times needs no second implementation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

PURE = ("weft.topologies", "weft.daemons")
PACKAGES = (*PURE, "weft.experiments")
MARK = "allocates_nothing"
CONSTANTS = (int, float, str, tuple)
_timers: list[Any] = []  # numba's, one at most


Instead = tuple[tuple[str, FunctionType], ...]


def compiled(function: F, **instead: Callable[..., Any]) -> F:
    """Return `function` as machine code, compiled at its first call with arguments of some types.

    The code is cached on disk if all of its source is this project's.  It releases the GIL.

    Args:
        function: a pure function.
        instead: by name, functions to call in place of those that `function`, or a function below
            it, calls by that name.  They may be a user's own; functions of their module that they
            call are compiled, too.
    """
    return cast(F, _outer(function, cast(Instead, tuple(sorted(instead.items())))))


def compile_s() -> float:
    """Return the seconds that this process has spent on compiling; code from the cache has none."""
    return float(sum(timer.duration for timer in _timers if timer.done))


def allocates_nothing(function: F) -> F:
    """Mark a function that allocates no array, as all of PURE are.

    compiled() then inlines it without reference counts.

    Counting references to arrays costs more than arithmetic, and passing a dozen arguments more
    than most functions: the packet model of TTC runs three to six times as fast.
    """
    function.__dict__[MARK] = True
    return function


@cache
def _outer(function: FunctionType, instead: Instead) -> Any:
    calls = _replaced(function, instead)
    copy = _copy(function, {name: _inner(called, instead) for name, called in calls.items()})
    # numba's cache is keyed by this name and by the source of this function alone, so the name
    # covers the others
    others = [other for _, other in instead]
    copy.__qualname__ += "_" + _digest([function, *calls.values(), *others])
    return _jit(
        copy,
        cache=all(
            other.__module__.startswith(PACKAGES) and not other.__closure__ for other in others
        ),
    )


@cache
def _inner(function: FunctionType, instead: Instead) -> Any:
    calls = _replaced(function, instead)
    if function in calls.values():
        # In code from numba's cache a recursive call jumps to address 0.
        raise ValueError(f"{function.__qualname__} calls itself: write it as a loop")
    options: dict[str, Any] = {}
    if function.__module__.startswith(PURE) or MARK in function.__dict__:
        options = {"_nrt": False, "forceinline": True}
    return _jit(
        _copy(function, {name: _inner(called, instead) for name, called in calls.items()}),
        **options,
    )


def _jit(function: FunctionType, **options: Any) -> Any:
    # takes half a second, which a command that only lists need not spend
    from numba import njit
    from numba.core import event

    if not _timers:
        _timers.append(event.TimingListener())  # type: ignore[no-untyped-call]
        event.register("numba:compile", _timers[0])  # type: ignore[no-untyped-call]
    return njit(nogil=True, error_model="numpy", **options)(function)


def _replaced(function: FunctionType, instead: Instead) -> dict[str, FunctionType]:
    """Return _called(), with the functions of `instead` in place of those of their names."""
    others = dict(instead)
    return {name: others.get(name, called) for name, called in _called(function).items()}


def _called(function: FunctionType) -> dict[str, FunctionType]:
    """Return the functions of this project or of its own module that `function` calls, by name."""
    named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {
        name: value
        for name, value in named.items()
        if isinstance(value, FunctionType)
        and (value.__module__ == function.__module__ or value.__module__.startswith(PACKAGES))
    }


def _copy(function: FunctionType, calls: dict[str, Any]) -> FunctionType:
    """Return a copy of `function` whose names in `calls` mean these functions."""
    namespace = {**function.__globals__, **calls}
    copy = FunctionType(
        function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    return copy


def _digest(functions: list[FunctionType]) -> str:
    """Return eight hexadecimal digits of the byte code of `functions` and all they call.

    Constants of their modules are part of the digest, because numba compiles their values in, and
    the modules' names, which it imports with the code.
    """
    texts = sorted(
        function.__module__ + _code_text(function.__code__) + _constants(function)
        for function in _reached(functions)
    )
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:8]


def _code_text(code: CodeType) -> str:
    """Return the byte code of a function and those nested in it, with its constants, as text."""
    constants = [
        _code_text(value) if isinstance(value, CodeType) else repr(value)
        for value in code.co_consts
    ]
    return " ".join(
        [code.co_name, code.co_code.hex(), *code.co_names, *code.co_varnames, *constants]
    )


def _constants(function: FunctionType) -> str:
    """Return the values of the global names of `function` that are constants."""
    values = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return repr(
        sorted((name, value) for name, value in values.items() if isinstance(value, CONSTANTS))
    )


def _reached(functions: list[FunctionType]) -> Iterator[FunctionType]:
    """Yield `functions` and all functions of this project that they call, each once."""
    reached, pending = set(functions), list(functions)
    while pending:
        function = pending.pop()
        yield function
        new = set(_called(function).values()) - reached
        reached |= new
        pending += new

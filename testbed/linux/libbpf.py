"""Compiled BPF programs, loaded, attached and read by libbpf.so.1 (a dependency of iproute2)."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct

# not threading: each daemon forked with that loaded takes 0.4 MB more
from _thread import allocate_lock
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from weft.testbed.linux import compiled, netlink, tc_filters
from weft.testbed.linux.interface import Device
from weft.testbed.linux.netlink import NetlinkMessage
from weft.testbed.linux.process import Closing, deferred_signals

DIRECTORY = Path(__file__).parents[1] / "data_plane"
LIBRARY = "libbpf.so.1"
TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_ID = 6, 7, 11
MOST_MAPS = 64  # of one program
MAP_IDS = 56  # offset of map_ids in struct bpf_prog_info, behind their number
# struct bpf_map_info: type, id, sizes of key and value, entries, flags, name
MAP_INFO = struct.Struct("=6I16s")
INFORMATION = 1  # libbpf's levels: 0 warning, 1 information, 2 debugging
RING_BUFFER = 27  # BPF_MAP_TYPE_RINGBUF
LAST_LINES = 8  # of libbpf's messages, quoted in an error
# for the verifier's log; without it libbpf would verify again and again, each time with more room
LOG_BYTES = 1 << 20

_Printer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_Reader = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_loading = allocate_lock()  # libbpf has one printer for all threads


class BpfError(OSError):
    """Failure to load or attach a program, with the messages of libbpf and the verifier.

    log: all lines of these messages.
    """

    log: Sequence[str] = ()


_POINTER, _INT, _U32, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_char_p
# result and arguments by function of libbpf
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "libbpf_set_print": (_POINTER, [_Printer]),
    "bpf_object__open_file": (_POINTER, [_TEXT, _POINTER]),
    "bpf_object__load": (_INT, [_POINTER]),
    "bpf_object__close": (None, [_POINTER]),
    "bpf_object__next_program": (_POINTER, [_POINTER, _POINTER]),
    "bpf_program__set_log_buf": (_INT, [_POINTER, _TEXT, ctypes.c_size_t]),
    "bpf_object__find_program_by_name": (_POINTER, [_POINTER, _TEXT]),
    "bpf_program__fd": (_INT, [_POINTER]),
    "bpf_program__attach": (_POINTER, [_POINTER]),
    "bpf_link__destroy": (_INT, [_POINTER]),
    "bpf_object__find_map_by_name": (_POINTER, [_POINTER, _TEXT]),
    "bpf_map__fd": (_INT, [_POINTER]),
    "bpf_map__value_size": (_U32, [_POINTER]),
    "bpf_map__set_max_entries": (_INT, [_POINTER, _U32]),
    "bpf_map__set_initial_value": (_INT, [_POINTER, _POINTER, ctypes.c_size_t]),
    "bpf_map_create": (_INT, [_INT, _TEXT, _U32, _U32, _U32, _POINTER]),
    "bpf_map_update_elem": (_INT, [_INT, _POINTER, _POINTER, ctypes.c_uint64]),
    "bpf_map_lookup_elem": (_INT, [_INT, _POINTER, _POINTER]),
    "bpf_map_delete_elem": (_INT, [_INT, _POINTER]),
    "bpf_map_get_next_key": (_INT, [_INT, _POINTER, _POINTER]),
    "bpf_map_lookup_batch": (_INT, [_INT, *[_POINTER] * 6]),
    "bpf_prog_load": (_INT, [_INT, _TEXT, _TEXT, _POINTER, ctypes.c_size_t, _POINTER]),
    "bpf_raw_tracepoint_open": (_INT, [_TEXT, _INT]),
    "bpf_prog_get_fd_by_id": (_INT, [_U32]),
    "bpf_map_get_fd_by_id": (_INT, [_U32]),
    "bpf_obj_get_info_by_fd": (_INT, [_INT, _POINTER, _POINTER]),
    "ring_buffer__new": (_POINTER, [_INT, _Reader, _POINTER, _POINTER]),
    "ring_buffer__consume": (_INT, [_POINTER]),
    "ring_buffer__free": (None, [_POINTER]),
    "btf__parse": (_POINTER, [_TEXT, _POINTER]),
    "btf__free": (None, [_POINTER]),
    "btf__type_cnt": (_U32, [_POINTER]),
    "btf__type_by_id": (_POINTER, [_POINTER, _U32]),
    "btf__resolve_type": (_INT, [_POINTER, _U32]),
    "btf__name_by_offset": (_TEXT, [_POINTER, _U32]),
}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return libbpf; raise BpfError if it is not installed."""
    try:
        libbpf = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError as error:
        raise BpfError(
            error.errno or 2, f"{LIBRARY}: {error}; install it: apt-get install libbpf1"
        ) from None
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(libbpf, name)
        function.restype = result
        function.argtypes = arguments
    return libbpf


class Map:
    """A map of a loaded object, whose keys and values are tuples."""

    def __init__(self, fd: int, key: struct.Struct, value: struct.Struct) -> None:
        self.fd = fd
        self._key = key
        self._value = value

    def __setitem__(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        packed = self._key.pack(*key), self._value.pack(*value)
        if library().bpf_map_update_elem(self.fd, *packed, 0):
            raise error(f"map: entry {key}")

    def get(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the value of `key`, None if there is none."""
        buffer = ctypes.create_string_buffer(self._value.size)
        if library().bpf_map_lookup_elem(self.fd, self._key.pack(*key), buffer):
            if ctypes.get_errno() != errno.ENOENT:
                raise error(f"map: entry {key}")
            return None
        return self._value.unpack(buffer.raw)

    def __getitem__(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __delitem__(self, key: tuple[Any, ...]) -> None:
        if library().bpf_map_delete_elem(self.fd, self._key.pack(*key)):
            raise KeyError(key)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Return every key."""
        key = None
        following = ctypes.create_string_buffer(self._key.size)
        while library().bpf_map_get_next_key(self.fd, key, following) == 0:
            key = following.raw
            yield self._key.unpack(key)
        if ctypes.get_errno() != errno.ENOENT:
            raise error("map: keys")

    def batch(self, count: int) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return every key and its value; entries that change meanwhile may be missing.

        Args:
            count: entries in each system call, more than a bucket of the map holds.

        Raises:
            BpfError: the kernel has no batches, or a bucket holds more.
        """
        keys, values = bytearray(count * self._key.size), bytearray(count * self._value.size)
        into = (
            (ctypes.c_char * len(keys)).from_buffer(keys),
            (ctypes.c_char * len(values)).from_buffer(values),
        )
        position = None
        following = ctypes.c_uint64()
        status = 0
        while status != -errno.ENOENT:
            number = ctypes.c_uint32(count)
            status = library().bpf_map_lookup_batch(
                self.fd, position, ctypes.byref(following), *into, ctypes.byref(number), None
            )
            if status not in (0, -errno.ENOENT):
                raise error("map: entries in batches")
            packed_keys = memoryview(keys)[: number.value * self._key.size]
            packed_values = memoryview(values)[: number.value * self._value.size]
            yield from zip(
                self._key.iter_unpack(packed_keys),
                self._value.iter_unpack(packed_values),
                strict=True,
            )
            position = ctypes.byref(following)


def new_ring(size_bytes: int) -> int:
    """Return the descriptor of a new ring buffer; a power of two, whole pages.

    Raises:
        BpfError: the kernel refused it.
    """
    size = max(size_bytes, mmap.PAGESIZE)
    fd: int = library().bpf_map_create(RING_BUFFER, b"ring", 0, 0, size, None)
    if fd < 0:
        raise error("ring buffer")
    return fd


class RingBuffer:
    """The only reader of a ring buffer, with the interface of a socket.

    libbpf maps its pages at the first read, because a mapping does not outlive the descriptors that
    a forked process closes.
    """

    def __init__(self, number: int, record: str) -> None:
        """Open the ring buffer with the id `number`; `record` is the format of its records.

        Raises:
            BpfError: there is none.
        """
        self._record = struct.Struct(record)
        self._records: list[tuple[Any, ...]] = []
        self._callback = _Reader(self._append)
        self._fd: int = library().bpf_map_get_fd_by_id(number)
        if self._fd < 0:
            raise error(f"ring buffer {number}")

    @cached_property
    def _ring(self) -> int:
        ring: int = library().ring_buffer__new(self._fd, self._callback, None, None)
        if not ring:
            raise error("ring buffer")
        return ring

    def _append(self, _: int, data: int, size: int) -> int:
        self._records.append(self._record.unpack_from(ctypes.string_at(data, size)))
        return 0

    def fileno(self) -> int:
        return self._fd

    def detach(self) -> int:
        """Return the descriptor; the caller closes it."""
        return self._fd

    def close(self) -> None:
        if ring := self.__dict__.pop("_ring", None):
            library().ring_buffer__free(ring)
        os.close(self._fd)

    def read(self) -> list[tuple[Any, ...]]:
        """Return the records that are complete, and free their room."""
        self._records = []
        library().ring_buffer__consume(self._ring)
        return self._records


class Maps(ABC):
    """Access to the maps of a program by name."""

    @abstractmethod
    def _map_fd(self, name: str) -> int:
        """Return the descriptor of a map; raise BpfError if there is none."""

    def map(self, name: str, key: str, value: str) -> Map:
        """Return the map `name`; the formats `key` and `value` must have the kernel's sizes."""
        fd = self._map_fd(name)
        info = _map_info(fd)
        keys, values = struct.Struct(key), struct.Struct(value)
        if (info.key_bytes, info.value_bytes) != (keys.size, values.size):
            raise ValueError(
                f"map {name}: key and value have {info.key_bytes, info.value_bytes} bytes, "
                f"not {keys.size, values.size}"
            )
        return Map(fd, keys, values)

    def entries(self, name: str) -> int:
        """Return the number of entries that the map `name` has room for."""
        return _map_info(self._map_fd(name)).entries


class Object(Closing, Maps):
    def __init__(
        self,
        path: Path,
        *,
        constants: bytes | None = None,
        entries: Mapping[str, int] | None = None,
    ) -> None:
        """Load `path`.

        Args:
            path: a compiled program.
            constants: its `const volatile` variables, laid out as in C.
            entries: number of entries by map, in place of the source's.

        Raises:
            NotCompiledError: it is missing or older than its sources.
            BpfError: with the messages of libbpf.
        """
        compiled.require(path)
        self._links: list[int] = []
        log = ctypes.create_string_buffer(LOG_BYTES)
        # a callback would lose a signal's exception, and the failure be taken for the kernel's
        with deferred_signals(), listening() as messages:
            self._object = library().bpf_object__open_file(os.fsencode(path), None)
            if not self._object:
                raise error(f"bpf {path.name}", messages)
            try:
                self._prepare(constants, entries or {})
                self._log_into(log)
                if library().bpf_object__load(self._object):
                    lines = log.value.decode(errors="replace").splitlines()
                    raise error(f"bpf {path.name}", [*lines, *messages])
            except BaseException:
                self.close()
                raise

    def _log_into(self, log: ctypes.Array[ctypes.c_char]) -> None:
        program = None
        while program := library().bpf_object__next_program(self._object, program):
            library().bpf_program__set_log_buf(program, log, len(log))

    def _prepare(self, constants: bytes | None, entries: Mapping[str, int]) -> None:
        for name, count in entries.items():
            if library().bpf_map__set_max_entries(self._map(name), count):
                raise error(f"map {name}: {count} entries")
        if constants is not None:
            rodata = self._map(".rodata")
            size = library().bpf_map__value_size(rodata)
            padded = constants.ljust(size, b"\0")
            if library().bpf_map__set_initial_value(rodata, padded, len(padded)):
                raise error(f"constants: expected {size} bytes, got {len(constants)}")

    def close(self) -> None:
        """Detach every program and unload the object."""
        for link in self._links:
            library().bpf_link__destroy(link)
        self._links.clear()
        if self._object:
            library().bpf_object__close(self._object)
            self._object = None

    def _map_fd(self, name: str) -> int:
        return int(library().bpf_map__fd(self._map(name)))

    def _map(self, name: str) -> int:
        handle: int | None = library().bpf_object__find_map_by_name(self._object, name.encode())
        if not handle:
            raise error(f"map {name}")
        return handle

    def _program(self, name: str) -> int:
        handle: int | None = library().bpf_object__find_program_by_name(self._object, name.encode())
        if not handle:
            raise error(f"program {name}")
        return handle

    def program_fd(self, name: str) -> int:
        """Return the descriptor of the program `name`, for a filter."""
        return int(library().bpf_program__fd(self._program(name)))

    def attach(self, name: str) -> None:
        """Attach the program `name` to the tracepoint of its section, until close()."""
        with listening() as messages:
            link = library().bpf_program__attach(self._program(name))
            if not link:
                raise error(f"attach {name}", messages)
        self._links.append(link)


class Attached(Maps):
    """The maps of a program that a filter runs, until close()."""

    def __init__(self, program_id: int) -> None:
        """Open the maps of the program; raise BpfError if it is gone."""
        self._fds: dict[str, int] = {}
        program_fd = library().bpf_prog_get_fd_by_id(program_id)
        if program_fd < 0:
            raise error(f"program {program_id}")
        ids = (ctypes.c_uint32 * MOST_MAPS)()
        request = bytearray(MAP_IDS + 8)
        struct.pack_into("=IQ", request, MAP_IDS - 4, MOST_MAPS, ctypes.addressof(ids))
        try:
            program_info = _information(program_fd, bytes(request), f"program {program_id}")
        finally:
            os.close(program_fd)
        for map_id in ids[: struct.unpack_from("=I", program_info, MAP_IDS - 4)[0]]:
            fd = library().bpf_map_get_fd_by_id(map_id)
            if fd < 0:
                raise error(f"map {map_id}")
            self._fds[_map_info(fd).name.rstrip(b"\0").decode()] = fd

    def _map_fd(self, name: str) -> int:
        if name not in self._fds:
            raise BpfError(2, f"no map {name} among {', '.join(self._fds)}")
        return self._fds[name]

    def close(self) -> None:
        """Close the maps."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


class MapInfo(NamedTuple):
    """The fields of struct bpf_map_info that MAP_INFO has."""

    kind: int
    number: int
    key_bytes: int
    value_bytes: int
    entries: int
    flags: int
    name: bytes


def _map_info(fd: int) -> MapInfo:
    return MapInfo(*MAP_INFO.unpack(_information(fd, bytes(MAP_INFO.size), "map")))


def _information(fd: int, request: bytes, what: str) -> bytes:
    """Return struct bpf_prog_info or bpf_map_info of a descriptor."""
    buffer = ctypes.create_string_buffer(request, len(request))
    size = ctypes.c_uint32(len(request))
    if library().bpf_obj_get_info_by_fd(fd, buffer, ctypes.byref(size)):
        raise error(what)
    return buffer.raw


def trivial_program(kind: int) -> int:
    """Load a program of type `kind` (BPF_PROG_TYPE_...) that does nothing; return its descriptor.

    Raises:
        BpfError: the kernel refused it.
    """
    # r0 = 0; exit
    instructions = struct.pack("=BBhi", 0xB7, 0, 0, 0) + struct.pack("=BBhi", 0x95, 0, 0, 0)
    fd: int = library().bpf_prog_load(kind, b"trivial", b"GPL", instructions, 2, None)
    if fd < 0:
        raise error(f"BPF program of type {kind}")
    return fd


def attach_raw(tracepoint: str, program_fd: int) -> int:
    """Attach a program to a raw tracepoint until the returned descriptor is closed.

    Raises:
        BpfError: there is no such tracepoint.
    """
    fd: int = library().bpf_raw_tracepoint_open(tracepoint.encode(), program_fd)
    if fd < 0:
        raise error(f"raw tracepoint {tracepoint}")
    return fd


def filter_message(
    device: Device,
    program_fd: int,
    name: str,
    *,
    hook: int = tc_filters.INGRESS_HOOK,
    priority: int,
) -> NetlinkMessage:
    """Return the change that attaches a program at `hook` of a device with clsact (tc.clsact)."""
    options = netlink.attribute(TCA_BPF_FD, struct.pack("=i", program_fd))
    options += netlink.text(TCA_BPF_NAME, name)
    options += netlink.u32(tc_filters.TCA_BPF_FLAGS, tc_filters.TCA_BPF_FLAG_ACT_DIRECT)
    words = f"direct-action  # program {name}"
    return tc_filters.filter_(device, hook, priority, "bpf", options, words)


def possible_cpus() -> int:
    """Return the number of possible processors; a per-CPU map has a value for each."""
    ranges = Path("/sys/devices/system/cpu/possible").read_text().strip().split(",")
    return 1 + int(ranges[-1].split("-")[-1])


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect libbpf's messages but for debugging, for one thread at a time."""
    messages: list[str] = []
    libc = ctypes.CDLL(None)

    def collect(level: int, form: bytes, arguments: int) -> int:
        if level <= INFORMATION:
            text = ctypes.c_char_p()
            if libc.vasprintf(ctypes.byref(text), form, ctypes.c_void_p(arguments)) >= 0:
                messages.extend((text.value or b"").decode(errors="replace").splitlines())
                libc.free(text)
        return 0

    printer = _Printer(collect)
    with _loading:
        library().libbpf_set_print(printer)
        try:
            yield messages
        finally:
            library().libbpf_set_print(_Printer())


def error(what: str, messages: Sequence[str] = ()) -> BpfError:
    """Return the error of the last call, with the messages of libbpf if there are any."""
    code = ctypes.get_errno()
    words = " | ".join(line.strip() for line in messages[-LAST_LINES:] if line.strip())
    failure = BpfError(code, f"{what}: {words or os.strerror(code)}")
    failure.log = [line.strip() for line in messages]
    return failure

"""Programs and libraries as they are loaded: without what only debuggers and linkers read.

Symbols, debug information and the digest of all of it name folders of the machine that compiled;
a program does the same without. See elf(5).
"""

import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_NOTE = struct.Struct("<III")
_LITTLE_64 = b"\x7fELF\x02\x01"
_LOAD, _NOTES = 1, 4
_BUILD_ID = 3


def loaded(data: bytes) -> bytes:
    """Return the file without its sections and with zeros for its build id.

    What is none of a 64-bit machine of this byte order, or damaged, is returned as it is.
    """
    if not data.startswith(_LITTLE_64):
        return data
    try:
        return _loaded(data)
    except struct.error:
        return data


def _loaded(data: bytes) -> bytes:
    head = list(_HEADER.unpack_from(data))
    place, size, count = head[5], head[9], head[10]
    segments = [_SEGMENT.unpack_from(data, place + number * size) for number in range(count)]
    ends = [segment[2] + segment[5] for segment in segments if segment[0] == _LOAD]
    if not ends or max(ends) > len(data):
        return data
    kept = bytearray(data[: max(*ends, place + count * size)])
    for kind, _, begin, _, _, length, _, align in segments:
        if kind == _NOTES:
            _clear_build_id(kept, begin, begin + length, max(align, 4))
    # e_shoff, e_shnum and e_shstrndx: there are no sections.
    head[6] = head[12] = head[13] = 0
    _HEADER.pack_into(kept, 0, *head)
    return bytes(kept)


def _clear_build_id(data: bytearray, place: int, end: int, align: int) -> None:
    while place < end:
        name, length, kind = _NOTE.unpack_from(data, place)
        begin = -(-(place + _NOTE.size + name) // align) * align
        if kind == _BUILD_ID and data[place + _NOTE.size :][:name] == b"GNU\0":
            data[begin : begin + length] = bytes(length)
        place = -(-(begin + length) // align) * align

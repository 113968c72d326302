"""Scripts that end before the clock is looked at for the first time: they are never interrupted, so they run without a stage.

Such a script has few instructions, no loop, defines no function, and gets what it calls from few globals: nothing that it calls runs
code in Lua, which could have a loop. Read from its compiled form, as `string.dump` returns it: Lua 5.1, of this machine.
"""

from __future__ import annotations

import struct

__all__ = ["is_short"]

MOST_INSTRUCTIONS = 100
"""As many as world.HOOK_FIRST."""
GLOBALS = frozenset({b"ARGV", b"KEYS", b"redis", b"tonumber", b"tostring", b"type"})

GET_GLOBAL, JUMP = 5, 22
ANY_TIME = frozenset({31, 32, 33, 36})  # FORLOOP, FORPREP, TFORLOOP, CLOSURE
OPERATION = 0x3F  # bits of an instruction
OPERAND_AT = 14
BACKWARD = 131071  # operands of jumps from here on lead forward
HEADER = struct.Struct("<4s8B")
KNOWN_HEADER = (b"\x1bLua", 0x51, 0, 1, 4, 8, 4, 8, 0)
SIZES = {0: 0, 1: 1, 3: 8}  # of constants, by their type: nil, a boolean, a number
STRING = 4


def is_short(dump: bytes) -> bool:
    """Whether the function ends soon. False for what cannot be read."""
    try:
        return HEADER.unpack_from(dump) == KNOWN_HEADER and _is_short(dump)
    except (IndexError, KeyError, struct.error):
        return False


def _is_short(dump: bytes) -> bool:
    at = HEADER.size
    at += 8 + _number(dump, at, 8) + 12  # its source, its lines, its parameters
    size = _number(dump, at, 4)
    if size > MOST_INSTRUCTIONS:
        return False
    code = struct.unpack_from(f"<{size}I", dump, at + 4)
    constants = _read_constants(dump, at + 4 + 4 * size)
    for instruction in code:
        operation, operand = instruction & OPERATION, instruction >> OPERAND_AT
        if operation in ANY_TIME:
            return False
        if operation == JUMP and operand < BACKWARD:
            return False
        if operation == GET_GLOBAL and constants[operand] not in GLOBALS:
            return False
    return True


def _read_constants(dump: bytes, at: int) -> list[bytes | None]:
    """The constants at a place; None for those that are not strings."""
    found: list[bytes | None] = []
    count = _number(dump, at, 4)
    at += 4
    for _ in range(count):
        kind = dump[at]
        at += 1
        if kind == STRING:
            size = _number(dump, at, 8)
            found.append(dump[at + 8 : at + 7 + size])  # without the zero at its end
            at += 8 + size
        else:
            found.append(None)
            at += SIZES[kind]
    return found


def _number(dump: bytes, at: int, size: int) -> int:
    if at + size > len(dump):
        raise IndexError
    return int.from_bytes(dump[at : at + size], "little")

"""Slots, nodes and ports in the arguments of CLUSTER subcommands."""

from __future__ import annotations

from ipaddress import ip_address

from streamd.core.args import integer
from streamd.errors import CommandError, NotIntegerError
from streamd.keyspace.hash_slot import SLOTS

__all__ = ["check_count", "find_number", "parse_address", "parse_slot", "parse_slot_ranges", "wrong_arguments"]

BAD_SLOT = "ERR Invalid or out of range slot"
LARGEST_PORT = 65_535
BUS_OFFSET = 10_000


def find_number(text: bytes) -> int | None:
    """An integer; None for any other word."""
    try:
        return integer(text)
    except NotIntegerError:
        return None


def parse_slot(text: bytes) -> int:
    """Raises CommandError."""
    slot = find_number(text)
    if slot is None or not 0 <= slot < SLOTS:
        raise CommandError(BAD_SLOT)
    return slot


def parse_slot_ranges(words: list[bytes]) -> list[tuple[int, int]]:
    """Pairs of first and last slots. Raises CommandError."""
    found = []
    for first_word, last_word in zip(words[::2], words[1::2], strict=True):
        first, last = parse_slot(first_word), parse_slot(last_word)
        if first > last:
            raise CommandError(f"ERR start slot number {first} is greater than end slot number {last}")
        found.append((first, last))
    return found


def parse_address(ip: bytes, port: bytes, bus_port: bytes | None) -> tuple[str, int, int]:
    """The address, the port and the port of the bus of a node. Raises CommandError."""
    number = find_number(port)
    if number is None:
        raise CommandError(f"ERR Invalid base port specified: {port.decode('latin-1')}")
    bus_number = number + BUS_OFFSET if bus_port is None else find_number(bus_port)
    if bus_number is None:
        raise CommandError(f"ERR Invalid bus port specified: {bus_port.decode('latin-1')}")  # type: ignore[union-attr]
    address = ip.decode("latin-1")
    try:
        literal = str(ip_address(address))
    except ValueError:
        literal = ""
    if not literal or not 0 < number <= LARGEST_PORT or not 0 < bus_number <= LARGEST_PORT:
        raise CommandError(f"ERR Invalid node address specified: {address}:{port.decode('latin-1')}")
    return literal, number, bus_number


def check_count(args: list[bytes], least: int, most: int) -> None:
    """Raise CommandError unless a subcommand has this number of arguments, its name included."""
    if not least <= len(args) <= most:
        raise wrong_arguments(args)


def wrong_arguments(args: list[bytes]) -> CommandError:
    """The error for a subcommand with the wrong number of arguments."""
    name = args[1].decode("latin-1")
    return CommandError(f"ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLUSTER HELP.")

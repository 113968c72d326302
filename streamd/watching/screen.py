"""The screen of `streamd top`: the board's tables in a terminal, refreshed every few seconds. Needs textual.

    1 ... 6, Tab    another table             < >  sort by the column before, or behind     r    the other way round
    Enter           look into what is below   /    filter                                   Esc  back
    Space           stop refreshing, go on                                                  q    leave

Looks are taken in a thread, so that the screen answers while a server is slow; only one at a time speaks to the server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from streamd.errors import StreamdError
from streamd.printable import in_one_line
from streamd.watching.board import Board
from streamd.watching.tables import TABLES, Column, Row, Table, shown_rows

__all__ = ["Top"]

MOST_ROWS = 500
SHORTEST_NAME = 12
PADDING, SCROLLBAR = 2, 2
"""Columns of the screen that textual adds: to each of a table, and beside it."""
SHOWN_AT_ONCE = ("groups", "streams", "consumers", "commands", "slow", "nodes")
"""The tables that a key shows; `pending` is that of a group."""


@dataclass(frozen=True)
class View:
    """What is shown.

    table   its name
    stream  only what belongs to this stream; empty: all
    group   and to this group
    """

    table: str
    stream: str = ""
    group: str = ""


class Entry(ModalScreen[None]):
    """The fields of an entry."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "Back")]
    CSS = """
    Entry { align: center middle; }
    Entry > VerticalScroll { width: 80%; height: auto; max-height: 80%; border: round $accent; padding: 0 1; }
    """

    def __init__(self, head: str, fields: Sequence[tuple[str, str]] | None) -> None:
        super().__init__()
        self._head, self._fields = head, fields

    def compose(self) -> ComposeResult:
        text = Text(self._head, style="bold")
        for name, value in self._fields or ():
            text.append(f"\n{name}  ", style="bold")
            text.append(value, style="not bold")
        if self._fields is None:
            text.append("\nThe entry is no longer in the stream.", style="not bold")
        with VerticalScroll():
            yield Static(text)


class Top(App[None]):
    """The program. `connect` makes a board, and is called again when its connection has broken."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head, #state { text-wrap: nowrap; text-overflow: ellipsis; padding: 0 1; }
    #head { height: 2; }
    #state { height: 1; color: $text-muted; }
    DataTable { height: 1fr; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #filter.is-open { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(at), f"open('{name}')", name.capitalize()) for at, name in enumerate(SHOWN_AT_ONCE, 1)),
        Binding("tab", "next_table", "Next", show=False, priority=True),
        # The most needed first: 80 columns have no room for all.
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("less_than_sign", "sort(-1)", "Sort", key_display="< >"),
        Binding("greater_than_sign", "sort(1)", "Sort", show=False),
        Binding("r", "turn", "Reverse"),
        Binding("escape", "back", "Back"),
        Binding("space", "pause", "Pause"),
    ]

    def __init__(
        self,
        connect: Callable[[], Board],
        *,
        interval_s: float,
        table: str = "groups",
        sort: str = "",
        wanted: str = "",
    ) -> None:
        super().__init__()
        self._connect = connect
        self._interval_s = interval_s
        self._board: Board | None = None
        self._speaking = threading.Lock()
        self._views = [View(table)]
        self._sort, self._is_reversed, self._wanted = sort, False, wanted
        self._is_paused = False
        self._trouble = ""
        self._pending: list[Row] = []
        self._rows: list[Row] = []
        self._shown: Table | None = None

    def compose(self) -> ComposeResult:
        yield Static("", id="head", markup=False)
        yield Static("looking ...", id="state", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Input(placeholder="show only what contains", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).focus()
        self.set_interval(self._interval_s, self._tick)
        self._look()

    # --- Looking -----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self._is_paused:
            self._look()

    def _look(self) -> None:
        """Look in a thread, unless one is still looking."""
        self.run_worker(self._refresh, thread=True, exit_on_error=True)

    def _refresh(self) -> None:
        if not self._speaking.acquire(blocking=False):
            return
        try:
            if self._board is None:
                self._board = self._connect()
            self._board.refresh()
            self._read_pending(self._board)
            self._trouble = ""
        except StreamdError as error:
            self._lose(error)
        finally:
            self._speaking.release()
        self.call_from_thread(self._show)

    def _lose(self, error: StreamdError) -> None:
        """The connection is broken; the next look makes another."""
        self._trouble = in_one_line(str(error))
        if self._board is not None:
            self._board.reader.close()
            self._board = None

    def _read_pending(self, board: Board) -> None:
        if self._view.table == "pending":
            self._pending = board.pending(self._view.stream, self._view.group)

    # --- Showing -----------------------------------------------------------------------------------------------------

    @property
    def _view(self) -> View:
        return self._views[-1]

    @property
    def _table(self) -> Table:
        return TABLES[self._view.table]

    def _show(self) -> None:
        """Show the last look; what is on the screen stays there while there is no connection."""
        board = self._board
        if board is not None and board.looks:
            self.query_one("#head", Static).update("\n".join(board.headlines()))
            self._fill(board)
        self.query_one("#state", Static).update(self._state())

    def _state(self) -> str:
        view = self._view
        place = "".join(f", {what} {name}" for what, name in (("stream", view.stream), ("group", view.group)) if name)
        column = self._table.column(self._sort) or self._table.column(self._table.sort)
        assert column is not None  # noqa: S101
        parts = [
            f"{view.table}{place}: {len(self._rows)}",
            f"by {column.title}{', reversed' if self._is_reversed else ''}",
            *([f"with '{self._wanted}'"] if self._wanted else []),
            *(["paused"] if self._is_paused else []),
            *([self._trouble] if self._trouble else []),
        ]
        return " | ".join(parts)

    def _fill(self, board: Board) -> None:
        view, table = self._view, self._table
        rows = (
            self._pending if view.table == "pending" else [row for row in board.rows(view.table) if belongs(row, view)]
        )
        widget = self.query_one(DataTable)
        chosen = self._chosen()
        chosen_id = table.id_of(chosen) if chosen is not None else None
        self._rows = shown_rows(table, rows, sort=self._sort, is_reversed=self._is_reversed, wanted=self._wanted)
        self._shown = table
        widget.clear(columns=True)
        shown = self._rows[:MOST_ROWS]
        # A width that is given is right at once; one that textual finds is a frame late.
        wanted = [max(len(each.title) + 2, *(cell_len(each.show(row)) for row in shown), 1) for each in table.columns]
        widths = fitting(wanted, [each.is_text for each in table.columns], self.size.width)
        for column, width in zip(table.columns, widths, strict=True):
            mark = " *" if column.name == (self._sort or table.sort) else ""
            widget.add_column(aligned(column, column.title + mark), key=column.name, width=width)
        for row in shown:
            cells = zip(table.columns, widths, strict=True)
            widget.add_row(*(aligned(column, shortened(column.show(row), width)) for column, width in cells))
        places = {table.id_of(row): at for at, row in enumerate(shown)}
        if chosen_id in places:
            widget.move_cursor(row=places[chosen_id], animate=False)

    def _chosen(self) -> Row | None:
        """The row under the cursor; None if it is not one of the present table."""
        at = self.query_one(DataTable).cursor_row
        return self._rows[at] if self._shown is self._table and 0 <= at < len(self._rows) else None

    # --- Keys --------------------------------------------------------------------------------------------------------

    def _go(self, views: list[View]) -> None:
        self._views = views
        self._sort, self._is_reversed = "", False
        self._pending = []
        self._show()
        if self._view.table == "pending":
            self._look()

    def action_open(self, table: str) -> None:
        self._go([View(table)])

    def action_next_table(self) -> None:
        names = [*SHOWN_AT_ONCE]
        at = names.index(self._view.table) if self._view.table in names else -1
        self._go([View(names[(at + 1) % len(names)])])

    async def action_back(self) -> None:
        if self._wanted or self.query_one("#filter").has_class("is-open"):
            self._close_filter("")
        elif len(self._views) > 1:
            self._go(self._views[:-1])

    def action_sort(self, step: int) -> None:
        names = [column.name for column in self._table.columns]
        self._sort = names[(names.index(self._sort or self._table.sort) + step) % len(names)]
        self._show()

    def action_turn(self) -> None:
        self._is_reversed = not self._is_reversed
        self._show()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._show()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.add_class("is-open")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._wanted = event.value
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close_filter(event.value)

    def _close_filter(self, wanted: str) -> None:
        self._wanted = wanted
        field = self.query_one("#filter", Input)
        field.value = wanted
        field.remove_class("is-open")
        self.query_one(DataTable).focus()
        self._show()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter: the groups of a stream, the pending entries of a group or a consumer, the fields of an entry."""
        row = self._chosen()
        if row is None:
            return
        view = self._view
        if view.table == "streams":
            self._go([*self._views, View("groups", row["stream"])])
        elif view.table in ("groups", "consumers"):
            self._go([*self._views, View("pending", row["stream"], row["group"])])
        elif view.table == "pending":
            self.run_worker(lambda: self._open_entry(view, row["id"]), thread=True)

    def _open_entry(self, view: View, entry_id: str) -> None:
        with self._speaking:
            if self._board is None:
                return
            try:
                fields = self._board.entry(view.stream, view.group, entry_id)
            except StreamdError as error:
                self._lose(error)
                self.call_from_thread(self._show)
                return
        self.call_from_thread(self.push_screen, Entry(in_one_line(f"{view.stream}  {entry_id}"), fields))


def fitting(widths: Sequence[int], are_names: Sequence[bool], room: int) -> list[int]:
    """Widths of columns: those of names are made smaller, the widest first, until all columns fit, or none is wider than
    SHORTEST_NAME."""
    found = list(widths)
    while sum(found) + PADDING * len(found) + SCROLLBAR > room:
        name_widths = [width for width, is_name in zip(found, are_names, strict=True) if is_name]
        widest = max(name_widths, default=0)
        if widest <= SHORTEST_NAME:
            break
        found[found.index(widest)] -= 1
    return found


def shortened(text: str, width: int) -> str:
    """Text that fits; what is left out is in its middle, since names differ at their ends."""
    if cell_len(text) <= width:
        return text
    half = (width - 1) // 2
    return f"{text[: width - 1 - half]}…{text[-half:]}"


def aligned(column: Column, text: str) -> Text:
    return Text(text, justify="left" if column.is_text else "right")


def belongs(row: Row, view: View) -> bool:
    return (not view.stream or row.get("stream") == view.stream) and (not view.group or row.get("group") == view.group)

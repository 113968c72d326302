"""The target as a replica of the source, for a time: settings, progress, promotion.

    begin()    the target's settings are set, and REPLICAOF starts
    state()    how far it is
    end()      REPLICAOF NO ONE, and the settings are as before; may be called at any time, and again

`find_obstacle` says beforehand why a source does not let anyone replicate it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.place import Place
from streamd.importing.peers import ImportFailedError, Peer, keys_of, version_of

__all__ = ["Replica", "State", "find_obstacle"]

SKIP = "rdb-skip-unsupported"
MAX_FAILED_SYNCS = 3
SILENT_S = 30.0
"""How long the source may not show a replica at all."""
FAILING_S = 8.0
"""How long a target may say that it cannot follow: time for a second attempt, of which it makes one in five seconds."""
PROMOTION_S = 3600.0
"""How long a target that loads a snapshot is waited for: it cannot be promoted meanwhile."""
BETWEEN_ATTEMPTS_S = 0.1


@dataclass(frozen=True)
class State:
    """How far a target is.

    step        `connecting`, `receiving` the snapshot, `loading` it, or `linked`: the changes since are applied as they come
    keys        in the target; while connecting and receiving those that it held before
    received    bytes from the source so far
    done, size  bytes of the step, receiving or loading; a size of 0 is not known
    offset      bytes of the source's stream of replication that are applied
    history     the replication ID of that stream, when linked
    reason      why the link is down, where the target says it
    """

    step: str
    keys: int
    received: int
    done: int = 0
    size: int = 0
    offset: int = 0
    history: str = ""
    reason: str = ""


class Replica:
    """A target while it follows its source.

    ended       what `end` has done, for the user
    address       host and port of the source as the target sees it
    skip          the target leaves out what it does not support
    was_linked    it has had the source's data
    has_replaced  it has begun to load a snapshot in place of what it held
    """

    ended = "The target is a primary again, with its settings as they were"

    def __init__(self, source: Peer, target: Peer, address: tuple[str, int], *, skip: bool) -> None:
        self.source = source
        self.target = target
        self.address = address
        self.was_linked = False
        self.has_replaced = False
        self._has_begun = False
        self._skip = skip
        self._restore: dict[str, bytes] = {}  # settings that were changed, and what they were
        self._received_before = 0
        self._received = 0
        self._syncs_before = 0
        self._replicas_before = 0
        self._seen_at = time.monotonic()  # when something was last heard of the replication
        self._failing_since: float | None = None  # since when the target says why it cannot follow

    # --- Settings ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start. Raises ImportFailedError; then `end` is still to be called."""
        before = self.target.info()
        self._received_before = int(before.get("total_net_repl_input_bytes", 0))
        fields = self.source.info()
        self._syncs_before = int(fields.get("sync_full", 0))
        self._replicas_before = int(fields.get("connected_slaves", 0))
        login: Place = self.source.place
        self._set("masteruser", login.username or "" if login.password is not None else "")
        self._set("masterauth", login.password or "")
        self._set("tls-replication", "yes" if login.is_tls else "no")
        if self._skip:
            self._set(SKIP, "yes")
        self._has_begun = True
        host, port = self.address
        try:
            self.target.call("REPLICAOF", host, port)
        except ServerError as error:
            raise ImportFailedError(f"{self.target} refuses REPLICAOF: {error}") from None
        self._seen_at = time.monotonic()

    def _set(self, name: str, value: str) -> None:
        """Change a setting of the target, and remember what it was; one that it does not have is passed over."""
        try:
            found = self.target.call("CONFIG", "GET", name)
            if not found:
                if value == "yes" and name != SKIP:
                    raise ImportFailedError(f"{self.target} has no setting {name}")
                return
            if found[1] != value.encode():
                self.target.call("CONFIG", "SET", name, value)
                self._restore[name] = found[1]
        except ServerError as error:
            raise ImportFailedError(f"{self.target} refuses to set {name}: {error}") from None

    def end(self) -> None:
        """Make the target a primary with the settings that it had.

        Raises ImportFailedError, which tells what is left to be done by hand.
        """
        try:
            if self._has_begun:
                self._promote()
                self._has_begun = False
            for name, value in list(self._restore.items()):
                self.target.call("CONFIG", "SET", name, value)
                del self._restore[name]
        except (ImportFailedError, ServerError) as error:
            left = ["REPLICAOF NO ONE"] if self._has_begun else []
            left += [f"CONFIG SET {name}" for name in self._restore]
            raise ImportFailedError(f"{error}; still to be done on the target: {', '.join(left)}") from None

    def _promote(self) -> None:
        """REPLICAOF NO ONE, as soon as it is accepted: not while a snapshot is loaded."""
        deadline = time.monotonic() + PROMOTION_S
        while True:
            try:
                self.target.call("REPLICAOF", "NO", "ONE")
                return
            except ServerError as error:
                if not str(error).startswith("LOADING") or time.monotonic() > deadline:
                    raise
            time.sleep(BETWEEN_ATTEMPTS_S)

    def keys(self) -> int:
        return sum(keys_of(self.target.info()).values())

    def last_offset(self) -> int:
        """The offset of the source's last change that the target has; after `end`."""
        return int(self.target.info()["second_repl_offset"]) - 1

    def is_whole_since(self, moment: float) -> bool:
        """Whether, at some time after `moment`, the target had everything up to its offset. Each `state` asks it."""
        return True

    # --- Progress ------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """How far it is. Raises ImportFailedError when it cannot succeed any more."""
        fields = self.target.info()
        if fields["role"] != "slave":
            raise ImportFailedError(f"{self.target} was made a primary by somebody else")
        in_all = int(fields.get("total_net_repl_input_bytes", 0)) - self._received_before
        read = int(fields.get("master_sync_read_bytes", 0))
        self._received = max(self._received, in_all, read)
        keys = sum(keys_of(fields).values())
        if fields.get("loading") == "1" or fields.get("async_loading") == "1":
            self._seen_at = time.monotonic()
            self.has_replaced = True
            done, size = int(fields.get("loading_loaded_bytes", 0)), int(fields.get("loading_total_bytes", 0))
            return State("loading", keys, self._received, done, size)
        if fields["master_link_status"] == "up":
            self.was_linked = True
            offset, history = int(fields["slave_repl_offset"]), fields["master_replid"]
            return State("linked", keys, self._received, offset=offset, history=history)
        if fields.get("master_sync_in_progress") == "1":
            self._seen_at = time.monotonic()
            return State("receiving", keys, self._received, read, max(0, int(fields.get("master_sync_total_bytes", 0))))
        if not self.was_linked:
            self._check_that_it_can_succeed(fields)
        offset, reason = int(fields["slave_repl_offset"]), fields.get("master_link_down_reason", "")
        return State("connecting", keys, self._received, offset=offset, reason=reason)

    def _check_that_it_can_succeed(self, target: dict[str, str]) -> None:
        if reason := target.get("master_link_down_reason"):
            self._failing_since = self._failing_since or time.monotonic()
            if time.monotonic() > self._failing_since + FAILING_S:
                raise ImportFailedError(f"{self.target} cannot follow the source: {reason.rstrip('.')}")
        source = self.source.info()
        if int(source.get("sync_full", 0)) - self._syncs_before > MAX_FAILED_SYNCS:
            raise ImportFailedError(
                f"{self.target}, which speaks Redis {target['redis_version']}, does not accept the snapshot of the source, "
                f"which speaks Redis {source['redis_version']}; its log says why"
            )
        if int(source.get("connected_slaves", 0)) > self._replicas_before:
            self._seen_at = time.monotonic()
        elif time.monotonic() > self._seen_at + SILENT_S:
            host, port = self.address
            raise ImportFailedError(
                f"{self.target} does not get through to the source at {host}:{port}; its log says why. If it sees the source "
                "at another address: --source-address"
            )


# --- What a source allows --------------------------------------------------------------------------------------------------


def find_obstacle(source: Peer, info: dict[str, str]) -> str | None:
    """Why nobody may replicate the source with this login; None when it is allowed, or cannot be known.

    PSYNC is asked for an offset that is no number, which it refuses before it does anything. It did not before Redis 7.0,
    where only REPLCONF and the table of commands are asked.
    """
    asked: list[tuple[str, ...]] = [("REPLCONF", "capa", "psync2")]
    if version_of(info) >= (7, 0):
        asked.append(("PSYNC", "?", "none"))
    else:
        known = source.ask([("COMMAND", "INFO", "psync")])[0]
        if known == [None]:
            return "it has no command PSYNC"
    probe = Peer(source.role, source.place)  # a server may close a connection that asks for this
    try:
        for words in asked:
            reply = probe.send([words]).read()
            if isinstance(reply, ServerError) and str(reply).startswith("NOPERM"):
                return f"this user may not use {words[0]}"
            if isinstance(reply, ServerError) and "unknown command" in str(reply):
                return f"it has no command {words[0]}"
    except UnreachableError:
        return None
    finally:
        probe.close()
    return None

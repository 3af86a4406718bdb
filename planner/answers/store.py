"""Where a sweep keeps its results: an SQLite file that survives kill -9 and that several processes share.

Each plan is one row. A process claims rows in a transaction before it works on them, so that no two do the
same work, and stores each result in a transaction of its own as soon as it is there. A claim holds while the
process lives; rows claimed by one that died are free again. Whether it lives can only be told on its own
machine, and SQLite locks files of that machine only: one store is for the processes of one machine (several
machines: `--cluster`).

Disks turn bits. Every result and every claim carries a digest: a result that does not fit its own is
simulated again, a claim that does not fit is void, and rows that are not those of the sweep are refused.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import planner
from planner.errors import BadInput, PlannerError

VERSION = 2
BUSY_S = 60.0
LOOKED_AT = 3  # results of another version of planner that are simulated again before the rest is believed
SCHEMA = """
CREATE TABLE IF NOT EXISTS sweep (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER, fingerprint TEXT);
CREATE TABLE IF NOT EXISTS plans (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, owner TEXT, result TEXT, tries INTEGER DEFAULT 0
);
"""
AFRESH = "name another --store, or remove it to start afresh"
OF_THE_FILE = ("malformed", "not a database", "no such", "corrupt", "constraint", "ambiguous")  # by SQLite
ADDED = {"sweep": "made_by", "plans": "digest"}  # by table, a column that version 1 lacks
Agrees = Callable[[Mapping[int, str]], bool]  # whether results of plans, by number, are what we would find


class StoreFailed(PlannerError):
    """The store could not be written: the disk is full, or gone."""


class Store:
    """The rows of one sweep. Not for several threads: each result passes through the one that opened it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.owner = _identity(os.getpid())
        try:
            # Transactions are written out below, so that one is never open without our knowing.
            self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        try:
            self._db.text_factory = lambda data: data.decode("utf-8", "replace")  # digests tell what is wrong
            self._share()
            self._db.execute(
                "PRAGMA synchronous = NORMAL"
            )  # kill -9 loses nothing; a power cut the last rows
            with self._transaction():
                for statement in SCHEMA.split(";"):
                    self._db.execute(statement)
                for table, column in ADDED.items():
                    known = [row[1] for row in self._db.execute(f"PRAGMA table_info({table})")]
                    if column not in known:
                        self._db.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT")
        except sqlite3.Error as error:
            self._db.close()
            raise self._unusable(error) from error
        except PlannerError:
            self._db.close()
            raise

    def _unusable(self, error: sqlite3.Error) -> BadInput:
        return BadInput(f"cannot use {self.path} as the store of a sweep: {error}; name another file")

    def _share(self) -> None:
        """Let readers and a writer not wait for each other. Only the first to open a store changes it, and
        SQLite does not wait for a lock then: another may be opening it too."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def close(self) -> None:
        self._db.close()

    def prepare(
        self, keys: Sequence[str], fingerprint: str, agrees: Agrees = lambda results: not results
    ) -> None:
        """Lay out the rows, or check that the store holds this very sweep. What another version of planner
        has stored is believed if it `agrees` with what this one finds."""
        other = (
            f"{self.path} holds another sweep (other keys, another catalogue or another version of planner)"
        )
        with self._transaction():
            known = self._db.execute("SELECT version, fingerprint, made_by FROM sweep").fetchone()
            if known is None:
                made = (VERSION, fingerprint, planner.__version__)
                self._db.execute("INSERT INTO sweep VALUES (1, ?, ?, ?)", made)
                self._db.executemany("INSERT INTO plans (number, key) VALUES (?, ?)", enumerate(keys))
                return
            version, found, made_by = known
            if version not in (1, VERSION) or (version == VERSION and found != fingerprint):
                raise BadInput(f"{other}; {AFRESH}")
            rows = [key for (key,) in self._db.execute("SELECT key FROM plans ORDER BY number")]
            if keys and rows != list(keys):
                raise BadInput(f"{other if version == 1 else f'{self.path} is damaged'}; {AFRESH}")
            if version == VERSION:
                self._free_damaged()
        if version == VERSION and made_by == planner.__version__:
            return
        if not agrees(dict(list(self.results().items())[:LOOKED_AT])):
            raise BadInput(f"{other}; {AFRESH}")
        self._adopt(fingerprint, version)

    def _free_damaged(self) -> None:
        """Results that do not fit their digests are to be found again."""
        rows = self._db.execute("SELECT number, key, result, digest FROM plans WHERE result IS NOT NULL")
        wrong = [number for number, key, result, digest in rows if digest != _digest(key, result)]
        self._db.executemany(
            "UPDATE plans SET result = NULL, owner = NULL WHERE number = ?", [(number,) for number in wrong]
        )

    def _adopt(self, fingerprint: str, version: int) -> None:
        """Make the store of another version one of ours. Version 1 had neither digests nor claims of ours."""
        with self._transaction():
            if version == 1:
                rows = self._db.execute("SELECT number, key, result FROM plans WHERE result IS NOT NULL")
                digests = [(_digest(key, result), number) for number, key, result in rows]
                self._db.executemany("UPDATE plans SET digest = ? WHERE number = ?", digests)
                self._db.execute("UPDATE plans SET owner = NULL WHERE result IS NULL")
            made = (VERSION, fingerprint, planner.__version__)
            self._db.execute("UPDATE sweep SET version = ?, fingerprint = ?, made_by = ?", made)

    def add(self, keys: Sequence[str]) -> list[int]:
        """The numbers of these plans, which get a row where they have none."""
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO plans (key) VALUES (?)", [(key,) for key in keys])
            rows = [
                self._db.execute("SELECT number FROM plans WHERE key = ?", (key,)).fetchone() for key in keys
            ]
        return [number for (number,) in rows]

    def claim(self, most: int, among: Sequence[int] = ()) -> list[int]:
        """Up to `most` plans that nobody has done nor works on, in order; they are ours from now on. `among`
        names the only ones wanted."""
        wanted = f"AND number IN ({','.join(map(str, among))})" if among else ""
        with self._transaction():
            owners = {
                owner
                for (owner,) in self._db.execute(
                    "SELECT DISTINCT owner FROM plans WHERE result IS NULL AND owner IS NOT NULL"
                )
            }
            for owner in owners:
                if owner != self.owner and not _lives(owner):
                    self._db.execute(
                        "UPDATE plans SET owner = NULL WHERE result IS NULL AND owner = ?", (owner,)
                    )
            free = self._db.execute(
                f"SELECT number FROM plans WHERE result IS NULL AND owner IS NULL {wanted} "
                "ORDER BY number LIMIT ?",
                (most,),
            ).fetchall()
            self._db.executemany(
                "UPDATE plans SET owner = ?, tries = tries + 1 WHERE number = ?",
                [(self.owner, number) for (number,) in free],
            )
        return [number for (number,) in free]

    def finish(self, number: int, result: str) -> None:
        """Keep the result of a plan; the first one stays, should there be two."""
        with self._transaction():
            (key,) = self._db.execute("SELECT key FROM plans WHERE number = ?", (number,)).fetchone()
            self._db.execute(
                "UPDATE plans SET result = ?, digest = ? WHERE number = ? AND result IS NULL",
                (result, _digest(key, result), number),
            )

    def release(self) -> None:
        """Give back what is claimed and not done."""
        with self._transaction():
            self._db.execute(
                "UPDATE plans SET owner = NULL WHERE owner = ? AND result IS NULL", (self.owner,)
            )

    def results(self, among: Sequence[int] = ()) -> dict[int, str]:
        """The results so far, by the number of the plan; of all, or of those named."""
        wanted = f"AND number IN ({','.join(map(str, among))})" if among else ""
        with self._said():
            rows = self._db.execute(
                f"SELECT number, result FROM plans WHERE result IS NOT NULL {wanted} ORDER BY number"
            )
            return dict(rows.fetchall())

    def counts(self, among: Sequence[int] = ()) -> tuple[int, int]:
        """How many plans are done, and how many there are; of all, or of those named."""
        wanted = f"WHERE number IN ({','.join(map(str, among))})" if among else ""
        with self._said():
            done, total = self._db.execute(f"SELECT COUNT(result), COUNT(*) FROM plans {wanted}").fetchone()
        return int(done), int(total)

    def tries(self) -> list[int]:
        """How often each plan was begun."""
        return [tries for (tries,) in self._db.execute("SELECT tries FROM plans ORDER BY number")]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise StoreFailed(f"cannot write to {self.path}: {error}; is it a sweep's store?") from error
        try:
            with self._said():
                yield
                self._db.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise

    @contextmanager
    def _said(self) -> Iterator[None]:
        """An error of SQLite as a sentence of ours: of the disk, or of what is on it."""
        try:
            yield
        except sqlite3.Error as error:
            if any(word in str(error) for word in OF_THE_FILE):
                raise BadInput(f"{self.path} is damaged ({error}); {AFRESH}") from error
            raise StoreFailed(
                f"cannot write to {self.path}: {error}; what was stored before is safe, run again to go on"
            ) from error

    def _rollback(self) -> None:
        with suppress(sqlite3.Error):  # of a full disk: what is wrong is said already
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")


def _digest(*words: str) -> str:
    return hashlib.blake2b("\n".join(words).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _identity(pid: int) -> str:
    """A process of a machine; with its start, as process numbers come again, and a digest of both."""
    who = f"{socket.gethostname()}/{pid}/{_started(pid)}"
    return f"{who}/{_digest(who)}"


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:  # no such file system, or no such process
        return ""


def _lives(owner: str) -> bool:
    """Whether the process that claimed lives; of another machine's we cannot tell, and believe it does."""
    who, _, digest = owner.rpartition("/")
    if digest != _digest(who):  # nobody's
        return False
    host, number, started = who.rsplit("/", 2)
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not started or started == _started(int(number))

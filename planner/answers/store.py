"""The store of a sweep: an SQLite file that survives kill -9 and is shared by processes of one machine.

Each plan is one row. A process claims rows in a transaction before it simulates them and stores each result
in a transaction of its own. Claims of dead processes are void; whether a process is alive can only be
checked on its own machine, so one store serves one machine (several machines: `--cluster`).

Every result and claim carries a digest: damaged results are simulated again, damaged claims are void, and
rows of another sweep are refused.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

import planner
from planner.errors import BadInput, Infeasible, PlannerError
from planner.parallel.plan import Plan
from planner.search.cases import Cases
from planner.search.simulations import Rung, Simulations, slot_count
from planner.simulator.statistics import Prediction

VERSION = 2
BUSY_S = 60.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS sweep (
    one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER, fingerprint TEXT, made_by TEXT
);
CREATE TABLE IF NOT EXISTS plans (
    number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, owner TEXT, result TEXT, tries INTEGER DEFAULT 0,
    digest TEXT
);
"""
AFRESH = "name another --store, or remove it to start afresh"
OF_THE_FILE = ("malformed", "not a database", "no such", "corrupt", "constraint", "ambiguous")  # by SQLite
LOOK_S = 0.2  # how often to look whether others have finished, once nothing is left to claim
REFUSALS = (BadInput, Infeasible)  # what a plan itself cannot do
LOST = (MemoryError, OSError, BrokenExecutor)  # what the machine could not
Submit = Callable[[], Future[Prediction]]


class StoreFailed(PlannerError):
    """The store cannot be written, for example because the disk is full."""


class Store:
    """Results of a sweep in SQLite, one row per plan.

    Not thread-safe: use it in the thread that opened it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.owner = _process_identity(os.getpid())
        try:
            # Transactions are written out below, so that one is never open without our knowing.
            self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
            try:
                self._create_tables()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.Error as error:
            message = f"cannot use {self.path} as the store of a sweep: {error}; name another file"
            raise BadInput(message) from error

    def _create_tables(self) -> None:
        """Creates the tables, in a journal mode for several writers.

        kill -9 loses nothing; a power cut the last rows.
        """
        self._db.text_factory = lambda data: data.decode("utf-8", "replace")  # digests tell what is wrong
        self._enable_wal()
        self._db.execute("PRAGMA synchronous = NORMAL")
        with self._transaction():
            for statement in SCHEMA.split(";"):
                self._db.execute(statement)

    def _enable_wal(self) -> None:
        """Switches to write-ahead logging, and retries since SQLite does not wait for that lock itself."""
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
        """Closes the database."""
        self._db.close()

    def prepare(self, keys: Sequence[str], fingerprint: str) -> None:
        """Inserts the rows, or checks that the store holds this sweep of this version of planner."""
        asked = (VERSION, fingerprint, planner.__version__)
        with self._transaction():
            known = self._db.execute("SELECT version, fingerprint, made_by FROM sweep").fetchone()
            if known is None:
                self._db.execute("INSERT INTO sweep VALUES (1, ?, ?, ?)", asked)
                self._db.executemany("INSERT INTO plans (number, key) VALUES (?, ?)", enumerate(keys))
                return
            if known != asked:
                raise BadInput(
                    f"{self.path} holds another sweep (other keys, another catalog or another version of "
                    f"planner); {AFRESH}"
                )
            rows = [key for (key,) in self._db.execute("SELECT key FROM plans ORDER BY number")]
            if keys and rows != list(keys):
                raise BadInput(f"{self.path} is damaged; {AFRESH}")
            self._delete_damaged_results()

    def _delete_damaged_results(self) -> None:
        """Deletes results that do not match their digests."""
        rows = self._db.execute("SELECT number, key, result, digest FROM plans WHERE result IS NOT NULL")
        wrong = [number for number, key, result, digest in rows if digest != _digest(key, result)]
        self._db.executemany(
            "UPDATE plans SET result = NULL, owner = NULL WHERE number = ?", [(number,) for number in wrong]
        )

    def add(self, keys: Sequence[str]) -> list[int]:
        """Inserts missing plans and returns the row numbers of all."""
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO plans (key) VALUES (?)", [(key,) for key in keys])
            rows = [
                self._db.execute("SELECT number FROM plans WHERE key = ?", (key,)).fetchone() for key in keys
            ]
        return [number for (number,) in rows]

    def claim(self, limit: int, among: Sequence[int] = ()) -> list[int]:
        """Claims up to `limit` pending plans and returns their row numbers; `among` restricts the rows."""
        wanted = f"AND number IN ({','.join(map(str, among))})" if among else ""
        with self._transaction():
            owners = {
                owner
                for (owner,) in self._db.execute(
                    "SELECT DISTINCT owner FROM plans WHERE result IS NULL AND owner IS NOT NULL"
                )
            }
            for owner in owners:
                if owner != self.owner and not _is_alive(owner):
                    self._db.execute(
                        "UPDATE plans SET owner = NULL WHERE result IS NULL AND owner = ?", (owner,)
                    )
            free = self._db.execute(
                f"SELECT number FROM plans WHERE result IS NULL AND owner IS NULL {wanted} "
                "ORDER BY number LIMIT ?",
                (limit,),
            ).fetchall()
            self._db.executemany(
                "UPDATE plans SET owner = ?, tries = tries + 1 WHERE number = ?",
                [(self.owner, number) for (number,) in free],
            )
        return [number for (number,) in free]

    def finish(self, number: int, result: str) -> None:
        """Stores a plan's result unless it already has one."""
        with self._transaction():
            (key,) = self._db.execute("SELECT key FROM plans WHERE number = ?", (number,)).fetchone()
            self._db.execute(
                "UPDATE plans SET result = ?, digest = ? WHERE number = ? AND result IS NULL",
                (result, _digest(key, result), number),
            )

    def release(self) -> None:
        """Gives up the claims on plans without a result."""
        with self._transaction():
            self._db.execute(
                "UPDATE plans SET owner = NULL WHERE owner = ? AND result IS NULL", (self.owner,)
            )

    def results(self, among: Sequence[int] = ()) -> dict[int, str]:
        """Results as JSON by row number; `among` restricts the rows."""
        wanted = f"AND number IN ({','.join(map(str, among))})" if among else ""
        with self._sqlite_errors():
            rows = self._db.execute(
                f"SELECT number, result FROM plans WHERE result IS NOT NULL {wanted} ORDER BY number"
            )
            return dict(rows.fetchall())

    def counts(self, among: Sequence[int] = ()) -> tuple[int, int]:
        """Number of finished plans and of all plans; `among` restricts the rows."""
        wanted = f"WHERE number IN ({','.join(map(str, among))})" if among else ""
        with self._sqlite_errors():
            done, total = self._db.execute(f"SELECT COUNT(result), COUNT(*) FROM plans {wanted}").fetchone()
        return int(done), int(total)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Context of one write transaction, rolled back after an error."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise StoreFailed(f"cannot write to {self.path}: {error}; is it a sweep's store?") from error
        try:
            with self._sqlite_errors():
                yield
                self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # of a full disk: the error is reported already
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _sqlite_errors(self) -> Iterator[None]:
        """Translates SQLite errors into one line about the disk or the file."""
        try:
            yield
        except sqlite3.Error as error:
            if any(word in str(error) for word in OF_THE_FILE):
                raise BadInput(f"{self.path} is damaged ({error}); {AFRESH}") from error
            raise StoreFailed(
                f"cannot write to {self.path}: {error}; what was stored before is safe, run again to go on"
            ) from error


def _digest(*words: str) -> str:
    """Short hexadecimal digest of texts."""
    return hashlib.blake2b("\n".join(words).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _process_identity(pid: int) -> str:
    """Text that identifies a process: host, process number, start time and their digest."""
    who = f"{socket.gethostname()}/{pid}/{_start_time(pid)}"
    return f"{who}/{_digest(who)}"


def _start_time(pid: int) -> str:
    """Start time of a process in clock ticks, on Linux; empty string if unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:  # no such file system, or no such process
        return ""


def _is_alive(owner: str) -> bool:
    """Whether a claiming process is alive; assumed true on other machines."""
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
    return not started or started == _start_time(int(number))


def run_pending(
    store: Store,
    tasks: Mapping[int, Submit],
    executor: Executor,
    *,
    among: Sequence[int] = (),
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """Claims, simulates and stores plans until all (or those in `among`) have results."""
    most, flying = 2 * slot_count(executor), dict[Future[Prediction], int]()
    store.release()  # what an earlier attempt of this process could not give back
    try:
        while True:
            for number in store.claim(most - len(flying), among) if len(flying) < most else ():
                try:
                    flying[tasks[number]()] = number
                except REFUSALS as error:  # no schedule, no profile: the same in every attempt
                    store.finish(number, encode_result(error))
            done, total = store.counts(among)
            progress(done, total)
            if done == total:
                return
            if not flying:
                time.sleep(LOOK_S)  # other processes have the rest; if one dies, its plans are ours
                continue
            for future in wait(flying, timeout=1.0, return_when=FIRST_COMPLETED).done:
                store.finish(flying.pop(future), _encode_outcome(future))
    finally:
        for future in flying:
            future.cancel()
        with suppress(StoreFailed):  # which said so already; the next to come frees what is ours
            store.release()


def _encode_outcome(future: Future[Prediction]) -> str:
    """A simulation's prediction or refusal as JSON. Failures of the machine are raised and retried later."""
    try:
        return encode_result(future.result())
    except REFUSALS as error:
        return encode_result(error)
    except Exception as error:
        if isinstance(error, LOST) or type(error).__module__.startswith("distributed"):
            cause = f"{type(error).__name__} {error}".strip()
            raise PlannerError(
                f"the machine lost a simulation ({cause}); what is done is stored, run again to go on"
            ) from error
        raise


def encode_result(result: Prediction | PlannerError) -> str:
    """Encodes a prediction or refusal as JSON."""
    if isinstance(result, PlannerError):
        return msgspec.json.encode({"refused": str(result)}).decode()
    return msgspec.json.encode({"prediction": result.record()}).decode()


def decode_result(text: str) -> Prediction | str:
    """Decodes a stored result into a prediction, or the text of a refusal."""
    stored = msgspec.json.decode(text)
    return str(stored["refused"]) if "refused" in stored else Prediction.from_record(stored["prediction"])


class StoredSimulations(Simulations):
    """Simulations backed by a store, so that a repeated optuna study resumes where it was killed."""

    def __init__(self, cases: Cases, executor: Executor, store: Store) -> None:
        super().__init__(cases, executor)
        self.store = store

    def predict_all(self, plans: Iterable[Plan], rung: Rung = "long") -> list[Prediction]:
        """Predictions of plans: stored ones, and new simulations for the others."""
        plans = list(plans)
        if not plans:
            return []
        numbers = self.store.add([plan.key for plan in plans])
        tasks = {number: partial(self.submit, plan) for number, plan in zip(numbers, plans, strict=True)}
        run_pending(self.store, tasks, self.executor, among=numbers)
        results = self.store.results(numbers)
        predictions = [decode_result(results[number]) for number in numbers]
        for prediction in predictions:
            if isinstance(prediction, str):
                raise BadInput(prediction)
        return [prediction for prediction in predictions if isinstance(prediction, Prediction)]

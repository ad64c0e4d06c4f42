"""Open the database. All pragmas are set here."""

from __future__ import annotations

import errno
import math
import os
import resource
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

FILES_OF_A_DATABASE = 5  # Database, log, index and journal, and the folder while it is written.
FULL_BELOW_BYTES = 128 * 1024  # the write-ahead index grows by 32 KiB


class StoreError(Exception):
    pass


class StoreMissing(StoreError):
    pass


class StoreNotReadable(StoreError):
    pass


class NotAStore(StoreError):
    pass


class StoreNeedsMigration(StoreError):
    pass


class StoreTooNew(StoreError):
    pass


class StoreBusy(StoreError):
    pass


class StoreFull(StoreError):
    pass


class StoreMoved(StoreError):
    pass


class StoreReadOnly(StoreNotReadable):
    pass


class StoreRefused(StoreError):
    pass


def explain(error: sqlite3.Error | UnicodeDecodeError, path: str) -> StoreError:
    """Convert an sqlite3 error by its result code, without SQLite's own message.

    sqlite3 raises UnicodeDecodeError if SQLite quotes a damaged schema.
    """
    # sqlite3 names the codes only from Python 3.11 on; the numbers are SQLite's own and never
    # change.
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    text = str(error)
    damaged = isinstance(error, UnicodeDecodeError) or "Could not decode to UTF-8" in text
    if primary == 26 or "not a database" in text:
        return NotAStore(
            f"{path} is not a CompileBoard database: it is another kind of file, or its "
            "beginning is damaged. Give "
            "another --db FILE, or restore a backup."
        )
    if primary in (5, 6) or "locked" in text:
        return StoreBusy(
            f"{path} is locked by another program. Try again when that program is done."
        )
    if (
        primary == 13
        or "is full" in text
        or (primary == 10 and measure_room(path) < FULL_BELOW_BYTES)
    ):
        if _measure_room_in_files(path) < FULL_BELOW_BYTES:
            return StoreFull(
                f"{path} has the size that a file may have here (ulimit -f). Raise that; what "
                "was recorded is kept."
            )
        return StoreFull(
            f"The disk that holds {path} is full. Free some space; what was recorded is kept."
        )
    if primary == 8 or "readonly" in text or (primary == 14 and _is_read_only(path)):
        return StoreReadOnly(
            f"{path} cannot be written: the file, its folder or the disk is read-only for this "
            "user. Check their "
            "permissions and how the disk is mounted; reading goes on."
        )
    if damaged or primary == 11 or "malformed" in text:
        return damaged_store_error(path)
    if primary == 10 or "disk I/O" in text:
        return StoreNotReadable(
            f"{path} cannot be read or written: the disk, or the connection to it, fails. Look "
            "at the system's log, "
            "and put the database on a local disk."
        )
    if primary == 14 or "unable to open" in text:
        if not _has_descriptors():
            return StoreBusy(
                f"{path} cannot be opened: no more files may be open here (ulimit -n). Raise that."
            )
        return StoreNotReadable(
            f"{path} cannot be opened. Check that its folder exists and may be written."
        )
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StoreRefused(
        f"{path}: the database refused a value or a statement ({name}); nothing of it was "
        "stored. That is a fault of "
        "CompileBoard: please report it with what led to it."
    )


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Raise errors of sqlite3 in the block as StoreError."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise explain(error, path) from error


def _has_descriptors() -> bool:
    try:
        open_count = len(os.listdir("/proc/self/fd"))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return open_count + FILES_OF_A_DATABASE <= resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def damaged_store_error(path: str) -> StoreNotReadable:
    """Return a message that a database is damaged, and what to do."""
    return StoreNotReadable(
        f"{path} is damaged. `compileboard verify --db {path}` lists what is wrong. Restore a "
        "backup, or record into "
        "a new --db FILE; `sqlite3 FILE .recover` may save some of it."
    )


def _is_read_only(path: str) -> bool:
    return os.path.exists(path) and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK)


def measure_room(path: str) -> float:
    """Return by how many bytes a database can grow, on its disk and under `ulimit -f`; inf if
    unknown.

    SQLite reports a WAL or index that cannot grow as an I/O error.
    """
    with suppress(OSError):
        free_bytes = shutil.disk_usage(os.path.dirname(os.path.realpath(path))).free
        return min(free_bytes, _measure_room_in_files(path))
    return math.inf


def _measure_room_in_files(path: str) -> float:
    max_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if max_bytes == resource.RLIM_INFINITY:
        return math.inf
    files = [path, f"{path}-wal"]
    return max_bytes - max(os.path.getsize(file) if os.path.exists(file) else 0 for file in files)


NEEDED = {"sqlite_utils": "sqlite-utils", "zstandard": "zstandard"}  # In the collector's extra.


def may_pass(error: Exception) -> bool:
    """Return whether an error is temporary: a lock, a full disk, a missing package."""
    if isinstance(error, StoreError):
        refused = (
            sqlite3.DataError,
            sqlite3.IntegrityError,
            sqlite3.InterfaceError,
            sqlite3.ProgrammingError,
        )
        return not isinstance(error, NotAStore) and not isinstance(error.__cause__, refused)
    return isinstance(error, (OSError, ImportError, MemoryError, sqlite3.OperationalError))


def describe_error(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name in NEEDED:
        return (
            f"{NEEDED[error.name]} is not installed; pip install 'compileboard[collector]' "
            "brings what is needed here"
        )
    words = " ".join(str(error).split())  # one line, whatever a path or another's exception holds
    is_told = words and isinstance(error, (StoreError, OSError, ValueError))
    return words if is_told else f"{type(error).__name__}: {words}".removesuffix(": ")


SCHEME = "clickhouse://"
BOARD = "board.db"
EXPECTED = (
    "clickhouse://[USER@]HOST[:PORT]/DATABASE?folder=/DIR or, in this process, clickhouse:///DIR"
)

_addresses: dict[str, str] = {}  # what this process was given, by the board that it found


class AddressError(StoreError):
    pass


def is_address(text: str) -> bool:
    if text.startswith(SCHEME):
        return True
    if text.lower().startswith("clickhouse:"):
        raise AddressError(f"--db {text[:200]!r}: expected {EXPECTED}")
    return False


def read_folder(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise AddressError(f"--db: {error}; expected {EXPECTED}") from None
    folder = parse_qs(parts.query).get("folder", [""])[-1]
    if not folder and not parts.hostname:
        folder = unquote(parts.path)
    if not os.path.isabs(folder) or folder == "/":
        raise AddressError(
            f"--db: an address of ClickHouse names an absolute folder; expected {EXPECTED}"
        )
    return folder


def find_board(text: str) -> str:
    """Return the database to write into, for a file or address.

    Raises AddressError if it is invalid or its folder is not on this machine.
    """
    if not is_address(text):
        return text
    folder = read_folder(text)
    if not os.path.isdir(folder):
        raise AddressError(
            f"--db: the folder {folder} is not on this machine. Send to its dashboard with "
            "--server URL, or make it "
            "with `compileboard migrate --db ADDRESS`"
        )
    board = os.path.join(folder, BOARD)
    _addresses[board] = text
    return board


def find_address(board: str) -> str:
    return _addresses.get(board, board)


APPLICATION_ID = 0x43424F47  # "CBOG": tells our files from other people's SQLite files
# Of builds before 0.2.0.
UNRELEASED_APPLICATION_IDS = (0x43425244, *range(0x43424F41, APPLICATION_ID))
DATABASE_VERSION = 1
BUSY_TIMEOUT_MS = 5_000
SYNCHRONOUS = "full"  # nearly free at 100 rows a transaction or more
CHECKPOINT_BUSY_TIMEOUT_MS = 100  # longer blocks the writer for as long as a reader reads


def open_writer(
    path: str | os.PathLike[str], *, busy_timeout_ms: int = BUSY_TIMEOUT_MS, create: bool = True
) -> sqlite3.Connection:
    """Open a database for writing; with `create`, a missing file is created.

    Raises StoreError if it cannot be written, is not ours or is newer; StoreMissing.
    """
    name = os.fspath(path)
    if not create and not os.path.exists(name):
        raise StoreMissing(describe_missing(name))
    _check_file(name)
    if os.path.basename(name) == ":memory:":
        raise NotAStore(
            f"{name} is SQLite's name for a database without a file, which keeps nothing; give "
            "--db FILE."
        )
    # With a mode, so that SQLite makes none where it went away since.
    uri = name if create else f"{Path(name).absolute().as_uri()}?mode=rw"
    with explained(name):
        connection = sqlite3.connect(
            uri, uri=not create, timeout=busy_timeout_ms / 1000, isolation_level=None
        )
    with _closed_on_error(connection, name):
        connection.execute("pragma foreign_keys = on")
        _check_version(connection, name, allow_older=True, allow_empty=True)
        _use_wal(connection, busy_timeout_ms)
        connection.execute(f"pragma synchronous = {SYNCHRONOUS}")
        connection.execute(
            "pragma wal_autocheckpoint = 0"
        )  # checkpoint() does it, with a short patience
    return connection


@contextmanager
def _closed_on_error(connection: sqlite3.Connection, name: str) -> Iterator[None]:
    try:
        connection.row_factory = sqlite3.Row
        with explained(name):
            yield
    except BaseException:
        connection.close()
        raise


def _check_file(name: str) -> None:
    if os.path.exists(name) and not os.path.isfile(name):
        if os.path.isfile(os.path.join(name, BOARD)):
            raise NotAStore(
                f"{name} is a folder beside ClickHouse; give its address: --db {EXPECTED}."
            )
        kind = "a folder" if os.path.isdir(name) else "a device or a pipe"
        raise NotAStore(f"{name} is {kind}; --db expects a file.")


def _use_wal(connection: sqlite3.Connection, busy_timeout_ms: int) -> None:
    """Enable WAL.

    SQLite does not wait here while another connection is about to write, because both would
    deadlock.
    """
    deadline_s = time.monotonic() + busy_timeout_ms / 1000
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= deadline_s:
                raise
        time.sleep(0.01)


def open_reader(path: str | os.PathLike[str], *, allow_older: bool = False) -> sqlite3.Connection:
    """Open an existing database read-only; an older version only with `allow_older`.

    Raises StoreMissing, NotAStore, StoreNeedsMigration, StoreTooNew or another StoreError.
    """
    name = os.fspath(path)
    if not os.path.exists(name):
        raise StoreMissing(describe_missing(name))
    _check_file(name)
    with explained(name):
        connection = _open_read_only(name)
    with _closed_on_error(connection, name):
        connection.execute("pragma query_only = on")
        connection.execute("pragma mmap_size = 268435456")
        _check_version(connection, name, allow_older=allow_older)
    return connection


def describe_missing(name: str) -> str:
    folder = os.path.dirname(os.path.abspath(name))
    if not name or not os.path.isdir(folder):
        return (
            f"There is no database at {name!r}: "
            f"{f'there is no folder {folder}' if name else 'expected a path'}."
        )
    return f"There is no database at {name}. `compileboard migrate --db {name}` makes an empty one."


def describe_foreign_file(name: str, application_id: int) -> str:
    if application_id in UNRELEASED_APPLICATION_IDS:
        return (
            f"{name} was made by an unreleased build of CompileBoard, before 0.2.0; it cannot "
            "be migrated. "
            "Import its logs and result files into a new database with `compileboard-collect "
            "import`, "
            "or record its programs again."
        )
    return (
        f"{name} is an SQLite database of another program, not CompileBoard's. Give another file."
    )


def _open_read_only(name: str) -> sqlite3.Connection:
    """Open a database read-only, even on a read-only or full disk, where WAL's side files cannot be
    created.
    """
    uri = Path(name).absolute().as_uri()
    connection = sqlite3.connect(
        f"{uri}?mode=ro",
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("select count(*) from sqlite_schema")
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        if not _can_be_immutable(error, name):
            raise
        return open_immutable(name)


def open_immutable(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Open a file that is never written, without WAL side files or a version check."""
    uri = f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection


def attach_reader(connection: sqlite3.Connection, name: str, schema: str) -> None:
    uri = Path(name).absolute().as_uri()
    try:
        connection.execute(f"attach ? as {schema}", (f"{uri}?mode=ro",))
        connection.execute(f"select count(*) from {schema}.sqlite_schema")  # noqa: S608 - our own name
    except sqlite3.OperationalError as error:
        if not _can_be_immutable(error, name):
            raise
        if any(row[1] == schema for row in connection.execute("pragma database_list")):
            connection.execute(f"detach {schema}")
        connection.execute(f"attach ? as {schema}", (f"{uri}?mode=ro&immutable=1",))


def _can_be_immutable(error: sqlite3.OperationalError, name: str) -> bool:
    is_writable = os.access(os.path.dirname(os.path.abspath(name)), os.W_OK)
    return not ((is_writable and not isinstance(explain(error, name), StoreFull)) or _has_log(name))


def _has_log(name: str) -> bool:
    try:
        return os.path.getsize(f"{name}-wal") > 0
    except OSError:
        return False


def _check_version(
    connection: sqlite3.Connection, name: str, *, allow_older: bool, allow_empty: bool = False
) -> None:
    application_id = read_value(connection, "pragma application_id")
    version = read_value(connection, "pragma user_version")
    empty = read_value(connection, "select count(*) from sqlite_schema") == 0
    if application_id != APPLICATION_ID and not empty:
        raise NotAStore(describe_foreign_file(name, application_id))
    if empty and not allow_empty:
        raise StoreNeedsMigration(
            f"{name} is empty. Restore a backup, or run `compileboard migrate --db {name}` to "
            "make a new database."
        )
    if version > DATABASE_VERSION:
        raise StoreTooNew(
            f"{name} has database version {version}; this CompileBoard knows versions up to "
            f"{DATABASE_VERSION}. "
            "Upgrade CompileBoard."
        )
    if version < DATABASE_VERSION and not allow_older:
        raise StoreNeedsMigration(
            f"{name} has database version {version}; this CompileBoard needs {DATABASE_VERSION}. "
            f"Run `compileboard migrate --db {name}`."
        )


def check_pages(connection: sqlite3.Connection, name: str) -> None:
    """Read every page of a database, which takes 0.9 s of CPU per GB.

    Raises StoreNotReadable if a page is damaged.
    """
    with explained(name):
        is_whole = read_value(connection, "pragma quick_check(1)") == "ok"
    if not is_whole:
        raise damaged_store_error(name)


def read_value(connection: sqlite3.Connection, query: str, values: Any = ()) -> Any:
    """Return the first column of a query's first row, None if there is no row."""
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def has_row(connection: sqlite3.Connection, query: str, values: Any = ()) -> bool:
    return connection.execute(query, values).fetchone() is not None


class PartFailed(Exception):
    """A part of a transaction failed and all of it was rolled back. The parts may be retried
    separately.
    """


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Begin a write transaction immediately, because deferred ones often fail while others write.

    A nested one joins the outer one without a savepoint, which would cost as much as a commit.
    Raises PartFailed in a nested transaction, StoreTooNew if the database was migrated since it was
    opened.
    """
    if connection.in_transaction:
        try:
            yield connection
        except Exception as error:
            raise PartFailed from error
        return
    connection.execute("begin immediate")
    try:
        version = read_value(connection, "pragma user_version")
        if version > DATABASE_VERSION:
            name = connection.execute("pragma database_list").fetchone()[2]
            raise StoreTooNew(
                f"{name} was migrated to database version {version} while this program had it "
                "open, which knows "
                f"versions up to {DATABASE_VERSION}. Start it again with the CompileBoard that "
                "migrated it."
            )
        yield connection
        connection.execute("commit")
    except BaseException:
        if (
            connection.in_transaction
        ):  # SQLite rolls back by itself where a full disk stops a statement
            connection.execute("rollback")
        raise


def write(connection: sqlite3.Connection, statement: str, values: Any = ()) -> int:
    """Execute a statement in a write transaction; return how many rows it changed."""
    with write_transaction(connection):
        return connection.execute(statement, values).rowcount


def checkpoint(connection: sqlite3.Connection) -> None:
    before_ms = read_value(connection, "pragma busy_timeout")
    connection.execute(f"pragma busy_timeout = {min(before_ms, CHECKPOINT_BUSY_TIMEOUT_MS)}")
    try:
        connection.execute(
            "pragma wal_checkpoint(passive)"
        )  # truncate keeps writers out while it copies what is left
        connection.execute("pragma wal_checkpoint(truncate)")
    finally:
        connection.execute(f"pragma busy_timeout = {before_ms}")


def set_cache(connection: sqlite3.Connection, size_kib: int) -> None:
    """Set the page cache in KiB; SQLite's default is 2,000."""
    connection.execute(f"pragma cache_size = {-int(size_kib)}")


def set_busy_timeout(connection: sqlite3.Connection, busy_timeout_ms: int) -> None:
    connection.execute(f"pragma busy_timeout = {int(busy_timeout_ms)}")

"""Another program that writes to the server's database for a while, such as a backup tool."""

from __future__ import annotations

import sqlite3

import psutil
import trio


async def hold_lock(process: int, seconds: float, *, task_status: trio.TaskStatus[None]) -> None:
    """Hold the write lock of a server's database for `seconds`; start as soon as it is held.

    Args:
        process: Process id of the server.
    """
    files = (file.path for file in psutil.Process(process).open_files())
    path = next((file for file in files if file.endswith(".db")), None)
    if path is None:  # the server stores nothing
        task_status.started()
        return
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        await _lock(connection)
        task_status.started()
        await trio.sleep(seconds)
    finally:
        connection.close()


async def _lock(connection: sqlite3.Connection) -> None:
    """Take the lock once others, such as another step of this attack, have given it back."""
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
        await trio.sleep(0.05)

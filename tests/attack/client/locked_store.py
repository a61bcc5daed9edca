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
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        task_status.started()
        await trio.sleep(seconds)
    finally:
        connection.close()

"""Programs run for their output, or used at a terminal as a person uses them."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

LONGEST = 400
"""Time limit of a program, in seconds."""


def run(command, folder, environment):
    """Run a program without a terminal; return its exit status and output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LONGEST,
        text=True,
    )
    return done.returncode, done.stdout


def converse(command, folder, environment, invitation, prompt, answered):
    """Type a prompt into a program at a terminal, and end the program once that is answered.

    Args:
        invitation: Text that the program shows when it can be typed to.
        answered: Function that returns True after the answer.

    Returns:
        What it has shown.
    """
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
    )
    os.close(inner)
    shown = b""

    def read_until(done):
        nonlocal shown
        deadline = time.monotonic() + LONGEST
        while not done() and time.monotonic() < deadline and process.poll() is None:
            if select.select([outer], [], [], 0.2)[0]:
                shown += os.read(outer, 65536)

    def in_seconds(number):
        end = time.monotonic() + number
        return lambda: time.monotonic() > end

    try:
        read_until(lambda: invitation.encode() in shown)
        read_until(in_seconds(3))  # it draws the conversation so far
        os.write(outer, prompt.encode())
        read_until(in_seconds(2))  # else it takes all for a pasted text
        os.write(outer, b"\r")
        read_until(answered)
        read_until(in_seconds(2))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(LONGEST)
        os.close(outer)
    return shown.decode("utf-8", "replace")


def end_daemons(words):
    """End the processes of some words in their command lines: what a client has left behind."""
    listed = subprocess.run(
        ("ps", "-axww", "-o", "pid=,command="), capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        number, _, command = line.strip().partition(" ")
        if all(word in command for word in words):
            os.kill(int(number), signal.SIGTERM)

"""Measurement of a model's memory between its load and its unload."""

from __future__ import annotations

import gc

import mlx.core as mx

from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.resources.residence import Residence

MEGABYTE = 1 << 20


def observe(residence: Residence, nbytes: int) -> None:
    """Observe a step that takes some bytes and gives them back."""
    mx.eval(mx.zeros(nbytes, mx.uint8))
    residence.observe_step()


def test_what_a_step_takes_beyond_the_charges_is_its_working_space() -> None:
    gc.collect()  # or arrays of earlier tests might be freed within
    account = MemoryAccount()
    residence = Residence(account)
    residence.begin(Share(account))
    observe(residence, 1)
    observe(residence, 20 * MEGABYTE)
    observe(residence, 3 * MEGABYTE)
    assert residence.working is not None
    assert 20 * MEGABYTE <= residence.working < 21 * MEGABYTE


def test_arrays_that_others_hold_are_no_working_space() -> None:
    account = MemoryAccount()
    residence = Residence(account)
    residence.begin(Share(account))
    held = mx.zeros(50 * MEGABYTE, mx.uint8)
    mx.eval(held)
    observe(residence, 1)
    observe(residence, 2 * MEGABYTE)
    assert residence.working is not None
    assert residence.working < 3 * MEGABYTE
    assert held.nbytes == 50 * MEGABYTE

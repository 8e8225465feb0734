"""Barriers of subgroups that run different code, and so arrive at different times."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.interpret.clocks import Clocks, threads_of
from tilewright.interpret.coroutines import Coroutines, Wait
from tilewright.interpret.lanes import Site


class Barrier:
    """One barrier of each group of `Clocks`, at which the subgroups ``members`` meet.

    It counts how often each arrived, and holds what those who arrived know. Two barriers in turn
    are enough: none arrives at the next but one before all have passed this one.
    """

    def __init__(self, clocks: Clocks, members: range, name: str) -> None:
        self._clocks, self._members, self._name = clocks, members, name
        groups = len(clocks.knowledge)
        self._arrivals = np.zeros((groups, len(members)), np.int64)
        self._told = np.zeros((2, groups, 2, clocks.agents), np.int64)

    def meet(self, subgroup: int, groups: Any, coroutines: Coroutines, site: Site) -> None:
        """``subgroup`` of ``groups`` (1-D) arrives, and waits for the others."""
        clocks, member = self._clocks, self._members.index(subgroup)
        turn = self._arrivals[groups, member] % 2
        for thread in threads_of(subgroup):
            told = clocks.told(groups, thread)
            self._told[turn, groups] = np.maximum(self._told[turn, groups], told)
        self._arrivals[groups, member] += 1
        count = self._arrivals[groups, member].copy()
        coroutines.wait(
            Wait(
                lambda: bool((self._arrivals[groups].min(axis=1) >= count).all()),
                lambda: f"{clocks.name(subgroup)} waits at {self._name}",
                site,
            )
        )
        for thread in threads_of(subgroup):
            clocks.learn(groups, thread, self._told[turn, groups])

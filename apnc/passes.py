"""The two kinds of pass. Every engine runs any Fold or Map; no formula knows which engine runs it.

A pass is described by what it needs (a model, settings) and is rebuilt from that in every task. Its state is a
dict of *parts*: each part, under its own key, is a dict of arrays and JSON values that `apnc.blocks.pack` can
carry. Parts of one key are merged wherever they meet (thread, combiner, reducer, driver), in any grouping.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from apnc.blocks import Block

State = dict[str, dict]


class Fold(ABC):
    """A pass that reads blocks and yields one small result."""

    stage: str  # the name of the pass in progress, run.json and error messages
    reads = "rows"  # or "embedding": which dataset of the run it goes over
    finish_in_reducer = False  # True: all parts meet in one reducer, which finishes and ships the result

    @abstractmethod
    def rows_per_block(self) -> int:
        """Return the largest number of rows a block may have for this pass's memory bound."""

    @abstractmethod
    def accumulate(self, state: State, block: Block) -> None:
        """Add a block to the state, in place. A fresh state is an empty dict."""

    @abstractmethod
    def merge(self, key: str, a: dict, b: dict) -> dict:
        """Return the part that stands for both; may reuse ``a``'s arrays."""

    def seal(self, part: dict) -> dict:
        """Return the part in the form that is shipped: arrays, CSR matrices and JSON values."""
        return part

    def unseal(self, sealed: dict) -> dict:
        """Return the part that was shipped as ``sealed``."""
        return sealed

    @abstractmethod
    def finish(self, state: State):
        """Return the result from the merged parts; ``state`` is empty when no block was read."""


class Map(ABC):
    """A pass that turns each block into another block, or into labels, without exchange."""

    stage: str
    reads = "rows"

    @abstractmethod
    def rows_per_block(self) -> int:
        """Return the largest number of rows a block may have for this pass's memory bound."""

    @abstractmethod
    def apply(self, block: Block) -> Block:
        """Return the block that stands for this one."""


def merge_states(fold: Fold, total: State, other: State) -> State:
    """Add the parts of ``other`` to ``total`` and return it."""
    for key, part in other.items():
        total[key] = fold.merge(key, total[key], part) if key in total else part
    return total

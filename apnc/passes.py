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


class Several(Fold):
    """Several Folds of one stage over one dataset, which share a pass and nothing else.

    Engines let the members take turns over stretches of blocks, so that a task holds the state of one at a time.

    Parameters
    ----------
    members : list of Fold
    """

    def __init__(self, members: list[Fold]):
        self.members = members
        self.stage, self.reads = members[0].stage, members[0].reads

    def to_dict(self) -> dict:
        """Return what `fold_from_dict` needs."""
        out: dict = {"members": len(self.members)}
        for i, member in enumerate(self.members):
            out |= {f"{i}.{name}": value for name, value in member.to_dict().items()}
        return out

    def rows_per_block(self):
        return min(member.rows_per_block() for member in self.members)

    def accumulate(self, state, block):
        for i, own in enumerate(self.states(state)):
            self.members[i].accumulate(own, block)
            state |= self.keyed(i, own)

    def merge(self, key, a, b):
        number, _, key = key.partition(":")
        return self.members[int(number)].merge(key, a, b)

    def finish(self, state: State) -> list:
        """Return the results of the members."""
        return [member.finish(own) for member, own in zip(self.members, self.states(state), strict=True)]

    @staticmethod
    def keyed(i: int, state: State) -> State:
        """Return the state of member ``i`` under the keys it has in the state of all."""
        return {f"{i}:{key}": part for key, part in state.items()}

    def states(self, state: State) -> list[State]:
        """Return the states of the members."""
        states: list[State] = [{} for _ in self.members]
        for key, part in state.items():
            number, _, own = key.partition(":")
            states[int(number)][own] = part
        return states


def fold_from_dict(d: dict, member) -> Fold:
    """Return the Fold that ``to_dict`` described: one that ``member`` makes, or `Several` of them."""
    if "members" not in d:
        return member(d)
    parts: list[dict] = [{} for _ in range(d["members"])]
    for name, value in d.items():
        number, dot, own = name.partition(".")
        if dot and number.isdecimal():
            parts[int(number)][own] = value
    return Several([member(part) for part in parts])


def merge_states(fold: Fold, total: State, other: State) -> State:
    """Add the parts of ``other`` to ``total`` and return it."""
    for key, part in other.items():
        total[key] = fold.merge(key, total[key], part) if key in total else part
    return total

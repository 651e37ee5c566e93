"""Engines run passes. The mathematics is in the passes; an engine only brings blocks to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from apnc.blocks import Block
from apnc.passes import Fold, Map


class Engine(ABC):
    """Runs Folds and Maps over one input and over its embedding.

    Attributes
    ----------
    embedded : bool
        Whether a whole embedding is there already, from an earlier process.
    keeps_labels : bool
        Whether labels can stay where they are made (``keep_labels``).
    """

    embedded = False
    keeps_labels = False

    def run(self, step: Fold | Map, listener):
        """Return a Fold's result; for the embedding Map, keep its blocks as the run's embedding."""
        return self.fold(step, listener) if isinstance(step, Fold) else self.embed(step, listener)

    @abstractmethod
    def fold(self, fold: Fold, listener):
        """Return ``fold.finish`` of all blocks of what the fold reads."""

    @abstractmethod
    def embed(self, embed: Map, listener) -> None:
        """Apply the map to all rows and keep the blocks, to be read by passes over the embedding."""

    def embedded_by(self, embed: Map) -> None:
        """Be told which map has made the embedding that is there, should it have to be made again."""

    @abstractmethod
    def labels(self, step: Map, listener) -> Iterator[Block]:
        """Yield the blocks of an assigning Map (cluster, distance), in input order."""

    def report(self) -> dict:
        """Return what the engine adds to run.json."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Give back temporary files."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

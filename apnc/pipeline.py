"""The loop over passes: a method yields its next pass from what the run has so far, an engine runs it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from apnc.convergence import advance
from apnc.embed import EmbedMap
from apnc.embeddings import make_method
from apnc.model import Model
from apnc.sampling import EVERYTHING, Sample, SampleFold, hash_threshold
from apnc.settings import Settings


class Listener:
    """What may be told about a run while it goes on. This one tells nobody."""

    def stage(self, name: str, detail: str = "") -> None:
        """A pass begins."""

    def rows(self, done: int) -> None:
        """So many rows of the pass have been read."""

    def finished(self, run: Run, stage: str) -> None:
        """A pass is over and its result is in the run."""

    def application(self, name: str) -> None:
        """The pass runs on a cluster, as this application."""

    def percent(self, mapped: int, reduced: int) -> None:
        """So much of the pass is done, as a cluster counts it."""

    def told(self, message: str) -> None:
        """Something happened that a person should know of."""


@dataclass
class Run:
    """A clustering under way: settings, and what the passes so far have made.

    Attributes
    ----------
    settings : Settings
    estimated_rows : int
        Of the input, on the low side; decides how many rows the sample pass forwards.
    width : int or None
        Number of features where it is known before the first pass.
    sample : Sample or None
        None also where the coefficients were made without bringing the sample home.
    model : Model or None
    embedded : bool
    seconds : dict
        Wall time per stage, summed over passes.
    """

    settings: Settings
    estimated_rows: int
    width: int | None = None
    sample: Sample | None = None
    model: Model | None = None
    embedded: bool = False
    threshold: int = 0
    seconds: dict = field(default_factory=dict)

    def __post_init__(self):
        self.settings.check_memory(self.estimated_rows, self.width)
        wanted = self.settings.sample_rows(self.width)
        self.threshold = self.threshold or int(hash_threshold(wanted, self.estimated_rows))

    def next_pass(self):
        """Return the next pass, or None when the model is finished."""
        return make_method(self.settings.method).next_pass(self)

    def absorb(self, stage: str, result) -> None:
        """Take a pass's result."""
        if stage == "coefficients":
            self.sample, self.model = result
            if self.model is None:  # too few rows lay under the threshold: once more, with all of them
                self.threshold = int(EVERYTHING)
        elif stage == "embed":
            self.embedded = True
        elif not self.model.started:
            make_method(self.settings.method).absorb(self.model, stage, result)
            if self.model.started:
                self.model.stored = self.model.weights = None
        else:
            advance(self.model, result)


def take_sample(run: Run, fold: Callable[[SampleFold], Sample]) -> Sample:
    """Return the sample alone, without the coefficients that `train` has made of it in the same pass.

    Parameters
    ----------
    run : Run
    fold : callable
        Runs the pass.
    """
    while True:
        wanted = run.settings.sample_rows(run.width)
        taken = fold(SampleFold(run.settings.seed, wanted, run.threshold, run.width))
        if taken.complete:
            return taken
        run.absorb("coefficients", (taken, None))


def train(run: Run, engine, listener: Listener | None = None, stages=None) -> Model:
    """Run passes until the method says that the model is finished, and return the model.

    Parameters
    ----------
    run : Run
        Fresh, or as far as an earlier run came.
    engine : apnc.engines.Engine
    listener : Listener, optional
    stages : tuple of str, optional
        Run passes of these only, and stop before another.
    """
    listener = listener or Listener()
    if run.embedded:
        engine.embedded_by(EmbedMap.of(run.model))
    while (step := run.next_pass()) is not None and (stages is None or step.stage in stages):
        listener.stage(step.stage)
        started = time.perf_counter()
        result = engine.run(step, listener)
        run.absorb(step.stage, result)
        run.seconds[step.stage] = run.seconds.get(step.stage, 0.0) + time.perf_counter() - started
        listener.finished(run, step.stage)
    return run.model

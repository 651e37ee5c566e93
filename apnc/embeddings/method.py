"""What a method is: its next pass from what a run has so far, and its embedding from sampled rows and settings."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from apnc.embeddings.base import Embedding, KernelEmbedding
from apnc.embeddings.spectrum import warn_of_flat_kernel
from apnc.errors import InputError, warn
from apnc.kernels import make_kernel
from apnc.landmarks import choose_landmarks

NOISE = 1e-4  # of the embedding's variance: more of float32 rounding is answered with float64
NOISE_ROWS = 256  # of the sample, on which it is measured
_ROTATED = "rank-restricted and spectral-nystrom have one"
_UNIT = "it is for rank-restricted, spectral-nystrom, uspec and usenc"


class Method(ABC):
    """One member of the family.

    Attributes
    ----------
    options : tuple of str
        Those settings that the method uses and not every method does.
    """

    name: str
    options: tuple[str, ...] = ()
    metric = "l2"
    default_dim: int | None = None
    starts_early = True  # start centroids come with the coefficients, not after passes of the method's own
    # said of rows whose embedding is zero
    without_place = (
        "have no similarity to any landmark and cannot be told apart; choose a wider kernel, more landmarks, or scale "
        "the data"
    )
    exact_sample = False  # the embedded sample is kept in float64 until they come

    @property
    def uses_kernel(self) -> bool:
        """Whether the kernel is one to choose."""
        return "kernel" in self.options

    def next_pass(self, run):
        """Return the next pass of a run from what it has so far, or None when the model is finished.

        Parameters
        ----------
        run : apnc.pipeline.Run
        """
        from apnc.coefficients import CoefficientsFold
        from apnc.embed import EmbedMap
        from apnc.kmeans import KMeansFold

        model = run.model
        if model is None:
            return CoefficientsFold(run.settings, run.threshold, run.width)
        if not model.started and (step := self.before_embedding(model)) is not None:
            return step
        if not run.embedded:
            return EmbedMap.of(model)
        if not model.started:
            return self.before_kmeans(model)
        if not model.done:
            return KMeansFold(model.centroids, model.metric, model.view)
        return None

    def prepare(self, model) -> None:
        """Add to a model with coefficients what the passes before start centroids need."""

    def before_embedding(self, model):
        """Return the next pass over rows that the final embedding waits for, or None."""

    def before_kmeans(self, model):
        """Return the next pass over the stored embedding that start centroids wait for."""

    def absorb(self, model, stage: str, result) -> None:
        """Take the result of one of the passes that come before start centroids into the model."""
        raise NotImplementedError(f"{self.name} has no such pass")

    def check(self, settings) -> None:
        """Raise InputError where settings that only some methods have are not for this one."""
        if settings.whiten:
            raise InputError(f"--whiten: --method {settings.method} has no rotation; {_ROTATED}")
        if settings.unit_rows is not None:
            raise InputError(f"--unit-rows: --method {settings.method} has no use for it; {_UNIT}")

    def least(self, settings) -> tuple[str, int]:
        """Return how many rows a sample must have, if there are as many, and the option that says so."""
        return "-k", settings.k

    def sample_rows(self, settings, width: int | None) -> int:
        """Return the rows of the sample that the method needs at least, the default aside."""
        return 1

    def dim(self, settings, width: int | None) -> int:
        """Return m, the width of the rows that k-means gets, about."""
        return width or 1

    def principal(self, settings) -> bool:
        """Tell whether the columns of the embedding are principal directions of it, about."""
        return False

    def memory(self, settings, sampled: int, width: int) -> dict[str, int]:
        """Return about how many bytes making the coefficients takes, by the option that decides it."""
        return {"--dim": 16 * width * sampled}

    def summary(self, facts: dict) -> str:
        """Return one line about a model's embedding."""
        return f"{self.name}, {facts['dim']} dimensions"

    @abstractmethod
    def embedding(self, x, settings, threads=None) -> tuple[Embedding, dict]:
        """Return the embedding built from scaled sample rows x (s, d) in hash order, and facts about it.

        Parameters
        ----------
        x : ndarray or csr_matrix, shape (s, d)
        settings : Settings
            ``kernel``, ``landmarks``, ``dim``, ``blocks``, ``t_share``, ``seed`` and the like.
        threads : int, optional
            All cores by default; the result does not depend on it.

        Raises
        ------
        InputError
            If the settings cannot work on these rows.
        """


class LandmarkMethod(Method):
    """y = R κ(L, x): the blocks of landmarks and their kernel matrices, common to the kernel methods."""

    options = ("kernel", "kernel_params", "landmarks", "landmark_selection", "dim", "blocks")

    def embedding(self, x, settings, threads=None):
        kernel = make_kernel(settings.kernel, settings.kernel_params)
        undefined, rule = kernel.undefined(x)
        if undefined is not None:
            raise InputError(f"{rule}; {int(undefined.sum())} rows of the sample have smaller ones")
        kernel = kernel.resolve(x)
        total = min(settings.landmarks, x.shape[0])
        if total < settings.landmarks:
            warn(f"--landmarks {settings.landmarks} is more than the rows there are: all {total} are used")
        if settings.blocks > total:
            raise InputError(f"--blocks {settings.blocks} is more than the {total} landmarks")
        landmarks = choose_landmarks(x, total, settings, kernel)
        dims = split_evenly(self.wanted_dim(settings, total), settings.blocks)
        blocks, coefficients, facts = [], [], []
        for b, (start, stop) in enumerate(spans(split_evenly(total, settings.blocks))):
            block = landmarks[start:stop]
            matrix = kernel.prepare(block, np.float64)(block.astype(np.float64))
            matrix = (matrix + matrix.T) / 2
            if not np.isfinite(matrix).all():
                raise InputError(f"kernel {kernel!r} overflows on the sample's values; scale the data (--scale)")
            warn_of_flat_kernel(matrix, kernel)
            r, spectrum = self.block_coefficients(matrix, dims[b], sum(dims), settings, b)
            if not spectrum.rank:
                raise InputError(
                    f"kernel {kernel!r}: the kernel matrix of the landmarks is zero up to rounding, nothing can be "
                    "embedded; choose other parameters or scale the data"
                )
            blocks.append(block)
            coefficients.append(r)
            facts.append(spectrum.describe() | {"landmarks": block.shape[0], "dim": len(r)})
        dtype = np.float64 if kernel.needs_float64(x) else settings.dtype
        embedding = KernelEmbedding(kernel, blocks, coefficients, self.metric, dtype)
        if embedding.dtype == np.float32 and is_noisy(embedding, x[:NOISE_ROWS]):
            embedding = embedding.with_dtype(np.float64)
        self.tell(embedding.dim, dims, facts, settings)
        return embedding, {"kernel": kernel.to_dict(), "blocks": facts, "dim": embedding.dim, "landmarks": total}

    def least(self, settings):
        return "--landmarks", settings.landmarks

    def sample_rows(self, settings, width):
        return settings.landmarks

    def dim(self, settings, width):
        return self.wanted_dim(settings, settings.landmarks)

    def memory(self, settings, sampled, width):
        landmarks = min(settings.landmarks, sampled)
        dim = self.wanted_dim(settings, landmarks)
        return {"--landmarks": 24 * landmarks**2, "--dim": 16 * dim * (landmarks + sampled)}

    def summary(self, facts):
        kernel = make_kernel(facts["kernel"]["name"], facts["kernel"]["params"])
        rank, dropped = (sum(b[name] for b in facts["blocks"]) for name in ("rank", "dropped"))
        return (
            f"{self.name}, kernel {kernel!r}, {facts['landmarks']} landmarks of rank {rank}"
            f" ({dropped} eigenvalues dropped), {facts['dim']} dimensions"
        )

    def wanted_dim(self, settings, total):
        return settings.dim or self.default_dim or min(500, total)

    def tell(self, dim, dims, facts, settings):
        """Warn of what the user asked for and does not get."""

    @abstractmethod
    def block_coefficients(self, matrix, m, total_m, settings, b):
        """Return R (m_b, l_b) and the spectrum it was made from."""


def is_noisy(embedding, rows) -> bool:
    """Return whether float32 rounding of κ, which R divides by √λ, moves rows by over 1 % of their spread."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact = embedding.with_dtype(np.float64).transform(rows)
        noise = np.square(embedding.transform(rows) - exact).sum()
        return not noise <= NOISE * np.square(exact - exact.mean(axis=0)).sum()  # which NaN is not


def split_evenly(total: int, parts: int) -> list[int]:
    """Return ``parts`` whole numbers that sum to ``total`` and differ by one at most.

    Examples
    --------
    >>> split_evenly(10, 3)
    [4, 3, 3]
    """
    return [total // parts + (i < total % parts) for i in range(parts)]


def spans(sizes):
    """Return (start, stop) of consecutive stretches of the given sizes."""
    stops = np.cumsum(sizes)
    return [(int(stop - size), int(stop)) for size, stop in zip(sizes, stops, strict=True)]

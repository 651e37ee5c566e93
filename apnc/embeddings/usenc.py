"""U-SENC: a consensus of many U-SPEC clusterings that share their passes ([US] section 3.4)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from apnc.blocks import part_of
from apnc.embeddings.uspec import POOL, RepresentativeMethod
from apnc.embeddings.views import ConsensusView, NodeView, view_from_dict
from apnc.errors import InputError
from apnc.hashing import generator
from apnc.threads import cores, one_blas_thread

POOL_BYTES = 256 << 20  # of sampled rows, from which the base clusterings take theirs
GROUP_BYTES = 1 << 30  # of the matrices that the base clusterings of one moments pass have together
# a base clustering need not settle: that they differ is the point
BASE_TOLERANCE = 1e-3
BASE_PASSES = 1


@dataclass
class Base:
    """A base clustering under way.

    Attributes
    ----------
    k : int
    view : NodeView
        With its rotation once that is known.
    centroids : ndarray, shape (1, k, k) or None
    passes : int
        Full k-means passes made.
    """

    k: int
    view: NodeView
    centroids: np.ndarray | None = None
    passes: int = 0

    def to_dict(self) -> dict:
        out = {"k": self.k, "passes": self.passes}
        out |= {f"view.{name}": value for name, value in self.view.to_dict().items()}
        return out if self.centroids is None else out | {"centroids": self.centroids}

    @classmethod
    def from_dict(cls, d: dict) -> Base:
        return cls(d["k"], view_from_dict(part_of(d, "view.")), d.get("centroids"), d["passes"])


class USenc(RepresentativeMethod):
    """U-SENC: the consensus of M U-SPEC clusterings, which share every pass.

    Base b has representatives of its own and k_b clusters, drawn between k_min and k_max. The base clusters are the
    nodes of another graph, a row being joined to the M that hold it; its transfer cut gives the consensus.

    References
    ----------
    Huang, Wang, Wu, Lai and Kwoh (2019), Ultra-Scalable Spectral Clustering and Ensemble Clustering.
    """

    name = "usenc"
    options = (*RepresentativeMethod.options, "base_clusterings", "k_min", "k_max")
    starts_early = False

    def check(self, settings):
        super().check(settings)
        low, high = settings.k_min, settings.k_max
        if low < 2:
            raise InputError(f"--k-min {low} must be at least 2")
        if not low <= high <= settings.representatives:
            raise InputError(
                f"--k-max {high} must be at least --k-min {low} and at most "
                f"--representatives {settings.representatives}"
            )
        if settings.base_clusterings * low < settings.k:
            raise InputError(
                f"-k {settings.k} is more than all base clusters together may be: raise --base-clusterings or --k-min"
            )

    def searches(self, settings):
        return settings.base_clusterings

    def sample_rows(self, settings, width):
        if settings.sample:
            return settings.representatives
        pool = POOL * settings.representatives
        return max(pool, min(settings.base_clusterings * pool, POOL_BYTES // (4 * (width or 1000))))

    def prepare(self, model):
        settings = model.settings
        share = generator(settings.seed, "base clusters").random(settings.base_clusterings)
        counts = np.floor(share * (settings.k_max - settings.k_min)).astype(int) + settings.k_min
        model.bases = [Base(min(int(k), view.width), view) for k, view in zip(counts, self.views(model), strict=True)]
        model.facts |= {"base_clusters": [base.k for base in model.bases], "groups": len(self._groups(model))}

    @staticmethod
    def _groups(model):
        """Return the base clusterings in stretches whose matrices a moments pass may hold."""
        step = max(1, GROUP_BYTES // (8 * max(base.view.width for base in model.bases) ** 2))
        return [model.bases[i : i + step] for i in range(0, len(model.bases), step)]

    def _unrotated(self, model):
        """Return the first group that waits for its rotations, or none."""
        return next((group for group in self._groups(model) if group[-1].view.rotation is None), [])

    def before_kmeans(self, model):
        from apnc.kmeans import KMeansFold
        from apnc.moments import MomentsFold
        from apnc.passes import Several

        group = self._unrotated(model)
        if group:
            return Several([MomentsFold(base.view) for base in group])
        if model.bases[0].passes < BASE_PASSES:
            return Several([KMeansFold(base.centroids, "l2", base.view) for base in model.bases])
        return MomentsFold(self._consensus(model))

    @staticmethod
    def _consensus(model):
        unit = model.settings.unit_rows is not False
        centroids = [base.centroids[0] for base in model.bases]
        return ConsensusView([base.view for base in model.bases], centroids, unit=unit, dtype=model.settings.dtype)

    def absorb(self, model, stage, result):
        if stage == "kmeans":
            self._absorb_kmeans(model, result)
        elif group := self._unrotated(model):
            self._absorb_moments(model, group, result)
        else:
            self._absorb_consensus(model, result)

    def _absorb_moments(self, model, group, results):
        from apnc.seeding import seed_centroids
        from apnc.transfer_cut import transfer_cut

        def start(base, result):
            base.view.rotation, _ = transfer_cut(result.second, base.k)
            rows = base.view.rows(model.stored)
            seed = int(generator(model.settings.seed, "base starts", base.view.search).integers(1 << 31))
            more = {"weights": model.weights, "tolerance": BASE_TOLERANCE}
            base.centroids, _ = seed_centroids(rows, base.k, 1, "l2", seed, **more)

        with one_blas_thread(), ThreadPoolExecutor(cores()) as pool:
            list(pool.map(start, group, results))

    def _absorb_kmeans(self, model, results):
        from apnc.kmeans import updated

        for base, result in zip(model.bases, results, strict=True):
            base.centroids, _ = updated(result, base.centroids, base.view.rows(model.stored), "l2")
            base.passes += 1

    def _absorb_consensus(self, model, result):
        from apnc.coefficients import begin
        from apnc.transfer_cut import transfer_cut

        view = self._consensus(model)
        view.rotation, graph = transfer_cut(result.second, model.settings.k)
        model.facts |= {"graph": graph}
        model.rows, model.view, model.bases = result.rows, view, None
        begin(model)

    def summary(self, facts):
        groups = f" in {facts['groups']} groups" if facts["groups"] > 1 else ""
        return (
            f"{self.name}, {len(facts['base_clusters'])} base clusterings{groups} of {min(facts['base_clusters'])} to "
            f"{max(facts['base_clusters'])} clusters, {facts['representatives'][0]} representatives each, "
            f"{facts['neighbours']} neighbours"
        )

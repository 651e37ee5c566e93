"""U-SPEC: spectral clustering through a few representatives ([US])."""

from __future__ import annotations

import numpy as np

from apnc.embeddings.method import NOISE, NOISE_ROWS, Method
from apnc.embeddings.neighbour import NeighbourEmbedding
from apnc.embeddings.views import NodeView
from apnc.errors import InputError, warn
from apnc.hashing import generator
from apnc.kernels import make_kernel, nearest_name
from apnc.neighbours import MOST_REPRESENTATIVES, unpacked
from apnc.representatives import lloyd_centres

POOL = 10  # p' = 10p rows of the sample for p representatives
SEARCHES = ("exact", "approximate")


class RepresentativeMethod(Method):
    """What U-SPEC and U-SENC share: representatives, neighbours, and the width of the Gaussian between them."""

    options = ("kernel_params", "representatives", "neighbours", "neighbour_search", "unit_rows")
    without_place = (
        "are too far from their representatives for the width of the affinity and cannot be told apart; choose a "
        "larger sigma or more representatives"
    )

    def check(self, settings):
        if settings.kernel != "rbf":
            raise InputError(f"--kernel {settings.kernel}: --method {self.name} has a Gaussian affinity, rbf")
        make_kernel("rbf", settings.kernel_params)
        if settings.whiten:
            raise InputError(f"--whiten: the eigenvectors of --method {self.name} are of equal weight already")
        if settings.neighbour_search not in SEARCHES:
            raise nearest_name("--neighbour-search", settings.neighbour_search, SEARCHES)
        p = settings.representatives
        if settings.neighbours < 2:
            raise InputError(f"--neighbours {settings.neighbours} must be at least 2, or nothing connects the graph")
        if not settings.neighbours <= p <= MOST_REPRESENTATIVES:
            raise InputError(
                f"--representatives {p} must be at least --neighbours {settings.neighbours} and at most "
                f"{MOST_REPRESENTATIVES}"
            )
        if settings.k > p:
            raise InputError(f"-k {settings.k} is more than --representatives {p}")

    def least(self, settings):
        return "--representatives", settings.representatives

    def sample_rows(self, settings, width):
        return settings.representatives * (1 if settings.sample else POOL)

    def dim(self, settings, width):
        return settings.k

    def memory(self, settings, sampled, width):
        p, count = min(settings.representatives, sampled), self.searches(settings)
        return {"--representatives": 3 * 8 * p * p + 12 * count * p * width}

    def searches(self, settings) -> int:
        """Return how many sets of representatives there are."""
        return 1

    def embedding(self, x, settings, threads=None):
        wanted, rows = settings.representatives, x.shape[0]
        p, sets = min(wanted, rows), []
        pool = min(rows, POOL * p)
        for b in range(self.searches(settings)):
            order = np.arange(pool) if not b else generator(settings.seed, "base", b).permutation(rows)[:pool]
            centres = lloyd_centres(x[order], p, threads)
            if len(centres) < p and pool < rows:  # rows repeat: there may be more distinct ones further on
                centres = lloyd_centres(x, p, threads)
            sets.append(centres.astype(x.dtype, copy=False))
        if not all(np.isfinite(centres).all() for centres in sets):
            raise InputError("the representatives are not finite: the values are too large, scale the data")
        p = min(len(centres) for centres in sets)
        if p < wanted:
            warn(f"--representatives {wanted} is more than the {p} distinct rows of the sample: {p} are used")
        count = min(settings.neighbours, p)
        embedding = NeighbourEmbedding(sets, count, settings.dtype, settings.neighbour_search == "approximate")
        if embedding.dtype == np.float32 and _is_noisy(embedding, x[:NOISE_ROWS]):
            embedding = embedding.with_dtype(np.float64)
        facts = {"representatives": [len(centres) for centres in sets], "neighbours": count, "dim": settings.k}
        return embedding, facts

    def views(self, model) -> list[NodeView]:
        """Return a view of each set of representatives, of the width found on the sample."""
        settings, embedding, views = model.settings, model.embedding, []
        searches = len(embedding.representatives)
        kernel = make_kernel("rbf", settings.kernel_params)
        for b, (_, squares) in enumerate(zip(*unpacked(model.stored, searches, embedding.dtype), strict=True)):
            sigma = kernel.params["sigma"]
            if isinstance(sigma, str):
                sigma = float(sigma.partition("*")[2] or 1) * float(np.sqrt(squares.astype(np.float64)).mean())
            if not sigma > 0:
                raise InputError(
                    "the width sigma of the affinity is 0: every row of the sample equals all of its nearest "
                    "representatives; use fewer --representatives or give --kernel-params sigma="
                )
            if not 0 < 2 * sigma * sigma < np.inf:
                raise InputError(f"the width sigma={sigma:g} of the affinity is beyond the range of numbers")
            width = len(embedding.representatives[b])
            unit = settings.unit_rows is not False
            stored = {"search": b, "searches": searches, "stored": embedding.dtype}
            views.append(NodeView(width, sigma, unit=unit, dtype=settings.dtype, **stored))
        model.facts["sigma"] = [view.sigma for view in views]
        return views


class USpec(RepresentativeMethod):
    """U-SPEC: spectral clustering of a graph between rows and their nearest of p representatives.

    Representatives are the centres of a k-means on 10p rows of the sample. Each row is joined to its K nearest with
    weights exp(−d²/2σ²), and the eigenvectors of that graph come from a p × p problem, the transfer cut. σ is the mean
    distance of sample rows to their representatives, 2–4 % below that over all rows.

    References
    ----------
    Huang, Wang, Wu, Lai and Kwoh (2019), Ultra-Scalable Spectral Clustering and Ensemble Clustering.
    """

    name = "uspec"
    starts_early = False

    def prepare(self, model):
        model.view = self.views(model)[0]

    def before_kmeans(self, model):
        from apnc.moments import MomentsFold

        return MomentsFold(model.view)

    def absorb(self, model, stage, result):
        from apnc.coefficients import begin
        from apnc.transfer_cut import transfer_cut

        view = model.view
        view.rotation, graph = transfer_cut(result.second, model.settings.k)
        if not graph["nodes"]:
            raise InputError(
                f"the graph has no edges: sigma={view.sigma:g} is too small for the distances to representatives; "
                "choose a larger one"
            )
        model.facts |= {"graph": graph}
        model.rows = result.rows
        begin(model)

    def summary(self, facts):
        return (
            f"{self.name}, {facts['representatives'][0]} representatives, {facts['neighbours']} neighbours, "
            f"sigma={facts['sigma'][0]:.6g}, {facts['dim']} dimensions"
        )


def _is_noisy(embedding, rows) -> bool:
    """Return whether float32 rounding moves squared distances to representatives by what decides affinities."""
    with np.errstate(over="ignore", invalid="ignore"):
        searches = len(embedding.representatives)
        found = unpacked(embedding.transform(rows), searches, np.float32)[1]
        exact = unpacked(embedding.with_dtype(np.float64).transform(rows), searches, np.float64)[1]
        return not np.abs(found - exact).mean() <= np.sqrt(NOISE) * exact.mean()

"""The model: everything a pass or `predict` needs, and the file it lives in."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import apnc
from apnc.blocks import part_of
from apnc.embeddings import Embedding, embedding_from_dict
from apnc.embeddings.usenc import Base
from apnc.embeddings.views import View, view_from_dict
from apnc.errors import InputError
from apnc.scaling import Scaler
from apnc.settings import Settings

FORMAT_VERSION = 2  # 1 had no views
READ_VERSIONS = (1, 2)
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error)


@dataclass
class Model:
    """A clustering as far as it has come.

    Attributes
    ----------
    settings : Settings
    width : int
        Number of features.
    sparse : bool
    scaler : Scaler
    embedding : Embedding
    facts : dict
        What the coefficients step found out: the kernel with σ, ranks, what was dropped.
    rows : int
        Usable rows in the training input.
    centroids : ndarray, shape (R, k, m)
        One set per run; one only once the passes are over.
    passes : list of dict
        Per full pass: objectives of the runs, refilled clusters.
    status : {'started', 'converged', 'cap'}
        'cap': the passes ran out before the gain fell below the tolerance.
    sample : ndarray, shape (s, m) or None
        The embedded sample, for empty clusters and numbering; not needed to predict.
    best : ndarray, shape (R, k, m) or None
        Under ℓ1, while passes go on: the measured centroids of lowest objective.
    view : View or None
        Makes y of what the embedding pass stores, where that is not y itself.
    stored : ndarray or None
        The sample as the embedding pass would store it, until start centroids are chosen.
    weights : ndarray of float64, shape (s,) or None
        Of the sample's rows, until then.
    bases : list of Base or None
        Base clusterings of U-SENC, until then.
    """

    settings: Settings
    width: int
    sparse: bool
    scaler: Scaler
    embedding: Embedding
    facts: dict
    rows: int
    centroids: np.ndarray
    passes: list = field(default_factory=list)
    status: str = "started"
    sample: np.ndarray | None = None
    best: np.ndarray | None = None
    view: View | None = None
    stored: np.ndarray | None = None
    weights: np.ndarray | None = None
    bases: list | None = None

    @property
    def dim(self) -> int:
        """m, the width of y."""
        return self.embedding.dim if self.view is None else self.view.dim

    @property
    def dtype(self) -> np.dtype:
        """The dtype of y."""
        return self.embedding.dtype if self.view is None else self.view.dtype

    @property
    def started(self) -> bool:
        """Whether there are centroids."""
        return bool(self.centroids.size)

    @property
    def metric(self) -> str:
        return self.embedding.metric

    @property
    def done(self) -> bool:
        return self.status != "started"

    @property
    def unplaced(self) -> int:
        """Rows that the last pass found to be zero, but for those of negative degree: of these was told before."""
        return max(0, self.passes[-1]["zero_rows"] - self.facts.get("negative_degrees", 0))

    def embed(self, x) -> np.ndarray:
        """Return y, shape (n, m), for raw rows x (n, d)."""
        y = self.embedding.transform(self.scaler(x))
        return y if self.view is None else self.view.rows(y)

    def to_dict(self, with_sample=True) -> dict:
        """Return arrays and JSON values, for `apnc.blocks.pack` or `save`."""
        out = {
            "format_version": FORMAT_VERSION,
            "apnc_version": apnc.__version__,
            "settings": self.settings.to_dict(),
            "width": self.width,
            "sparse": self.sparse,
            "scale": self.scaler.kind,
            "facts": self.facts,
            "rows": self.rows,
            "passes": self.passes,
            "status": self.status,
            "centroids": self.centroids,
        }
        for name in ("shift", "factor"):
            if getattr(self.scaler, name) is not None:
                out[f"scale.{name}"] = getattr(self.scaler, name)
        for name in ("sample", "best", "stored", "weights"):
            if with_sample and getattr(self, name) is not None:
                out[name] = getattr(self, name)
        if self.view is not None:
            out |= {f"view.{name}": value for name, value in self.view.to_dict().items()}
        if self.bases is not None:
            out["bases"] = len(self.bases)
            for b, base in enumerate(self.bases):
                out |= {f"base.{b}.{name}": value for name, value in base.to_dict().items()}
        return out | {f"embedding.{name}": value for name, value in self.embedding.to_dict().items()}

    @classmethod
    def from_dict(cls, d: dict) -> Model:
        found = d.get("format_version")
        if found not in READ_VERSIONS:
            raise InputError(
                f"model format version {found} is not known; this apnc reads versions 1 to {FORMAT_VERSION}"
            )

        return cls(
            Settings.from_dict(d["settings"]),
            d["width"],
            d["sparse"],
            Scaler(d["scale"], d.get("scale.shift"), d.get("scale.factor")),
            embedding_from_dict(part_of(d, "embedding.")),
            d["facts"],
            d["rows"],
            d["centroids"],
            d["passes"],
            d["status"],
            d.get("sample"),
            d.get("best"),
            view_from_dict(part_of(d, "view.")) if "view.kind" in d else None,
            d.get("stored"),
            d.get("weights"),
            [Base.from_dict(part_of(d, f"base.{b}.")) for b in range(d["bases"])] if "bases" in d else None,
        )

    def save(self, path, with_sample=False) -> None:
        """Write ``model.npz``: arrays and one JSON header, no pickles."""
        save_npz(path, self.to_dict(with_sample))

    @classmethod
    def load(cls, path) -> Model:
        """Return the model in a file written by `save`.

        Raises
        ------
        InputError
            If the file is not such a file, or of an unknown version.
        """
        found = load_npz(path, "model")
        try:
            model = cls.from_dict(found)
            if model.centroids.ndim != 3 or (model.started and model.centroids.shape[2] != model.dim):
                raise TypeError(f"centroids of shape {model.centroids.shape}")
            return model
        except (LookupError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: not a model file written by apnc ({error!r})") from None


def save_npz(path, values: dict) -> None:
    """Write arrays, CSR matrices and JSON values to an npz file, by rename so that it is whole or absent."""
    arrays, header = {}, {}
    for name, value in values.items():
        if hasattr(value, "indptr"):
            header[name] = {"csr": list(value.shape)}
            arrays |= {f"{name}.{part}": getattr(value, part) for part in ("data", "indices", "indptr")}
        elif isinstance(value, np.ndarray):
            arrays[name] = value
        else:
            header[name] = value
    path = Path(path)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, header=np.array(json.dumps(header)), **arrays)
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def load_npz(path, what: str) -> dict:
    """Return what `save_npz` wrote.

    Raises
    ------
    InputError
        If the file is missing, damaged or something else.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            out = dict(json.loads(str(file["header"])))
            arrays = {name: file[name] for name in file.files if name != "header"}
        for name, value in out.items():
            if isinstance(value, dict) and set(value) == {"csr"}:
                from scipy.sparse import csr_matrix

                parts = tuple(arrays.pop(f"{name}.{part}") for part in ("data", "indices", "indptr"))
                out[name] = csr_matrix(parts, shape=value["csr"])
        return out | arrays
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such {what} file") from None
    # TypeError: np.load of a plain .npy; RuntimeError, zlib.error: flags and methods that zipfile does not know
    except (OSError, ValueError, TypeError, LookupError, EOFError, AttributeError, RuntimeError, *ZIP_ERRORS) as error:
        raise InputError(f"{path}: not a {what} file written by apnc ({error})") from None

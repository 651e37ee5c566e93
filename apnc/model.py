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
from apnc.embeddings import Embedding, embedding_from_dict
from apnc.errors import InputError
from apnc.scaling import Scaler
from apnc.settings import Settings

FORMAT_VERSION = 1
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

    @property
    def metric(self) -> str:
        return self.embedding.metric

    @property
    def done(self) -> bool:
        return self.status != "started"

    def embed(self, x) -> np.ndarray:
        """Return y, shape (n, m), for raw rows x (n, d)."""
        return self.embedding.transform(self.scaler(x))

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
        for name in ("sample", "best"):
            if with_sample and getattr(self, name) is not None:
                out[name] = getattr(self, name)
        return out | {f"embedding.{name}": value for name, value in self.embedding.to_dict().items()}

    @classmethod
    def from_dict(cls, d: dict) -> Model:
        found = d.get("format_version")
        if found != FORMAT_VERSION:
            raise InputError(f"model format version {found} is not known; this apnc reads version {FORMAT_VERSION}")
        prefix = "embedding."
        return cls(
            Settings.from_dict(d["settings"]),
            d["width"],
            d["sparse"],
            Scaler(d["scale"], d.get("scale.shift"), d.get("scale.factor")),
            embedding_from_dict({k.removeprefix(prefix): v for k, v in d.items() if k.startswith(prefix)}),
            d["facts"],
            d["rows"],
            d["centroids"],
            d["passes"],
            d["status"],
            d.get("sample"),
            d.get("best"),
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
            if model.centroids.ndim != 3 or model.centroids.shape[2] != model.embedding.dim:
                raise TypeError(f"centroids of shape {model.centroids.shape}")
            return model
        except (KeyError, TypeError, AttributeError) as error:
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

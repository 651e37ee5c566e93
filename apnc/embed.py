"""The maps that turn rows into embeddings, and rows into labels with a finished model."""

from __future__ import annotations

import hashlib

import numpy as np

from apnc.blocks import Block, pack, part_of, rows_per_block
from apnc.embeddings import Embedding, embedding_from_dict
from apnc.kernels import fit_width, is_sparse
from apnc.kmeans import AssignMap
from apnc.passes import Map
from apnc.scaling import Scaler

OVERFLOW = "the embedding of the row must be finite: its values are too large for the kernel, scale the data"


class EmbedMap(Map):
    """y = R κ(L, x) for every row, or what else a method stores of it, once, without exchange ([EC] Algorithm 1).

    Parameters
    ----------
    embedding : Embedding
    scaler : Scaler
    width : int
        Number of features a row must have.
    sparse : bool
        Whether the model was trained on CSR rows. Rows of the other kind are converted block by block, so that one
        model serves the same rows in any format.
    """

    stage = "embed"
    reads = "rows"

    def __init__(self, embedding: Embedding, scaler: Scaler, width: int, sparse: bool):
        self.embedding, self.scaler, self.width, self.sparse = embedding, scaler, width, sparse

    @classmethod
    def of(cls, model) -> EmbedMap:
        return cls(model.embedding, model.scaler, model.width, model.sparse)

    def to_dict(self) -> dict:
        """Return what `embed_map_from_dict` needs: a part of the model's dict."""
        out = {f"embedding.{name}": value for name, value in self.embedding.to_dict().items()}
        for name in ("shift", "factor"):
            if getattr(self.scaler, name) is not None:
                out[f"scale.{name}"] = getattr(self.scaler, name)
        return out | {"scale": self.scaler.kind, "width": self.width, "sparse": self.sparse}

    def mark(self) -> str:
        """Return a word that stands for this embedding and no other."""
        return hashlib.sha256(pack(self.to_dict())).hexdigest()[:32]

    def rows_per_block(self):
        return rows_per_block(self.embedding.widest)

    def apply(self, block: Block) -> Block:
        if not block.n:
            return block.replace_x(np.empty((0, self.embedding.dim), self.embedding.dtype))
        with np.errstate(over="ignore", invalid="ignore"):
            x = self.scaler(self._as_trained(block.x))
            y = self.embedding.transform(x)
            overflown = self.embedding.overflown(y)
        undefined, rule = self.embedding.undefined(x)
        embedded = block.replace_x(y)
        if undefined is not None:
            embedded = embedded.without(undefined, rule)
            overflown = overflown[~undefined]
        return embedded.without(overflown, OVERFLOW) if overflown.any() else embedded

    def _as_trained(self, x):
        if not is_sparse(x):
            if x.shape[1] != self.width:  # a single column would be broadcast, missing ones taken for zeros
                raise ValueError(f"rows have {x.shape[1]} features, the model {self.width}")
            if not self.sparse:
                return x
            from scipy.sparse import csr_matrix

            return csr_matrix(x)
        x = fit_width(x, self.width)
        return x if self.sparse else x.toarray()


class PredictMap(Map):
    """Cluster and distance of rows, from the rows themselves: embed and assign in one go."""

    stage = "predict"
    reads = "rows"

    def __init__(self, embed: EmbedMap, assign: AssignMap):
        self.embed, self.assign, self.width = embed, assign, embed.width

    @classmethod
    def of(cls, model) -> PredictMap:
        return cls(EmbedMap.of(model), AssignMap.of(model))

    def rows_per_block(self):
        return min(self.embed.rows_per_block(), self.assign.rows_per_block())

    def apply(self, block: Block) -> Block:
        return self.assign.apply(self.embed.apply(block))


def embed_map_from_dict(d: dict) -> EmbedMap:
    """Return the embedding pass from a model's dict, or from the part of it that a task is sent."""
    embedding = embedding_from_dict(part_of(d, "embedding."))
    return EmbedMap(embedding, Scaler(d["scale"], d.get("scale.shift"), d.get("scale.factor")), d["width"], d["sparse"])

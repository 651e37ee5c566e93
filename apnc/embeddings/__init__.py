"""The APNC family: one file per member, each a way to make the coefficients of y = R κ(L, x)."""

from apnc.embeddings.base import Embedding, embedding_from_dict
from apnc.embeddings.methods import METHODS, Method, make_method

__all__ = ["METHODS", "Embedding", "Method", "embedding_from_dict", "make_method"]

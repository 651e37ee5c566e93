"""Block, the unit of work: consecutive rows of one source, and its encoding.

Every pass works on whole blocks. A block knows where its rows come from (source, offsets), so that
samples, labels and error messages mean the same on every engine and for every split of the input.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field

import numpy as np

BLOCK_ELEMENTS = 1 << 20  # 4 MiB of float32: large enough for BLAS, small enough for the caches
MAX_BLOCK_ROWS = 1 << 14
KEPT_PROBLEMS = 5
_ALIGNMENT = 16  # of packed arrays: NumPy copies what is not aligned before it works on it


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing in the input that cannot be used: where, what was found, the rule.

    Parameters
    ----------
    source : str
        The source's name in the run.
    offset : int
        Byte offset of the line in the decompressed text, or row index (npy).
    column : int or None
        1-based field number within the line or row; the feature index for svmlight.
    value : str
        What was found there (shortened).
    rule : str
        What is allowed, from a small fixed set of sentences, so that problems can be counted per rule.
    fatal : bool
        True for damage that skipping rows cannot repair, such as a truncated archive.
    """

    source: str
    offset: int
    column: int | None
    value: str
    rule: str
    fatal: bool = False


@dataclass(slots=True)
class Block:
    """Consecutive rows of one source.

    Parameters
    ----------
    source : str
        The name of the source, as in ``labels.csv``.
    offsets : ndarray of int64, shape (n,)
        Identity of each row within its source, increasing.
    x : ndarray or scipy.sparse.csr_matrix, shape (n, d)
        float32 or float64. What the rows are (features or embedding) is the pass's business.
    ids, labels : list of str, optional
        The id column and the label column of the n rows, where the input has them.
    weights : ndarray of float64, shape (n,), optional
        Sample weights; all ones when absent.
    bad : ndarray of int64
        Offsets of rows of this stretch that could not be used, so that row numbers stay right.
    problems : list of Problem
        The first few reasons, at most ``KEPT_PROBLEMS``.
    rules : Counter
        How many rows broke each rule.
    """

    source: str
    offsets: np.ndarray
    x: object
    ids: list[str] | None = None
    labels: list[str] | None = None
    weights: np.ndarray | None = None
    bad: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    problems: list[Problem] = field(default_factory=list)
    rules: Counter = field(default_factory=Counter)

    @property
    def n(self) -> int:
        return self.x.shape[0]

    def replace_x(self, x) -> Block:
        """Return the same rows with another matrix (an embedding, say)."""
        return Block(
            self.source, self.offsets, x, self.ids, self.labels, self.weights, self.bad, self.problems, self.rules
        )

    def without(self, mask: np.ndarray, rule: str, values=None) -> Block:
        """Return the block less the rows in ``mask``, which become bad rows by ``rule``."""
        keep = ~mask
        gone = self.offsets[mask]
        shown = [
            Problem(self.source, int(o), None, "" if values is None else str(values), rule)
            for o in gone[:KEPT_PROBLEMS]
        ]
        return Block(
            self.source,
            self.offsets[keep],
            self.x[keep],
            _choose(self.ids, keep),
            _choose(self.labels, keep),
            None if self.weights is None else self.weights[keep],
            np.union1d(self.bad, gone),
            (self.problems + shown)[:KEPT_PROBLEMS],
            self.rules + Counter({rule: int(mask.sum())}),
        )

    def to_dict(self) -> dict:
        """Return the block as plain values and dense arrays, for `pack`."""
        out = {"source": self.source, "offsets": self.offsets, "x": self.x}
        for name in ("ids", "labels", "weights"):
            if getattr(self, name) is not None:
                out[name] = getattr(self, name)
        if self.rules:
            out["bad"] = self.bad
            out["problems"] = [asdict(p) for p in self.problems]
            out["rules"] = dict(self.rules)
        return out

    @classmethod
    def from_dict(cls, d: dict) -> Block:
        return cls(
            d["source"],
            d["offsets"],
            d["x"],
            d.get("ids"),
            d.get("labels"),
            d.get("weights"),
            d.get("bad", np.empty(0, np.int64)),
            [Problem(**p) for p in d.get("problems", ())],
            Counter(d.get("rules", {})),
        )


def _choose(items, keep):
    return None if items is None else [item for item, kept in zip(items, keep, strict=True) if kept]


def rows_per_block(*widths: int) -> int:
    """Return how many rows make a block when the widest matrix of the work has ``max(widths)`` columns."""
    return int(np.clip(BLOCK_ELEMENTS // max(1, *widths), 16, MAX_BLOCK_ROWS))


def part_of(values: dict, prefix: str) -> dict:
    """Return the values whose names begin with a prefix, by the rest of their names.

    Examples
    --------
    >>> part_of({"view.kind": "plain", "rows": 3}, "view.")
    {'kind': 'plain'}
    """
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def pack(values: dict) -> bytes:
    """Return a dict of JSON values, arrays and CSR matrices as bytes, without pickling.

    Examples
    --------
    >>> import numpy as np
    >>> unpack(pack({"k": 3, "z": np.ones(2)}))
    {'k': 3, 'z': array([1., 1.])}
    """
    plain, layout, buffers = {}, [], []
    for name, value in values.items():
        for key, array in _arrays_of(name, value):
            array = np.ascontiguousarray(array)
            layout.append([key, array.dtype.str, list(array.shape)])
            buffers.append(array.data.cast("B") if array.size else b"")
        if hasattr(value, "indptr"):
            plain[name] = {"csr": list(value.shape)}
        elif not isinstance(value, np.ndarray):
            plain[name] = value
    header = json.dumps({"plain": plain, "layout": layout}).encode()
    header += b" " * (-(4 + len(header)) % _ALIGNMENT)
    padded = [part for buffer in buffers for part in (buffer, bytes(-len(buffer) % _ALIGNMENT))]
    return b"".join([len(header).to_bytes(4, "little"), header, *padded])


def _arrays_of(name, value):
    if hasattr(value, "indptr"):
        return [(f"{name}.{part}", getattr(value, part)) for part in ("data", "indices", "indptr")]
    return [(name, value)] if isinstance(value, np.ndarray) else []


def unpack(data) -> dict:
    """Return what `pack` was given; arrays are views of ``data``, any buffer with or without something after it."""
    start = 4 + int.from_bytes(data[:4], "little")
    header = json.loads(bytes(data[4:start]))
    arrays = {}
    for key, dtype, shape in header["layout"]:
        count = int(np.prod(shape, dtype=np.int64))
        arrays[key] = np.frombuffer(data, dtype, count, start).reshape(shape)
        start += arrays[key].nbytes + -arrays[key].nbytes % _ALIGNMENT
    out = {}
    for name, value in header["plain"].items():
        if isinstance(value, dict) and set(value) == {"csr"}:
            from scipy.sparse import csr_matrix

            parts = tuple(arrays.pop(f"{name}.{part}") for part in ("data", "indices", "indptr"))
            value = csr_matrix(parts, shape=value["csr"])
        out[name] = value
    return out | arrays


def to_line(values: dict) -> bytes:
    """Return `pack`'s bytes as one line of text without tabs or line feeds, for streaming."""
    return to_text(pack(values))


def from_line(line) -> dict:
    """Return what `to_line` was given; ``line`` may be any buffer."""
    return unpack(from_text(line))


def to_text(data) -> bytes:
    """Return bytes as printable ASCII, four characters for three bytes.

    Like base64, but plane by plane: the low six bits of each third of the data, then the two high bits of all three
    together, each plus 48. NumPy reads that four times as fast as Python reads base64, which would be most of what a
    pass over an embedding costs. Up to two zero bytes are added at the end.
    """
    data = np.frombuffer(data, np.uint8)
    n = -(-len(data) // 3)
    if len(data) < 3 * n:
        data = np.concatenate([data, np.zeros(3 * n - len(data), np.uint8)])
    a, b, c = planes = data.reshape(3, n)
    text = np.empty((4, n), np.uint8)
    np.bitwise_and(planes, 63, out=text[:3])
    text[3] = (a >> 6) | ((b >> 4) & 12) | ((c >> 2) & 48)
    text += 48
    return text.tobytes()


def from_text(text) -> memoryview:
    """Return the bytes that `to_text` was given, and up to two zeros more."""
    planes = np.frombuffer(text, np.uint8).reshape(4, -1) - 48
    low, high = planes[:3], planes[3]
    low[0] |= high << 6
    low[1] |= (high << 4) & 192
    low[2] |= (high << 2) & 192
    return low.reshape(-1).data

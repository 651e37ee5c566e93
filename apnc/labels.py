"""labels.csv: one line per row, in input order, written and read in blocks."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import asdict

import numpy as np

from apnc.blocks import KEPT_PROBLEMS, Block, Problem
from apnc.errors import InputError

SPECIAL = set('",\r\n')


class LabelFacts:
    """What blocks of (cluster, distance) add to run.json. Those of several tasks can be put together.

    Attributes
    ----------
    rows : int
    squares : float
        Σ distance², the objective of the labels.
    counts : ndarray of int64
        Rows per cluster, as far as clusters have been seen.
    contingency : Counter
        Rows per (cluster, label) where blocks have labels.
    rules, problems
        Of the bad rows met.
    """

    def __init__(self):
        self.rows, self.squares = 0, 0.0
        self.counts = np.zeros(0, np.int64)
        self.contingency: Counter = Counter()
        self.rules: Counter = Counter()
        self.problems: list = []

    def add(self, block: Block) -> None:
        """Take a block into account."""
        self.rules += block.rules
        self.problems = (self.problems + block.problems)[:KEPT_PROBLEMS]
        if not block.n:
            return
        clusters = block.x[:, 0].astype(np.int64)
        distances = block.x[:, 1]
        self.rows += block.n
        self.squares += float(distances @ distances)
        self._add_counts(np.bincount(clusters))
        if block.labels is not None:
            self.contingency.update(zip(clusters.tolist(), block.labels, strict=True))

    def merge(self, other: LabelFacts) -> None:
        """Take what another has seen into account."""
        self.rows += other.rows
        self.squares += other.squares
        self._add_counts(other.counts)
        self.contingency += other.contingency
        self.rules += other.rules
        self.problems = (self.problems + other.problems)[:KEPT_PROBLEMS]

    def _add_counts(self, counts):
        width = max(len(self.counts), len(counts))
        self.counts = sum(np.pad(c, (0, width - len(c))) for c in (self.counts, counts))

    def to_dict(self) -> dict:
        """Return it as JSON values."""
        return {
            "rows": self.rows,
            "squares": self.squares,
            "counts": self.counts.tolist(),
            "contingency": [[cluster, label, n] for (cluster, label), n in self.contingency.items()],
            "rules": dict(self.rules),
            "problems": [asdict(p) for p in self.problems],
        }

    @classmethod
    def from_dict(cls, d: dict) -> LabelFacts:
        facts = cls()
        facts.rows, facts.squares = d["rows"], d["squares"]
        facts.counts = np.array(d["counts"], np.int64)
        facts.contingency = Counter({(cluster, label): n for cluster, label, n in d["contingency"]})
        facts.rules, facts.problems = Counter(d["rules"]), [Problem(**p) for p in d["problems"]]
        return facts

    def facts(self) -> dict:
        """Return what the labels add to run.json."""
        found = {"objective": self.squares, "cluster_sizes": self.counts.tolist(), "bad_rows": dict(self.rules)}
        if self.contingency:
            from apnc.metrics import contingency_table, scores

            found["scores"] = scores(contingency_table(self.contingency))
        return found


class LabelWriter(LabelFacts):
    """Writes blocks of (cluster, distance) as ``source,row,cluster,distance``, or ``id,cluster,distance``.

    Row numbers count the data records of each source, bad ones included; bad rows themselves are left out.

    Parameters
    ----------
    file : binary file
    with_ids : bool
    dtype : dtype
        Of the distances: float32 ones are written with the digits they have.
    """

    def __init__(self, file, with_ids=False, dtype=np.float32):
        super().__init__()
        self._file, self._with_ids, self._dtype = file, with_ids, np.dtype(dtype)
        self._source, self._next_row = None, 0
        file.write(b"id,cluster,distance\n" if with_ids else b"source,row,cluster,distance\n")

    def write(self, block: Block) -> None:
        """Write a block whose x has the columns cluster and distance; blocks come in input order."""
        import pyarrow as pa

        self.add(block)
        numbers = self._row_numbers(block)
        if not block.n:
            return
        clusters = block.x[:, 0].astype(np.int64)
        distances = block.x[:, 1]
        if self._with_ids:
            columns = {"id": pa.array(block.ids, pa.string())}
        else:
            source = pa.DictionaryArray.from_arrays(np.zeros(block.n, np.int32), [block.source])
            columns = {"source": source.cast(pa.string()), "row": numbers}
        columns |= {"cluster": clusters, "distance": distances.astype(self._dtype)}
        texts = block.ids if self._with_ids else [block.source]
        self._file.write(csv_lines(columns, plain=not any(SPECIAL.intersection(t) for t in texts)))

    def _row_numbers(self, block):
        if block.source != self._source:
            self._source, self._next_row = block.source, 0
        start = self._next_row
        self._next_row += block.n + len(block.bad)
        if not len(block.bad):
            return np.arange(start, start + block.n)
        return start + np.arange(block.n) + np.searchsorted(block.bad, block.offsets)


def csv_lines(columns: dict, plain: bool) -> bytes:
    """Return the columns as csv lines without a header; ``plain`` says that no text needs quotes."""
    import pyarrow as pa
    import pyarrow.csv

    buffer = io.BytesIO()
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none" if plain else "needed")
    pyarrow.csv.write_csv(pa.table(columns), buffer, options)
    return buffer.getvalue()


def read_clusters(path) -> np.ndarray:
    """Return the cluster column of a labels.csv, shape (n,).

    Raises
    ------
    InputError
        If the file is missing or has no such column.
    """
    import pyarrow as pa
    import pyarrow.csv

    try:
        options = pyarrow.csv.ConvertOptions(include_columns=["cluster"], column_types={"cluster": pa.int64()})
        parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return pyarrow.csv.read_csv(path, convert_options=options, parse_options=parse)["cluster"].to_numpy()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such labels file") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: not a labels file written by apnc ({str(error).splitlines()[0]})") from None

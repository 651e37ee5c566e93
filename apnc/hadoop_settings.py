"""Every setting of Hadoop's that a pass is run with: its value, and why. ``--jobconf NAME=VALUE`` overrides any.

What does not depend on the pass stands in the tables, with its reason; memory, tasks and the like are computed from
block size, d, l, m, k and the sizes of the input by `settings_for`. Nothing here talks to a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from apnc.errors import InputError

MIB = 1 << 20


class Setting(NamedTuple):
    """A property of Hadoop's, the value every pass has by default, and the reason."""

    name: str
    value: str
    reason: str


JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
# names of files reach tasks in their environment, and Java writes that in its default encoding
TASK_JVM = f"{JVM} -Dfile.encoding=UTF-8 -Dsun.jnu.encoding=UTF-8"

START_UP = (
    Setting(
        "yarn.app.mapreduce.am.command-opts",
        f"{JVM} -Xmx768m",
        "masters and tasks live for seconds: the quick compiler and the small collector halve their start",
    ),
    Setting("yarn.app.mapreduce.am.resource.mb", "1024", "holds the master's 768 MiB of heap"),
    Setting(
        "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms", "100", "a master asks for containers every second else"
    ),
    Setting("mapreduce.client.progressmonitor.pollinterval", "200", "progress in time; once a second else"),
    Setting("mapreduce.client.completion.pollinterval", "100", "a pass waits up to 5 s for its client to see its end"),
    Setting(
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms",
        "10",
        "400 ms are slept at the end of every file else",
    ),
)
READING = (
    Setting("textinputformat.record.delimiter", "\n", "else a carriage return ends a line, on Hadoop alone"),
    Setting(
        "mapreduce.input.fileinputformat.input.dir.recursive", "true", "a folder inside a folder fails the job else"
    ),
)
LOSSES = (
    Setting("mapreduce.map.maxattempts", "4", "tasks are retried: their results are the same each time"),
    Setting("mapreduce.reduce.maxattempts", "4", "the same for reducers"),
    Setting("mapreduce.map.speculative", "true", "a slow node must not hold up a pass; output is committed once"),
    Setting("mapreduce.reduce.speculative", "true", "the same for reducers"),
    Setting("yarn.client.nodemanager-connect.max-wait-ms", "4000", "a lost node stalls a master for minutes else"),
    Setting("yarn.client.nodemanager-connect.retry-interval-ms", "500", "the same"),
    Setting("ipc.client.connect.max.retries", "2", "the same"),
    Setting("ipc.client.connect.max.retries.on.timeouts", "2", "45 times 20 s, where the whole machine is gone"),
    Setting("mapreduce.reduce.shuffle.connect.timeout", "20000", "three minutes else, in which a reducer waits for it"),
    Setting("mapreduce.reduce.shuffle.read.timeout", "60000", "the same"),
    Setting(
        "mapreduce.task.timeout",
        "1200000",
        "tasks say that they live twice a minute; one that is silent for 20 minutes is stuck",
    ),
    Setting(
        "mapreduce.task.progress-report.interval",
        "3000",
        "a hundredth of the time-out else, 12 s: too late for a master that looks for slow tasks",
    ),
)
ENVIRONMENT = (
    # one core is what YARN gives a task: more threads would fight over it
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("MKL_NUM_THREADS", "1"),
)

HEARTBEAT_SECONDS = 30  # from every task; YARN would kill one silent for mapreduce.task.timeout
INTERMEDIATE_REPLICATION = 2  # of the embedding: survives a DataNode, and takes two thirds of the space of three
BYTES_PER_MAP = 32 * MIB  # less is not worth the start of a task, about a second
UNIT_BYTES = 128 * MIB  # of input that a map task reads by WebHDFS: as much as a block of HDFS by default
SMALL_FILES = 16  # more files than this and four for each block of 128 MiB share map tasks, read by units
MOST_NAMED_FILES = 2000  # that fit on a command line; more are read by units
SORT_MB = 8  # a k-means pass ships kilobytes; Hadoop reserves 100 MiB of heap for sorting else
REDUCER_BYTES = 256 * MIB  # of shuffle that one reducer merges; more are used, as far as there are parts of Z
PART_BYTES = 4 * MIB  # of Z that travel as one record, so that heaps stay small and reducers can share

# Resident memory of what every task has, MiB
JVM_MB = 192  # of the container's JVM beside its heap
HEAP_MB = 64  # carries lines of 16 MiB
PYTHON_MB = 192  # Python, NumPy, SciPy and pyarrow
MEMORY_STEP_MB = 128


@dataclass(frozen=True)
class Needs:
    """What a pass needs beyond its interpreter, in bytes.

    Attributes
    ----------
    map, reduce : int
        Working memory of a task's Python.
    record : int
        The largest line that travels through Java.
    """

    map: int
    reduce: int
    record: int


def needs_of(step, row_bytes: float, rows: int | None = None) -> Needs:
    """Return the memory that tasks of a pass need: a function of block size, d, l, m, k and the number of runs.

    Parameters
    ----------
    step : Fold or Map
    row_bytes : float
        About how much text or file a row takes, for what is sparse.
    rows : int, optional
        Of the input, about and on the low side: a small input has no large sample, whatever is asked for.
    """
    return (_several if hasattr(step, "members") else _NEEDS[step.stage])(step, row_bytes, rows)


def _row(width, row_bytes):
    """Return the bytes of a row in memory: dense, or much less where its text is short, even compressed."""
    return min(8 * width, 64 * row_bytes) if width else 4 * row_bytes


def _rows_read(rows, width, row_bytes):
    """Blocks of rows as they are read: text of a chunk several times over, numbers in float64, once more scaled."""
    return 6 * max(4 * MIB, 2 * row_bytes) + 3 * rows * _row(width, row_bytes)


def _sample(step, row_bytes, rows):
    row, size = _row(step.width, row_bytes), min(step.size, _at_most(rows))
    kept = (size + 4096) * row
    sealed = size * row * 4 / 3
    in_map = _rows_read(step.rows_per_block(), step.width, row_bytes) + 2 * kept + 2 * sealed
    in_reduce = 3 * kept + 2 * sealed
    settings = getattr(step, "settings", None)
    if settings is not None:
        from apnc.embeddings import make_method

        k, runs = min(settings.k, size), settings.restarts
        l, m = _landmarks_and_dim(settings, step.width, rows)
        block = -(-l // settings.blocks)
        # K_LL with its eigenvectors and their workspace; R and L, packed; the embedded sample, seeding
        in_reduce += 8 * 8 * block * block + 4 * 8 * (m * block + l * row / 8)
        in_reduce += make_method(settings.method).memory(settings, size, row / 8).get("--representatives", 0)
        in_reduce += 3 * 8 * size * m + 8 * size * (k + 16) + 4 * 8 * runs * k * m
    return Needs(int(in_map), int(in_reduce), int(min(sealed, 64 * MIB)))


def _at_most(rows):
    return inf if rows is None else 2 * rows + 1


def _landmarks_and_dim(settings, width, rows):
    """Return l and m as the settings have them; a linear embedding has no landmarks, and the width of the rows."""
    from apnc.embeddings import make_method

    method = make_method(settings.method)
    if not method.uses_kernel:
        return 0, method.dim(settings, width)
    l = min(settings.landmarks, _at_most(rows))
    return l, method.wanted_dim(settings, l)


def _embed(step, row_bytes, rows=None, block_rows=None):
    embedding, rows = step.embedding, block_rows or step.rows_per_block()
    size = embedding.dtype.itemsize
    widest, m = embedding.widest, embedding.dim
    model = largest_block_bytes(embedding)
    work = rows * size * (3 * widest + 4 * m)  # κ and its intermediates; y, packed, as text
    return Needs(
        int(_rows_read(rows, step.width, row_bytes) + 2 * model + work), 0, int(rows * (size * m * 4 / 3 + 64))
    )


def largest_block_bytes(embedding) -> int:
    """Return the bytes of R and L in float64: of the largest block where blocks are loaded one at a time."""
    if hasattr(embedding, "representatives"):
        return 2 * sum(r.nbytes for r in embedding.representatives)  # as they come, and as searches have them
    parts = getattr(embedding, "landmarks", None)
    if parts is None:
        return 8 * embedding.dim
    return max(
        (lb.data.nbytes + lb.indices.nbytes if hasattr(lb, "indptr") else lb.nbytes) + r.nbytes
        for lb, r in zip(parts, embedding.coefficients, strict=True)
    )


def view_bytes(view) -> int:
    """Return the bytes of a view's arrays."""
    return 0 if view is None else sum(getattr(value, "nbytes", 0) for value in view.to_dict().values())


def _several(step, row_bytes, rows=None):
    """One member after the other, over blocks of the widest; what all are made of is there at once."""
    needs = [needs_of(member, row_bytes) for member in step.members]
    arrays = sum(view_bytes(member.view) for member in step.members)
    return Needs(max(n.map for n in needs) + 2 * arrays, max(n.reduce for n in needs), max(n.record for n in needs))


def _moments(step, row_bytes, rows=None):
    p, rows = step.view.width, step.rows_per_block()
    matrix = 8 * p * p if step.second else 8 * p
    stripe = 8 * step.stripe * p
    work = 3 * view_bytes(step.view) + 2 * matrix + 3 * stripe + rows * 8 * (3 * min(p, 8192) + 3 * step.view.widest)
    if step.embed is not None:
        work += _embed(step.embed, row_bytes, block_rows=rows).map
    return Needs(int(work + 4 * 8 * MIB), int(8 * stripe), int(4 * stripe / 3))


def _kmeans(step, row_bytes, rows=None):
    runs, k, m = step.centroids.shape
    rows = step.rows_per_block()
    centroids = runs * k * m * 8
    work = rows * (4 * 8 * m + 3 * 8 * runs * k) + 3 * view_bytes(step.view)
    if step.view is not None:
        work += 3 * 8 * rows * step.view.widest
    return Needs(int(6 * centroids + work + 4 * 8 * MIB), int(8 * PART_BYTES + 4 * 8 * k * m), 2 * PART_BYTES)


def _assign(step, row_bytes, rows=None):
    k, m = step.centroids.shape
    rows = step.rows_per_block()
    work = 3 * 8 * k * m + rows * (4 * 8 * m + 3 * 8 * k + 512) + 3 * view_bytes(step.view)
    if step.view is not None:
        work += 3 * 8 * rows * step.view.widest
    return Needs(int(work + 4 * 8 * MIB), 0, 4 * MIB)


def _predict(step, row_bytes, rows=None):
    embed, assign = _embed(step.embed, row_bytes), _assign(step.assign, row_bytes)
    return Needs(embed.map + assign.map, 0, assign.record)


_NEEDS = {
    "sample": _sample,
    "coefficients": _sample,
    "moments": _moments,
    "embed": _embed,
    "kmeans": _kmeans,
    "assign": _assign,
    "predict": _predict,
}


def settings_for(needs: Needs, *, maps: int, reduces: int, replication: int | None = None) -> dict[str, str]:
    """Return the settings of a job.

    Parameters
    ----------
    needs : Needs
    maps : int
        Map tasks at least, as far as lines can be cut; every block of HDFS has its own.
    reduces : int
    replication : int, optional
        Of what the job writes, where it is an intermediate.
    """
    heap = HEAP_MB + -(-4 * needs.record // MIB)
    out = {s.name: s.value for table in (START_UP, READING, LOSSES) for s in table}
    out |= {
        "mapreduce.job.maps": str(maps),
        "mapreduce.job.reduces": str(reduces),
        "mapreduce.map.memory.mb": str(_container(heap + SORT_MB, needs.map)),
        "mapreduce.map.java.opts": f"{TASK_JVM} -Xmx{heap + SORT_MB}m",
        "mapreduce.task.io.sort.mb": str(SORT_MB),
    }
    if reduces:
        out |= {
            "mapreduce.reduce.memory.mb": str(_container(2 * heap, needs.reduce)),
            "mapreduce.reduce.java.opts": f"{TASK_JVM} -Xmx{2 * heap}m",
        }
    if replication is not None:
        out["dfs.replication"] = str(replication)
    return out


def passes_ahead(settings, width: int | None, sparse: bool, rows: int) -> list:
    """Return the passes of a run with arrays of the shapes that its settings tell, and nothing in them.

    Parameters
    ----------
    settings : apnc.settings.Settings
    width : int or None
    sparse : bool
    rows : int
        Of the input, about and on the low side.
    """
    import numpy as np

    from apnc.coefficients import CoefficientsFold
    from apnc.embed import EmbedMap
    from apnc.embeddings.base import KernelEmbedding, LinearEmbedding
    from apnc.embeddings.methods import make_method, split_evenly
    from apnc.embeddings.neighbour import NeighbourEmbedding
    from apnc.embeddings.views import NodeView
    from apnc.kmeans import AssignMap, KMeansFold
    from apnc.moments import MomentsFold

    def empty(*shape):
        return np.broadcast_to(np.float64(0), shape)

    more, method = [], make_method(settings.method)
    l, m = _landmarks_and_dim(settings, width, rows)
    q, k = min(settings.blocks, max(1, l)), min(settings.k, _at_most(rows))
    if l:
        sizes = zip(split_evenly(l, q), split_evenly(m, q), strict=True)
        # how much of a sparse row is there is not known
        blocks = [(empty(l_b, 0 if sparse else width or 0), empty(m_b, l_b)) for l_b, m_b in sizes]
        embedding = KernelEmbedding(None, *zip(*blocks, strict=True))
    elif hasattr(method, "searches"):
        p = min(settings.representatives, _at_most(rows))
        sets = [empty(p, width or 1)] * method.searches(settings)
        embedding = NeighbourEmbedding(sets, min(settings.neighbours, p), settings.dtype)
        more = [MomentsFold(NodeView(p, 1.0, searches=len(sets)))]
    else:
        embedding = LinearEmbedding(empty(m))
    centroids = empty(settings.runs, k, m)
    embed = EmbedMap(embedding, None, width, sparse)
    return [CoefficientsFold(settings, 0, width), embed, *more, KMeansFold(centroids), AssignMap(centroids[0])]


CONTAINERS = (
    ("mapreduce.map.memory.mb", "a map task"),
    ("mapreduce.reduce.memory.mb", "a reduce task"),
    ("yarn.app.mapreduce.am.resource.mb", "the job's master"),
)
# what makes tasks of a stage large
LOWER = {
    "sample": "lower --sample",
    "coefficients": "lower --landmarks, --dim, --representatives or --sample",
    "moments": "lower --landmarks or --representatives",
    "embed": "lower --landmarks, --dim or --representatives, or raise --blocks",
    "kmeans": "lower -k or --dim",
    "assign": "lower -k or --dim",
    "predict": "use a model of fewer landmarks and dimensions, or of more blocks",
}


def check_containers(stage: str, settings: dict, given: dict, largest: int | None) -> None:
    """Refuse a job of which a container would be larger than any that the cluster gives.

    Parameters
    ----------
    stage : str
    settings : dict
        Of the job.
    given : dict
        Those of them that are the user's.
    largest : int or None
        MiB; None where it is not known.

    Raises
    ------
    InputError
        Naming what is asked for, the largest, and what to lower.
    """
    for name, whose in CONTAINERS:
        asked = settings.get(name, "")
        if largest is None or not asked.isdigit() or int(asked) <= largest:
            continue
        if name in given:
            raise InputError(f"--jobconf {name}={asked}: this cluster gives a container {largest} MiB at most")
        lower = LOWER[stage] if name.startswith("mapreduce.") else f"lower it with --jobconf {name}={largest}"
        raise InputError(
            f"{stage}: {whose} would need {asked} MiB of memory, this cluster gives a container {largest} at most; "
            f"{lower}"
        )


def _container(heap_mb, python_bytes):
    whole = JVM_MB + heap_mb + PYTHON_MB + -(-python_bytes // MIB)
    return -(-whole // MEMORY_STEP_MB) * MEMORY_STEP_MB


def map_tasks(total_bytes: int, slots: int, wanted: int | None = None) -> int:
    """Return how many map tasks to ask for: enough to use the cluster, none with less than is worth a start."""
    if wanted:
        return wanted
    return max(1, -(-total_bytes // UNIT_BYTES), min(slots, total_bytes // BYTES_PER_MAP))


def reduce_tasks(step, maps: int, slots: int) -> int:
    """Return the reducers of a pass: one, more where sums have many parts and all maps' together are large."""
    parts = size = 0
    for member in getattr(step, "members", [step]):
        if member.stage == "moments":
            size += 8 * member.view.width ** (2 if member.second else 1) * 4 // 3
            parts += -(-member.view.width // member.stripe) if member.second else 1
        else:
            runs, k, m = member.centroids.shape
            of_run = k * (m + 1) * 8 * 4 // 3
            size += runs * of_run
            parts += runs * -(-of_run // PART_BYTES)
    return max(1, min(parts, slots, -(-maps * size // REDUCER_BYTES)))


def parsed_jobconf(pairs) -> dict[str, str]:
    """Return the NAME=VALUE pairs of ``--jobconf`` as a dict; later ones count.

    Raises
    ------
    InputError
        If one is no such pair.
    """
    out = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise InputError(f"--jobconf {pair}: NAME=VALUE is needed, such as mapreduce.map.memory.mb=2048")
        out[name.strip()] = value
    return out

"""Every setting of Hadoop's that a pass is run with: its value, and why. ``--jobconf NAME=VALUE`` overrides any.

What does not depend on the pass stands in the tables, with its reason; memory, tasks and the like are computed from
block size, d, l, m, k and the sizes of the input by `settings_for`. Nothing here talks to a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    Setting(
        "mapreduce.task.timeout",
        "1200000",
        "tasks say that they live twice a minute; one that is silent for 20 minutes is stuck",
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


def needs_of(step, row_bytes: float) -> Needs:
    """Return the memory that tasks of a pass need: a function of block size, d, l, m, k and the number of runs.

    Parameters
    ----------
    step : Fold or Map
    row_bytes : float
        About how much text or file a row takes, for what is sparse.
    """
    return (_several if hasattr(step, "members") else _NEEDS[step.stage])(step, row_bytes)


def _rows_read(rows, width, row_bytes):
    """Blocks of rows as they are read: text of a chunk several times over, numbers in float64, once more scaled."""
    text = 6 * max(4 * MIB, 2 * row_bytes)
    row = 8 * width if width else 4 * row_bytes
    return text + 3 * rows * min(row, max(8 * (width or 0), 16 * row_bytes))


def _sample(step, row_bytes):
    row = 8 * step.width if step.width else 4 * row_bytes
    kept = (step.size + 4096) * row
    sealed = step.size * row * 4 / 3
    in_map = _rows_read(step.rows_per_block(), step.width, row_bytes) + 2 * kept + 2 * sealed
    in_reduce = 3 * kept + 2 * sealed
    settings = getattr(step, "settings", None)
    if settings is not None:
        l, k, runs = settings.landmarks, settings.k, settings.restarts
        m = settings.dim or max(l, 500)
        block = -(-l // settings.blocks)
        # K_LL with its eigenvectors and their workspace; R and L, packed; the embedded sample, seeding
        in_reduce += 8 * 8 * block * block + 4 * 8 * (m * block + l * row / 8)
        in_reduce += 3 * 8 * step.size * m + 8 * step.size * (k + 16) + 4 * 8 * runs * k * m
    return Needs(int(in_map), int(in_reduce), int(min(sealed, 64 * MIB)))


def _embed(step, row_bytes, rows=None):
    embedding, rows = step.embedding, rows or step.rows_per_block()
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


def _several(step, row_bytes):
    """One member after the other, over blocks of the widest; what all are made of is there at once."""
    needs = [needs_of(member, row_bytes) for member in step.members]
    arrays = sum(view_bytes(member.view) for member in step.members)
    return Needs(max(n.map for n in needs) + 2 * arrays, max(n.reduce for n in needs), max(n.record for n in needs))


def _moments(step, row_bytes):
    p, rows = step.view.width, step.rows_per_block()
    matrix = 8 * p * p if step.second else 8 * p
    stripe = 8 * step.stripe * p
    work = 3 * view_bytes(step.view) + 2 * matrix + 3 * stripe + rows * 8 * (3 * min(p, 8192) + 3 * step.view.widest)
    if step.embed is not None:
        work += _embed(step.embed, row_bytes, rows).map
    return Needs(int(work + 4 * 8 * MIB), int(8 * stripe), int(4 * stripe / 3))


def _kmeans(step, row_bytes):
    runs, k, m = step.centroids.shape
    rows = step.rows_per_block()
    centroids = runs * k * m * 8
    work = rows * (4 * 8 * m + 3 * 8 * runs * k) + 3 * view_bytes(step.view)
    if step.view is not None:
        work += 3 * 8 * rows * step.view.widest
    return Needs(int(6 * centroids + work + 4 * 8 * MIB), int(8 * PART_BYTES + 4 * 8 * k * m), 2 * PART_BYTES)


def _assign(step, row_bytes):
    k, m = step.centroids.shape
    rows = step.rows_per_block()
    work = 3 * 8 * k * m + rows * (4 * 8 * m + 3 * 8 * k + 512) + 3 * view_bytes(step.view)
    if step.view is not None:
        work += 3 * 8 * rows * step.view.widest
    return Needs(int(work + 4 * 8 * MIB), 0, 4 * MIB)


def _predict(step, row_bytes):
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

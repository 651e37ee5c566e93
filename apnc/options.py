"""Options that commands and jobs share: how the input is read, the embedding, k-means.

Functions that add options take anything with `argparse`'s ``add_argument_group``, mrjob's own parser included.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from apnc.errors import InputError
from apnc.kernels import nearest_name
from apnc.readers.detect import describe
from apnc.readers.files import is_remote
from apnc.runs import explained
from apnc.settings import Settings

INPUT_OPTIONS = ("format", "delimiter", "decimal", "header", "label_column", "id_column", "index_base", "width")
NOT_OPTIONS = {"kernel_params", "init", "init_rows", "dtype"}


def add_input(parser):
    """Add the options that say how the input is read."""
    group = parser.add_argument_group("how to read the input")
    group.add_argument("--format", default="auto", metavar="NAME", help="auto (default), csv, svmlight or npy")
    group.add_argument(
        "--delimiter", default="auto", metavar="C", help="csv: a character, comma, tab, semicolon, space"
    )
    group.add_argument("--decimal", default=".", metavar="C", help="csv: decimal sign, '.' (default) or ','")
    group.add_argument("--header", default="auto", metavar="WHEN", help="csv: auto (default), yes or no")
    group.add_argument(
        "--label-column", metavar="COLUMN", help="known classes, used for scores only: last, N or a name"
    )
    group.add_argument("--id-column", metavar="COLUMN", help="names of rows, written beside their label")
    group.add_argument("--index-base", default="auto", metavar="N", help="svmlight: auto (default), 0 or 1")
    group.add_argument("--width", type=int, metavar="D", help="number of features, where it is known")


def add_sampling(parser):
    """Add the options of the sample."""
    group = parser.add_argument_group("the sample")
    group.add_argument("--sample", type=int, metavar="N", help="rows of the sample (10000)")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="0 by default; same seed, same result")
    add_bad_rows(group)


def add_bad_rows(parser):
    """Add the option that says what becomes of rows that cannot be used."""
    parser.add_argument("--on-bad-row", default="fail", metavar="WHAT", help="fail (default) or skip")


def add_method(parser, several=True):
    """Add the options of the embedding; ``several`` values may follow one --kernel-params, unless inputs may too."""
    group = parser.add_argument_group("the embedding")
    group.add_argument("--method", default="nystrom", metavar="NAME", help="see apnc methods; nystrom by default")
    group.add_argument("--kernel", default="rbf", metavar="NAME", help="see apnc kernels; rbf by default")
    group.add_argument(
        "--kernel-params",
        **({"nargs": "+", "action": "extend"} if several else {"action": "append"}),
        default=[],
        metavar="NAME=VALUE",
        help="such as sigma=auto, sigma=auto*0.2, gamma=0.5, degree=5; repeatable",
    )
    group.add_argument("--landmarks", type=int, default=500, metavar="L", help="l, over all blocks (500)")
    group.add_argument("--landmark-selection", default="uniform", metavar="NAME", help="uniform")
    group.add_argument(
        "--dim", type=int, metavar="M", help="m, over all blocks (nystrom: rank, 500 at most; stable: 1000)"
    )
    group.add_argument("--blocks", type=int, default=1, metavar="Q", help="q blocks of landmarks and coefficients (1)")
    group.add_argument(
        "--t-share", type=float, default=0.4, metavar="T", help="stable: share of landmarks in a draw (0.4)"
    )
    group.add_argument("--scale", default="none", metavar="HOW", help="none (default), unit, standard or minmax")


def add_graph(parser):
    """Add the options of the methods that rotate an embedding or cut a graph."""
    group = parser.add_argument_group("rotations and graphs")
    group.add_argument("--whiten", action="store_true", help="give the columns of a rotated embedding equal weight")
    group.add_argument(
        "--unit-rows", action=argparse.BooleanOptionalAction, help="give the rows of a rotated embedding length one"
    )
    group.add_argument("--representatives", type=int, default=1000, metavar="P", help="uspec, usenc: p (1000)")
    group.add_argument("--neighbours", type=int, default=5, metavar="K", help="nearest representatives of a row (5)")
    group.add_argument(
        "--neighbour-search", default="exact", metavar="HOW", help="exact (default), or approximate for large p"
    )
    group.add_argument("--base-clusterings", type=int, default=20, metavar="M", help="usenc: M (20)")
    group.add_argument("--k-min", type=int, default=20, metavar="K", help="usenc: fewest clusters of one of them (20)")
    group.add_argument("--k-max", type=int, default=60, metavar="K", help="usenc: most clusters of one of them (60)")


def add_kmeans(parser, k_required=True):
    """Add the options of k-means."""
    group = parser.add_argument_group("k-means")
    if k_required:
        group.add_argument("-k", type=int, required=True, metavar="K", help="number of clusters")
    else:
        group.add_argument("-k", type=int, default=Settings.k, metavar="K", help=f"number of clusters ({Settings.k})")
    group.add_argument("--passes", type=int, default=20, metavar="N", help="full passes at most (20)")
    group.add_argument(
        "--tol", type=float, metavar="X", help="relative gain that ends the passes (1e-4; 0 with random)"
    )
    group.add_argument("--restarts", type=int, default=10, metavar="R", help="starts tried on the sample (10)")
    group.add_argument("--full-restarts", action="store_true", help="carry all starts through the full passes")
    group.add_argument("--init", default="sample", metavar="HOW", help="sample (default), random, or a FILE of K rows")


def add_runner(parser):
    """Add the options that say where passes run."""
    group = parser.add_argument_group("where it runs")
    group.add_argument(
        "--runner", default="in-process", metavar="NAME", help="in-process (default), inline, local or hadoop"
    )
    group.add_argument("--splits", type=int, metavar="N", help="number of map tasks, unless in-process")
    group.add_argument(
        "--memory", type=int, default=256, metavar="MIB", help="in-process: embedding kept in memory (256)"
    )
    group = parser.add_argument_group("on a Hadoop cluster")
    group.add_argument("--hadoop-bin", metavar="FILE", help="the hadoop command (on PATH or in HADOOP_HOME)")
    group.add_argument("--streaming-jar", metavar="FILE", help="Hadoop's streaming jar (where distributions have it)")
    group.add_argument("--python-bin", default="python3", metavar="FILE", help="the interpreter on the nodes (python3)")
    group.add_argument("--env", metavar="ARCHIVE", help="packages for the nodes, made by apnc pack-env; or hdfs://…")
    group.add_argument(
        "--jobconf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Hadoop's; repeatable"
    )
    group.add_argument("--work-dir", metavar="URI", help="folder on HDFS for the run's files (tmp/apnc)")
    group.add_argument(
        "--intermediate-replication", type=int, metavar="N", help="copies of each block of the embedding (2)"
    )


def add_collect(parser):
    """Add the option that brings labels home."""
    parser.add_argument(
        "--collect", action="store_true", help="hadoop: bring labels.csv home, else labels stay on HDFS"
    )


def engine_for(options, data, folder, embedding=None, state=None):
    """Return the engine that parsed options name.

    Parameters
    ----------
    options : namespace
    data : Input
    folder : path-like
        For what the engine keeps while it runs.
    embedding : path-like, optional
        Folder in which the embedding is kept for later commands.
    state : path-like, optional
        File that tells where on a cluster the run is, so that it can be gone on with.
    """
    for name, least in (("splits", 1), ("memory", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise InputError(f"--{name} {value} must be at least {least}")
    if options.runner == "hadoop":
        from apnc.engines.hadoop import HadoopEngine

        return HadoopEngine(data, hadoop_options(options), options.splits, state, keep=embedding is not None)
    if options.runner == "in-process":
        from apnc.engines.in_process import InProcessEngine

        return InProcessEngine(data, options.memory << 20, folder, embedding=embedding)
    if options.runner not in ("inline", "local"):
        raise nearest_name("runner", options.runner, ("in-process", "inline", "local", "hadoop"))
    from apnc.engines.mapreduce import MapReduceEngine

    return MapReduceEngine(data, options.runner, folder, options.splits, embedding=embedding)


def hadoop_options(options):
    """Return what parsed options say about a cluster."""
    from apnc.hadoop_settings import parsed_jobconf
    from mr_jobs.cluster import HadoopOptions

    for name in ("splits", "intermediate_replication"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value} must be at least 1")
    return HadoopOptions(
        options.hadoop_bin,
        options.streaming_jar,
        options.python_bin,
        parsed_jobconf(options.jobconf),
        options.work_dir,
        options.intermediate_replication,
        env=options.env,
    )


def described_input(options, inputs=None):
    """Return the input that parsed options name, or the one given, read as they say."""
    return describe(
        options.inputs if inputs is None else inputs, **{name: getattr(options, name) for name in INPUT_OPTIONS}
    )


def settings_from(options) -> Settings:
    """Return the checked settings in parsed options; what they lack has its default. Warn of what has no effect.

    Raises
    ------
    InputError
        Naming the option, the value and the rule.
    """
    names = [name for name in Settings().to_dict() if name not in NOT_OPTIONS and hasattr(options, name)]
    values = {name: getattr(options, name) for name in names}
    given = getattr(options, "kernel_params", ())
    values["kernel_params"] = dict(_name_and_value(pair) for text in given for pair in text.split() or [text])
    init = getattr(options, "init", "sample")
    if init in ("sample", "random"):
        values["init"] = init
    else:
        values |= {"init": "rows", "init_rows": _init_rows(init)}
    return Settings(**values).check().warn_of_unused()


def sample_settings(options) -> Settings:
    """Return the checked settings of a sample that is taken by itself, for coefficients of any size.

    Its rows are the ones asked for: later, landmarks and clusters may be as many as it has.
    """
    settings = settings_from(options)
    settings.k = settings.landmarks = 1
    return settings


def _name_and_value(text):
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InputError(f"--kernel-params {text}: NAME=VALUE is needed, such as sigma=2.5")
    return name, value


def _init_rows(path):
    if not path or not (is_remote(path) or Path(path).exists()):
        raise InputError(f"--init {path}: there is no such file; sample, random or a file of K rows is needed")
    try:
        data = describe([path])
    except InputError as error:
        raise InputError(f"--init {error}") from None
    rows = []
    for unit in data.units(1 << 20):
        for block in data.blocks(unit, 1 << 14):
            if block.rules:
                raise InputError(f"--init {explained(block.problems, block.rules, data)}")
            rows += (block.x.toarray() if data.spec.sparse else block.x).tolist()
    if data.spec.sparse:  # a block is as wide as it needs to be
        width = max(map(len, rows), default=0)
        rows = [row + [0.0] * (width - len(row)) for row in rows]
    return rows

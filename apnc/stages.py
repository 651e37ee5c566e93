"""One command per stage, over a folder that holds what the whole run writes.

sample → sample.npz · coefficients → model.npz · embed → embedding/ · kmeans → model.npz · assign → labels/ ·
collect → labels.csv; with some methods moments → model.npz, before or after embed. Each reads what the ones before it
wrote, so that another method, width or k needs no new sample, and each writes by rename. One at a time has the folder.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from pathlib import Path

from apnc import options as opts
from apnc import runs, shards
from apnc.coefficients import BadRows, build_model, check_sample
from apnc.embed import EmbedMap
from apnc.errors import InputError
from apnc.kmeans import AssignMap
from apnc.labels import LabelWriter
from apnc.model import Model, load_npz, save_npz
from apnc.pipeline import Run, take_sample, train
from apnc.progress import listener_for
from apnc.readers.detect import Input, describe
from apnc.sampling import Sample

INPUT, SAMPLE, MODEL, EMBEDDING, SHARDS = "input.json", "sample.npz", "model.npz", "embedding", "labels"
CLUSTER, ELSEWHERE = "hadoop.json", "hdfs.json"  # where the run is on a cluster; where its labels are


def _alone(stage):
    """Let a stage have the folder of its options for itself."""

    @wraps(stage)
    def run(options, *others):
        with runs.alone(options.folder):
            stage(options, *others)

    return run


def _folder(parser):
    parser.add_argument("folder", metavar="DIR", help="folder of the run")


def _sample_arguments(parser):
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="files or folders: csv, svmlight, npy; .gz, .bz2")
    parser.add_argument("-o", "--output", dest="folder", required=True, metavar="DIR", help="folder of the run")


def sample(options) -> None:
    """Take the sample, and note down what the input is."""
    settings = opts.sample_settings(options)
    data = opts.described_input(options)
    folder = Path(options.folder)
    run = Run(settings, data.estimated_rows(), data.spec.width)
    if (folder / runs.REPORT).exists() and not (folder / INPUT).exists():
        raise InputError(f"-o {folder}: holds the result of apnc cluster; choose another folder")
    _make(folder)
    _take_sample(options, run, data)


@_alone
def _take_sample(options, run, data):
    folder, settings = Path(options.folder), run.settings
    with _listening(data) as listener, _engine(options, data, folder) as engine:
        listener.stage("sample")
        taken = take_sample(run, lambda fold: engine.fold(fold, listener))
    with _problems_of(data):
        check_sample(taken, settings)
    data.spec.width = taken.width
    given = {name: getattr(options, name) for name in opts.INPUT_OPTIONS} | {"width": taken.width}
    inputs = [path if "://" in path else os.path.abspath(path) for path in options.inputs]
    noted = {"inputs": inputs, "options": given, "on_bad_row": settings.on_bad_row, "seed": settings.seed}
    _forget(folder, MODEL, EMBEDDING, SHARDS, runs.LABELS, runs.REPORT)
    _write(folder / INPUT, noted | {"spec": asdict(data.spec), "files": data.fingerprint()})
    save_npz(folder / SAMPLE, taken.to_dict())
    print(f"{taken.x.shape[0]} of {taken.count} rows sampled: {folder / SAMPLE}")


@_alone
def coefficients(options) -> None:
    """Make landmarks, coefficients and start centroids from the sample."""
    folder = Path(options.folder)
    noted = _noted(folder)
    options.seed, options.on_bad_row = noted["seed"], noted["on_bad_row"]
    try:
        taken = Sample.from_dict(load_npz(folder / SAMPLE, "sample"))
    except KeyError as error:
        raise InputError(f"{folder / SAMPLE}: not a sample file written by apnc ({error} is missing)") from None
    model = build_model(taken, opts.settings_from(options))
    model.facts["index_base"] = noted["spec"]["index_base"]
    _forget(folder, EMBEDDING, SHARDS, runs.LABELS, runs.REPORT)
    model.save(folder / MODEL, with_sample=True)
    print(f"{model.settings.method}, {model.facts['dim']} dimensions: {folder / MODEL}")


@_alone
def embed(options) -> None:
    """Embed every row, once."""
    folder, data = Path(options.folder), _input(options.folder)
    model = _model(folder)
    _check_next(folder, Run(model.settings, model.rows, model.width, model=model), "embed")
    with _listening(data) as listener, _engine(options, data, folder) as engine:
        listener.stage("embed")
        engine.embed(EmbedMap.of(model), listener)
        where = engine.place(EMBEDDING) if engine.keeps_labels else folder / EMBEDDING
    print(f"rows embedded: {where}")


@_alone
def moments(options) -> None:
    """Run the moments passes that come next, for a method that has some."""
    folder, data = Path(options.folder), _input(options.folder)
    model = _model(folder)
    run = Run(model.settings, model.rows, model.width, model=model)
    with _listening(data) as listener, _engine(options, data, folder) as engine:
        run.embedded = engine.embedded if engine.keeps_labels else (folder / EMBEDDING).exists()
        _check_next(folder, run, "moments")
        listener.finished = lambda run, _: run.model.save(folder / MODEL, with_sample=True)
        train(run, engine, listener, ("moments",))
    print(f"{_next(run)}: {folder / MODEL}")


@_alone
def kmeans(options) -> None:
    """Run k-means passes over the embedding until they are over."""
    folder, data = Path(options.folder), _input(options.folder)
    model = _model(folder)
    if model.sample is None and model.stored is None:
        raise InputError(f"{folder / MODEL}: has no sample, which passes need; run apnc coefficients")
    for name in ("passes", "tol"):
        if getattr(options, name) is not None:
            setattr(model.settings, name, getattr(options, name))
    model.settings.check()
    if model.done:
        raise InputError(
            f"{folder / MODEL}: its passes are over ({model.status}); run apnc coefficients to start again"
        )
    run = Run(model.settings, model.rows, model.width, model=model, embedded=True)
    _check_next(folder, run, "kmeans")
    with _listening(data) as listener, _engine(options, data, folder, embedded=True) as engine:
        listener.finished = lambda run, _: run.model.save(folder / MODEL, with_sample=True)
        train(run, engine, listener, ("kmeans",))
    if not model.started:
        print(f"{_next(run)}: {folder / MODEL}")
        return
    print(
        f"{len(model.passes)} passes, {model.status}, objective {model.passes[-1]['objective']:.8g}: {folder / MODEL}"
    )


@_alone
def assign(options) -> None:
    """Find the cluster of every row."""
    folder, data = Path(options.folder), _input(options.folder)
    model = _finished(folder)
    partial = folder / f".{SHARDS}.partial"
    with _listening(data) as listener, _engine(options, data, folder, embedded=True) as engine:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        engine.embedded_by(EmbedMap.of(model))
        listener.stage("assign")
        step = AssignMap.of(model)
        if engine.keeps_labels:
            where = engine.keep_labels(step, listener)[1]
            _write(partial / ELSEWHERE, {"labels": where})
        else:
            where = folder / SHARDS
            with open(partial / "part-00000", "wb") as file:
                for block in engine.labels(step, listener):
                    file.write(shards.encode(block) + b"\n")
    shutil.rmtree(folder / SHARDS, ignore_errors=True)
    partial.rename(folder / SHARDS)
    print(f"labels of blocks: {where}")


@_alone
def collect(options) -> None:
    """Put the labels of all blocks into one file, in the order of the input."""
    folder, data = Path(options.folder), _input(options.folder)
    model = _finished(folder)
    paths = _shards(_there(folder / SHARDS, "assign"))
    ids, labels = data.spec.id_column is not None, data.spec.label_column is not None
    partial = folder / f".{runs.LABELS}.partial"
    try:
        with open(partial, "wb") as file:
            writer = LabelWriter(file, ids, model.dtype)
            for block in shards.read(paths, data.spec.sources, ids, labels):
                writer.write(block)
        if writer.rules and model.settings.on_bad_row == "fail":
            raise InputError(runs.explained(writer.problems, writer.rules, data))
        partial.replace(folder / runs.LABELS)
    finally:
        partial.unlink(missing_ok=True)
    run = Run(model.settings, model.rows, model.width, model=model)
    facts = writer.facts()
    _write(folder / runs.REPORT, runs.report(run, data, facts))
    print(f"{writer.rows} rows: {folder / runs.LABELS}")


def _kmeans_arguments(parser):
    parser.add_argument("--passes", type=int, metavar="N", help="full passes at most (as given to coefficients)")
    parser.add_argument("--tol", type=float, metavar="X", help="relative gain that ends the passes")


COMMANDS = (
    (
        "sample",
        sample,
        "take the sample of the input",
        _sample_arguments,
        opts.add_input,
        opts.add_sampling,
        opts.add_runner,
    ),
    (
        "coefficients",
        coefficients,
        "make a model from the sample",
        _folder,
        opts.add_method,
        opts.add_graph,
        opts.add_kmeans,
    ),
    ("moments", moments, "run the moments passes of methods that have some", _folder, opts.add_runner),
    ("embed", embed, "embed every row", _folder, opts.add_runner),
    ("kmeans", kmeans, "run the k-means passes", _folder, _kmeans_arguments, opts.add_runner),
    ("assign", assign, "find the cluster of every row", _folder, opts.add_runner),
    ("collect", collect, "put all labels into labels.csv", _folder),
)


def _make(folder):
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {folder}: cannot make the folder ({error.strerror})") from None


def _noted(folder) -> dict:
    path = Path(folder) / INPUT
    if not path.exists():
        raise InputError(f"{folder}: no {INPUT} in it; run apnc sample first")
    try:
        noted = json.loads(path.read_text())
        return {name: noted[name] for name in ("inputs", "options", "on_bad_row", "seed", "spec", "files")}
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{path}: not written by apnc sample; run it again") from None


def _forget(folder, *names):
    """Remove what was made of an earlier sample or model, so that no stage takes it for its own."""
    for name in names:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _model(folder) -> Model:
    return Model.load(_there(folder / MODEL, "coefficients"))


def _input(folder) -> Input:
    """Return the input that the sample was taken of."""
    noted = _noted(folder)
    data = describe(noted["inputs"], **noted["options"])
    if data.fingerprint() != noted["files"]:
        raise InputError(f"{folder}: the input has changed since the sample was taken; run apnc sample again")
    return data


def _finished(folder) -> Model:
    model = _model(folder)
    if not model.done:
        raise InputError(f"{folder / MODEL}: its k-means passes are not over; run apnc kmeans")
    return model


def _check_next(folder, run, stage):
    """Raise InputError, naming the command to run, if the model's next pass is of another stage."""
    step = run.next_pass()
    if step is not None and step.stage != stage and not (stage == "embed" and run.model.started):
        raise InputError(f"{folder / MODEL}: {_next(run)}")


def _next(run):
    step = run.next_pass()
    return "its passes are over" if step is None else f"its next stage is apnc {step.stage}"


def _engine(options, data, folder, embedded=False):
    """Return the engine of a stage; with ``embedded``, one that has the embedding which a stage before left."""
    if embedded and options.runner != "hadoop":
        _there(folder / EMBEDDING, "embed")
    engine = opts.engine_for(options, data, folder, folder / EMBEDDING, folder / CLUSTER)
    if embedded and options.runner == "hadoop" and not engine.embedded:
        with engine:
            raise InputError(f"{folder}: there is no embedding on HDFS; run apnc embed --runner hadoop first")
    return engine


def _shards(folder):
    """Return the shards of labels in a folder, or those on HDFS of which it tells."""
    if not (folder / ELSEWHERE).exists():
        return sorted(folder.glob("part-*"))
    from apnc import hdfs

    uri = json.loads((folder / ELSEWHERE).read_text())["labels"]
    where, path = hdfs.split(uri)
    found = hdfs.connect(where).list(path)
    return [where + status.path for status in found if status.name.startswith("part-") and status.size]


def _there(path, stage):
    if not path.exists():
        raise InputError(f"there is no {path}; run apnc {stage} first")
    return path


@contextmanager
def _listening(data):
    with listener_for(data.estimated_rows()) as listener, _problems_of(data):
        yield listener


@contextmanager
def _problems_of(data):
    try:
        yield
    except BadRows as error:
        raise InputError(runs.explained(error.problems, error.rules, data)) from None


def _write(path, values):
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(values, indent=2) + "\n")
    partial.replace(path)

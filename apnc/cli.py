"""The command line: arguments in, one exit status out."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import warnings
from pathlib import Path

import apnc
from apnc.errors import ApncError, InputError

DESCRIPTION = """\
Cluster data too large or too tangled for plain k-means: a small embedding
y = R κ(L, x) is learned from a sample, applied once to every row, and clustered
in passes that exchange only sums and counts ("Embed and Conquer", 2014).

  apnc cluster data.csv -k 10 -o out          labels, model and figures in out/
  apnc predict out/model.npz new.csv -o new-labels.csv
  apnc evaluate out/labels.csv classes.txt    NMI, ARI, accuracy, purity
"""
EXIT_STATUS = "Exit status: 0 done; 2 bad arguments or input; 3 a stage failed; 130 or 143 interrupted."


class _Parser(argparse.ArgumentParser):
    """argparse with its errors on one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class _Terminated(BaseException):
    """SIGTERM, raised in the main thread so that everything is tidied on the way out."""


def main(argv=None) -> int:
    """Run one command and return its exit status.

    Parameters
    ----------
    argv : list of str, optional
        The process's own arguments by default.

    Returns
    -------
    int
        0 done; 2 bad arguments or input; 3 a stage failed; 130 or 143 interrupted.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    previous = signal.getsignal(signal.SIGTERM)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _tell(f"warning: {message}")
        warnings.simplefilter("ignore")
        warnings.filterwarnings("once", category=UserWarning, module="apnc")
        try:
            signal.signal(signal.SIGTERM, _raise_terminated)
            arguments.run(arguments)
            return 0
        except ApncError as error:
            _tell(f"apnc {arguments.command}: {error}")
            return error.exit_status
        except KeyboardInterrupt:
            return 130
        except _Terminated:
            return 143
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        finally:
            signal.signal(signal.SIGTERM, previous)


def _raise_terminated(*_):
    raise _Terminated


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser():
    parser = _Parser(
        prog="apnc", description=DESCRIPTION, epilog=EXIT_STATUS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"apnc {apnc.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name, run, help, *groups, **options):
        sub = commands.add_parser(name, help=help, description=options.pop("description", help), **options)
        sub.set_defaults(run=run)
        for group in groups:
            group(sub)
        return sub

    command(
        "cluster",
        _cluster,
        "cluster rows: the whole run, from files to labels",
        _input_arguments,
        _folder_arguments,
        _method_arguments,
        _kmeans_arguments,
        _runner_arguments,
        description="Cluster the rows of files. Writes labels.csv, model.npz and run.json to a new folder.",
        epilog=EXIT_STATUS,
    )
    predict = command("predict", _predict, "label new rows with a model", _model_argument, _input_arguments)
    predict.add_argument("-o", "--output", required=True, metavar="FILE", help="labels, as csv")
    predict.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    _runner_arguments(predict)
    evaluate = command("evaluate", _evaluate, "score labels against known classes")
    evaluate.add_argument("labels", metavar="LABELS", help="a labels.csv")
    evaluate.add_argument("truth", metavar="TRUTH", help="classes in the order of the rows: one per line, or .npy")
    command("methods", _methods, "list the methods")
    command("kernels", _kernels, "list the kernels and their parameters")
    return parser


def _model_argument(parser):
    parser.add_argument("model", metavar="MODEL", help="a model.npz")


def _input_arguments(parser):
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="files or folders: csv, svmlight, npy; .gz, .bz2")
    group = parser.add_argument_group("how to read the input")
    group.add_argument("--format", default="auto", metavar="NAME", help="auto (default), csv, svmlight or npy")
    group.add_argument("--delimiter", default="auto", metavar="C", help="csv: a character, comma, tab, semicolon, space")
    group.add_argument("--decimal", default=".", metavar="C", help="csv: decimal sign, '.' (default) or ','")
    group.add_argument("--header", default="auto", metavar="WHEN", help="csv: auto (default), yes or no")
    group.add_argument("--label-column", metavar="COLUMN", help="known classes, used for scores only: last, N or a name")
    group.add_argument("--id-column", metavar="COLUMN", help="names of rows, written beside their label")
    group.add_argument("--index-base", default="auto", metavar="N", help="svmlight: auto (default), 0 or 1")
    group.add_argument("--width", type=int, metavar="D", help="number of features, where it is known")
    group.add_argument("--on-bad-row", default="fail", metavar="WHAT", help="fail (default) or skip")


def _folder_arguments(parser):
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder for the results")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier result in DIR")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run into DIR")


def _method_arguments(parser):
    group = parser.add_argument_group("the embedding")
    group.add_argument("--method", default="nystrom", metavar="NAME", help="see apnc methods; nystrom by default")
    group.add_argument("--kernel", default="rbf", metavar="NAME", help="see apnc kernels; rbf by default")
    group.add_argument(
        "--kernel-params",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="such as sigma=auto, sigma=auto*0.2, gamma=0.5, degree=5",
    )
    group.add_argument("--landmarks", type=int, default=500, metavar="L", help="l, over all blocks (500)")
    group.add_argument("--landmark-selection", default="uniform", metavar="NAME", help="uniform")
    group.add_argument("--dim", type=int, metavar="M", help="m, over all blocks (nystrom: rank, 500 at most; stable: 1000)")
    group.add_argument("--blocks", type=int, default=1, metavar="Q", help="q blocks of landmarks and coefficients (1)")
    group.add_argument("--t-share", type=float, default=0.4, metavar="T", help="stable: share of landmarks in a draw (0.4)")
    group.add_argument("--scale", default="none", metavar="HOW", help="none (default), unit, standard or minmax")
    group.add_argument("--sample", type=int, metavar="N", help="rows of the sample (10000)")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="0 by default; same seed, same result")


def _kmeans_arguments(parser):
    group = parser.add_argument_group("k-means")
    group.add_argument("-k", type=int, required=True, metavar="K", help="number of clusters")
    group.add_argument("--passes", type=int, default=20, metavar="N", help="full passes at most (20)")
    group.add_argument("--tol", type=float, metavar="X", help="relative gain that ends the passes (1e-4; 0 with random)")
    group.add_argument("--restarts", type=int, default=10, metavar="R", help="starts tried on the sample (10)")
    group.add_argument("--full-restarts", action="store_true", help="carry all starts through the full passes")
    group.add_argument("--init", default="sample", metavar="HOW", help="sample (default), random, or a FILE of K rows")


def _runner_arguments(parser):
    group = parser.add_argument_group("where it runs")
    group.add_argument("--runner", default="in-process", metavar="NAME", help="in-process (default), inline or local")
    group.add_argument("--splits", type=int, metavar="N", help="inline, local: number of map tasks")
    group.add_argument("--memory", type=int, default=256, metavar="MIB", help="in-process: embedding kept in memory (256)")


def _describe(arguments):
    from apnc.readers.detect import describe

    names = ("format", "delimiter", "decimal", "header", "label_column", "id_column", "index_base", "width")
    return describe(arguments.inputs, **{name: getattr(arguments, name) for name in names})


def _settings(arguments):
    from apnc.settings import Settings

    names = (
        "k method kernel landmarks landmark_selection dim blocks t_share passes tol restarts full_restarts sample seed "
        "scale on_bad_row"
    ).split()
    values = {name: getattr(arguments, name) for name in names}
    values["kernel_params"] = dict(_name_and_value(text) for text in arguments.kernel_params)
    if arguments.init in ("sample", "random"):
        values["init"] = arguments.init
    else:
        values |= {"init": "rows", "init_rows": _init_rows(arguments.init)}
    return Settings(**values).check()


def _name_and_value(text):
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InputError(f"--kernel-params {text}: NAME=VALUE is needed, such as sigma=2.5")
    return name, value


def _init_rows(path):
    from apnc.readers.detect import describe
    from apnc.runs import explained

    if not Path(path).exists():
        raise InputError(f"--init {path}: there is no such file; sample, random or a file of K rows is needed")
    data = describe([path])
    rows = []
    for unit in data.units(1 << 20):
        for block in data.blocks(unit, 1 << 14):
            if block.rules:
                raise InputError(f"--init {explained(block.problems, block.rules, data)}")
            rows += (block.x.toarray() if data.spec.sparse else block.x).tolist()
    return rows


def _engine(arguments, data, folder):
    if arguments.runner == "in-process":
        from apnc.engines.in_process import InProcessEngine

        return InProcessEngine(data, arguments.memory << 20, folder)
    if arguments.runner not in ("inline", "local"):
        from apnc.kernels import nearest_name

        raise nearest_name("runner", arguments.runner, ("in-process", "inline", "local"))
    from apnc.engines.mapreduce import MapReduceEngine

    return MapReduceEngine(data, arguments.runner, folder, arguments.splits)


def _cluster(arguments):
    from apnc.coefficients import BadRows
    from apnc.pipeline import Run
    from apnc.runs import OutputFolder, explained

    settings = _settings(arguments)
    data = _describe(arguments)
    folder = OutputFolder(arguments.output, arguments.overwrite, arguments.resume)
    run = Run(settings, data.estimated_rows(), data.spec.width)
    try:
        folder.begin(run, data.fingerprint())
        with _engine(arguments, data, folder.partial) as engine:
            summary = _whole_run(run, data, engine, folder)
        folder.commit()
    except (KeyboardInterrupt, _Terminated):
        if run.model is None:
            folder.discard()
            _tell("interrupted; nothing was kept")
        else:
            _tell(f"interrupted; go on with --resume (what was reached is in {folder.partial})")
        raise
    except BadRows as error:
        folder.discard()
        raise InputError(explained(error.problems, error.rules, data)) from None
    except BaseException:
        folder.discard()
        raise
    for line in summary:
        print(line)
    print(f"labels: {arguments.output}/labels.csv   model: {arguments.output}/model.npz")


def _whole_run(run, data, engine, folder):
    """Train, label and write everything into the partial folder; return the lines that sum it up."""
    from apnc import runs
    from apnc.kmeans import AssignMap
    from apnc.labels import LabelWriter
    from apnc.pipeline import train
    from apnc.progress import listener_for

    with listener_for(data.estimated_rows()) as listener:
        tell = listener.finished

        def finished(run, stage):
            tell(run, stage)
            folder.checkpoint(run, stage)
            if stage == "coefficients" and run.model is not None:
                data.spec.width = run.model.width

        listener.finished = finished
        model = train(run, engine, listener)
        listener.stage("assign")
        with open(folder.partial / runs.LABELS, "wb") as file:
            writer = LabelWriter(file, data.spec.id_column is not None, model.embedding.dtype)
            for block in engine.labels(AssignMap(model.centroids[0], model.metric), listener):
                writer.write(block)
    if writer.rules and run.settings.on_bad_row == "fail":
        raise InputError(runs.explained(writer.problems, writer.rules, data))
    model.save(folder.partial / runs.MODEL)
    facts = {"objective": writer.squares, "cluster_sizes": writer.counts.tolist(), "bad_rows": dict(writer.rules)}
    if writer.contingency:
        from apnc.metrics import contingency_table, scores

        facts["scores"] = scores(contingency_table(writer.contingency))
    (folder.partial / runs.REPORT).write_text(json.dumps(runs.report(run, data, facts), indent=2) + "\n")
    return _summary(run, model, writer, facts)


def _summary(run, model, writer, facts):
    settings = run.settings
    occupied = int((writer.counts > 0).sum())
    if occupied < settings.k:
        _tell(f"warning: {settings.k - occupied} of {settings.k} clusters are empty: {occupied} hold all rows")
    zero = model.passes[-1]["zero_rows"]
    if zero and settings.method != "linear":
        _tell(
            f"warning: {zero} of {writer.rows} rows have no similarity to any landmark and cannot be told apart; "
            "choose a wider kernel, more landmarks, or scale the data"
        )
    if writer.rules:
        _tell(f"warning: {sum(writer.rules.values())} bad rows were skipped (counts per reason in run.json)")
    if model.status == "cap":
        _tell(f"not converged: the passes ended at their limit of {settings.passes}")
    yield f"{writer.rows} rows, {model.width} features, {occupied} clusters"
    if "kernel" in model.facts:
        from apnc.kernels import make_kernel

        kernel = make_kernel(model.facts["kernel"]["name"], model.facts["kernel"]["params"])
        dropped = sum(b["dropped"] for b in model.facts["blocks"])
        rank = sum(b["rank"] for b in model.facts["blocks"])
        yield (
            f"{settings.method}, kernel {kernel!r}, {model.facts['landmarks']} landmarks of rank {rank}"
            f" ({dropped} eigenvalues dropped), {model.facts['dim']} dimensions"
        )
    yield f"{len(model.passes)} full passes, objective {facts['objective']:.8g}"
    if "scores" in facts:
        yield _score_line(facts["scores"])


def _score_line(found):
    return (
        f"NMI {100 * found['nmi']:.2f} (geometric mean)   ARI {100 * found['ari']:.2f}   "
        f"accuracy {100 * found['accuracy']:.2f}   purity {100 * found['purity']:.2f}"
    )


def _predict(arguments):
    from apnc.embed import PredictMap
    from apnc.labels import LabelWriter
    from apnc.model import Model
    from apnc.progress import listener_for
    from apnc.runs import explained

    output = Path(arguments.output)
    if output.exists() and not arguments.overwrite:
        raise InputError(f"-o {output}: exists already; choose another file or add --overwrite")
    model = Model.load(arguments.model)
    data = _describe(arguments)
    if data.spec.width not in (None, model.width) and not data.spec.sparse:
        raise InputError(
            f"{arguments.inputs[0]}: rows have {data.spec.width} features, the model was trained on {model.width}"
        )
    data.spec.width = model.width
    partial = output.with_name(f".{output.name}.partial")
    try:
        with (
            open(partial, "wb") as file,
            listener_for(data.estimated_rows()) as listener,
            _engine(arguments, data, output.absolute().parent) as engine,
        ):
            writer = LabelWriter(file, data.spec.id_column is not None, model.embedding.dtype)
            listener.stage("predict")
            for block in engine.labels(PredictMap.of(model), listener):
                writer.write(block)
        if writer.rules and (arguments.on_bad_row == "fail" or any(p.fatal for p in writer.problems)):
            raise InputError(explained(writer.problems, writer.rules, data))
        os.replace(partial, output)
    except OSError as error:
        raise InputError(f"-o {output}: cannot be written ({error.strerror})") from None
    finally:
        partial.unlink(missing_ok=True)
    if writer.rules:
        _tell(f"warning: {sum(writer.rules.values())} bad rows were skipped")
    print(f"{writer.rows} rows labelled: {output}")
    if writer.contingency:
        from apnc.metrics import contingency_table, scores

        print(_score_line(scores(contingency_table(writer.contingency))))


def _evaluate(arguments):
    from apnc.labels import read_clusters
    from apnc.metrics import evaluate, read_truth

    print(_score_line(evaluate(read_clusters(arguments.labels), read_truth(arguments.truth))))


def _methods(arguments):
    from apnc.embeddings import METHODS

    for name, method in METHODS.items():
        print(f"{name:<10} {_first_line(method)}")


def _kernels(arguments):
    from apnc.kernels import KERNELS

    for name, kernel in KERNELS.items():
        print(f"{name:<10} {_first_line(kernel)}")
        if kernel.defaults:
            print(f"{'':<10} parameters: {', '.join(kernel.defaults)}")


def _first_line(documented):
    return documented.__doc__.strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())

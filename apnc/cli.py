"""The command line: arguments in, one exit status out."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import apnc
from apnc.errors import ApncError, InputError, StageError

DESCRIPTION = """\
Cluster data too large or too tangled for plain k-means: a small embedding
y = R κ(L, x) is learned from a sample, applied once to every row, and clustered
in passes that exchange only sums and counts ("Embed and Conquer", 2014).

  apnc cluster data.csv -k 10 -o out          labels, model and figures in out/
  apnc predict out/model.npz new.csv -o new-labels.csv
  apnc evaluate out/labels.csv classes.txt    NMI, ARI, accuracy, purity
"""
EXIT_STATUS = "Exit status: 0 done; 2 bad arguments or input; 3 a stage failed;\n130 or 143 interrupted."
DOCTOR_STATUS = (
    "Exit status: 0 all fine, warnings allowed; 2 something failed that options or\ninstallation decide; "
    "3 the cluster itself does not do its part."
)


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
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # κ and ℓ are more than some terminals have
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    name = "apnc"
    try:
        _on_signals(_quit if argv is None else _interrupt, previous)
        parser = _parser()  # which imports most of what there is
        _on_signals(_interrupt, previous)
        arguments = parser.parse_args(argv)
        name = f"apnc {arguments.command}"
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: _tell(f"warning: {message}")
            warnings.simplefilter("ignore")
            warnings.filterwarnings("once", category=UserWarning, module="apnc|mr_jobs")
            arguments.run(arguments)
        return 0
    except ApncError as error:
        _tell(f"{name}: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except _Terminated:
        return 143
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, MemoryError) as error:  # a full disk, an input that is gone
        _tell(f"{name}: {str(error) or type(error).__name__}")
        return StageError.exit_status
    finally:
        # an interrupted process is about to end: one more signal must not change its status
        if argv is not None or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _on_signals(handle, previous):
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, handle)


def _quit(number, _):
    # modules are being imported: nothing is there to be tidied up, and an exception might be lost in a callback of
    # the import system, or be taken by a library for a module that is missing
    os._exit(128 + number)


def _interrupt(number, _):
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)  # what follows is tidying up, which a second one must not break off
    raise KeyboardInterrupt if number == signal.SIGINT else _Terminated


def _tell(line: str) -> None:
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)


def _parser():
    from apnc import doctor, options, packing, stages

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
        _inputs_argument,
        options.add_input,
        _folder_arguments,
        options.add_sampling,
        options.add_method,
        options.add_graph,
        options.add_kmeans,
        options.add_runner,
        options.add_collect,
        description="Cluster the rows of files. Writes labels.csv, model.npz and run.json to a new folder.",
        epilog=EXIT_STATUS,
    )
    predict = command("predict", _predict, "label new rows with a model", _model_argument, _inputs_argument)
    predict.add_argument("-o", "--output", required=True, metavar="FILE", help="labels, as csv")
    predict.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    options.add_input(predict)
    options.add_bad_rows(predict)
    options.add_runner(predict)
    evaluate = command("evaluate", _evaluate, "score labels against known classes")
    evaluate.add_argument("labels", metavar="LABELS", help="a labels.csv")
    evaluate.add_argument("truth", metavar="TRUTH", help="classes in the order of the rows: one per line, or .npy")
    for name, run, help, *groups in stages.COMMANDS:
        command(name, run, help, *groups)
    command(
        "doctor",
        _doctor,
        "check that everything a run needs is there",
        doctor.add_arguments,
        options.add_input,
        options.add_method,
        _kmeans_arguments,
        options.add_runner,
        description="Check this machine, and with --runner hadoop the cluster and its nodes, by a tiny job.",
        epilog=DOCTOR_STATUS,
    )
    command(
        "pack-env",
        _pack_env,
        "make an archive of packages for nodes that have none",
        packing.add_arguments,
        description="Make one archive of the packages that tasks import, for --env. pip fetches them.",
    )
    command("methods", _methods, "list the methods")
    command("kernels", _kernels, "list the kernels and their parameters")
    return parser


def _inputs_argument(parser):
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="files or folders: csv, svmlight, npy; .gz, .bz2")


def _model_argument(parser):
    parser.add_argument("model", metavar="MODEL", help="a model.npz")


def _folder_arguments(parser):
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder for the results")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier result in DIR")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted run into DIR")


def _kmeans_arguments(parser):
    from apnc import options

    options.add_kmeans(parser, k_required=False)


def _cluster(arguments):
    from apnc import options
    from apnc.coefficients import BadRows
    from apnc.pipeline import Run
    from apnc.runs import OutputFolder, explained

    settings = options.settings_from(arguments)
    data = options.described_input(arguments)
    run = Run(settings, data.estimated_rows(), data.spec.width)
    folder = OutputFolder(arguments.output, arguments.overwrite, arguments.resume)
    try:
        folder.begin(run, data)
        with options.engine_for(arguments, data, folder.partial, state=folder.partial / "hadoop.json") as engine:
            run.embedded = run.model is not None and engine.embedded
            if run.model is not None:
                data.spec.width = run.model.width
            summary, labels = _whole_run(run, data, engine, folder, arguments.collect)
        replaced = folder.commit()
    except (KeyboardInterrupt, _Terminated):
        if folder.committed:
            _tell(f"interrupted; the result is in {folder.path}")
        elif folder.reached:
            _tell(f"interrupted; go on with --resume (what was reached is in {folder.partial})")
        else:
            folder.discard()
            _tell("interrupted; nothing was kept")
        raise
    except (StageError, OSError, MemoryError):
        if folder.reached:
            _tell(f"what was reached is kept in {folder.partial}; --resume goes on from there")
        else:
            folder.discard()
        raise
    except BadRows as error:
        folder.discard()
        raise InputError(explained(error.problems, error.rules, data)) from None
    except BaseException:
        if not arguments.resume:
            folder.discard()
        raise
    finally:
        folder.close()
    _remove_labels(replaced.get("labels"), labels)
    for line in summary:
        print(line)
    print(f"labels: {labels or f'{arguments.output}/labels.csv'}   model: {arguments.output}/model.npz")


def _remove_labels(replaced, ours):
    """Remove what a replaced run has left on HDFS, where the uri of its labels says."""
    if not isinstance(replaced, str) or replaced == ours:
        return
    from apnc.engines.hadoop import remove_labels

    try:
        remove_labels(replaced)
    except (ApncError, OSError) as error:
        _tell(f"warning: the labels of the run that was replaced are still on HDFS: {error}")


def _whole_run(run, data, engine, folder, collect):
    """Train, label and write everything into the partial folder.

    Returns the lines that sum it up, and where the labels are if they did not come home.
    """
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
        model.facts["index_base"] = data.spec.index_base
        listener.stage("assign")
        assign, labels = AssignMap.of(model), None
        if engine.keeps_labels and not collect:
            writer, labels = engine.keep_labels(assign, listener)
        else:
            with open(folder.partial / runs.LABELS, "wb") as file:
                writer = LabelWriter(file, data.spec.id_column is not None, model.dtype)
                for block in engine.labels(assign, listener):
                    writer.write(block)
    if writer.rules and run.settings.on_bad_row == "fail":
        raise InputError(runs.explained(writer.problems, writer.rules, data))
    if not writer.rows:
        raise InputError(runs.explained(writer.problems, writer.rules, data, "; no row is left"))
    model.save(folder.partial / runs.MODEL)
    facts = writer.facts() | ({"labels": labels} if labels else {}) | engine.report()
    (folder.partial / runs.REPORT).write_text(json.dumps(runs.report(run, data, facts), indent=2) + "\n")
    return _summary(run, model, writer, facts), labels


def _summary(run, model, writer, facts):
    from apnc.embeddings import make_method

    settings = run.settings
    occupied = int((writer.counts > 0).sum())
    if occupied < settings.k:
        _tell(f"warning: {settings.k - occupied} of {settings.k} clusters are empty: {occupied} hold all rows")
    if model.unplaced and settings.method != "linear":
        _tell(f"warning: {model.unplaced} of {writer.rows} rows {make_method(settings.method).without_place}")
    if writer.rules:
        _tell(f"warning: {sum(writer.rules.values())} bad rows were skipped (counts per reason in run.json)")
    if model.status == "cap":
        _tell(f"not converged: the passes ended at their limit of {settings.passes}")
    yield f"{writer.rows} rows, {model.width} features, {occupied} clusters"
    yield make_method(settings.method).summary(model.facts)
    plural = "" if len(model.passes) == 1 else "es"
    yield f"{len(model.passes)} full pass{plural}, objective {facts['objective']:.8g}"
    if "scores" in facts:
        yield _score_line(facts["scores"])


def _score_line(found):
    return (
        f"NMI {100 * found['nmi']:.2f} (geometric mean)   ARI {100 * found['ari']:.2f}   "
        f"accuracy {100 * found['accuracy']:.2f}   purity {100 * found['purity']:.2f}"
    )


def _predict(arguments):
    from apnc import options
    from apnc.embed import PredictMap
    from apnc.labels import LabelWriter
    from apnc.model import Model
    from apnc.progress import listener_for
    from apnc.runs import explained

    output = Path(arguments.output)
    try:
        taken, regular = output.exists(), output.is_file()
    except OSError as error:
        raise InputError(f"-o {output}: cannot be written ({error.strerror})") from None
    if taken and not regular:
        raise InputError(f"-o {output}: is not a file, and would be replaced by one")
    if taken and not arguments.overwrite:
        raise InputError(f"-o {output}: exists already; choose another file or add --overwrite")
    model = Model.load(arguments.model)
    if not model.done:
        raise InputError(f"{arguments.model}: its k-means passes are not over")
    if arguments.index_base == "auto" and "index_base" in model.facts:
        arguments.index_base = model.facts["index_base"]
    data = options.described_input(arguments)
    if data.spec.width not in (None, model.width) and not data.spec.sparse:
        raise InputError(
            f"{arguments.inputs[0]}: rows have {data.spec.width} features, the model was trained on {model.width}"
        )
    data.spec.width = model.width
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")  # another process may write the same
    try:
        with (
            open(partial, "wb") as file,
            listener_for(data.estimated_rows()) as listener,
            options.engine_for(arguments, data, output.absolute().parent) as engine,
        ):
            writer = LabelWriter(file, data.spec.id_column is not None, model.dtype)
            listener.stage("predict")
            for block in engine.labels(PredictMap.of(model), listener):
                writer.write(block)
        if writer.rules and (arguments.on_bad_row == "fail" or any(p.fatal for p in writer.problems)):
            raise InputError(explained(writer.problems, writer.rules, data))
        os.replace(partial, output)
    except OSError as error:
        raise InputError(f"-o {output}: cannot be written ({error.strerror})") from None
    finally:
        with suppress(OSError):
            partial.unlink()
    if writer.rules:
        _tell(f"warning: {sum(writer.rules.values())} bad rows were skipped")
    print(f"{writer.rows} rows labelled: {output}")
    facts = writer.facts()
    if "scores" in facts:
        print(_score_line(facts["scores"]))


def _evaluate(arguments):
    from apnc.labels import read_clusters
    from apnc.metrics import evaluate, read_truth

    print(_score_line(evaluate(read_clusters(arguments.labels), read_truth(arguments.truth))))


def _doctor(arguments):
    from apnc import doctor

    doctor.main(arguments)


def _pack_env(arguments):
    from apnc import packing

    packing.main(arguments)


def _methods(arguments):
    from apnc.embeddings import METHODS

    for name, method in METHODS.items():
        print(f"{name:<16} {_first_line(method)}")


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

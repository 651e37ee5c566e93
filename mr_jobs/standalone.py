"""The jobs' own command lines: ``python -m mr_jobs.NAME`` looks at the input, runs its pass and saves the result."""

from __future__ import annotations

import posixpath
import signal
import sys
import warnings
from pathlib import Path

import numpy as np

from apnc import hdfs
from apnc import options as opts
from apnc.coefficients import BadRows, CoefficientsFold, build_model, check_sample
from apnc.embed import EmbedMap
from apnc.errors import ApncError, InputError
from apnc.kmeans import best_run
from apnc.model import Model, load_npz, save_npz
from apnc.pipeline import Listener, Run, take_sample
from apnc.readers import encoded, files
from apnc.readers.spec import InputSpec
from apnc.runs import explained
from apnc.sampling import Sample
from mr_jobs.driver import Launcher, default_splits, splits_of
from mr_jobs.shims import mrjob_imports

with mrjob_imports():
    from mrjob.options import _parse_raw_args

MADE_WITH = "_made_with"  # a file in the folder of an embedding: the mark of what made it


def add_output(parser, what):
    parser.add_argument("--output", metavar="FILE", help=what)


def add_settings(parser):
    """Add the settings of a run, as ``apnc cluster`` has them."""
    opts.add_sampling(parser)
    opts.add_method(parser, several=False)
    opts.add_graph(parser)
    opts.add_kmeans(parser, k_required=False)


def main(job) -> None:
    """Run a job from its command line; end the process with the status of an error the user can act on."""
    job.set_up_logging(quiet=job.options.quiet, verbose=job.options.verbose)
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    # as an exception, so that tasks and temporary files go with the driver
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    driver = Driver(job)
    try:
        job.launch(driver)
    except BadRows as error:
        _end(job, explained(error.problems, error.rules, driver.data) if driver.data else error, error.exit_status)
    except ApncError as error:
        _end(job, error, error.exit_status)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _end(job, text, status):
    name = f"{Path(job.mr_job_script()).stem}: "
    print(f"{name}{str(text).removeprefix(name)}", file=sys.stderr)
    sys.exit(status)


class Driver:
    """What the launch methods of the jobs are made of."""

    def __init__(self, job):
        self.job, self.options = job, job.options
        self.data = None

    def _launch(self, what, *args):
        if self.options.runner == "hadoop":
            return self._launch_on_cluster(what, *args)
        with Launcher(self.options.runner or "inline", self._runner_args()) as launcher:
            return getattr(launcher, what)(*args)

    def _launch_on_cluster(self, what, job_class, step, spec, splits, output=None):
        from mr_jobs.cluster import BLOCKS, ClusterLauncher, Source, new_folder

        options = self._cluster_options()
        if step.reads == "rows":
            from apnc.engines.hadoop import HadoopEngine

            with HadoopEngine(self.data, options, self.options.splits) as engine:
                return self._on_cluster(engine.launcher, what, job_class, step, engine.source(step), output)
        root, folder, tag = new_folder(options)
        filesystem = hdfs.connect(root)
        launcher = ClusterLauncher(options, filesystem, root, folder, tag, self.options.splits)
        try:
            size = sum(r.stop - r.start for unit in splits for r in unit)
            source = Source(BLOCKS, spec, size, paths=list(self.options.args))
            return self._on_cluster(launcher, what, job_class, step, source, output)
        finally:
            filesystem.delete(folder)
            launcher.close()

    def _on_cluster(self, launcher, what, job_class, step, source, output):
        if what == "fold":
            return launcher.fold(job_class, step, source, Listener())[0]
        where, path = hdfs.split(str(output))
        launcher.map(job_class, step, source, Listener(), path)
        print(f"{where}{path}")
        return None

    def _cluster_options(self):
        from mr_jobs.cluster import HadoopOptions

        ours = ("hadoop_bin", "hadoop_streaming_jar", "python_bin", "jobconf", "hadoop_tmp_dir")
        command, jar, python, jobconf, work = (getattr(self.options, name) for name in ours)
        return HadoopOptions(
            command,
            jar,
            python or "python3",
            dict(jobconf or {}),
            work,
            runner_args=self._runner_args(*ours),
            env=self.options.env,
        )

    def _runner_args(self, *without):
        """Return those options of the command line that are mrjob's, for the runner."""
        ours = self.job.own_dests | {"args", "runner", "output_dir", "cat_output", "help", *without}
        out = []
        for dest, option, values in _parse_raw_args(self.job.arg_parser, self.job._cl_args):
            if dest not in ours:
                one = option.startswith("--") and len(values) == 1
                out += [f"{option}={values[0]}"] if one else [option, *values]
        return out

    def _describe(self):
        self.data = opts.described_input(self.options, self.options.args)
        return self.data

    def _required(self, name):
        value = getattr(self.options, name)
        if value is None:
            raise InputError(f"--{name.replace('_', '-')} is missing")
        return value

    def model(self) -> Model:
        return Model.load(self._required("model"))

    # the stages

    def sample(self, job_class) -> Sample:
        self._required("output")
        settings, data = opts.sample_settings(self.options), self._describe()
        run = Run(settings, data.estimated_rows(), data.spec.width)
        sample = take_sample(run, lambda fold: self._launch("fold", job_class, fold, data.spec, self._splits()))
        check_sample(sample, settings)
        return sample

    def coefficients(self, job_class) -> Model:
        self._required("output")
        settings = opts.settings_from(self.options)
        if self.options.from_sample:
            sample = load_npz(self.options.from_sample, "sample")
            if "source_index" not in sample:
                raise InputError(f"{self.options.from_sample}: not a sample file written by apnc")
            return build_model(Sample.from_dict(sample), settings)
        data = self._describe()
        run = Run(settings, data.estimated_rows(), data.spec.width)
        while run.model is None:
            fold = CoefficientsFold(settings, run.threshold, run.width)
            run.absorb(fold.stage, self._launch("fold", job_class, fold, data.spec, self._splits()))
        return run.model

    def kmeans_pass(self, job_class) -> Model:
        self._required("output")
        model = self.model()
        if model.done:
            raise InputError(f"{self.options.model}: its passes are over ({model.status})")
        if model.sample is None and model.stored is None:
            raise InputError(f"{self.options.model}: a model without its sample, which has no more passes")
        self._check_made_with(model)
        self._pass("kmeans", model, InputSpec(encoded.FORMAT), self._shards, job_class)
        if not model.started:
            print("a pass of the base clusterings; they are followed by mr_jobs.moments")
            return model
        over = f"over ({model.status})" if model.done else "not over"
        print(f"pass {len(model.passes)}: objective {model.passes[-1]['objective']:.6g}; passes are {over}")
        return model

    def moments_pass(self, job_class) -> Model:
        self._required("output")
        model = self.model()
        run = Run(model.settings, model.rows, model.width, model=model, embedded=True)
        if not model.started and (step := run.next_pass()) is not None and step.reads == "rows":
            data = self._describe()
            self._pass("moments", model, data.spec, self._splits, job_class)
        else:
            self._check_made_with(model)
            self._pass("moments", model, InputSpec(encoded.FORMAT), self._shards, job_class)
        print("start centroids are chosen" if model.started else "more passes come before start centroids")
        return model

    def model_to_embed(self) -> Model:
        """Return a model whose embedding is final."""
        model = self.model()
        run = Run(model.settings, model.rows, model.width, model=model)
        if not model.started and (step := run.next_pass()).stage != "embed":
            raise InputError(f"{self.options.model}: its next pass is mr_jobs.{step.stage}")
        return model

    def _pass(self, stage, model, spec, splits, job_class):
        """Run the model's next pass, which has to be of a stage, and take its result into the model."""
        run = Run(model.settings, model.rows, model.width, model=model, embedded=True)
        step = run.next_pass()
        if step is None or step.stage != stage:
            wanted = "none" if step is None else f"mr_jobs.{step.stage}"
            raise InputError(f"{self.options.model}: its next pass is {wanted}")
        run.absorb(stage, self._launch("fold", job_class, step, spec, splits()))

    def centroids(self, model) -> np.ndarray:
        """Return the model's centroids, or the best of them as long as passes go on."""
        if not model.started:
            raise InputError(f"{self.options.model}: there are no centroids yet, its next pass is not mr_jobs.assign")
        if model.done:
            return model.centroids[0]
        warnings.warn("the passes of this model are not over; its centroids so far are used", stacklevel=2)
        last = model.passes[-1]["objectives"] if model.passes else [0.0] * len(model.centroids)
        return model.centroids[best_run(np.array(last))]

    def map_rows(self, job_class, step) -> None:
        data = self._describe()
        if data.spec.width not in (None, step.width):
            raise InputError(f"the input has {data.spec.width} features, the model {step.width}")
        self._map(job_class, step, data.spec, self._splits())

    def embed_rows(self, job_class, step) -> None:
        self.map_rows(job_class, step)
        output, mark = self.options.output_dir, step.mark()
        if self.options.runner == "hadoop":
            where, path = hdfs.split(output)
            hdfs.connect(where).write(posixpath.join(path, MADE_WITH), mark.encode())
        else:
            Path(output, MADE_WITH).write_text(mark)

    def map_embedding(self, job_class, model, step) -> None:
        self._check_made_with(model)
        self._map(job_class, step, InputSpec(encoded.FORMAT), self._shards())

    def _map(self, job_class, step, spec, splits):
        output = self._required("output_dir")
        if self.options.runner == "hadoop":
            where, path = hdfs.split(output)
            exists = hdfs.connect(where).status(path) is not None
        else:
            output = Path(output)
            exists = output.exists()
        if exists:
            raise InputError(f"--output-dir {output} exists already")
        self._launch("map", job_class, step, spec, splits, output)

    # input and output

    def _check_made_with(self, model):
        mark = EmbedMap.of(model).mark()
        for given in self.options.args:
            if _made_with(given) not in (None, mark):
                raise InputError(f"{given}: was embedded with another model than {self.options.model}")

    def _splits(self):
        return splits_of(self.data, self._count())

    def _count(self):
        count = default_splits() if self.options.splits is None else self.options.splits
        if count < 1:
            raise InputError(f"--splits {count} must be at least 1")
        return count

    def _shards(self):
        paths = []
        for given in self.options.args or [None]:
            if given is None:
                raise InputError("no embedding given")
            if files.is_remote(given):
                paths += [uri for _, uri, _ in files.walk(given)]
                continue
            if self.options.runner == "hadoop":
                raise InputError(f"{given}: an embedding on HDFS (hdfs://…) is needed")
            path = Path(given)
            if not path.exists():
                raise InputError(f"{given}: no such file or directory")
            inside = sorted(path.iterdir()) if path.is_dir() else [path]
            paths += [p for p in inside if p.is_file() and p.name[0] not in "_."]
        return encoded.units(paths, self._count())

    def save_sample(self, sample):
        save_npz(self.options.output, sample.to_dict())

    def save_model(self, model):
        model.save(self.options.output, with_sample=True)


def _made_with(folder) -> str | None:
    """Return the mark in the folder of an embedding, None where there is none."""
    if files.is_remote(folder):
        where, path = hdfs.split(folder)
        filesystem, path = hdfs.connect(where), posixpath.join(path, MADE_WITH)
        return None if filesystem.status(path) is None else filesystem.read(path).decode()
    path = Path(folder, MADE_WITH)
    return path.read_text() if path.is_file() else None

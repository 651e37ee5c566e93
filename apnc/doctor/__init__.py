"""``apnc doctor``: one line for each thing a run needs, fine or with what to do about it.

On this machine the packages are imported and memory is compared with what a run would take. On a Hadoop cluster a
tiny job does the looking around: `apnc.doctor.probe`, which needs no more of a node than some Python, started by a
shell script that needs not even that, so that whatever is missing is told by name. Nothing stays on HDFS but the
archive of ``--env``, which runs use too.

The parser of every command imports this, and so does whoever imports the probe: what makes the checks is imported
when they are made.
"""

from __future__ import annotations

from apnc.errors import InputError

SECONDS = 300  # for the tiny job


def add_arguments(parser):
    """Add the options of ``apnc doctor``."""
    parser.add_argument(
        "inputs", nargs="*", metavar="INPUT", help="what a run is to cluster, for what it will take (may be left out)"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="rows of the sample (10000)")
    parser.add_argument(
        "--timeout", type=int, default=SECONDS, metavar="S", help=f"seconds given to the tiny job ({SECONDS})"
    )


def main(options) -> None:
    """Run ``apnc doctor``.

    Raises
    ------
    InputError
        If something is wrong that the user's options or installation decide.
    StageError
        If only the cluster itself does not do its part.
    """
    from apnc.doctor.table import Table
    from apnc.doctor.this_machine import given_input, memory_here, packages_here
    from apnc.options import settings_from

    if options.timeout < 1:
        raise InputError(f"--timeout {options.timeout} must be at least 1")
    settings = settings_from(options)
    table = Table()
    runner = _checked_runner(options.runner)
    packages_here(table, options.runner)
    data = given_input(table, options)
    if runner == "hadoop":
        from apnc.doctor.cluster import ClusterCheck
        from apnc.options import hadoop_options

        on_cluster = ClusterCheck(table, hadoop_options(options), settings, data, options.splits, options.timeout)
        on_cluster.run()
    else:
        memory_here(table, settings, data, options.memory)
    table.end()


def _checked_runner(name):
    from apnc.kernels import nearest_name

    known = ("in-process", "inline", "local", "hadoop")
    if name not in known:
        raise nearest_name("runner", name, known)
    return name

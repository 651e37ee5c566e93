"""What a task finds on its node, told in lines of JSON. Standard library only, and of any Python from 2.7 on.

It is sent to the nodes by `apnc.doctor`, and must work where nothing does: each fact is told once it is known, so
that an import which ends the process has been announced. Arguments: ``import=MODULE`` and ``read=URI``, in order.
"""

import json
import os
import platform
import socket
import sys


def tell(what, **facts):
    facts["what"] = what
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def reason(error):
    """Return the line of an error that says most: of NumPy's page about broken installations, its last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if line.startswith("Original error was: "):
            return line[len("Original error was: ") :]
    return type(error).__name__ + ": " + (lines[0] if lines else "")


def memory_limit():
    """Return the bytes this process may address, None without a limit."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit in (resource.RLIM_INFINITY, -1) else limit


def installed_memory():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def c_library():
    """Return such as "glibc 2.31", empty where it is another."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def known(function):
    try:
        return function()
    except Exception:  # a fact that this system does not tell
        return None


def main(arguments):
    sys.path.insert(0, os.getcwd())  # where what travels with a job lies
    tell(
        "python",
        version=platform.python_version(),
        minor="%d.%d" % sys.version_info[:2],  # noqa: UP031 - of any Python
        executable=sys.executable or "",
        host=socket.gethostname(),
        system=sys.platform,
        machine=platform.machine(),
        libc=known(c_library) or "",
        cores=known(lambda: len(os.sched_getaffinity(0))) or known(lambda: os.sysconf("SC_NPROCESSORS_ONLN")),
        memory=known(installed_memory),
        limit=known(memory_limit),
        encoding=sys.getfilesystemencoding() or "",
    )
    sys.argv[1:] = ["--mapper"]  # what ours take for the sign of a task
    for argument in arguments:
        kind, _, value = argument.partition("=")
        tell("trying", kind=kind, name=value)
        try:
            if kind == "import":
                __import__(value)
                module = sys.modules[value]
                version, place = getattr(module, "__version__", ""), getattr(module, "__file__", None) or ""
                tell("import", name=value, version=str(version), place=place)
            elif kind == "read":
                from apnc import hdfs

                hdfs.connect(value).read(hdfs.split(value)[1], 0, 1)
                tell("read", name=value)
        except (Exception, SystemExit) as error:
            tell(kind, name=value, error=reason(error))


if __name__ == "__main__":
    main(sys.argv[1:])

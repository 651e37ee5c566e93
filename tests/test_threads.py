"""One thread for BLAS while ours use all cores, whatever is imported on the way."""

from processes import python
from threadpoolctl import threadpool_info

from apnc.threads import one_blas_thread


def _threads():
    return {library["num_threads"] for library in threadpool_info()}


def test_libraries_get_one_thread_and_their_own_number_back():
    before = _threads()
    with one_blas_thread():
        assert _threads() == {1}
        with one_blas_thread():
            assert _threads() == {1}
        assert _threads() == {1}
    assert _threads() == before


def test_a_library_that_was_imported_later_gets_one_thread_too():
    code = """
import apnc.threads
from threadpoolctl import threadpool_info
with apnc.threads.one_blas_thread():
    pass
assert not threadpool_info()
import numpy
with apnc.threads.one_blas_thread():
    assert {library["num_threads"] for library in threadpool_info()} == {1}
"""
    done = python("-c", code, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    assert done.returncode == 0, done.stderr

"""Matrices from .npy files and from memory: every type and order gives the rows np.load gives."""

import bz2
import gzip

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array

from apnc.errors import InputError
from apnc.readers import InputSpec, Range, read_blocks
from apnc.readers.array import ArrayInput
from apnc.readers.detect import describe
from apnc.readers.locate import explain

PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}
TO_FLOAT32 = ["?", "i1", "u1", "<i2", ">i2", "<u2", "<f2", ">f2", "<f4", ">f4"]
TO_FLOAT64 = ["<i4", ">i4", "<u4", "<i8", ">i8", "<u8", "<f8", ">f8"]


def save(tmp_path, x, name="x.npy", packed=""):
    path = tmp_path / "plain.npy"
    np.save(path, x)
    target = tmp_path / (name + packed)
    target.write_bytes(PACK[packed](path.read_bytes()))
    return str(target)


def blocks_of(input, target_bytes=300, max_rows=3):
    return [b for unit in input.units(target_bytes) for b in input.blocks(unit, max_rows)]


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", TO_FLOAT32 + TO_FLOAT64)
def test_every_type_and_order_is_converted_to_native_float(tmp_path, dtype, order):
    x = np.asarray(np.random.default_rng(0).integers(0, 100, (17, 5)) % 7, np.dtype(dtype), order=order)
    input = describe([save(tmp_path, x)])
    assert input.estimated_rows() == 17
    blocks = blocks_of(input)
    wanted = np.dtype(np.float32 if dtype in TO_FLOAT32 else np.float64)
    assert all(b.x.dtype == wanted and b.x.dtype.isnative and b.x.flags.c_contiguous and b.n <= 3 for b in blocks)
    assert (np.concatenate([b.x for b in blocks]) == np.load(input.files[0].path)).all()
    assert np.concatenate([b.offsets for b in blocks]).tolist() == list(range(17))


@pytest.mark.parametrize("packed", [".gz", ".bz2"])
@pytest.mark.parametrize("chunk_bytes", [1, 100, 1 << 20])
def test_compressed_matrix_is_read_whole(tmp_path, packed, chunk_bytes):
    x = np.random.default_rng(0).normal(size=(50, 4))
    input = describe([save(tmp_path, x, packed=packed)])
    (unit,) = input.units(10)
    blocks = list(read_blocks(input.spec, unit, 7, chunk_bytes))
    assert input.estimated_rows() == 50 and [b.n for b in blocks] == [7] * 7 + [1]
    assert (np.concatenate([b.x for b in blocks]) == x).all()


def test_one_dimension_is_one_column(tmp_path):
    input = describe([save(tmp_path, np.arange(4.0))])
    assert input.spec.width == 1 and np.concatenate([b.x for b in blocks_of(input)]).tolist() == [[0], [1], [2], [3]]


def test_label_and_id_columns_are_no_features(tmp_path):
    x = np.array([[2**60 + 1, 5, 0], [2**60 + 3, 6, 1]])
    input = describe([save(tmp_path, x)], label_column="last", id_column=1)
    (block,) = blocks_of(input)
    assert (
        block.ids == [str(2**60 + 1), str(2**60 + 3)] and block.labels == ["0", "1"] and block.x.tolist() == [[5], [6]]
    )
    assert input.spec.width == 1


def test_rows_that_are_not_finite_are_bad_rows(tmp_path):
    x = np.ones((6, 3), np.float32)
    x[1, 2], x[4, 0], x[4, 1] = np.nan, -np.inf, np.nan
    input = describe([save(tmp_path, x)])
    blocks = blocks_of(input)
    assert [b.offsets.tolist() for b in blocks] == [[0, 2], [3, 5]] and [b.bad.tolist() for b in blocks] == [[1], [4]]
    assert all(b.x.shape == (2, 3) for b in blocks)
    messages = [explain(p, input) for b in blocks for p in b.problems]
    assert messages == [
        "x.npy row 2, column 3: found 'nan'; a feature must be a finite number",
        "x.npy row 5, column 1: found '-inf'; a feature must be a finite number",
    ]


def test_finite_rows_whose_sum_overflows_are_good(tmp_path):
    (block,) = blocks_of(describe([save(tmp_path, np.full((3, 2), 3e38, np.float32))]))
    assert block.n == 3 and not block.rules


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x.npy: the file is empty"),
        (b"garbage!", "x.npy: not a .npy file"),
        (b"\x93NUMPY\x01", "x.npy: the .npy header is cut off after 7 bytes"),
        (b"\x93NUMPY\x09\x00" + b" " * 100, "x.npy: unknown .npy version 9.0"),
        (b"\x93NUMPY\x01\x00\x10\x00__import__('os')", "x.npy: the .npy header is damaged"),
    ],
)
def test_what_is_no_npy_file_is_refused(tmp_path, content, message):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        describe([str(path)])


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 2), complex), "numbers of type complex128"),
        (np.array([["a"]]), "numbers of type <U1"),
        (np.zeros(2, [("a", "f4")]), "numbers of type"),
        (np.zeros((2, 2), "M8[s]"), "numbers of type datetime64"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\) is not a matrix"),
        (np.float64(1), r"shape \(\) is not a matrix"),
        (np.zeros((3, 0)), "no columns"),
        (np.zeros((0, 3)), "holds no rows"),
    ],
)
def test_arrays_that_are_no_matrix_of_numbers_are_refused(tmp_path, x, message):
    with pytest.raises(InputError, match=message):
        describe([save(tmp_path, x)])


def test_object_arrays_are_refused_and_never_unpickled(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="numbers of type object"):
        describe([str(path)])


@pytest.mark.parametrize(("kept", "found"), [(128 + 248, 248), (128, 0), (128 + 330, 330)])
def test_truncated_or_overlong_file_is_refused_with_both_sizes(tmp_path, kept, found):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((20, 2)))
    path.write_bytes((path.read_bytes() + b"\0" * 100)[:kept])
    with pytest.raises(InputError, match=f"x.npy: expected 320 bytes after the header, found {found}$"):
        describe([str(path)])


def test_file_that_shrinks_after_the_look_is_a_fatal_problem(tmp_path):
    path = save(tmp_path, np.zeros((20, 2)))
    input = describe([path])
    with open(path, "r+b") as file:
        file.truncate(128 + 100)
    blocks = blocks_of(input, 1 << 20, 5)
    assert [b.n for b in blocks] == [5, 0] and blocks[-1].problems[0].fatal
    assert "expected 320 bytes after the header, found 100" in explain(blocks[-1].problems[0], input)


@pytest.mark.parametrize("cut", [-1, -40, 200])
def test_truncated_archive_is_a_fatal_problem(tmp_path, cut):
    path = save(tmp_path, np.random.default_rng(0).normal(size=(50, 4)), packed=".gz")
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(data[:cut])
    input = describe([path])
    blocks = blocks_of(input)
    assert blocks[-1].n == 0 and blocks[-1].problems[0].fatal
    assert "must be complete" in explain(blocks[-1].problems[0], input)


def test_archive_with_too_little_data_is_a_fatal_problem(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((20, 2)))
    packed = tmp_path / "y.npy.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()[:-8]))
    blocks = blocks_of(describe([str(packed)]))
    assert blocks[-1].problems[0].fatal and "expected 320 bytes" in blocks[-1].problems[0].value


def test_compressed_fortran_order_is_refused(tmp_path):
    with pytest.raises(InputError, match="C order"):
        describe([save(tmp_path, np.asfortranarray(np.eye(3)), packed=".gz")])


def test_files_of_different_width_are_refused_with_both_widths(tmp_path):
    paths = [save(tmp_path, np.eye(3), "a.npy"), save(tmp_path, np.eye(2), "b.npy")]
    with pytest.raises(InputError, match=r"b.npy: 2 columns, but .*a.npy has 3"):
        describe(paths)


def test_a_file_without_rows_among_others_is_passed_over(tmp_path):
    input = describe([save(tmp_path, np.zeros((0, 3)), "a.npy"), save(tmp_path, np.eye(3), "b.npy")])
    assert [b.source for b in blocks_of(input)] == ["1/b.npy"]


@pytest.mark.parametrize("sparse", [False, True])
def test_array_input_slices_rows_and_weights(sparse):
    x = random_array((23, 4), density=0.4, rng=0).toarray()
    weights = np.arange(23.0)
    input = ArrayInput(csr_matrix(x) if sparse else x, weights)
    assert input.estimated_rows() == 23 and input.spec.width == 4 and input.spec.sparse is sparse
    blocks = blocks_of(input, 200, 3)
    assert len(input.units(200)) > 1 and all(b.source == "array" and b.n <= 3 for b in blocks)
    assert (np.concatenate([b.x.toarray() if sparse else b.x for b in blocks]) == x).all()
    assert np.concatenate([b.weights for b in blocks]).tolist() == weights.tolist()
    assert np.concatenate([b.offsets for b in blocks]).tolist() == list(range(23))


def test_array_input_does_not_copy_float_rows():
    x = np.ones((10, 3), np.float32)
    assert all(np.shares_memory(b.x, x) for b in blocks_of(ArrayInput(x)))


@pytest.mark.parametrize("sparse", [False, True])
def test_array_rows_that_are_not_finite_are_bad_rows(sparse):
    x = np.eye(5)
    x[3, 1] = np.nan
    input = ArrayInput(csr_matrix(x) if sparse else x, np.arange(5.0))
    (block,) = blocks_of(input, 1 << 20, 10)
    assert block.offsets.tolist() == [0, 1, 2, 4] == block.weights.tolist()
    assert explain(block.problems[0], input) == "array row 4, column 2: found 'nan'; a feature must be a finite number"


@pytest.mark.parametrize("x", [np.zeros(3), np.zeros((0, 3)), np.array([["a"]]), np.zeros((2, 2), complex)])
def test_array_input_refuses_what_is_no_matrix_of_numbers(x):
    with pytest.raises(InputError, match="array: "):
        ArrayInput(x)


def test_file_that_is_no_longer_an_array_is_a_fatal_problem(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(b"1,2\n")
    (block,) = read_blocks(InputSpec("npy", columns=2, width=2), [Range("x.npy", str(path), 0, 5)], 3)
    assert block.problems[0].fatal

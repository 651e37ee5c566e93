"""The model file: everything predict needs, byte for byte, and nothing that could run."""

import json
import os
import warnings
import zipfile

import numpy as np
import pytest
from in_memory import block, predict, train
from scipy.sparse import csr_matrix

from apnc.blocks import pack, unpack
from apnc.embed import PredictMap
from apnc.errors import InputError
from apnc.model import FORMAT_VERSION, Model, load_npz, save_npz

X = np.abs(np.random.default_rng(0).normal(size=(80, 5))) + np.repeat([[0.0], [4.0]], 40, axis=0)
KINDS = {
    "dense": (X, {"landmarks": 20}),
    "float32": (X.astype(np.float32), {"landmarks": 20, "scale": "standard"}),
    "sparse": (csr_matrix(X), {"landmarks": 20, "blocks": 2, "scale": "unit"}),
    "stable": (X, {"landmarks": 20, "dim": 30, "method": "stable", "kernel": "chi2"}),
    "linear": (X, {"method": "linear"}),
    "sparse linear": (csr_matrix(X), {"method": "linear"}),
}


@pytest.fixture(params=list(KINDS))
def trained(request):
    x, settings = KINDS[request.param]
    return x, train(x, k=3, restarts=2, **settings)


def same(a, b):
    if hasattr(a, "indptr"):
        return a.shape == b.shape and all(same(getattr(a, p), getattr(b, p)) for p in ("data", "indices", "indptr"))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


@pytest.mark.parametrize("with_sample", [False, True])
def test_a_model_comes_back_from_its_file_byte_for_byte(trained, with_sample, tmp_path):
    x, model = trained
    model.save(tmp_path / "model.npz", with_sample)
    again = Model.load(tmp_path / "model.npz")
    before, after = model.to_dict(with_sample), again.to_dict(with_sample)
    assert before.keys() == after.keys() and ("sample" in after) == with_sample
    for name, value in before.items():
        assert same(value, after[name]), name
    for a, b in zip(predict(model, x), predict(again, x), strict=True):
        assert np.array_equal(a, b)


def test_a_model_travels_as_a_message(trained):
    x, model = trained
    again = Model.from_dict(unpack(pack(model.to_dict())))
    assert all(np.array_equal(a, b) for a, b in zip(predict(model, x), predict(again, x), strict=True))


def test_the_same_rows_get_the_same_labels_in_any_form(trained):
    x, model = trained
    dense = x.toarray() if hasattr(x, "toarray") else x
    forms = [dense, csr_matrix(dense), dense.astype(np.float64), csr_matrix(dense).astype(np.float64)]
    labels = [PredictMap.of(model).apply(block(form)).x for form in forms]
    for found in labels[1:]:
        assert np.array_equal(found[:, 0], labels[0][:, 0])
        np.testing.assert_allclose(found[:, 1], labels[0][:, 1], rtol=1e-3, atol=1e-5)


def test_nothing_in_the_file_is_a_pickle(trained, tmp_path):
    _, model = trained
    model.save(tmp_path / "model.npz", True)
    with zipfile.ZipFile(tmp_path / "model.npz") as file:
        for name in file.namelist():
            assert b"'|O" not in file.read(name)[:200]
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        assert json.loads(str(file["header"]))["format_version"] == FORMAT_VERSION


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, "1", None])
def test_unknown_versions_are_refused_by_number(version, tmp_path):
    values = train(X, k=2, method="linear").to_dict(False) | {"format_version": version}
    save_npz(tmp_path / "model.npz", values)
    with pytest.raises(InputError, match=f"model format version {version} is not known; this apnc reads versions 1"):
        Model.load(tmp_path / "model.npz")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "model.npz"
    train(X, k=2, landmarks=10, restarts=1).save(path)
    return path.read_bytes()


def others():
    """Return files that are no models, by name: the bytes, or a function that writes the file."""
    return {
        "empty": b"",
        "text": b"source,row,cluster,distance\n",
        "pickle": b"\x80\x04K\x01.",
        "zip start": b"PK\x03\x04",
        "npy": lambda path: np.save(path.open("wb"), np.eye(3)),
        "npy of objects": lambda path: np.save(path.open("wb"), np.array([{}]), allow_pickle=True),
        "other npz": lambda path: np.savez(path, a=np.ones(3)),
        "npz of objects": lambda path: np.savez(path, header=np.array([{}], dtype=object)),
        "header that is no text": lambda path: np.savez(path, header=np.ones(3)),
        "header that is no object": lambda path: np.savez(path, header=np.array("[1]")),
        "header that is a number": lambda path: np.savez(path, header=np.array("3")),
        "header alone": lambda path: np.savez(path, header=np.array('{"format_version": 1}')),
        "csr without parts": lambda path: np.savez(path, header=np.array('{"x": {"csr": [1, 1]}}')),
    }


@pytest.mark.parametrize("name", list(others()))
def test_other_files_are_refused_by_name(name, tmp_path):
    path, content = tmp_path / "model.npz", others()[name]
    content(path) if callable(content) else path.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.npz"):
        Model.load(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no such model file"):
        Model.load(tmp_path / "no.npz")
    with pytest.raises(InputError, match="not a model file"):
        Model.load(tmp_path)


def test_damaged_files_give_an_input_error_or_the_model_and_no_traceback(written, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "model.npz"
    damaged = [written[: int(rng.integers(len(written)))] for _ in range(40)]
    for _ in range(400):
        data = bytearray(written)
        # anywhere, and in the last kilobyte, where the archive keeps its table of contents
        place = int(rng.integers(len(data))) if rng.random() < 0.3 else len(data) - 1 - int(rng.integers(1100))
        data[place] = int(rng.integers(256))
        damaged.append(bytes(data))
    refused = 0
    for data in damaged:
        path.write_bytes(data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                Model.load(path)
        except InputError:
            refused += 1
    assert refused > 200


def test_a_file_is_whole_or_absent(tmp_path, monkeypatch):
    save_npz(tmp_path / "a.npz", {"x": np.ones(3), "text": "old"})

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        save_npz(tmp_path / "a.npz", {"x": np.zeros(3)})
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    assert load_npz(tmp_path / "a.npz", "state")["text"] == "old"


def test_files_are_readable_by_others_as_the_umask_says(tmp_path):
    before = os.umask(0o027)
    try:
        save_npz(tmp_path / "a.npz", {})
    finally:
        os.umask(before)
    assert (tmp_path / "a.npz").stat().st_mode & 0o777 == 0o640


def test_the_sample_and_the_path_of_the_passes_are_needed_only_while_training(tmp_path):
    model = train(X, k=2, landmarks=10, restarts=1)
    model.save(tmp_path / "model.npz")
    again = Model.load(tmp_path / "model.npz")
    assert again.sample is None and again.best is None and again.done and again.passes == model.passes

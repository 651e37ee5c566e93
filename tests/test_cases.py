"""Input that broke other tools, one test per report. The number in a comment is that of its folder in shared/cases."""

import bz2
import gzip
import math
import os
import subprocess
import sys
from collections import Counter
from contextlib import chdir
from itertools import pairwise

import numpy as np
import pytest
from command_line import apnc, cluster, facts, labels, partition, table, write_csv
from in_memory import block

from apnc.model import Model
from apnc.sampling import SampleFold

MANY_LANDMARKS = "--landmarks 500 is more than the rows there are"
INLINE = ("--runner", "inline", "--splits", "3")
BOTH_ENGINES = [(), INLINE]
LOCAL = ("--runner", "local", "--splits", "3")

FOUR_ROWS = "1,1\n1.1,1\n7,7\n7.2,7\n"
TWO_AND_TWO = [0, 0, 1, 1]
THREE_GROUPS = """
-0.64,-0.3 5.16,-0.37 -0.61,4.14 0.27,-0.17 4.6,-0.56 -1.3,4.97 -0.53,-0.1 5.67,-0.25 -0.14,5.41 -0.16,0
4.36,-0.51 -0.87,5.43 0.57,-0.28 4.9,-0.23 1.31,5.48 -0.07,0.34 5.66,-0.5 0.32,5.31 0.02,0.4 5.61,0.02
-0.17,5.47 0.1,0.22 5.99,0.21 -0.01,4.36 0.2,0.2 5.32,0.3 0.38,5.14 0.1,0.31 4.69,-0.46 -0.46,5.08
"""
BLOB = """
2.34,-0.66 0.39,0.15 0.84,-1.4 -0.41,-0.75 -1.07,-0.84 -0.51,-0.29 -0.91,0.42 -0.55,-3.2 1.19,-0.39 -0.74,0.27
0.23,0.05 -0.85,0.19 -1.54,1.44 -1.27,-0.21 0.02,0.22 -0.25,0.48 -3.63,-0.23 -0.29,-0.56 1.4,-1.11 -0.21,-2.17
0.14,-1.76 -1.71,2.24 0.58,-0.14 0.04,-1.58 -1.19,0.3 -2.27,0.14 -1.89,-0.01 -1.26,1.64 0.9,-0.66 -2.05,-0.93
"""


def lines(rows):
    """Return rows, in a list or in one text with blanks between them, as the lines of a file."""
    return "".join(f"{row}\n" for row in (rows.split() if isinstance(rows, str) else rows))


def wide(gamma):
    """Return the options of an rbf kernel with few enough landmarks to be warned of nothing."""
    return ("--kernel", "rbf", "--kernel-params", f"gamma={gamma}")


@pytest.fixture
def here(tmp_path):
    """A folder, and a function that writes a file into it."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, np.ndarray):
            np.save(path, content)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    write.out = tmp_path / "out"
    return write


def groups(here, source, *options, warns=()):
    """Return the partition that a run finds, after which the results are gone."""
    cluster(source, here.out, *options, "--overwrite").done(warns)
    return partition(labels(here.out))


def stands_clear(folder):
    """Nothing half-written is left of a run that was refused."""
    assert not folder.exists()
    assert not folder.with_name(folder.name + ".partial").exists()


# 01
@pytest.mark.parametrize("seed", range(5))
def test_landmarks_that_are_duplicates_do_not_divide_by_zero(here, seed):
    points = ["0,0", "0.4,0.1", "5,5", "5.3,4.8"]
    source = here("data.csv", lines(points * 6))
    options = ("-k", 2, *wide(0.5), "--landmarks", 8, "--seed", seed)
    said = cluster(source, here.out, *options).done()
    assert partition(labels(here.out)) == [0, 0, 1, 1] * 6
    model = Model.load(here.out / "model.npz")
    assert all(np.isfinite(r).all() for r in model.embedding.coefficients)
    assert np.isfinite(model.centroids).all()
    assert model.facts["blocks"][0]["rank"] <= 4
    assert f"8 landmarks of rank {model.facts['blocks'][0]['rank']}" in said.out


# 03
def test_more_landmarks_than_rows_are_used_once_each_and_told(here):
    rows = "0.03,0.38 3.72,4.3 -0.08,-0.08 4.57,4.05 -0.01,0.22 4.34,3.99 0.18,-0.29 3.89,3.87"
    rows += " -0.4,-0.45 3.51,3.93 -0.05,-0.1 4.02,3.6"
    said = cluster(here("data.csv", lines(rows)), here.out, "-k", 2, *wide(0.5))
    said.done(f"{MANY_LANDMARKS}: all 12 are used")
    assert partition(labels(here.out)) == [0, 1] * 6
    (landmarks,) = Model.load(here.out / "model.npz").embedding.landmarks
    assert len(np.unique(landmarks, axis=0)) == len(landmarks) == 12


# 05
def test_automatic_width_scales_with_the_data(here):
    a = "1.09,1.63 3.27,2.78 1.16,1.1 3.17,2.5 0.83,0.78 2.72,2.58 1.17,1.44 3.15,2.6 1.2,1.02 2.55,2.8"
    a += " 0.91,1.08 2.96,3.27 1.32,1.13 2.74,2.76 0.8,1.33 2.64,2.51 1.27,0.81 3.06,2.57 1.27,0.9 3.21,3.07"
    x = np.array([[float(v) for v in row.split(",")] for row in a.split()])
    sigmas = []
    for rows in (x, 10 * x):
        source = write_csv(here.out.with_name("data.csv"), rows)
        assert groups(here, source, "-k", 2, "--landmarks", 20) == [0, 1] * 10
        sigmas.append(facts(here.out)["model"]["kernel"]["params"]["sigma"])
    assert (sigmas[1] / sigmas[0]) ** 2 == pytest.approx(100, rel=1e-6)  # γ = 1/2σ²


# 07
@pytest.mark.parametrize("method", ["nystrom", "stable"])
def test_rows_without_similarity_to_any_landmark_are_told(here, method):
    x, y = 0, 0
    rows = []
    for i in range(40):
        rows.append(f"{x},{y}")
        x, y = (x + 1137, y + 3500) if i % 3 != 2 else (x + 726, (i // 3 + 1) * 500)
    said = cluster(here("data.csv", lines(rows)), here.out, "-k", 4, *wide(1), "--landmarks", 8, "--method", method)
    if said.status == 0:
        assert "is about zero between any two landmarks" in said.err
        assert "32 of 40 rows have no similarity to any landmark" in said.err
        assert all(math.isfinite(float(row["distance"])) for row in table(here.out / "labels.csv"))
    else:
        assert "no similarity" in said.err


# 11
@pytest.mark.parametrize(
    "options", [("--method", "linear"), ("--landmarks", "20", *wide(4)), ("--method", "stable", "--landmarks", "20")]
)
def test_data_far_from_the_origin_keep_their_digits(here, options):
    x = np.tile(np.array([20500, 20500, -20500], np.float32), (20, 1))
    x[:, 0] += (np.arange(20) % 2) * 0.75 + (np.arange(20) // 2) / 256
    source = here("x.npy", x)
    assert groups(here, source, "-k", 2, *options) == [0, 1] * 10
    model = Model.load(here.out / "model.npz")
    if hasattr(model.embedding, "kernel") and model.metric == "l2":
        values = model.embedding.kernel.prepare(x.astype(np.float64), np.float32)(x)
        assert values.max() <= 1
        np.testing.assert_allclose(np.diag(values), 1, atol=1e-6)


# 13
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_refilling_empty_clusters_ends(here, seed):
    rows = "0,0 0,3 8,0 9,1 9,1 11,0 11,0"
    source, centres = here("data.csv", lines(rows)), here("init.csv", "-3,5\n4,0\n12,3\n13,0\n14,0\n15,0\n16,0\n")
    init = ("--init", centres) if seed is None else ("--seed", seed)
    said = cluster(source, here.out, "-k", 7, "--method", "linear", "--passes", 10000, *init)
    assert said.status == 0
    found = facts(here.out)
    assert len(found["passes"]) < 20
    assert found["objective"] == pytest.approx(0, abs=1e-9)
    assert "2 of 7 clusters are empty" in said.err


# 15
def test_a_start_centre_that_wins_no_row_is_refilled_or_told(here):
    rows = "0.31,0.53 5.7,-0.34 0.15,0.69 6.17,-0.45 -0.29,-0.01 6.39,0.01 -0.13,-0.08 6.08,-0.28 0.01,0.12 6.66,-0.01"
    rows += " 0.39,-0.39 6.35,0.08"
    source, centres = here("data.csv", lines(rows)), here("init.csv", "0,0\n6,0\n1000,1000\n")
    for runner in BOTH_ENGINES:
        cluster(source, here.out, "-k", 3, "--method", "linear", "--init", centres, "--overwrite", *runner).done()
        found = labels(here.out)
        assert len(set(found)) == 3
        assert not set(found[::2]) & set(found[1::2])
        assert np.isfinite(Model.load(here.out / "model.npz").centroids).all()


# 17
@pytest.mark.parametrize("passes", [1, 2, 100])
def test_labels_are_those_of_the_centres_that_are_saved(here, passes):
    x = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 30.0])
    source, centres = here("data.csv", lines(map(int, x))), here("init.csv", "0\n1\n")
    options = ("--method", "linear", "-k", 2, "--init", centres, "--passes", passes, "--tol", 0)
    cap = f"not converged: the passes ended at their limit of {passes}"
    cluster(source, here.out, *options).done(cap if passes < 3 else ())
    model = Model.load(here.out / "model.npz")
    saved = model.centroids[0, :, 0] + model.embedding.shift[0]
    assert labels(here.out) == np.abs(x[:, None] - saved).argmin(axis=1).tolist()
    if passes == 1:
        assert sorted(saved) == pytest.approx([0, 85 / 11], abs=1e-6)
        assert partition(labels(here.out)) == [0] * 4 + [1] * 8
    apnc("predict", here.out / "model.npz", source, "-o", here.out / "again.csv").done()
    assert labels(here.out / "again.csv") == labels(here.out)


# 19
def test_integers_are_computed_with_as_numbers(here):
    cluster(here("ints.csv", "1\n2\n"), here.out, "-k", 1, "--method", "linear").done()
    model = Model.load(here.out / "model.npz")
    assert model.centroids[0, 0] + model.embedding.shift == 1.5
    source = here("u1.npy", np.array([[0], [3], [5], [250], [252], [255]], np.uint8))
    assert groups(here, source, "-k", 2, "--method", "linear") == [0, 0, 0, 1, 1, 1]
    model = Model.load(here.out / "model.npz")
    assert sorted(model.centroids[0, :, 0] + model.embedding.shift) == pytest.approx([8 / 3, 757 / 3], rel=1e-6)
    signed = [[-128, 127], [-127, 126], [-126, 127], [127, -128], [126, -127], [127, -126]]
    source = here("i1.npy", np.array(signed, np.int8))
    for options in (["--method", "linear"], ["--kernel", "linear", "--landmarks", 6], [*wide(1e-4), "--landmarks", 6]):
        assert groups(here, source, "-k", 2, *options) == [0, 0, 0, 1, 1, 1]
    source = here("bool.npy", np.array([[True, False], [True, False], [False, True]]))
    assert groups(here, source, "-k", 2, "--method", "linear") == [0, 0, 1]


# 21
def test_label_numbers_do_not_depend_on_parallelism(here):
    source = here("data.csv", lines(THREE_GROUPS))
    options = ("-k", 3, *wide(0.2), "--landmarks", 10, "--seed", 7, "--overwrite")
    found = set()
    for runner in [(), ("--runner", "inline", "--splits", "1"), INLINE, LOCAL]:
        cluster(source, here.out, *options, *runner).done()
        assert partition(labels(here.out)) == [0, 1, 2] * 10
        found.add(tuple(labels(here.out)))
    assert len(found) == 1


# 23
def test_parts_without_rows_change_nothing(here):
    rows = THREE_GROUPS.split()
    parts = [lines(rows[:12]), "", "\n\n", lines(rows[12:])]
    for i, part in enumerate(parts):
        source = here(f"in/part-0000{i}", part).parent
    options = ("-k", 3, *wide(0.2), "--landmarks", 10)
    for runner in [(), ("--runner", "inline", "--splits", 8)]:
        assert groups(here, source, *options, *runner) == [0, 1, 2] * 10
    rows = table(here.out / "labels.csv")
    assert [(row["source"], row["row"]) for row in rows[11:13]] == [("part-00000", "11"), ("part-00003", "0")]


# 23
@pytest.mark.parametrize("runner", BOTH_ENGINES)
@pytest.mark.parametrize("content", ["", "\n", "# nothing\n", "a,b\n"])
def test_an_input_without_rows_is_refused(here, content, runner):
    here("empty/part-00000", "")
    here("empty/part-00001", content)
    said = cluster(here.out.parent / "empty", here.out, "-k", 3, *runner)
    said.refused("the input holds no rows") if content != "a,b\n" else said.refused()
    stands_clear(here.out)


# 25
def test_a_small_objective_survives_large_numbers(here):
    x = np.array([-41.0005989074707, -41.00019836425781, 57.000099182128906, 57.00090026855469], np.float32)
    for runner in BOTH_ENGINES:
        assert groups(here, here("x.npy", x[:, None]), "-k", 2, "--method", "linear", *runner) == [0, 0, 1, 1]
        assert facts(here.out)["objective"] == pytest.approx(4.0109e-07, rel=0.01)
        assert facts(here.out)["passes"][-1]["objective"] == pytest.approx(4.0109e-07, rel=0.01)


# 27
@pytest.mark.parametrize("method", ["nystrom", "stable", "linear"])
def test_fewer_clusters_than_asked_are_told(here, method):
    source = here("blob.csv", lines(BLOB))
    for seed in range(10):
        gamma = 1 if seed % 2 else 3
        options = ("-k", 8, "--method", method, *wide(gamma), "--landmarks", 30, "--seed", seed, "--overwrite")
        said = cluster(source, here.out, *options)
        assert said.status == 0
        found = len(set(labels(here.out)))
        assert found == 8 or f"{8 - found} of 8 clusters are empty: {found} hold all rows" in said.err


# 29
def test_an_identity_kernel_matrix_is_told(here):
    rows = "0,0 1,3 2,6 3,2 4,5 5,1 6,4 7,0 8,3 9,6 10,2 11,5 12,1 13,4 14,0 15,3 16,6 17,2 18,5 19,1"
    source = here("data.csv", lines(rows))
    for seed in range(12):
        said = cluster(source, here.out, "-k", 2, *wide(1e6), "--landmarks", 20, "--seed", seed, "--overwrite")
        assert said.status == 0
        assert "is about zero between any two landmarks" in said.err
        assert "Traceback" not in said.err
        assert all(math.isfinite(float(row["distance"])) for row in table(here.out / "labels.csv"))


# 31
@pytest.mark.parametrize("options", [("--kernel", "linear"), wide(0.1)])
@pytest.mark.parametrize("runner", BOTH_ENGINES)
def test_svmlight_files_of_different_width_make_one_run(here, options, runner):
    here("in/part-00000", "0 1:1 2:1\n1 3:4 4:4\n0 1:1.1 2:1\n")
    source = here("in/part-00001", "1 3:4.1 4:4 9:0.5\n0 1:0.9 2:1.1\n").parent
    options = ("-k", 2, *options, "--landmarks", 5, *runner)
    said = cluster(source, here.out, *options).done()
    assert partition(labels(here.out)) == [0, 1, 0, 1, 0]
    assert "5 rows, 9 features" in said.out
    assert facts(here.out)["input"]["spec"]["width"] == 9
    new = here("new.svm", "0 1:1 12:3\n")
    apnc("predict", here.out / "model.npz", new, "-o", here.out / "new.csv").refused("new.svm line 1", "12", "9")
    assert not (here.out / "new.csv").exists()


# 31
def test_an_svmlight_index_above_the_given_width_is_named(here):
    here("in/part-00000", "0 1:1 2:1\n1 3:4 4:4\n0 1:1.1 2:1\n")
    source = here("in/part-00001", "1 3:4.1 4:4 9:0.5\n0 1:0.9 2:1.1\n").parent
    cluster(source, here.out, "-k", 2, "--width", 4).refused("part-00001 line 1", "9", "width is 4")
    stands_clear(here.out)


# 33
@pytest.mark.parametrize("options", [("--kernel", "linear"), wide(0.1)])
def test_svmlight_comments_and_qid_are_no_features(here, options):
    clean = here("clean.svm", "0 1:1 2:1\n0 1:1.1 2:1\n1 1:7 2:7\n1 1:7.2 2:7\n")
    dirty = here(
        "data.svm",
        "# made by hand, 2 features\n0 qid:90071992547409931 1:1 2:1 # first:7\n0 qid:90071992547409932 1:1.1 2:1\n#\n"
        "1 qid:3 1:7 2:7 #row three\n1 qid:3 1:7.2 2:7\n",
    )
    options = ("-k", 2, *options, "--landmarks", 4)
    for source in (clean, dirty):
        assert groups(here, source, *options) == TWO_AND_TWO
        assert facts(here.out)["features"] == 2
    assert [row["row"] for row in table(here.out / "labels.csv")] == ["0", "1", "2", "3"]


# 35
@pytest.mark.parametrize("options", [("--kernel", "linear"), wide(0.1), ("--method", "linear")])
def test_an_svmlight_row_without_features_is_the_zero_row(here, options):
    source = here("data.svm", "1 1:5 2:5\n0\n1 1:5.1 2:5\n0 \n0 1:0.1\n1 1:5 2:5.2\n")
    alike = "2 of 6 rows have no similarity to any landmark" if options == ("--kernel", "linear") else ()
    options = ("-k", 2, *options, *(() if "--method" in options else ("--landmarks", 6)))
    assert groups(here, source, *options, warns=alike) == [0, 1, 0, 1, 1, 0]
    here("parts/a.svm", "1 1:5 2:5\n1 1:5.1 2:5\n")
    source = here("parts/b.svm", "0\n0\n").parent
    said = cluster(source, here.out, *options, "--overwrite", "--runner", "inline", "--splits", 2)
    assert said.status == 0
    assert partition(labels(here.out)) == [0, 0, 1, 1]


# 37
@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("0 1:1 3000000000:1\n0 1:1.1 3000000000:1\n1 7:4 4294967296001:4\n", "line 1, index 3000000000"),
        ("0 1:1\n1 99999999999999999999:1\n", "line 2"),
    ],
)
def test_an_svmlight_index_beyond_all_limits_is_named(here, content, place):
    cluster(here("big.svm", content), here.out, "-k", 2, "--kernel", "linear").refused(f"big.svm {place}")
    stands_clear(here.out)


# 37
@pytest.mark.xfail(reason="column statistics, and landmarks as columns, are arrays of the width")
def test_an_svmlight_index_below_the_limit_allocates_nothing_of_its_size(here):
    # the file's own index allows more than fits into memory; whoever is given it gets one line, not a traceback
    source = here("big.svm", "0 1:1 2000000000:1\n0 1:1.1 2000000000:1\n1 7:4 9:4\n1 7:4.1 9:4\n")
    command = f"{sys.executable} -m apnc.cli cluster {source} -k 2 --kernel linear -o {here.out}"
    command = f"ulimit -v 4000000; {command}"
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert said.returncode in (0, 2), said.stderr
    if said.returncode:
        assert said.stderr.count("\n") == 1, said.stderr
        stands_clear(here.out)
    else:
        assert partition(labels(here.out)) == TWO_AND_TWO


# 39
def test_a_byte_order_mark_is_no_part_of_the_first_row(here):
    bom = "\ufeff"
    assert groups(here, here("nohead.csv", bom + FOUR_ROWS), "-k", 2, "--landmarks", 4) == TWO_AND_TWO
    head = here("head.csv", bom + '"x","y"\n' + FOUR_ROWS)
    for header in ("yes", "auto"):
        assert groups(here, head, "-k", 2, "--landmarks", 4, "--header", header) == TWO_AND_TWO
    assert [row["row"] for row in table(here.out / "labels.csv")] == ["0", "1", "2", "3"]


# 41
def test_a_header_in_every_part_is_skipped_in_every_part(here):
    for name, content in (("a", "height,width\n1,1\n1.1,1\n"), ("b", "height,width\n7,7\n7.2,7\n")):
        source = here(f"in/{name}.csv", content).parent
        bare = here(f"nohead/{name}.csv", content.partition("\n")[2]).parent
    options = ("-k", 2, "--landmarks", 4)
    for header in ("yes", "auto"):
        assert groups(here, source, *options, "--header", header) == TWO_AND_TWO
    assert groups(here, source, *options, *INLINE) == TWO_AND_TWO
    assert groups(here, bare, *options) == TWO_AND_TWO
    other = here.out.with_name("other")
    cluster(source, other, *options, "--header", "no").refused("a.csv line 1", "height")
    cluster(bare, other, *options, "--header", "yes").refused("a.csv line 1", "1,1", "header")
    stands_clear(other)


# 43
def test_a_decimal_comma_is_never_guessed(here):
    semicolons = here("semi.csv", "1,25;3,5\n1,3;3,4\n7,5;9,1\n7,4;9\n")
    cluster(semicolons, here.out, "-k", 2).refused("semi.csv line 1", "25;3")
    thousands = here("thousand.csv", '"1.299,99";2\n"1.300,01";2\n"9.100,50";8\n')
    european = ("-k", 2, "--delimiter", ";", "--decimal", ",", "--landmarks", 4)
    cluster(thousands, here.out, *european).refused("thousand.csv line 1", "1.299,99")
    stands_clear(here.out)
    assert groups(here, semicolons, *european) == TWO_AND_TWO


# 45
def test_carriage_returns_stay_on_no_field(here):
    crlf = here("crlf.csv", "1,1,a\r\n1.1,1,a\r\n7,7,b\r\n7.2,7,b\r\n")
    mixed = here("mixed.csv", "1,1,a\r\n1.1,1,a\n7,7,b\r\n7.2,7,b")
    for source in (crlf, mixed):
        assert groups(here, source, "-k", 2, "--landmarks", 4, "--label-column", "last") == TWO_AND_TWO
        assert facts(here.out)["scores"] == pytest.approx({"nmi": 1, "ari": 1, "accuracy": 1, "purity": 1})
        cluster(source, here.out, "-k", 2, "--landmarks", 4, "--id-column", 3, "--overwrite").done()
        assert [row["id"] for row in table(here.out / "labels.csv")] == ["a", "a", "b", "b"]
    only = here("cr_only.csv", "1,1\r1.1,1\r7,7\r7.2,7\r")
    cluster(only, here.out.with_name("other"), "-k", 2).refused("cr_only.csv", "no line feeds")


# 47
def test_utf16_and_nul_bytes_are_named(here):
    cluster(here("utf16.csv", FOUR_ROWS.encode("utf-16")), here.out, "-k", 2).refused("utf16.csv", "UTF-16")
    nul = here("nul.csv", "1,1\n1.1,1\n7,7\0\0\n7.2,7\n")
    for runner in BOTH_ENGINES:
        cluster(nul, here.out, "-k", 2, *runner).refused("nul.csv line 3", "NUL")
    stands_clear(here.out)


# 49
@pytest.mark.parametrize("runner", BOTH_ENGINES)
@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("1,2\n1.1,\n7,8\n", "line 2, column 2: found ''"),
        ("1,2\n1.1,2\nNA,8\n7,8\n", "line 3, column 1: found 'NA'"),
        ("1,2\n?,2\n7,8\n", "line 2, column 1: found '?'"),
        ("1,2\nred,2\n7,8\n", "line 2, column 1: found 'red'"),
    ],
)
def test_a_cell_that_is_no_number_is_named(here, content, place, runner):
    source = here("bad.csv", content)
    cluster(source, here.out, "-k", 2, *runner).refused(f"bad.csv {place}")
    stands_clear(here.out)
    said = cluster(source, here.out, "-k", 2, "--landmarks", 2, "--on-bad-row", "skip", *runner)
    said.done("1 bad rows were skipped (counts per reason in run.json)")
    assert list(facts(here.out)["bad_rows"].values()) == [1]


# 51
def test_a_damaged_npy_file_is_named_before_anything_starts(here):
    whole = here("whole.npy", np.arange(40.0).reshape(20, 2)).read_bytes()
    for name, content, part in [
        ("cut.npy", whole[:-72], "expected 320 bytes after the header, found 248"),
        ("header_only.npy", whole[:128], "found 0"),
        ("not_npy.npy", b"1,2\n3,4\n", "not a .npy file"),
        ("empty.npy", b"", "empty"),
    ]:
        cluster(here(name, content), here.out, "-k", 2).refused(name, part)
        stands_clear(here.out)


# 53
def test_big_endian_numbers_are_read_as_what_they_are(here):
    rng = np.random.default_rng(0)
    x = rng.normal(0, 0.3, (16, 3)) + 5 * (np.arange(16) % 2)[:, None]
    found = []
    for dtype in ("<f8", ">f8", ">f4"):
        cluster(here("x.npy", x.astype(dtype)), here.out, "-k", 2, *wide(0.2), "--landmarks", 16, "--overwrite").done()
        found.append(labels(here.out))
    assert found[0] == found[1] == found[2]
    assert partition(found[0]) == [0, 1] * 8


# 55
def test_a_gz_file_that_is_not_whole_is_named(here):
    here("in/a.csv.gz", gzip.compress(b"1,1\n1.1,1\n"))
    here("in/b.csv.gz", b"")
    source = here("in/c.csv.gz", gzip.compress(b"7,7\n7.2,7\n")).parent
    rng = np.random.default_rng(0)
    packed = gzip.compress(lines(f"{a:.4f},{b:.4f}" for a, b in rng.normal(size=(400, 2))).encode())
    cut = here("cut/a.csv.gz", packed[: int(0.6 * len(packed))]).parent
    for runner in BOTH_ENGINES:
        cluster(source, here.out, "-k", 2, *runner).refused("b.csv.gz", "0 bytes")
        for bad_rows in ("fail", "skip"):
            cluster(cut, here.out, "-k", 2, "--on-bad-row", bad_rows, *runner).refused("a.csv.gz", "ends early")
    stands_clear(here.out)


# 57
@pytest.mark.parametrize("runner", [(), INLINE, ("--runner", "local", "--splits", "4")])
def test_every_stream_of_a_bz2_file_is_read(here, runner):
    source = here("data.csv.bz2", bz2.compress(b"1,1\n1.1,1\n") + bz2.compress(b"7,7\n7.2,7\n"))
    assert groups(here, source, "-k", 2, "--landmarks", 4, *runner) == TWO_AND_TWO


# 59
@pytest.mark.parametrize("runner", BOTH_ENGINES)
def test_hidden_and_marker_files_are_no_input(here, runner):
    here("in/_SUCCESS", "")
    here("in/_logs/history.txt", 'Job JOBID="x"\n')
    here("in/.part-00000.crc", b"crc\0\0\xff\xff")
    here("in/.DS_Store", b"\0\0\0Bud1\0\0")
    here("in/._part-00001", b"\0\0Mac OS X\0")
    here("in/part-00000", "1,1\n1.1,1\n")
    source = here("in/part-00001", "7,7\n7.2,7\n").parent
    assert groups(here, source, "-k", 2, "--landmarks", 4, *runner) == TWO_AND_TWO
    assert {row["source"] for row in table(here.out / "labels.csv")} == {"part-00000", "part-00001"}


AWKWARD = ["star[1].csv", "two words.csv", "it's.csv", "x#y.csv", "a,b.csv", "-k.csv", "données.csv", "$HOME~.csv"]
AWKWARD += ['a"b.csv', "a=b:c.csv"]


# 61
def test_awkward_file_names_are_only_names(here):
    for name in AWKWARD:
        source = here(f"in/{name}", FOUR_ROWS)
        out = here.out.with_name(f"results, of [{name}]")
        cluster(source, out, "-k", 2, "--landmarks", 4).done()
        assert partition(labels(out)) == TWO_AND_TWO
        assert {row["source"] for row in table(out / "labels.csv")} == {name}
    for runner in ((), INLINE):
        cluster(source.parent, here.out, "-k", 2, "--landmarks", 4, "--overwrite", *runner).done()
        rows = table(here.out / "labels.csv")
        assert [row["source"] for row in rows] == [name for name in sorted(AWKWARD) for _ in range(4)]
        assert partition(int(row["cluster"]) for row in rows) == TWO_AND_TWO * len(AWKWARD)
    with chdir(source.parent):
        apnc("cluster", "-k", 2, "--landmarks", 4, "-o", "../-o", "--", "-k.csv").done()
    assert partition(labels(here.out.with_name("-o"))) == TWO_AND_TWO


# 63
@pytest.mark.parametrize("runner", BOTH_ENGINES)
def test_a_file_without_a_final_line_feed_is_not_joined_with_the_next(here, runner):
    here("in/a.csv", "1,1\n1.1,1\n1.2,1")
    source = here("in/b.csv", "7,7\n7.2,7\n7.1,7").parent
    assert groups(here, source, "-k", 2, "--landmarks", 6, *runner) == [0, 0, 0, 1, 1, 1]


# 65
def test_tabs_at_the_end_before_the_row_and_in_ids(here):
    trailing = here("trailing_tab.csv", FOUR_ROWS.replace("\n", "\t\n"))
    ids = here("tab_in_id.csv", "id,x\na\tb,1\na\tc,1.1\nd,7\n")
    offsets = here("offset.csv", "0\t1,1\n4\t1.1,1\n10\t7,7\n14\t7.2,7\n")
    for runner in BOTH_ENGINES:
        assert groups(here, trailing, "-k", 2, "--landmarks", 4, *runner) == TWO_AND_TWO
        assert groups(here, ids, "-k", 2, "--landmarks", 3, "--id-column", 1, "--header", "yes", *runner) == [0, 0, 1]
        assert [row["id"] for row in table(here.out / "labels.csv")] == ["a\tb", "a\tc", "d"]
    other = here.out.with_name("other")
    cluster(offsets, other, "-k", 2).refused("offset.csv line 1", "0\\t1")
    stands_clear(other)


# 61, 75
def test_tasks_do_not_depend_on_names_or_on_the_folder_they_were_started_from(here):
    for name in AWKWARD:
        source = here(f"in, [of] #1/{name}", FOUR_ROWS).parent
    link, out = source.with_name("link"), here.out.with_name("results, of #1")
    link.symlink_to(source.name)
    with chdir(link):
        cluster("./", f"../{out.name}", "-k", 2, "--landmarks", 4, *LOCAL).done()
    assert partition(labels(out)) == TWO_AND_TWO * len(AWKWARD)
    with chdir("/"):
        model, rows = (os.path.relpath(path) for path in (out / "model.npz", source))
        apnc("predict", model, rows, "-o", here.out, *LOCAL).done()
    assert here.out.read_text() == (out / "labels.csv").read_text()


# 79
@pytest.mark.parametrize("runner", [(), INLINE, ("--runner", "inline", "--splits", "12")])
@pytest.mark.parametrize("name", ["part-{:05}", "part-{}"])
def test_labels_stay_beside_their_rows_whatever_the_order_of_parts(here, name, runner):
    for i in range(12):
        source = here("parts/" + name.format(i), f"{8 * (i > 5) + i / 100:g},{i}\n").parent
    cluster(source, here.out, "-k", 2, "--landmarks", 12, *runner).done()
    rows = table(here.out / "labels.csv")
    assert [row["source"] for row in rows] == sorted(name.format(i) for i in range(12))
    found = {row["source"]: int(row["cluster"]) for row in rows}
    assert partition(found[name.format(i)] for i in range(12)) == [0] * 6 + [1] * 6


def _parts(count):
    """Return the 100 rows of 4 parts as blocks: whole parts, or each in ``count`` pieces."""
    cuts = [25 * i // count for i in range(count + 1)]
    return [
        block(100.0 * part + np.arange(low, high)[:, None], f"part-0000{part}", low)
        for part in range(4)
        for low, high in pairwise(cuts)
    ]


def _sampled(seed, blocks):
    """Return the values sampled from blocks that were folded one by one and merged in reverse."""
    fold = SampleFold(seed, 8)
    total = {}
    for some in reversed(blocks):
        state = {}
        fold.accumulate(state, some)
        part = state["sample"]
        total["sample"] = fold.merge("sample", part, total["sample"]) if total else part
    return fold.finish(total).x[:, 0].astype(int).tolist()


# 81
def test_the_sample_is_uniform_and_not_alike_in_every_part():
    picked, alike = Counter(), 0
    whole, pieces = _parts(1), _parts(7)
    for seed in range(200):
        values = _sampled(seed, whole)
        assert len(set(values)) == 8
        assert values == _sampled(seed, pieces)
        picked.update(values)
        of_parts = [{v % 100 for v in values if v // 100 == part} for part in range(4)]
        alike += len(set.union(*of_parts)) <= 2
    assert alike == 0
    counts = np.array([picked[100 * part + offset] for part in range(4) for offset in range(25)])
    assert counts.sum() == 1600
    assert abs(counts - 16).max() < 20  # 5 sigma
    at_the_ends = counts.reshape(4, 25)[:, [0, 24]].sum()
    assert abs(at_the_ends - 8 * 16) < 5 * np.sqrt(8 * 16)

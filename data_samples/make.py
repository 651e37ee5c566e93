"""Write the samples of this directory again from the copies that scikit-learn ships.

Run as ``python data_samples/make.py``.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

HERE = Path(__file__).parent


def shortest(value: float) -> str:
    """Return the shortest decimal that reads back as ``value``, as in the original file: 1001, 0.0869."""
    return np.format_float_positional(value, trim="-")


def main() -> None:
    digits = load_digits()
    with open(HERE / "digits.csv", "w", newline="\n") as out:
        print(*digits.feature_names, "digit", sep=",", file=out)
        for row, digit in zip(digits.data.astype(int), digits.target, strict=True):
            print(*row, digit, sep=",", file=out)

    cancer = load_breast_cancer()
    with open(HERE / "breast_cancer.svm", "w", newline="\n") as out:
        for row, benign in zip(cancer.data, cancer.target, strict=True):
            features = (f"{j}:{shortest(value)}" for j, value in enumerate(row, 1) if value)
            print(benign, *features, file=out)


if __name__ == "__main__":
    main()

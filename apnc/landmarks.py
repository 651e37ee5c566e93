"""Which sample rows become landmarks."""

from __future__ import annotations

from apnc.kernels import nearest_name

SELECTIONS = ("uniform",)


def choose_landmarks(x, count: int, settings, kernel):
    """Return ``count`` landmarks from sample rows x (s, d) in hash order.

    'uniform' takes the first rows in hash order: a uniform sample without replacement of all rows.
    """
    if settings.landmark_selection not in SELECTIONS:
        raise nearest_name("landmark selection", settings.landmark_selection, SELECTIONS)
    return x[:count].copy()  # a slice would keep the whole sample in memory

"""All randomness of a run: hashes of row identities, and generators named by their purpose."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


def _mix(z: np.ndarray) -> np.ndarray:
    """Return the finalizer of splitmix64 (Steele, Lea and Flood 2014), element by element."""
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))


def _digest(*parts) -> int:
    return int.from_bytes(blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest(), "little")


def row_hashes(seed: int, purpose: str, source: str, offsets: np.ndarray) -> np.ndarray:
    """Return hash(seed, purpose, row identity) for rows of one source, uniform over 64 bits.

    Parameters
    ----------
    seed : int
    purpose : str
        Hashes of different purposes are independent.
    source : str
    offsets : ndarray of int64, shape (n,)

    Returns
    -------
    ndarray of uint64, shape (n,)
    """
    key = np.uint64(_digest(seed, purpose, source))
    return _mix(_mix(offsets.astype(np.uint64) * _GOLDEN + key) ^ key)


def generator(seed: int, purpose: str, *ordinal: int) -> np.random.Generator:
    """Return the generator for (seed, purpose, ordinal): never shared, never dependent on a task or a clock."""
    return np.random.default_rng([_digest(seed, purpose), *ordinal])

"""What is put on an HDFS in tests, the real one's too, and how to compare what is read of it."""

from __future__ import annotations

NAMES = (
    "a b",
    "a#b",
    "a%20b",
    "100%",
    "a+b",
    "a?b=c&d",
    "données",
    "日本 😀",
    "[x]",
    "a,b",
    "{a,b}",
    "*",
    "\\b",
    "it's",
    "a\nb",
)


def told(blocks) -> list[dict]:
    """Return all that blocks say, in values that can be compared."""
    out = []
    for b in blocks:
        x = b.x.toarray() if hasattr(b.x, "toarray") else b.x
        plain = {"x": (str(x.dtype), x.tolist()), "offsets": b.offsets.tolist(), "bad": b.bad.tolist()}
        out.append(b.to_dict() | plain)
    return out

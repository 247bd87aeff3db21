"""Text for people: names, sizes, counts and shapes, as in every message and panel.

Names come from files that are not trusted: they may be bytes, thousands of characters long, or hold line breaks.
"""

from __future__ import annotations

import itertools
import math
import os
import unicodedata
from collections.abc import Iterable


def closest(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """Return at most ``n`` names that are most like ``name``, best first."""
    import difflib  # only mistakes need it

    candidates = dict.fromkeys(names)
    if name and len(candidates) > 2000:
        # difflib takes about 20 µs a name: among many names, first try those that contain the text or share its start.
        text = name.lower()
        stem = text[: max(3, len(text) // 2)]
        near = [other for other in candidates if text in other.lower() or other.lower().startswith(stem)]
        candidates = dict.fromkeys(near[:2000] or list(candidates)[:2000])
    usable = [other for other in candidates if len(other) <= 500]
    near_names = difflib.get_close_matches(name[:500], usable, n=n, cutoff=0.5)
    longer = [other for other in usable if name and name in other and other not in near_names]
    return (near_names + sorted(longer, key=len))[:n]


def plain_text(name: str | bytes) -> str:
    """Return a name of a proto as ``str``; protobuf returns ``bytes`` where a name is not valid UTF-8."""
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be written as UTF-8; names of files may be any bytes."""
    return plain_text(os.fsencode(path))


def quoted(name: str) -> str:
    """Return a name in quotes for a message: only its beginning and end if it is very long."""
    return repr(name if len(name) <= 200 else f"{name[:120]}…{name[-60:]}")


def shortened(text: str, limit: int) -> str:
    """Return a text, cut to at most ``limit`` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def printable(text: str) -> str:
    """Return a text with a dot for each character that would change its direction, break the line or be invisible."""
    categories = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join("·" if unicodedata.category(character) in categories else character for character in text)


def bytes_text(nbytes: int) -> str:
    """Return a number of bytes in B, kB, MB or GB (powers of 1,000)."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"


def count_text(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, which takes an "s" (or ``plural``) unless the number is 1."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def scaled_text(number: float, unit: str = "") -> str:
    """Return a number to three digits with a unit and its prefix: k, M, G, T or P."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:.0f} {unit}".rstrip()


def duration_text(seconds: float) -> str:
    """Return a time to three digits in s, ms or µs."""
    unit, size = ("s", 1.0) if seconds >= 1 else ("ms", 1e-3) if seconds >= 1e-3 else ("µs", 1e-6)
    return f"{seconds / size:.3g} {unit}"


def ratio_text(ratio: float) -> str:
    """Return a factor to two digits; from 1,000 on to one, as what is so much smaller is the chance of rounding."""
    if math.isinf(ratio):
        return "infinitely"
    return f"{float(f'{ratio:.{1 + (ratio < 1000)}g}'):,.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def number_text(number: complex, digits: int = 7) -> str:
    """Return a number, a float to some significant digits, with typographic signs for minus and infinity."""
    if isinstance(number, bool):
        return str(number).lower()
    text = str(number) if isinstance(number, int) else f"{number:.{digits}g}"
    return text.replace("-", "−").replace("inf", "∞").replace("nan", "NaN")


def decibels_text(ratio: float) -> str:
    """Return a ratio in dB with one decimal, with the typographic signs of `number_text`.

    >>> decibels_text(18.04), decibels_text(float("inf")), decibels_text(-3)
    ('18.0 dB', '∞ dB', '−3.0 dB')
    """
    return f"{ratio:.1f} dB".replace("-", "−").replace("inf", "∞").replace("nan", "NaN")


def share_text(share: float) -> str:
    """Return a fraction in percent with two digits.

    >>> share_text(0.0123), share_text(1e-9), share_text(0.999)
    ('1.2%', '<0.001%', '100%')
    """
    if share > 1e4:
        return ">1,000,000%"
    return "<0.001%" if 0 < share < 1e-5 else f"{float(f'{100 * share:.2g}'):,.9g}%"


def shape_text(shape: int | Iterable[int | str | None]) -> str:
    """Return a size, or a shape as ``1×3×224``: ``?`` for an unknown dimension, "scalar" for rank 0."""
    first = [shape] if isinstance(shape, int) else [*itertools.islice(shape, 17)]
    texts = ["?" if dim is None else shortened(str(dim), 60) for dim in first[:16]]
    return "×".join([*texts, *("…" for _ in first[16:])]) or "scalar"


def closest_text(name: str, names: Iterable[str]) -> str:
    """Return "Closest names: …." for the advice of an error; empty if no name is similar."""
    matches = closest(name, names)
    return f"Closest names: {', '.join(map(quoted, matches))}." if matches else ""

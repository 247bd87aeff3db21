"""Text for people: names, sizes, counts and shapes, as every message and panel writes them.

Names come from files that are not trusted: they may be bytes, thousands of characters long, or hold line breaks.
"""

from __future__ import annotations

import difflib
import math
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def closest(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """Return the names most like ``name``, best first.

    Parameters
    ----------
    name
        The name that was asked for.
    names
        The names that exist.
    n
        Maximum number of names returned.

    Returns
    -------
    list of str
        Empty if no name is similar.

    Examples
    --------
    >>> closest("layer1.weigth", ["layer1.weight", "layer1.bias", "head"], n=1)
    ['layer1.weight']
    """
    candidates = dict.fromkeys(names)
    if name and len(candidates) > 2000:
        # difflib costs about 20 µs a name: of many names look first at those that hold the text or share its start.
        lowered = name.lower()
        stem = lowered[: max(3, len(lowered) // 2)]
        near = [other for other in candidates if lowered in other.lower() or other.lower().startswith(stem)]
        candidates = dict.fromkeys(near[:2000] or list(candidates)[:2000])
    usable = [other for other in candidates if len(other) <= 500]
    found = difflib.get_close_matches(name[:500], usable, n=n, cutoff=0.5)
    contained = [other for other in usable if name and name in other and other not in found]
    return (found + sorted(contained, key=len))[:n]


def plain_text(name: str | bytes) -> str:
    r"""Return a name of a proto as ``str``; protobuf returns ``bytes`` where a name is not valid UTF-8.

    Examples
    --------
    >>> plain_text("w"), plain_text(b"\xffw")
    ('w', '\\xffw')
    """
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name


def quoted(name: str) -> str:
    """Return a name in quotes for a message: its beginning and end if it is very long.

    Examples
    --------
    >>> quoted("w"), len(quoted("w" * 10_000))
    ("'w'", 183)
    """
    return repr(name if len(name) <= 200 else f"{name[:120]}…{name[-60:]}")


def shortened(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` characters: the beginning of a longer one.

    Examples
    --------
    >>> shortened("batch", 24), shortened("batch", 4)
    ('batch', 'bat…')
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def printable(text: str) -> str:
    r"""Return a text with a dot for each character that would change its direction, break the line or be invisible.

    Examples
    --------
    >>> printable("a\u202egnp.exe\n")
    'a·gnp.exe·'
    """
    return "".join("·" if unicodedata.category(character) in ("Cc", "Cf") else character for character in text)


def bytes_text(nbytes: int) -> str:
    """Return a number of bytes in B, kB, MB or GB (powers of 1,000).

    Examples
    --------
    >>> bytes_text(512), bytes_text(438_000_000)
    ('512 B', '438.0 MB')
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes} B"


def count_text(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, which takes an "s" (or ``plural``) unless the number is 1.

    Examples
    --------
    >>> count_text(1, "node"), count_text(1200, "node"), count_text(2, "body", "bodies")
    ('1 node', '1,200 nodes', '2 bodies')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def scaled_text(number: float, unit: str = "") -> str:
    """Return a number to three digits with a unit and its prefix: k, M, G, T or P.

    Examples
    --------
    >>> scaled_text(512, "MACs"), scaled_text(4_089_184_256, "MACs"), scaled_text(512)
    ('512 MACs', '4.09 GMACs', '512')
    """
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:.0f} {unit}".rstrip()


def duration_text(seconds: float) -> str:
    """Return a time to three digits in s, ms or µs.

    Examples
    --------
    >>> duration_text(0.0000123), duration_text(0.00123), duration_text(12.3)
    ('12.3 µs', '1.23 ms', '12.3 s')
    """
    unit, size = ("s", 1.0) if seconds >= 1 else ("ms", 1e-3) if seconds >= 1e-3 else ("µs", 1e-6)
    return f"{seconds / size:.3g} {unit}"


def ratio_text(ratio: float) -> str:
    """Return a factor to two digits.

    Examples
    --------
    >>> ratio_text(2.345), ratio_text(123_456), ratio_text(math.inf)
    ('2.3×', '120,000×', 'infinitely')
    """
    if math.isinf(ratio):
        return "infinitely"
    return f"{float(f'{ratio:.2g}'):,.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def number_text(number: complex, digits: int = 7) -> str:
    """Return a number to some digits, with typographic signs for minus and infinity.

    Parameters
    ----------
    number
        A bool, integer (written in full), float or complex number.
    digits
        Significant digits of a float.

    Examples
    --------
    >>> number_text(0.1 + 0.2), number_text(float("-inf")), number_text(True), number_text(-12)
    ('0.3', '−∞', 'true', '−12')
    """
    if isinstance(number, bool):
        return str(number).lower()
    text = str(number) if isinstance(number, int) else f"{number:.{digits}g}"
    return text.replace("-", "−").replace("inf", "∞").replace("nan", "NaN")


def shape_text(shape: Iterable[int | str | None]) -> str:
    """Return a shape as ``1×3×224``: ``?`` for an unknown dimension, "scalar" for rank 0.

    Examples
    --------
    >>> shape_text((1, "n", None)), shape_text(())
    ('1×n×?', 'scalar')
    """
    return "×".join("?" if dim is None else shortened(str(dim), 60) for dim in shape) or "scalar"


def closest_text(name: str, names: Iterable[str], n: int = 3) -> str:
    """Return "Closest names: …." for the advice of an error; empty if no name is similar.

    Examples
    --------
    >>> closest_text("wieght", ["weight", "bias"]), closest_text("x", ["weight"])
    ("Closest names: 'weight'.", '')
    """
    found = closest(name, names, n)
    return f"Closest names: {', '.join(map(quoted, found))}." if found else ""

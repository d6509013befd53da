"""Letters as strokes of a pen, for the labels of a picture.

A glyph is written as its width and its strokes; a stroke as points, of two digits each: x, and y from the top. Capitals
are 6 high, small letters begin at 2, and 8 is below the line. Before a stroke, `~` says that its corners are round.
"""

from collections.abc import Iterator
from itertools import pairwise

Stroke = list[tuple[float, float]]
CAPITAL = 6
GAP = 1.6  # between two letters
ROUNDINGS = 3
_LOOP = "~224246060222"

GLYPHS = {
    " ": "2", ".": "0 0606", ",": "1 1607", ":": "0 0303 0606", ";": "1 1313 1607", "/": "3 3006", "-": "3 0434",
    "0": "4 ~204046060020", "1": "2 012026", "2": "4 ~0100404306 0646", "3": "4 ~0100404313 ~1343460605",
    "4": "4 36300444", "5": "4 400003 ~032242460605", "6": "4 ~4140000646430304", "7": "4 004016",
    "8": "4 ~204043030020 ~234346060323", "9": "4 ~0506464000034342",
    "A": "4 062046 1434", "B": "4 0006 ~00404303 ~03434606", "C": "4 ~414000064645", "D": "4 0006 ~00404606",
    "E": "4 40000646 0333", "F": "4 400006 0333", "G": "4 ~414000064643 4323", "H": "4 0006 4046 0343", "I": "0 0006",
    "J": "4 ~40460605", "K": "4 0006 4003 0346", "L": "4 000646", "M": "4 0600234046", "N": "4 06004640",
    "O": "4 ~204046060020", "P": "4 0006 ~00404303", "Q": "4 ~204046060020 3446", "R": "4 0006 ~00404303 2346",
    "S": "4 ~4140000343460605", "T": "4 0040 2026", "U": "4 ~00064640", "V": "4 002640", "W": "4 0016233640",
    "X": "4 0046 4006", "Y": "4 0023 4023 2326", "Z": "4 00400646",
    "a": f"4 {_LOOP} 4246", "b": f"4 {_LOOP} 0006", "c": "4 ~434202064645", "d": f"4 {_LOOP} 4046",
    "e": "4 ~04444202064645", "f": "3 ~301016 0232", "g": f"4 {_LOOP} ~42480807", "h": "4 0006 ~03024246",
    "i": "0 0206 0000", "j": "1 ~121808 1010", "k": "3 0006 3204 0436", "l": "0 0006",
    "m": "4 0206 ~03022226 ~23224246", "n": "4 0206 ~03024246", "o": f"4 {_LOOP}", "p": f"4 {_LOOP} 0208",
    "q": f"4 {_LOOP} 4248", "r": "3 0206 ~040232", "s": "4 ~4342020444460605", "t": "3 ~101636 0232",
    "u": "4 ~02064642 4246", "v": "4 022642", "w": "4 0216243642", "x": "4 0246 4206", "y": "4 0226 4218",
    "z": "4 02420646",
}  # fmt: skip


def width(text: str) -> float:
    return sum(_wide(letter) + GAP for letter in text) - GAP if text else 0.0


def strokes(text: str) -> Iterator[Stroke]:
    """All strokes of a text, from 0 to the right and from 0 to 8 down; a letter that is not known is a space."""
    left = 0.0
    for letter in text:
        for written in GLYPHS.get(letter, GLYPHS[" "]).split()[1:]:
            digits = written.lstrip("~")
            points = [(left + int(digits[at]), float(digits[at + 1])) for at in range(0, len(digits), 2)]
            yield _rounded(points) if written.startswith("~") else points
        left += _wide(letter) + GAP


def _wide(letter: str) -> float:
    return float(GLYPHS.get(letter, GLYPHS[" "]).split()[0])


def _rounded(points: Stroke) -> Stroke:
    """Corners cut, and those of what is left cut again; the ends stay."""
    for _ in range(ROUNDINGS):
        cut = [points[0]]
        for (x, y), (to_x, to_y) in pairwise(points):
            cut.append((0.75 * x + 0.25 * to_x, 0.75 * y + 0.25 * to_y))
            cut.append((0.25 * x + 0.75 * to_x, 0.25 * y + 0.75 * to_y))
        points = [*cut, points[-1]]
    return points

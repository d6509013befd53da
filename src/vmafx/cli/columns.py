"""Which columns of a table there is room for, and how wide each is."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from rich.cells import cell_len, set_cell_size

TEXT, NAME = 16, 16  # characters that still say something
CUT = "…"


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Heads, from left to right, and what gives way where there is too little room for all.

    First `texts` do, the widest first, down to a few words. Then `spare` columns are left out, one after the other:
    half a number is worse than none. Only then `names` are cut, and last of all the texts are left out.
    """

    heads: tuple[str, ...]
    names: tuple[str, ...] = ("NAME",)
    texts: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()

    def after(self, name: str) -> "Columns":
        """With a column of names before all others."""
        return msgspec.structs.replace(self, heads=(name, *self.heads), names=(name, *self.names))

    def fit(self, widths: Sequence[int], gap: int, room: int) -> list[int]:
        """The width of each column, of which `widths` would be enough; 0 is one that is left out."""
        whole = dict(zip(self.heads, widths, strict=True))
        for left_out, least in self._ways():
            kept = {head: min(width, room) for head, width in whole.items() if head not in left_out}
            found = self._squeezed(kept, least, room - gap * (len(kept) - 1))
            if found is not None:
                return [found.get(head, 0) for head in self.heads]
        return [room if head == self.names[-1] else 0 for head in self.heads]

    def _ways(self) -> Iterator[tuple[Collection[str], Mapping[str, int]]]:
        """What to leave out, and how narrow the rest may become: the best first."""
        texts, names = dict.fromkeys(self.texts, TEXT), dict.fromkeys(self.names, NAME)
        for count in range(len(self.spare) + 1):
            yield self.spare[:count], texts
        yield self.spare, texts | names
        gone = {*self.spare, *self.texts}
        yield set(gone), names
        for head in reversed([head for head in self.heads if head not in gone | names.keys()]):
            gone.add(head)
            yield set(gone), names

    def _squeezed(self, widths: Mapping[str, int], least: Mapping[str, int], room: int) -> dict[str, int] | None:
        """The same in less room, the widest text giving way first, names last; None if that is not enough."""
        found = dict(widths)
        for _ in range(sum(found.values()) - room):
            elastic = [head for head, width in found.items() if width > least.get(head, width)]
            if not elastic:
                return None
            found[max(elastic, key=lambda head: (head not in self.names, found[head]))] -= 1
        return found


def wide(text: str) -> int:
    """In cells of a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, width: int, *, name: bool = False) -> str:
    """The beginning of a text; of a name its end too, since names mostly differ there."""
    if wide(text) <= width:
        return text
    if name and text.isascii() and width > 2:
        end = (width - 1) // 2
        return f"{text[: width - 1 - end]}{CUT}{text[-end:]}"
    return f"{set_cell_size(text, width - 1).rstrip()}{CUT}"

"""The options that people may pass to encoders, with the values that each may have.

Only what changes how pictures are encoded is listed. What sets the rate control, key frames, threads or the container
is chosen by vmaf-tune, and nothing here names a file.
"""

from collections.abc import Mapping

import msgspec

from vmafx.scoring.errors import BadInput

Extras = tuple[tuple[str, str], ...]  # names with values, in order of the names
MAX_SHOWN = 50  # characters of a value in an error


class EncoderOption(msgspec.Struct, frozen=True):
    """One of some words, or a number from `low` to `high`. `params` is the option of libavcodec that has it, if any."""

    words: tuple[str, ...] = ()
    low: float = 0
    high: float = 0
    whole: bool = True
    params: str = ""

    @property
    def values(self) -> str:
        """For people."""
        if self.words:
            return ", ".join(self.words)
        return f"a {'whole number' if self.whole else 'number'} from {self.low:g} to {self.high:g}"

    def parse(self, value: str) -> str | None:
        """The value as it is written for the encoder; None if it is none of those."""
        if self.words:
            return value if value in self.words else None
        try:
            number = float(value)
        except ValueError:
            return None
        fits = self.low <= number <= self.high and (not self.whole or number.is_integer())
        return f"{number + 0.0:.6g}" if fits else None  # no -0


Options = Mapping[str, EncoderOption]


def _words(*words: str) -> EncoderOption:
    return EncoderOption(words)


def _whole(low: int, high: int, params: str = "") -> EncoderOption:
    return EncoderOption((), low, high, whole=True, params=params)


def _number(low: float, high: float, params: str = "") -> EncoderOption:
    return EncoderOption((), low, high, whole=False, params=params)


SWITCH = _whole(0, 1)
X265, SVT = "x265-params", "svtav1-params"
X264_OPTIONS: Options = {
    "tune": _words("film", "animation", "grain", "stillimage", "psnr", "ssim", "fastdecode", "zerolatency"),
    "aq-mode": _whole(0, 3),
    "aq-strength": _number(0, 3),
    "bf": _whole(0, 16),
    "refs": _whole(1, 16),
    "rc-lookahead": _whole(0, 250),
    "me_method": _words("dia", "hex", "umh", "esa", "tesa"),
    "subq": _whole(0, 11),
    "trellis": _whole(0, 2),
    "weightp": _whole(0, 2),
    "weightb": SWITCH,
    "mbtree": SWITCH,
    "8x8dct": SWITCH,
    "psy": SWITCH,
}
X265_OPTIONS: Options = {
    "tune": _words("psnr", "ssim", "grain", "animation", "fastdecode", "zerolatency"),
    "aq-mode": _whole(0, 4, X265),
    "aq-strength": _number(0, 3, X265),
    "bframes": _whole(0, 16, X265),
    "ref": _whole(1, 16, X265),
    "rc-lookahead": _whole(0, 250, X265),
    "rd": _whole(1, 6, X265),
    "psy-rd": _number(0, 5, X265),
    "psy-rdoq": _number(0, 50, X265),
    "me": _whole(0, 5, X265),
    "subme": _whole(0, 7, X265),
    "ctu": EncoderOption(("16", "32", "64"), params=X265),
    "sao": _whole(0, 1, X265),
    "rect": _whole(0, 1, X265),
    "amp": _whole(0, 1, X265),
    "cutree": _whole(0, 1, X265),
}
VP9_OPTIONS: Options = {
    "tune-content": _words("default", "screen", "film"),
    "aq-mode": _whole(0, 4),
    "lag-in-frames": _whole(0, 25),
    "auto-alt-ref": _whole(0, 6),
    "arnr-maxframes": _whole(0, 15),
    "arnr-strength": _whole(0, 6),
    "enable-tpl": SWITCH,
    "tile-columns": _whole(0, 6),
    "tile-rows": _whole(0, 2),
    "frame-parallel": SWITCH,
}
AOM_OPTIONS: Options = {
    "tune": _words("psnr", "ssim"),
    "aq-mode": _whole(0, 3),
    "lag-in-frames": _whole(0, 48),
    "denoise-noise-level": _whole(0, 50),
    "arnr-max-frames": _whole(0, 15),
    "arnr-strength": _whole(0, 6),
    "tile-columns": _whole(0, 6),
    "tile-rows": _whole(0, 6),
    "enable-cdef": SWITCH,
    "enable-restoration": SWITCH,
    "enable-global-motion": SWITCH,
    "enable-intrabc": SWITCH,
    "enable-palette": SWITCH,
}
SVT_OPTIONS: Options = {
    "tune": _whole(0, 2, SVT),
    "film-grain": _whole(0, 50, SVT),
    "film-grain-denoise": _whole(0, 1, SVT),
    "lookahead": _whole(0, 120, SVT),
    "enable-tf": _whole(0, 1, SVT),
    "enable-overlays": _whole(0, 1, SVT),
    "enable-variance-boost": _whole(0, 1, SVT),
    "variance-boost-strength": _whole(1, 4, SVT),
    "enable-qm": _whole(0, 1, SVT),
    "qm-min": _whole(0, 15, SVT),
    "qm-max": _whole(0, 15, SVT),
    "scm": _whole(0, 2, SVT),
    "fast-decode": _whole(0, 2, SVT),
    "tile-columns": _whole(0, 4, SVT),
    "tile-rows": _whole(0, 6, SVT),
}


def parse_extras(encoder: str, options: Options, given: list[tuple[str, str]]) -> Extras:
    """Options of an encoder as people gave them, in one order and form. Raises BadInput."""
    found = dict[str, str]()
    for name, value in given:
        option = options.get(name)
        if option is None:
            if not options:
                raise BadInput("options", f"vmaf-tune passes no options on to {encoder}")
            known = ", ".join(options)
            shown = repr(name[:MAX_SHOWN])
            raise BadInput(
                "options", f"{shown} is no option of {encoder} that vmaf-tune passes on; choose from {known}"
            )
        if name in found:
            raise BadInput("options", f"the option {name} of {encoder} is given twice")
        if (parsed := option.parse(value)) is None:
            raise BadInput("options", f"the option {name} of {encoder} is {option.values}, not {value[:MAX_SHOWN]!r}")
        found[name] = parsed
    return tuple(sorted(found.items()))


def with_extras(options: Mapping[str, str], known: Options, extras: Extras) -> dict[str, str]:
    """The options of libavcodec with those that people gave."""
    merged = dict(options)
    for name, value in extras:
        if params := known[name].params:
            merged[params] = ":".join(filter(None, [merged.get(params), f"{name}={value}"]))
        else:
            merged[name] = value
    return merged

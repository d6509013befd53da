"""TuneConfig: what a comparison tries, from a YAML file or from flags."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta
from yaml.composer import ComposerError

from vmafx.scoring.errors import BadInput
from vmafx.text import one_line
from vmafx.tune.compare import EncodePlan
from vmafx.tune.encoders import DEFAULT_ENCODERS, ENCODERS, Variant
from vmafx.tune.encoding import EncoderTools

MAX_CONFIG_BYTES = 64 << 10
Score = Annotated[float, Meta(ge=0, le=100)]
Qualities = Annotated[tuple[float, ...], Meta(min_length=1, max_length=64)]


class VariantConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An encoder to try; `qualities` default to those of the file, and those to the encoder's own."""

    encoder: str  # may name a preset and options
    preset: str = ""
    qualities: Qualities | None = None
    options: Annotated[dict[str, str], Meta(max_length=64)] = {}

    @property
    def variant(self) -> Variant:
        for text in (self.preset, *self.options, *self.options.values()):
            if ":" in text:
                raise BadInput("options", f"{text[:50]!r} of {self.encoder[:50]!r} must not contain a colon")
        preset = [self.preset] if self.preset else []
        return Variant.parse(
            ":".join([self.encoder, *preset, *(f"{name}={one}" for name, one in self.options.items())])
        )


class TuneConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of `--config`. A flag replaces what the file says."""

    encoders: Annotated[tuple[VariantConfig | str, ...], Meta(max_length=64)] = ()
    qualities: Qualities | None = None
    targetVmaf: Score | None = None
    tolerance: Annotated[float, Meta(gt=0, le=20)] = 0.5

    @classmethod
    def read(cls, path: Path) -> "TuneConfig":
        """Raises BadInput if the file is missing or malformed."""
        try:
            with path.open("rb") as file:
                content = file.read(MAX_CONFIG_BYTES + 1)
        except OSError as error:
            raise BadInput("options", f"cannot read {path}: {error.strerror}") from error
        if len(content) > MAX_CONFIG_BYTES:
            raise BadInput("options", f"{path} has more than {MAX_CONFIG_BYTES:,} bytes, which is the limit")
        try:
            found = msgspec.convert(_parse(content), cls, strict=False)  # all values are text
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            why = one_line(str(error)) or "it is nested too deeply"
            raise BadInput("options", f"{path} is not a valid configuration: {why}") from error
        if found.targetVmaf is not None and (found.qualities or found.without_qualities != found.encoders):
            raise BadInput("options", f"{path} has qualities and targetVmaf, which searches among all; remove one")
        return found

    @property
    def without_qualities(self) -> tuple[VariantConfig | str, ...]:
        """The encoders, each with the qualities of all."""
        return tuple(
            one if isinstance(one, str) else msgspec.structs.replace(one, qualities=None) for one in self.encoders
        )

    def variants(self, tools: EncoderTools) -> list[VariantConfig]:
        """Those of the file; by default, the usual encoders that this machine has. Raises BadInput."""
        chosen = [VariantConfig(one) if isinstance(one, str) else one for one in self.encoders]
        if not chosen:
            available = tools.in_ffmpeg | tools.in_pyav
            chosen = [VariantConfig(name) for name in DEFAULT_ENCODERS if name in available]
        if not chosen:
            raise BadInput("options", f"this machine has none of the encoders {', '.join(ENCODERS)}")
        names = [one.variant.name for one in chosen]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise BadInput("options", f"the encoder {min(repeated)} is given twice")
        for one in chosen:
            tools.library(one.variant.encoder)
        return chosen

    def plans(self, variants: list[VariantConfig]) -> list[EncodePlan]:
        """The encodes of a comparison."""
        plans = []
        for one in variants:
            variant = one.variant
            for quality in dict.fromkeys(one.qualities or self.qualities or variant.encoder.qualities):
                variant.encoder.check_quality(quality)
                plans.append(EncodePlan(variant, quality))
        return plans


class _PlainLoader(yaml.BaseLoader):
    """YAML without tags and aliases; merged aliases would take memory exponential in the size of the file."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
            raise ComposerError(None, None, "aliases and tags are not supported", event.start_mark)
        return super().compose_node(parent, index)


def _parse(content: bytes) -> Any:
    return yaml.load(content, _PlainLoader) or {}  # noqa: S506 - makes texts, lists and mappings only

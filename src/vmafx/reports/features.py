"""What reports know about each feature: its label, precision and scale."""

import re

import msgspec

from vmafx.scoring.result import Report

ELEMENTARY = re.compile(r"(integer_|float_)?(adm|vif|motion)")
ELEMENTARY_NAME = re.compile(r"(integer_|float_)?(adm2|motion[23]?|(adm|vif)_scale[0-3])")


class FeatureInfo(msgspec.Struct, frozen=True):
    label: str
    decimals: int = 4
    min_span: float = 0.0  # minimum range of the axis, so that noise does not look like a cliff
    max_value: float | None = None  # best possible value
    unit: str = ""
    hint: str = ""

    @property
    def title(self) -> str:
        return f"{self.label}, {self.unit}" if self.unit else self.label


ALWAYS = {"vmaf", "vmaf_base"}  # the latter with every learned model
_PLANE = re.compile(r"_(y|cb|cr)$")


VMAF = FeatureInfo("VMAF", 2, min_span=5, max_value=100)
PSNR = FeatureInfo("PSNR", 2, min_span=1, unit="dB")
KNOWN_FEATURES = {
    "vmaf": VMAF,
    "vmaf_base": msgspec.structs.replace(VMAF, label="VMAF of the base model"),  # beside that of a learned model
    "psnr_y": msgspec.structs.replace(PSNR, label="PSNR Y"),
    "psnr_cb": msgspec.structs.replace(PSNR, label="PSNR Cb"),
    "psnr_cr": msgspec.structs.replace(PSNR, label="PSNR Cr"),
    "psnr_hvs": msgspec.structs.replace(PSNR, label="PSNR-HVS"),
    "psnr_hvs_y": msgspec.structs.replace(PSNR, label="PSNR-HVS Y"),
    "psnr_hvs_cb": msgspec.structs.replace(PSNR, label="PSNR-HVS Cb"),
    "psnr_hvs_cr": msgspec.structs.replace(PSNR, label="PSNR-HVS Cr"),
    "ssim": FeatureInfo("SSIM", min_span=0.005, max_value=1),
    "ms_ssim": FeatureInfo("MS-SSIM", min_span=0.005, max_value=1),
    "ciede": FeatureInfo("CIEDE2000", 2, min_span=1, hint="higher is better"),
    "cambi": FeatureInfo("CAMBI", 3, min_span=0.5, hint="lower is better"),
}


def feature_info(column: str) -> FeatureInfo:
    return KNOWN_FEATURES.get(column) or FeatureInfo(column)


def is_feature(column: str) -> bool:
    """Whether a report may have such a column."""
    return column in KNOWN_FEATURES or ELEMENTARY_NAME.fullmatch(column) is not None


def requested_feature(column: str) -> str:
    """The additional feature that has to be measured for a column; empty if every report has the column."""
    return "" if column in ALWAYS or not is_feature(column) or is_elementary(column) else _PLANE.sub("", column)


def is_elementary(column: str) -> bool:
    """Whether it is an elementary feature, an input of the VMAF model."""
    return ELEMENTARY.match(column) is not None


def extras(report: Report) -> list[str]:
    """Additional features that were requested, such as PSNR."""
    return [column for column in report.values if column != "vmaf" and not is_elementary(column)]


def elementary(report: Report) -> list[str]:
    return [column for column in report.values if is_elementary(column)]

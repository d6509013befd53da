"""What reports know about each feature: its label, precision and scale."""

import re

import msgspec

from vmafx.scoring.result import Report

ELEMENTARY = re.compile(r"(integer_|float_)?(adm|vif|motion)")


class FeatureInfo(msgspec.Struct, frozen=True):
    label: str
    decimals: int = 4
    min_span: float = 0.0  # minimum range of the axis, so that noise does not look like a cliff
    max_value: float | None = None  # best possible value
    unit: str = ""
    hint: str = ""


VMAF = FeatureInfo("VMAF", 2, min_span=5, max_value=100)
PSNR = FeatureInfo("PSNR", 2, min_span=1, unit="dB")
KNOWN_FEATURES = {
    "vmaf": VMAF,
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


def is_elementary(column: str) -> bool:
    """Whether it is an elementary feature, an input of the VMAF model."""
    return ELEMENTARY.match(column) is not None


def extras(report: Report) -> list[str]:
    """Additional features that were requested, such as PSNR."""
    return [column for column in report.values if column != "vmaf" and not is_elementary(column)]


def elementary(report: Report) -> list[str]:
    return [column for column in report.values if is_elementary(column)]

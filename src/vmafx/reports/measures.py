"""What we know of each measure: how it is called, how exactly it is told, and what a small change of it is."""

import re

import msgspec

from vmafx.scoring.result import Report

ELEMENTARY = re.compile(r"(integer_|float_)?(adm|vif|motion)")


class Measure(msgspec.Struct, frozen=True):
    label: str
    decimals: int = 4
    span: float = 0.0  # of an axis, at least: less is noise, and should not look like a cliff
    most: float | None = None
    unit: str = ""
    hint: str = ""


VMAF = Measure("VMAF", 2, span=5, most=100)
PSNR = Measure("PSNR", 2, span=1, unit="dB")
KNOWN = {
    "vmaf": VMAF,
    "psnr_y": msgspec.structs.replace(PSNR, label="PSNR Y"),
    "psnr_cb": msgspec.structs.replace(PSNR, label="PSNR Cb"),
    "psnr_cr": msgspec.structs.replace(PSNR, label="PSNR Cr"),
    "psnr_hvs": msgspec.structs.replace(PSNR, label="PSNR-HVS"),
    "psnr_hvs_y": msgspec.structs.replace(PSNR, label="PSNR-HVS Y"),
    "psnr_hvs_cb": msgspec.structs.replace(PSNR, label="PSNR-HVS Cb"),
    "psnr_hvs_cr": msgspec.structs.replace(PSNR, label="PSNR-HVS Cr"),
    "ssim": Measure("SSIM", span=0.005, most=1),
    "ms_ssim": Measure("MS-SSIM", span=0.005, most=1),
    "ciede": Measure("CIEDE2000", 2, span=1, hint="higher is better"),
    "cambi": Measure("CAMBI", 3, span=0.5, hint="lower is better"),
}


def measure(column: str) -> Measure:
    return KNOWN.get(column) or Measure(column)


def is_elementary(column: str) -> bool:
    """Whether it is what VMAF is made of, which few ask for."""
    return ELEMENTARY.match(column) is not None


def extras(report: Report) -> list[str]:
    return [column for column in report.values if column != "vmaf" and not is_elementary(column)]


def elementary(report: Report) -> list[str]:
    return [column for column in report.values if is_elementary(column)]

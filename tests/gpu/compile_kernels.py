"""Compiles the kernels for a target without its device: `python -m tests.gpu.compile_kernels hip gfx942 64`.

Prints a line per kernel: its name, and the size of its machine code. The arguments are those of real launches, for 8
and 10 bits and three sizes.
"""

import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from vmafx.scoring.engines.gpu import fused
from vmafx.scoring.engines.gpu.definitions import LumaFormat
from vmafx.scoring.engines.gpu.fused import FusedSums

FORMATS = (LumaFormat(1920, 1080, 8), LumaFormat(1920, 1080, 10), LumaFormat(333, 181, 8))
BINARIES = {"cuda": "cubin", "hip": "hsaco", "xpu": "spv"}
TYPES = {
    torch.uint8: "*u8", torch.uint16: "*u16", torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64",
    torch.float32: "*fp32", torch.float64: "*fp64",
}  # fmt: skip

Launches = dict[tuple[Any, ...], tuple[Any, dict[str, str], dict[str, Any]]]


def record_launches() -> Launches:
    """What is launched to measure frames of each format; nothing runs, so the memory is that of the CPU."""
    launches: Launches = {}

    def record(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        types = {
            name: TYPES[value.dtype]
            if isinstance(value, torch.Tensor)
            else "fp32"
            if isinstance(value, float)
            else "i32"
            for name, value in zip(kernel.arg_names, arguments, strict=False)
        }
        key = kernel.fn.__name__, *types.items(), *sorted(constants.items())
        launches[key] = kernel, types | dict.fromkeys(constants, "constexpr"), constants

    fused.launch = record
    for frames in FORMATS:
        sums = FusedSums(frames, 100.0, torch.device("cpu"))
        kind = torch.uint8 if frames.bits == 8 else torch.uint16
        luma = torch.zeros((1, frames.height, frames.width), dtype=kind)
        sums.distorted(sums.reference(luma), luma)
        blurred = torch.zeros((2, frames.height, frames.width), dtype=torch.uint16)
        sums.blurred(luma, blurred[1:])
        sums.difference(blurred[:-1], blurred[1:])
    return launches


def main(backend: str, architecture: str, warp_size: str) -> None:
    target = GPUTarget(backend, int(architecture) if architecture.isdecimal() else architecture, int(warp_size))
    for kernel, types, constants in record_launches().values():
        signature = {name: types[name] for name in kernel.arg_names}
        constexprs = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
        compiled = triton.compile(ASTSource(kernel, signature, constexprs), target=target)
        print(kernel.fn.__name__, len(compiled.asm[BINARIES[backend]]))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Pipeline: batches of frames that are uploaded, measured and downloaded at the same time, on one device."""

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vmafx.scoring.engines.gpu.definitions import SUMS, LumaFormat
from vmafx.scoring.engines.gpu.features import FrameSums
from vmafx.scoring.engines.gpu.plain import PlainSums

SLOTS = 3  # batches: one is filled while one is uploaded and one is measured


class Sums(Protocol):
    """Computes the sums over frames that features follow from: PlainSums or FusedSums."""

    def reference(self, luma: Tensor) -> Any:
        """What distorted frames are compared with; `sums` are its own."""
        ...

    def distorted(self, reference: Any, luma: Tensor) -> Tensor: ...

    def blurred(self, luma: Tensor, out: Tensor) -> None: ...

    def difference(self, before: Tensor, after: Tensor) -> Tensor: ...


def make_sums(frames: LumaFormat, gain_limit: float, device: torch.device) -> Sums:
    """The kernels where Triton compiles for the device, else plain PyTorch."""
    if device.type in {"cuda", "xpu"}:
        from vmafx.scoring.engines.gpu.fused import FusedSums  # noqa: PLC0415 - Triton is not on every platform

        return FusedSums(frames, gain_limit, device)
    return PlainSums(frames, gain_limit, device)


class BatchSums(NamedTuple):
    """What a batch yielded: sums of the reference, of each distorted clip, and differences from the frame before."""

    reference: Tensor
    distorted: Tensor  # clips, frames, sums
    differences: Tensor


class Batch:
    """The measurement of one batch on a device, whose buffers stay where they are.

    On CUDA and HIP it is recorded once as a graph: a batch has some fifty kernels, and starting them one by one takes
    longer than they do.
    """

    def __init__(self, frames: LumaFormat, gain_limit: float, size: int, clips: int, device: torch.device) -> None:
        kind = torch.uint8 if frames.bits == 8 else torch.uint16
        self.luma = torch.zeros((clips + 1, size, frames.height, frames.width), dtype=kind, device=device)
        self._sums = make_sums(frames, gain_limit, device)
        self._blurred = torch.zeros((size + 1, frames.height, frames.width), dtype=torch.uint16, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            self._graph = self._record(device)
        else:
            self.measured = self._measure()

    def _record(self, device: torch.device) -> torch.cuda.CUDAGraph:
        """The first run compiles the kernels and takes the memory, in which the second one is recorded.

        Memory that a recording has taken itself would be lost if there is not enough of it. The graph takes memory of
        its own when it runs first, so it does that here, where a batch that does not fit can be halved.
        """
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(device)
        pool = self._pool = torch.cuda.MemPool()  # is needed for as long as the graph
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream), torch.cuda.use_mem_pool(pool):
            self._measure()
        with torch.cuda.graph(graph, pool=pool.id, stream=stream):
            self.measured = self._measure()
        graph.replay()
        torch.cuda.synchronize(device)
        return graph

    def run(self) -> BatchSums:
        """Measures the frames in `luma`; the batch before had those before them."""
        if self._graph is None:
            self.measured = self._measure()
        else:
            self._graph.replay()
        return self.measured

    def _measure(self) -> BatchSums:
        reference = self._sums.reference(self.luma[0])
        self._blurred[0].copy_(self._blurred[-1])
        self._sums.blurred(self.luma[0], self._blurred[1:])
        differences = self._sums.difference(self._blurred[:-1], self._blurred[1:])
        distorted = torch.stack([self._sums.distorted(reference, luma) for luma in self.luma[1:]])
        return BatchSums(reference.sums, distorted, differences)


class _Slot:
    """A batch on its way: frames in the memory of the host and of the device, and its results."""

    def __init__(self, batch: Batch, clips: int, size: int, *, pinned: bool) -> None:
        self.frames = torch.empty(batch.luma.shape, dtype=batch.luma.dtype, pin_memory=pinned)
        self.uploaded = torch.empty_like(batch.luma) if pinned else self.frames
        self.results = BatchSums(
            torch.empty((size, SUMS), dtype=batch.measured.reference.dtype, pin_memory=pinned),
            torch.empty((clips, size, SUMS), dtype=batch.measured.distorted.dtype, pin_memory=pinned),
            torch.empty(size, dtype=torch.int64, pin_memory=pinned),
        )
        self.done: Any = None


class Pipeline:
    """Measures a stream of batches on one device: `host(slot)` is filled, then `submit`, and later `collect`."""

    def __init__(self, frames: LumaFormat, gain_limit: float, size: int, clips: int, device: torch.device) -> None:
        self.size, self._device = size, device
        self._module: Any = getattr(torch, device.type) if device.type in {"cuda", "xpu"} else None
        self._batch = Batch(frames, gain_limit, size, clips, device)
        self._slots = [_Slot(self._batch, clips, size, pinned=self._module is not None) for _ in range(SLOTS)]
        self._copies: Any = self._module.Stream(device) if self._module else None
        self._free: list[Any] = [None] * SLOTS  # when the uploaded frames of a slot were read

    def host(self, slot: int) -> NDArray[Any]:
        """Where the frames of a batch are put: (1 + clips, size, rows, columns)."""
        array: NDArray[Any] = self._slots[slot].frames.numpy()
        return array

    def submit(self, slot: int) -> None:
        """Uploads and measures a batch; returns at once where the device works by itself."""
        batch, taken = self._batch, self._slots[slot]
        if self._module is None:
            batch.luma.copy_(taken.frames)
            for result, measured in zip(taken.results, batch.run(), strict=True):
                result.copy_(measured)
            return
        measuring = self._module.current_stream(self._device)
        with self._module.stream(self._copies):
            if self._free[slot] is not None:
                self._copies.wait_event(self._free[slot])
            taken.uploaded.copy_(taken.frames, non_blocking=True)
            uploaded = self._copies.record_event()
        measuring.wait_event(uploaded)
        batch.luma.copy_(taken.uploaded)
        self._free[slot] = measuring.record_event()
        for result, measured in zip(taken.results, batch.run(), strict=True):
            result.copy_(measured, non_blocking=True)
        taken.done = measuring.record_event()

    def collect(self, slot: int) -> list[FrameSums]:
        """The sums of a batch, for each distorted clip."""
        taken = self._slots[slot]
        if taken.done is not None:
            taken.done.synchronize()
        reference, distorted, differences = (np.array(result.numpy(), dtype=np.float64) for result in taken.results)
        return [FrameSums(reference, clip, differences) for clip in distorted]

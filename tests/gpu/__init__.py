"""Tests of VMAF on a device: `make test-gpu`, which installs torch.

With a GPU, the kernels run on it. Without one, Triton's interpreter runs them on small frames, and the engine measures
with plain PyTorch.
"""

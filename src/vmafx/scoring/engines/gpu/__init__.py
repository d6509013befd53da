"""VMAF on a GPU: what libvmaf measures for its models, by Triton kernels, or by plain PyTorch where there is no Triton.

The parent process imports no torch: it has it started, and talks to it.

    engine.py       TorchEngine: scores from what device processes measure
    process.py      DeviceProcess: a device process, from outside of it
    messages.py     what a device process is asked and answers
    features.py     the features of frames from sums over them
    definitions.py  the numbers in the definitions of VIF, ADM and motion

In a device process:

    main.py         its loop over tasks
    devices.py      finds the device
    measure.py      reads frames into batches, and writes results
    pipeline.py     batches that are uploaded, measured and downloaded at the same time
    fused.py        the sums over frames, by the kernels
    kernels.py      the Triton kernels
    plain.py        the same sums in plain PyTorch
"""

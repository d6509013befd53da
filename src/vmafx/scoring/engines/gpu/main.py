"""A device process: `python -I main.py SETUP` measures frames on one device, task by task, until its socket is closed.

It alone imports torch, which takes seconds and a gigabyte of memory, and whose errors can leave a device unusable for
the process. It sees frames and no clip.
"""

import os
import socket
import sys
from contextlib import suppress

import msgspec

from vmafx.process.tether import end_with_parent
from vmafx.scoring.engines.gpu.messages import (
    MAX_PACKET,
    Answer,
    DeviceSetup,
    MeasureTask,
    Unusable,
)

MAX_DESCRIPTORS = 253  # of a message; a limit of Linux


def main() -> None:
    setup = msgspec.json.decode(sys.argv[1], type=DeviceSetup)
    end_with_parent(setup.parent)
    with socket.socket(fileno=setup.socket) as connection:

        def send(answer: Answer) -> None:
            with suppress(BrokenPipeError, ConnectionResetError):  # nobody waits for the answer any more
                connection.sendall(msgspec.json.encode(answer))

        try:
            from vmafx.scoring.engines.gpu.devices import NoDevice, find_device  # noqa: PLC0415 - imports torch
            from vmafx.scoring.engines.gpu.measure import Meter  # noqa: PLC0415
        except ImportError as error:
            send(Unusable(f"torch cannot be imported ({error}): pip install 'vmafx[gpu]'"))
            return
        try:
            device, ready = find_device(setup.backend)
            meter = Meter(device)
            meter.check()
        except NoDevice as error:
            send(Unusable(str(error)))
            return
        send(ready)
        while True:
            packet, descriptors, _, _ = socket.recv_fds(connection, MAX_PACKET, MAX_DESCRIPTORS)
            if not packet:
                return
            task = msgspec.json.decode(packet, type=MeasureTask)
            inputs, results = descriptors[: task.clips + 1], descriptors[task.clips + 1 :]
            try:
                meter.measure(task, inputs, results, send)
            finally:
                for fd in descriptors:
                    os.close(fd)


if __name__ == "__main__":
    main()

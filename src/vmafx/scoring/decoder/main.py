"""The decoder: `python -I main.py SETUP` reads one clip and does the tasks on its standard input.

A clip is untrusted, so only this process reads it, and it locks itself in first: it has the clip's descriptor, pipes to
its parent and to the engines, and a limited amount of memory. It cannot open a file, connect, or start a process.
"""

import errno
import sys

import av
import av.filter
import av.logging
import av.subtitles.codeccontext  # PyAV imports it for some clips, and nothing can be imported once confined
import av.subtitles.stream
import msgspec

from vmafx.process.sandbox import confine, limit_resources
from vmafx.process.tether import end_with_parent
from vmafx.scoring.decoder.container import Refused
from vmafx.scoring.decoder.emit import emit_frames
from vmafx.scoring.decoder.inspect_clip import inspect_clip
from vmafx.scoring.decoder.messages import (
    RAW_VIDEO_REMEDY,
    Answer,
    DecoderSetup,
    DecodeTask,
    InspectedClip,
    InspectTask,
    Ready,
    Refusal,
    Task,
)
from vmafx.scoring.decoder.pictures import take_pictures

VERSION = f"PyAV {av.__version__}, libavcodec {'.'.join(map(str, av.library_versions['libavcodec']))}"


def main() -> None:
    setup = msgspec.json.decode(sys.argv[1], type=DecoderSetup)
    end_with_parent(setup.parent)
    av.logging.restore_default_callback()  # the libraries write to standard error; PyAV would drop their messages
    limit_resources(setup.memory)
    confinement = confine()
    send(Ready(VERSION, confinement.seccomp, confinement.describe()))
    for line in sys.stdin.buffer:
        send(answer(msgspec.json.decode(line, type=Task), setup))


def send(message: Ready | Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def answer(task: Task, setup: DecoderSetup) -> Answer:
    """Never raises because of the clip."""
    out_of_memory = Refusal(f"it cannot be read within {setup.memory >> 20} MiB of memory")
    try:
        return perform(task, setup)
    except Refused as refused:
        return Refusal(str(refused))
    except (MemoryError, RuntimeError):  # RuntimeError: no thread can be started
        return out_of_memory
    except (av.FFmpegError, ValueError) as error:
        reason = "".join(filter(str.isprintable, getattr(error, "strerror", None) or str(error)))
        reason = reason.encode("ascii", "replace").decode()
        why = f"ffmpeg cannot read it ({reason[:200]})"
        if task.raw is not None:
            return Refusal(why)
        causes = "it is not a video, it is truncated, or its format is not supported"
        return Refusal(f"{why}: {causes}", RAW_VIDEO_REMEDY)
    except OSError as error:
        if error.errno != errno.ENOMEM:  # raised by imports that PyAV makes on first use
            raise
        return out_of_memory


def perform(task: Task, setup: DecoderSetup) -> Answer:
    if isinstance(task, InspectTask):
        av.logging.set_libav_level(av.logging.PANIC)
        return InspectedClip(inspect_clip(setup.clip, task))
    av.logging.set_libav_level(av.logging.ERROR)  # the parent counts the lines
    if isinstance(task, DecodeTask):
        return emit_frames(setup.clip, setup.outputs, task, send)
    return take_pictures(setup.clip, task)


if __name__ == "__main__":
    main()

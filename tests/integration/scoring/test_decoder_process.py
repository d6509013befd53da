"""Decoder processes that are refused, limited, killed, cancelled or not what they should be."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import av
import pytest

from tests.integration.scoring.test_process import others_reading, reading
from tests.support.decoding import decoded, decoder_of
from tests.support.video import ffmpeg, long_clip, lossless, luma, scene
from tests.support.waiting import eventually
from vmafx.scoring.decoder import process
from vmafx.scoring.decoder.clip_decoder import MIN_READ_RATE
from vmafx.scoring.decoder.formats import CONTAINERS, DECODERS, STREAMS
from vmafx.scoring.decoder.messages import MAX_ANSWER, Conversion
from vmafx.scoring.errors import BadInput, EngineFailure, NodeFault
from vmafx.scoring.request import ClipLimits, Source
from vmafx.scoring.score import Scorer

SAME = Conversion(width=256, height=144, pixel_format="yuv420p")


ReplaceDecoder = Callable[[str], None]


@pytest.fixture
def replace_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReplaceDecoder:
    """Has another program run in place of the decoder."""

    def replace(program: str) -> None:
        path = tmp_path / "main.py"
        path.write_text(program)
        monkeypatch.setattr(process, "PROGRAM", str(path))

    return replace


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lossless(scene(frames=60), tmp_path_factory.mktemp("clip") / "clip.mkv")


def test_every_container_and_codec_exists_and_has_a_reason() -> None:
    names = {name for joined in av.formats_available for name in joined.split(",")}
    assert {*CONTAINERS, *STREAMS} <= names
    assert DECODERS.keys() <= av.codecs_available
    assert all((CONTAINERS | STREAMS | DECODERS).values())


@pytest.mark.parametrize("codec", ["cinepak", "zmbv", "snow", "msvideo1"])
async def test_other_codecs_are_refused_by_name(codec: str, clip: Path, tmp_path: Path) -> None:
    path = tmp_path / "clip.avi"
    ffmpeg("-i", clip, "-frames:v", "2", "-s", "64x64", "-c:v", codec, "-strict", "-2", path)
    async with decoder_of(path) as decoder:
        with pytest.raises(BadInput, match=f"its codec {codec} is not one that vmafx decodes; convert it .* FFV1"):
            await decoder.inspect()
    with pytest.raises(BadInput, match=f"its codec {codec} is not one"):
        await decoded(path, SAME)


@pytest.mark.parametrize("ending", [".roq", ".swf", ".gxf"])
async def test_other_containers_are_refused(ending: str, clip: Path, tmp_path: Path) -> None:
    path = tmp_path / f"clip{ending}"
    size = ("-s", "720x576", "-c:v", "mpeg2video") if ending == ".gxf" else ("-r", "30")
    ffmpeg("-i", clip, "-frames:v", "5", *size, path)
    async with decoder_of(path) as decoder:
        with pytest.raises(BadInput, match="its format is not supported"):
            await decoder.inspect()


READY = '{"version":"PyAV 1","confined":true,"sandbox":"all"}'
ANSWERS = {
    "garbage": "print('garbage')",
    "another kind of answer": 'print(\'{"type":"pictures","jpegs":[]}\')',
    "too long": f"print('x' * {MAX_ANSWER + 1})",
    "nothing": "pass",
    "nested too deeply": "print('[' * 100_000)",
    "more than is read, and it goes on": "print('x' * (40 << 20), flush=True); import time; time.sleep(10**6)",
    "a number of packets that no file has": """print('{"type":"clip","clip":{"container":"ogg",'
        '"codec":"vp8","width":64,"height":64,"pixel_format":"yuv420p","bit_depth":8,"chroma":"420","packets":'
        + str(2**63) + '}}')""",
    "more packets than allowed": """print('{"type":"clip","clip":{"container":"ogg","codec":"vp8","width":64,'
        '"height":64,"pixel_format":"yuv420p","bit_depth":8,"chroma":"420","packets":10000000}}')""",
    "nothing, and it goes on": "import os, time; os.close(1); time.sleep(10**6)",
    "a message with control characters": r"""print('{"type":"refusal","why":"\\u001b[2J"}')""",
    "garbage, and it goes on": "print('garbage', flush=True); sys.stdin.buffer.read(); import time; time.sleep(10**6)",
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_clip_whose_decoder_answers_wrongly_is_refused(
    answer: str, clip: Path, monkeypatch: pytest.MonkeyPatch, replace_decoder: ReplaceDecoder
) -> None:
    replace_decoder(f"import sys\nprint({READY!r}, flush=True)\nsys.stdin.readline()\n{ANSWERS[answer]}\n")
    monkeypatch.setattr(process, "END_TIMEOUT", 1.0)
    async with decoder_of(clip) as decoder:
        with pytest.raises(BadInput, match="its decoder gave no valid answer"):
            await decoder.inspect(outputs=1)
        async with decoder.decode(SAME, threads=1) as decoding:
            with pytest.raises(BadInput, match="its decoder gave no valid answer"):
                await decoding.finished()
    assert others_reading(clip) == []


@pytest.mark.parametrize("act", ["raise KeyError", "sys.exit(4)", "raise OSError(5, 'Input/output error')"])
async def test_a_decoder_that_fails_unexpectedly_is_tried_again(
    act: str, clip: Path, replace_decoder: ReplaceDecoder
) -> None:
    """As after an error of the disk. Tries are limited, so a clip gains nothing by it."""
    replace_decoder(f"import sys\nprint({READY!r}, flush=True)\nsys.stdin.readline()\n{act}\n")
    async with decoder_of(clip) as decoder:
        with pytest.raises(EngineFailure, match=r"the decoder of .* failed with exit code"):
            await decoder.inspect()


@pytest.mark.parametrize(
    "failure", ["print('another version')", "sys.exit('no module named av')", "os.kill(os.getpid(), signal.SIGSEGV)"]
)
async def test_a_decoder_that_fails_before_it_reads_the_clip_is_a_node_fault(
    failure: str, clip: Path, replace_decoder: ReplaceDecoder
) -> None:
    replace_decoder(f"import os, signal, sys\n{failure}\n")
    async with decoder_of(clip) as decoder:
        with pytest.raises(NodeFault, match=r"the decoder failed with .* before it read"):
            await decoder.inspect()


async def test_an_engine_ends_with_a_decoder_that_ignores_its_cpu_limit(
    clip: Path, monkeypatch: pytest.MonkeyPatch, replace_decoder: ReplaceDecoder
) -> None:
    """Such a decoder may emit a frame now and then, so that the engine makes progress."""
    replace_decoder(
        "import os, signal, time\nfrom vmafx.scoring.decoder import main\n"
        "def burn(*_):\n    signal.signal(signal.SIGXCPU, signal.SIG_IGN)\n    while True: pass\n"
        "main.emit_frames = burn\nmain.main()\n"
    )
    monkeypatch.setattr(process, "CHECK_INTERVAL", 0.2)
    source = Source(str(clip))
    with pytest.raises(BadInput, match="decoding it takes too much CPU time"):
        await Scorer(limits=ClipLimits(probe_seconds=1, frame_seconds=0)).score(source, source)


async def test_a_decoder_that_ignores_its_cpu_limit_is_ended(
    clip: Path, monkeypatch: pytest.MonkeyPatch, replace_decoder: ReplaceDecoder
) -> None:
    ignore = "signal.signal(signal.SIGXCPU, signal.SIG_IGN)"
    replace_decoder(f"import signal\n{ignore}\nprint({READY!r}, flush=True)\nwhile True: pass\n")
    monkeypatch.setattr(process, "CHECK_INTERVAL", 0.2)
    limits = ClipLimits(probe_seconds=0, frame_seconds=0)
    async with decoder_of(clip, limits) as decoder, decoder.decode(SAME, threads=1) as decoding:
        with pytest.raises(BadInput, match="decoding it takes too much CPU time"):
            await decoding.finished()


async def test_a_machine_without_a_sandbox_is_warned_of_once(
    clip: Path, capsys: pytest.CaptureFixture[str], replace_decoder: ReplaceDecoder
) -> None:
    replace_decoder(f"print({READY.replace('true', 'false').replace('all', 'limits only')!r})\n")
    process._warn_unconfined.cache_clear()
    for _ in range(2):
        async with decoder_of(clip) as decoder:
            with pytest.raises(BadInput):
                await decoder.inspect()
    (line,) = capsys.readouterr().err.splitlines()
    assert "decoded without a sandbox" in line
    assert "limits only" in line


async def test_a_decoder_killed_before_it_decodes_is_a_node_fault(clip: Path) -> None:
    async with decoder_of(clip) as decoder:
        await decoder.inspect(outputs=1)
        for pid in others_reading(clip):
            os.kill(pid, signal.SIGKILL)
        async with decoder.decode(SAME, threads=1) as decoding:
            with pytest.raises(NodeFault, match="signal SIGKILL"):
                await decoding.finished()


async def test_closing_ends_the_process_that_was_kept(clip: Path) -> None:
    async with decoder_of(clip) as decoder:
        await decoder.inspect(outputs=1)
        assert others_reading(clip)
        await decoder.close()
        assert others_reading(clip) == []
        await decoder.close()


@pytest.mark.parametrize("action", ["inspect", "decode", "pictures"])
async def test_cancellation_leaves_no_process_and_no_descriptor(action: str, clip: Path) -> None:
    async with decoder_of(clip) as decoder:

        async def act() -> None:
            if action == "inspect":
                await decoder.inspect(outputs=1)
            elif action == "pictures":
                await decoder.take_pictures(SAME, [0, 59], threads=1)
            else:
                async with decoder.decode(SAME, 2, threads=1) as decoding:
                    await decoding.finished()  # never, as nobody reads

        before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
        task = asyncio.create_task(act())
        await eventually(lambda: others_reading(clip) or task.done(), "a process reads the clip", every=0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await decoder.close()
        assert others_reading(clip) == []
        assert set(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
    assert list(reading(clip)) == []


async def test_a_clip_that_takes_too_much_time_is_refused(clip: Path) -> None:
    no_time = ClipLimits(probe_seconds=-clip.stat().st_size / MIN_READ_RATE)
    async with decoder_of(clip, no_time) as decoder:
        with pytest.raises(NodeFault, match="the disk may be too slow, or the clip is damaged"):
            await decoder.inspect()
    slow = Conversion(width=7680, height=4320, pixel_format="yuv444p16le")
    async with (
        decoder_of(clip, ClipLimits(probe_seconds=0, frame_seconds=0)) as decoder,
        decoder.decode(slow, threads=1) as decoding,
    ):
        decoding.outputs[0].close()
        with pytest.raises(BadInput, match="decoding it takes too much CPU time"):
            await decoding.finished()


async def test_the_memory_of_a_decoder_does_not_grow_with_the_clip(tmp_path: Path) -> None:
    """80 frames of 1920x1080 have 249 MB; the decoder holds only some of them at a time."""
    path = long_clip(tmp_path / "clip.mkv", frames=80, size=(1920, 1080))
    same = Conversion(width=1920, height=1080, pixel_format="yuv420p")
    scaled = Conversion(width=320, height=180, pixel_format="yuv420p")
    for conversion in (same, scaled):
        async with decoder_of(path) as decoder, decoder.decode(conversion, threads=1) as decoding:
            (pid,) = others_reading(path)
            peak, pipe = 0, decoding.outputs[0]
            while await asyncio.to_thread(pipe.read, 1 << 22):
                with suppress(OSError):
                    status = Path(f"/proc/{pid}/status").read_text()
                    peak = max(peak, *(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line))
            assert (await decoding.finished()).frames == 80
        assert 20 << 10 < peak < 160 << 10  # KiB


async def test_pictures_of_a_rotated_clip_are_rotated_once(tmp_path: Path) -> None:
    flat, turned = tmp_path / "flat.mp4", tmp_path / "turned.mp4"
    halves = "color=white:s=128x64:d=0.2,drawbox=w=64:h=64:color=black:t=fill"  # black on the left
    ffmpeg("-f", "lavfi", "-i", halves, "-c:v", "libx264", "-qp", "0", "-pix_fmt", "yuv420p", flat)
    ffmpeg("-display_rotation", "90", "-i", flat, "-c", "copy", turned)
    async with decoder_of(turned) as decoder:
        clip = await decoder.inspect()
        conversion = Conversion(width=clip.width, height=clip.height, pixel_format="yuv420p")
        (jpeg,) = await decoder.take_pictures(conversion, [0], threads=1)
    (tmp_path / "picture.jpg").write_bytes(jpeg)
    (picture,) = luma(tmp_path / "picture.jpg")
    assert picture.shape == (128, 64)
    top, bottom = picture[:60].mean(), picture[68:].mean()
    (expected,) = list(luma(turned))[:1]
    assert (top > bottom) == (expected[:60].mean() > expected[68:].mean())
    assert abs(top - bottom) > 200

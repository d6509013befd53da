"""Hostile clips: mutated ones, a decoder that is killed at any moment, and one that an attacker has taken over.

`make fuzz` is the long form of the first test.
"""

import asyncio
import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.agent_process import children, read
from tests.support.fuzzing import ALLOWED, Fuzzer
from tests.support.intact_clips import not_covered
from tests.support.leftovers import CANARY, MachineState, watched_folders
from tests.support.video import FRAMES, ffmpeg, lossless, scene
from tests.support.waiting import eventually
from vmafx.process.child import ENVIRONMENT
from vmafx.scoring.decoder import process
from vmafx.scoring.errors import BadInput, ScoringError
from vmafx.scoring.request import ClipLimits, ScoreOptions, Source
from vmafx.scoring.result import Report
from vmafx.scoring.score import Scorer

SEED, CLIPS = 7, 60
KILLS = 30
LONGEST_DELAY = 0.4  # seconds from the start of a decoder to its end, or a little more


@pytest.mark.timeout(600)
async def test_mutated_clips_end_in_a_score_or_a_refusal_and_leave_nothing(tmp_path: Path) -> None:
    intact, mutated = tmp_path / "intact", tmp_path / "mutated"
    intact.mkdir()
    mutated.mkdir()
    fuzzer = Fuzzer(intact, SEED)
    with watched_folders(tmp_path) as watched:
        assert not_covered(await fuzzer.score_intact(parallel=3)) == [
            "container vvc", "container av1", "container vc1",
            "decoder vvc", "decoder vc1", "decoder wmv3", "decoder v410",
        ]  # fmt: skip
        before = MachineState(*watched, intact)
        outcomes = [outcome async for outcome in fuzzer.score_mutated(range(CLIPS), mutated, parallel=3)]
        await before.check()
    assert [str(one) for one in outcomes if one.kind not in ALLOWED] == []
    kinds = Counter(one.kind for one in outcomes)
    assert kinds.total() == CLIPS
    assert min(kinds["score"], kinds["refusal"]) > CLIPS / 10  # mutations of every strength
    assert list(mutated.iterdir()) == []


def test_leftovers_are_found(tmp_path: Path) -> None:
    with watched_folders(tmp_path) as watched:
        before = MachineState(*watched)
        (watched.home / CANARY).write_text("changed")
        (watched.temporary / "file").touch()
        (watched.temporary / "file").unlink()
        descriptor = os.open(watched.working, os.O_RDONLY)
        with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
            found = "\n".join(before.changes())
            child.kill()
        os.close(descriptor)
    assert f"file {watched.home / CANARY}" in found
    assert f"file {watched.temporary}" in found
    assert f"descriptor {descriptor}: {watched.working}" in found
    assert f"process {child.pid}: " in found


def decoders() -> list[int]:
    """The decoder processes of this process."""
    return [pid for pid in children(os.getpid()) if process.PROGRAM in read(pid, "cmdline")]


async def test_a_decoder_killed_at_any_moment_yields_a_whole_report_or_an_error(tmp_path: Path) -> None:
    """The engine sees the same as at the end of a clip, so that a score of fewer frames could be taken for a whole."""
    clip, rng = Source(str(lossless(scene(frames=20), tmp_path / "clip.mkv"))), random.Random(SEED)
    scorer, options = Scorer(), ScoreOptions(threads=1)

    async def killed() -> Report | BaseException:
        task = asyncio.create_task(scorer.score(clip, clip, options))
        await eventually(lambda: decoders() or task.done(), "a decoder runs", every=0.001)
        await asyncio.sleep(rng.uniform(0, LONGEST_DELAY))
        running = decoders()
        for pid in rng.sample(running, rng.randint(0, len(running))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        return outcome

    whole = await scorer.score(clip, clip, options)
    outcomes: Counter[str] = Counter()
    with watched_folders(tmp_path) as watched:
        before = MachineState(*watched)
        for _ in range(KILLS):
            outcome = await killed()
            assert isinstance(outcome, Report | ScoringError), outcome
            if isinstance(outcome, Report):
                assert outcome.values == whole.values
            outcomes[type(outcome).__name__] += 1
        await before.check()
    assert outcomes["NodeFault"] > 0, outcomes
    assert outcomes["Report"] > 0, outcomes


async def refusal(clip: Path, limits: ClipLimits | None = None) -> str:
    scorer = Scorer(limits=limits)
    async with scorer.open(Source(str(clip)), "distorted") as opened:
        with pytest.raises(BadInput) as refused:
            await scorer.probe(opened)
    return refused.value.why


async def test_timestamps_out_of_range_are_refused(tmp_path: Path) -> None:
    clip = tmp_path / "clip.ivf"
    ffmpeg("-i", lossless(scene(), tmp_path / "master.mkv"), "-c:v", "libvpx", "-deadline", "realtime", clip)
    content = bytearray(clip.read_bytes())
    struct.pack_into("<Q", content, 32 + 4, 1 << 61)  # of the first frame, after the header of the file and a size
    clip.write_bytes(content)
    assert "its properties are out of range" in await refusal(clip)


async def test_ffmpeg_goes_on_after_a_position_that_no_file_has(tmp_path: Path) -> None:
    """The last bytes of a NUT file say how far before them its index starts. FFmpeg does without the index."""
    clip = tmp_path / "clip.nut"
    ffmpeg("-i", lossless(scene(), tmp_path / "master.mkv"), "-c:v", "ffv1", clip)
    content = bytearray(clip.read_bytes())
    content[-12] = 0xF0  # the sign bit, and more: 1 << 60 bytes after the end
    clip.write_bytes(content)
    assert (
        await Scorer().score(Source(str(clip)), Source(str(clip)), ScoreOptions(damaged=True))
    ).result.frames == FRAMES


async def test_a_stream_that_appears_late_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyAV then reads memory that it has not set, and which is not zero here."""
    silent, loud, late = tmp_path / "silent.mpg", tmp_path / "loud.mpg", tmp_path / "late.mpg"
    picture = ("-f", "lavfi", "-i", "testsrc2=size=128x96:rate=25")
    ffmpeg(*picture, "-frames:v", "500", "-c:v", "mpeg1video", silent)
    ffmpeg(*picture, "-f", "lavfi", "-i", "sine", "-t", "1", "-c:v", "mpeg1video", "-c:a", "mp2", loud)
    late.write_bytes(silent.read_bytes() + loud.read_bytes() + silent.read_bytes())  # FFmpeg looks at both ends first
    monkeypatch.setitem(ENVIRONMENT, "MALLOC_PERTURB_", "90")
    scorer = Scorer()
    async with scorer.open(Source(str(late)), "distorted") as opened:
        assert (await scorer.probe(opened)).clip.packets == 1025


# The real decoder, which performs something else.
REPLACED = """
import time
from vmafx.scoring.decoder import main
from vmafx.scoring.decoder.messages import DecodedClip

main.perform = lambda task, setup: {expression}
main.main()
"""


@pytest.mark.parametrize("answer", ["DecodedClip(1)", "'garbage'"])
async def test_a_decoder_that_answers_garbage_is_the_fault_of_the_clip(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, script = lossless(scene(frames=2), tmp_path / "clip.mkv"), tmp_path / "program.py"
    script.write_text(REPLACED.format(expression=answer))
    monkeypatch.setattr(process, "PROGRAM", str(script))
    assert "its decoder gave no valid answer" in await refusal(clip)


async def test_a_clip_that_takes_too_long_to_inspect_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of CPU time is below the time limit, after which the disk would be blamed."""
    clip, script = lossless(scene(frames=2), tmp_path / "clip.mkv"), tmp_path / "program.py"
    script.write_text(REPLACED.format(expression="time.sleep(600)"))
    monkeypatch.setattr(process, "PROGRAM", str(script))
    refused = asyncio.create_task(refusal(clip, ClipLimits(probe_seconds=100.0)))
    limit = resource.RLIMIT_CPU
    await eventually(
        lambda: decoders() and resource.prlimit(decoders()[0], limit)[0] != resource.RLIM_INFINITY, "it has a limit"
    )
    (pid,) = decoders()
    assert resource.prlimit(pid, limit)[0] == 51
    os.kill(pid, signal.SIGXCPU)  # as the kernel would
    assert "decoding it takes too much CPU time" in await refused


# The real decoder, which closes its pipes some time before it answers.
LATE_ANSWER = """
import os, time
from vmafx.scoring.decoder import main
from vmafx.scoring.decoder.messages import InspectTask, Refusal

perform = main.perform

def refuse(task, setup):
    if isinstance(task, InspectTask):
        return perform(task, setup)
    for output in setup.outputs:
        os.close(output)
    time.sleep(0.5)
    return Refusal("this answer comes late")

main.perform = refuse
main.main()
"""


async def test_a_decoder_without_frames_is_the_reason_why_its_engine_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, script = Source(str(lossless(scene(), tmp_path / "clip.mkv"))), tmp_path / "program.py"
    script.write_text(LATE_ANSWER)
    monkeypatch.setattr(process, "PROGRAM", str(script))
    with pytest.raises(BadInput, match="this answer comes late"):
        await Scorer().score(clip, clip)


# The real decoder, whose first task an attacker performs. The answer is a refusal with what he achieved.
ATTACK = """
import errno, fcntl, json, os, signal, socket, subprocess, sys, threading
from vmafx.scoring.decoder import main
from vmafx.scoring.decoder.messages import Refusal

VICTIM, PORT, CANARY = {victim}, {port}, {canary!r}

def connect():
    with socket.socket() as connection:
        connection.connect(("127.0.0.1", PORT))

def fork():
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)

ACTS = {{
    "read a file": lambda: open("/etc/passwd").read(),
    "write a file": lambda: open(CANARY, "w").write("changed"),
    "delete a file": lambda: os.unlink(CANARY + ".other"),
    "create a file": lambda: open(CANARY + ".new", "w"),
    "connect": connect,
    "fork": fork,
    "run a program": lambda: subprocess.run(["/bin/true"], check=True),
    "kill a process": lambda: os.kill(VICTIM, signal.SIGKILL),
    "find the parent": lambda: os.kill(setup_of_decoder.parent, 0),
    "read the parent's environment": lambda: open(f"/proc/{{setup_of_decoder.parent}}/environ", "rb").read(),
    "read the parent's memory": lambda: open(f"/proc/{{setup_of_decoder.parent}}/mem", "rb").close(),
    "list a folder": lambda: os.listdir("/"),
    "write to the clip": lambda: os.write(setup_of_decoder.clip, b"changed"),
}}

def attempt(act):
    try:
        act()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]

def attack(task, setup):
    global setup_of_decoder
    setup_of_decoder = setup
    return Refusal(json.dumps({{name: attempt(act) for name, act in ACTS.items()}}))

main.perform = attack
{confinement}
main.main()
"""
UNCONFINED = """
from vmafx.process.sandbox import Confinement
main.confine, main.limit_resources = lambda: Confinement(False, 0, False), lambda memory: None
"""


@pytest.fixture
def victim() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


@pytest.mark.parametrize("confined", [True, False])
async def test_an_attacker_in_the_decoder_achieves_nothing(
    confined: bool, tmp_path: Path, victim: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the sandbox he achieves everything but a write to the clip, whose descriptor is for reading."""
    clip, script = lossless(scene(frames=2), tmp_path / "clip.mkv"), tmp_path / "attack.py"
    with watched_folders(tmp_path) as watched, socket.create_server(("127.0.0.1", 0)) as listener:
        canary = watched.home / CANARY
        (watched.home / f"{CANARY}.other").touch()
        script.write_text(
            ATTACK.format(
                victim=victim.pid,
                port=listener.getsockname()[1],
                canary=str(canary),
                confinement="" if confined else UNCONFINED,
            )
        )
        monkeypatch.setattr(process, "PROGRAM", str(script))
        before = MachineState(*watched)
        achieved = await refusal(clip)
        if confined:
            await before.check()
    outcomes = json.loads(achieved.partition(": ")[2])
    write = outcomes.pop("write to the clip")
    assert len(outcomes) == 12
    if confined:
        assert write in {"EBADF", "EPERM"}
        assert set(outcomes.values()) <= {"EPERM", "EACCES"}, outcomes
        assert victim.poll() is None
    else:
        assert write == "EBADF"
        assert set(outcomes.values()) == {"done"}, outcomes


async def test_a_decoder_has_the_clip_and_pipes_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip, secret = lossless(scene(frames=2), tmp_path / "clip.mkv"), tmp_path / "secret.txt"
    secret.write_text("secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    scorer = Scorer()
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        async with scorer.open(Source(str(clip)), "distorted") as opened:
            await scorer.probe(opened, outputs=1)
            (pid,) = decoders()
            links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
            environment = dict(one.split("=", 1) for one in read(pid, "environ").split("\0") if one)
            status = dict(line.split(":\t", 1) for line in read(pid, "status").splitlines())
    kinds = Counter(link.partition(":")[0] for link in links)
    # Standard input, output and error, and one for frames. asyncio uses a pair of sockets for standard input.
    assert kinds[str(clip)] == 1
    assert kinds["pipe"] + kinds["socket"] == 4
    assert kinds.total() == 5, links
    assert environment == ENVIRONMENT
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")

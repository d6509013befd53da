"""`vmafx score`, `vmafx devices` and `vmafx doctor`: output, exit codes, reports."""

import asyncio
import csv
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import Terminal
from tests.support.project import ROOT
from tests.support.video import ffmpeg, long_clip, lossless, scene
from vmafx.api.hardware import DEVICES
from vmafx.scoring.result import Report

VMAFX = str(Path(sys.executable).with_name("vmafx"))
Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOT_FFMPEG = (
    "error: /bin/true is not ffmpeg: `/bin/true -version` printed no ffmpeg version; unset VMAFX_FFMPEG_BIN,"
    " or set it to an ffmpeg 6 or later with libvmaf\n"
)

NO_TORCH = "torch is not installed: pip install 'vmafx[gpu]'"
NO_ENGINE = (
    "this machine has no engine for the backend {} ({}): torch is not installed: pip install 'vmafx[gpu]'; or use the"
    " backend cpu, or leave it unset"
)


@pytest.fixture(scope="module")
def score_clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """reference.mkv, good.mp4, poor.mp4 and short.mp4."""
    folder = tmp_path_factory.mktemp("clips")
    reference = lossless(scene(frames=12), folder / "reference.mkv")
    for name, quality in (("good", "18"), ("poor", "42")):
        ffmpeg("-i", reference, "-c:v", "libx264", "-crf", quality, folder / f"{name}.mp4")
    ffmpeg("-i", reference, "-frames:v", "6", "-c:v", "libx264", folder / "short.mp4")
    return folder


@pytest.fixture
def run_vmafx(score_clips: Path, tmp_path: Path) -> Run:
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "COLUMNS": "120"}

    def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        command = [VMAFX, *arguments]
        return subprocess.run(
            command,
            cwd=score_clips,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_the_table_has_a_row_per_feature(run_vmafx: Run) -> None:
    done = run_vmafx("score", "reference.mkv", "good.mp4", "--feature", "psnr", "--feature", "ssim")
    assert done.returncode == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [row[1] for row in lines if row and row[0] == "│"] == ["vmaf", "psnr_y", "psnr_cb", "psnr_cr", "ssim"]
    assert "(mean of 12 frames; vmaf_v0.6.1; scored at " in done.stdout
    assert re.search(r"^backend cpu: libvmaf 2\.3\.0, ffmpeg \S+; decoded with PyAV \S+", done.stdout, re.MULTILINE)
    assert done.stderr == ""
    assert (
        "(mean of 12 frames, cached; "
        in run_vmafx("score", "reference.mkv", "good.mp4", "--feature", "psnr,ssim").stdout
    )
    assert (
        "cached" not in run_vmafx("score", "reference.mkv", "good.mp4", "--feature", "psnr,ssim", "--no-cache").stdout
    )


def test_json_output_has_the_result_of_one_clip(run_vmafx: Run, score_clips: Path) -> None:
    one = json.loads(run_vmafx("score", "reference.mkv", "poor.mp4", "--json").stdout)
    assert 0 < one["score"] < 80
    assert one["score"] == one["features"]["vmaf"]["mean"]
    assert one["features"]["vmaf"]["percentiles"].keys() >= {"p1", "p5", "p50", "p95", "p99"}
    assert one["reference"]["digest"].startswith("sha256:")
    assert (one["frames"], one["distorted"]["codec"], one["engine"]["libvmaf"]) == (12, "h264", "2.3.0")
    for side, name in (("reference", "reference.mkv"), ("distorted", "poor.mp4")):
        clip = one[side]
        assert clip["bytes"] == (score_clips / name).stat().st_size
        assert clip["bitrate"] == pytest.approx(clip["bytes"] * 8 * clip["frameRate"] / 12, rel=0.01)
    pooled = json.loads(run_vmafx("score", "reference.mkv", "poor.mp4", "--json", "--pool", "p5").stdout)
    assert pooled["score"] == one["features"]["vmaf"]["percentiles"]["p5"]


def test_the_tables_show_size_and_bitrate(run_vmafx: Run) -> None:
    done = run_vmafx("score", "reference.mkv", "good.mp4", "poor.mp4")
    assert re.search(r"^ *good\.mp4, [\d.]+ kB, [\d,]+ kbit/s *$", done.stdout, re.MULTILINE)
    ranking = done.stdout.partition("Ranking")[2]
    assert re.search(r"distorted +┃ +VMAF ┃ +min ┃ +bitrate ┃ +size ┃", ranking)
    assert re.search(r"poor\.mp4 +│ +[\d.]+ │ +[\d.]+ │ +[\d,]+ kbit/s │ +[\d.]+ kB │", ranking)
    narrow = run_vmafx("score", "reference.mkv", "good.mp4", "poor.mp4", COLUMNS="60")
    assert "bitrate" not in narrow.stdout.partition("Ranking")[2]


def test_json_output_of_several_clips_is_a_list(run_vmafx: Run) -> None:
    both = json.loads(run_vmafx("score", "reference.mkv", "poor.mp4", "good.mp4", "--json").stdout)
    assert [one["distorted"]["uri"] for one in both] == ["poor.mp4", "good.mp4"]
    assert both[0]["score"] < both[1]["score"]
    some = run_vmafx("score", "reference.mkv", "poor.mp4", "none.mp4", "good.mp4", "--json")
    assert some.returncode == 2
    results = json.loads(some.stdout)
    assert [one["distorted"]["uri"] for one in results] == ["poor.mp4", "none.mp4", "good.mp4"]
    assert results[1]["error"]["kind"] == "BadInput"
    assert "score" not in results[1]
    all_of_them = json.loads(run_vmafx("score", "none.mkv", "poor.mp4", "good.mp4", "--json").stdout)
    assert [one["error"]["message"][:9] for one in all_of_them] == ["reference"] * 2
    assert some.stderr.startswith("error: none.mp4: distorted: there is no file")
    short = json.loads(run_vmafx("score", "reference.mkv", "short.mp4", "--json").stdout)["error"]
    assert short == {
        "kind": "BadInput",
        "message": "distorted: it has 6 frames, but the reference has 12",
        "remedy": "use --shortest only if frames are missing at the end",
    }


async def test_the_progress_bar_of_a_bad_clip_shows_refused(score_clips: Path, tmp_path: Path) -> None:
    long = str(long_clip(tmp_path / "long.mkv", frames=150))
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "COLUMNS": "100", "LINES": "20", "TERM": "xterm"}
    async with Terminal() as terminal:
        process = await asyncio.create_subprocess_exec(
            VMAFX, "score", long, long, "reference.mkv", "none.mp4", "--parallel", "1", "--threads", "1",
            cwd=score_clips, env=environment, stdout=asyncio.subprocess.PIPE, stderr=terminal.theirs,
        )  # fmt: skip
        await terminal.shows("error: none.mp4: distorted: there is no file none.mp4")
        await terminal.shows("error: reference.mkv: distorted: it has 12 frames")
        terminal.forget()
        await terminal.shows("refused")
        assert process.returncode is None
        process.kill()
        await process.communicate()


def test_each_failure_has_its_exit_code_and_one_line(run_vmafx: Run, score_clips: Path) -> None:
    assert run_vmafx("score", "reference.mkv", "good.mp4", "--fail-under", "90").returncode == 0
    poor = json.loads(run_vmafx("score", "reference.mkv", "poor.mp4", "--json").stdout)["score"]
    one = run_vmafx("score", "reference.mkv", "poor.mp4", "--fail-under", "90")
    assert (one.returncode, one.stderr) == (1, f"VMAF below 90: poor.mp4 {poor:.3f} (1 of 1 clip)\n")
    for form in ((), ("--json",)):
        some = run_vmafx("score", "reference.mkv", "poor.mp4", "good.mp4", "poor.mp4", "--fail-under", "90", *form)
        assert (some.returncode, some.stderr.splitlines()[-1]) == (
            1, f"VMAF below 90: poor.mp4 {poor:.3f}, poor.mp4 {poor:.3f} (2 of 3 clips)",
        )  # fmt: skip
    barely = run_vmafx("score", "reference.mkv", "poor.mp4", "--fail-under", str(poor + 1e-6))
    assert (barely.returncode, barely.stderr.split()[4]) == (1, str(poor))
    for arguments, message in {
        ("none.mkv", "good.mp4"): "error: reference: there is no file none.mkv",
        ("reference.mkv", "short.mp4"): "error: distorted: it has 6 frames, but the reference has 12; use"
        " --shortest only if frames are missing at the end\n",
        ("reference.mkv", "good.mp4", "--model", "x"): "error: model: there is no model 'x'",
        (
            "reference.mkv",
            "good.mp4",
            "--pool",
            "most",
        ): "error: options: --pool must be mean, harmonic_mean,",
        ("reference.mkv", "good.mp4", "--feature", "x"): "error: options: unknown feature x; choose from psnr,",
        ("reference.mkv", "good.mp4", "--scale-to", "big"): "error: options: --scale-to 'big' is not a size",
        (
            "reference.mkv",
            "http://10.0.0.1/a.mp4",
        ): "error: distorted: cannot fetch http://10.0.0.1/a.mp4: it resolves"
        " or redirects to a private, loopback or link-local address; set VMAFX_MEDIA_ALLOW_PRIVATE=true to allow that;"
        " for this command only, use --allow-private",
        (
            "reference.mkv",
            "good.mp4",
            "--report",
            "a.pdf",
        ): "error: options: the name of report a.pdf must end in .html,",
        (
            "reference.mkv",
            "good.mp4",
            "--report",
            "no/a.csv",
        ): "error: options: the report's folder no does not exist",
        (
            "a.yuv",
            "b.yuv",
            "--size",
            "64x64",
            "--pix-fmt",
            "nv12",
        ): "error: options: unknown --pix-fmt 'nv12'; choose from",
        ("reference.mkv", "good.mp4", "--pix-fmt", "yuv420p"): "error: options: --pix-fmt is for raw video",
        (
            "reference.mkv",
            "good.mp4",
            "--size",
            "256x144",
        ): "error: options: --size is for raw video, but reference.mkv is a container file; omit it",
        (
            "a.yuv",
            "good.mp4",
            "--size",
            "256x144",
            "--distorted-size",
            "128x72",
        ): "error: options: --distorted-size is for raw video, but no distorted clip is raw",
        ("a.yuv", "good.mp4"): "error: options: a .yuv clip has no header; specify its --size, such as 1920x1080",
        ("", "good.mp4"): "error: reference: the name is empty; give a path or a URI",
        ("reference.mkv", "good.mp4", "--fail-under", "nan"): "error: options: --fail-under nan is not a finite number",
        ("reference.mkv", "good.mp4", "--threads", "9999"): "error: options: --threads must be 0 to 128, not 9999",
        ("reference.mkv", "good.mp4", "--subsample", "0"): "error: options: --subsample must be 1 to 1000, not 0",
        ("reference.mkv", "good.mp4", "--scale-to", "9999x9999"): "error: options: 9999x9999 is more than the limit",
    }.items():
        done = run_vmafx("score", *arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert done.stderr.startswith(message)
        assert done.stderr.count("\n") == 1
    broken = run_vmafx("score", "reference.mkv", "good.mp4", VMAFX_FFMPEG_BIN="/bin/true")
    assert (broken.returncode, broken.stderr) == (3, NOT_FFMPEG)
    assert run_vmafx("score", "reference.mkv").returncode == 2


def test_reports_are_written_as_html_json_and_csv(run_vmafx: Run, score_clips: Path) -> None:
    names = ["all.html", "all.json", "all.csv"]
    flags = [part for name in names for part in ("--report", name)]
    done = run_vmafx("score", "reference.mkv", "good.mp4", "poor.mp4", *flags, "--worst", "3")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [f"wrote {name}" for name in names]
    page, data, table = ((score_clips / name).read_text() for name in names)
    assert page.count("data:image/jpeg;base64,") == 2 * 2 * 3
    reports = json.loads(data)
    assert [one["distorted"]["uri"] for one in reports] == ["good.mp4", "poor.mp4"]
    assert reports[0]["perFrame"]["frame"] == list(range(12))
    rows = list(csv.DictReader(table.splitlines()))
    assert [float(row["vmaf"]) for row in rows] == [*reports[0]["perFrame"]["vmaf"], *reports[1]["perFrame"]["vmaf"]]


def test_charts_are_written_as_svg_and_png(run_vmafx: Run, score_clips: Path) -> None:
    names = ["curve.svg", "curve.png", "ladder.rate-quality.svg", "both.psnr_y.svg"]
    flags = [part for name in names for part in ("--report", name)]
    done = run_vmafx("score", "reference.mkv", "good.mp4", "poor.mp4", "--feature", "psnr", *flags)
    assert (done.returncode, done.stderr.splitlines()) == (0, [f"wrote {name}" for name in names])
    curve, picture, rates, feature = ((score_clips / name).read_bytes() for name in names)
    assert b"VMAF of 2 clips" in curve
    assert picture.startswith(b"\x89PNG")
    assert b"Rate and quality" in rates
    assert b"PSNR Y of 2 clips" in feature
    unmeasured = run_vmafx("score", "reference.mkv", "missing.mp4", "--report", "one.psnr_cb.svg")
    assert unmeasured.returncode == 2
    message = "error: options: the chart one.psnr_cb.svg needs values that are not measured; add --feature psnr\n"
    assert unmeasured.stderr == message  # before the clips are opened
    alone = run_vmafx("score", "reference.mkv", "good.mp4", "--report", "one.rate-quality.png")
    assert alone.returncode == 2
    assert alone.stderr == (
        "error: options: a rate-quality chart needs two or more distorted clips of one reference, with known bitrates,"
        " scored in the same way\n"
    )
    assert "VMAF" in alone.stdout


def test_environment_variables_set_models_reports_and_threads(
    run_vmafx: Run, score_clips: Path, tmp_path: Path
) -> None:
    models, reports = tmp_path / "models", tmp_path / "reports"
    models.mkdir()
    (models / "mine.json").write_text('{"model_dict": {}}')
    variables = {"VMAFX_MODEL_DIR": str(models), "VMAFX_OUTPUT_DIR": str(reports), "VMAFX_THREADS": "3"}
    pair, message = ("score", "reference.mkv", "good.mp4"), f"error: model: {models}/mine.json is not a VMAF model"
    for name in ("mine", "mine.json"):
        done = run_vmafx(*pair, "--model", name, **variables)
        assert (done.returncode, done.stderr[: len(message)]) == (2, message)
    outside = run_vmafx(*pair, "--model", "mine", **variables, VMAFX_MEDIA_ROOTS=str(score_clips))
    assert "mine.json is outside the folders that VMAFX_MEDIA_ROOTS allows" in outside.stderr
    other = run_vmafx(*pair, "--model", "other", **variables).stderr
    assert other.startswith("error: model: there is no model 'other'; use vmaf_v0.6.1,")
    assert other.endswith(f"in VMAFX_MODEL_DIR ({models})\n")
    missing = run_vmafx(*pair, "--report", "out.json", **variables)
    assert missing.stderr.startswith(f"error: options: VMAFX_OUTPUT_DIR is {reports}, which is not a folder; create it")
    reports.mkdir()
    absolute = tmp_path / "absolute.csv"
    done = run_vmafx(*pair, "--report", "out.json", "--report", str(absolute), **variables)
    assert done.stderr.splitlines() == [f"wrote {reports}/out.json", f"wrote {absolute}"]
    assert (reports / "out.json").is_file()
    several = run_vmafx(*pair, "--report", "out.json", **(variables | {"VMAFX_OUTPUT_DIR": f"{reports}:/none"}))
    assert several.stderr.splitlines() == [f"wrote {reports}/out.json"]  # a person may replace a report
    wrong = run_vmafx(*pair, VMAFX_THREADS="many")
    assert (wrong.returncode, wrong.stderr[:37]) == (2, "error: options: VMAFX_THREADS: 'many'")
    assert run_vmafx(*pair, "--threads", "1", VMAFX_THREADS="many").returncode == 0  # the flag wins


def test_raw_video_scores_like_the_encoded_clip(run_vmafx: Run, score_clips: Path) -> None:
    for name in ("reference.mkv", "poor.mp4"):
        ffmpeg("-i", score_clips / name, "-pix_fmt", "yuv420p", "-f", "rawvideo", score_clips / f"{name}.yuv")
    coded = json.loads(run_vmafx("score", "reference.mkv", "poor.mp4", "--json").stdout)["score"]
    for pair in (
        ("reference.mkv.yuv", "poor.mp4.yuv"),
        ("reference.mkv.yuv", "poor.mp4"),
        ("reference.mkv", "poor.mp4.yuv"),
    ):
        done = run_vmafx("score", *pair, "--size", "256x144", "--json")
        assert json.loads(done.stdout)["score"] == coded, pair
    small = score_clips / "small.yuv"
    ffmpeg("-i", score_clips / "poor.mp4", "-vf", "scale=128:72", "-pix_fmt", "yuv420p10le", "-f", "rawvideo", small)
    deep = ("--distorted-size", "128x72", "--distorted-pix-fmt", "yuv420p10le")
    done = run_vmafx("score", "reference.mkv.yuv", "small.yuv", "--size", "256x144", *deep, "--json")
    assert json.loads(done.stdout)["pixelFormat"] == "yuv420p10le"


def test_help_names_every_exit_code(run_vmafx: Run) -> None:
    shown = " ".join(run_vmafx("score", "--help").stdout.split())
    assert "0 scored, 1 below --fail-under, 2 bad input, 3 the engine or this machine failed" in shown


@pytest.mark.parametrize(
    ("flags", "variable", "missing"),
    [
        (("--backend", "cuda"), "cpu", "cuda"),
        ((), "hip", "hip"),
        (("--backend", "cpu"), "cuda", ""),
        (("--backend", "auto"), "cuda", ""),
        ((), "auto", ""),
    ],
)
def test_a_backend_that_is_named_is_never_replaced(
    run_vmafx: Run, flags: tuple[str, ...], variable: str, missing: str
) -> None:
    done = run_vmafx("score", "reference.mkv", "good.mp4", "--json", *flags, VMAFX_BACKEND=variable)
    found = json.loads(done.stdout)
    if missing:
        assert (done.returncode, found["error"]["kind"], found.get("score")) == (3, "NodeFault", None)
        assert done.stderr == f"error: {NO_ENGINE.format(missing, DEVICES[missing])}\n"
    else:
        assert (done.returncode, found["engine"]["backend"]) == (0, "cpu")
        assert found["engine"]["decoder"].startswith("PyAV ")


def test_an_unknown_backend_is_refused(run_vmafx: Run) -> None:
    done = run_vmafx("score", "reference.mkv", "good.mp4", VMAFX_BACKEND="gpu")
    known = "'gpu' is not one of auto, cpu, cuda, hip, sycl, metal"
    assert (done.returncode, done.stderr) == (2, f"error: options: VMAFX_BACKEND: {known}\n")
    assert run_vmafx("score", "reference.mkv", "good.mp4", "--backend", "gpu").returncode == 2


def test_devices_lists_every_backend_with_its_device_and_engine(run_vmafx: Run, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'NVIDIA L4, 550.54.15, 23034'\n")
    tool.chmod(0o755)
    path = f"{tool.parent}:{os.environ['PATH']}"
    done = run_vmafx("devices", PATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = (re.split(r" {3,}", line) for line in done.stdout.splitlines())
    assert head == ["BACKEND", "DEVICE", "ENGINE"]
    assert [row[0] for row in rows] == ["cpu", "cuda", "hip", "sycl", "metal"]
    assert re.fullmatch(r"libvmaf 2\.3\.0, ffmpeg \S+", rows[0][2])
    assert rows[1][1:] == ["NVIDIA L4, 23034 MiB, driver 550.54.15", NO_TORCH]
    cpu, cuda, *_ = json.loads(run_vmafx("devices", "--json", PATH=path).stdout)
    assert (cpu["backend"], cpu["device"], cpu["engine"], cpu["problem"]) == (*rows[0], "")
    assert (cuda["device"], cuda["count"], cuda["engine"]) == (rows[1][1], 1, "")
    assert cuda["problem"] == NO_TORCH


def test_devices_says_why_there_is_no_engine(run_vmafx: Run) -> None:
    done = run_vmafx("devices", "--json", VMAFX_FFMPEG_BIN="/bin/true")
    cpu = json.loads(done.stdout)[0]
    assert (done.returncode, cpu["engine"], f"error: {cpu['problem']}\n") == (3, "", NOT_FFMPEG)


def test_doctor_shows_models_and_encoders_and_fails_without_ffmpeg(run_vmafx: Run) -> None:
    done = run_vmafx("doctor")
    assert done.returncode == 0
    assert "models     vmaf_v0.6.1, vmaf_v0.6.1neg, vmaf_4k_v0.6.1" in done.stdout
    assert "libx264, libx265, libvpx-vp9, libaom-av1" in done.stdout
    assert re.search(r"^engine     cpu: libvmaf 2\.3\.0, ffmpeg \S+$", done.stdout, re.MULTILINE)
    assert re.search(r"^sandbox    seccomp, Landlock \(ABI \d+\), limits$", done.stdout, re.MULTILINE)
    assert "ok: this machine can score clips" in done.stdout
    broken = run_vmafx("doctor", VMAFX_FFMPEG_BIN="/bin/true")
    assert (broken.returncode, broken.stderr) == (3, NOT_FFMPEG)
    found = json.loads(run_vmafx("doctor", "--json").stdout)
    assert found["libvmaf"] is True
    assert found["sandbox"].startswith("seccomp, Landlock (ABI ")
    assert found["wrong"] == []


async def test_the_python_example_in_the_docs_runs(score_clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "scoring.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    for name, made in (("reference.mp4", "reference.mkv"), ("encode.mp4", "good.mp4")):
        (score_clips / name).write_bytes((score_clips / made).read_bytes())
    monkeypatch.chdir(score_clips)
    printed: list[tuple[object, ...]] = []
    names: dict[str, object] = {"print": lambda *values: printed.append(values)}
    exec(f"async def example():\n{textwrap.indent(example, '    ')}", names)  # noqa: S102 - code from this repository
    await names["example"]()  # type: ignore[operator]
    assert printed[0][0] == pytest.approx(97, abs=3)
    assert isinstance(printed[-1][0], Report)


def test_names_are_shown_without_credentials_and_control_characters(run_vmafx: Run, score_clips: Path) -> None:
    secret = "https://user:pa55word@127.0.0.1:1/a.mp4?signature=t0ken"
    done = run_vmafx("score", "reference.mkv", secret, "no\x1b]0;owned\x07.mp4")
    assert done.returncode == 2
    for word in ("pa55word", "t0ken", "\x1b", "\x07"):
        assert word not in done.stderr + done.stdout
    assert "https://127.0.0.1:1/a.mp4" in done.stderr


def test_numbers_are_never_cut(run_vmafx: Run) -> None:
    for columns in ("40", "60", "80", "120"):
        shown = run_vmafx("score", "reference.mkv", "good.mp4", "--feature", "psnr", COLUMNS=columns).stdout
        assert "…" not in shown
        assert "psnr_cb" in shown


def test_a_failed_write_to_stdout_does_not_exit_like_a_low_score(score_clips: Path, tmp_path: Path) -> None:
    command = [VMAFX, "score", "reference.mkv", "good.mp4", "--json"]
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=score_clips, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (3, "error: cannot print the result: No space left on device\n")

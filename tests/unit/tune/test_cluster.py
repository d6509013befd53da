"""What jobs of vmaf-tune are named, what they are asked to do, and which reports are believed."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vmafx.api.job import VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.fleet.submit import manifest
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.request import ScoreOptions
from vmafx.tune.cluster import check_options, job_options, shown_model, summary
from vmafx.tune.cluster_jobs import KEY_ANNOTATION, JobState, check_ours
from vmafx.tune.job_report import ExpectedReport, parse_report
from vmafx.tune.upload import UploadFolder

REFERENCE, DISTORTED = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
EXPECTED = ExpectedReport(REFERENCE, DISTORTED, "vmaf_v0.6.1", "mean", 1, 3)
CLIP = {"container": "mov", "codec": "h264", "width": 64, "height": 64, "pixelFormat": "yuv420p", "frames": 3}
STATISTICS = {"mean": 91.0, "harmonicMean": 90.9, "min": 90.0, "max": 92.0, "percentiles": {"p5": 90.1}}
REPORT: dict[str, Any] = {
    "score": 91.0, "pooling": "mean", "model": "vmaf_v0.6.1", "frames": 3, "fps": 10.0,
    "features": {"vmaf": STATISTICS},
    "reference": {**CLIP, "uri": "s3://b/a", "digest": REFERENCE},
    "distorted": {**CLIP, "uri": "s3://b/b", "digest": DISTORTED},
    "width": 64, "height": 64, "pixelFormat": "yuv420p", "subsample": 1,
    "engine": {"ffmpeg": "8", "libvmaf": "3"}, "schema": 1,
    "perFrame": {"frame": [0, 1, 2], "vmaf": [90.0, 91.0, None], "psnr_y": [1.0, 2.0, 3.0]},
}  # fmt: skip


def parsed(**changes: Any) -> Any:
    return parse_report(json.dumps({**REPORT, **changes}).encode(), "s3://b/r.json", EXPECTED)


def test_a_report_of_a_job_is_that_of_a_score() -> None:
    report = parsed()
    assert (report.result.score, report.result.features["vmaf"].percentiles["p5"]) == (91.0, 90.1)
    assert report.numbers.tolist() == [0, 1, 2]
    assert report.values["vmaf"].tolist()[:2] == [90.0, 91.0]
    assert math.isnan(report.values["vmaf"][2])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"score": "91"}, "is not a report of vmafx"),
        ({"schema": 2}, "is not a report of vmafx"),
        ({"perFrame": {}}, "is not a report of vmafx"),
        ({"perFrame": {"frame": [0, 1, 1 << 70], "vmaf": [1.0, 2.0, 3.0]}}, "is not a report of vmafx"),
        ({"score": 1e9}, "has no valid score"),
        ({"features": {}}, "has no valid score"),
        ({"features": {"vmaf": {**STATISTICS, "percentiles": {}}}}, "has no valid score"),
        ({"distorted": {**REPORT["distorted"], "digest": REFERENCE}}, "their digests differ"),
        ({"reference": {**REPORT["reference"], "digest": ""}}, "their digests differ"),
        ({"pooling": "max"}, "another model or other options"),
        ({"model": "vmaf_v0.6.1neg"}, "another model or other options"),
        ({"subsample": 2}, "another model or other options"),
        ({"frames": 2}, "is about 2 frames, but the encode has 3"),
        ({"perFrame": {"frame": [0, 1], "vmaf": [1.0, 2.0]}}, "is about 3 frames"),
    ],
)
def test_other_reports_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(NodeFault, match=why) as refused:
        parsed(**changes)
    assert str(refused.value).startswith("the report s3://b/r.json ")
    assert str(refused.value).endswith("; delete it, and run the command again")


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b'{"score": NaN}', b"null"])
def test_what_is_no_report_is_refused(content: bytes) -> None:
    with pytest.raises(NodeFault, match="is not a report of vmafx"):
        parse_report(content, "r.json", EXPECTED)


def test_every_other_frame_counts_with_subsampling() -> None:
    expected = msgspec.structs.replace(EXPECTED, subsample=2, frames=5, model="")
    changed = {**REPORT, "subsample": 2, "model": "mine"}
    assert parse_report(json.dumps(changed).encode(), "r.json", expected).result.frames == 3


def test_a_folder_knows_what_the_cluster_reaches(tmp_path: Path) -> None:
    shared, elsewhere = tmp_path / "shared", tmp_path / "elsewhere"
    (shared / "clips").mkdir(parents=True)
    elsewhere.mkdir()
    for clip in (shared / "clips" / "a b.mkv", elsewhere / "c.mkv"):
        clip.write_bytes(b"clip")
    (elsewhere / "link").symlink_to(shared)
    (shared / "out.mkv").symlink_to(elsewhere / "c.mkv")
    folder = UploadFolder(shared.as_uri(), MediaPolicy())
    assert folder.named("x") == (shared / "x").as_uri()
    inside = (shared / "clips" / "a b.mkv").as_uri()
    assert folder.visible(str(shared / "clips" / "a b.mkv")) == folder.visible(inside) == inside
    assert folder.visible(str(elsewhere / "link" / "clips" / "a b.mkv")) == inside
    assert folder.visible(str(elsewhere / "c.mkv")) is None
    assert folder.visible(str(shared / "out.mkv")) is None, "its content is elsewhere"
    assert folder.visible("HTTPS://example.com/a.mp4?signature=1") == "https://example.com/a.mp4?signature=1"
    store = UploadFolder("s3://bucket/prefix//", MediaPolicy())
    assert store.named("x") == "s3://bucket/prefix/x"
    assert store.visible(inside) is None
    assert store.visible("gs://other/a.mp4") == "gs://other/a.mp4"


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("https://example.com/a", "neither a folder nor in a store"),
        ("oci://registry/a@sha256:" + "0" * 64, "neither a folder nor in a store"),
        ("ftp://example.com/a", "ftp:// is not supported"),
        ("s3://bucket/a?versionId=1", "must not have a query"),
        ("s3://user@bucket/a", "must not contain credentials"),
        ("s3://bucket", "write s3://BUCKET/KEY"),
        ("file://host/a", "cannot name another host"),
    ],
)
def test_other_places_for_uploads_are_refused(uri: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        UploadFolder(uri, MediaPolicy())


def test_only_a_scheme_that_is_allowed_is_used_for_uploads() -> None:
    with pytest.raises(BadInput, match="s3:// is not allowed"):
        UploadFolder("s3://bucket/a", MediaPolicy(schemes=frozenset({"file"})))


def test_jobs_get_the_options_that_they_have_and_no_others() -> None:
    assert job_options(ScoreOptions(threads=3)) is None
    chosen = job_options(ScoreOptions(pooling="p5", subsample=2, features=("psnr",)))
    assert chosen is not None
    assert (chosen.pooling, chosen.subsample, chosen.features, chosen.threads) == ("p5", 2, ("psnr",), None)
    check_options(ScoreOptions(pooling="p5", threads=3))
    for options in (ScoreOptions(shortest=True), ScoreOptions(size=(64, 64)), ScoreOptions(damaged=True)):
        with pytest.raises(BadInput, match="jobs of a cluster have no option"):
            check_options(options)


def test_reports_name_models_by_their_uri() -> None:
    assert shown_model("vmaf_v0.6.1") == "vmaf_v0.6.1"
    assert shown_model("s3://bucket/model.json?versionId=1") == "s3://bucket/model.json"
    assert shown_model("mine") == "", "each node has it in a folder of its own"


def test_a_job_of_somebody_else_is_not_taken() -> None:
    spec = VmafxJobSpec("s3://b/a", "s3://b/b", output="s3://b/r.json")
    job = manifest("video", "tune-1", {}, spec)
    job["metadata"]["annotations"] = {KEY_ANNOTATION: "key"}

    def found(key: str, **changes: str) -> VmafxJob:
        meta = ObjectMeta(name="tune-1", namespace="video", annotations={KEY_ANNOTATION: key})
        return VmafxJob(metadata=meta, spec=msgspec.structs.replace(spec, **changes))

    check_ours(found("key"), job)
    check_ours(found("key", reference="s3://b/a?another=signature"), job)
    for other in (found("other"), found("key", distorted="s3://b/c"), found("key", output="")):
        with pytest.raises(NodeFault, match="there is a job tune-1 in namespace video that scores something else"):
            check_ours(other, job)


def test_the_summary_counts_jobs_and_says_why_one_waits() -> None:
    states = [
        JobState(""),
        JobState("scored"),
        JobState("running"),
        JobState("waiting", "NoNodes: none"),
        JobState("scored"),
    ]
    assert summary(states) == "1 waiting, 1 running, 2 scored (NoNodes: none)"
    assert summary([JobState("uploading"), JobState("failed")]) == "1 uploading, 1 failed"
    assert summary([]) == ""

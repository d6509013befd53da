"""Credentials of a job and of its node: which of them the stores of a worker get."""

from pathlib import Path

import pytest

from vmafx.jobs.attempt import CREDENTIAL_VARIABLES
from vmafx.worker.main import use_credentials

KEYS = {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": "http://store"}


@pytest.mark.parametrize(
    ("node", "job", "expected"),
    [
        ({}, KEYS, KEYS),
        ({"AWS_DEFAULT_REGION": "eu"}, KEYS | {"AWS_DEFAULT_REGION": "us"}, KEYS | {"AWS_DEFAULT_REGION": "eu"}),
        ({"AWS_ACCESS_KEY_ID": "node"}, KEYS, {"AWS_ACCESS_KEY_ID": "node"}),
        ({"AWS_PROFILE": "p"}, {"AWS_ENDPOINT_URL": "http://evil"}, {"AWS_PROFILE": "p"}),  # the key stays at home
        ({"AWS_PROFILE": "p"}, {"GOOGLE_APPLICATION_CREDENTIALS_JSON": "{}"}, {"AWS_PROFILE": "p"}
         | {"GOOGLE_APPLICATION_CREDENTIALS_JSON": "{}"}),
        ({"AWS_ENDPOINT_URL": "http://node"}, KEYS | {"AWS_ENDPOINT_URL_S3": "http://evil"},
         KEYS | {"AWS_ENDPOINT_URL": "http://node"}),
        ({"GOOGLE_APPLICATION_CREDENTIALS": "/key"}, {"GOOGLE_APPLICATION_CREDENTIALS_JSON": "{}"},
         {"GOOGLE_APPLICATION_CREDENTIALS": "/key"}),
        ({}, {"PYTHONPATH": "/evil"}, {"VMAFX_JOB_PYTHONPATH": "/evil"}),
    ],
)  # fmt: skip
def test_a_job_has_its_own_credentials_unless_the_node_has_some(
    node: dict[str, str], job: dict[str, str], expected: dict[str, str]
) -> None:
    environ = node | {f"VMAFX_JOB_{name}": value for name, value in job.items()}
    assert use_credentials(environ) == ("http://store" in environ.values())
    assert environ == expected


def test_the_documentation_lists_every_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "clips.md").read_text()
    assert [name for name in CREDENTIAL_VARIABLES if f"`{name}`" not in page] == []

"""What the controller makes of the responses of trainers, and of other servers at their address."""

import pytest

from vmafx.controller.samples import TrainerReply, combined, trainer_reply
from vmafx.kube import ObjectKey
from vmafx.kube.http1 import HttpResponse
from vmafx.wire.controller_pb2 import PushSamplesResponse

TRAINER = ObjectKey("video", "main")


@pytest.mark.parametrize(
    "body", [b"", b"null", b"{}", b"\xff", b'{"result": "other"}', b"[" * 100_000, b'{"x":' + b"[" * 100_000]
)
def test_an_invalid_reply_means_later(body: bytes) -> None:
    reply = trainer_reply(HttpResponse(200, "", body), TRAINER)
    assert reply == TrainerReply("unavailable", "the trainer of video/main sent an invalid reply")


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (302, "unavailable"),
        (400, "refused"),
        (401, "unavailable"),
        (404, "unavailable"),
        (422, "refused"),
        (429, "unavailable"),
        (500, "unavailable"),
        (507, "unavailable"),
    ],
)
def test_the_sender_gets_the_status_and_not_the_text_of_another_server(status: int, result: str) -> None:
    reply = trainer_reply(HttpResponse(status, "", b"internal\x1b[1m\nnames"), TRAINER)
    assert reply == (result, f"the trainer of video/main replied with HTTP status {status}", "internal [1m names")
    assert "names" not in combined([reply]).message


def test_samples_are_kept_while_one_trainer_may_take_them_later() -> None:
    stored, duplicate = TrainerReply("stored"), TrainerReply("duplicate")
    refused, later = TrainerReply("refused", "no"), TrainerReply("unavailable", "down")
    assert combined([stored, later, refused]) == (PushSamplesResponse.RETRY, "down")
    assert combined([duplicate, stored, refused]) == (PushSamplesResponse.STORED, "")
    assert combined([refused, duplicate]) == (PushSamplesResponse.DUPLICATE, "")
    assert combined([refused]) == (PushSamplesResponse.REFUSED, "no")

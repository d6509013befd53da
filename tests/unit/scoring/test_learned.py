"""Learned models from files of others: which are accepted."""

from pathlib import Path

import pytest

from tests.support.registry import learned_model
from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS
from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import decode_model, encode_model, is_learned
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.models import open_model

NESTED = b'{"format": "vmafx.model/v1", "more": ' + b"[" * 100_000


@pytest.mark.parametrize("base", BUILT_IN_MODELS)
async def test_the_base_is_a_built_in_model(tmp_path: Path, base: str) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(encode_model(learned_model(base)))
    async with open_model(str(path), MediaPolicy()) as model:
        assert (model.argument, model.fd) == (f"version={base}", None)
        assert model.learned == learned_model(base)


@pytest.mark.parametrize("base", ["", "vmaf_v9", "model.json", "/etc/passwd", "http://127.0.0.1:1/model.json"])
async def test_a_model_cannot_make_the_reader_open_another_file(tmp_path: Path, base: str) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(encode_model(learned_model(base)))
    with pytest.raises(BadInput, match=r"has the base .*, which is not vmaf_v0\.6\.1"):
        async with open_model(str(path), MediaPolicy(private=True)):
            pass


async def test_a_model_whose_base_is_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(encode_model(learned_model(str(path))))
    with pytest.raises(BadInput, match="has the base"):
        async with open_model(str(path), MediaPolicy()):
            pass


async def test_deeply_nested_content_is_not_a_model(tmp_path: Path) -> None:
    assert not is_learned(NESTED)
    with pytest.raises(BadInput, match="is not a learned model"):
        decode_model(NESTED, "it")
    for content in (NESTED, b'{"model_dict": {"x": ' + b"[" * 100_000):
        path = tmp_path / "model.json"
        path.write_bytes(content)
        with pytest.raises(BadInput, match="is not a VMAF model"):
            async with open_model(str(path), MediaPolicy()):
                pass

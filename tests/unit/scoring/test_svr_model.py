"""Models of libvmaf, compared with the oracle, and refused where they cannot be used."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle.model import FEATURES as ORACLE_FEATURES
from tests.oracle.model import load
from tests.support.video import FFMPEG
from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.scoring.svr_model import MAX_VECTORS, SvrModel, embedded_model, parse_model
from vmafx.training.distillation import plausible_features


def model_json(**changes: Any) -> bytes:
    """The file of a model with two support vectors."""
    model_dict = {
        "model": svr("1.5 1:0.2 3:0.4\n-1 1:0.7 2:0.1 6:1"),
        "model_type": "LIBSVMNUSVR",
        "norm_type": "linear_rescale",
        "feature_names": [f"VMAF_integer_feature_{name}_score" for name in MODEL_FEATURES],
        "slopes": [0.01, 2.0, 0.05, 1.0, 1.5, 1.5, 2.0],
        "intercepts": [-0.3, -1.0, 0.0, -0.1, -0.5, -0.5, -1.0],
        "score_clip": [0.0, 100.0],
    }
    return msgspec.json.encode({"param_dict": {"C": 4.0}, "model_dict": {**model_dict, **changes}})


def svr(vectors: str, **changes: str) -> str:
    header = {"svm_type": "nu_svr", "kernel_type": "rbf", "gamma": "0.04", "rho": "-1.3", **changes}
    return "\n".join([*(f"{name} {value}" for name, value in header.items()), "SV", vectors, ""])


@pytest.mark.parametrize("name", BUILT_IN_MODELS)
def test_a_model_in_the_engine_predicts_as_the_oracle(name: str) -> None:
    model, oracle = embedded_model(name, FFMPEG), load(FFMPEG, name)
    features = plausible_features(model, 200, np.random.default_rng(1))
    expected = [oracle.score(dict(zip(ORACLE_FEATURES, row, strict=True))) for row in features]
    np.testing.assert_allclose(model.predict(features), expected, atol=1e-8)
    assert model.engine_model == name


@pytest.mark.parametrize(("limit", "engine_model"), [(1.0, "vmaf_v0.6.1neg"), (100.0, "vmaf_v0.6.1")])
def test_a_file_names_the_model_for_which_an_engine_computes_its_features(limit: float, engine_model: str) -> None:
    options = [{"adm_enhn_gain_limit": limit}, {}, *[{"vif_enhn_gain_limit": limit}] * 4]
    assert parse_model(model_json(feature_opts_dicts=options), "m").engine_model == engine_model


def test_a_binary_without_models_asks_for_the_file(tmp_path: Path) -> None:
    binary = tmp_path / "ffmpeg"
    other = model_json().replace(b'"norm_type":"linear_rescale"', b'"norm_type":"none"')
    binary.write_bytes(b"\0".join([b"ELF", b'{ "param_dict": {} }', model_json(), other, b'{"param_dict"']))
    with pytest.raises(BadInput, match=r"does not contain the parameters of vmaf_v0\.6\.1 .*vmaf_v0\.6\.1\.json"):
        embedded_model("vmaf_v0.6.1", binary)


@pytest.mark.parametrize("content", [None, b""])
def test_a_binary_that_cannot_be_read_is_a_fault_of_the_machine(tmp_path: Path, content: bytes | None) -> None:
    binary = tmp_path / "ffmpeg"
    if content is not None:
        binary.write_bytes(content)
    with pytest.raises(NodeFault, match="cannot read"):
        embedded_model("vmaf_v0.6.1", binary)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(BadInput, match="no built-in model 'vmaf_v9'"):
        embedded_model("vmaf_v9", FFMPEG)


def test_the_order_and_kind_of_features_in_a_file_do_not_matter() -> None:
    backwards = {
        "feature_names": [f"VMAF_feature_{name}_score" for name in reversed(MODEL_FEATURES)],
        "slopes": [0.01, 2.0, 1.5, 1.5, 1.0, 0.05, 2.0],
        "intercepts": [-0.3, -1.0, -0.5, -0.5, -0.1, 0.0, -1.0],
        "model": svr("1.5 6:0.2 4:0.4\n-1 6:0.7 5:0.1 1:1"),
    }
    features = np.random.default_rng(2).uniform(0, 1, (20, 6))
    first, second = (parse_model(model_json(**changes), "m") for changes in ({}, backwards))
    np.testing.assert_allclose(first.raw_scores(features), second.raw_scores(features))


def test_scores_are_limited_and_support_vectors_are_features() -> None:
    model = parse_model(model_json(score_clip=[40.0, 60.0]), "m")
    scores = model.predict(np.random.default_rng(3).uniform(0, 1, (500, 6)))
    assert {float(scores.min()), float(scores.max())} <= {40.0, 60.0}
    assert model.support_vectors()[0] == pytest.approx([0.6, 0.0, 0.5, 1 / 3, 1 / 3, 0.5])


REFUSED = {
    "no JSON": (b"{", "not a VMAF model in JSON"),
    "another document": (b"[]", "not a VMAF model in JSON"),
    "a document that is nested deeply": (b'{"x": ' + b"[" * 100_000, "not a VMAF model in JSON"),
    "no UTF-8": (b'{"model_dict": {"model": "\xff"}}', "not a VMAF model in JSON"),
    "a bootstrap model": (model_json(model_type="BOOTSTRAP_LIBSVMNUSVR"), "BOOTSTRAP_LIBSVMNUSVR"),
    "no rescaling": (model_json(norm_type="none"), "linear_rescale"),
    "an unknown feature": (model_json(feature_names=["VMAF_feature_ssim_score"]), "VMAF_feature_ssim_score"),
    "a name in another form": (model_json(feature_names=["adm2"]), "'adm2' is not one of"),
    "a missing feature": (model_json(feature_names=["VMAF_integer_feature_adm2_score"]), "each of the features"),
    "too few slopes": (model_json(slopes=[1.0]), "needs 7 finite slopes"),
    "a slope of zero": (model_json(slopes=[0.0] * 7), "slope is zero"),
    "a huge slope": (model_json(slopes=[1e300] * 7), "needs 7 finite slopes"),
    "an empty range": (model_json(score_clip=[5.0, 5.0]), "score_clip"),
    "an enabled transform": (model_json(score_transform={"enabled": True, "p0": 1}), "score_transform"),
    "an option of a feature": (model_json(feature_opts_dicts=[{"debug": 1}] * 6), "options other than"),
    "a list of options that is too short": (model_json(feature_opts_dicts=[{}]), "for each feature"),
    "an unusual gain limit": (model_json(feature_opts_dicts=[{"vif_enhn_gain_limit": 1.2}] * 6), "gain limits"),
    "a linear kernel": (model_json(model=svr("1 1:1", kernel_type="linear")), "rbf kernel"),
    "no gamma": (model_json(model=svr("1 1:1", gamma="")), "'' is not a number"),
    "a negative gamma": (model_json(model=svr("1 1:1", gamma="-1")), "gamma is not positive"),
    "no vectors": (model_json(model=svr("")), "no support vectors"),
    "too many vectors": (model_json(model=svr("1 1:1\n" * (MAX_VECTORS + 1))), "more than"),
    "an index of zero": (model_json(model=svr("1 0:1")), "index '0'"),
    "an index too large": (model_json(model=svr("1 7:1")), "index '7'"),
    "a weight that is not finite": (model_json(model=svr("nan 1:1")), "'nan' is not a number"),
    "a value that is missing": (model_json(model=svr("1 1")), "'' is not a number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_cannot_be_used_is_refused(case: str) -> None:
    content, reason = REFUSED[case]
    with pytest.raises(BadInput, match="the-model") as caught:
        parse_model(content, "the-model")
    assert reason in str(caught.value)


VALUES = st.one_of(
    st.text(),
    st.just(svr("1e9 1:1e9")),
    st.lists(st.floats(), max_size=8),
    st.lists(st.floats(-1e9, 1e9), min_size=7, max_size=7),
    st.lists(st.text(), max_size=7),
    st.lists(st.dictionaries(st.text(), st.floats()), max_size=7),
)


@given(
    st.dictionaries(st.sampled_from(["model", "slopes", "score_clip", "feature_names", "feature_opts_dicts"]), VALUES)
)
def test_any_file_is_refused_or_predicts_finite_scores(changes: dict[str, Any]) -> None:
    try:
        model: SvrModel = parse_model(model_json(**changes), "m")
    except BadInput:
        return
    assert np.isfinite(model.predict(np.array([[0.9, 3.0, 0.5, 0.8, 0.9, 0.9]]))).all()

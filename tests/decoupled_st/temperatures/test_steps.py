"""`SelfTempered(steps=...)` is asked for, in code and in everything that shows it."""

import re
import warnings
from pathlib import Path

import pytest
import torch

import decoupled_st as dst
from decoupled_st.temperatures import SelfTempered, from_dict

ROOT = Path(__file__).parents[3]
SHOWN = [
    ROOT / "README.md",
    *(
        path
        for folder in ("docs", "examples", "lab/examples")
        for path in (ROOT / folder).glob("*.*")
        if path.is_file()
    ),
    *(path for folder in ("src", "lab/src") for path in (ROOT / folder).rglob("*.py")),
]


def test_steps_are_asked_for_with_what_they_are() -> None:
    for call in (SelfTempered, lambda: from_dict({"name": "self"})):
        with pytest.raises(TypeError, match=r"needs steps=, the number of training calls.*write steps=None"):
            call()
    assert SelfTempered(steps=None).steps is None


def test_every_example_has_steps() -> None:
    shown = [
        f"{path.relative_to(ROOT)}: {call}"
        for path in SHOWN
        for call in re.findall(r"SelfTempered\([^()]*\)", path.read_text(errors="ignore"))
    ]
    assert len(shown) > 15
    assert not [call for call in shown if "steps=" not in call and not call.endswith("SelfTempered(Rule)")]


def test_training_a_layer_of_few_bits_without_steps_warns_once() -> None:
    choice, logits = dst.nn.Categorical(SelfTempered(steps=None)), torch.randn(6, 4, 8)
    with pytest.warns(UserWarning, match=r"layer of 12 bits.*Give steps="):
        choice(logits)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choice(logits)
        dst.nn.Categorical(SelfTempered(steps=None)).eval()(logits)
        dst.nn.Categorical(SelfTempered(steps=40))(logits)
        dst.nn.Categorical(SelfTempered(steps=None, draw=1.0))(logits)  # tau_f is held
        dst.nn.Categorical(SelfTempered(steps=None))(torch.randn(6, 16, 4))  # 32 bits: tau_f is low from the beginning
        dst.nn.Categorical(SelfTempered(steps=None), batch_dims=0)(logits)  # parameters

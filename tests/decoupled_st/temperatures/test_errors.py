"""Rules, schedules and the modules that follow them refuse what would mislead, by a sentence."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import decoupled_st as dst
from decoupled_st.temperatures import Confidence, Schedule, Scheduled, SelfTempered, Tempered, View, from_dict

OPEN, CONSTANTS = SelfTempered(steps=None), dst.Decoupled(tau_f=1.0, tau_b=0.5)
FALLING = Schedule(1.0, 0.0, steps=9)
LOGITS = torch.randn(2, 3, 4)


class Own(dst.GumbelSTE):
    def categorical(self, logits: torch.Tensor, **options: Any) -> torch.Tensor:
        return 2 * logits


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: SelfTempered(steps=None, low=2.0, high=1.0), "high must be at least low"),
    (lambda: SelfTempered(steps=None, share=float("nan")), "share must be finite"),
    (lambda: SelfTempered(steps=None, most=0.5), "most must be at least 1"),
    (lambda: SelfTempered(steps=0), "steps must be an integer of at least 1, got 0"),
    (lambda: Scheduled(tau_f=0.0, tau_b=Schedule(1.0, 0.0, steps=5)), "tau_b must stay above 0"),
    (lambda: Schedule(1.0, 0.5, steps=5, shape="sudden"), "one of linear, cosine, exponential, got 'sudden'"),
    (lambda: Schedule(1.0, 0.0, steps=5, shape="exponential"), "cannot begin or end at 0"),
    (lambda: from_dict({"name": "selves"}), "unknown rule 'selves': expected one of "),
    (lambda: from_dict({"name": "self", "tau": 1.0, 1: 2}), "rule 'self' takes ['ceiling', 'draw'"),
    (lambda: from_dict({"name": "scheduled"}), "rule 'scheduled' takes ['tau_b', 'tau_f'], got []"),
    (lambda: OPEN(OPEN.start(), LOGITS, run_dims=1), "logits' runs, (2,): 'passes' has shape (); start(runs=(2,))"),
    (lambda: OPEN(OPEN.start(), LOGITS, mask=torch.ones(4)), "mask must be a bool tensor"),
    (
        lambda: View.of(LOGITS[0], run_dims=1, batch_dims=2),
        "run_dims + batch_dims = 1 + 2 leading dimensions, got shape",
    ),
    (lambda: View.of(LOGITS[0], dim=2), "dim must name a dimension of the logits, got dim=2 for shape (3, 4)"),
    (lambda: View.of(LOGITS, mask=torch.ones(3, dtype=torch.bool)), "mask must broadcast"),
    *[
        (lambda both=both: Tempered(OPEN, both), f"{type(both).__name__} has one temperature for both: use Decoupled")
        for both in (dst.SoftmaxSTE(), dst.Soft(), dst.GumbelSoft())
    ],
    (lambda: Tempered(OPEN, dst.IdentitySTE()), "IdentitySTE has no temperature"),
    (lambda: Tempered(CONSTANTS), "rule must be a value such as SelfTempered(steps=40_000), got Decoupled"),
    (lambda: Tempered(OPEN, Own()), "Own has a method 'categorical' of its own, which would not be called"),
    *[
        (lambda rule=rule: Tempered(rule, dst.ReinMax()), "may set tau_f to 0: tau_f must be finite and above 0")
        for rule in (
            Confidence(),
            Scheduled(tau_f=FALLING, tau_b=1.0),
            Scheduled(tau_f=0.0, tau_b=1.0),
            SelfTempered(steps=None, low=0.0),
        )
    ],
    *[
        (lambda make=make: make("decoupled"), "estimator must be a value such as ")
        for make in (dst.nn.Categorical, dst.nn.Binary, lambda e: dst.nn.LogicLayer(4, 4, e))
    ],
    *[
        (lambda make=make: make(CONSTANTS, grad_scale="x"), "grad_scale must be a number or a tensor, got 'x'")
        for make in (dst.nn.Categorical, dst.nn.Binary)
    ],
    (lambda: dst.nn.Binary(CONSTANTS, grad_scale=float("nan")), "grad_scale must be finite, got nan"),
    (lambda: dst.nn.Categorical(CONSTANTS, deterministic="no"), "deterministic must be True or False, got 'no'"),
    (lambda: dst.nn.LogicLayer(4, 4, CONSTANTS, deterministic="no"), "deterministic must be True or False, got 'no'"),
    (lambda: dst.nn.Categorical(CONSTANTS, dim="last"), "dim must be an integer such as -1, got 'last'"),
]


@pytest.mark.parametrize(("call", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        call()


def test_what_is_near_it_is_taken() -> None:
    """A schedule that ends above 0 for ReinMax; NumPy's whole numbers."""
    above = Tempered(Scheduled(tau_f=Schedule(1.0, 0.1, steps=9), tau_b=1.0), dst.ReinMax())
    assert dst.nn.Categorical(above)(torch.randn(5, 4)).sum(-1).eq(1).all()
    for rule in (SelfTempered(steps=np.int64(40)), Schedule(1.0, 0.5, steps=np.int32(40))):
        assert type(rule.steps) is int
        assert rule.steps == 40

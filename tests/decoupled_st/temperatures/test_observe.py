"""What rules measure, against the definitions, and with logits that have nothing to say."""

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from decoupled_st.temperatures import SelfTempered, View, scale, usage

NAN, INF = float("nan"), float("inf")


def by_hand_usage(codes: torch.Tensor, categories: int) -> float:
    """[samples, latents] -> the mean over latents of the entropy of the histogram over its largest value."""
    each = []
    for column in codes.T:
        p = torch.bincount(column, minlength=categories).double() / len(column)
        each.append(torch.special.entr(p).sum().item() / math.log(min(categories, len(column))))
    return sum(each) / len(each)


def test_scale_is_the_root_mean_square_of_the_centred_logits() -> None:
    logits = torch.randn(7, 3, 5, dtype=torch.float64) * 3 + torch.randn(7, 3, 1) * 10
    want = (logits - logits.mean(-1, keepdim=True)).square().mean().sqrt()
    value, known = scale(View.of(logits))
    assert known
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(want.item(), rel=1e-6)
    moved, _ = scale(View.of(logits.movedim(-1, 1), dim=1))
    assert moved.item() == pytest.approx(want.item(), rel=1e-6)


def test_usage_is_the_normalised_entropy_of_the_argmax() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 3, 5, generator=generator) + torch.randn(3, 5, generator=generator)
    want = by_hand_usage(logits.argmax(-1), 5)
    assert 0.2 < want < 0.95
    value, known = usage(View.of(logits))
    assert known
    assert value.item() == pytest.approx(want, rel=1e-5)
    assert usage(View.of(logits.movedim(-1, 1), dim=1))[0].item() == pytest.approx(want, rel=1e-5)


ONE_ON = torch.tensor([[1.0, 2.0], [1.0, -2.0], [1.0, 2.0], [1.0, -2.0]])


@pytest.mark.parametrize(
    ("logits", "options", "of_scale", "of_usage"),
    [
        (torch.tensor([[3.0, 3.0], [-3.0, 3.0]]), {"dim": None}, 3.0, 0.5),  # log-odds are not centred
        (ONE_ON, {"dim": None}, math.sqrt(2.5), 0.5),  # one neuron is always on, the other half of the time
        (torch.tensor([[INF], [-2.0], [-INF], [2.0]]), {"dim": None}, 2.0, 1.0),  # on and off without a doubt
        (torch.eye(100)[:4], {}, math.sqrt(0.0099), 1.0),  # of fewer samples than categories
        (torch.tensor([[1.0, -1.0]]), {}, 1.0, None),  # one sample has a scale and no usage
        (torch.tensor([[1.0, -1.0]]), {"dim": None}, 1.0, None),
        (torch.full((6, 2, 4), NAN), {}, None, None),
        (torch.full((6, 2, 4), INF), {}, None, None),
        (torch.full((6, 2, 4), -INF), {}, None, None),
        (torch.randn(6, 2, 4), {"mask": torch.tensor([False, True, False, False])}, None, None),
        (torch.randn(6, 2, 4), {"mask": torch.zeros(4, dtype=torch.bool)}, None, None),
        (torch.randn(6, 2, 1), {}, None, None),
        (torch.zeros(0, 2, 4), {}, None, None),
    ],
)
def test_known_values_and_where_there_is_nothing_to_measure(
    logits: torch.Tensor, options: dict[str, Any], of_scale: float | None, of_usage: float | None
) -> None:
    for measure, want in ((scale, of_scale), (usage, of_usage)):
        value, known = measure(View.of(logits, **options))
        assert bool(known) == (want is not None)
        assert value.item() == pytest.approx(want or 0.0)


@pytest.mark.parametrize("measure", [scale, usage])
def test_what_is_masked_or_not_finite_is_left_out(measure: Any) -> None:
    logits, rows = torch.randn(24, 3, 6), torch.arange(24) < 16
    mask = torch.tensor([True, True, False, True, True, False])
    spoilt = torch.where(rows.view(24, 1, 1), logits, NAN)
    for given, options, kept, plain in (
        (logits, {"mask": mask}, logits[..., mask], {}),
        (logits.masked_fill(~mask, -INF), {}, logits[..., mask], {}),
        (spoilt, {}, logits[rows], {}),
        (spoilt[..., 0], {"dim": None}, logits[rows, :, 0], {"dim": None}),
        (logits[..., 0], {"dim": None, "mask": rows.unsqueeze(-1)}, logits[rows, :, 0], {"dim": None}),
    ):
        torch.testing.assert_close(measure(View.of(given, **options)), measure(View.of(kept, **plain)))


def test_many_logits_are_sampled() -> None:
    wide = torch.randn(2, 500, 3, 40) * torch.tensor([1.0, 3.0]).view(2, 1, 1, 1)
    want = (wide - wide.mean(-1, keepdim=True)).square().mean((1, 2, 3)).sqrt()
    value, _ = scale(View.of(wide, run_dims=1))
    assert not torch.equal(value, want)
    assert torch.allclose(value, want, rtol=0.1)  # 34 samples of 120: 1.1% is one standard error
    mask = torch.arange(40) < 20
    infinite = wide.masked_fill(~mask, -INF)
    assert torch.equal(scale(View.of(wide, run_dims=1, mask=mask))[0], scale(View.of(infinite, run_dims=1))[0])
    parameters = torch.randn(12_000, 16)
    want = (parameters - parameters.mean(-1, keepdim=True)).square().mean().sqrt()
    assert torch.allclose(scale(View.of(parameters, batch_dims=0))[0], want, rtol=0.1)


def test_some_rows_are_taken_without_a_copy_of_all_and_none_from_the_host() -> None:
    """A batch may fill a GPU's memory, and no CUDA graph captures a copy from the host."""

    class Made(TorchDispatchMode):
        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            assert operation.overloadpacket.__name__ != "lift_fresh"
            result = operation(*args, **(kwargs or {}))
            assert operation.is_view or result.numel() < 40 * 50 * 8
            return result

    logits, mask = torch.randn(40, 8, 50), torch.arange(8) < 7
    for view in (
        View.of(logits.movedim(1, -1).contiguous(), mask=mask),
        View.of(logits, dim=1, mask=mask.unsqueeze(-1)),
    ):
        with Made():
            thinned = view.thinned()
        assert thinned.logits.shape == (512, 8)
        assert torch.equal(thinned.mask, mask.expand(512, 8))


def test_bits_of_a_layer() -> None:
    assert View.of(torch.zeros(5, 4, 8)).bits == 12
    assert View.of(torch.zeros(3, 5, 4, 8), run_dims=1).bits == 12
    assert View.of(torch.zeros(5, 8, 4), dim=1).bits == 12
    assert View.of(torch.zeros(5, 200), dim=None).bits == 200
    assert View.of(torch.zeros(7, 5, 16), batch_dims=2).bits == 4


@pytest.mark.parametrize(("batch", "length", "categories"), [(64, 64, 256), (48, 49, 64), (4, 512, 1000)])
def test_the_scale_is_that_of_all_tokens_however_they_lie(batch: int, length: int, categories: int) -> None:
    """The first token of each sequence is unlike the others."""
    torch.manual_seed(0)
    logits = 20 * torch.randn(batch, length, categories)
    logits[:, 0] *= 0.01
    size = (logits - logits.mean(-1, keepdim=True)).square().mean().sqrt().item()
    layouts: list[tuple[torch.Tensor, dict[str, int]]] = [
        (logits, {"batch_dims": 1}),
        (logits, {"batch_dims": 2}),
        (logits.flatten(0, 1), {"batch_dims": 1}),
        (logits.transpose(0, 1), {"batch_dims": 2}),
        (logits.movedim(-1, 1), {"batch_dims": 1, "dim": 1}),
    ]
    rule = SelfTempered(steps=None)
    for given, options in layouts:
        _, state = rule(rule.start(), given, **options)
        assert state["scale"].item() == pytest.approx(size, rel=0.15), options
    _, state = rule(rule.start((2,)), torch.stack([logits, 2 * logits]), run_dims=1)
    assert state["scale"].tolist() == pytest.approx([size, 2 * size], rel=0.15)
    _, state = rule(rule.start(), logits, dim=None)
    assert state["scale"].item() == pytest.approx(logits.square().mean().sqrt().item(), rel=0.15)

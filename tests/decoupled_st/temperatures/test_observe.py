"""What rules measure, against the definitions, and with logits that have nothing to say."""

import math

import pytest
import torch

from decoupled_st.temperatures.observe import View, scale, usage

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


def test_scale_of_log_odds_is_not_centred() -> None:
    value, known = scale(View.of(torch.tensor([[3.0, 3.0], [-3.0, 3.0]]), dim=None))
    assert known
    assert value.item() == pytest.approx(3.0)


def test_usage_is_the_normalised_entropy_of_the_argmax() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 3, 5, generator=generator) + torch.randn(3, 5, generator=generator)
    want = by_hand_usage(logits.argmax(-1), 5)
    assert 0.2 < want < 0.95
    value, known = usage(View.of(logits))
    assert known
    assert value.item() == pytest.approx(want, rel=1e-5)
    assert usage(View.of(logits.movedim(-1, 1), dim=1))[0].item() == pytest.approx(want, rel=1e-5)


def test_usage_of_fewer_samples_than_categories_can_be_one() -> None:
    value, known = usage(View.of(torch.eye(100)[:4]))
    assert known
    assert value.item() == pytest.approx(1.0)


def test_usage_of_log_odds() -> None:
    log_odds = torch.tensor([[1.0, 2.0], [1.0, -2.0], [1.0, 2.0], [1.0, -2.0]])
    value, known = usage(View.of(log_odds, dim=None))
    assert known
    assert value.item() == pytest.approx(0.5)  # one neuron is always on, the other half of the time


def test_a_mask_leaves_log_odds_out() -> None:
    log_odds, mask = torch.randn(12, 5), torch.arange(12).unsqueeze(-1) < 8
    for measure in (scale, usage):
        masked, alone = (
            measure(View.of(*v, dim=None, mask=m))[0] for *v, m in ((log_odds, mask), (log_odds[:8], None))
        )
        torch.testing.assert_close(masked, alone)


def test_each_run_is_measured_alone() -> None:
    logits = torch.randn(4, 20, 3, 5) * torch.tensor([0.1, 1.0, 10.0, 0.0]).view(4, 1, 1, 1)
    for measure in (scale, usage):
        together, _ = measure(View.of(logits, run_dims=1))
        alone = torch.stack([measure(View.of(run))[0] for run in logits])
        assert together.shape == (4,)
        assert torch.allclose(together, alone)
        many, _ = measure(View.of(logits.unflatten(0, (2, 2)), run_dims=2))
        assert torch.equal(many.flatten(), together)
        binary, _ = measure(View.of(logits[..., 0], dim=None, run_dims=1))
        assert torch.allclose(binary, torch.stack([measure(View.of(run[..., 0], dim=None))[0] for run in logits]))


def test_a_mask_leaves_its_categories_out() -> None:
    logits = torch.randn(30, 3, 6)
    mask = torch.tensor([True, True, False, True, True, False])
    kept = logits[..., mask]
    for measure in (scale, usage):
        masked = measure(View.of(logits, mask=mask))
        assert masked[0].item() == pytest.approx(measure(View.of(kept))[0].item(), rel=1e-5)
        infinite = measure(View.of(logits.masked_fill(~mask, -INF)))
        assert infinite[0].item() == pytest.approx(masked[0].item(), rel=1e-5)


@pytest.mark.parametrize(
    ("logits", "mask"),
    [
        (torch.full((6, 2, 4), NAN), None),
        (torch.full((6, 2, 4), INF), None),
        (torch.full((6, 2, 4), -INF), None),
        (torch.randn(6, 2, 4), torch.tensor([False, True, False, False])),
        (torch.randn(6, 2, 4), torch.zeros(4, dtype=torch.bool)),
        (torch.randn(6, 2, 1), None),
        (torch.zeros(0, 2, 4), None),
    ],
    ids=["nan", "inf", "-inf", "one category", "no category", "K = 1", "no sample"],
)
def test_where_there_is_nothing_to_measure(logits: torch.Tensor, mask: torch.Tensor | None) -> None:
    for measure in (scale, usage):
        value, known = measure(View.of(logits, mask=mask))
        assert not known
        assert value == 0


def test_one_sample_has_a_scale_and_no_usage() -> None:
    view = View.of(torch.tensor([[1.0, -1.0]]))
    assert scale(view) == (1.0, True)
    assert usage(view) == (0.0, False)
    view = View.of(torch.tensor([[1.0, -1.0]]), dim=None)
    assert scale(view) == (1.0, True)
    assert usage(view) == (0.0, False)


def test_nan_counts_for_nothing() -> None:
    logits = torch.randn(20, 3, 5)
    spoilt = torch.cat([logits, torch.full((4, 3, 5), NAN)])
    for measure in (scale, usage):
        assert measure(View.of(spoilt))[0].item() == pytest.approx(measure(View.of(logits))[0].item(), rel=1e-6)
    log_odds = torch.cat([logits[..., 0], torch.full((4, 3), NAN)])
    for measure in (scale, usage):
        clean = measure(View.of(logits[..., 0], dim=None))[0].item()
        assert measure(View.of(log_odds, dim=None))[0].item() == pytest.approx(clean, rel=1e-6)


def test_huge_logits_have_a_finite_scale() -> None:
    value, known = scale(View.of(torch.tensor([[3e38, -3e38, 0.0]])))
    assert known
    assert value.isfinite()
    assert value > 1e14


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


def test_bits_of_a_layer() -> None:
    assert View.of(torch.zeros(5, 4, 8)).bits == 12
    assert View.of(torch.zeros(3, 5, 4, 8), run_dims=1).bits == 12
    assert View.of(torch.zeros(5, 8, 4), dim=1).bits == 12
    assert View.of(torch.zeros(5, 200), dim=None).bits == 200
    assert View.of(torch.zeros(7, 5, 16), batch_dims=2).bits == 4


def test_wrong_shapes_are_sentences() -> None:
    with pytest.raises(ValueError, match=r"run_dims \+ batch_dims = 1 \+ 1 leading dimensions, got shape \(5, 4\)"):
        View.of(torch.zeros(5, 4), run_dims=1)
    with pytest.raises(ValueError, match=r"dim must name a dimension of the logits, got dim=2 for shape \(5, 4\)"):
        View.of(torch.zeros(5, 4), dim=2)
    with pytest.raises(ValueError, match="mask must broadcast"):
        View.of(torch.zeros(5, 4), mask=torch.ones(3, dtype=torch.bool))
    with pytest.raises(TypeError, match="logits must be a tensor, got list"):
        View.of([0.0])  # type: ignore[arg-type]

"""Adam over a fleet is torch's Adam, run by run, each with its own rate."""

import pytest
import torch

from dst_lab.fleet.adam import Adam

RATES = [1e-3, 3e-2, 1e-3, 1e-4, 0.5]
SHAPES = {"weight": (7, 5), "bias": (1, 3), "logits": (33,)}
STEPS = 60


@pytest.fixture
def gradients() -> list[dict[str, torch.Tensor]]:
    """Of very different sizes, some zero."""
    draw = torch.Generator().manual_seed(0)
    made = []
    for step in range(STEPS):
        one = {name: torch.randn(len(RATES), *shape, generator=draw) for name, shape in SHAPES.items()}
        made.append({name: g * 10.0 ** (step % 9 - 6) * (g > -1) for name, g in one.items()})
    return made


@pytest.fixture
def start() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {name: torch.randn(len(RATES), *shape, generator=draw) for name, shape in SHAPES.items()}


def fleet(start, gradients, rates=RATES) -> dict[str, torch.Tensor]:
    parameters = {name: tensor.clone() for name, tensor in start.items()}
    adam = Adam(parameters, rates)
    for step, one in enumerate(gradients, 1):
        adam.step(one, step)
    return parameters


def torchs(start, gradients, run: int, **options) -> dict[str, torch.Tensor]:
    parameters = {name: tensor[run].clone().requires_grad_() for name, tensor in start.items()}
    adam = torch.optim.Adam(parameters.values(), lr=RATES[run], **options)
    for one in gradients:
        for name, parameter in parameters.items():
            parameter.grad = one[name][run].clone()
        adam.step()
    return {name: parameter.detach() for name, parameter in parameters.items()}


@pytest.mark.parametrize("run", range(len(RATES)))
def test_torchs_adam_with_the_runs_own_rate(run, start, gradients) -> None:
    """Bit for bit torch's fused kernel. Its plain one takes other roundings: 60 updates of at most 5 lr each, and of
    numbers below 8 + 60 * 5 lr, every one rounded a few times to float32."""
    ours = fleet(start, gradients)
    fused, plain = torchs(start, gradients, run, fused=True), torchs(start, gradients, run, foreach=False)
    largest = 8 + STEPS * 5 * RATES[run]
    for name in SHAPES:
        assert torch.equal(ours[name][run], fused[name])
        torch.testing.assert_close(ours[name][run], plain[name], rtol=0, atol=4 * STEPS * largest * 2**-24)
        assert not torch.equal(ours[name][run], start[name][run])


def test_first_update_in_closed_form(start, gradients) -> None:
    """After one step mean = (1 - beta1) g and square = (1 - beta2) g^2, unbiased to g and g^2: p - lr g / (|g| + eps).

    The unbiasing divides by 1 - 0.999 in float32, which keeps 13 bits of it: 1e-4 of an update."""
    ours = fleet(start, gradients[:1])
    for name, g in gradients[0].items():
        rates = torch.tensor(RATES, dtype=torch.float64).view(-1, *[1] * (g.dim() - 1))
        update = rates * g.double() / (g.double().abs() + 1e-8)
        expected = start[name].double() - update
        slack = 1e-4 * rates + 8 * 2**-24
        assert ((ours[name].double() - expected).abs() <= slack).all()


def test_a_run_does_not_depend_on_the_rates_beside_it(start, gradients) -> None:
    together = fleet(start, gradients)
    for run in (0, 4):
        alone = fleet(
            {name: tensor[run : run + 1] for name, tensor in start.items()},
            [{name: g[run : run + 1] for name, g in one.items()} for one in gradients],
            RATES[run : run + 1],
        )
        assert all(torch.equal(alone[name][0], together[name][run]) for name in SHAPES)


def test_a_transposed_gradient_is_read_as_it_is_meant(start, gradients) -> None:
    turned = [{name: g.transpose(0, -1).contiguous().transpose(0, -1) for name, g in one.items()} for one in gradients]
    assert not turned[0]["weight"][0].is_contiguous()
    ours, other = fleet(start, gradients), fleet(start, turned)
    assert all(torch.equal(ours[name], other[name]) for name in SHAPES)


def test_a_gradient_that_is_not_finite_stays_in_its_run(start, gradients) -> None:
    clean = fleet(start, gradients)
    gradients[10]["weight"][2] = float("nan")
    spoilt = fleet(start, gradients)
    for name in SHAPES:
        others = [run for run in range(len(RATES)) if run != 2 or name != "weight"]
        assert torch.equal(clean[name][others], spoilt[name][others])
    assert spoilt["weight"][2].isnan().all()

"""Modules of other packages that choose by a straight-through estimator: ours gives the same losses and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from clients.conftest import gumbel_as_torch_draws_it
from torch import Tensor, nn

import decoupled_st as dst

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # theirs may warn of what they like


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1, **_: Any) -> Tensor:
    """Ours, with the noise that torch would have drawn."""
    assert hard
    return dst.categorical.gumbel_ste(logits, tau=tau, dim=dim, noise=gumbel_as_torch_draws_it(logits))


def outcome(run: Callable[[], Tensor], module: nn.Module, seed: int = 0) -> tuple[Tensor, list[Tensor]]:
    """A loss and the gradients of a module's parameters."""
    torch.manual_seed(seed)
    module.zero_grad()
    loss = run()
    loss.backward()
    return loss.detach(), [p.grad.clone() for p in module.parameters() if p.grad is not None]


def same(ours: tuple[Tensor, list[Tensor]], theirs: tuple[Tensor, list[Tensor]]) -> None:
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-6)
    assert len(ours[1]) == len(theirs[1]) > 0
    assert any(g.abs().max() > 0 for g in theirs[1])
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-4, atol=1e-6)


def learns(loss: Callable[[], Tensor], module: nn.Module, steps: int = 60, lr: float = 1e-2) -> None:
    """The loss, averaged over ten steps, falls by a tenth at least."""
    optimiser = torch.optim.Adam(module.parameters(), lr)
    seen = []
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss()
        value.backward()
        optimiser.step()
        seen.append(value.item())
    assert sum(seen[-10:]) < 0.9 * sum(seen[:10])


def test_wav2vec2_quantiser(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client("transformers")
    from transformers import Wav2Vec2Config
    from transformers.models.wav2vec2.modeling_wav2vec2 import Wav2Vec2GumbelVectorQuantizer

    torch.manual_seed(1)
    config = Wav2Vec2Config(
        codevector_dim=16, num_codevector_groups=2, num_codevectors_per_group=12, conv_dim=(24,) * 7
    )
    quantiser = Wav2Vec2GumbelVectorQuantizer(config).train()
    nn.init.normal_(quantiser.codevectors)
    quantiser.weight_proj.weight.data.normal_()
    features, target = torch.randn(4, 10, 24), torch.randn(4, 10, 16)
    run = lambda: (quantiser(features)[0] - target).square().mean()  # noqa: E731
    theirs = outcome(run, quantiser)
    monkeypatch.setattr(nn.functional, "gumbel_softmax", gumbel_softmax)
    same(outcome(run, quantiser), theirs)

    def decoupled(logits: Tensor, tau: float, hard: bool) -> Tensor:
        return dst.categorical.decoupled(logits, tau_f=0.5, tau_b=1.0)

    monkeypatch.setattr(nn.functional, "gumbel_softmax", decoupled)
    learns(run, quantiser, steps=100)


def test_hard_attention_of_x_transformers(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    package = client("x_transformers")
    attend = client("x_transformers.attend")
    torch.manual_seed(1)

    def layers() -> nn.Module:
        torch.manual_seed(2)
        return package.Encoder(dim=32, depth=2, heads=2, attn_hard=True, attn_dim_head=16)

    x, target = torch.randn(2, 6, 32), torch.randn(2, 6, 32)
    encoder = layers()
    theirs = outcome(lambda: (encoder(x) - target).square().mean(), encoder)

    def ours(logits: Tensor, temperature: float = 1.0, dim: int = -1) -> Tensor:
        return dst.categorical.decoupled(logits, tau_f=0.0, tau_b=temperature, dim=dim)

    monkeypatch.setattr(attend, "one_hot_straight_through", ours)
    encoder = layers()
    same(outcome(lambda: (encoder(x) - target).square().mean(), encoder), theirs)
    learns(lambda: (encoder(x) - target).square().mean(), encoder, lr=1e-3)


def test_gumbel_sample_of_vector_quantize_pytorch(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their straight-through sampler draws at a temperature and differentiates at the same: Softmax STE."""
    module = client("vector_quantize_pytorch.vector_quantize_pytorch")
    logits = torch.randn(50, 9, requires_grad=True)
    noise = gumbel_as_torch_draws_it(logits)
    monkeypatch.setattr(module, "gumbel_noise", lambda t: noise)
    weight = torch.randn(50, 9)
    for tau in (0.5, 1.0, 2.0):
        index, one_hot = module.gumbel_sample(logits, tau, stochastic=True, straight_through=True)
        (theirs,) = torch.autograd.grad((one_hot * weight).sum(), logits)
        z = dst.categorical.softmax_ste(logits, tau=tau, noise=noise)
        (ours,) = torch.autograd.grad((z * weight).sum(), logits)
        assert torch.equal(z.argmax(-1), index)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_quantiser_of_vector_quantize_pytorch(client: Any) -> None:
    """Our sampler inside their module, told to use the sampler's gradient instead of the identity's."""
    package = client("vector_quantize_pytorch")
    torch.manual_seed(0)
    quantiser = package.VectorQuantize(
        dim=8,
        codebook_size=16,
        straight_through=True,
        rotation_trick=False,
        stochastic_sample_codes=True,
        route_gradients_to_input=False,
    )

    def sample(logits: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        z = dst.categorical.decoupled(logits, tau_f=0.5, tau_b=1.0)
        return z.argmax(-1), z

    quantiser._codebook.gumbel_sample = sample
    network = nn.Sequential(nn.Linear(20, 8), nn.Linear(8, 20))
    x = torch.randn(16, 20).repeat(16, 1) + 0.1 * torch.randn(256, 20)

    def loss() -> Tensor:
        quantised, _, commitment = quantiser(network[0](x).unsqueeze(0))
        return (network[1](quantised).squeeze(0) - x).square().mean() + commitment.sum()

    learns(loss, network, steps=150)


def test_one_hot_categorical_of_torchrl(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """PassThrough is Softmax STE at temperature 1: the same choice, the same gradient."""
    discrete = client("torchrl.modules.distributions.discrete")
    logits = torch.randn(40, 6, requires_grad=True)
    weight = torch.randn(40, 6)
    distribution = discrete.OneHotCategorical(logits=logits)
    torch.manual_seed(3)
    z = distribution.rsample()
    (theirs,) = torch.autograd.grad((z * weight).sum(), logits)
    forced = 1e9 * z.detach()  # noise that makes ours choose as theirs did
    ours_z = dst.categorical.softmax_ste(logits, tau=1.0, noise=forced)
    (ours,) = torch.autograd.grad((ours_z * weight).sum(), logits)
    torch.testing.assert_close(ours_z, z)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)

    class Decoupled(discrete.OneHotCategorical):
        def rsample(self, sample_shape: Any = ()) -> Tensor:
            return dst.categorical.decoupled(
                self.logits.expand(*sample_shape, *self.logits.shape), tau_f=0.5, tau_b=1.0
            )

    sample = Decoupled(logits=logits).rsample((7,))
    assert sample.shape == (7, 40, 6)
    assert torch.equal(sample.sum(-1), torch.ones(7, 40))

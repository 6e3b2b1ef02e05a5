"""A masked diffusion model of scikit-learn's digits, fine-tuned to draw fours: through the tokens, and by RLOO.

    python examples/diffusion.py

The reward is log p(4) of one classifier less 0.05 times the divergence from the model before; another classifier,
trained on other images, judges. One seed; half a minute on one CPU core.
"""

import copy
import itertools

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import decoupled_st as dst

PIXELS, STEPS, BATCH, UPDATES, BETA, DIGIT = 64, 8, 128, 100, 0.05, 4
ESTIMATORS = {
    "Decoupled ST (1, 1.5)": (dst.Decoupled(tau_f=1.0, tau_b=1.5), "straight_through"),
    "Softmax STE": (dst.SoftmaxSTE(tau=1.0), "straight_through"),
    "RLOO": (dst.SoftmaxSTE(tau=1.0), "rloo"),
}


def load() -> tuple[Tensor, Tensor]:
    """Pixels that are 0 or 1, [images, 64], and the digits."""
    digits = load_digits()
    return torch.tensor(digits.data >= 8).long(), torch.tensor(digits.target)


def network(*sizes: int) -> nn.Sequential:
    layers = [layer for size in itertools.pairwise(sizes) for layer in (nn.Linear(*size), nn.GELU())]
    return nn.Sequential(nn.Flatten(), *layers[:-1])


def classifier(x: Tensor, y: Tensor) -> nn.Module:
    """From one-hot pixels [B, 64, 2] to logits of the ten digits."""
    model = network(2 * PIXELS, 128, 10)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(300):
        batch = torch.randint(len(x), (BATCH,))
        optimiser.zero_grad()
        F.cross_entropy(model(F.one_hot(x[batch], 2).float()), y[batch]).backward()
        optimiser.step()
    return model.requires_grad_(False)


def pretrained(x: Tensor) -> nn.Module:
    """A masked model: from a state [B, 64, 3] to logits [B, 64, 2], trained to fill in what is masked."""
    model = nn.Sequential(network(3 * PIXELS, 256, 256, 2 * PIXELS), nn.Unflatten(1, (PIXELS, 2)))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(1000):
        ids = x[torch.randint(len(x), (BATCH,))]
        masked = torch.rand(ids.shape) < torch.rand(BATCH, 1)
        logits = model(dst.masked.from_ids(ids.masked_fill(masked, 2), 2))
        loss = -dst.masked.log_prob(logits, ids, masked).sum() / masked.sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


def fine_tuned(before: nn.Module, reward: nn.Module, estimator: dst.Estimator, by: str) -> nn.Module:
    model = copy.deepcopy(before)
    optimiser = torch.optim.Adam(model.parameters(), 3e-4)
    start = dst.masked.start(BATCH, PIXELS, 2)
    for _ in range(UPDATES):
        out = dst.masked.rollout(model, start, STEPS, estimator, reference=before)
        rewards = reward(out.x0).log_softmax(-1)[:, DIGIT]
        value = dst.masked.expected_reward(rewards, out, by=by) - BETA * out.kl.mean()
        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
    return model


@torch.no_grad()
def judged(model: nn.Module, before: nn.Module, judge: nn.Module) -> tuple[float, float]:
    """The share of fours among 512 samples, and the divergence from the model before."""
    out = dst.masked.rollout(model, dst.masked.start(512, PIXELS, 2), STEPS, dst.SoftmaxSTE(tau=1.0), reference=before)
    return (judge(out.x0).argmax(-1) == DIGIT).float().mean().item(), out.kl.mean().item()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = load()
    before = pretrained(x)
    reward, judge = classifier(x[:900], y[:900]), classifier(x[900:], y[900:])
    say("before", judged(before, before, judge))
    for name, (estimator, by) in ESTIMATORS.items():
        say(name, judged(fine_tuned(before, reward, estimator, by), before, judge))


def say(name: str, result: tuple[float, float]) -> None:
    print(f"{name:24} {100 * result[0]:5.1f}% fours by the judge, {result[1]:6.2f} nats from before", flush=True)


if __name__ == "__main__":
    main()

"""What a bound inside the conditioned noise costs Gumbel-Rao, on a categorical VAE in plain PyTorch.

    python -m results.gumbel_rao_bound --data DIR [--latents 8 --classes 64 --seed 0 --epochs 24 --samples 4]

trains the VAE of the task categorical-vae on all training images of MNIST, twice: with the noise as the library has it,
and with 1e-8 added inside its logarithm, as in the code of the published runs. Each epoch prints the mean train -ELBO
and the share of rows whose largest logit is above 18.4, which is -log(1e-8).
"""

import argparse
import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from dst_lab import data
from torch import Tensor, nn

BOUND, BATCH, RATE = 1e-8, 200, 3.1623e-3


def layers(*widths: int) -> nn.Sequential:
    """Linear layers with LeakyReLU between them."""
    parts: list[nn.Module] = []
    for a, b in pairwise(widths):
        parts += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*parts[:-1])


def surrogate(l: Tensor, drawn: Tensor, tau: float, samples: int, bound: float) -> Tensor:
    """Gumbel-Rao's, averaged over noise that would have drawn the same."""
    with torch.no_grad():
        e = torch.empty(samples, *l.shape).exponential_()
        e_drawn = (drawn * e).sum(-1, keepdim=True)
        if bound:
            others = -torch.log(e / l.exp() + (e_drawn + bound) / l.exp().sum(-1, keepdim=True) + bound)
        else:
            top = l.max(-1, keepdim=True)[0]
            weights = (l - top).exp()
            others = top - torch.log(e / weights.clamp_min(1e-37) + e_drawn / weights.sum(-1, keepdim=True))
        chosen = torch.logsumexp(l, -1, keepdim=True) - e_drawn.clamp_min(1e-37).log()
        noise = torch.where(drawn.bool(), chosen, others) - l
    return F.softmax((l + noise) / tau, -1).mean(0)


def train(images: Tensor, bound: float, args: argparse.Namespace) -> None:
    """Train one VAE, and print what comes of it."""
    torch.manual_seed(args.seed)
    n, K = args.latents, args.classes
    encoder, decoder = layers(784, 512, 256, n * K), layers(n * K, 256, 512, 784)
    optimiser = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], lr=RATE)
    steps, step = args.epochs * len(images) // BATCH, 0
    warmup = steps * 10 // 500
    for epoch in range(args.epochs):
        losses, beyond = [], []
        for index in torch.randperm(len(images)).split(BATCH):
            course = (
                (step + 1) / warmup
                if step < warmup
                else (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
            )
            optimiser.param_groups[0]["lr"] = RATE * course
            x, tau = images[index], 0.1 ** (step / steps)
            l = encoder(x).view(-1, n, K)
            q = F.softmax(l, -1)
            drawn = F.one_hot(torch.multinomial(q.detach().view(-1, K), 1).view(-1, n), K).float()
            soft = surrogate(l, drawn, tau, args.samples, bound)
            z = drawn + (soft - soft.detach())
            divergence = (q * (F.log_softmax(l, -1) + math.log(K))).sum((1, 2)).mean()
            pixels = F.binary_cross_entropy_with_logits(decoder(z.flatten(1)), x, reduction="sum") / len(x)
            loss = divergence + pixels
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step += 1
            losses.append(loss.item())
            beyond.append((l.detach().max(-1)[0] > -math.log(BOUND)).float().mean().item())
        mean, share = (sum(values) / len(values) for values in (losses, beyond))
        print(f"bound {bound:g}, epoch {epoch + 1}: -ELBO {mean:.2f}, beyond the bound {share:.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the data sets")
    for name, default in (("latents", 8), ("classes", 64), ("seed", 0), ("epochs", 24), ("samples", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    levels = torch.from_numpy(data.load("mnist-whole", args.data).splits["train"].images)
    images = levels.float().reshape(-1, 784) / 255
    for bound in (0.0, BOUND):
        train(images, bound, args)


if __name__ == "__main__":
    main()

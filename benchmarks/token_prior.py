"""The second stage: a transformer over the 64 tokens of an image, the same for every tokeniser.

    token_1 .. token_63, after a start -> 4 layers, 256 features, 4 heads, causal -> token_1 .. token_64

It learns the tokens of the training images and of their mirror images in batches of 256, together with the priors of
the other tokenisers of the size: AdamW at 1e-3 with a linear start and a cosine to 0, dropout 0.1, bfloat16 autocast.
Its bits per test image are the rate at which the tokeniser's distortion is bought: more codes in use are no gain where
nobody can say which one comes next.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from autoencoder import CHUNK, Autoencoder, Training, mixed, pixels, train_together
from torch import Tensor, nn

TOKENS, WIDTH, LAYERS, HEADS, BATCH, PRIOR_STEPS, RISE, DRAWN = 64, 256, 4, 4, 256, 2_000, 100, 16


Run = dict[str, Any]


class Prior(nn.Module):
    def __init__(self, codes: int) -> None:
        super().__init__()
        self.start = codes
        self.embedding = nn.Embedding(codes + 1, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(TOKENS, WIDTH))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.1, "gelu", batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, codes)
        nn.init.normal_(self.embedding.weight, std=0.02)
        nn.init.zeros_(self.head.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [N, 64, codes] of each token of [N, 64] from those before it."""
        before = F.pad(tokens[:, :-1], (1, 0), value=self.start)
        x = self.embedding(before) + self.places
        mask = nn.Transformer.generate_square_subsequent_mask(TOKENS, tokens.device)
        for layer in self.layers:
            x = layer(x, mask, is_causal=True)
        return self.head(self.norm(x))


@torch.no_grad()
def tokens_of(network: Autoencoder, images: Tensor) -> Tensor:
    """[images, 64] indices."""
    with mixed(images.device):
        parts = [network.tokens(network.encoder(pixels(part)))[1] for part in images.split(500)]
    return torch.cat([part.reshape(len(part), TOKENS).long() for part in parts])


class OfTokens(Training):
    def __init__(self, prior: Prior, tokens: Tensor, seed: int) -> None:
        super().__init__(list(prior.parameters()), 1e-3, tokens.device, weight_decay=0.05)
        self.prior, self.tokens = prior, tokens
        self.generator = torch.Generator(tokens.device).manual_seed(seed)
        self.picked = torch.zeros(CHUNK, BATCH, dtype=torch.int64, device=tokens.device)

    def draw(self) -> None:
        self.picked.random_(0, len(self.tokens), generator=self.generator)
        self.at.zero_()

    def loss(self) -> Tensor:
        batch = self.tokens[self.picked[self.at].flatten()]
        with mixed(batch.device):
            logits = self.prior(batch)
        return F.cross_entropy(logits.flatten(0, 1).float(), batch.flatten())


@torch.no_grad()
def bits(prior: Prior, tokens: Tensor) -> float:
    """Per image, of the tokens [images, 64]."""
    total = 0.0
    for part in tokens.split(250):
        with mixed(tokens.device):
            logits = prior(part)
        total += F.cross_entropy(logits.flatten(0, 1).float(), part.flatten(), reduction="sum").item()
    return total / len(tokens) / math.log(2)


@torch.no_grad()
def draw(prior: Prior, network: Autoencoder, device: torch.device) -> Tensor:
    """Images from tokens that the prior draws one after the other, as bytes."""
    tokens = torch.zeros(DRAWN, TOKENS, dtype=torch.int64, device=device)
    for place in range(TOKENS):
        with mixed(device):
            logits = prior(tokens)[:, place].float()
        tokens[:, place] = torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
    with mixed(device):
        features = network.tokeniser.decode(tokens.view(DRAWN, 8, 8))
        images = network.decoder(features.to(memory_format=torch.channels_last)).float()
    return ((images + 0.5).clamp(0, 1) * 255).round().byte()


def second_stage(
    networks: Sequence[Autoencoder], runs: Sequence[Run], images: Tensor, test: Tensor, deadline: float
) -> list[tuple[Run, Tensor]]:
    """Of each network, bits per test and training image, with samples."""
    priors, trainings = list[Prior](), list[OfTokens]()
    for network, run in zip(networks, runs, strict=True):
        torch.manual_seed(run["seed"])
        seen = torch.cat([tokens_of(network, images), tokens_of(network, images.flip(-1))])
        priors.append(Prior(run["codes"]).to(images.device))
        trainings.append(OfTokens(priors[-1], seen, run["seed"]))
    steps, _ = train_together(trainings, PRIOR_STEPS, deadline, rise=RISE)
    found = []
    for network, prior, training in zip(networks, priors, trainings, strict=True):
        prior.eval()
        numbers = {"bits": bits(prior, tokens_of(network, test)), "train_bits": bits(prior, training.tokens[:5_000])}
        named = {f"history.{name}": value for name, value in numbers.items()}
        found.append((named | {"steps": steps}, draw(prior, network, images.device)))
    return found

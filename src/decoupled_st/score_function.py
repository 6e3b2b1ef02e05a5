"""Score-function gradients: unbiased, and without a gradient of the loss, unlike the straight-through estimators.

A straight-through estimator sends the loss's gradient with respect to the choice; these compare the losses of several
choices. They are exact on average, whatever the loss, and noisy where many choices share one loss.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = ["antithetic", "disarm", "rloo"]


def rloo(loss: Tensor, log_prob: Tensor) -> Tensor:
    r"""The loss of several samples, with the score function's gradient: REINFORCE with leave-one-out baselines.

        gradient of the mean = mean over s of [d loss_s + (loss_s - mean of the other losses) d log P(z_s)]

    Args:
        loss: [S, ...], one number for each of S >= 2 samples; parameters other than those of the choice get its usual
            gradient.
        log_prob: [S, ...], the log probability of each sample, such as `q.log_prob(z).sum(...)` over its choices.

    Returns:
        The loss, with that gradient.

    Example:
        >>> import torch, decoupled_st as dst
        >>> logits = torch.zeros(5, 3, requires_grad=True)
        >>> q = dst.distributions.OneHotCategorical(logits, dst.Decoupled(tau_f=1.0, tau_b=1.0))
        >>> z = q.sample((4,))                                                          # four samples of five choices
        >>> loss = z[..., 0].sum(-1)
        >>> rloo(loss, q.log_prob(z).sum(-1)).mean().backward()
        >>> logits.grad.shape
        torch.Size([5, 3])

    Reference:
        Kool, van Hoof, Welling: Buy 4 REINFORCE samples, get a baseline for free, 2019.
    """
    if loss.shape != log_prob.shape or loss.dim() == 0:
        raise ValueError(
            "loss and log_prob must have one shape, [samples, ...]: "
            f"loss has {tuple(loss.shape)}, log_prob {tuple(log_prob.shape)}"
        )
    samples = loss.shape[0]
    if samples < 2:
        raise ValueError("a leave-one-out baseline needs at least 2 samples, got 1")
    value = loss.detach()
    advantage = (value - value.mean(0)) * (samples / (samples - 1))
    return loss + advantage * (log_prob - log_prob.detach())


def antithetic(logits: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Two draws of binary neurons from one uniform number each: where one is unlikely, so is the other.

    Args:
        logits: log-odds [...], already divided by the temperature of the draw.

    Returns:
        [2, ...] of 0 and 1, each with P(1) = sigmoid(logits), without a gradient.
    """
    u = torch.rand(logits.shape, dtype=torch.float64, device=logits.device, generator=generator)
    p = torch.sigmoid(logits.detach())
    return torch.stack([u < p, 1 - u < p]).to(logits.dtype)


def disarm(loss: Tensor, z: Tensor, logits: Tensor, *, event_dims: int = 1) -> Tensor:
    r"""The loss of a pair of antithetic draws, with DisARM's gradient.

        dE/dl = (loss_1 - loss_2) (z_1 - z_2) sigmoid(|l|) / 2

    Args:
        loss: [2, ...], of the two draws.
        z: [2, ..., n], from `antithetic`.
        logits: [..., n], the log-odds that they were drawn from.
        event_dims: how many dimensions of the logits one loss has at the end.

    Returns:
        The loss, with that gradient, and its usual gradient to other parameters.

    Example:
        >>> import torch, decoupled_st as dst
        >>> logits = torch.zeros(6, 10, requires_grad=True)
        >>> z = antithetic(logits)
        >>> disarm((z - 0.4).square().sum(-1), z, logits).mean().backward()
        >>> logits.grad.shape
        torch.Size([6, 10])

    Reference:
        Dong, Mnih, Tucker: DisARM, an antithetic gradient estimator for binary latent variables, 2020.
    """
    if z.shape != (2, *logits.shape) or loss.shape != z.shape[: z.dim() - event_dims]:
        raise ValueError(
            f"expected logits [..., n], z [2, ..., n] and loss [2, ...] without the last {event_dims} dimensions, got "
            f"logits {tuple(logits.shape)}, z {tuple(z.shape)}, loss {tuple(loss.shape)}"
        )
    half = (loss[0] - loss[1]).detach() / 2
    weight = (z[0] - z[1]) * logsigmoid(logits.detach().abs()).exp()
    path = weight * (logits - logits.detach())
    if event_dims:
        path = path.flatten(-event_dims).sum(-1)
    return loss + half * path

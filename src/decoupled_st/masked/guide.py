"""Guidance: a few gradient steps on the logits of one step."""

from collections.abc import Callable

import torch
from torch import Tensor

from decoupled_st.masked.step import Choice, check_state, kl, of_tokens, reveal


def guide(
    logits: Tensor,
    state: Tensor,
    reward: Callable[[Tensor], Tensor],
    estimator: Choice,
    *,
    steps: int = 10,
    lr: float = 0.1,
    beta: float = 1.0,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Logits of one step, moved towards a reward and held near the model's by a divergence.

        maximise over q    E[reward(x)] - beta * KL(softmax(q) || softmax(logits)),    x the state with all tokens drawn

    by Adam from q = logits, one draw of every masked token in each step. Inside a rollout, without gradients:
    `rollout(lambda state: guide(model(state), state, reward, estimator), ...)`.

    Args:
        logits: [B, L, K], or [B, L, K + 1]; no gradient flows into them.
        state: [B, L, K + 1].
        reward: from one-hot tokens [B, L, K] to [B], differentiable.
        estimator: see `reveal`.
        steps, lr: of Adam.
        beta: weight of the divergence, at temperature 1.
        mask, generator: see `reveal`.

    Returns:
        q, [B, L, K], without a gradient.

    Reference:
        Murata et al.: G2D2, 2024; Rout et al.: anchored posterior sampling, 2025; ReDGE, 2026.
    """
    check_state(state)
    l = of_tokens(logits, state).detach()
    with torch.inference_mode(False), torch.enable_grad():
        # Copies, since what inference mode has made cannot be kept for backward.
        l, fixed = l.to(torch.promote_types(l.dtype, torch.float32), copy=True), state.detach().clone()
        q, masked = l.clone().requires_grad_(), fixed[..., -1] == 1
        optimiser = torch.optim.Adam([q], lr)
        for _ in range(steps):
            x = reveal(q, fixed, masked, estimator, mask=mask, generator=generator)
            rewards = reward(x[..., :-1])
            if not rewards.requires_grad:
                raise ValueError("guide needs a reward that is differentiable in the tokens: this one has no gradient")
            if rewards.shape != masked.shape[:-1]:
                raise ValueError(
                    f"reward must give one number per sample, shape {tuple(masked.shape[:-1])}, got "
                    f"{tuple(rewards.shape)}"
                )
            loss = beta * kl(q, l, masked, mask=mask).sum() - rewards.sum()
            (q.grad,) = torch.autograd.grad(loss, q)
            optimiser.step()
    if bool((q.isnan() & ~l.isnan()).any()):
        raise ValueError("the reward or its gradient was NaN: mend the reward, or leave such samples out")
    return q.detach().to(logits.dtype)

"""The expected reward of a rollout, with one of two gradients."""

import torch
from torch import Tensor

from decoupled_st.estimators.contract import whole_number
from decoupled_st.masked.rollout import Rollout
from decoupled_st.score_function import rloo


def expected_reward(rewards: Tensor, out: Rollout, *, by: str = "straight_through", group: int | None = None) -> Tensor:
    """The mean reward of a rollout; its gradient is the estimator's, or that of the score function.

        "straight_through"    d/dx0 of the rewards, through the tokens
        "rloo"                mean over b of  (r_b - mean of the others' rewards) * d/dtheta log P(path_b)

    The score function with leave-one-out baselines needs no gradient of the reward and is unbiased; where both can be
    had, the two gradients of one batch say what the straight-through one is worth (`diagnostics`).

    Args:
        rewards: [B], of `out.x0`, or of `out.ids` for "rloo".
        out: the rollout that was rewarded.
        by: "straight_through" or "rloo".
        group: for "rloo", how many samples that follow each other are compared: those that started from one state. All
            where none is given.

    Returns:
        A number to be maximised.
    """
    if rewards.shape != out.ids.shape[:1]:
        raise ValueError(
            f"rewards must have one number per sample, shape {tuple(out.ids.shape[:1])}, got {tuple(rewards.shape)}"
        )
    if not bool(rewards.isfinite().all()):
        bad = (~rewards.isfinite()).nonzero().flatten().tolist()
        raise ValueError(
            f"the reward is {rewards[bad[0]].item()} for sample {bad[0]}, and {len(bad)} of {len(rewards)} are not "
            "finite: its gradient would spoil that of all others. Mend the reward, or leave these samples out"
        )
    if by == "straight_through":
        if torch.is_grad_enabled() and not rewards.requires_grad:
            raise ValueError(
                "the rewards carry no gradient, so nothing can go straight through: either the reward is not "
                'differentiable in out.x0 (it takes the argmax, or out.ids), for which by="rloo" is made, or the '
                "rollout ran without gradients, or nothing was masked"
            )
        return rewards.mean()
    if by != "rloo":
        raise ValueError(f'by must be "straight_through" or "rloo", got {by!r}')
    size = len(rewards) if group is None else whole_number(group)
    if size is None or size < 2 or len(rewards) % size:
        raise ValueError(f"group must be at least 2 and divide the {len(rewards)} samples, got {size}")
    if out.log_prob is None or (torch.is_grad_enabled() and not out.log_prob.requires_grad):
        raise ValueError(
            'by="rloo" needs the gradient of out.log_prob: roll out with gradients, through="tokens", masked tokens, '
            "and an estimator whose value says at which temperature it draws, such as SoftmaxSTE(tau=1.0)"
        )
    r, log_p = (value.reshape(-1, size).T for value in (rewards.detach().to(out.log_prob.dtype), out.log_prob))
    return rloo(r, log_p).mean()

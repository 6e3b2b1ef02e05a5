"""A binary neuron's activation as a module: 0 or 1, or a sign."""

from collections.abc import Mapping

import torch
from torch import Tensor

from decoupled_st.estimators.clipped_ste import ClippedSTE
from decoupled_st.estimators.spec import Estimator
from decoupled_st.estimators.surrogate import Temperature
from decoupled_st.nn.chooser import Chooser, check_batch_dims, check_grad_scale, one_node
from decoupled_st.temperatures import Rule, Tempered


class Binary(Chooser):
    """Log-odds in, 0 or 1 out, by the given estimator.

    Args:
        estimator: such as `Decoupled(tau_f=0.1, tau_b=0.7)`; or a rule that sets the temperatures, such as
            `SelfTempered(steps=40_000)`. The attribute may be replaced during training, to anneal.
        deterministic: what `.eval()` does. False keeps the stochastic forward the network was trained with; True
            thresholds at 0.
        grad_scale: multiplies the gradient sent to the logits; tau_b takes its 1/tau_b out.
        batch_dims: for a rule, how many leading dimensions of the logits count samples; 0 where they are parameters.

    Example:
        >>> import torch, decoupled_st as dst
        >>> neuron = dst.nn.Binary(dst.Decoupled(tau_f=0.1, tau_b=0.7), deterministic=True).eval()
        >>> neuron(torch.tensor([-1.0, 2.0]))
        tensor([0., 1.])
    """

    def __init__(
        self,
        estimator: Estimator | Rule | Tempered,
        *,
        deterministic: bool = False,
        grad_scale: float | Tensor = 1.0,
        batch_dims: int = 1,
    ) -> None:
        super().__init__(estimator, deterministic)
        self.batch_dims = check_batch_dims(batch_dims)
        self.grad_scale = check_grad_scale(grad_scale)

    @one_node
    def forward(
        self,
        logits: Tensor,
        *,
        temperatures: Mapping[str, Temperature] | None = None,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """0 or 1 for each log-odds, in their dtype; the arguments are those of `Categorical.forward`."""
        options = {"generator": generator, "grad_scale": self.grad_scale}
        return self.choose("binary", logits, noise=noise, temperatures=temperatures, **options)

    def extra_repr(self) -> str:
        return f"{self.estimator}, deterministic={self.deterministic}, grad_scale={self.grad_scale}{self.batch_repr()}"


class Sign(Binary):
    """-1 or 1 by a binary estimator: `2 z - 1`. For binary weights and activations.

        forward     -1 where x <= 0, else 1                              by the default
        backward    dL/dx = dL/dz where |x| <= 1, 0 elsewhere            estimator, the clipped identity

    Args:
        estimator: any of binary neurons; the sign is then drawn, or its gradient another. Its surrogate goes from -1
            to 1: of `Decoupled(tau_f=0.0, tau_b=0.5)`, tanh(x).
        deterministic, grad_scale, batch_dims: as for `Binary`.

    Example:
        >>> import torch, decoupled_st as dst
        >>> x = torch.tensor([-3.0, -0.2, 0.4], requires_grad=True)
        >>> y = dst.nn.Sign()(x)
        >>> y.sum().backward()
        >>> y.tolist(), x.grad.tolist()
        ([-1.0, -1.0, 1.0], [0.0, 1.0, 1.0])
    """

    def __init__(
        self,
        estimator: Estimator | Rule | Tempered | None = None,
        *,
        deterministic: bool = False,
        grad_scale: float | Tensor = 1.0,
        batch_dims: int = 1,
    ) -> None:
        chosen = ClippedSTE() if estimator is None else estimator
        super().__init__(chosen, deterministic=deterministic, grad_scale=grad_scale, batch_dims=batch_dims)

    @one_node
    def forward(
        self,
        logits: Tensor,
        *,
        temperatures: Mapping[str, Temperature] | None = None,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """-1 or 1 for each number, in its dtype."""
        return 2 * super().forward(logits, temperatures=temperatures, generator=generator, noise=noise) - 1

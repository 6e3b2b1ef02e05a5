"""A categorical choice as a module."""

from collections.abc import Mapping

import torch
from torch import Tensor

from decoupled_st.estimators.spec import Estimator
from decoupled_st.estimators.surrogate import Temperature
from decoupled_st.nn.chooser import Chooser, check_batch_dims, check_dim, check_grad_scale, one_node
from decoupled_st.temperatures import Rule, Tempered


class Categorical(Chooser):
    """Logits in, one-hot out, by the given estimator.

    Args:
        estimator: such as `Decoupled(tau_f=2.0, tau_b=0.5)`; or a rule that sets the temperatures, such as
            `SelfTempered(steps=40_000)`. The attribute may be replaced during training, to anneal.
        dim: where the categories lie.
        deterministic: what `.eval()` does. False keeps the stochastic forward the network was trained with; True
            takes the argmax.
        grad_scale: multiplies the gradient sent to the logits; tau_b takes its 1/tau_b out.
        batch_dims: for a rule, how many leading dimensions of the logits count samples; 0 where they are parameters.

    Example:
        >>> import torch, decoupled_st as dst
        >>> choice = dst.nn.Categorical(dst.Decoupled(tau_f=2.0, tau_b=0.5))
        >>> choice(torch.zeros(4, 8)).sum(-1)
        tensor([1., 1., 1., 1.])
    """

    def __init__(
        self,
        estimator: Estimator | Rule | Tempered,
        *,
        dim: int = -1,
        deterministic: bool = False,
        grad_scale: float | Tensor = 1.0,
        batch_dims: int = 1,
    ) -> None:
        super().__init__(estimator, deterministic)
        self.batch_dims = check_batch_dims(batch_dims)
        self.dim = check_dim(dim)
        self.grad_scale = check_grad_scale(grad_scale)

    @one_node
    def forward(
        self,
        logits: Tensor,
        *,
        mask: Tensor | None = None,
        temperatures: Mapping[str, Temperature] | None = None,
        return_index: bool = False,
        generator: torch.Generator | None = None,
        noise: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """One-hot along `dim`, of the logits' shape and dtype.

        Args:
            mask, generator, noise: those of `categorical.decoupled`.
            temperatures: tensors or floats by the estimator's names, in place of its own: one per row, or learned, as
                `{"tau_b": self.log_tau.exp()}` of a parameter of yours.
            return_index: return the category chosen too, int64, without `dim`.
        """
        options = {"dim": self.dim, "mask": mask, "generator": generator, "grad_scale": self.grad_scale}
        z = self.choose("categorical", logits, noise=noise, temperatures=temperatures, **options)
        return (z, z.detach().argmax(self.dim)) if return_index else z

    def extra_repr(self) -> str:
        settings = f"dim={self.dim}, deterministic={self.deterministic}, grad_scale={self.grad_scale}"
        return f"{self.estimator}, {settings}{self.batch_repr()}"

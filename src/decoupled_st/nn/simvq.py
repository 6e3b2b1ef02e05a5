"""SimVQ: codes that never move, behind a linear layer that does."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decoupled_st import codebook
from decoupled_st.estimators.contract import check_count
from decoupled_st.nn.chooser import one_node
from decoupled_st.nn.quantiser import Quantised, Quantiser, check_codes, squared_error
from decoupled_st.nn.tokens import Tokens

_LEAST = 1e-6


class SimVQ(Quantiser):
    """Choose the nearest of codes e_k = W c_k: the c_k are drawn once, W learns, and one choice moves all codes.

        q = e_k, its gradient to x by the rotation trick;   loss = |sg(x) - q|^2 + commitment |x - sg(q)|^2

    Args:
        codes: how many codes.
        dim: how many features x has.
        features: of a code, between two linear layers; None: `dim`, and no layers.
        normalise: give each feature mean 0 and variance 1, as in `Codebook`.
        commitment: weight of the part of the loss that moves x.
        axis: where x's features lie; 1 for images [B, C, H, W].

    Example:
        >>> import torch, decoupled_st as dst
        >>> quantise = dst.nn.SimVQ(512, 64, features=8)
        >>> q, index, loss = quantise(torch.randn(10, 64))
        >>> torch.allclose(q, quantise.decode(index), atol=1e-6)
        True

    Reference:
        Zhu et al.: Addressing representation collapse in vector quantized models with one linear layer, 2024. The
        gradient: Fifty et al., Restructuring vector quantization with the rotation trick, 2024.
    """

    frozen: Tensor

    def __init__(
        self,
        codes: int,
        dim: int,
        *,
        features: int | None = None,
        normalise: bool = False,
        commitment: float = 0.25,
        axis: int = -1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        codes, dim = check_codes(codes), check_count("dim", dim, 1)
        width = dim if features is None else check_count("features", features, 1)
        tokens = Tokens(dim, width, project=features is not None, normalise=normalise, device=device, dtype=dtype)
        super().__init__(codes, dim, tokens, axis=axis)
        self.commitment = commitment
        self.transform = nn.Linear(width, width, bias=False, device=device, dtype=dtype)
        self.register_buffer("frozen", torch.empty(codes, width, device=device, dtype=dtype))
        self.register_buffer("usage", torch.empty(codes, dtype=torch.int64, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """New weights, and new codes from N(0, 1 / features); nothing used yet."""
        self.tokens.reset_parameters()
        self.transform.reset_parameters()
        nn.init.normal_(self.frozen, std=self.frozen.shape[-1] ** -0.5)
        self.usage.zero_()

    @property
    def weight(self) -> Tensor:
        """The codes as they are now, [codes, features]."""
        return self.transform(self.frozen)

    @one_node
    def forward(self, x: Tensor, *, token_mask: Tensor | None = None) -> Quantised:
        """q, index and the loss; `token_mask` as in `Codebook`."""
        rows = self._rows(x)
        valid = self._valid(rows, token_mask)
        z = self._inward(rows, valid, measure=self.training)
        index = self._nearest(z)
        chosen = self.transform(self.frozen[index.clamp(min=0)])
        loss = squared_error(z.detach(), chosen, valid) + self.commitment * squared_error(z, chosen.detach(), valid)
        index = index.where(valid, -1)
        if self.training:
            self._add_usage(self._count(index))
        return Quantised(self._outward(rotated(z, chosen), valid, token_mask), index, loss)

    def decode(self, index: Tensor) -> Tensor:
        """The vectors of an index, in the shape that x had; gradients go to W."""
        self._check_index(index)
        return self.tokens.back(self.transform(self.frozen[index.long()])).movedim(-1, self.axis)

    @torch.no_grad()
    def _nearest(self, z: Tensor) -> Tensor:
        return codebook.identity_ste(z, self.weight.to(z.dtype))[1]

    def extra_repr(self) -> str:
        return f"{self.codes}, {self.dim}, features={self.frozen.shape[-1]}"


def rotated(x: Tensor, chosen: Tensor) -> Tensor:
    """The value of `chosen` as x turned and stretched onto it, with turn and stretch held constant: the gradient of x
    is turned and stretched back. An x of length 0 has no direction: its gradient is copied."""
    with torch.no_grad():
        lengths, of_chosen = (t.norm(dim=-1, keepdim=True) for t in (x, chosen))
        u, v = x / lengths.clamp(min=_LEAST), chosen / of_chosen.clamp(min=_LEAST)
        w = F.normalize(u + v, dim=-1, eps=_LEAST)
        stretch = of_chosen / lengths.clamp(min=_LEAST)
    along = (x * w).sum(-1, keepdim=True) * w
    turned = (x - 2 * along + 2 * (x * u).sum(-1, keepdim=True) * v) * stretch
    return torch.where(lengths > _LEAST, turned, chosen.detach() + (x - x.detach()))

"""A network that takes token ids, as a model that takes states."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Embedded:
    """A model made of an embedding and what follows it, such as a masked language model of transformers.

    A state that carries a gradient is multiplied with the embedding's weights; ids are looked up. `rollout` with
    `through="tokens"` passes ids, and no one-hot of the vocabulary is made.

    Args:
        embedding: of the V tokens of the vocabulary; K is V, and ids keep their numbers.
        body: from embeddings [..., L, width] to logits [..., L, V].
        mask_id: the mask's row of the embedding.

    Example:
        >>> import torch, decoupled_st as dst
        >>> table, head = torch.nn.Embedding(6, 4), torch.nn.Linear(4, 6)
        >>> model = dst.masked.Embedded(table, head, mask_id=5)
        >>> state = dst.masked.from_ids(torch.tensor([[1, 5]]), 6, mask_id=5)
        >>> torch.allclose(model(state), head(table(torch.tensor([[1, 5]]))))
        True
        >>> model.allowed.tolist()
        [True, True, True, True, True, False]
    """

    embedding: nn.Embedding
    body: Callable[[Tensor], Tensor]
    mask_id: int

    def __post_init__(self) -> None:
        if not 0 <= self.mask_id < self.embedding.num_embeddings:
            raise ValueError(
                f"mask_id must be a row of the embedding, 0 to {self.embedding.num_embeddings - 1}, got {self.mask_id}"
            )

    @property
    def allowed(self) -> Tensor:
        """bool [V]: every token but the mask, for `mask=` of `rollout` and `reveal`."""
        return torch.arange(self.embedding.num_embeddings, device=self.embedding.weight.device) != self.mask_id

    def __call__(self, state: Tensor) -> Tensor:
        """Logits [..., L, V] of a state [..., L, V + 1], or of ids [..., L] with V for the mask."""
        weight = self.embedding.weight
        if not state.is_floating_point():
            return self.body(self.embedding(state.masked_fill(state == len(weight), self.mask_id)))
        table = torch.cat((weight, weight[self.mask_id, None]))
        return self.body(state.to(weight.dtype) @ table)

"""A masked language model of transformers, made from a config: rollouts with a gradient, without a line of its own."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import decoupled_st as dst

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
VOCABULARY, MASK, WORD = 60, 3, 17


@pytest.fixture
def network(client: Any) -> nn.Module:
    package = client("transformers")
    torch.manual_seed(0)
    config = package.ModernBertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
    )  # fmt: skip
    return package.ModernBertForMaskedLM(config).eval()


@pytest.fixture
def model(network: Any) -> dst.masked.Embedded:
    return dst.masked.Embedded(network.get_input_embeddings(), lambda x: network(inputs_embeds=x).logits, MASK)


def prompted(batch: int = 32) -> Tensor:
    """Ids of a text with gaps, as a tokeniser gives them."""
    ids = torch.full((batch, 12), MASK)
    ids[:, 0], ids[:, -1], ids[:, 5] = 1, 2, 40
    return ids


def test_a_state_gives_the_logits_of_its_ids(network: Any, model: dst.masked.Embedded) -> None:
    ids = prompted()
    state = dst.masked.from_ids(ids, VOCABULARY, mask_id=MASK)
    want = network(input_ids=ids).logits
    torch.testing.assert_close(model(state), want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(state.argmax(-1)), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("through", ["tokens", "all"])
def test_it_learns_a_reward_and_keeps_the_prompt(network: Any, model: dst.masked.Embedded, through: str) -> None:
    ids, seen = prompted(), []
    state = dst.masked.from_ids(ids, VOCABULARY, mask_id=MASK)
    optimiser = torch.optim.Adam(network.parameters(), 0.03)
    for _ in range(25):
        out = dst.masked.rollout(
            model, state, 3, dst.Decoupled(tau_f=1.0, tau_b=1.5), mask=model.allowed, through=through
        )
        assert torch.equal(out.ids[ids != MASK], ids[ids != MASK])
        assert not out.ids.eq(MASK).any()
        value = dst.masked.expected_reward(out.x0[..., WORD].mean(-1), out)
        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
        seen.append(value.item())
    assert seen[-1] > 0.5 > 0.1 > seen[0]

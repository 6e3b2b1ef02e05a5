"""Masked models of transformers and diffusers, made from configs: rollouts with a gradient."""

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
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    )
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


SIDE, CODES, HIDDEN_MASK = 4, 20, 23


@pytest.fixture
def image_model(client: Any) -> tuple[nn.Module, dst.masked.Embedded]:
    """aMUSEd's network: ids [B, rows, columns] to logits [B, codes, rows, columns], its embedding inside."""
    package = client("diffusers")
    torch.manual_seed(0)
    network = package.UVit2DModel(
        hidden_size=32,
        cond_embed_dim=8,
        micro_cond_encode_dim=4,
        micro_cond_embed_dim=20,
        encoder_hidden_size=32,
        vocab_size=24,
        codebook_size=CODES,
        in_channels=32,
        block_out_channels=32,
        num_res_blocks=1,
        block_num_heads=2,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=48,
        sample_size=SIDE,
    ).eval()
    table = network.embed.embeddings

    def body(x: Tensor) -> Tensor:
        hook = table.register_forward_hook(lambda *_: x.unflatten(1, (SIDE, SIDE)))
        logits = of_ids(network, torch.zeros(len(x), SIDE, SIDE, dtype=torch.int64))
        hook.remove()
        return nn.functional.pad(logits, (0, table.num_embeddings - CODES), value=-torch.inf)

    return network, dst.masked.Embedded(table, body, HIDDEN_MASK)


def of_ids(network: nn.Module, ids: Tensor) -> Tensor:
    """Logits [B, places, codes], without a prompt."""
    b = len(ids)
    return network(ids, torch.zeros(b, 2, 32), torch.zeros(b, 8), torch.ones(b, 5)).flatten(2).transpose(1, 2)


def test_an_image_model_by_its_embeddings_gives_the_logits_of_its_ids(
    image_model: tuple[nn.Module, dst.masked.Embedded],
) -> None:
    network, model = image_model
    ids = torch.randint(CODES, (3, SIDE, SIDE), generator=torch.Generator().manual_seed(0))
    ids[:, 1] = HIDDEN_MASK
    state = dst.masked.from_ids(ids.flatten(1), 24, mask_id=HIDDEN_MASK)
    torch.testing.assert_close(model(state)[..., :CODES], of_ids(network, ids), rtol=1e-4, atol=1e-5)


def test_where_a_sampler_of_diffusers_reveals_tokens_have_a_gradient(
    client: Any, image_model: tuple[nn.Module, dst.masked.Embedded]
) -> None:
    """Its schedule and its confidences choose the places; `reveal` draws there. Steps count down, ids are int64."""
    network, model = image_model
    sampler = client("diffusers").AmusedScheduler(mask_token_id=HIDDEN_MASK, masking_schedule="linear")
    optimiser, seen = torch.optim.Adam(network.parameters(), 0.01), []
    for _ in range(25):
        sampler.set_timesteps(4, temperature=0)
        ids = torch.full((16, SIDE**2), HIDDEN_MASK)
        state = dst.masked.from_ids(ids, 24, mask_id=HIDDEN_MASK)
        for t in sampler.timesteps:
            logits = model(state)
            after = sampler.step(logits[..., :CODES].detach(), t, ids).prev_sample
            where = ids.eq(HIDDEN_MASK) & after.ne(HIDDEN_MASK)
            assert where.sum(-1).amin() >= (4 if t == 3 else 0)  # more where confidences are equal
            state = dst.masked.reveal(logits, state, where, dst.Decoupled(tau_f=1.0, tau_b=1.5), mask=model.allowed)
            ids = state.detach().argmax(-1).masked_fill(state[..., -1] == 1, HIDDEN_MASK)
        assert not ids.ge(CODES).any()
        value = state[..., 7].mean()
        optimiser.zero_grad()
        (-value).backward()
        optimiser.step()
        seen.append(value.item())
    assert seen[-1] > 0.5 > 0.1 > seen[0]

"""The codebook autoencoder: ordinary networks with any quantiser, recorded like any other task's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dst_lab
import numpy as np
import pytest
import torch
from dst_lab.engines.engine import Job
from dst_lab.engines.local import LocalEngine
from dst_lab.estimators import Choice
from dst_lab.fleet.capacity import runs_that_fit
from dst_lab.fleet.loop import Fleet, TrainingStoppedError
from dst_lab.fleet.saved.checkpoint import Checkpoint
from dst_lab.store import Store
from dst_lab.tasks.codebook_vae import CodebookVAE
from dst_lab.tasks.quantisers import (
    ALWAYS,
    METRICS,
    QUANTISERS,
    READ_BY,
    STARTS,
    CodebookVAEConfig,
    copied,
    levels_of,
    rotated,
)
from dst_lab.train import train

CPU = torch.device("cpu")
DECOUPLED = Choice.make("decoupled", tau_f=0.0, tau_b=0.1)
IDENTITY = Choice.make("identity_ste")


def small(estimator: Choice = DECOUPLED, **fields: Any) -> CodebookVAEConfig:
    sizes: dict[str, Any] = {"codes": 16, "width": 8, "features": 4, "lr": 0.01, "steps": 12, "evaluations": 2}
    return CodebookVAEConfig(estimator=estimator, **{**sizes, **fields})


def trained(path: Path, *configs: CodebookVAEConfig, networks: bool = False) -> list[dict[str, np.ndarray]]:
    with Store.open(path, write=True) as store:
        train(configs, LocalEngine(CPU), store, Job(networks=networks))
        assert [run.status for run in store.runs()] == ["done"] * len(configs)
        return [{name: curve.values for name, curve in store.history(run.id).items()} for run in store.runs()]


ARMS = {
    "argmax": small(entropy=0.1),
    "self-set": small(Choice.make("decoupled", tau_f="self", tau_b="self"), metric="dot"),
    "gumbel": small(Choice.make("gumbel_ste", tau=1.0), metric="l2", precision="bfloat16"),
    **{name: small(IDENTITY, quantiser=name) for name in ("ema", "rotation", "simvq", "fsq")},
}


@pytest.mark.parametrize("name", ARMS)
def test_it_learns_and_is_recorded(name: str, tmp_path: Path) -> None:
    (curves,) = trained(tmp_path / "runs.sqlite", ARMS[name])
    assert curves["validation_loss"][-1] < curves["validation_loss"][0]
    assert 1 / 16 <= curves["usage"][-1] <= 1
    assert 1 <= curves["perplexity"][-1] <= 16
    assert curves["test_psnr_argmax"][-1] == pytest.approx(-10 * np.log10(curves["test_mse_argmax"][-1]), rel=1e-5)
    assert ("gain" in curves) == (ARMS[name].quantiser == "codebook")


def test_every_run_is_trained_alone(tmp_path: Path) -> None:
    configs = [small(Choice.make("decoupled", tau_f=0.1, tau_b=0.1), seed=seed) for seed in (0, 1)]
    assert runs_that_fit(CodebookVAE(configs[0], None, CPU), CPU) == 1
    both, alone = trained(tmp_path / "both.sqlite", *configs), trained(tmp_path / "alone.sqlite", configs[1])
    assert np.array_equal(both[1]["validation_loss"], alone[0]["validation_loss"])
    assert not np.array_equal(both[0]["validation_loss"], alone[0]["validation_loss"])


def test_moving_means_follow_their_tokens_and_are_in_the_checkpoint(tmp_path: Path) -> None:
    config = small(IDENTITY, quantiser="ema", decay=0.5)
    whole = Fleet(CodebookVAE(config, None, CPU), [config])
    before = whole.buffers["quantiser.codes"].clone()
    records = whole.train()
    assert not torch.equal(whole.buffers["quantiser.codes"], before)
    # Each step adds half of its tokens to half of what was counted before.
    tokens = config.batch * 4
    expected = 16 * 0.5**config.steps + tokens * (1 - 0.5**config.steps)
    assert whole.buffers["quantiser.counts"].sum().item() == pytest.approx(expected, rel=1e-5)

    checkpoint = Checkpoint(tmp_path / "part.npz")
    part = Fleet(CodebookVAE(config, None, CPU), [config], checkpoint)
    with pytest.raises(TrainingStoppedError):
        part.train(stop=lambda: part.step == 7)
    again = Fleet(CodebookVAE(config, None, CPU), [config], checkpoint)
    assert again.step == 7
    resumed = again.train()
    assert torch.equal(again.buffers["quantiser.codes"], whole.buffers["quantiser.codes"])
    assert np.array_equal(resumed[0].history["validation_loss"].values, records[0].history["validation_loss"].values)


def test_evaluating_moves_no_means() -> None:
    config = small(IDENTITY, quantiser="ema")
    fleet = Fleet(CodebookVAE(config, None, CPU), [config])
    before = fleet.buffers["quantiser.codes"].clone()
    fleet.measure()
    assert torch.equal(fleet.buffers["quantiser.codes"], before)


@pytest.mark.parametrize("name", ["argmax", "ema", "fsq"])
def test_a_kept_network_reconstructs(name: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    (curves,) = trained(path, ARMS[name], networks=True)
    with Store.open(path) as store:
        (kept,) = store.runs()
        artefacts = store.artefacts(kept.id)
    assert dst_lab.evaluate(path, kept.id)["validation_loss"] == curves["validation_loss"][-1]
    network, images = dst_lab.load(path, kept.id), torch.from_numpy(artefacts["inputs"]).float() / 255 - 0.5
    output = ((network(images) + 0.5) * 255).round().clamp(0, 255)
    assert (output - torch.from_numpy(artefacts["reconstructions"]).float()).abs().max() <= 1


def test_the_rotation_turns_the_token_onto_its_code_and_keeps_angles() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens, codes = (torch.randn(5, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    tokens.requires_grad_()
    q = rotated(tokens, codes)
    torch.testing.assert_close(q, codes)
    g = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(q, tokens, g)
    # The angle between gradient and token is that between incoming gradient and code.
    cosines = [torch.cosine_similarity(a, b, -1) for a, b in ((gradient, tokens.detach()), (g, codes))]
    torch.testing.assert_close(*cosines)
    (straight,) = torch.autograd.grad(copied(tokens, codes), tokens, g)
    assert torch.equal(straight, g)


@pytest.mark.parametrize(
    ("codes", "levels"), [(4, [4]), (8, [8]), (128, [8, 4, 4]), (512, [8] * 3), (16_384, [8] * 4 + [4])]
)
def test_the_levels_of_fsq_multiply_to_the_codes(codes: int, levels: list[int]) -> None:
    assert levels_of(codes) == levels
    assert int(np.prod(levels)) == codes


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"start": "zeros"}, "start must be one of rows, normal, unit, got 'zeros'"),
        ({"quantiser": "vq"}, "quantiser must be one of codebook, ema, rotation, simvq, fsq, got 'vq'"),
        ({"quantiser": "ema"}, "take the estimator identity-ste with it, got decoupled"),
        ({"quantiser": "fsq", "estimator": IDENTITY, "codes": 48}, "fsq takes a power of 2 from 4 on for codes"),
        ({"commitment": -1.0}, "commitment is a weight and must be at least 0, got -1.0"),
        ({"decay": 1.0}, "decay from 0 to below 1"),
    ],
)
def test_what_a_config_refuses(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        small(**fields)


VALUES: dict[str, tuple[Any, ...]] = {
    "metric": METRICS, "start": tuple(STARTS), "commitment": (0.25, 0.7), "codebook": (1.0, 0.0, 4.0),
    "entropy": (0.1, 0.5), "entropy_tau": (0.1, 1.0), "decay": (0.99, 0.5),
}  # fmt: skip


@pytest.mark.parametrize(("quantiser", "option"), [(one, name) for name, of in READ_BY.items() for one in of])
def test_an_option_that_a_quantiser_reads_changes_what_it_trains(quantiser: str, option: str) -> None:
    own = {"estimator": DECOUPLED, "entropy": 0.1} if quantiser == "codebook" else {"estimator": IDENTITY}
    losses = set()
    for value in VALUES[option]:
        config = small(**{"quantiser": quantiser, "steps": 3, "evaluations": 1, **own, option: value})
        (record,) = Fleet(CodebookVAE(config, None, CPU), [config]).train()
        losses.add(float(record.history["validation_loss"].values[-1]))
    assert len(losses) == len(VALUES[option])


@pytest.mark.parametrize("option", READ_BY)
@pytest.mark.parametrize("quantiser", QUANTISERS)
def test_an_option_that_a_quantiser_does_not_read_is_refused(quantiser: str, option: str) -> None:
    choice = DECOUPLED if quantiser == "codebook" else IDENTITY
    default = getattr(small(choice, quantiser=quantiser), option)
    for value in {*VALUES[option]} - {default}:
        if quantiser in READ_BY[option] or value == ALWAYS.get((quantiser, option)):
            small(choice, quantiser=quantiser, **{option: value})
            continue
        with pytest.raises(ValueError, match=f"quantiser={quantiser} does not read {option}.*got {option}={value}"):
            small(choice, quantiser=quantiser, **{option: value})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--estimator", "soft"), "soft has no form for codebooks: expected one of decoupled, gumbel_ste"),
        (("--estimator", "reinmax"), "reinmax has no form for codebooks"),
        (
            ("--tau-b", "confidence"),
            "a codebook has one temperature for all rows, and the rule confidence sets one for",
        ),
        (("--temperatures", "confidence"), "the rule confidence sets one for each"),
    ],
    ids=str,
)
def test_what_a_codebook_has_no_form_for_is_refused_and_no_run_is_recorded(words, sentence, cli) -> None:
    ended = cli("run", "codebook-vae", "--seeds", 1, "--steps", 2, *words)
    assert ended.code == 2
    assert sentence in ended.err
    assert not list(Path().iterdir())
    config = small()
    trained(Path("dst.sqlite"), config)
    assert cli("run", "codebook-vae", "--seeds", 1, "--steps", 2, *words).code == 2
    with Store.open("dst.sqlite") as store:
        assert len(store.runs()) == 1


@pytest.mark.parametrize("name", ARMS)
def test_a_run_that_diverges_is_recorded_as_such(name: str, tmp_path: Path) -> None:
    """The library refuses codes that are not finite; that is no failure of the run's code, to be tried again."""
    with Store.open(tmp_path / "runs.sqlite", write=True) as store:
        train([replace(ARMS[name], lr=1e30)], LocalEngine(CPU), store, Job())
        (run,) = store.runs()
    assert (run.status, run.detail.get("reason")) == ("diverged", "the loss is not finite")


def test_the_parts_of_an_evaluation_have_draws_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws that are almost uniform: how many codes they use does not go by the size of the parts."""
    config, found = replace(ARMS["gumbel"], codes=4096, precision="float32", metric="cosine"), []
    for size in (32, 10_000):
        monkeypatch.setattr(CodebookVAE._measure, "__defaults__", (None, size))
        found.append(Fleet(CodebookVAE(config, None, CPU), [config]).measure())
    parts, whole = found
    assert parts["usage"].item() == pytest.approx(whole["usage"].item(), rel=0.1)
    assert parts["perplexity"].item() == pytest.approx(whole["perplexity"].item(), rel=0.1)
    assert parts["usage_argmax"] == whole["usage_argmax"]


@pytest.mark.parametrize("name", ["argmax", "simvq"])
def test_codes_that_are_not_finite_make_a_loss_that_is_not(name: str) -> None:
    """Also where no loss before was: a gradient may be infinite, or no number, where its loss is finite."""
    config = ARMS[name]
    fleet = Fleet(CodebookVAE(config, None, CPU), [config])
    moved = "quantiser.codes" if name == "argmax" else "quantiser.project.weight"
    fleet.parameters[moved][0, 0, 0] = torch.nan
    (record,) = fleet.train()
    assert (record.status, record.detail["step"]) == ("diverged", 1)

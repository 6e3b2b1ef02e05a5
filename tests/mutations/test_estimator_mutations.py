"""Plausible bugs of the estimators, applied to a copy of the library one at a time: the tests named must go red.

Each is a mistake seen in public straight-through code, or one slip away from ours. The tests are green on the unchanged
copy, so that red means the bug was seen and not that the copy was broken.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
CONTRACT, ESTIMATORS = "tests/contract/", "tests/decoupled_st/estimators/"
GRADIENTS, SAMPLES = CONTRACT + "test_gradients.py", CONTRACT + "test_samples.py"
SEEN_BY = {
    "score_function.py": ("tests/decoupled_st/test_score_function.py", "tests/decoupled_st/diagnostics/test_bias.py"),
    "estimators/top_k.py": (ESTIMATORS + "test_top_k.py",),
    "estimators/clipped_ste.py": (GRADIENTS, "-k", "clipped and closed"),
    "distributions.py": ("tests/decoupled_st/test_distributions.py",),
    "estimators/contract.py": (
        GRADIENTS, SAMPLES, CONTRACT + "test_values.py", CONTRACT + "test_tails.py", CONTRACT + "test_masks.py",
        "-k", "decoupled or half or moves",
    ),
    "estimators/decoupled.py": (GRADIENTS, SAMPLES, "-k", "decoupled and (closed or frequencies) or moves"),
    "estimators/gapped_ste.py": (GRADIENTS, "-k", "gapped and closed"),
    "estimators/gumbel_rao.py": (ESTIMATORS + "test_gumbel_family.py",),
    "estimators/gumbel_ste.py": (GRADIENTS, SAMPLES, "-k", "gumbel_ste and (closed or frequencies)"),
    "estimators/noise.py": (GRADIENTS, SAMPLES, "-k", "no_gradient or frequencies"),
    "estimators/reinmax.py": (ESTIMATORS + "test_reinmax.py",),
    "estimators/spec.py": (ESTIMATORS + "test_spec.py", "tests/decoupled_st/nn/logic/test_logic.py"),
    "estimators/surrogate.py": (
        CONTRACT + "test_tails.py", CONTRACT + "test_masks.py", GRADIENTS, CONTRACT + "test_values.py",
        ESTIMATORS + "test_identities.py", ESTIMATORS + "test_operations.py", ESTIMATORS + "test_reinmax.py",
        "-k", "not parallel and not memory",
    ),
    "nn/logic/gates.py": ("tests/decoupled_st/nn/logic/test_logic.py",),
}  # fmt: skip
DRAWN = """
    if _can_be_fused(like):
        from decoupled_st.kernels.noise import noise_like

        return noise_like(like, generator, gumbel=True)"""
"""What follows on noise that is given, in `gumbel` alone."""
PLANTED = [
    Mutation(
        "noise before the division, so that tau_f drops out", "estimators/contract.py",
        "return l if tau == 0 else torch.add(l, self.draw_noise(), alpha=tau)",
        "return l if tau == 0 else (l + self.draw_noise()) / tau",
    ),
    Mutation(
        "tau_b unused: the surrogate at tau_f", "estimators/decoupled.py",
        "return call.result(hard, tau_b)",
        "return call.result(hard, tau_f or 1.0)",
    ),
    Mutation(
        "forward inexact", "estimators/surrogate.py",
        "return (hard + path).to(dtype)",
        "return ((hard + gain * soft) - gain * soft.detach()).to(dtype)",
    ),
    Mutation(
        "missing 1/tau_b: the softmax is tempered, its gradient is not", "estimators/surrogate.py",
        "return scores / tau, grad_scale",
        "return scores.detach() / tau + (scores - scores.detach()), grad_scale",
    ),
    Mutation(
        "gradient through the sample: the surrogate at the perturbed logits", "estimators/decoupled.py",
        "    hard, _ = call.draw(tau_f)\n    return call.result(hard, tau_b)",
        '    scores = call.scores(tau_f)\n    hard, at = call.choose(scores)\n'
        '    return call.result(hard, tau_b, call.l + scores - call.l.detach(), at)',
    ),
    Mutation(
        "ST-GS at the clean logits", "estimators/gumbel_ste.py",
        "return call.result(hard, tau, scores, largest)",
        "return call.result(hard, tau)",
    ),
    Mutation(
        "ST-GS samples at tau", "estimators/gumbel_ste.py",
        "call.choose(scores.detach())",
        "call.choose((scores + call.l / tau - call.l).detach())",
    ),
    Mutation(
        "gradient into hard", "estimators/surrogate.py",
        "return emit(hard.detach(), soft",
        "return emit(hard, soft",
    ),
    Mutation(
        "grad_scale not detached", "estimators/contract.py",
        "return to_compute(grad_scale.detach(), logits)",
        "return to_compute(grad_scale, logits)",
    ),
    Mutation(
        "noise not detached", "estimators/noise.py",
        f"return noise.detach().to(like.dtype){DRAWN}", f"return noise.to(like.dtype){DRAWN}",
    ),
    Mutation(
        "a value drops grad_scale", "estimators/spec.py",
        '"mask": mask, "generator": generator, "noise": noise, "grad_scale": grad_scale}',
        '"mask": mask, "generator": generator, "noise": noise}',
    ),
    Mutation(
        "leave-one-out baseline without its factor", "score_function.py",
        "* (samples / (samples - 1))", "* 1.0",
    ),
    Mutation(
        "a NaN row comes out as a plausible sample", "estimators/surrogate.py",
        "masked_fill_(top == -math.inf, 0.0).masked_fill_(~(top < math.inf), math.nan)",
        "masked_fill_(top == -math.inf, 0.0)",
    ),
    Mutation(
        "an empty row chooses its first category", "estimators/surrogate.py",
        "hard.masked_fill_(top == -math.inf, 0.0).masked_fill_(", "hard.masked_fill_(",
    ),
    Mutation(
        "the gradient of a category that is all but certain lost in rounding", "estimators/surrogate.py",
        "return p.scatter_add(dim, largest, -p.sum(dim, keepdim=True))", "return p",
    ),
    Mutation(
        "the gradient of a neuron that is all but certainly on lost in rounding", "estimators/surrogate.py",
        "return torch.sigmoid(tempered * flip) * flip", "return torch.sigmoid(tempered)",
    ),
    Mutation(
        "the same in the node of our own", "estimators/surrogate.py",
        "h = g - g.gather(dim, saved[len(weights)])",
        "h = g",
    ),
    Mutation(
        "a second derivative that forgets the probabilities", "estimators/surrogate.py",
        "if len(ps) > 1:",
        "if len(ps) > 0:",
    ),
    Mutation(
        "ReinMax with the draw's distribution in its midpoint", "estimators/reinmax.py",
        "m = (hard + p_b) / 2", "m = (hard + p_f) / 2",
    ),
    Mutation(
        "ReinMax without its second term", "estimators/surrogate.py",
        "result = weights[0] * result + weights[1] * jacobian(saved[1], h, dim)",
        "result = weights[0] * result",
    ),
    Mutation(
        "ReinMax of a neuron as if the likelier side were always drawn", "estimators/reinmax.py",
        "likelier = hard == (l > 0)",
        "likelier = hard >= 0",
    ),
    Mutation(
        "Gumbel-Rao with noise that knows nothing of the draw", "estimators/gumbel_rao.py",
        "return -torch.logaddexp(-noise - l, -top).scatter(dim, index, -top)", "return noise + l",
    ),
    Mutation(
        "Gumbel-Rao of a neuron likewise", "estimators/gumbel_rao.py",
        "more = side * (softplus(-more) + softplus(side * l.detach() - softplus(more)))",
        "more = l.detach() + more",
    ),
    Mutation(
        "a gap for the drawn category too", "estimators/gapped_ste.py",
        "return l.clamp(max=-lead).scatter(dim, drawn, torch.zeros_like(drawn, dtype=l.dtype))",
        "return l.clamp(max=-lead)",
    ),
    Mutation(
        "a distribution at temperature 1, whatever is drawn", "distributions.py",
        "    return tau\n\n\ndef _one_of", "    return 1.0\n\n\ndef _one_of",
    ),
    Mutation(
        "log_prob sends the sample no gradient", "distributions.py",
        "        return _weighted(value, self.logits).sum(-1)", "        return super().log_prob(value)",
    ),
    Mutation(
        "probabilities floored over forbidden categories too", "distributions.py",
        "    return mixed.masked_fill(forbidden, -torch.inf)", "    return mixed",
    ),
    Mutation(
        "divergences that torch.compile looks up first", "distributions.py",
        "            torch_distributions.kl_divergence(first, second)", "            pass",
    ),
    Mutation(
        "a temperature of 0 in a tensor divides", "distributions.py",
        "torch.where(tau == 0, self._certain(l), l / tau.masked_fill(tau == 0, 1.0))", "l / tau",
    ),
    Mutation(
        "any name is registered over another", "estimators/spec.py",
        "if name in _registry and not is_again(cls, _registry[name]):", "if False:",
    ),
    Mutation(
        "rows are taken for finite without looking", "estimators/surrogate.py",
        "can_look(top) and math.isfinite(top.sum())",
        "can_look(top)",
    ),
    Mutation(
        "centred rows are taken for finite without looking", "estimators/surrogate.py",
        "if torch.equal(less, less):", "if True:",
    ),
    Mutation(
        "half precision inside", "estimators/contract.py",
        "in (torch.float32, torch.float64) else torch.float32",
        "in _DTYPES else torch.float32",
    ),
    Mutation(
        "grad_scale reaches a learned temperature", "estimators/surrogate.py",
        "finite = fixed + (finite - fixed) * grad_scale",
        "finite = fixed + (finite - fixed) * grad_scale\n    tau = tau * grad_scale",
    ),
    Mutation(
        "Gumbel noise with the wrong sign", "estimators/noise.py", ".log_().neg_()", ".log_()",
    ),
    Mutation(
        "gates numbered least significant bit first", "nn/logic/gates.py", "(-4, -3, -2, -1)]", "(-1, -2, -3, -4)]"
    ),
    Mutation(
        "a batch's gate drawn from the other input's gradient", "nn/logic/gates.py",
        "u, v = _inputs(x, wiring, 0), _inputs(x, wiring, 1)", "u, v = _inputs(x, wiring, 1), _inputs(x, wiring, 0)",
    ),
    Mutation(
        "what is chosen early may be chosen late: no centre", "estimators/top_k.py",
        "path = c * (moved - (share * moved).sum(dim, keepdim=True))", "path = c * moved",
    ),
    Mutation(
        "the draw of k ignores tau_f", "estimators/top_k.py", "call.scores(tau_f)", "call.scores(1.0)",
    ),
    Mutation(
        "the window of a bit is not halved", "estimators/clipped_ste.py",
        "path = moved.masked_fill(fixed.abs() > 1, 0.0) / 2", "path = moved.masked_fill(fixed.abs() > 1, 0.0)",
    ),
    Mutation(
        "sparsemax's mean is over all categories", "estimators/clipped_ste.py",
        "path = (moved - mean).masked_fill(outside, 0.0)",
        "path = moved.masked_fill(outside, 0.0) - moved.mean(call.dim, keepdim=True)",
    ),
    Mutation(
        "DisARM without its factor", "score_function.py",
        "(z[0] - z[1]) * logsigmoid(logits.detach().abs()).exp()", "z[0] - z[1]",
    ),
]  # fmt: skip
MUTATIONS = [replace(bug, file=f"decoupled_st/{bug.file}", tests=SEEN_BY[bug.file]) for bug in PLANTED]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)

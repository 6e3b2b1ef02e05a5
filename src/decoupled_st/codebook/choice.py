"""Straight-through choices among the rows of a codebook: vectors in, chosen codes and their numbers out.

Each function takes x [..., D] and codes [K, D] and returns q [..., D] and index [...], with `q = codes[index]` exactly.
With heads, x is [..., H, D], codes [H, K, D] and index [..., H]. The N x K scores are never in memory.

Common keyword arguments:
    metric: the score s of a code. "dot": x . e; "cosine": x . e / (|x| |e|); "l2": -|x - e|^2.
    mask: bool, True = allowed, [K] or [H, K]. A masked code is never chosen and gets no gradient.
    seed: an integer, or an int64 tensor of one, that determines the draw together with a row's and a code's number.
    generator: draws that seed, instead of torch's global generator.
    grad_scale: float, or tensor with one value per row; multiplies the gradient sent to the scores and nothing else.

Temperatures are floats, or tensors with one value per row that broadcast to [..., 1]. A row of x with a NaN or an
infinity gives NaN and the index -1. Arithmetic is in float32 or better; x and codes of two dtypes meet in the wider.

The choice is one operator with a gradient of its own, opaque to torch.compile. Kernels make it where they can, the
chunked version elsewhere; tests hold both to the dense definition.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decoupled_st.codebook import chunked
from decoupled_st.codebook.inputs import Inputs, check_per_code, check_seed, prepare, seed_of
from decoupled_st.codebook.scores import Scores, as_summed, gather
from decoupled_st.estimators.surrogate import Temperature


def decoupled(
    x: Tensor,
    codes: Tensor,
    *,
    tau_f: Temperature,
    tau_b: Temperature,
    metric: str = "dot",
    values: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    seed: int | Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor]:
    r"""Decoupled ST over a codebook: the code drawn at one temperature, the gradient at another.

        forward     index ~ Categorical(softmax(s / tau_f)),  q = codes[index]        tau_f = 0: the argmax
        backward    dL/ds = (diag(p) - p p') (codes dL/dq) / tau_b,   p = softmax(s / tau_b),
                    from s to x and to codes; and dL/dq to the chosen row, as a gather gives it

    With `values` the codes are keys: q = values[index], and dL/ds = (diag(p) - p p') (values dL/dq) / tau_b. With a
    `bias` the scores are s + bias. Both are exact, and fused up to 256 features of key, bias and value together.
    `decoupled(h, embedding.weight, ...)` is `z @ embedding.weight` of a one-hot z over the logits h embedding.weight'.

    Args:
        x: [..., D], or [..., H, D] with heads.
        codes: [K, D], or [H, K, D].
        tau_f: forward temperature, >= 0; inside a tensor 0 is the argmax, row by row.
        tau_b: backward temperature, > 0. A tensor that requires grad receives the surrogate's gradient.
        values: [K, V], or [H, K, V] with heads: what is emitted in place of the codes.
        bias: [K], or [H, K]: added to the scores.
        metric, mask, generator, seed, grad_scale: see the module's docstring.

    Returns:
        q, of x's shape (with V features, if there are values), and index, int64.

    Example:
        >>> import torch
        >>> codes = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        >>> x = torch.tensor([[0.9, 0.2]], requires_grad=True)
        >>> q, index = decoupled(x, codes, tau_f=0.0, tau_b=1.0)
        >>> q.tolist(), index.tolist()
        ([[1.0, 0.0]], [0])
        >>> q[0, 0].backward()
        >>> p = torch.softmax(x.detach() @ codes.T, -1)
        >>> torch.allclose(x.grad, (p * (codes[:, 0] - p @ codes[:, 0])) @ codes)
        True

    Reference:
        Shah, Yan, Mozer, Liu: Improving Discrete Optimisation Via Decoupled Straight-Through Estimator, 2026. With
        tau_f = 0, tau_b = 1 and "dot", this is index backpropagation: Shi et al., Scalable Image Tokenization with
        Index Backpropagation Quantization, 2024.
    """
    features = slice(None)
    if values is not None or bias is not None:
        prepare(x, codes, metric, mask)  # refuses what does not fit
        x, codes, features = _side_by_side(x, codes, values, bias, metric)
        metric = "dot"
    inputs = prepare(x, codes, metric, mask)
    forward, backward = inputs.temperature("tau_f", tau_f, zero=True), inputs.temperature("tau_b", tau_b)
    if isinstance(tau_f, Tensor) or tau_f > 0:
        q, index = _run(inputs, forward.detach(), backward, seed_of(seed, generator, x.device), grad_scale)
    else:
        check_seed(seed, generator)
        q, index = _run(inputs, None, backward, None, grad_scale)
    return q[..., features], index


def softmax_ste(
    x: Tensor,
    codes: Tensor,
    *,
    tau: Temperature = 1.0,
    metric: str = "dot",
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    seed: int | Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor]:
    """Softmax STE over a codebook: draw and gradient at one temperature, `decoupled` on its diagonal.

    Args:
        x, codes: as in `decoupled`.
        tau: temperature, > 0.
        metric, mask, generator, seed, grad_scale: see the module's docstring.
    """
    prepare(x, codes, metric, mask).temperature("tau", tau)
    options = {"metric": metric, "mask": mask, "generator": generator, "seed": seed, "grad_scale": grad_scale}
    return decoupled(x, codes, tau_f=tau, tau_b=tau, **options)  # type: ignore[arg-type]


def gumbel_ste(
    x: Tensor,
    codes: Tensor,
    *,
    tau: Temperature = 1.0,
    metric: str = "dot",
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    seed: int | Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor]:
    """Straight-Through Gumbel-Softmax over a codebook: a draw at temperature 1, the gradient at the perturbed scores.

        forward     index = argmax(s + g),  q = codes[index],        g ~ Gumbel(0, 1), one per row and code
        backward    dL/ds = (diag(p) - p p') (codes dL/dq) / tau,    p = softmax((s + g) / tau)

    The noise is made again in backward from its counter, so it is never in memory; it costs one draw per row and code,
    where `decoupled` needs one per 128 codes.

    Args:
        x, codes: as in `decoupled`.
        tau: temperature of the surrogate, > 0.
        metric, mask, generator, seed, grad_scale: see the module's docstring.
    """
    inputs = prepare(x, codes, metric, mask)
    return _run(inputs, None, inputs.temperature("tau", tau), seed_of(seed, generator, x.device), grad_scale)


def identity_ste(
    x: Tensor,
    codes: Tensor,
    *,
    metric: str = "l2",
    mask: Tensor | None = None,
    generator: torch.Generator | None = None,
    seed: int | Tensor | None = None,
    grad_scale: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor]:
    """Identity STE over a codebook, as in VQ-VAE: the nearest code forward, the gradient copied to x.

        forward     index = argmax(s),  q = codes[index]
        backward    dL/dx = dL/dq; and dL/dq to the chosen row, as a gather gives it (VQ-VAE: pass codes.detach())

    Args:
        x, codes: as in `decoupled`.
        generator, seed: ignored, since nothing is drawn.
        metric, mask, grad_scale: see the module's docstring; `grad_scale` multiplies the gradient sent to x.

    Reference:
        van den Oord, Vinyals, Kavukcuoglu: Neural discrete representation learning, 2017.
    """
    inputs = prepare(x, codes, metric, mask)
    check_seed(seed, generator)
    with torch.no_grad():
        index = torch.ops.decoupled_st.codebook_nearest(inputs.x, inputs.codes, inputs.mask, metric)
    path = inputs.x - inputs.x.detach()
    if isinstance(grad_scale, Tensor) or grad_scale != 1.0:
        path = path * inputs.scale(grad_scale).unsqueeze(-1).to(path.dtype)
    q = gather(as_summed(inputs.codes), index).to(path.dtype) + path
    return q.reshape(x.shape), index.reshape(inputs.lead)


def _run(
    inputs: Inputs, tau_f: Tensor | None, tau_b: Tensor, seed: Tensor | None, grad_scale: float | Tensor
) -> tuple[Tensor, Tensor]:
    """q and index: drawn with `tau_f`; a seed alone perturbs the scores; with neither, the argmax."""
    scale = inputs.scale(grad_scale)
    q, index, *_ = torch.ops.decoupled_st.codebook(
        inputs.x, inputs.codes, inputs.mask, tau_f, tau_b, scale, seed, inputs.metric
    )
    return q.reshape(*inputs.lead, inputs.x.shape[-1]), index.reshape(inputs.lead)


def _side_by_side(
    x: Tensor, keys: Tensor, values: Tensor | None, bias: Tensor | None, metric: str
) -> tuple[Tensor, Tensor, slice]:
    """x and codes with the scores of x and keys as their products, and which features of a code are its value.

    A code is (key, bias, value), and x is (x, 1, 0): the product knows no value, and the gradient of q no key.
    """
    if values is not None:
        check_per_code("values", values, keys, features=True)
    if bias is not None:
        check_per_code("bias", bias, keys, features=False)
    emitted = keys if values is None else values
    dtype = torch.promote_types(torch.promote_types(x.dtype, keys.dtype), emitted.dtype)
    x, keys = x.to(dtype), keys.to(dtype)
    if metric == "l2":  # about the mean of the keys, where distances are the same and squares are small
        middle = keys.detach().mean(-2, keepdim=True)
        x, keys = x - middle.squeeze(-2), keys - middle
        squares = -keys.to(torch.promote_types(dtype, torch.float32)).square().sum(-1)
        x, bias = 2 * x, squares if bias is None else bias + squares
    elif metric == "cosine":
        x, keys = (F.normalize(t, dim=-1, eps=torch.finfo(dtype).tiny) for t in (x, keys))
    parts, ones = [keys], 0
    if bias is not None:
        first = bias.to(dtype)
        parts.append(first.unsqueeze(-1))
        if dtype in (torch.float16, torch.bfloat16):  # what rounding leaves over: logits are in float32
            parts.append((bias - first.to(bias.dtype)).detach().to(dtype).unsqueeze(-1))
        ones = len(parts) - 1
    before = keys.shape[-1] + ones
    if values is None and metric == "dot":
        features = slice(0, keys.shape[-1])
        width = before
    else:
        parts.append(emitted.to(dtype))
        features, width = slice(before, before + emitted.shape[-1]), before + emitted.shape[-1]
    x = torch.cat([x, x.new_ones(*x.shape[:-1], ones), x.new_zeros(*x.shape[:-1], width - before)], -1)
    return x, torch.cat(parts, -1), features


_library = torch.library.Library("decoupled_st", "FRAGMENT")
_library.define(
    "codebook(Tensor x, Tensor codes, Tensor? mask, Tensor? tau_f, Tensor tau_b, Tensor scale, Tensor? seed, "
    "str metric) -> (Tensor q, Tensor index, Tensor top, Tensor peak, Tensor rest)"
)
_library.define(
    "codebook_backward(Tensor x, Tensor codes, Tensor? mask, Tensor tau_b, Tensor scale, Tensor? seed, Tensor index, "
    "Tensor top, Tensor peak, Tensor rest, Tensor grad, str metric, bool learned) -> (Tensor, Tensor, Tensor)"
)
_library.define("codebook_nearest(Tensor x, Tensor codes, Tensor? mask, str metric) -> Tensor")


def _nearest(x: Tensor, codes: Tensor, mask: Tensor | None, metric: str) -> Tensor:
    if x.shape[0] == 0:
        return _nearest_like(x)
    with torch.autocast(x.device.type, enabled=False):
        scores = Scores.of(x, codes, metric, mask)
        if (fused := scores.fused()) is not None:
            nearest: Tensor = fused.nearest(scores)
            return nearest
        return torch.stack([chunked.nearest(scores.head(h)) for h in range(len(codes))], 1)


def _forward(
    x: Tensor,
    codes: Tensor,
    mask: Tensor | None,
    tau_f: Tensor | None,
    tau_b: Tensor,
    scale: Tensor,
    seed: Tensor | None,
    metric: str,
) -> tuple[Tensor, ...]:
    if x.shape[0] == 0:
        return _like(x)
    with torch.autocast(x.device.type, enabled=False):
        scores = Scores.of(x, codes, metric, mask)
        if (fused := scores.fused()) is not None:
            index, *softmax = fused.choose(scores, tau_f, tau_b, seed)
            return gather(codes, index), index, *softmax
        heads = []
        for h in range(len(codes)):
            noise = chunked.Noise.of_head(seed, x, h)
            chosen, p = chunked.choose(scores.head(h), None if tau_f is None else tau_f[:, h], tau_b[:, h], noise)
            heads.append((chosen, p.top, p.peak, p.rest))
        index, *softmax = (torch.stack(part, 1) for part in zip(*heads, strict=True))
        return gather(codes, index), index, *softmax


def _backward(
    x: Tensor,
    codes: Tensor,
    mask: Tensor | None,
    tau_b: Tensor,
    scale: Tensor,
    seed: Tensor | None,
    index: Tensor,
    top: Tensor,
    peak: Tensor,
    rest: Tensor,
    grad: Tensor,
    metric: str,
    learned: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.autocast(x.device.type, enabled=False):
        scores = Scores.of(x, codes, metric, mask)
        # A temperature's gradient is the kernels' only where the scores are linear in x.
        only_chunked = learned and (metric == "l2" or seed is not None)
        if not only_chunked and (fused := scores.fused()) is not None:
            gradients: tuple[Tensor, Tensor, Tensor] = fused.pull_back(
                scores, top, peak, rest, tau_b, grad=grad, index=index, scale=scale, seed=seed
            )
            return gradients
        heads = []
        for h in range(len(codes)):
            head, g = scores.head(h), grad[:, h].to(scores.dtype)
            p = chunked.Softmax(top[:, h], peak[:, h], rest[:, h], tau_b[:, h])
            heads.append(
                chunked.pull_back(
                    head,
                    p,
                    _weigh(g, head, p.top),
                    noise=chunked.Noise.of_head(seed, x, h),
                    scale=scale[:, h],
                    gathered=(index[:, h], g),
                    learned=learned,
                )
            )
        return chunked.stacked(heads, x.dtype)


def _weigh(g: Tensor, head: Scores, top: Tensor) -> chunked.Weigh:
    """The gradient of p is the incoming one times the codes."""
    at_top = (g * head.codes[top].to(g.dtype)).sum(-1)

    def weigh(rows: slice, columns: slice, l: Tensor) -> Tensor:
        return g[rows] @ head.codes[columns].to(g.dtype).T - at_top[rows, None]

    return weigh


def _nearest_like(x: Tensor, *_: object) -> Tensor:
    return torch.empty(x.shape[:2], dtype=torch.int64, device=x.device)


def _like(x: Tensor, *_: object) -> tuple[Tensor, ...]:
    dtype = torch.promote_types(x.dtype, torch.float32)
    index, peak = (torch.empty(x.shape[:2], dtype=kind, device=x.device) for kind in (torch.int64, dtype))
    return x.new_empty(x.shape), index, torch.empty_like(index), peak, torch.empty_like(peak)


def gradients_like(x: Tensor, codes: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    """New tensors for the gradients of x, of the codes and of the temperature."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return x.new_empty(x.shape), codes.new_empty(codes.shape), x.new_empty(x.shape[:2], dtype=dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, codes, mask, tau_f, tau_b, scale, seed, ctx.metric = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, codes, mask, tau_b, scale, seed if tau_f is None else None, *output[1:])


def _gradient(ctx: Any, grad: Tensor | None, *_: object) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 8
    learned = ctx.needs_input_grad[4]
    to_x, to_codes, to_tau = torch.ops.decoupled_st.codebook_backward(*ctx.saved_tensors, grad, ctx.metric, learned)
    return to_x, to_codes, None, None, to_tau if learned else None, None, None, None


def _refuse(ctx: Any, *_: object) -> None:
    raise NotImplementedError(
        "a second derivative through a codebook is not defined: its gradient is a straight-through estimate. "
        "Call backward() or torch.autograd.grad without create_graph=True, or detach what is differentiated again"
    )


_library.impl("codebook_nearest", _nearest, "CompositeExplicitAutograd")
_library.impl("codebook", _forward, "CompositeExplicitAutograd")
_library.impl("codebook_backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake("decoupled_st::codebook_nearest", _nearest_like)
torch.library.register_fake("decoupled_st::codebook", _like)
torch.library.register_fake("decoupled_st::codebook_backward", gradients_like)
torch.library.register_autograd("decoupled_st::codebook", _gradient, setup_context=_save)
torch.library.register_autograd("decoupled_st::codebook_backward", _refuse)

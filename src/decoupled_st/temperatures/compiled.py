"""What a rule in a compiled network needs: the state is written in the graph that reads it, and the graph, or a part of
it, may be run again in the backward pass. Then the temperatures are those of the first time, and nothing is counted."""

import itertools

import torch
from torch import Tensor

from decoupled_st.estimators.contract import recomputed
from decoupled_st.temperatures.observe import View
from decoupled_st.temperatures.passes import Pass, Passes, sample
from decoupled_st.temperatures.rule import Rule, State, Taus

_sites = itertools.count()


def advance(rule: Rule, state: State, view: View, last: Taus, passes: Tensor) -> Taus:
    """The same as `Rule.advance`, where torch.compile traces it. `passes` is the number of the module's `Passes`."""
    taus, after = rule.step(state, view)
    tau_f, tau_b = torch.as_tensor(taus.f), torch.as_tensor(taus.b)
    again: Tensor | None = None
    if state:  # else the temperatures follow from the logits, whenever they are made
        few, site = sample(view.logits), _new_site()
        tau_f, tau_b, again = torch.ops.decoupled_st.first_run(tau_f, tau_b, few, passes, site)
        for name, value in after.items():
            state[name].copy_(torch.where(again, state[name], value))
    for place, tau in zip(last, (tau_f, tau_b), strict=True):
        mean = tau.to(place.dtype).mean()
        place.copy_(mean if again is None else torch.where(again, place, mean))
    return Taus(tau_f, tau_b)


def is_run_again(like: Tensor) -> Tensor:
    """A bool on the device of a tensor: whether compiled code that counts is run again."""
    return torch.ops.decoupled_st.is_run_again(like)


def _new_site() -> int:
    """A number for a place in compiled code, given to it when it is traced."""
    return next(_sites)


# What torch.compiler.assume_constant_result does, without importing the compiler.
_new_site._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _first_run(tau_f: Tensor, tau_b: Tensor, few: Tensor, passes: Tensor, site: int) -> tuple[Tensor, Tensor, Tensor]:
    """The temperatures of a pass, of its first time where it is run again, and whether it is. An operator of our own,
    since a compiler looks into nothing else: it asks when it runs, not when it is traced."""
    of_module = Passes.known.get(int(passes))
    first = of_module.first_of(few, site) if of_module is not None and recomputed() else None
    if first is not None and [torch.as_tensor(tau).shape for tau in first.taus] == [tau_f.shape, tau_b.shape]:
        f, b = (torch.as_tensor(tau).to(like, copy=True) for tau, like in zip(first.taus, (tau_f, tau_b), strict=True))
        return f, b, torch.ones((), dtype=torch.bool, device=few.device)
    taus = Taus(tau_f.clone(), tau_b.clone())
    if of_module is not None:
        of_module.keep(Pass(few.clone(), taus, site=site))
    return tau_f.clone(), tau_b.clone(), torch.zeros((), dtype=torch.bool, device=few.device)


_library = torch.library.Library("decoupled_st", "FRAGMENT")
# They keep tensors, and ask what is under way: not to be recorded once and replayed.
_TAGS = tuple(getattr(torch.Tag, name) for name in ("cudagraph_unsafe",) if hasattr(torch.Tag, name))
_library.define(
    "first_run(Tensor tau_f, Tensor tau_b, Tensor sample, Tensor passes, int site) -> (Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
_library.impl("first_run", _first_run, "CompositeExplicitAutograd")
_library.define("is_run_again(Tensor like) -> Tensor", tags=_TAGS)
_library.impl(
    "is_run_again",
    lambda like: torch.full((), recomputed(), dtype=torch.bool, device=like.device),
    "CompositeExplicitAutograd",
)
torch.library.register_fake("decoupled_st::is_run_again", lambda like: like.new_empty((), dtype=torch.bool))
torch.library.register_fake(
    "decoupled_st::first_run",
    lambda tau_f, tau_b, few, passes, site: (
        torch.empty_like(tau_f), torch.empty_like(tau_b), few.new_empty((), dtype=torch.bool),
    ),
)  # fmt: skip

"""Parameters that a module sets itself, and the tools of torch that replace them."""

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized


def check_settable(module: nn.Module, name: str, *, whole: bool = False) -> None:
    """Refuse a tensor that is made again before each pass, by `torch.nn.utils.prune` or the older `weight_norm`: it
    would forget what is written to it. So does the copy that FSDP2 gathers for a pass; its shards take what is written
    to them, where not the `whole` tensor is needed."""
    # The hook is all that FSDP2 leaves on a module while its parameters are gathered.
    hooks = module._load_state_dict_post_hooks.values()
    sharded = any("_fully_shard" in getattr(hook, "__module__", "") for hook in hooks)
    if sharded and (whole or not hasattr(getattr(module, name), "device_mesh")):
        raise RuntimeError(
            f"{name!r} of this {type(module).__name__} is sharded by FSDP2, and what is set now would be lost with the "
            "gathered copy: set it before fully_shard"
        )
    if not (name in module._parameters or name in module._buffers or is_parametrized(module, name)):
        raise RuntimeError(
            f"{name!r} of this {type(module).__name__} is no parameter any more: a hook makes it before each pass "
            f"(torch.nn.utils.prune, weight_norm), and what is set now would be lost. Remove the hook first, as "
            f"prune.remove(module, {name!r}) does, or take torch.nn.utils.parametrizations instead"
        )


def keep(module: nn.Module, name: str, written: Tensor) -> None:
    """Take over what was written to `module.name`, where that is parametrised and so made again at each use."""
    if is_parametrized(module, name):
        setattr(module, name, written.detach())

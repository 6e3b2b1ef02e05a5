"""Calls of a function, several at once where asked for."""

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context, parent_process
from traceback import format_exc
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """A call that has returned."""

    place: int
    """Its number among those that were asked for."""
    returned: Any
    started: float
    """A time of the wall clock."""
    seconds: float


Calls = Callable[[Sequence[Mapping[str, Any]]], Iterator[Ended]]
"""Keyword arguments of many calls -> the calls, as they end."""


@contextmanager
def at_once(workers: int | Executor, function: Callable[..., Any]) -> Iterator[Calls]:
    """Calls of a function, one after the other or, with more workers or an executor, side by side.

    The first call that raises ends them all: what others have returned by then still comes, then its error.
    """
    if isinstance(workers, int) and workers <= 1:
        yield lambda arguments: (_timed(function, place, given) for place, given in enumerate(arguments))
        return
    if isinstance(workers, int):
        _check_importable(function)
    with _pool(workers) if isinstance(workers, int) else nullcontext(workers) as executor:
        yield lambda arguments: _side_by_side(executor, function, arguments)


def _timed(function: Callable[..., Any], place: int, given: Mapping[str, Any]) -> Ended:
    started, clock = time.time(), time.monotonic()
    returned = function(**given)
    return Ended(place, returned, started, time.monotonic() - clock)


def _timed_elsewhere(function: Callable[..., Any], place: int, given: Mapping[str, Any]) -> Ended:
    """`_timed` in a worker process. An error that cannot be pickled would end the whole pool, so its text is raised."""
    try:
        return _timed(function, place, given)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError(f"the objective raised {type(error).__name__}: {error}\n{format_exc()}") from None
        raise


def _side_by_side(
    executor: Executor, function: Callable[..., Any], arguments: Sequence[Mapping[str, Any]]
) -> Iterator[Ended]:
    call = _timed if isinstance(executor, ThreadPoolExecutor) else _timed_elsewhere
    futures: list[Future[Ended]] = [
        executor.submit(call, function, place, given) for place, given in enumerate(arguments)
    ]
    failure: BaseException | None = None
    try:
        for future in as_completed(futures):
            if future.cancelled():
                continue
            if error := future.exception():
                failure = failure or error
                for other in futures:
                    other.cancel()
            else:
                yield future.result()
    finally:
        for future in futures:
            future.cancel()
    if isinstance(failure, BrokenProcessPool):
        raise RuntimeError(
            "a worker process ended by itself (killed, or out of memory?); what was recorded before is safe, and the "
            "same call goes on"
        ) from failure
    if failure:
        raise failure


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that begin afresh: a copy of this one would inherit threads that do not run in it."""
    # Workers share the cores. In the environment, since a worker may load torch before it gets to any code of ours.
    shared = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // workers)), "OMP_WAIT_POLICY": "passive"}
    own = {name: value for name, value in shared.items() if name not in os.environ}
    os.environ.update(own)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        for name in own:
            os.environ.pop(name, None)


def _begin_worker() -> None:
    """End at once on Ctrl-C, and with the process that started this one, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _check_importable(function: Callable[..., Any]) -> None:
    main = sys.modules["__main__"]
    interactive = getattr(function, "__module__", "") == "__main__" and not hasattr(main, "__file__")
    try:
        pickle.dumps(function)
    except Exception:
        interactive = True
    if interactive:
        raise ValueError(
            "several workers are processes of their own, which import the objective: write it in a module, as a "
            "function with a name, or pass an executor of yours (workers=ThreadPoolExecutor(2))"
        )

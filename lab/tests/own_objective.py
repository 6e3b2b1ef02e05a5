"""An objective that worker processes can import."""

import os
import time


def bowl(tau_f: float, tau_b: float, seed: int, folder: str = "") -> float:
    """Lowest at (0.5, 2.0); fails where tau_f is 9. Waits for a second worker, so that both have runs."""
    if folder:
        with open(os.path.join(folder, f"{os.getpid()}"), "a", encoding="utf-8") as file:
            file.write("run\n")
        deadline = time.monotonic() + 60
        while len(os.listdir(folder)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
    if tau_f == 9:
        raise RuntimeError("the power went")
    return (tau_f - 0.5) ** 2 + (tau_b - 2.0) ** 2 + 0.001 * seed


class OddError(Exception):
    """Cannot be sent from one process to another: made of two values, it is sent as one."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def odd(tau_f: float, seed: int) -> float:
    """Fails with an error that cannot be sent where tau_f is 0.5."""
    if tau_f == 0.5:
        raise OddError("out", "of luck")
    return tau_f + seed

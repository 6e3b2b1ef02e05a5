"""`dst completion`: what a shell completes."""

import shutil
import subprocess
from pathlib import Path

import pytest

ASK = """
source ./dst.bash
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_shtab_dst
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_tasks_options_and_files(cli) -> None:
    ended = cli("completion", "bash")
    assert ended.code == 0
    Path("dst.bash").write_text(ended.out)
    Path("runs.sqlite").touch()

    def complete(words: str) -> list[str]:
        line = ASK.format(words=words)
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=20)
        return sorted(word.strip() for word in done.stdout.split())

    assert complete("dst sh") == ["show"]
    assert {"merge", "diff", "rm", "copy"} <= set(complete('dst ""'))
    assert complete("dst run stoch") == ["stochastic-binary"]
    assert complete("dst run stochastic-binary --tau-") == ["--tau-b", "--tau-f"]
    assert "--salvage" in complete("dst copy --s")
    assert complete("dst show --at b") == ["best"]
    assert complete("dst show --store run") == ["runs.sqlite"]


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script(shell, cli) -> None:
    ended = cli("completion", shell)
    assert ended.code == 0
    assert "stochastic-binary" in ended.out
    assert "salvage" in ended.out

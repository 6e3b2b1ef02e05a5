"""What to type: the examples at the end of each command's help."""

EXAMPLES: dict[str, str] = {
    "run": """\
dst run stochastic-binary --estimator all --seeds 5
dst run logic-gates --tau-f 0.1 --tau-b 2 --keep
dst run categorical-autoencoder --temperatures self
dst run stochastic-binary --help            every option of one task""",
    "sweep": """\
dst sweep --study lab/studies/paper         its recipes
dst sweep sbn-grid --study lab/studies/paper --dry-run
dst sweep stochastic-binary --grid tau_f=0:2:0.5 tau_b=0.3,0.7,1.1""",
    "show": """\
dst show --metric test_accuracy
dst show --where task=logic-gates 'tau_f<=0.3' --top 5
dst show --group id --csv > runs.csv""",
    "export": """\
dst export --format csv --out runs.csv""",
    "copy": """\
dst copy backup.sqlite
dst copy runs.sqlite.xz --lean              one small file, to be read only""",
    "merge": """\
dst merge monday.sqlite tuesday.sqlite --store all.sqlite""",
    "rm": """\
dst rm --where status=failed                which they are
dst rm --where status=failed --yes""",
    "data": """\
dst data
dst data prepare cifar10 --out cifar10.bits""",
    "report": """\
dst report
dst report --study lab/studies/paper --store lab/results/paper""",
    "reproduce": """\
dst reproduce lab/studies/paper             minutes, on small tasks
dst reproduce lab/studies/paper --scale paper --budget 30""",
    "claims": """\
dst claims --study lab/studies/paper --store lab/results/paper""",
    "circuit": """\
dst run logic-gates --seeds 1 --keep
dst circuit --out net.c --out net.v --testbench --images 200""",
}

FIRST_STEPS = """\
dst run stochastic-binary --estimator all   train small networks, in seconds
dst show --metric test_accuracy             compare them
dst report                                  a page of what is recorded
dst COMMAND --help                          more on one command"""


def epilog(lines: str) -> str:
    """The examples as the help shows them."""
    return "\n".join(["examples:", *(f"  {line}" for line in lines.splitlines())])

"""Everything that follows from the committed records: the report, the figures, and the blocks that pages quote.

    python -m results.build        or: make results

A block lies between `<!-- results:NAME -->` and `<!-- /results -->`; what is around it is written by hand.
"""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev

from dst_lab.cards import estimator, metric, title
from dst_lab.claims import SEEDS, Verdict
from dst_lab.figures import Drawn, draw, write
from dst_lab.figures.curves import counted
from dst_lab.figures.style import listing, number
from dst_lab.records import Rows
from dst_lab.replace import write_bytes
from dst_lab.report import page, pick_scale
from dst_lab.report.tables import chosen_table
from dst_lab.report.verdicts import MARKS, Line, board, in_words
from dst_lab.store import Store
from results import cost
from studies.paper import PAPER
from studies.paper.claims.mechanisms import converged_below
from studies.paper.claims.tasks import BASELINES, CATAE, LOGIC, OPTIMA, OURS, REFERENCE, SBN

ROOT = Path(__file__).resolve().parents[2]
RECORDS = "lab/results/paper"
"""A folder of slices; a new one is another file."""
PAGES = ("README.md", "lab/results/README.md", "docs/results.md")
REPORT = "lab/results/report.html"
"""Made, and not committed: it follows from the records."""
ROLES = (OURS, *BASELINES)
HEADLINE = (
    (SBN.task, "test_accuracy", "accuracy %"),
    (LOGIC.task, "test_accuracy_argmax", "accuracy % (argmax)"),
    (CATAE.task, "test_loss", "nats per image"),
)
"""(task, metric at the end of training, in words)."""
PICTURES = {
    "map": "Validation loss, accuracy and inactive neurons of the binary network over both temperatures",
    "logic-curves": "Training loss and validation accuracy of the logic gates over training, by estimator",
}
BLOCK = re.compile(r"(<!-- results:([\w-]+) -->\n)(.*?)(<!-- /results -->)", re.DOTALL)


@dataclass(frozen=True)
class Results:
    """The records, read once, and what the blocks say of them."""

    rows: Rows
    root: Path = ROOT
    """Where benchmarks/results.csv and lab/results/paper/sessions.csv are."""

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return PAPER.judge(self.rows)

    @cached_property
    def device(self) -> cost.Device:
        return cost.device_of(self.rows)

    @cached_property
    def step_ms(self) -> dict[str, float]:
        return cost.plain_steps(self.root / "benchmarks/results.csv", self.device.name)

    @cached_property
    def costs(self) -> list[cost.Cost]:
        return cost.costs(self.rows, self.step_ms)


def build(root: Path = ROOT) -> list[Path]:
    """Write all of it under `root`, and return what was written."""
    with Store.open(root / RECORDS) as store:
        results = Results(PAPER.rows(store, pick_scale(PAPER, store)), root)
        drawn = draw(PAPER.figures, results.rows)
        made = {REPORT: page(PAPER, results.rows, drawn).encode(), **figures(drawn)}
        made |= {name: text.encode() for name, text in pages(results, root).items()}
    for name, body in made.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(root / name, body)
    return [root / name for name in made]


def figures(drawn: dict[str, Drawn]) -> dict[str, bytes]:
    """Each figure's file."""
    return {f"lab/results/figures/{name}.svg": write(one.figure, "svg") for name, one in drawn.items()}


def pages(results: Results, root: Path = ROOT) -> dict[str, str]:
    """The pages under `root` with their blocks made anew."""
    return {name: filled((root / name).read_text(encoding="utf-8"), results, name) for name in PAGES}


def filled(text: str, results: Results, page: str = "the page") -> str:
    """A page with its blocks made anew."""
    begun, whole = re.findall(r"<!-- results:\S* -->", text), BLOCK.findall(text)
    unknown = [name for _, name, _, _ in whole if name not in BLOCKS]
    if len(begun) != len(whole) or unknown:
        raise ValueError(
            f"{page}: a block begins with <!-- results:NAME --> and ends with <!-- /results -->, NAME one of "
            f"{', '.join(BLOCKS)}; got {len(begun)} beginnings, {len(whole)} whole blocks"
            + (f", unknown: {', '.join(unknown)}" if unknown else "")
        )
    up = "../" * page.count("/")
    return BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]](results, up)}\n\n{found[4]}", text)


def headline(results: Results, up: str) -> str:
    """Each estimator on each task: test data, end of training, fresh seeds."""
    cells: dict[tuple[str, str], str] = {}
    for task, name, _ in HEADLINE:
        chosen = {role: results.rows.setting(task, role) for role in ROLES}
        fresh = {role: one for role, one in chosen.items() if one and one.n and one.n + one.diverged == SEEDS}
        for role, one in fresh.items():
            found = [metric(name).factor * row.last(name) for row in one.rows]
            cells[role, task] = f"{fmean(found):.1f}" + (f" ± {stdev(found):.1f}" if len(found) > 1 else "")
            if one.diverged:
                cells[role, task] += f" ({one.diverged} of {one.n + one.diverged} diverged)"
            if task == CATAE.task:
                converged = sum(row.last("validation_loss") < converged_below(results.rows) for row in one.rows)
                cells[role, task] += f"; {converged} of {SEEDS} converge"  # a mean over both outcomes says little alone
    head = ["estimator, at its chosen setting", *(f"{title(task)}, {what}" for task, _, what in HEADLINE)]
    body = [
        [estimator(role).label, *(cells.get((role, task), "not run yet") for task, *_ in HEADLINE)] for role in ROLES
    ]
    return table(head, body)


def verdicts(results: Results, up: str) -> str:
    """Each claim on each task."""
    tasks = [title(task) for task in PAPER.tasks]
    body = []
    for claim, _, titles in board(in_words(results.verdicts, PAPER), PAPER.questions):
        for what, found in titles.items():
            if "" in found:
                one = found[""].verdict
                said = [_badge(one), _badge(replace(one, caution="")), ""]
                body.append([f"{claim}: {what} (both tasks together)", *said])
            else:
                body.append([f"{claim}: {what}", *(_badge(found[t].verdict) if t in found else "" for t in tasks)])
    return table(["claim", *tasks], body)


def evidence(results: Results, up: str) -> str:
    """The comparisons that the verdicts rest on."""
    body: list[list[str]] = []
    for item in in_words(results.verdicts, PAPER):
        about = [f"{item.verdict.claim}, {item.where}", _badge(item.verdict)]
        body += [[*about, f"{line.name}: {line.metric}", *_line(line)] for line in item.judged]
        if not item.judged:
            body.append([*about, *[""] * 7])
    head = ["claim", "verdict", "comparison", "found", "against", "difference (95%)", "effect", "p", "n"]
    return table(head, body, "lllrrrrrr")


def settings(results: Results, up: str) -> str:
    """What each search chose, and its loss."""
    paper = {title(task): optimum for task, optimum in OPTIMA.items()}
    body = []
    for task, found in chosen_table(results.rows).items():
        for line in found:
            taus = line.taus or "none"
            if line.label == PAPER.ours:
                taus += " (the paper: {:g}, {:g})".format(*paper[task])
            n = f"{line.n} {line.seeds}" + f", {line.diverged} diverged" * bool(line.diverged)
            body.append([task, line.label, taus, line.lr, line.loss, n])
    head = ["task", "estimator", "temperatures", "learning rate", "lowest validation loss", "seeds"]
    return table(head, body, "lllrrl")


def runs(results: Results, up: str) -> str:
    """By recipe: how many runs, how they ended, how long they took, and a plain script."""
    body = [_cost(one) for one in results.costs]
    body.append([f"**{cell}**" if cell else "" for cell in _cost(cost.total(results.costs))])
    head = ["recipe", "what", "runs", "diverged", "failed", "training, minutes", "plain script, hours", "ratio"]
    return table(head, body, "llrrrrrr")


def about(results: Results, up: str) -> str:
    """What was run, when and on what."""
    places = [place for place, _ in cost.chunks(results.rows).values()]
    versions = [f"{name} {_several(places, name)}" for name in ("torch", "numpy", "python")]
    commits = sorted(
        {str(place["commit"])[:12] + "*" * bool(place.get("dirty")) for place in places if "commit" in place}
    )
    size = sum(file.stat().st_size for file in (results.root / RECORDS).glob("*.sqlite.xz")) / 1e6
    body = [
        ["runs", f"{len(results.rows.runs):,}, of {results.rows.scale} scale, in {len(places)} chunks"],
        ["when", listing(sorted({results.device.first, results.device.last}))],
        ["on", listing(results.device.names)],
        ["with", ", ".join([f"decoupled-st {_several(places, 'version')}", *versions])],
        ["commits", ", ".join(commits) or "not recorded"],
        ["records", f"{size:.1f} MB"],
    ]
    return table(["", ""], body)


def time(results: Results, up: str) -> str:
    """The total, in sentences."""
    everything = cost.total(results.costs)
    beyond = cost.total([one for one in results.costs if one.recipe in cost.BEYOND]).seconds
    grid = next((one.seconds for one in results.costs if one.recipe == "sbn-grid"), 0.0)
    said = (
        f"Training took {_minutes(everything.seconds - beyond)} minutes on {listing(results.device.names)}, "
        f"{_minutes(grid)} of them the binary network's grid"
        + (f"; what goes beyond the paper took {_minutes(beyond)} more" if beyond else "")
        + "."
    )
    held = cost.held(results.root / RECORDS / "sessions.csv")
    if held:
        said += f" The device was in use for {_minutes(held[0])} minutes, in {held[1]} session{'s' * (held[1] != 1)}."
    if everything.plain:
        said += f" One run after another, a plain script would train for {_hours(everything.plain)} hours."
    return said


def counting(results: Results, up: str) -> str:
    """How the total is counted."""
    everything = cost.total(results.costs)
    said = (
        "A chunk of runs counts once, from its first step to its last evaluation; two that were trained side by side "
        "count both. Use includes loading, compiling, calibration and what was begun in vain."
    )
    if everything.plain:
        steps = listing(
            [
                f"{ms:.3g} ms ({title(task)}: {cost.PLAIN[task]})"
                for task, ms in results.step_ms.items()
                if any(row.run.task == task for row in results.rows.runs.values())
            ]
        )
        said += (
            f" The plain script's hours are steps of {steps}, measured on the same device (`benchmarks/results.csv`), "
            "times the steps of every run, evaluation not counted."
        )
    if everything.unmeasured:
        said += f" {everything.unmeasured:,} runs of tasks without such a measurement are not in them."
    return said


def pictures(results: Results, up: str) -> str:
    """The two that the README shows, with their n."""
    found = {role: results.rows.setting(LOGIC.task, role) for role in (*ROLES, REFERENCE)}
    settings = {role: one for role, one in found.items() if one and one.n}
    seeds = {row.run.seed for row in results.rows.recipe("sbn-grid", SBN.task)}
    captions = {
        "map": f"Each cell: mean over n = {len(seeds)} search seeds.",
        "logic-curves": f"Each line: mean over seeds, {counted(settings)}. Band: one standard deviation.",
    }
    return "\n\n".join(
        f"![{words}]({up}lab/results/figures/{name}.svg)\n\n{captions[name]}" for name, words in PICTURES.items()
    )


BLOCKS: dict[str, Callable[[Results, str], str]] = {
    "table": headline,
    "pictures": pictures,
    "verdicts": verdicts,
    "evidence": evidence,
    "settings": settings,
    "runs": runs,
    "about": about,
    "time": time,
    "counting": counting,
}


def table(head: Sequence[str], body: Sequence[Sequence[str]], align: str = "") -> str:
    """A table in Markdown; `align` has an l or an r per column."""
    rule = "|".join("---:" if side == "r" else "---" for side in align or "l" * len(head))
    first, *rest = (f"| {' | '.join(row)} |" for row in (head, *body))
    return "\n".join([first, f"|{rule}|", *rest])


def _badge(verdict: Verdict) -> str:
    return f"{MARKS[verdict.verdict]} {verdict.verdict}" + f" ({verdict.caution})" * bool(verdict.caution)


def _line(line: Line) -> list[str]:
    difference = f"{line.difference} ({line.interval})" if line.interval else line.difference
    return [line.ours, line.theirs, difference, line.effect, line.p, str(line.n)]


def _cost(one: cost.Cost) -> list[str]:
    what = PAPER.recipes.about(one.recipe).rstrip(".") if one.recipe in PAPER.recipes.plans else ""
    if one.recipe == cost.OTHER:
        what = "Beyond the paper: what other ways to choose settings ask for"
    return [
        one.recipe,
        what,
        f"{one.runs:,}",
        str(one.ends["diverged"]),
        str(one.ends["failed"]),
        _minutes(one.seconds),
        _hours(one.plain) if one.plain else "",
        f"{one.plain / one.compared:,.0f}" if one.plain else "",
    ]


def _several(places: Sequence[dict[str, object]], name: str) -> str:
    return listing(sorted({str(place[name]) for place in places if name in place}))


def _minutes(seconds: float) -> str:
    return number(seconds / 60)


def _hours(seconds: float) -> str:
    return number(seconds / 3600)


if __name__ == "__main__":
    for file in build():
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1e6:.2f} MB", file=sys.stderr)

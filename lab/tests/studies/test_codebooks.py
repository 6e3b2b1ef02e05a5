"""The rules and figures of the study of tokenisers, on planted tables of runs."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dst_lab.figures import draw
from dst_lab.records import Rows
from results import codebook_tables
from studies import CODEBOOKS
from studies.codebooks.claims import OURS, PEERS, SIZES, SPOKEN

BITS = {512: 500.0, 16_384: 750.0}
Line = dict[str, Any]


def line(part: str, name: str, codes: int, seed: int, psnr: float, share: float = 0.8, bits: float = 0.0) -> Line:
    config = {"task": "cifar-tokeniser", "part": part, "estimator": name, "codes": codes, "seed": seed, "steps": 10}
    history = {"psnr": psnr, "usage": 1.0, "perplexity": share * codes, "bits": bits or ""}
    return config | {f"history.{name}": value for name, value in history.items()}


def planted(ahead: float = 0.31, seeds: int = 3, share: float = 0.8, above: float = 0.1) -> list[Line]:
    """Ours ahead of the best of the three by so much, and above their lines by so much."""
    lines = []
    for codes in SIZES:
        for name, behind in zip((OURS, *PEERS), (-ahead, 1.0, 0.0, 0.5), strict=True):
            lines += [line("judged", name, codes, seed, 24 + seed - behind, share) for seed in range(seeds)]
            if codes in BITS:
                psnr = 24 + (codes > 512) + above * (name == OURS)
                lines.append(line("prior", name, codes, 9, psnr, bits=BITS[codes]))
    return lines


def spoken(ahead: float, seeds: int = 5) -> list[Line]:
    """The judged runs on speech, ours ahead of the best other by so much."""
    lines = []
    for codes, stages in SPOKEN:
        for name, behind in zip((OURS, *PEERS), (-ahead, 1.0, 0.0 if stages == 1 else None, 0.0), strict=True):
            if behind is not None:
                made = (line("judged", name, codes, seed, 30 + seed - behind) for seed in range(seeds))
                lines += [one | {"task": "speech-tokeniser", "stages": stages} for one in made]
    return lines


@pytest.fixture
def rows(rows_at: Any, tmp_path: Path) -> Any:
    def read(lines: list[Line], of_speech: Sequence[Line] = ()) -> Rows:
        for name, table in (("runs.csv", lines), ("speech.runs.csv", of_speech)):
            if table:
                with (tmp_path / name).open("w", newline="") as file:
                    writer = csv.DictWriter(file, table[0].keys())
                    writer.writeheader()
                    writer.writerows(table)
        return rows_at(CODEBOOKS, tmp_path)

    return read


def verdicts(rows: Rows, claim: str) -> set[str]:
    return {one.verdict for one in CODEBOOKS.judge(rows) if one.claim.startswith(claim)}


@pytest.mark.parametrize(("ahead", "expected"), [(0.31, "supported"), (0.29, "not supported"), (-0.1, "contradicted")])
def test_ours_is_ahead_of_the_best_of_the_three(rows: Any, ahead: float, expected: str) -> None:
    assert verdicts(rows(planted(ahead)), "T1") == {expected}


def test_one_seed_that_is_not_ahead_is_enough(rows: Any) -> None:
    lines = planted()
    for one in lines:
        if (one["part"], one["estimator"], one["seed"], one["codes"]) == ("judged", "FSP", 1, 512):
            one["history.psnr"] += 0.1
    assert {one.claim: one.verdict for one in CODEBOOKS.judge(rows(lines))}["T1 512"] == "not supported"
    assert verdicts(rows(lines), "T1 16384") == {"supported"}


def test_a_seed_counts_when_all_its_runs_are_there(rows: Any) -> None:
    lines = [one for one in planted(seeds=4) if (one["estimator"], one["seed"], one["codes"]) != ("FSQ", 3, 512)]
    found = CODEBOOKS.judge(rows(lines))
    assert {one.caution for one in found if one.claim.startswith(("T1", "T2"))} == {"3 of 5 seeds"}
    fewer = rows([one for one in lines if one["seed"] == 3 or one["part"] == "prior"])
    assert verdicts(fewer, "T1") == verdicts(fewer, "T2") == {"not tested"}


@pytest.mark.parametrize(("share", "expected"), [(0.71, "supported"), (0.69, "not supported")])
def test_codes_are_in_use(rows: Any, share: float, expected: str) -> None:
    assert verdicts(rows(planted(share=share)), "T2") == {expected}


@pytest.mark.parametrize(("above", "expected"), [(0.01, "supported"), (-0.01, "contradicted")])
def test_bits_are_held_against_the_lines_of_the_three(rows: Any, above: float, expected: str) -> None:
    assert verdicts(rows(planted(above=above)), "T3") == {expected}
    dearer = planted(above=above)
    for one in dearer:
        if one["part"] == "prior" and one["estimator"] == OURS:
            one["history.bits"] += 50
    assert verdicts(rows(dearer), "T3") == {"contradicted"}, "0.2 dB is what 50 bits cost"


@pytest.mark.parametrize(("ahead", "expected"), [(0.01, "supported"), (0.0, "not supported"), (-0.01, "contradicted")])
def test_speech_is_held_against_the_best_of_the_others(rows: Any, ahead: float, expected: str) -> None:
    read = rows(planted(), spoken(ahead))
    assert {one.claim: one.verdict for one in CODEBOOKS.judge(read) if one.claim.startswith("T4")} == dict.fromkeys(
        ("T4 1024", "T4 16384", "T4 4 x 1024"), expected
    )
    assert verdicts(read, "T1") == {"supported"}, "images are judged by their own runs"
    (table, first, *_) = codebook_tables.speech(read).splitlines()[::2]
    assert table == "|  | K = 1,024 | K = 16,384 | K = 1,024, 4 stages |"
    assert first.count(f"{32 + ahead:.2f} ± 1.58, ") == 3


def test_speech_needs_every_run_of_a_seed(rows: Any) -> None:
    assert verdicts(rows(planted()), "T4") == {"not tested"}
    lines = [one for one in spoken(0.1) if (one["estimator"], one["seed"], one["stages"]) != ("SimVQ", 3, 4)]
    for one in lines:  # not ahead in the seed that does not count
        one["history.psnr"] -= (one["estimator"], one["seed"]) == (OURS, 3)
    read = rows(planted(), lines)
    assert verdicts(read, "T4") == {"supported"}
    assert {one.caution for one in CODEBOOKS.judge(read) if one.claim.startswith("T4")} == {"4 of 5 seeds"}


def test_one_seed_of_speech_that_is_not_ahead_is_enough(rows: Any) -> None:
    lines = spoken(0.1)
    for one in lines:
        one["history.psnr"] -= 0.2 * ((one["estimator"], one["seed"], one["stages"]) == (OURS, 1, 4))
    found = {one.claim: one.verdict for one in CODEBOOKS.judge(rows(planted(), lines))}
    assert (found["T4 4 x 1024"], found["T4 1024"]) == ("not supported", "supported")


def test_other_methods_are_shown_and_not_judged(rows: Any) -> None:
    other = line("judged", "VectorQuantize, revival", 512, 0, 99)
    alone = [line("cost", "FSQ", 512, 0, 1) | {"compiled": compiled, "history.ms": 2.5} for compiled in ("", "true")]
    plain = [one | {"history.ms": "", "history.gib": 0.5, "compiled": ""} for one in (*planted(), other)]
    read = rows([*plain, *(one | {"history.gib": 0.5} for one in alone)])
    assert verdicts(read, "T1") == {"supported"}
    assert codebook_tables.others(read).splitlines()[2:] == ["| VectorQuantize, revival | 99.00, 100%, 410 |  |  |"]
    assert codebook_tables.cost(read).splitlines()[2:] == ["| FSQ | 2.50 ms, 0.5 GiB |  |  |"]


def test_figures_say_what_they_lack(rows: Any) -> None:
    lines = planted()
    whole = draw(CODEBOOKS.figures, rows(lines))
    assert not whole["quality"].missing
    assert not whole["rate-distortion"].missing
    assert [len(ax.lines) for ax in whole["quality"].figure.axes] == [16, 17]
    assert whole["reconstructions"].missing == ["reconstructions.png"]
    lacking = draw(CODEBOOKS.figures, rows([one for one in lines if one["part"] != "prior" and one["seed"] == 0][:5]))
    assert lacking["quality"].missing
    assert lacking["rate-distortion"].missing

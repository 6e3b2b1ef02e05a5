"""Plausible bugs in the store, one at a time in a copy of the laboratory: the tests named must go red for each."""

from dataclasses import replace
from pathlib import Path

import pytest
from mutations.mutation import Mutation, goes_red, is_green_unchanged

pytestmark = pytest.mark.slow
STORE = "lab/tests/store/"
PUT, FILES = (STORE + "test_store_put.py",), (STORE + "test_store_files.py",)
COPIES, NETWORKS = (STORE + "test_store_copies.py",), (STORE + "test_store_networks.py",)
REPLACE = ("lab/tests/test_replace.py",)
PLANTED = [
    Mutation("noise is not compressed", "store/blob.py", "len(listing)) + listing + b\"\".join(planes), LEVEL)",
             "len(listing)) + listing + b\"\".join(planes), 0)", PUT),
    Mutation("the last stride of uneven steps is not looked at", "store/blob.py", "np.all(np.diff(array) == stride)",
             "np.any(np.diff(array) == stride)", PUT),
    Mutation("no checksum", "store/blob.py", "if zlib.crc32(body) != checksum:", "if False:",
             (*FILES, "-k", "blob")),
    Mutation("a stopped run does not give way", "store/rows.py", '"stopped": 1', '"stopped": 2', PUT),
    Mutation("the second result counts", "store/rows.py", "if not prefer_new:", "if prefer_new:", COPIES),
    Mutation("what a run found is not verified", "store/rows.py", "if not is_whole:", "if False:",
             (*FILES, "-k", "flip")),
    Mutation("lean copies are not verified", "store/rows.py", 'self.bare in ("", _bare(self.digest, found))', "True",
             (*COPIES, "-k", "flip")),
    Mutation("the provenance is not verified", "store/rows.py",
             "if identify(self.provenance) != self.provenance_id:", "if False:", (*FILES, "-k", "flip")),
    Mutation("provenance of nobody stays", "store/rows.py",
             'connection.execute("DELETE FROM provenance WHERE id NOT IN (SELECT provenance FROM runs)")', "pass", PUT),
    Mutation("a put is not undone", "store/store.py", 'connection.execute("ROLLBACK")\n                raise',
             'connection.execute("COMMIT")\n                raise', PUT),
    Mutation("the log alone has the last runs", "store/store.py", "PRAGMA wal_checkpoint(PASSIVE)",
             "PRAGMA user_version", FILES),
    Mutation("damage is found after the file was changed", "store/store.py", "existing.check_whole()", "pass", FILES),
    Mutation("pages are not looked at", "store/files.py", 'if finding != "ok":', "if False:", (*FILES, "-k", "pages")),
    Mutation("no lock", "store/files.py", 'connection.execute("BEGIN EXCLUSIVE")', 'connection.execute("BEGIN")',
             (*FILES, "-k", "one_writer")),
    Mutation("the log stays when a store is closed", "store/files.py", "PRAGMA journal_mode=DELETE",
             "PRAGMA journal_mode", FILES),
    Mutation("a store of another program is taken", "store/files.py", "if application != APPLICATION_ID:", "if False:",
             FILES),
    Mutation("a copy is made of a busy store", "store/store.py",
             "with files.locked(file), explained(file), replacing(file) as draft:",
             "with explained(file), replacing(file) as draft:", COPIES),
    Mutation("the log of what was there before stays", "store/store.py", '("-wal", "-shm", "-journal")', '("-shm",)',
             COPIES),
    Mutation("blobs of a compressed store stay large", "store/store.py",
             "row.repacked(blob.LEVEL) if source._is_unpacked else row", "row", COPIES),
    Mutation("of slices, the last counts", "store/store.py", "weight > best[run][0]", "weight >= best[run][0]", COPIES),
    Mutation("networks come after the record", "store/networks.py", "path.parent.mkdir(exist_ok=True)",
             "return path.parent.mkdir(exist_ok=True)", NETWORKS),
    Mutation("a network of another result", "store/networks.py", "in (digest, None)", "is not None", NETWORKS),
    Mutation("a damaged network", "store/networks.py", "if _digest(tensors, about) != expected:", "if False:",
             NETWORKS),
    Mutation("networks of results that gave way stay", "store/store.py", "if outcome is Outcome.REPLACED:", "if False:",
             NETWORKS),
    Mutation("another file is replaced unasked", "replace.py", "if not (is_own or overwrite):", "if False:", REPLACE),
    Mutation("a draft is written in place", "replace.py", 'f".{target.name}.{secrets.token_hex(4)}.part"',
             "target.name", REPLACE),
]  # fmt: skip
MUTATIONS = [replace(bug, file=f"dst_lab/{bug.file}") for bug in PLANTED]


def test_the_unchanged_copy_is_green_and_is_what_is_tested(tmp_path: Path) -> None:
    is_green_unchanged(MUTATIONS, tmp_path)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_tests_go_red(mutation: Mutation, tmp_path: Path) -> None:
    goes_red(mutation, tmp_path)

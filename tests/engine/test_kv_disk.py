"""What tiers keep records in: which goes first, who has which row, and files that a later process finds or does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.engine.kernels.interface import KVLayer
from headgate.engine.kv.disk import DiskFolder, DiskTier, KVFolderError
from headgate.engine.kv.order import Order
from headgate.engine.kv.records import BlockRecords, DeviceRecords, HostRecords
from headgate.engine.kv.shelf import Shelf, host_rows
from headgate.engine.kv.store import KVStore
from headgate.engine.models.spec import DecoderSpec

NBYTES = 100
SPACE = 4096
"""Of a record of so many bytes with its header, in pages."""


def named(number: int) -> bytes:
    return bytes([number]) * 16


class PlainOrder:
    """The same as Order, looking at everything."""

    def __init__(self) -> None:
        self.parents: dict[bytes, bytes] = {}
        self.used: list[bytes] = []
        self.held: list[bytes] = []

    def first(self) -> bytes | None:
        """Of those without children the least recently used."""
        inner = set(self.parents.values())
        free = [one for one in self.used if one not in self.held]
        return next((one for one in free if one not in inner), free[-1] if free else None)

    def add(self, identity: bytes, parent: bytes) -> None:
        self.parents[identity] = parent
        self.used.append(identity)

    def touch(self, identity: bytes) -> None:
        self.used.remove(identity)
        self.used.append(identity)

    def remove(self, identity: bytes) -> None:
        parent = self.parents.pop(identity)
        at = self.used.index(identity)
        del self.used[at]
        self.held = [one for one in self.held if one != identity]
        if parent in self.used and self.used.index(parent) < at:  # who used the tail used the head
            self.used.remove(parent)
            self.used.insert(at - 1, parent)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "add", "touch", "hold", "let", "remove", "pop"]), st.integers(1, 9)),
                max_size=120))  # fmt: skip
def test_tails_go_before_heads_and_of_those_the_least_recently_used(actions: list[tuple[str, int]]) -> None:
    order, plain = Order(), PlainOrder()
    for action, number in actions:
        identity = named(number)
        there = identity in plain.parents
        assert (identity in order) == there
        if action == "add" and not there:
            for each in (order, plain):
                each.add(identity, named(number // 2))
        elif action == "touch" and there:
            for each in (order, plain):
                each.touch(identity)
        elif action == "remove" and there:
            for each in (order, plain):
                each.remove(identity)
        elif action == "hold" and there:
            order.hold(identity)
            plain.held.append(identity)
        elif action == "let" and identity in plain.held:
            order.let_go(identity)
            plain.held.remove(identity)
        elif action == "pop":
            first = plain.first()
            assert order.pop() == first
            if first is not None:
                plain.remove(first)
        assert len(order) == len(plain.parents)


class ShelfMachine(RuleBasedStateMachine):
    """Rows are used, named, found and forgotten in any order; what a row holds is what its name says."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = Shelf(host_rows(3, 4, pinned=False))
        self.taken: list[tuple[int, bytes]] = []
        self.users: list[tuple[int, bytes]] = []

    @rule(number=st.integers(1, 6))
    def take(self, number: int) -> None:
        row = self.shelf.take()
        in_use = {row for row, _ in (*self.taken, *self.users)}
        assert (row is None) == (len(in_use) == 3)
        if row is not None:
            assert row not in in_use
            self.shelf.rows[row][:] = number
            self.shelf.name(row, named(number), named(number - 1))
            self.taken.append((row, named(number)))

    @rule(number=st.integers(1, 6))
    def use(self, number: int) -> None:
        row = self.shelf.use(named(number))
        assert (row is not None) == self.shelf.holds(named(number))
        if row is not None:
            self.users.append((row, named(number)))

    @precondition(lambda self: self.taken or self.users)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        which = self.taken if not self.users or (self.taken and data.draw(st.booleans())) else self.users
        self.shelf.done(which.pop(data.draw(st.integers(0, len(which) - 1)))[0])

    @rule(number=st.integers(1, 6))
    def forget(self, number: int) -> None:
        self.shelf.forget(named(number))
        assert not self.shelf.holds(named(number))

    @invariant()
    def true(self) -> None:
        for row, name in (*self.taken, *self.users):
            assert bytes(self.shelf.rows[row]) == name[:4], "a row in use was given away"
        assert len(self.shelf) == sum(self.shelf.holds(named(number)) for number in range(1, 7)) <= 3

    def teardown(self) -> None:
        for row, _ in (*self.taken, *self.users):
            self.shelf.done(row)
        assert len({self.shelf.take() for _ in range(3)}) == 3
        assert self.shelf.take() is None


TestShelf = ShelfMachine.TestCase
TestShelf.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


@contextmanager
def opened(folder: Path, records: int = 100, **how: Any) -> Iterator[tuple[DiskFolder, DiskTier]]:
    disk = DiskFolder(folder, records * SPACE, **how)
    try:
        yield disk, disk.tier("m", NBYTES)
    finally:
        disk.close()


def record(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.full(NBYTES, number, np.uint8)


def found(tier: DiskTier, number: int) -> bool:
    """And whole."""
    into = record(0)
    if not tier.read(named(number), into):
        assert not tier.holds(named(number))
        return False
    assert (into == number).all()
    return True


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "write", "touch", "forget", "restart"]), st.integers(1, 9)), max_size=40
    )
)
def test_files_against_a_list(actions: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        against_a_list(Path(folder), actions)


def against_a_list(folder: Path, actions: list[tuple[str, int]]) -> None:
    plain, at = PlainOrder(), 1_000_000_000
    disk = DiskFolder(folder, 4 * SPACE)
    tier = disk.tier("m", NBYTES)
    for action, number in actions:
        identity = named(number)
        if action == "write" and identity not in plain.parents:
            while len(plain.parents) >= 4:
                first = plain.first()
                assert first is not None
                plain.remove(first)
            assert tier.write(identity, named(number // 2), record(number))
            plain.add(identity, named(number // 2))
        elif action == "touch" and identity in plain.parents:
            tier.touch([identity])
            plain.touch(identity)
        elif action == "forget":
            tier.forget(identity)
            if identity in plain.parents:
                plain.remove(identity)
        elif action == "restart":
            disk.close()
            for used in plain.used:  # clocks of file systems are coarse
                (path,) = (folder / "m").glob(f"{used.hex()}*")
                at += 1
                os.utime(path, (at, at))
            disk = DiskFolder(folder, 4 * SPACE)
            tier = disk.tier("m", NBYTES)
        assert tier.sizes == (len(plain.parents), len(plain.parents) * SPACE)
    assert [found(tier, number) for number in range(1, 10)] == [named(n) in plain.parents for n in range(1, 10)]
    disk.close()


def damage_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def of_another_version(path: Path) -> None:
    path.write_bytes(b"hgate-k0" + path.read_bytes()[8:])


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        damage_bit,
        of_another_version,
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes() + b"more"),
        lambda path: os.truncate(path, 64),
        lambda path: path.unlink(),
        a_folder,
        lambda path: path.rename(path.with_name(named(3).hex() + path.name[32:])),
    ],
    ids=["bit", "version", "cut", "empty", "longer", "header", "gone", "folder", "name"],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_not_as_it_was_written_is_not_used(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture, *, restarted: bool
) -> None:
    with opened(tmp_path) as (_, tier):
        for number in (1, 2):
            assert tier.write(named(number), named(0), record(number))
        (path,) = (tmp_path / "m").glob(f"{named(1).hex()}*")
        damage(path)
        if not restarted:
            assert [found(tier, number) for number in (1, 2, 1)] == [False, True, False]
            assert len(caplog.messages) == 1
            assert not tier.holds(named(1))
            return
    with opened(tmp_path) as (_, tier):
        assert [found(tier, number) for number in (1, 2, 3)] == [False, True, False]
        assert tier.write(named(1), named(0), record(1)) or damage is a_folder
        assert found(tier, 1) or damage is a_folder


def test_a_folder_is_its_owners_and_one_process_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "kv"
    with opened(folder) as (disk, tier):
        key = disk.key
        tier.write(named(1), named(0), record(1))
        with pytest.raises(KVFolderError, match=r"kv_disk_path: .* is used by another process; each needs a folder"):
            DiskFolder(folder, 1 << 20)
        assert {oct(path.stat().st_mode & 0o777) for path in folder.rglob("*") if path.is_file()} == {"0o600"}
        assert {oct(path.stat().st_mode & 0o777) for path in (folder, folder / "m")} == {"0o700"}
    (folder / "m" / "left.part").write_bytes(b"of a process that was killed")
    (folder / "notes.txt").write_text("of somebody else")
    with opened(folder) as (disk, tier):
        assert (disk.key, found(tier, 1)) == (key, True)
        assert {path.name for path in folder.iterdir()} == {"key", "lock", "m", "notes.txt"}
        assert len(list((folder / "m").iterdir())) == 1
    (folder / "key").write_bytes(b"short")
    with opened(folder) as (disk, _):
        assert disk.key != key
        assert len(disk.key) == 32


def test_a_folder_that_cannot_be_used_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KVFolderError, match=r"kv_disk_path: .*/file cannot be used: File exists"):
        DiskFolder(tmp_path / "file", 1 << 20)
    with pytest.raises(KVFolderError, match=r"kv_disk_path: .*/file/kv cannot be used: Not a directory"):
        DiskFolder(tmp_path / "file" / "kv", 1 << 20)
    with (
        opened(tmp_path / "kv", 1) as (disk, _),
        pytest.raises(KVFolderError, match="kv_disk_bytes 4096 holds no block; 8192 is the least"),
    ):
        disk.tier("m", 5000)


def test_a_disk_that_takes_no_more_is_left_alone_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    with opened(tmp_path, clock=lambda: now) as (_, tier):
        assert tier.write(named(1), named(0), record(1))

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as broken:
            broken.setattr(os, "open", full)
            assert not tier.write(named(2), named(1), record(2))
        assert not tier.writable
        assert [found(tier, number) for number in (1, 2)] == [True, False]
        now = 31.0
        assert tier.writable
        assert tier.write(named(2), named(0), record(2))
        assert [found(tier, number) for number in (1, 2)] == [False, True], "there was room for one"
        with monkeypatch.context() as broken:
            broken.setattr(os, "open", full)
            assert not tier.write(named(3), named(1), record(3))
            now = 62.0
            assert not tier.write(named(4), named(1), record(4))
        told = ["[Errno 28] No space left on device"] * 2
        assert [message.split(": ")[-1] for message in caplog.messages] == told, "once, and again after it went well"


def test_a_folder_that_is_taken_away_is_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "of" / "kv"
    with opened(folder, 3) as (disk, tier):
        for number in (1, 2):
            assert tier.write(named(number), named(number - 1), record(number))
        shutil.rmtree(tmp_path / "of")
        assert not found(tier, 1)
        assert tier.write(named(3), named(0), record(3))
        assert [found(tier, number) for number in (1, 2, 3)] == [False, False, True]
        assert tier.sizes == (1, SPACE)
        assert sum("was taken away, and is made anew" in message for message in caplog.messages) == 1
        assert (folder.stat().st_mode & 0o777, (folder / "key").read_bytes()) == (0o700, disk.key)
        with pytest.raises(KVFolderError, match="used by another process"), opened(folder):
            pass
    with opened(folder, 3) as (again, tier):
        assert again.key == disk.key
        assert found(tier, 3)


def test_a_folder_that_another_has_taken_over_is_left_to_it(tmp_path: Path) -> None:
    with opened(tmp_path / "kv") as (_, tier):
        shutil.rmtree(tmp_path / "kv")
        with opened(tmp_path / "kv") as (_, others):
            assert not tier.write(named(1), named(0), record(1))
            assert not tier.writable
            assert others.write(named(1), named(0), record(1))


def test_less_room_after_a_restart_leaves_what_was_used_last(tmp_path: Path) -> None:
    with opened(tmp_path) as (_, tier):
        for number in range(1, 6):
            tier.write(named(number), named(number - 1), record(number))
        for other in range(11, 14):
            tier.write(named(other), named(other - 1), record(other))
    for path in (tmp_path / "m").iterdir():
        used = 1_000_000_000 + (path.name < "08")
        os.utime(path, (used, used))
    with opened(tmp_path, 4) as (_, tier):
        assert [number for number in (*range(1, 6), *range(11, 14)) if found(tier, number)] == [1, 2, 3, 4]


class Shape:
    """Of a model whose layers differ."""

    kv_shapes = ((2, 8), (1, 4))
    kv_windows = (None, None)
    state_shapes = ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_records_are_blocks_byte_for_byte(dtype: torch.dtype, *, on_device: bool) -> None:
    shape: DecoderSpec = Shape()  # type: ignore[assignment]
    cpu = torch.device("cpu")
    store = KVStore(shape, 6, 4, dtype, cpu)
    assert all(isinstance(layer, KVLayer) for layer in store.layers)
    for tensor in store.tensors:
        tensor.view(torch.uint8).random_(generator=torch.Generator().manual_seed(1))
    before = [tensor.clone() for tensor in store.tensors]
    records: BlockRecords = DeviceRecords(store, cpu) if on_device else HostRecords(store)
    shelf = Shelf(host_rows(3, store.nbytes // 6, pinned=False))
    records.save([4, 1], shelf, [2, 0])()
    store.clear(range(6))
    records.open([0, 3])()
    records.load(shelf, [2, 0], [0, 3])
    for tensor, was in zip(store.tensors, before, strict=True):
        blocks, old = tensor.view(6, -1).view(torch.uint8), was.view(6, -1).view(torch.uint8)
        assert torch.equal(blocks[[0, 3]], old[[4, 1]])
        assert not blocks[[1, 2, 4, 5]].any()

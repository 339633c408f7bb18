"""`asyncbroker log dump|check|repair` on real files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from asyncbroker.__main__ import cli
from asyncbroker.coordinator.records import offset_tombstone
from asyncbroker.log.config import LogConfig
from asyncbroker.log.files import RealFiles
from asyncbroker.log.journal import FILE_BYTES_MIN
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import append, append_each, batch, from_producer
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.protocol.records import Record, batches, build_batch, records_of

GOLDEN = Path(__file__).parents[1] / "log" / "tests" / "golden" / "kafka-4.3.1"
# Three batches a segment: 0, 3, 6 and 9.
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=50)
COUNT = 11
BATCH_BYTES = len(batch(b"x" * 20))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["log", *map(str, arguments)])


def opened(data: Path) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(RealFiles(), str(data), cluster_id="c", node_id=1)
    log = directory.open_partition(
        "flights", 0, topic_id=bytes(16), config=CONFIG, leader_epoch=0, now_ms=0
    )
    return directory, log


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    directory, log = opened(path)
    append_each(log, COUNT - 1)
    append(log, from_producer(0, b"x" * 20))
    directory.close()
    return path


def segment(data: Path, base_offset: int, suffix: str = ".log") -> Path:
    return data / "flights-0" / f"{base_offset:020d}{suffix}"


def damage(path: Path, position: int, replacement: bytes = b"\xaa") -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(replacement)] = replacement
    path.write_bytes(content)


def offsets_read(data: Path) -> list[int]:
    directory, log = opened(data)
    found, offset = [], log.log_start_offset
    while (located := log.locate(offset, 1 << 20, end_offset=log.end_offset)) is not None:
        for header, content in batches(located.read()):
            found += [record.offset for record in records_of(content, header)]
            offset = header.next_offset
    directory.close()
    return found


def bytes_of(data: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_nothing_is_found_in_what_is_whole_and_nothing_is_written(data: Path) -> None:
    before = bytes_of(data)
    for path in (data, data / "flights-0", segment(data, 3), GOLDEN):
        result = run("check", path)
        assert (result.exit_code, result.output) == (0, "no damage\n")
    assert "nothing to repair" in run("repair", data, "--yes").output
    assert bytes_of(data) == before


def test_every_kind_of_damage_is_listed_with_file_position_and_offsets(data: Path) -> None:
    damage(segment(data, 3), BATCH_BYTES + 70)
    damage(segment(data, 6, ".index"), 8, b"\x00\x00\x00\x07")
    damage(segment(data, 6, ".timeindex"), 3)
    damage(segment(data, 11, ".snapshot"), 9)
    damage(data / "flights-0" / "leader-epoch-checkpoint", 0)
    damage(data / "recovery-point-offset-checkpoint", 2)
    result = run("check", data, "--json")
    assert result.exit_code == 1
    found = {
        (Path(line["path"]).name, line["position"], line["first_offset"], line["next_offset"])
        for line in map(json.loads, result.output.splitlines())
    }
    assert found == {
        (f"{3:020d}.log", BATCH_BYTES, 4, 5),
        (f"{6:020d}.index", 8, -1, -1),
        (f"{6:020d}.timeindex", 0, -1, -1),
        (f"{11:020d}.snapshot", -1, -1, -1),
        ("leader-epoch-checkpoint", -1, -1, -1),
        ("recovery-point-offset-checkpoint", -1, -1, -1),
    }
    text = run("check", data).output
    assert f"{segment(data, 3)}:{BATCH_BYTES}: the CRC does not match: offsets 4 to 4" in text
    assert "a broker answers CORRUPT_MESSAGE for these offsets and serves the rest" in text
    assert text.endswith("6 found\n")


def test_a_segment_that_is_gone_between_others_is_listed_unless_its_log_is_compacted(
    data: Path,
) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        segment(data, 3, suffix).unlink()
    found = run("check", data)
    assert found.exit_code == 1
    assert "compacted away, or lost with a file: offsets 3 to 5" in found.output
    assert "nothing to repair" in run("repair", data, "--yes").output
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nflights 0 9\n")
    assert run("check", data).output == "no damage\n"


def test_a_repair_says_what_it_will_do_and_then_does_it(data: Path) -> None:
    for offset in (1, 4, 10):
        base = offset // 3 * 3
        damage(segment(data, base), (offset - base) * BATCH_BYTES + 70)
    damage(segment(data, 6, ".index"), 8, b"\x00\x00\x00\x07")
    before = bytes_of(data)
    said = run("repair", data)
    assert said.exit_code == 0
    assert "an empty batch stands for offsets 4 to 4" in said.output
    assert "nothing was changed" in said.output
    after = bytes_of(data)
    after.pop(str(data / ".lock"), None)
    before.pop(str(data / ".lock"), None)
    assert after == before
    lost = segment(data, 3).read_bytes()[BATCH_BYTES : 2 * BATCH_BYTES]
    assert run("repair", data, "--yes").output.endswith("done\n")
    kept = data / "flights-0" / f"{3:020d}.{BATCH_BYTES}.quarantined"
    assert kept.read_bytes() == lost
    assert segment(data, 6, ".index.quarantined").exists()
    assert offsets_read(data) == [0, 2, 3, 5, 6, 7, 8, 9]
    directory, log = opened(data)
    assert append(log).base_offset == COUNT
    directory.close()
    assert run("check", data).exit_code == 0
    (data / ".kafka_cleanshutdown").unlink()
    assert offsets_read(data) == [0, 2, 3, 5, 6, 7, 8, 9, COUNT]


def test_damage_that_a_broker_found_is_repaired_and_forgotten(data: Path) -> None:
    damage(segment(data, 9), BATCH_BYTES + 70)
    (data / ".kafka_cleanshutdown").unlink()
    damage(segment(data, 9), BATCH_BYTES, bytes(40))
    directory, _ = opened(data)
    directory.close()
    assert (data / "flights-0" / "damaged-ranges").exists()
    assert "damaged, as is known" in run("check", data).output
    run("repair", data, "--yes")
    assert run("check", data).output == "no damage\n"
    assert offsets_read(data) == list(range(10))
    assert not (data / "flights-0" / "damaged-ranges").exists()


def test_a_producer_whose_newest_batch_was_taken_out_goes_on(data: Path) -> None:
    directory, log = opened(data)
    append(log, from_producer(1, b"x" * 20))
    directory.close()
    damage(segment(data, 9), 2 * BATCH_BYTES + 70)
    for path in (data / "flights-0").glob("*.snapshot*"):
        path.unlink()
    assert run("repair", data, "--yes").output.endswith("done\n")
    dumped = run("dump", data / "flights-0" / "damaged-ranges").output
    assert dumped.endswith("no longer there: offset 11\n")
    directory, log = opened(data)
    with pytest.raises(KafkaError, match="sequence 3 of producer 7"):
        append(log, from_producer(3, b"x" * 20))
    assert append(log, from_producer(2, b"x" * 20)).base_offset == COUNT + 1
    directory.close()


def test_a_torn_tail_is_cut_and_kept(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").unlink()
    path = segment(data, 9)
    path.write_bytes(path.read_bytes()[:-5])
    torn = path.read_bytes()[BATCH_BYTES:]
    assert "a broker cuts the log here" in run("check", data).output
    assert "cut off bytes" in run("repair", data / "flights-0", "--yes").output
    assert path.stat().st_size == BATCH_BYTES
    assert (data / "flights-0" / f"{9:020d}.{BATCH_BYTES}.quarantined").read_bytes() == torn
    assert run("check", data).exit_code == 0


def test_a_log_that_ends_before_its_promise_is_found(data: Path) -> None:
    path = segment(data, 9)
    path.write_bytes(path.read_bytes()[:BATCH_BYTES])
    result = run("check", data)
    assert result.exit_code == 1
    assert "the log ends at offset 10, and was durable to 11: offsets 10 to 10" in result.output


def test_a_flipped_digit_in_a_checkpoint_is_found(data: Path) -> None:
    path = data / "recovery-point-offset-checkpoint"
    path.write_bytes(path.read_bytes().replace(b" 11", b" 71"))
    result = run("check", data, "--json")
    findings = [json.loads(line)["what"] for line in result.output.splitlines()]
    assert findings == ["its checksum does not match"]
    assert "nothing to repair" in run("repair", data, "--yes").output


def test_what_is_recorded_of_compaction_is_looked_at_as_well(data: Path) -> None:
    directory, _ = opened(data)
    directory.record_cleaned("flights", 0, 9)
    directory.close()
    path = data / "cleaner-offset-checkpoint"
    assert json.loads(run("dump", path, "--json").output)["flights-0"] == "9"
    path.write_bytes(path.read_bytes().replace(b" 9", b" 8"))
    [finding] = [json.loads(line) for line in run("check", data, "--json").output.splitlines()]
    assert finding["path"] == str(path)
    assert finding["what"] == "its checksum does not match"


def test_a_directory_in_use_is_not_repaired(data: Path) -> None:
    directory, _ = opened(data)
    result = run("repair", data)
    assert result.exit_code == 1
    assert "in use by a broker" in result.output
    directory.close(clean=False)


def test_dump_shows_batches_records_and_the_other_files(data: Path) -> None:
    damage(segment(data, 0), 70)
    result = run("dump", data, "--records", "--json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()]
    by_file: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        by_file.setdefault(Path(row["file"]).name, []).append(row)
    first, second, record, *_ = by_file[f"{0:020d}.log"]
    assert (first["damage"], first["offset"]) == ("the CRC does not match", 0)
    assert (second["offset"], second["position"], second["codec"]) == (1, BATCH_BYTES, "none")
    assert (record["record"], str(record["value"])[:2]) == (1, "1-")
    assert by_file[f"{3:020d}.index"][0]["offset"] == 4
    assert by_file[f"{11:020d}.snapshot"][0]["producer"] == 7
    assert by_file["recovery-point-offset-checkpoint"][0]["flights-0"] == "11"
    assert by_file["meta.properties"][0]["cluster.id"] == "c"
    assert by_file["leader-epoch-checkpoint"][0]["epoch 0"] == "from offset 0"
    text = run("dump", segment(data, 9)).output
    assert f"position: {BATCH_BYTES}" in text
    assert "producer: 7" in text


def test_dump_decodes_committed_offsets(tmp_path: Path) -> None:
    key, value = offset_tombstone("group", "flights", 3)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(build_batch([Record(0, 0, key, value)]))
    [_, row] = map(json.loads, run("dump", path, "--offsets", "--json").output.splitlines())
    assert (row["group"], row["topic"], row["partition"]) == ("group", "flights", 3)
    assert row["deleted"] is True


def test_what_is_no_file_of_a_log_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "else.txt"
    path.write_text("text")
    result = run("dump", path)
    assert result.exit_code == 1
    assert "no file of a log" in result.output


# ---- the journal


def test_check_tells_of_a_journal_and_repair_leaves_it_to_the_broker(tmp_path: Path) -> None:
    path = tmp_path / "data"
    directory = LogDirectory.open(
        RealFiles(), str(path), cluster_id="c", node_id=1, journal_bytes=FILE_BYTES_MIN
    )
    log = directory.open_partition(
        "flights", 0, topic_id=bytes(16), config=CONFIG, leader_epoch=0, now_ms=0
    )
    append(log)
    log.flush()
    append(log)
    stretch = log.stretch_for_journal(0, 1000)
    assert directory.journal is not None
    assert stretch is not None
    directory.journal.prepare()
    directory.journal.append([stretch])
    directory.close(clean=False)
    checked = run("check", path)
    assert checked.exit_code == 1
    assert ".asyncbroker_journal: its 1 frames are not known to be in the logs" in checked.output
    for place in (path, path / "flights-0"):
        refused = run("repair", "--yes", place)
        assert refused.exit_code == 1
        assert "start the broker, which writes them to the logs" in refused.output
    assert offsets_read(path) == [0, 1]
    assert run("check", path).exit_code == 0
    assert run("repair", path).output == "nothing to repair\n"

"""The tables of settings, against what Apache Kafka 4.3 prints of its own; reading values."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from asyncbroker.config_entries import is_dynamic
from asyncbroker.settings import (
    InvalidSetting,
    Setting,
    SettingType,
    attribute_of,
    broker_setting,
    broker_settings,
    is_passed_over,
    nearest,
    text_of,
    topic_settings,
    unused_dynamic_settings,
    unused_settings,
)
from asyncbroker.settings_broker import STAND_INS
from asyncbroker.settings_topic import INHERITED_FROM

KAFKA_SETTINGS = Path(__file__).parent / "kafka_settings_4_3.tsv"
KAFKA_DYNAMIC_SETTINGS = Path(__file__).parent / "kafka_dynamic_settings_4_3.tsv"

# Where one node is better served by another default; each is told in `settings_broker.py`.
OUR_DEFAULTS = {
    "controller.listener.names": "",
    "log.dir": None,
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "process.roles": "broker",
    "queued.max.request.bytes": "268435456",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "socket.listen.backlog.size": "1024",
    "socket.receive.buffer.bytes": "-1",
    "socket.send.buffer.bytes": "-1",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
}


def kafka_rows(table: str) -> list[list[str]]:
    with KAFKA_SETTINGS.open() as file:
        rows = csv.reader((line for line in file if not line.startswith("#")), delimiter="\t")
        return [row[1:] for row in rows if row[0] == table]


def setting(allowed: str, type: SettingType = SettingType.INT) -> Setting:
    return Setting("some.name", type, None, allowed, "What it is.", has_effect=True)


def test_every_broker_setting_of_kafka_is_known_with_its_type_and_default() -> None:
    for name, type_name, default, _ in kafka_rows("broker"):
        ours = broker_setting(name)
        assert ours is not None, name
        assert ours.type.name == type_name, name
        assert ours.default == OUR_DEFAULTS.get(name, None if default == "-" else default), name


def test_settings_without_effect_can_change_when_kafkas_can_but_for_tls_and_users() -> None:
    with KAFKA_DYNAMIC_SETTINGS.open() as file:
        rows = csv.reader((line for line in file if not line.startswith("#")), delimiter="\t")
        dynamic = {name: of == "cluster-wide" for name, of in rows}
    doors = ("ssl.", "sasl.jaas.config", "principal.builder.class")
    assert unused_dynamic_settings() == {
        name: for_all
        for name, for_all in dynamic.items()
        if name in unused_settings()
        and name not in INHERITED_FROM.values()
        and not name.startswith(doors)
    }
    ours = {name for name in broker_settings() if is_dynamic(name)}
    assert {name for name in ours if not name.startswith("asyncbroker.")} <= dynamic.keys()


def test_every_topic_setting_of_kafka_is_known_with_its_type_and_default() -> None:
    for name, type_name, default, _ in kafka_rows("topic"):
        ours = topic_settings()[name]
        assert ours.type.name == type_name, name
        assert ours.default == (None if default == "-" else default), name


def test_every_setting_is_explained_in_a_sentence() -> None:
    for table in (broker_settings(), topic_settings(), unused_settings()):
        for each in table.values():
            assert each.documentation.endswith((".", ")")), each.name
            assert each.documentation[0].isupper() or "." in each.documentation, each.name


@pytest.mark.parametrize(
    ("table", "of"), [("broker", broker_setting), ("topic", topic_settings().get)]
)
def test_least_values_are_those_of_kafka(table: str, of: object) -> None:
    for name, _, _, validator in kafka_rows(table):
        if not re.match(r"\[-?\d+,\.\.\.", validator):
            continue
        ours = of(name)  # type: ignore[operator]
        least = int(validator[1 : validator.index(",")])
        assert ours.parse(str(least)) == least
        if "or -1" not in validator:
            with pytest.raises(InvalidSetting):
                ours.parse(str(least - 1))


def test_no_other_names_than_kafkas_and_our_own_are_known() -> None:
    kafkas = {row[0] for row in kafka_rows("broker")}
    ours = {*broker_settings(), *unused_settings()}
    own = ("asyncbroker.", "log.journal.")
    assert {name for name in ours - kafkas if not name.startswith(own)} == set()
    assert set(topic_settings()) == {row[0] for row in kafka_rows("topic")}
    assert not set(broker_settings()) & set(unused_settings())


def test_our_own_settings_end_in_their_unit_or_count_things() -> None:
    own = {name for name in broker_settings() if name.startswith("asyncbroker.")}
    units = ("bytes.per.second", ".bytes", ".ms")
    counts = {
        "asyncbroker.max.partitions",
        "asyncbroker.max.open.files",
        "asyncbroker.max.waiting.fetches",
        "asyncbroker.metrics.topics.max",
        "asyncbroker.worker.threads",
        "asyncbroker.reader.threads",
        "asyncbroker.replication.factor.cap",
    }
    assert {name for name in own if not name.endswith(units)} <= counts


def test_every_default_is_a_value_that_the_setting_takes() -> None:
    for table in (broker_settings(), topic_settings(), unused_settings()):
        for each in table.values():
            if each.default is not None:
                assert text_of(each.default_value()) == each.default or each.type is (
                    SettingType.DOUBLE
                )


def test_what_topics_inherit_and_what_stands_in_are_settings() -> None:
    for name, inherited in INHERITED_FROM.items():
        assert topic_settings()[name].type is getattr(broker_setting(inherited), "type", None)
    for name, stand_ins in STAND_INS.items():
        assert broker_setting(name)
        assert all(broker_setting(stand_in) for stand_in, _ in stand_ins)


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (SettingType.BOOLEAN, "TRUE", True),
        (SettingType.BOOLEAN, " false ", False),
        (SettingType.INT, "-2147483648", -2147483648),
        (SettingType.LONG, "9223372036854775807", 9223372036854775807),
        (SettingType.DOUBLE, "0.5", 0.5),
        (SettingType.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (SettingType.LIST, "", ()),
        (SettingType.LIST, "a, b ,c", ("a", "b", "c")),
        (SettingType.STRING, "", ""),
        (SettingType.PASSWORD, "secret", "secret"),
    ],
)
def test_values_are_read_as_kafka_reads_them(type: SettingType, text: str, value: object) -> None:
    assert setting(".", type).parse(text) == value


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (SettingType.BOOLEAN, "yes"),
        (SettingType.BOOLEAN, ""),
        (SettingType.INT, "2147483648"),
        (SettingType.INT, "1_000"),
        (SettingType.INT, "٣"),
        (SettingType.INT, "1.0"),
        (SettingType.SHORT, "32768"),
        (SettingType.LONG, "9223372036854775808"),
        (SettingType.LONG, "${retention}"),
        (SettingType.DOUBLE, "nan"),
        (SettingType.DOUBLE, "a lot"),
        (SettingType.LIST, "a,b,a"),
    ],
)
def test_what_kafka_refuses_is_refused(type: SettingType, text: str) -> None:
    with pytest.raises(InvalidSetting):
        setting("a|b" if type is SettingType.LIST else ".", type).parse(text)


@pytest.mark.parametrize(
    ("allowed", "type", "words"),
    [
        (".", SettingType.BOOLEAN, "true or false"),
        (".", SettingType.INT, "a whole number of 32 bits"),
        ("1..", SettingType.INT, "a whole number of 1 or more"),
        ("0..1", SettingType.DOUBLE, "a number from 0 to 1"),
        ("-1|1..9", SettingType.INT, "a whole number from 1 to 9, or -1"),
        ("a|b", SettingType.STRING, "one of a, b"),
        ("~A|B", SettingType.STRING, "one of A, B"),
        ("a|b", SettingType.LIST, "a list of a, b"),
        (".", SettingType.LIST, "a list"),
        (".", SettingType.STRING, "a text"),
        ("throttled", SettingType.LIST, "* or a list of PARTITION:BROKER"),
    ],
)
def test_what_is_allowed_is_said_in_words(allowed: str, type: SettingType, words: str) -> None:
    assert setting(allowed, type).describe_allowed() == words


def test_an_error_names_setting_value_and_what_is_allowed() -> None:
    with pytest.raises(InvalidSetting) as caught:
        setting("1..").parse("0")
    assert str(caught.value) == "some.name=0: must be a whole number of 1 or more"


def test_a_wrong_password_is_not_shown() -> None:
    with pytest.raises(InvalidSetting, match=r"some.name=\(hidden\)"):
        setting("a", SettingType.PASSWORD).parse("hunter2")


def test_a_choice_in_any_case_is_taken_where_kafka_takes_it() -> None:
    assert setting("~DISABLED|UPGRADE", SettingType.STRING).parse("upgrade") == "upgrade"
    with pytest.raises(InvalidSetting):
        setting("gzip|lz4", SettingType.STRING).parse("GZIP")


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,1:1"])
def test_throttled_replicas_are_a_star_or_pairs(text: str) -> None:
    setting("throttled", SettingType.LIST).parse(text)
    with pytest.raises(InvalidSetting):
        setting("throttled", SettingType.LIST).parse(f"{text},x" if text else "x")


def test_names_of_earlier_releases_and_of_plug_ins_are_passed_over() -> None:
    assert is_passed_over("zookeeper.connect")
    assert is_passed_over("listener.name.internal.ssl.keystore.location")
    assert not is_passed_over("num.partitons")


def test_the_nearest_name_is_offered() -> None:
    assert nearest("num.partitons", broker_settings()) == "; did you mean num.partitions?"
    assert nearest("entirely.different", broker_settings()) == ""


def test_attributes_are_names_in_snake_case() -> None:
    assert attribute_of("num.partitions") == "num_partitions"
    assert attribute_of("asyncbroker.worker.threads") == "worker_threads"

"""Groups of the consumer protocol (KIP-848) with librdkafka: members come and go, no partition has
two owners, and none is without one for long."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.groups import list_groups
from compat_tests.conftest import BrokerProcess
from compat_tests.consumer_groups import broker_of
from compat_tests.suites.confluent_kafka.fleet import Fleet, send

Fresh = Callable[[str], str]
PARTITIONS = 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_of(tmp_path_factory.mktemp("consumer-groups")) as process:
        yield process


def fleet_of(broker: BrokerProcess, fresh: Fresh) -> Fleet:
    topic = fresh("topic")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    return Fleet(broker.bootstrap_servers, fresh("group"), topic)


def values_of(prefix: str, count: int = 40) -> list[bytes]:
    return [f"{prefix}-{number}".encode() for number in range(count)]


def test_members_come_and_go(broker: BrokerProcess, fresh: Fresh) -> None:
    fleet = fleet_of(broker, fresh)
    sent = send(fleet.servers, fleet.topic, values_of("one"), PARTITIONS)
    fleet.start("a")
    fleet.until_shared(PARTITIONS)
    fleet.until_read(sent)
    before = set(fleet.partitions()["a"])
    fleet.start("b")
    fleet.until_shared(PARTITIONS)
    assert set(fleet.partitions()["a"]) < before
    fleet.start("c")
    fleet.until_shared(PARTITIONS)
    fleet.stop("a")
    fleet.until_shared(PARTITIONS)
    more = send(fleet.servers, fleet.topic, values_of("two"), PARTITIONS)
    fleet.until_read(more)
    fleet.stop_all()
    # What was committed by members who are gone is where the next one begins.
    assert len(fleet.values) == len(sent) + len(more)


def test_partitions_that_are_added_are_read(broker: BrokerProcess, fresh: Fresh) -> None:
    fleet = fleet_of(broker, fresh)
    fleet.start("a")
    fleet.start("b")
    fleet.until_shared(PARTITIONS)
    admin = AdminClient({"bootstrap.servers": fleet.servers})
    admin.create_partitions([NewPartitions(fleet.topic, 6)])[fleet.topic].result(20)
    fleet.until_shared(6)
    fleet.stop_all()


def test_topics_that_match_an_expression_are_read(broker: BrokerProcess, fresh: Fresh) -> None:
    fleet = fleet_of(broker, fresh)
    prefix = fleet.topic
    fleet.topic = f"^{prefix}.*"
    fleet.start("a")
    fleet.until_shared(PARTITIONS)
    admin = AdminClient({"bootstrap.servers": fleet.servers})
    admin.create_topics([NewTopic(f"{prefix}-later", 2, 1)])[f"{prefix}-later"].result(20)

    def has_both(_parts: dict[str, list[int]]) -> bool:
        topics = {place.topic for place in fleet.members["a"].assignment()}
        return topics == {prefix, f"{prefix}-later"}

    fleet.until(has_both)
    fleet.stop_all()


def test_a_static_member_keeps_its_partitions_over_a_restart(
    broker: BrokerProcess, fresh: Fresh
) -> None:
    fleet = fleet_of(broker, fresh)
    fleet.start("a", **{"group.instance.id": "ia"})
    fleet.start("b", **{"group.instance.id": "ib"})
    fleet.until_shared(PARTITIONS)
    before = fleet.partitions()
    # It leaves for a while (epoch -2): its partitions wait for it.
    fleet.stop("b")
    for _ in range(20):
        fleet.poll()
    assert fleet.partitions() == {"a": before["a"]}
    fleet.start("b", **{"group.instance.id": "ib"})
    fleet.until(lambda parts: parts == before)
    fleet.stop_all()


# Not the sticky ones of librdkafka: they put data of their own into assignments, which would be
# lost, and so such a group cannot change over, in Kafka as here.
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_a_group_changes_over_and_back_while_it_runs(
    broker: BrokerProcess, fresh: Fresh, strategy: str
) -> None:
    fleet = fleet_of(broker, fresh)
    classic = {"group.protocol": "classic", "partition.assignment.strategy": strategy}

    def state() -> tuple[str, set[str]]:
        with Cluster(fleet.servers) as cluster:
            (group,) = [g for g in list_groups(cluster) if g.group_id == fleet.group]
        return group.group_type, set(fleet.members)

    fleet.start("a", **classic)
    fleet.start("b", **classic)
    fleet.until_shared(PARTITIONS)
    assert state() == ("classic", {"a", "b"})
    sent = send(fleet.servers, fleet.topic, values_of("classic"), PARTITIONS)
    fleet.until_read(sent)

    # One after the other is replaced, as in a rolling upgrade.
    fleet.start("c")
    fleet.until_shared(PARTITIONS)
    assert state() == ("consumer", {"a", "b", "c"})
    fleet.stop("a")
    fleet.until_shared(PARTITIONS)
    sent |= send(fleet.servers, fleet.topic, values_of("mixed"), PARTITIONS)
    fleet.until_read(sent)
    fleet.stop("b")
    fleet.start("d")
    fleet.until_shared(PARTITIONS)
    assert state() == ("consumer", {"c", "d"})

    fleet.start("e", **classic)
    fleet.until_shared(PARTITIONS)
    fleet.stop("c")
    fleet.until_shared(PARTITIONS)
    fleet.stop("d")
    fleet.until_shared(PARTITIONS)
    assert state() == ("classic", {"e"})
    sent |= send(fleet.servers, fleet.topic, values_of("classic again"), PARTITIONS)
    fleet.until_read(sent)
    fleet.stop_all()


def test_the_broker_is_killed_and_the_group_goes_on(
    tmp_path_factory: pytest.TempPathFactory, fresh: Fresh
) -> None:
    with broker_of(tmp_path_factory.mktemp("killed")) as broker:
        fleet = fleet_of(broker, fresh)
        first = send(fleet.servers, fleet.topic, values_of("one"), PARTITIONS)
        fleet.start("a")
        fleet.start("b")
        fleet.until_shared(PARTITIONS)
        fleet.until_read(first)
        had = fleet.partitions()
        fleet.until(lambda _parts: fleet.committed() == len(first))
        broker.kill()
        broker.start()
        second = send(fleet.servers, fleet.topic, values_of("two"), PARTITIONS)
        fleet.until_read(second)
        # The members went on where they were: nobody had to begin anew.
        assert fleet.partitions() == had
        assert len(fleet.values) == len(first) + len(second)
        fleet.stop_all()

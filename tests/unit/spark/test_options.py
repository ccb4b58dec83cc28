"""Options: what is taken, and what is refused in which words."""

from __future__ import annotations

import json

import pytest

from headrace.core.errors import InvalidOption
from headrace.spark.offset_words import EARLIEST, LATEST
from headrace.spark.offsets import TopicPosition, encode_position
from headrace.spark.options import COLUMNS, ReadOptions, parse_read_options
from headrace.spark.write_options import parse_write_options

SERVER = {"servers": "127.0.0.1:9092"}
TOPIC = {**SERVER, "subscribe": "orders"}


def batch(**given: str) -> ReadOptions:
    return parse_read_options(given, "batch")


def stream(**given: str) -> ReadOptions:
    return parse_read_options(given, "stream")


def test_two_options_are_enough_to_read() -> None:
    options = batch(**TOPIC)
    assert options.servers == ("127.0.0.1:9092",)
    assert options.topics.names == ("orders",)
    assert options.columns == COLUMNS
    assert (options.starting.everywhere, options.ending.everywhere) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    assert stream(**TOPIC).starting.everywhere == LATEST


def test_names_of_options_do_not_care_about_case() -> None:
    options = parse_read_options(
        {"KAFKA.bootstrap.SERVERS": "a:1,b:2", "SUBSCRIBE": "x, y", "INCLUDEheaders": "TRUE"},
        "batch",
    )
    assert options.servers == ("a:1", "b:2")
    assert options.topics.names == ("x", "y")
    assert options.include_headers


def test_the_names_of_the_kafka_source_are_known() -> None:
    options = parse_read_options(
        {
            "kafka.bootstrap.servers": "a:1",
            "subscribePattern": "orders-.*",
            "startingOffsetsByTimestamp": '{"orders-1": {"0": 1700000000000}}',
            "minPartitions": "8",
            "maxOffsetsPerTrigger": "1000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "30s",
            "progressGroup": "lag",
            "failOnDataLoss": "false",
            "kafka.isolation.level": "read_uncommitted",
        },
        "stream",
    )
    assert options.topics.pattern == "orders-.*"
    assert options.starting.places == {("orders-1", 0): 1_700_000_000_000}
    assert options.max_trigger_delay_ms == 30_000
    assert options.progress_group == "lag"
    assert not options.fail_on_data_loss
    assert options.isolation_level == 0


def test_columns_may_be_chosen() -> None:
    assert batch(**TOPIC, columns="offset, VALUE").columns == ("offset", "value")


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("127.0.0.1:7000", ("127.0.0.1:7000",)),
        ("headrace://node.example:7000/", ("node.example:7000",)),
        ("headrace://node.example", ("node.example:9092",)),
        ("headrace://a:7000,b", ("a:7000", "b:9092")),
        ("grpc://a:9081,b:9081,headrace://a:7000,b/", ("a:7000", "b:9092")),
    ],
)
def test_the_node_comes_from_the_environment_unless_one_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, servers: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HEADRACE_URL", url)
    assert batch(subscribe="orders").servers == servers
    assert parse_write_options({"topic": "orders"}, is_stream=False).servers == servers
    assert batch(**TOPIC).servers == ("127.0.0.1:9092",)
    assert batch(path="data", subscribe="orders").servers == ()


@pytest.mark.parametrize(
    ("name", "url", "words"),
    [
        ("HEADRACE_URL", "", "is missing; .* or set HEADRACE_URL"),
        ("HEADRACE_URL", "grpc://127.0.0.1:9081", "Spark speaks Kafka's protocol: set option"),
        ("HEADRACE_URL", "h:99999", "HEADRACE_URL: .*is not an address"),
        ("HEADRACE_" + "ULR", "h:1", "did you mean HEADRACE_URL"),
    ],
)
def test_an_address_in_the_environment_that_is_no_use_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, url: str, words: str
) -> None:
    monkeypatch.delenv("HEADRACE_URL", raising=False)
    monkeypatch.setenv(name, url)
    with pytest.raises(InvalidOption, match=words):
        batch(subscribe="orders")


DECODED = {"valueFormat": "json", "valueSchema": "a INT", "badRecords": "dead-letters"}
LETTERS = {**TOPIC, **DECODED}
WRONG = [
    ({"subscribe": "a"}, "'kafka.bootstrap.servers' .*missing; set it to host:port"),
    ({"servers": "nowhere", "subscribe": "a"}, "'nowhere' is not an address; write it as host"),
    ({"servers": "h:99999", "subscribe": "a"}, "'h:99999' is not an address"),
    (SERVER, "set one of them, not none"),
    ({**TOPIC, "assign": "{}"}, "set one of them, not 'subscribe' and 'assign'"),
    ({**SERVER, "subscribe": " , "}, "'subscribe' is empty; name one or more"),
    ({**SERVER, "subscribePattern": "("}, r"'subscribePattern': '\(' has a \( that is not closed"),
    ({**SERVER, "assign": "["}, "'assign' is not JSON .*write it as in"),
    ({**SERVER, "assign": '{"a": 1}'}, "'a' needs a list of partitions"),
    ({**SERVER, "assign": '{"a": []}'}, "'assign' names no partition"),
    (
        {**TOPIC, "path": "data"},
        r"'path' and 'kafka.bootstrap.servers' contradict .* load\(\) .* topics are named by 'subs",
    ),
    ({**TOPIC, "progressGroup": ""}, "'progressGroup' has 0 characters; name a group by 1 to 249"),
    ({**TOPIC, "progressGroup": "g" * 250}, "'progressGroup' has 250 characters; name a group"),
    ({**TOPIC, "progressGroup": "__spark.a.0"}, "'__spark.' is what groups of exactly-once"),
    ({**TOPIC, "startingOffsets": "earlist"}, "'startingOffsets' is 'earlist'; give earliest"),
    ({**TOPIC, "startingOffsets": "[1]"}, "or JSON as in"),
    ({**TOPIC, "startingOffsets": "{1}"}, "'startingOffsets' is not JSON"),
    ({**TOPIC, "servers": "http://node:9092"}, "not an address; write it as host:port"),
    ({**LETTERS, "subscribe": "orders.dlq"}, "'orders.dlq' holds dead letters"),
    ({**SERVER, **DECODED, "assign": '{"a.dlq": [0]}'}, "'a.dlq' holds dead letters"),
    ({**TOPIC, "startingOffsets": '{"orders": 5}'}, "'orders' needs offsets by partition"),
    ({**TOPIC, "startingOffsets": '{"orders": {"x": 5}}'}, "not a partition's number"),
    ({**TOPIC, "startingOffsets": '{"orders": {"0": -5}}'}, "-5 of orders:0 is not an offset"),
    ({**TOPIC, "startingOffsets": '{"other": {"0": 1}}'}, "which 'subscribe' does not; add it"),
    (
        {**TOPIC, "startingOffsets": "earliest", "startingTimestamp": "1"},
        "'startingOffsets' and 'startingTimestamp' contradict each other; keep one",
    ),
    ({**TOPIC, "startingTimestamp": "yesterday"}, "'startingTimestamp' .*milliseconds since 1970"),
    ({**TOPIC, "startingTimestamp": "-4"}, "-4 is not a time"),
    ({**TOPIC, "minPartitions": "0"}, "'minPartitions' is '0'; give a whole number, 1 or more"),
    ({**TOPIC, "rowsPerBatch": "many"}, "'rowsPerBatch' is 'many'; give a whole number"),
    ({**TOPIC, "failOnDataLoss": "maybe"}, "'failOnDataLoss' is 'maybe'; use true or false"),
    ({**TOPIC, "kafka.isolation.level": "serial"}, "use read_committed or read_uncommitted"),
    ({**TOPIC, "view": "sideways"}, "'view' is 'sideways'; use stream or dead-letters or delayed"),
    ({**TOPIC, "columns": "offset,colour"}, "no column 'colour'; choose from key, value"),
    ({**TOPIC, "columns": ","}, "'columns' is empty"),
    (
        {**TOPIC, "columns": "key", "includeHeaders": "true"},
        "'includeHeaders' and 'columns' contradict each other; add headers",
    ),
    ({**TOPIC, "subscrib": "a"}, "'subscrib' is not known for a .* read; did you mean 'subscribe'"),
    ({**TOPIC, "kafka.sasl.mechanism": "PLAIN"}, "authentication are not there yet"),
    ({**TOPIC, "groupId": "a"}, "'groupId' is refused: the group .* is set by 'progressGroup'"),
    ({**TOPIC, "kafka.bootstrap.servers": "b:1"}, "mean the same and differ; keep one"),
    ({**TOPIC, "valueFormat": "avro", "valueSchema": "{}", "timeZone": "UTC"}, "is for .*'json'"),
    (
        {**TOPIC, "valueFormat": "json", "valueSchema": "a INT", "timeZone": "Mars/Base"},
        "the time zone 'Mars/Base' is not known here; set option 'timeZone'",
    ),
    ({**TOPIC, "valueSchema": "a INT"}, "'valueSchema' needs 'valueFormat'"),
    ({**TOPIC, "valueFormat": "xml"}, "'valueFormat' is 'xml'; use raw or json"),
    ({**TOPIC, "valueFormat": "json"}, "'valueSchema' is missing: .*DDL"),
    ({**TOPIC, "valueFormat": "protobuf", "valueSchema": "x"}, "'valueMessage' is missing"),
    (
        {**TOPIC, "valueFormat": "json", "valueSchema": "a INT", "valueFraming": "confluent"},
        "'valueSchemaId' is missing",
    ),
]
WRONG_IN_A_BATCH = [
    ({**TOPIC, "startingOffsets": "latest"}, "cannot be 'latest' in a batch: nothing would be"),
    ({**TOPIC, "startingOffsets": '{"orders": {"0": -1}}'}, "not where a batch can begin"),
    ({**TOPIC, "endingOffsets": "earliest"}, "'endingOffsets' cannot be 'earliest'"),
    ({**TOPIC, "endingOffsets": '{"orders": {"0": -2}}'}, "is not an end; give an offset or -1"),
    (
        {**TOPIC, "startingTimestamp": "20", "endingTimestamp": "10"},
        r"'startingTimestamp' \(20\) is behind 'endingTimestamp' \(10\); begin at or before",
    ),
    (
        {
            **TOPIC,
            "startingOffsetsByTimestamp": '{"orders": {"0": 1, "1": 20}}',
            "endingOffsetsByTimestamp": '{"orders": {"0": 1, "1": 10}}',
        },
        r"'startingOffsetsByTimestamp' \(20\) is behind",
    ),
    ({**TOPIC, "topic": "x"}, "'topic' is not for a batch read"),
    ({**SERVER, "subscribe": "a,b", "view": "dead-letters"}, "is of one topic; name it by"),
    (
        {**TOPIC, "view": "dead-letters", "startingOffsets": "earliest"},
        "'startingOffsets' has no meaning with view",
    ),
    (
        {"path": "data", "subscribe": "a", "progressGroup": "g"},
        "'progressGroup' needs a server; leave it out with 'path'",
    ),
]
WRONG_IN_A_STREAM = [
    ({**TOPIC, "endingOffsets": "latest"}, "'endingOffsets' is not for a stream read"),
    (
        {"path": "data", "subscribe": "a", "progressGroup": "g"},
        "'progressGroup' needs a server; leave it out with 'path'",
    ),
    ({**TOPIC, "maxTriggerDelay": "5s"}, "says how long 'minOffsetsPerTrigger' may wait"),
    (
        {**TOPIC, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
        r"'minOffsetsPerTrigger' \(9\) is above 'maxOffsetsPerTrigger' \(5\)",
    ),
    (
        {**TOPIC, "minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"},
        "'maxTriggerDelay' is 'soon'; write it as 500ms",
    ),
    ({**TOPIC, "view": "dead-letters"}, "a picture of this moment .*use spark.read"),
]


def test_servers_may_be_written_as_urls_and_as_kafka_s_listeners() -> None:
    given = "headrace://one:7000/, PLAINTEXT://two:9092,three:1"
    assert batch(servers=given, subscribe="orders").servers == ("one:7000", "two:9092", "three:1")


def test_a_position_as_spark_shows_it_is_a_start() -> None:
    position = encode_position({"orders": TopicPosition("5f0c", {0: 12, 1: 7})})
    found = batch(**TOPIC, startingOffsets=json.dumps(position)).starting
    assert found.places == {("orders", 0): 12, ("orders", 1): 7}


def test_a_sink_with_a_name_needs_the_number_of_its_batch() -> None:
    given = {**SERVER, "topic": "orders", "exactlyOnce": "true", "sinkId": "nightly"}
    with pytest.raises(InvalidOption, match="'batchId' is missing: .* or leave 'sinkId' out"):
        parse_write_options(given, is_stream=False)
    assert parse_write_options(given | {"batchId": "3"}, is_stream=False).batch_id == 3
    assert parse_write_options(given, is_stream=True).sink_id == "nightly"


@pytest.mark.parametrize(("given", "says"), [*WRONG, *WRONG_IN_A_BATCH])
def test_a_batch_that_makes_no_sense_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        parse_read_options(given, "batch")


@pytest.mark.parametrize(("given", "says"), [*WRONG, *WRONG_IN_A_STREAM])
def test_a_stream_that_makes_no_sense_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        parse_read_options(given, "stream")

"""Where a lake may be, and what the options of its store may say."""

from __future__ import annotations

import pytest

from headrace.core.errors import (
    HeadraceError,
    InvalidArgument,
    StoreFailed,
    StoreUnreachable,
)
from headrace.pipelines.settings import PipelineSettings, StreamSettings, with_changes
from headrace.pipelines.store import Store
from headrace.pipelines.store_errors import explain

KEYS = {"aws_access_key_id": "AKIA-not-so-secret", "aws_secret_access_key": "very-secret"}


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("lake/orders", "lake/orders"),
        ("/srv/a lake", "/srv/a lake"),
        ("file:///srv/a%20lake", "/srv/a lake"),
        ("file:/srv/lake", "/srv/lake"),
        ("file://localhost/srv/lake", "/srv/lake"),
        ("hdfs://name:8020/lake", "hdfs://name:8020/lake"),
        ("s3://bucket/lake", "s3://bucket/lake"),
        ("s3a://bucket/lake", "s3://bucket/lake"),
        ("S3://bucket", "s3://bucket"),
        ("gs://bucket/lake", "gs://bucket/lake"),
        ("abfss://container@account.dfs.core.windows.net/lake",) * 2,
    ],
)
def test_a_lake_may_be_in_a_folder_or_in_a_bucket(location: str, uri: str) -> None:
    store = Store(location, environment={})
    assert store.uri == uri
    assert store.is_object_store is (location[:2].lower() not in ("la", "/s", "fi", "hd"))
    assert store.below("raw").uri == f"{uri}/raw"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("ftp://host/lake", "ftp:// is not a store that can hold a lake; use a path, or one of"),
        ("s3:///lake", "names no bucket; write: s3://bucket/lake"),
        ("s3://AKIA:very-secret@bucket/lake", "keys do not belong into a s3:// location"),
        ("s3://bucket/lake?sig=very-secret", "a s3:// location has no '\\?'"),
        ("file://srv/lake", "names the machine 'srv'; a file URI has three slashes"),
    ],
)
def test_a_location_that_cannot_be_is_refused(location: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as raised:
        Store(location, environment={})
    assert "very-secret" not in str(raised.value)


def test_options_come_from_the_environment_and_settings_overrule_it() -> None:
    environment = {
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://minio:9000",
        "AWS_PAGER": "less",
        "AZURE_STORAGE_ACCOUNT_NAME": "other",
        "HOME": "/root",
    }
    store = Store("s3://bucket/lake", KEYS | {"AWS_REGION": "here"}, environment=environment)
    assert store.delta_options() == KEYS | {
        "aws_region": "here",
        "aws_endpoint_url": "http://minio:9000",
        # An endpoint with http:// says so itself.
        "allow_http": "true",
        "aws_conditional_put": "etag",
    }
    assert Store("lake", environment=environment).delta_options() is None
    azure = Store("az://container/lake", environment=environment).delta_options()
    assert azure == {"azure_storage_account_name": "other"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aws_acess_key_id": "x"}, "unknown storage option 'aws_acess_key_id'; did you mean "),
        ({"nonsense": "x"}, "unknown storage option 'nonsense'; they begin with aws_"),
        ({"aws_s3_allow_unsafe_rename": "true"}, "overwrite each other's commits"),
        ({"aws_endpoint_url": "minio:9000"}, "must begin with http:// or https://"),
        ({"aws_conditional_put": "disabled"}, "overwrite each other's commits"),
    ],
)
def test_an_option_that_is_unknown_or_unsafe_is_refused(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Store("s3://bucket/lake", options, environment={})


def test_what_is_unsafe_is_refused_from_the_environment_too() -> None:
    with pytest.raises(InvalidArgument, match="from the environment"):
        Store("s3://bucket/lake", environment={"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    locked = Store("s3://b/l", {"aws_s3_locking_provider": "dynamodb"}, environment={})
    assert "aws_conditional_put" not in locked.options


def test_options_of_a_store_are_refused_for_a_folder() -> None:
    with pytest.raises(InvalidArgument, match="'lake' is no object store; remove them"):
        Store("lake", {"aws_region": "x"}, environment={})


class DeltaError(Exception):
    """By its name's place it is one of delta-rs."""


DeltaError.__module__ = "deltalake.exceptions"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("<Code>NoSuchBucket</Code>", InvalidArgument, "there is no such bucket: s3://b/lake;"),
        ("403 <Code>AccessDenied</Code>", InvalidArgument, "may not be used with these keys;"),
        ("<Code>ExpiredToken</Code>", InvalidArgument, "refuses the keys;"),
        ("failed to load IMDS session token: 403", InvalidArgument, "there are no keys for s3://"),
        ('Generic Config error: failed to parse "soon" as Duration', InvalidArgument, "option is"),
        ("error sending request for url", StoreUnreachable, "does not answer; see that the store"),
        # A number that happens to be in it says nothing.
        ("GET /part-403-1 in 401 ms: 503 SlowDown", StoreFailed, "503 SlowDown"),
        ("it is odd: very-secret\n twice", StoreFailed, "s3://b/lake: it is odd: *** twice"),
    ],
)
def test_an_answer_of_the_store_is_put_in_words(
    text: str, kind: type[HeadraceError], message: str
) -> None:
    found = explain("s3://b/lake", "aws", KEYS, DeltaError(text))
    assert type(found) is kind and message in str(found)
    assert explain("s3://b/lake", "aws", KEYS, KeyError(text)) is None


def test_secrets_are_not_in_what_is_printed() -> None:
    settings = StreamSettings.from_mapping(
        {
            "servers": "x:1", "topic": "t", "lake": "s3://b/l", "storage": KEYS,
            "checkpoint": "/srv/c",
        }
    )  # fmt: skip
    assert "very-secret" not in repr(settings) and "very-secret" not in repr(settings.store())
    with pytest.raises(InvalidArgument, match="storage must be a table") as raised:
        PipelineSettings.from_mapping({"servers": "x:1", "topic": "t", "storage": "very-secret"})
    assert "very-secret" not in str(raised.value)


def test_a_checkpoint_is_asked_for_where_spark_cannot_keep_one() -> None:
    values = {"servers": "x:1", "topic": "t", "lake": "s3://bucket/lake"}
    with pytest.raises(InvalidArgument, match="checkpoint is missing: the lake is s3://bucket"):
        StreamSettings.from_mapping(values)
    there = StreamSettings.from_mapping(values | {"checkpoint": "/srv/checkpoint"})
    assert there.checkpoint_path == "/srv/checkpoint"
    local = StreamSettings.from_mapping(values | {"lake": "file:///srv/lake"})
    assert local.checkpoint_path == "/srv/lake/_checkpoint"
    with pytest.raises(InvalidArgument, match='format = "delta" takes object stores'):
        StreamSettings.from_mapping(values | {"checkpoint": "/srv", "format": "parquet"})


def test_one_option_of_a_table_can_be_set() -> None:
    file = {"lake": "x", "storage": {"aws_region": "a", "timeout": "5s"}}
    assert with_changes(file, {"storage.aws_region": "b", "lake": "y", "spark.k": "1"}) == {
        "lake": "y",
        "storage": {"aws_region": "b", "timeout": "5s"},
        "spark": {"k": "1"},
    }
    assert file["storage"] == {"aws_region": "a", "timeout": "5s"}

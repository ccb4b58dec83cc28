"""Access control, quotas, credentials and features: the answers of a broker that has none."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run

from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.api import APIS, module_name
from headrace.wire.kafka.generated import (
    alter_client_quotas_request as alter_quotas,
)
from headrace.wire.kafka.generated import (
    alter_user_scram_credentials_request as alter_credentials,
)
from headrace.wire.kafka.generated import create_acls_request as create_acls
from headrace.wire.kafka.generated import delete_acls_request as delete_acls
from headrace.wire.kafka.generated import describe_acls_request as describe_acls
from headrace.wire.kafka.generated import describe_client_quotas_request as describe_quotas
from headrace.wire.kafka.generated import (
    describe_user_scram_credentials_request as describe_credentials,
)
from headrace.wire.kafka.generated import update_features_request as features

UPDATE_FEATURES = 57


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_is_no_authorizer(version: int) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        shown = await asking.ask(29, version, describe_acls.DescribeAclsRequest())
        created = await asking.ask(
            30, version, create_acls.CreateAclsRequest((create_acls.AclCreation(),) * 2)
        )
        deleted = await asking.ask(
            31, version, delete_acls.DeleteAclsRequest((delete_acls.DeleteAclsFilter(),))
        )
        answers = [shown, *created.results, *deleted.filter_results]
        assert [each.error_code for each in answers] == [Error.SECURITY_DISABLED] * 4
        assert {each.error_message for each in answers} == {"No Authorizer is configured."}

    run(scenario)


@pytest.mark.parametrize("version", [0, 1])
def test_there_are_no_quotas_and_a_new_one_is_refused(version: int) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        answer = await asking.ask(48, version, describe_quotas.DescribeClientQuotasRequest())
        assert (answer.error_code, answer.error_message, answer.entries) == (0, None, ())
        user = alter_quotas.EntityData("user", "ann"), alter_quotas.EntityData("client-id", None)
        entries = [
            alter_quotas.EntryData(user, (alter_quotas.OpData("producer_byte_rate", 1.0, remove),))
            for remove in (True, False)
        ]
        answer = await asking.ask(49, version, alter_quotas.AlterClientQuotasRequest(entries))
        removed, refused = answer.entries
        assert (removed.error_code, removed.error_message) == (0, None)
        assert (refused.error_code, refused.entity) == (Error.INVALID_REQUEST, user)
        assert refused.error_message

    run(scenario)


def test_nobody_has_credentials() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())

        async def ask(*names: str) -> list[tuple[str, int]]:
            users = tuple(map(describe_credentials.UserName, names)) or None
            request = describe_credentials.DescribeUserScramCredentialsRequest(users)
            answer = await asking.ask(50, 0, request)
            assert answer.error_code == 0
            return [(each.user, each.error_code) for each in answer.results]

        assert await ask() == []
        assert await ask("ann", "bob", "bob") == [
            ("ann", Error.RESOURCE_NOT_FOUND),
            ("bob", Error.DUPLICATE_RESOURCE),
        ]
        answer = await asking.ask(
            51,
            0,
            alter_credentials.AlterUserScramCredentialsRequest(
                (alter_credentials.ScramCredentialDeletion("ann", 1),),
                (alter_credentials.ScramCredentialUpsertion("bob", 1, 4096, b"s", b"p"),),
            ),
        )
        assert [(each.user, each.error_code) for each in answer.results] == [
            ("ann", Error.RESOURCE_NOT_FOUND),
            ("bob", Error.UNSUPPORTED_SASL_MECHANISM),
        ]

    run(scenario)


@pytest.mark.parametrize("key", [38, 39, 40, 41])
def test_tokens_need_a_connection_that_is_authenticated(key: int) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        name = APIS[key].name
        module: Any = import_module(f"headrace.wire.kafka.generated.{module_name(name)}_request")
        for version in range(APIS[key].first, APIS[key].last + 1):
            answer = await asking.ask(key, version, getattr(module, f"{name}Request")())
            assert answer.error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    run(scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("feature", "level", "code"),
    [
        ("transaction.version", 2, Error.NONE),
        ("transaction.version", 1, Error.INVALID_UPDATE_VERSION),
        ("transaction.version", 3, Error.INVALID_UPDATE_VERSION),
        ("streams.version", 1, Error.NONE),
        ("streams.version", 0, Error.INVALID_UPDATE_VERSION),
        ("streams.version", 2, Error.INVALID_UPDATE_VERSION),
        ("metadata.version", 25, Error.INVALID_UPDATE_VERSION),
        ("kraft.version", 0, Error.NONE),
    ],
)
def test_features_stay_what_the_settings_say(
    version: int, feature: str, level: int, code: int
) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        update = features.FeatureUpdateKey(feature, level)
        request = features.UpdateFeaturesRequest(60_000, (update,))
        answer = await asking.ask(UPDATE_FEATURES, version, request)
        found = answer if version == 2 else answer.results[0]
        assert found.error_code == code
        assert bool(found.error_message) == bool(code)

    run(scenario)

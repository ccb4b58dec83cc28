"""Who may do what and how much of it, answered as a broker without security answers.

    DescribeAcls, CreateAcls, DeleteAcls, 1 to 3    SECURITY_DISABLED: there is no authorizer
    DescribeClientQuotas, 0 to 1                    none
    AlterClientQuotas, 0 to 1                       to remove one succeeds; INVALID_REQUEST for
                                                    a new one, which nothing here would keep to
    DescribeUserScramCredentials, 0                 none; RESOURCE_NOT_FOUND for who is named
    AlterUserScramCredentials, 0                    RESOURCE_NOT_FOUND for who is to be removed;
                                                    UNSUPPORTED_SASL_MECHANISM for who is new
    Create-, Renew-, Expire-, DescribeDelegation-   DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as over
    Token, 1 to 3                                   every connection that is not authenticated

Tools ask these although there may be nothing, and take an API that is missing for a broker
that is too old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any

from headrace.core.steps import Steps
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.slices import answer
from headrace.wire.kafka.generated import (
    alter_client_quotas_response,
    alter_user_scram_credentials_response,
    create_acls_response,
    delete_acls_response,
    describe_acls_response,
    describe_client_quotas_response,
    describe_user_scram_credentials_response,
)
from headrace.wire.kafka.generated.alter_client_quotas_request import AlterClientQuotasRequest
from headrace.wire.kafka.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
)
from headrace.wire.kafka.generated.create_acls_request import CreateAclsRequest
from headrace.wire.kafka.generated.create_delegation_token_request import (
    CreateDelegationTokenRequest,
)
from headrace.wire.kafka.generated.create_delegation_token_response import (
    CreateDelegationTokenResponse,
)
from headrace.wire.kafka.generated.delete_acls_request import DeleteAclsRequest
from headrace.wire.kafka.generated.describe_acls_request import DescribeAclsRequest
from headrace.wire.kafka.generated.describe_client_quotas_request import (
    DescribeClientQuotasRequest,
)
from headrace.wire.kafka.generated.describe_delegation_token_request import (
    DescribeDelegationTokenRequest,
)
from headrace.wire.kafka.generated.describe_delegation_token_response import (
    DescribeDelegationTokenResponse,
)
from headrace.wire.kafka.generated.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from headrace.wire.kafka.generated.expire_delegation_token_request import (
    ExpireDelegationTokenRequest,
)
from headrace.wire.kafka.generated.expire_delegation_token_response import (
    ExpireDelegationTokenResponse,
)
from headrace.wire.kafka.generated.renew_delegation_token_request import (
    RenewDelegationTokenRequest,
)
from headrace.wire.kafka.generated.renew_delegation_token_response import (
    RenewDelegationTokenResponse,
)

_NO_AUTHORIZER = "No Authorizer is configured."
_NEVER_MS = -1
_Quotas = alter_client_quotas_response.AlterClientQuotasResponse


# Access control.


def describe_acls(
    call: Call, request: DescribeAclsRequest
) -> describe_acls_response.DescribeAclsResponse:
    return describe_acls_response.DescribeAclsResponse(0, Error.SECURITY_DISABLED, _NO_AUTHORIZER)


def create_acls(call: Call, request: CreateAclsRequest) -> create_acls_response.CreateAclsResponse:
    refused = create_acls_response.AclCreationResult(Error.SECURITY_DISABLED, _NO_AUTHORIZER)
    return create_acls_response.CreateAclsResponse(0, (refused,) * len(request.creations))


def delete_acls(call: Call, request: DeleteAclsRequest) -> delete_acls_response.DeleteAclsResponse:
    refused = delete_acls_response.DeleteAclsFilterResult(Error.SECURITY_DISABLED, _NO_AUTHORIZER)
    return delete_acls_response.DeleteAclsResponse(0, (refused,) * len(request.filters))


# Quotas.


def describe_quotas(
    call: Call, request: DescribeClientQuotasRequest
) -> describe_client_quotas_response.DescribeClientQuotasResponse:
    return describe_client_quotas_response.DescribeClientQuotasResponse(0, Error.NONE, None)


def alter_quotas(
    call: Call, request: AlterClientQuotasRequest
) -> _Quotas | Coroutine[Any, Any, _Quotas]:
    return answer(len(request.entries), _alter_quotas(request))


def _alter_quotas(request: AlterClientQuotasRequest) -> Steps[_Quotas]:
    entries = []
    for entry in request.entries:
        is_removal = all(op.remove for op in entry.ops)
        entity = tuple(alter_client_quotas_response.EntityData(*each) for each in entry.entity)
        entries.append(
            alter_client_quotas_response.EntryData(
                Error.NONE if is_removal else Error.INVALID_REQUEST,
                None if is_removal else "this node keeps clients to no quotas",
                entity,
            )
        )
        yield
    return _Quotas(0, entries)


# Credentials.


def describe_credentials(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> describe_user_scram_credentials_response.DescribeUserScramCredentialsResponse:
    names = Counter(user.name for user in request.users or ())
    return describe_user_scram_credentials_response.DescribeUserScramCredentialsResponse(
        0,
        Error.NONE,
        None,
        [
            describe_user_scram_credentials_response.DescribeUserScramCredentialsResult(
                name,
                Error.RESOURCE_NOT_FOUND if count == 1 else Error.DUPLICATE_RESOURCE,
                "Attempt to describe a user credential that does not exist"
                if count == 1
                else "Cannot describe SCRAM credentials for the same user twice",
            )
            for name, count in names.items()
        ],
    )


def alter_credentials(
    call: Call, request: AlterUserScramCredentialsRequest
) -> alter_user_scram_credentials_response.AlterUserScramCredentialsResponse:
    results = {
        each.name: alter_user_scram_credentials_response.AlterUserScramCredentialsResult(
            each.name,
            Error.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
        for each in request.deletions
    }
    for each in request.upsertions:
        results[each.name] = alter_user_scram_credentials_response.AlterUserScramCredentialsResult(
            each.name,
            Error.UNSUPPORTED_SASL_MECHANISM,
            "this node keeps no credentials: its clients are not authenticated",
        )
    return alter_user_scram_credentials_response.AlterUserScramCredentialsResponse(
        0, list(results.values())
    )


def create_token(
    call: Call, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        request.owner_principal_type or "User",
        request.owner_principal_name or "ANONYMOUS",
        "User",
        "ANONYMOUS",
        _NEVER_MS,
        _NEVER_MS,
        _NEVER_MS,
    )


def renew_token(call: Call, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, _NEVER_MS)


def expire_token(
    call: Call, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, _NEVER_MS)


def describe_tokens(
    call: Call, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)

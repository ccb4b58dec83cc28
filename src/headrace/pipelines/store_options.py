"""Options of object stores: which there are, where they come from, what is unsafe.

    settings     [storage] in the TOML file, or --set storage.NAME=VALUE
    environment  AWS_..., AZURE_..., GOOGLE_..., where the settings say nothing
    ours         conditional puts; plain HTTP where the endpoint says http://

Names are those of delta-rs. A commit to a table in S3 is one put that fails when
the object exists. So two writers at once never overwrite each other's commits, and
what would turn that off is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from headrace.core.errors import InvalidArgument

# What people write, to what delta-rs is told and whose options count.
SCHEMES = {
    "s3": ("s3", "aws"),
    "s3a": ("s3", "aws"),
    "gs": ("gs", "google"),
    "az": ("az", "azure"),
    "abfs": ("abfs", "azure"),
    "abfss": ("abfss", "azure"),
}

# Options of the HTTP client and of retries, the same for all stores.
_OF_ALL = frozenset(
    """
    allow_http allow_invalid_certificates connect_timeout default_content_type http1_only
    http2_only http2_keep_alive_interval http2_keep_alive_timeout http2_keep_alive_while_idle
    http2_max_frame_size pool_idle_timeout pool_max_idle_per_host proxy_url proxy_ca_certificate
    proxy_excludes randomize_addresses read_timeout timeout user_agent max_retries retry_timeout
    backoff_config.init_backoff backoff_config.max_backoff backoff_config.base max_buffer_size
    """.split()
)
_AWS = frozenset(
    """
    access_key_id secret_access_key session_token token region default_region endpoint endpoint_url
    allow_http virtual_hosted_style_request unsigned_payload checksum_algorithm metadata_endpoint
    imdsv1_fallback skip_signature copy_if_not_exists conditional_put disable_tagging s3_express
    request_payer server_side_encryption sse_kms_key_id sse_bucket_key_enabled
    sse_customer_key_base64 container_credentials_relative_uri container_credentials_full_uri
    container_authorization_token_file web_identity_token_file role_arn role_session_name
    endpoint_url_sts s3_locking_provider s3_allow_unsafe_rename s3_assume_role_arn
    s3_role_session_name iam_role_arn iam_role_session_name endpoint_url_dynamodb
    force_credential_load s3_pool_idle_timeout_seconds s3_get_internal_server_error_retries
    ec2_metadata_disabled profile access_key_id_dynamodb secret_access_key_dynamodb
    session_token_dynamodb region_dynamodb
    """.split()
)
_DYNAMODB = frozenset(
    """
    delta_dynamo_table_name delta_dynamo_billing_mode delta_dynamo_max_elapsed_request_time
    delta_dynamo_override_endpoint delta_dynamo_read_capacity_units
    delta_dynamo_write_capacity_units dynamo_lock_owner_name max_acquire_lock_retries
    """.split()
)
_PREFIXES = {"aws": ("aws_",), "azure": ("azure_",), "google": ("google_",)}
_TRUE = ("1", "true", "yes", "on", "ok", "y")


def checked_options(
    provider: str, given: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """All options of a store; InvalidArgument when one is unknown or unsafe."""
    options = {
        name.lower(): value
        for name, value in environment.items()
        if value and _is_of(provider, name.lower())
    }
    for name, value in given.items():
        lower = name.lower()
        if not (_is_of(provider, lower) or lower in _OF_ALL):
            raise _unknown(provider, name)
        options[lower] = value
    if provider == "aws":
        options = _safe(options)
    endpoint = _endpoint(options)
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise InvalidArgument(
            f"the endpoint {endpoint!r} of the object store must begin with http:// or https://"
        )
    if endpoint.startswith("http://"):
        # Somebody wrote http:// and means it.
        options.setdefault("allow_http", "true")
    return options


def _is_of(provider: str, name: str) -> bool:
    if provider == "aws":
        return name in _DYNAMODB or (name.startswith("aws_") and name[4:] in _AWS)
    return name.startswith(_PREFIXES[provider])


def _unknown(provider: str, name: str) -> InvalidArgument:
    known = sorted(_OF_ALL | {f"aws_{each}" for each in _AWS} | _DYNAMODB)
    close = get_close_matches(name.lower(), known, 1) if provider == "aws" else []
    hint = f"did you mean {close[0]}?" if close else f"they begin with {provider}_"
    return InvalidArgument(f"unknown storage option {name!r}; {hint}")


def _safe(options: dict[str, str]) -> dict[str, str]:
    if options.get("aws_s3_allow_unsafe_rename", "").lower() in _TRUE:
        raise InvalidArgument(
            "aws_s3_allow_unsafe_rename lets two writers overwrite each other's commits, and rows "
            "would be lost; remove it from the storage options and from the environment: commits "
            "are conditional puts, which S3, MinIO, R2 and others have"
        )
    if options.get("aws_s3_locking_provider"):
        return options
    put = options.setdefault("aws_conditional_put", "etag")
    if put.lower() == "disabled":
        raise InvalidArgument(
            "aws_conditional_put = disabled lets two writers overwrite each other's commits; "
            "remove it, or name a lock: aws_s3_locking_provider = dynamodb"
        )
    return options


def _endpoint(options: Mapping[str, str]) -> str:
    names = ("aws_endpoint_url", "aws_endpoint", "azure_endpoint", "azure_storage_endpoint")
    return next((options[name].lower() for name in names if options.get(name)), "")

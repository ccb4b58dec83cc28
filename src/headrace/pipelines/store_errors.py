"""What went wrong at an object store, in one line that says what to do.

delta-rs gives text: S3's codes and the HTTP client's own words, one inside the
other. The table is gone through from above; what fits none is told as it is,
in one line. Values that may be secret are in no text, wherever they came from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.core.errors import HeadraceError, InvalidArgument, StoreFailed, StoreUnreachable

_SECRET = re.compile(r"secret|token|password|sas|credential|access_key|account_key|service_account")
# delta-rs draws an arrow in red before each cause.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Shorter values would cut up words.
_SECRET_LENGTH_MIN = 4
_LENGTH_MAX = 300

_UNREACHABLE = re.compile(
    r"error sending request|dns error|failed to lookup|connection refused|connect error|"
    r"tcp connect|connection reset|connection closed|timed out|timeout|error trying to connect",
    re.IGNORECASE,
)
_OPTION = re.compile(r"Generic Config error|failed to parse .* as ", re.IGNORECASE)
# A pattern in the store's answer, and what it means; {uri} is where the lake is.
_REFUSED = (
    (
        # Without keys, the machine's own are asked for at an address that only clouds have.
        r"IMDS|169\.254\.169\.254|metadata\.google|loading credentials|no credentials|"
        r"CredentialsNotLoaded|credential provider|Missing.*(Key|Credential|account)|"
        r"account.*must be",
        "there are no keys for {uri}; give them as storage options or in the environment ({keys})",
    ),
    (
        r"NoSuchBucket|ContainerNotFound|bucket does not exist",
        "there is no such bucket: {uri}; make it, or correct lake = ...",
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|ExpiredToken|AuthenticationFailed|"
        r"InvalidClientTokenId|401 Unauthorized",
        "{uri} refuses the keys; correct the storage options or the environment ({keys})",
    ),
    (
        r"AccessDenied|403 Forbidden|PermissionDenied|AuthorizationFailure",
        "{uri} may not be used with these keys; allow them to list, read, write and delete there, "
        "or give others ({keys})",
    ),
    (
        r"PermanentRedirect|AuthorizationHeaderMalformed|301 Moved|IllegalLocationConstraint",
        "{uri} is in another region; name it with storage.aws_region",
    ),
)
_KEYS = {
    "aws": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
    "azure": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY",
    "google": "GOOGLE_APPLICATION_CREDENTIALS",
}
_ENDPOINTS = ("aws_endpoint_url", "aws_endpoint", "azure_endpoint", "azure_storage_endpoint")


def explain(
    uri: str, provider: str, options: Mapping[str, str], error: Exception
) -> HeadraceError | None:
    """The error in our words; None when the store has no part in it."""
    if not _is_of_store(error):
        return None
    text = " ".join(_COLOURS.sub("", str(error)).replace("\u21b3", ":").split())
    for pattern, words in _REFUSED:
        if re.search(pattern, text, re.IGNORECASE):
            return InvalidArgument(words.format(uri=uri, keys=_KEYS[provider]))
    said = without_secrets(text, options)
    said = said if len(said) <= _LENGTH_MAX else f"{said[:_LENGTH_MAX]}…"
    if _OPTION.search(text):
        return InvalidArgument(f"{uri}: a storage option is wrong: {said}")
    if _UNREACHABLE.search(text):
        endpoint = next((options[name] for name in _ENDPOINTS if options.get(name)), "")
        where = f"{uri} at {endpoint}" if endpoint else uri
        return StoreUnreachable(
            f"{where} does not answer; see that the store runs and that the endpoint is right: "
            f"{said}"
        )
    return StoreFailed(f"{uri}: {said}")


def _is_of_store(error: Exception) -> bool:
    # pyarrow's errors are OSErrors or ValueErrors of its own; those of delta-rs are its own.
    module = type(error).__module__
    return module.startswith(("deltalake", "_internal")) or isinstance(error, OSError)


def without_secrets(text: str, options: Mapping[str, str]) -> str:
    values = {
        value
        for name, value in options.items()
        if _SECRET.search(name) and len(value) >= _SECRET_LENGTH_MIN
    }
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "***")
    return text

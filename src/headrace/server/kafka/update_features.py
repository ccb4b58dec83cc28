"""UpdateFeatures, versions 0 to 2: nothing is changed by it.

`transaction.version` is a setting of the node that holds from start to stop; the others are
what this version of the node has. To ask for what is so already succeeds; everything else is
INVALID_UPDATE_VERSION with the reason. As in Kafka one refusal refuses all of the request, and
version 2 has one code for all of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.server.kafka.api_versions import FEATURES, TRANSACTIONS, finalized
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.update_features_request import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from headrace.wire.kafka.generated.update_features_response import (
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)


def handle(call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    levels = finalized(call.door)
    refusals = [_refuse(each, levels) for each in request.feature_updates]
    refusal = next((each for each in refusals if each is not None), None)
    code = Error.NONE if refusal is None else Error.INVALID_UPDATE_VERSION
    results: list[UpdatableFeatureResult] = []
    if call.version < 2:
        results = [
            UpdatableFeatureResult(each.feature, code, refusal) for each in request.feature_updates
        ]
    return UpdateFeaturesResponse(0, code if call.version >= 2 else Error.NONE, refusal, results)


def _refuse(update: FeatureUpdateKey, levels: Mapping[str, int]) -> str | None:
    name, wanted = update.feature, update.max_version_level
    # A name may be as long as the longest text that fits into an answer.
    says = f"Invalid update version {wanted} for feature {name[:100]}."
    if name not in FEATURES:
        # To take away what is not there is no change.
        return None if not wanted else f"{says} This node does not support this feature."
    if not 0 <= wanted <= FEATURES[name]:
        return f"{says} This node supports 0 to {FEATURES[name]}."
    if wanted == levels[name]:
        return None
    if name == TRANSACTIONS:
        return (
            f"{says} It is {levels[name]} by the node's setting transaction_version; "
            "change it there."
        )
    return f"{says} It is {levels[name]}, and cannot be changed."

"""Every environment variable whose name begins with HEADRACE_.

A name that nobody reads is most often a setting that its user believes to be in
force, so an unknown one is an error wherever the environment is read: in every
command and in `connect()` without an address.

    HEADRACE_<SETTING>    a setting of the node, by its name in `node_settings.py`
    HEADRACE_X_<...>      the user's own; never read and never refused

Kubernetes and Docker describe a service called `headrace` to its neighbours by
variables of that prefix as well; nobody typed those, so they pass by their shape.

Rejected: refusing only what is close to a known name. `HEADRACE_DISK` is as
ineffective as `HEADRACE_DTA`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from headrace.core.errors import InvalidArgument
from headrace.core.node_settings import ENVIRONMENT_PREFIX, NodeSettings, environment_name

OWN_PREFIX = "HEADRACE_X_"

# Where a node is, for every client that is not told: host:port, headrace://host:port or
# grpc://host:port; several with commas between. See `addresses_in`.
URL_VARIABLE = "HEADRACE_URL"
URL_SCHEME = "headrace://"
URL_SCHEME_GRPC = "grpc://"
PORT_DEFAULT = 9092
PORT_DEFAULT_GRPC = 9081

# Beside the settings: which node, which file, and whether compiled code may run.
CHOICES = (URL_VARIABLE, "HEADRACE_CONFIG", "HEADRACE_PURE")

# Names of before that work for one release more, and what to write today.
RETIRED = {"HEADRACE_SERVER": URL_VARIABLE}

# What `headrace work` tells the programs that it starts, and itself across a restart.
TOLD = (
    "HEADRACE_ATTEMPT",
    "HEADRACE_ID",
    "HEADRACE_KEY",
    "HEADRACE_MAX_ATTEMPTS",
    "HEADRACE_PRIORITY",
    "HEADRACE_RELOADED",
    "HEADRACE_REPLACED",
    "HEADRACE_TOPIC",
)

# How long and how strict the tests of this repository are, for nodes that they start.
TESTING = (
    "HEADRACE_COMMAND",
    "HEADRACE_ECOSYSTEM",
    "HEADRACE_ELSEWHERE",
    "HEADRACE_FLAKY_MAX",
    "HEADRACE_FLIPS",
    "HEADRACE_HOSTILE_ATTACKS",
    "HEADRACE_HOSTILE_SECONDS",
    "HEADRACE_KILLS",
    "HEADRACE_LOAD_MESSAGES",
    "HEADRACE_LONG",
    "HEADRACE_NO_SKIPS",
    "HEADRACE_OPERATION",
    "HEADRACE_OUTCOMES",
    "HEADRACE_ROUNDS",
    "HEADRACE_SEED",
    "HEADRACE_SPARK_FAULTS",
    "HEADRACE_STATE_SEED",
)

_SETTINGS = tuple(environment_name(name) for name in NodeSettings().to_mapping())
KNOWN = frozenset((*_SETTINGS, *CHOICES, *RETIRED, *TOLD, *TESTING))

# HEADRACE_SERVICE_HOST, HEADRACE_SERVICE_PORT_KAFKA, HEADRACE_PORT_9092_TCP_ADDR and the
# same with more of a name in front, as of a service called headrace-kafka.
_OF_A_SERVICE = re.compile(
    r"HEADRACE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)
_ADDRESS_OF_A_SERVICE = re.compile(r"(tcp|udp|sctp)://.+")


def addresses_in(url: str) -> list[tuple[str, str]]:
    """Scheme and host:port of each address, in their order; one that has no scheme has that of
    the address before it. A client takes those that it can talk to, so one URL may serve all of
    them: headrace://a:9092,b:9092,grpc://a:9081,b:9081."""
    scheme = URL_SCHEME
    found: list[tuple[str, str]] = []
    for part in url.split(","):
        address = part.strip()
        for known in (URL_SCHEME, URL_SCHEME_GRPC):
            if address.startswith(known):
                scheme, address = known, address.removeprefix(known)
        found.append((scheme, address.rstrip("/")))
    return found


def check_environment(environment: Mapping[str, str]) -> None:
    """InvalidArgument names each variable of our prefix that nothing reads, with the
    known name nearest to it."""
    unknown = sorted(
        name
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX)
        and name not in KNOWN
        and not name.startswith(OWN_PREFIX)
        and not _describes_service(name, value)
    )
    if unknown:
        raise InvalidArgument("; ".join(map(_advice, unknown)))


def _describes_service(name: str, value: str) -> bool:
    if _OF_A_SERVICE.fullmatch(name):
        return True
    return name.endswith("_PORT") and _ADDRESS_OF_A_SERVICE.fullmatch(value) is not None


def _advice(name: str) -> str:
    # The prefix is common to all, and would make everything look alike.
    bare = name.removeprefix(ENVIRONMENT_PREFIX)
    for_users = {
        each.removeprefix(ENVIRONMENT_PREFIX): RETIRED.get(each, each)
        for each in (*_SETTINGS, *CHOICES, *RETIRED)
    }
    if close := difflib.get_close_matches(bare, for_users, 1):
        return f"{name} is not known; did you mean {for_users[close[0]]}?"
    return (
        f"{name} is not known; unset it, or let its name begin with {OWN_PREFIX} if it is your own"
    )

/**
 * Errors, by the codes that never change.
 *
 * Each is a `HeadraceError` with the `code` that every door of a node uses, and
 * `retriable`: whether the same call can succeed later without anything being repaired.
 * What a program is likely to catch has a class of its own; a code that this client does
 * not know is still told.
 */
import { Code, ConnectError } from "@connectrpc/connect";

export class HeadraceError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly retriable: boolean = false,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A value of the wrong type, or out of its range. */
export class InvalidArgument extends HeadraceError {}
export class RecordTooLarge extends InvalidArgument {}
/** Not a receipt of ours, or of another group or topic. */
export class InvalidReceipt extends InvalidArgument {}
export class OffsetOutOfRange extends InvalidArgument {}
/** The lease is over: it expired, was settled already, or somebody else has the message. */
export class StaleReceipt extends HeadraceError {}
/** A value that is not what its content type says. */
export class DecodeError extends HeadraceError {}
export class UnknownTopic extends HeadraceError {}
export class UnknownPartition extends HeadraceError {}
export class UnknownGroup extends HeadraceError {}
export class UnknownMessage extends HeadraceError {}
export class TopicExists extends HeadraceError {}
/** A stream group asked for as a queue, or the other way round. */
export class GroupKindMismatch extends HeadraceError {}
export class GroupInUse extends HeadraceError {}
export class TooManyLeases extends HeadraceError {}
export class LimitExceeded extends HeadraceError {}
/** Too little free space to publish. Reading and acking go on. */
export class DiskFull extends HeadraceError {}
/** No node answers at that address: nothing was done. */
export class Unreachable extends HeadraceError {}
/** The connection broke before the answer: whether the call took effect is not known. */
export class Disconnected extends HeadraceError {}
/** The answer did not come in time: whether the call took effect is not known. */
export class TimedOut extends HeadraceError {}
/** The client, or the loop that gave the message, is closed. */
export class Closed extends HeadraceError {}

const CLASSES: Record<string, typeof HeadraceError> = {
  "invalid-argument": InvalidArgument,
  "invalid-name": InvalidArgument,
  "record-too-large": RecordTooLarge,
  "invalid-receipt": InvalidReceipt,
  "offset-out-of-range": OffsetOutOfRange,
  "stale-receipt": StaleReceipt,
  "decode-error": DecodeError,
  "unknown-topic": UnknownTopic,
  "unknown-partition": UnknownPartition,
  "unknown-group": UnknownGroup,
  "unknown-message": UnknownMessage,
  "topic-exists": TopicExists,
  "group-kind-mismatch": GroupKindMismatch,
  "group-in-use": GroupInUse,
  "too-many-leases": TooManyLeases,
  "limit-exceeded": LimitExceeded,
  "disk-full": DiskFull,
};

export function errorOf(code: string, message: string, retriable: boolean): HeadraceError {
  return new (CLASSES[code] ?? HeadraceError)(message, code, retriable);
}

/** What went wrong with a call, as one of ours; what is ours already stays as it is. */
export function translated(error: unknown): HeadraceError {
  if (error instanceof HeadraceError) {
    return error;
  }
  const failure = ConnectError.from(error);
  const code = failure.metadata.get("headrace-code");
  if (code !== null) {
    return errorOf(code, failure.rawMessage, failure.metadata.get("headrace-retriable") === "true");
  }
  const text = failure.rawMessage;
  const cause = { cause: failure };
  switch (failure.code) {
    case Code.DeadlineExceeded:
      return new TimedOut(`no answer in time: ${text}`, "timed-out", true, cause);
    case Code.InvalidArgument:
      return new InvalidArgument(text, "invalid-argument", false, cause);
    case Code.ResourceExhausted:
      return new LimitExceeded(text, "limit-exceeded", false, cause);
    default:
      if (wasRefused(failure)) {
        return new Unreachable(
          `no node answers: ${text}; is \`headrace serve\` running there, with gRPC?`,
          "unreachable",
          true,
          cause,
        );
      }
      return new Disconnected(`the connection broke: ${text}`, "disconnected", true, cause);
  }
}

/** Whether there was no connection in the first place. */
function wasRefused(error: unknown): boolean {
  const before = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"];
  for (let each = error; each instanceof Error; each = each.cause) {
    if (before.includes((each as NodeJS.ErrnoException).code ?? "")) {
      return true;
    }
  }
  return false;
}

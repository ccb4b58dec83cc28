/**
 * When to look again for a node that is away: after a pause that doubles, for as long as the
 * caller allows. The time begins anew whenever the node was reached.
 */
import { Disconnected, Unreachable } from "./errors.js";

const PAUSE_FIRST_MS = 50;
const PAUSE_LONGEST_MS = 2_000;

export class Retry {
  readonly #retryMs: number;
  #giveUpAt: number;
  #pauseMs = PAUSE_FIRST_MS;
  /** Whether a node that was never there has to be told of: its address may be wrong. */
  #isToBeTold = true;

  /** Without `retryMs` a node is waited for as long as it takes. */
  constructor(retryMs: number | undefined) {
    this.#retryMs = retryMs ?? Number.POSITIVE_INFINITY;
    this.#giveUpAt = Date.now() + this.#retryMs;
  }

  onReached(): void {
    this.#giveUpAt = Date.now() + this.#retryMs;
    this.#pauseMs = PAUSE_FIRST_MS;
    this.#isToBeTold = false;
  }

  /** Whether there is a point in trying again after this. */
  allows(failure: unknown): boolean {
    const isAway = failure instanceof Unreachable || failure instanceof Disconnected;
    const isAllowed = isAway && Date.now() < this.#giveUpAt;
    if (isAllowed && this.#isToBeTold) {
      this.#isToBeTold = false;
      process.emitWarning(`waiting for it: ${failure.message}`, "HeadraceWarning");
    }
    return isAllowed;
  }

  /** Until it is time to; a signal ends it early. */
  async pause(signal: AbortSignal | undefined): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, this.#pauseMs);
      const stop = () => {
        clearTimeout(timer);
        resolve();
      };
      if (signal?.aborted) {
        stop();
      }
      signal?.addEventListener("abort", stop, { once: true });
    });
    this.#pauseMs = Math.min(this.#pauseMs * 2, PAUSE_LONGEST_MS);
  }
}

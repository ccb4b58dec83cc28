/**
 * When to look again for a node that is away: after a pause that doubles, for as long as the
 * caller allows. The time begins anew whenever the node was reached.
 */
import { Disconnected, Unreachable } from "./errors.js";

const PAUSE_FIRST_MS = 50;
const PAUSE_LONGEST_MS = 2_000;
/** For a node that was never there, unless the caller says otherwise. */
const FIRST_MS = 10_000;

export class Retry {
  readonly #laterMs: number;
  #giveUpAt: number;
  #pauseMs = PAUSE_FIRST_MS;

  /** Without `retryMs` a node that was there once is waited for as long as it takes. */
  constructor(retryMs: number | undefined) {
    this.#giveUpAt = Date.now() + (retryMs ?? FIRST_MS);
    this.#laterMs = retryMs ?? Number.POSITIVE_INFINITY;
  }

  onReached(): void {
    this.#giveUpAt = Date.now() + this.#laterMs;
    this.#pauseMs = PAUSE_FIRST_MS;
  }

  /** Whether there is a point in trying again after this. */
  allows(failure: unknown): boolean {
    const isAway = failure instanceof Unreachable || failure instanceof Disconnected;
    return isAway && Date.now() < this.#giveUpAt;
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

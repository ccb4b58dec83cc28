// The last minutes of the node, kept once for all views that draw them.

import { get, query } from "./api.js";

const SAMPLES_MAX = 300;
let samples = [];

export async function liveSamples(signal) {
  const last = samples.at(-1)?.time;
  const answer = await get(`/node/live${query({ after: last })}`, signal);
  const fresh = answer.samples.map((each) => ({ ...each, at: Date.parse(each.time) }));
  // Two views may have asked at the same time: what is known already is not new.
  const known = samples.at(-1)?.at ?? 0;
  samples = [...samples, ...fresh.filter((each) => each.at > known)].slice(-SAMPLES_MAX);
  return samples;
}

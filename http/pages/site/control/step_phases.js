// The seconds that models spent on prefill and decode since some looks ago, from counters that only grow.
const LOOKS = 6;

// `before`: what the last look returned; `models`: those of /admin/models.
export function phasesOf(before, models, now = performance.now() / 1000) {
  return new Map(models.map(({ id, prefill_seconds: prefill, decode_seconds: decode }) => {
    const earlier = before?.get(id)?.looks || [];
    // A counter that fell is that of another process.
    const kept = earlier.length && earlier.at(-1).decode > decode ? [] : earlier.slice(1 - LOOKS);
    const looks = [...kept, { at: now, prefill, decode }];
    const [first] = looks;
    return [id, { looks, seconds: now - first.at, prefill: prefill - first.prefill, decode: decode - first.decode }];
  }));
}

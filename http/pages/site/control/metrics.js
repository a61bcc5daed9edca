// What of the server's metrics (Prometheus' text format 0.0.4) the control room draws: figures of each model.
import { request } from '../api.js';

const WANTED = {
  'vllm:generation_tokens_total': 'generated',
  'vllm:prompt_tokens_total': 'prompted',
  'vllm:prefix_cache_queries_total': 'looked',
  'vllm:prefix_cache_hits_total': 'hit',
  'greenroom:memory_granted_bytes': 'granted',
  'greenroom:model_evictions_total': 'evictions',
};
const LINE = /^([a-z:_]+)\{(.*)\} (\S+)$/;
const POINTS = 60;

const label = (labels, name) => {
  const [, value] = new RegExp(`(?:^|,)${name}="((?:[^"\\\\]|\\\\.)*)"`).exec(labels) || [];
  return value?.replace(/\\(["\\])/g, '$1').replace(/\\n/g, '\n');
};

function read(text) {
  const models = new Map();
  for (const line of text.split('\n')) {
    const [, name, labels, value] = LINE.exec(line) || [];
    const memory = name === 'greenroom:memory_bytes';
    if (!memory && !WANTED[name]) continue;
    const model = label(labels, 'model_name');
    if (!models.has(model)) models.set(model, {});
    models.get(model)[memory ? label(labels, 'kind') : WANTED[name]] = Number(value);
  }
  return models;
}

// Figures of now, with the tokens per second of the last looks.
export async function lookAtMetrics(before) {
  const models = read(await (await request('metrics')).text());
  const at = performance.now();
  for (const [name, figures] of models) {
    const earlier = before?.models.get(name);
    const spent = (at - (before?.at ?? at)) / 1000;
    // A count that fell is that of another process.
    const rate = earlier && spent > 0 ? Math.max(0, figures.generated - earlier.generated) / spent : 0;
    figures.rates = [...(earlier?.rates || []), rate].slice(-POINTS);
  }
  return { at, models };
}

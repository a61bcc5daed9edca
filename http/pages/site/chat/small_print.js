// The figures of an answer, and why its prompt was computed again.
import { bytes, count, seconds } from '../formats.js';

const REASONS = {
  whole: 'all but its last token, which is always computed',
  continued: 'continues the earlier prompt',
  not_cached: 'the shared beginning was no longer in the cache',
  no_checkpoint: 'the model can go on only from an earlier place',
  first: 'the first prompt since the model was loaded',
  off: 'no prefix cache',
};
const WAITS = {
  loading: 'loading', model: 'another model', slot: 'a slot', preparing: 'preparing', memory: 'memory',
  prefix: 'a like prompt', disk: 'disk', turn: 'other prompts',
};

function reasonOf(prefix, cached) {
  if (prefix.reason === 'continued' && !cached) return 'begins unlike the earlier prompts';
  if (prefix.reason !== 'changed') return REASONS[prefix.reason] || prefix.reason;
  const place = prefix.index === null ? prefix.part : `${prefix.part} ${prefix.index + 1}`;
  return `computed from ${place || 'a place'}${prefix.role ? ` (${prefix.role})` : ''} on, which differs from the earlier prompt`;
}

// The figures of an answer, the most important two first; times are the server's.
export function figuresOf({ usage }) {
  if (!usage) return [];
  const { prefix, waited_seconds: waits = {}, seconds: spent } = usage.greenroom || {};
  const cached = usage.input_tokens_details?.cached_tokens ?? 0;
  const lines = [count(usage.output_tokens, 'token')];
  if (spent?.decode > 0) lines.push(`${(usage.output_tokens / spent.decode).toFixed(1)} tokens/s`);
  if (spent) lines.push(`first token after ${seconds(spent.queued + spent.prefill)}`);
  lines.push(`${cached} of ${count(usage.input_tokens, 'prompt token')} cached`);
  if (prefix) lines.push(reasonOf(prefix, cached));
  for (const [name, value] of Object.entries(waits)) {
    if (value >= 0.05) lines.push(`waited ${seconds(value)} for ${WAITS[name] || name}`);
  }
  return lines;
}

export function waitingLine(news) {
  if (!news) return '';
  if (news.total) return `Reading the prompt: ${news.processed} of ${news.total} tokens`;
  const words = {
    queued: 'Waits in the queue', waiting_for_model: 'Waits for the model', downloading: 'Downloading', loading: 'Loading the model',
    lost: 'The connection is lost: looks for the answer',
  };
  const parts = [words[news.status] || String(news.status)];
  if (news.loaded_bytes && news.required_bytes) parts.push(`${bytes(news.loaded_bytes)} of ${bytes(news.required_bytes)}`);
  if (news.download_bytes) parts.push(`${bytes(news.downloaded_bytes)} of ${bytes(news.download_bytes)}`);
  if (news.position) parts.push(`place ${news.position}`);
  if (news.eta_ms) parts.push(`about ${seconds(news.eta_ms / 1000)}`);
  if (news.unloading?.length) parts.push(`unloading ${news.unloading.join(', ')}`);
  return parts.join(', ');
}

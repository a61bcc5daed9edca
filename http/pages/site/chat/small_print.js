// The figures of an answer in a line, and why its prompt was computed again.
import { bytes, count, seconds } from '../formats.js';

const REASONS = {
  whole: 'the whole prompt was cached',
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

function reasonOf(prefix) {
  if (prefix.reason !== 'changed') return REASONS[prefix.reason] || prefix.reason;
  const place = prefix.index === null ? prefix.part : `${prefix.part} ${prefix.index}`;
  return `not as cached from ${place || 'an earlier place'}${prefix.role ? ` (${prefix.role})` : ''} on`;
}

export function smallPrint({ usage, timing }) {
  const lines = [];
  if (timing.first !== undefined) lines.push(`first token after ${seconds((timing.first - timing.sent) / 1000)}`);
  if (!usage) return lines.join(' · ');
  lines.unshift(count(usage.output_tokens, 'token'));
  const spent = (timing.last - timing.first) / 1000;
  if (usage.output_tokens > 1 && spent > 0) lines.splice(1, 0, `${((usage.output_tokens - 1) / spent).toFixed(1)} tokens/s`);
  lines.push(`${usage.input_tokens_details?.cached_tokens ?? 0} of ${count(usage.input_tokens, 'prompt token')} cached`);
  const told = usage.greenroom;
  if (told?.prefix) lines.push(reasonOf(told.prefix));
  for (const [name, value] of Object.entries(told?.waited_seconds || {})) {
    if (value >= 0.05) lines.push(`waited ${seconds(value)} for ${WAITS[name] || name}`);
  }
  return lines.join(' · ');
}

export function waitingLine(news) {
  if (!news) return '';
  if (news.total) return `Reading the prompt: ${news.processed} of ${news.total} tokens`;
  const words = {
    queued: 'Waits in the queue', waiting_for_model: 'Waits for the model', downloading: 'Downloading', loading: 'Loading the model',
  };
  const parts = [words[news.status] || String(news.status)];
  if (news.loaded_bytes && news.required_bytes) parts.push(`${bytes(news.loaded_bytes)} of ${bytes(news.required_bytes)}`);
  if (news.download_bytes) parts.push(`${bytes(news.downloaded_bytes)} of ${bytes(news.download_bytes)}`);
  if (news.position) parts.push(`place ${news.position}`);
  if (news.eta_ms) parts.push(`about ${seconds(news.eta_ms / 1000)}`);
  if (news.unloading?.length) parts.push(`unloading ${news.unloading.join(', ')}`);
  return parts.join(', ');
}

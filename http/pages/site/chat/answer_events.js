// The events of a streamed response, taken into the entry that shows it.
import { LiveText } from '../live_text.js';
import { isOwn, ownPart } from './items.js';

function newPart(item) {
  if (isOwn(item)) return ownPart(item);
  const live = new LiveText();
  switch (item.type) {
    case 'reasoning': return { type: 'reasoning', live, seconds: null, began: performance.now() };
    case 'function_call': return { type: 'call', callId: item.call_id, name: item.name, live };
    default: return { type: 'text', live };
  }
}

const DELTAS = new Set([
  'response.output_text.delta', 'response.refusal.delta', 'response.reasoning_summary_text.delta',
  'response.reasoning_text.delta', 'response.function_call_arguments.delta', 'response.mcp_call_arguments.delta',
]);
const ENDS = { 'response.completed': 'done', 'response.incomplete': 'cut', 'response.failed': 'failed' };

const CUTS = {
  max_output_tokens: 'Cut: it has as many tokens as it may.', content_filter: 'Cut by a content filter.',
  repeated_call: 'Cut: the model made the same call again and again.', max_turns: 'Cut: the model called tools as often as it may.',
};
const cutLine = (reason) => (Object.hasOwn(CUTS, reason) ? CUTS[reason] : `Cut: ${reason}`);

export class AnswerEvents {
  // `changed` is called for what is more than a piece of text.
  constructor(entry, changed) {
    this.entry = entry;
    this.changed = changed;
    this.parts = new Map();
    this.id = null; // of the response
    this.number = -1; // of the latest event
    this.isKept = false; // its items are in the store
    this.isReplayed = false; // at another pace than it was written
  }

  receive(event) {
    this.number = event.sequence_number ?? this.number;
    this.id ??= event.response?.id ?? null;
    if (DELTAS.has(event.type)) return this.append(event);
    const news = event.queue_status || event.prompt_progress
      || event.response?.queue_status || event.response?.prompt_progress;
    if (news) this.entry.waiting = news;
    if (event.type === 'response.output_item.added') this.open(event);
    else if (event.type === 'response.output_item.done') this.close(event);
    else if (Object.hasOwn(ENDS, event.type)) this.finish(event);
    else if (event.type === 'error') this.fail(event.error?.message || event.message || 'The stream broke.');
    else if (!news && event.type !== 'response.mcp_call_arguments.done') return undefined;
    return this.changed();
  }

  append({ output_index: index, delta }) {
    if (this.entry.waiting) {
      this.entry.waiting = null;
      this.changed();
    }
    this.parts.get(index)?.live.append(delta);
  }

  open({ output_index: index, item }) {
    const part = newPart(item);
    this.parts.set(index, part);
    this.entry.parts.push(part);
    if (item.type === 'function_call' && item.arguments) part.live.append(item.arguments);
  }

  close({ output_index: index, item }) {
    const part = this.parts.get(index);
    if (!part) return;
    if (part.item) part.item = item;
    if (part.type === 'reasoning' && !this.isReplayed) part.seconds = (performance.now() - part.began) / 1000;
    part.live.end();
  }

  finish({ type, response }) {
    const { entry } = this;
    entry.state = response.status === 'cancelled' ? 'stopped' : ENDS[type];
    entry.usage = response.usage;
    entry.model = response.model || entry.model;
    // A failed answer joins no conversation.
    if (this.isKept && entry.state !== 'failed') entry.ids = response.output.map(({ id }) => id);
    if (response.incomplete_details) entry.problem = cutLine(response.incomplete_details.reason);
    if (response.error) this.cut(response.error.message);
  }

  fail(message) {
    this.entry.state = 'failed';
    this.entry.problem = String(message);
  }

  cut(message) {
    this.fail(`The answer was cut off: ${message}`);
  }

  // The connection broke, and the server may go on.
  lose() {
    this.entry.waiting = { status: 'lost' };
    this.changed();
  }

  // Closes what a broken or stopped stream left open.
  end() {
    const { entry } = this;
    if (entry.state === 'running' && entry.waiting?.status === 'lost') this.cut('the connection to the server broke.');
    if (entry.state === 'running') entry.state = 'stopped';
    entry.waiting = null;
    for (const part of entry.parts) {
      if (!part.live.ended) part.live.end();
    }
    this.changed();
  }
}

// The entries of a conversation on the screen, and the same as items of the Responses API.
import { LiveText } from '../live_text.js';

export const userEntry = (parts) => ({ kind: 'user', parts, ids: [] });

export const resultsEntry = (results) => ({ kind: 'results', results, ids: [] });

export const approvalsEntry = (answers) => ({ kind: 'approvals', answers, ids: [] });

export const assistantEntry = (model, state = 'running') => ({
  kind: 'assistant', model, parts: [], state, problem: null, usage: null, waiting: null, ids: [],
});

// The answer that a question has not got.
export const lostEntry = (model) => ({ ...assistantEntry(model, 'failed'), problem: 'The answer was cut off before it began.' });

export const textOf = (entry) => entry.parts
  .filter((part) => part.type === 'text' || part.type === 'input_text')
  .map((part) => (part.live ? part.live.text : part.text))
  .join('\n\n');

// What the server itself does with tools is kept as it came.
const OWN = ['mcp_list_tools', 'mcp_call', 'mcp_approval_request'];
export const isOwn = ({ type }) => OWN.includes(type);
export const ownPart = (item) => ({ type: item.type, item, live: new LiveText(item.arguments ?? '') });

const isNeeded = ({ item }) => item.type === 'mcp_approval_request' || (item.output ?? item.error ?? null) !== null;

export function itemsOf(entry) {
  if (entry.kind === 'user') return [{ type: 'message', role: 'user', content: entry.parts }];
  if (entry.kind === 'results') {
    return entry.results.map(({ callId, output }) => (
      { type: 'function_call_output', call_id: callId, output }));
  }
  if (entry.kind === 'approvals') {
    return entry.answers.map(({ id, approve }) => ({ type: 'mcp_approval_response', approval_request_id: id, approve }));
  }
  return entry.parts.flatMap((part) => {
    const text = part.live.text;
    // A list is asked for again.
    if (isOwn(part)) return part.type !== 'mcp_list_tools' && isNeeded(part) ? [part.item] : [];
    if (part.type === 'call') {
      return [{ type: 'function_call', call_id: part.callId, name: part.name, arguments: text }];
    }
    if (!text) return [];
    if (part.type === 'reasoning') return [{ type: 'reasoning', summary: [{ type: 'summary_text', text }] }];
    return [{ type: 'message', role: 'assistant', content: [{ type: 'output_text', text }] }];
  });
}

// The result of a call is a text, or a list of parts.
export const outputText = (output) => (Array.isArray(output)
  ? output.map((part) => String(part?.text ?? `[${part?.type}]`)).join('\n') : String(output));

// Why a call of the server failed: an object of the API, or a text, as other clients may have stored it.
export const errorText = (error) => error.content?.[0]?.text ?? (typeof error === 'string' ? error : JSON.stringify(error));

const joined = (pieces) => (pieces || []).map((piece) => piece.text || '').join('');

function partOf(item) {
  if (isOwn(item)) return ownPart(item);
  switch (item.type) {
    case 'reasoning':
      return { type: 'reasoning', live: new LiveText(joined(item.content) || joined(item.summary)), seconds: null };
    case 'function_call':
      return {
        type: 'call', callId: item.call_id, name: item.name, live: new LiveText(item.arguments || '{}'),
      };
    default:
      return { type: 'text', live: new LiveText(joined(item.content)) };
  }
}

// The entries that stored items make: what the assistant wrote between two others is one entry.
export function entriesOf(items) {
  const entries = [];
  for (const item of items) {
    const last = entries.at(-1);
    if (item.type === 'function_call_output') {
      const result = { callId: item.call_id, output: item.output };
      if (last?.kind === 'results') last.results.push(result);
      else entries.push(resultsEntry([result]));
    } else if (item.type === 'mcp_approval_response') {
      const answer = { id: item.approval_request_id, approve: item.approve };
      if (last?.kind === 'approvals') last.answers.push(answer);
      else entries.push(approvalsEntry([answer]));
    } else if (item.role === 'user') {
      const content = typeof item.content === 'string' ? [{ type: 'input_text', text: item.content }] : item.content;
      entries.push(userEntry(content));
    } else if (item.role === 'assistant' || item.type === 'reasoning' || item.type === 'function_call' || isOwn(item)) {
      if (last?.kind !== 'assistant') entries.push(assistantEntry('', 'done'));
      entries.at(-1).parts.push(partOf(item));
      if (item.status === 'incomplete') entries.at(-1).state = 'cut';
    } else continue; // of other clients: nothing that this page could show
    if (item.id) entries.at(-1).ids.push(item.id);
  }
  return entries;
}

// Requests that have ended, and the sums by key and day.
import { get } from '../api.js';
import { clock, seconds } from '../formats.js';
import { html, useState } from '../vendor/preact.js';
import { usePolled } from './polled.js';
import { Table } from './table.js';

const PAGE = 50;

async function look() {
  const [{ usage }, audit] = await Promise.all([get('admin/usage'), get(`admin/audit?limit=${PAGE}`)]);
  return { usage, audit };
}

const auditRow = (row) => [
  html`<time>${clock(row.time)}</time>`, row.key_name || row.key, row.route, row.model, row.status ?? '–', row.ending,
  seconds(row.seconds), row.prompt_tokens ?? '', row.cached_tokens ?? '', row.generated_tokens ?? '', row.error,
];

export function UsageTab({ connection }) {
  const [older, setOlder] = useState([]);
  const [trouble, setTrouble] = useState('');
  const { found, problem } = usePolled(look, 5_000, [connection.restarts]);
  if (!found) return html`<p class=${problem ? 'problem' : 'hint'}>${problem || 'Loading …'}</p>`;
  const { usage, audit } = found;
  const last = (older.at(-1) || audit.requests.at(-1))?.number;
  const more = () => get(`admin/audit?limit=${PAGE}&after=${last}`)
    .then((page) => setOlder([...older, ...page.requests]), (error) => setTrouble(error.message));
  const latest = new Set(audit.requests.map(({ number }) => number));
  const rows = [...audit.requests, ...older.filter(({ number }) => !latest.has(number))];
  return html`${(problem || trouble) && html`<p class="problem">${problem || trouble}</p>`}
    <${Table} caption="Usage by day and key" heads=${['Day', 'Key', 'Requests', 'Refused', 'Failed', 'Prompt tokens', 'Cached', 'Generated', 'Seconds']}
      rows=${usage.map((each) => [each.day, each.key_name || each.key || '–', each.requests, each.refused, each.failed, each.prompt_tokens, each.cached_tokens, each.generated_tokens, each.seconds.toFixed(1)])} />
    <${Table} caption="Requests that have ended" heads=${['Time', 'Key', 'Route', 'Model', 'Status', 'Ending', 'Took', 'Prompt', 'Cached', 'Generated', 'Error']} rows=${rows.map(auditRow)} />
    ${audit.has_more && html`<button type="button" onClick=${more}>Older</button>`}`;
}

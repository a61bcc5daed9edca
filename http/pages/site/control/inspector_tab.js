// The last requests whole, if the server keeps them.
import { get } from '../api.js';
import { bytes, clock, plain } from '../formats.js';
import { html, useState } from '../vendor/preact.js';
import { usePolled } from './polled.js';
import { Table } from './table.js';

const look = async () => (await get('admin/inspect')).requests;

export function InspectorTab({ connection }) {
  const { found, problem } = usePolled(look, 3_000, [connection.restarts]);
  const [whole, show] = useState(null);
  const [trouble, setTrouble] = useState('');
  const open = (id) => get(`admin/inspect?id=${encodeURIComponent(id)}`).then(show, (error) => setTrouble(error.message));
  if (!found) return html`<p class="hint">${problem || 'Loading …'}</p>`;
  const rows = found.map((each) => [
    html`<button type="button" class="small" onClick=${() => open(each.id)}>${each.id}</button>`, clock(each.began_at), each.route, each.model,
    each.state, each.status, each.prompt_tokens, each.events, bytes(each.nbytes),
  ]);
  return html`${trouble && html`<p class="problem">${trouble}</p>`}
    <${Table} caption="Last requests" heads=${['Request', 'Begun', 'Route', 'Model', 'State', 'Status', 'Prompt', 'Events', 'Size']} rows=${rows} />
    ${whole && html`<section class="card" aria-label="Request"><h2>${whole.id}</h2>
      ${['problem', 'figures', 'explanation'].map((name) => whole[name] && html`<h3>${name}</h3><pre tabindex="0">${JSON.stringify(whole[name], null, 2)}</pre>`)}
      <h3>Body</h3><pre tabindex="0">${plain(whole.body)}</pre>
      <h3>Prompt</h3><pre tabindex="0">${plain(whole.prompt ?? '')}</pre>
      ${(whole.outputs || []).map(({ index, raw }) => html`<h3>Answer ${index}</h3><pre tabindex="0">${plain(raw)}</pre>`)}
      ${(whole.events || []).filter(({ type }) => ['ServerCall', 'ToolResult'].includes(type)).map(({ type, at, ...event }) => html`
        <h3>${type === 'ServerCall' ? 'Call' : 'Result'}</h3><pre tabindex="0">${plain(JSON.stringify(event, null, 2))}</pre>`)}</section>`}`;
}

// The servers elsewhere whose models are listed here.
import { get } from '../api.js';
import { html } from '../vendor/preact.js';
import { plain } from '../formats.js';
import { usePolled } from './polled.js';
import { Table } from './table.js';

const look = async () => (await get('admin/status')).remotes;
const COLOURS = { closed: 'ready', half_open: 'loading', open: 'error' };

export function RemotesTab({ connection }) {
  const { found, problem } = usePolled(look, 2_000, [connection.restarts]);
  const rows = (found || []).map((remote) => [
    plain(remote.name), html`<span class=${`state ${COLOURS[remote.breaker]}`}>${remote.breaker.replace('_', ' ')}</span>`,
    html`<details><summary>${remote.models.length}</summary>${remote.models.map(plain).join(', ')}</details>`,
    remote.running, remote.requests, remote.failures, plain(remote.problem),
  ]);
  return html`${problem && html`<p class="problem">${problem}</p>`}
    <${Table} caption="Remotes" rows=${rows} heads=${['Remote', 'Breaker', 'Models', 'Running', 'Requests', 'Failed', 'Last error']} />`;
}

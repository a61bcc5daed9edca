// Models of the hub: found, fetched and watched.
import { get, post, request } from '../api.js';
import { bytes, clock, seconds } from '../formats.js';
import { html, useState } from '../vendor/preact.js';
import { Act } from '../act.js';
import { usePolled } from './polled.js';
import { Table } from './table.js';

const look = async () => (await get('admin/pulls')).pulls.slice().reverse();

// The fetch goes on without its reader: the first piece says that it has begun, or why not.
async function pull(model) {
  const response = await request('admin/pull', { method: 'POST', body: { model } });
  const reader = response.body.getReader();
  await reader.read();
  reader.cancel().catch(() => {}); // a browser has six connections to a server
  return 'Begun';
}

function progressLine(fetch) {
  if (fetch.state !== 'running') return fetch.problem || (fetch.bytes ? bytes(fetch.bytes) : '');
  const pace = fetch.bytes_per_second ? `, ${bytes(fetch.bytes_per_second)}/s` : '';
  const rest = fetch.eta_ms === null ? '' : `, ${seconds(fetch.eta_ms / 1000)} to go`;
  return `${fetch.stage}: ${bytes(fetch.received)} of ${bytes(fetch.bytes)}${pace}${rest}`;
}

export function DownloadsTab({ connection }) {
  const { found, problem, again } = usePolled(look, 1_000, [connection.restarts]);
  const begin = (model) => async () => {
    const told = await pull(model);
    again();
    return told;
  };
  const rows = (found || []).map((fetch) => [
    fetch.model, fetch.state, html`${fetch.state === 'running' && html`<progress max=${fetch.bytes || 1} value=${fetch.received} aria-label=${`Progress of ${fetch.model}`}></progress> `}${progressLine(fetch)}`,
    clock(fetch.started_at),
    fetch.state === 'running'
      ? html`<${Act} key="stop" label="Cancel" name=${fetch.model} run=${() => post(`admin/pull/${encodeURIComponent(fetch.id)}/cancel`).then(again)} />`
      : fetch.state !== 'completed' && html`<${Act} key="resume" label="Resume" name=${fetch.model} run=${begin(fetch.model)} />`,
  ]);
  return html`${problem && html`<p class="problem">${problem}</p>`}
    <${Search} begin=${begin} />
    <${Table} caption="Downloads" heads=${['Model', 'State', 'Progress', 'Begun', '']} rows=${rows} ids=${found?.map(({ id }) => id)} />`;
}

function Search({ begin }) {
  const [words, write] = useState('');
  const [state, set] = useState({ models: null, problem: '' });
  const search = async () => {
    set({ models: null, problem: 'Searches …' });
    try {
      set({ models: (await get(`admin/search?q=${encodeURIComponent(words)}`)).models, problem: '' });
    } catch (error) {
      set({ models: null, problem: error.message });
    }
  };
  const rows = (state.models || []).map((model) => [
    model.id, model.downloads.toLocaleString('en'), model.likes, model.gated ? 'terms to accept' : '',
    model.local ? 'here' : html`<${Act} label="Pull" name=${model.id} run=${begin(model.id)} />`,
  ]);
  return html`<section class="card" aria-label="Models of the hub"><h2>Models of the hub</h2>
    <div class="row"><label>Words, or OWNER/NAME <input id="hub-words" value=${words} onInput=${(event) => write(event.target.value)}
        onKeyDown=${(event) => event.key === 'Enter' && search()} /></label>
      <button type="button" disabled=${!words.trim()} onClick=${search}>Search</button>
      ${/^[\w.-]+\/[\w.-]+(@[\w./-]+)?$/.test(words.trim()) && html`<${Act} key=${words} label="Pull" name=${words.trim()} run=${begin(words.trim())} />`}</div>
    ${state.problem && html`<p class="problem" role="status">${state.problem}</p>`}
    ${state.models && html`<${Table} caption="Found" heads=${['Model', 'Downloads', 'Likes', '', '']} rows=${rows} ids=${state.models.map(({ id }) => id)} empty="The hub has none of these words." />`}
  </section>`;
}

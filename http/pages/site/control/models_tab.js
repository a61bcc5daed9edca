// The models as actors: their states, their memory, their work, and what an operator may do with them.
import { get, post, stream } from '../api.js';
import { bytes, clock, count, percent, seconds } from '../formats.js';
import { html, useRef } from '../vendor/preact.js';
import { Act } from '../act.js';
import { Legend, Sparkline, StackedBar } from './charts.js';
import { phasesOf } from './step_phases.js';
import { lookAtMetrics } from './metrics.js';
import { usePolled } from './polled.js';

// The list of all models changes seldom, and each look at it is a row of the audit.
const KNOWN_FOR_MS = 30_000;
let isKnownGone = false;
const forgetKnown = () => { isKnownGone = true; };

async function look(before) {
  const isFresh = before && !isKnownGone && performance.now() - before.knownAt < KNOWN_FOR_MS;
  isKnownGone = false;
  const known = isFresh ? before : { known: (await get('v1/models')).data, knownAt: performance.now() };
  const [{ models: used, memory_limit: limit }, metrics] = await Promise.all([get('admin/models'), lookAtMetrics(before?.metrics)]);
  return { used, limit, metrics, phases: phasesOf(before?.phases, used), known: known.known, knownAt: known.knownAt };
}

function memoryOf(figures, granted) {
  const { weights = 0, kv_cache: running = 0, prefix_cache: cached = 0 } = figures;
  const other = Math.max(0, granted - weights - running - cached);
  return [
    { label: 'weights', value: weights, kind: 1 }, { label: 'answers', value: running, kind: 2 },
    { label: 'prefix cache', value: cached, kind: 3 }, { label: 'reserved', value: other, kind: 4 },
  ];
}

// Here and in the cards, what comes and goes is in an element of its own: beside it, Preact may move the buttons, which
// then lose the focus.
export function ModelsTab({ connection }) {
  const { found, problem, again } = usePolled(look, 2_000, [connection.restarts]);
  const places = useRef(new Map());
  if (!found) return html`<p class=${problem ? 'problem' : 'hint'}>${problem || 'Loading …'}</p>`;
  const figures = (id) => found.metrics.models.get(id) || {};
  const models = placed(places.current, found);
  return html`<div>${problem && html`<p class="problem">${problem}</p>`}
      <${Account} used=${found.used} figures=${figures} limit=${found.limit} />
      ${!models.length && html`<p class="faint">No models here. “Downloads” fetches one.</p>`}</div>
    <div class="cards">${models.map(({ id, known, used, adapters }) => html`<${ModelCard} key=${id} id=${id} known=${known} used=${used} adapters=${adapters} figures=${figures(id)} phases=${found.phases.get(id)} again=${again} />`)}</div>`;
}

// An adapter is shown on its base's card, and one whose base is not here on a card of its own.
const isUnderBase = ({ adapter, base_model: base }) => adapter && base;

// Those in use come first when the tab is opened; then no card moves, so that no button loses its focus or its message.
function placed(places, { known, used }) {
  const descriptions = new Map(known.map((model) => [model.id, model]));
  const actors = new Map(used.map((model) => [model.id, model]));
  for (const id of [...actors.keys(), ...descriptions.keys()]) if (!places.has(id)) places.set(id, places.size);
  return [...places.keys()].filter((id) => actors.has(id) || (descriptions.has(id) && !isUnderBase(descriptions.get(id))))
    .map((id) => ({ id, known: descriptions.get(id), used: actors.get(id), adapters: known.filter(({ adapter, base_model: base }) => adapter && base === id) }));
}

function Account({ used, figures, limit }) {
  const all = used.map((model) => memoryOf(figures(model.id), model.bytes));
  if (!all.length) return null;
  const parts = all[0].map((part, index) => ({ ...part, value: all.reduce((sum, each) => sum + each[index].value, 0) }));
  const total = parts.reduce((sum, { value }) => sum + value, 0);
  const bound = limit ? `of ${bytes(limit)}` : 'granted';
  return html`<section class="card" aria-label="Memory account"><h2>Memory of all models: ${bytes(total)} ${bound}</h2>
    <${StackedBar} parts=${parts} whole=${limit} label=${`Memory of all models: ${bytes(total)}`} />
    <${Legend} parts=${parts} written=${bytes} /></section>`;
}

const isAtWork = (used) => Boolean(used) && !['idle', 'error'].includes(used.state);

function ModelCard({ id, known, used, adapters, figures, phases, again }) {
  const problem = used?.problem || known?.problem;
  return html`<article class="card" aria-label=${`Model ${id}`}>
    <h3>${id}</h3>
    <p><span class=${`state ${used?.state ?? 'idle'}`}>${used?.state ?? 'idle'}</span> <span class="faint">${[...times(used, figures), ...facts(known)].join(' · ')}</span></p>
    <div>
      ${used?.state === 'loading' && html`<progress max="1" value=${used.load_progress} aria-label="Loaded"></progress>`}
      ${used?.download && html`<p class="faint">Downloads: ${bytes(used.download.received)} of ${bytes(used.download.nbytes)}</p>`}
      ${isAtWork(used) && html`<${Work} model=${used} figures=${figures} phases=${phases} />`}
      ${adapters.length > 0 && html`<${Adapters} adapters=${adapters} loaded=${used?.adapters || []} />`}
      ${used?.ranks?.length > 0 && html`<${Ranks} ranks=${used.ranks} />`}
      ${problem && html`<p class="problem">${String(problem)}</p>`}
      ${used?.last_error && html`<p class="problem">Last error${used.last_error_at ? ` at ${clock(used.last_error_at)}` : ''}: ${used.last_error}</p>`}
    </div>
    <${ModelActs} id=${id} used=${used} again=${again} /></article>`;
}

function Adapters({ adapters, loaded }) {
  const notes = ({ id, problem }) => (problem ? html`: <span class="problem">${String(problem)}</span>` : loaded.includes(id) && html` <span class="faint">in memory</span>`);
  return html`<h4>Adapters</h4><ul>${adapters.map((each) => html`<li key=${each.id}>${each.id}${notes(each)}</li>`)}</ul>`;
}

function Ranks({ ranks }) {
  return html`<h4>Ranks</h4><ol start="0">${ranks.map((rank) => html`<li key=${rank.address}>${rank.host} <span class="faint">${rank.address} · ${rank.link} · ${count(rank.layers, 'layer')} · ${bytes(rank.nbytes)}</span></li>`)}</ol>`;
}

const times = (used, { evictions }) => (used ? [
  used.since && `since ${clock(used.since)}`, used.pinned && 'pinned', used.expires_at && `until ${clock(used.expires_at)}`,
  !isAtWork(used) && evictions > 0 && count(evictions, 'eviction'), !isAtWork(used) && used.restarts > 0 && count(used.restarts, 'restart'),
].filter(Boolean) : []);

const facts = (known) => (known ? [
  known.capabilities?.type || known.type, known.family === 'default' ? '' : known.family, known.quantization, bytes(known.size_bytes),
  known.fits === false && 'does not fit', known.probed ? 'probed' : 'not probed',
].filter(Boolean) : []);

// Memory, figures and the batch of a model that is loaded, or is being loaded.
function Work({ model, figures, phases }) {
  const parts = memoryOf(figures, model.bytes);
  const rates = figures.rates || [];
  const rate = rates.at(-1) || 0;
  const share = figures.looked ? percent(figures.hit / figures.looked) : '–';
  return html`<${StackedBar} parts=${parts} whole=${model.bytes} label=${`Memory: ${parts.map(({ label, value }) => `${label} ${bytes(value)}`).join(', ')}`} />
    <${Legend} parts=${parts} written=${bytes} />
    <dl class="figures">
      <div><dt>Leases</dt><dd>${model.leases}</dd></div><div><dt>Answering</dt><dd>${model.running}</dd></div><div><dt>Waiting</dt><dd>${model.waiting}</dd></div>
      <div><dt>Tokens/s</dt><dd>${rate.toFixed(1)}</dd></div><div><dt>Prefix cache</dt><dd>${share}</dd></div>
      <div><dt>Restarts</dt><dd>${model.restarts}</dd></div><div><dt>Evictions</dt><dd>${figures.evictions ?? 0}</dd></div></dl>
    <${Sparkline} values=${rates} label=${`Tokens per second, now ${rate.toFixed(1)}, at most ${Math.max(0, ...rates).toFixed(1)} in the last two minutes`} />
    <${Batch} rows=${model.rows} />
    <${Steps} phases=${phases} />`;
}

const STAGES = [['waiting', 4], ['prefill', 2], ['decode', 1]];

// The rows of the running batch, by the phase that each is in.
function Batch({ rows }) {
  if (!rows.length) return null;
  const parts = STAGES.map(([label, kind]) => ({ label, kind, value: rows.filter(({ stage }) => stage === label).length }));
  return html`<h4>Batch: ${count(rows.length, 'row')}</h4>
    <${StackedBar} parts=${parts} whole=${rows.length} label=${`Rows: ${parts.map(({ label, value }) => `${value} ${label}`).join(', ')}`} />
    <${Legend} parts=${parts} written=${String} />`;
}

// The time of the steps by phase; nothing if the model computed nothing of late.
function Steps({ phases }) {
  const busy = phases ? phases.prefill + phases.decode : 0;
  if (busy <= 0) return null;
  const parts = [{ label: 'prefill', kind: 2, value: phases.prefill }, { label: 'decode', kind: 1, value: phases.decode }];
  const shares = parts.map(({ label, value }) => `${label} ${percent(value / busy)}`).join(', ');
  return html`<h4>Steps of the last ${Math.round(phases.seconds)} s: busy ${percent(Math.min(1, busy / phases.seconds))}</h4>
    <${StackedBar} parts=${parts} whole=${busy} label=${`Steps: ${shares}`} />
    <${Legend} parts=${parts} written=${(value) => percent(value / busy)} />`;
}

function ModelActs({ id, used, again }) {
  const after = async (work) => {
    try {
      return await work();
    } finally {
      again();
    }
  };
  const load = () => after(async () => `Ready after ${seconds((await post('admin/models/load', { model: id })).seconds)}`);
  const unload = () => after(async () => `${bytes((await post('admin/models/unload', { model: id })).freed_bytes)} freed`);
  const pin = () => after(async () => { await post('admin/models/pin', { model: id, pinned: !used?.pinned }); });
  const discard = () => after(async () => {
    forgetKnown();
    return `${bytes((await post('admin/models/delete', { model: id })).freed_bytes)} of disk are free again`;
  });
  const isLoaded = isAtWork(used);
  return html`<div class="row">
    <${Act} key="load" label=${isLoaded ? 'Unload' : 'Load'} name=${id} run=${isLoaded ? unload : load} />
    <${Act} key="pin" label=${used?.pinned ? 'Unpin' : 'Pin'} name=${id} run=${pin} />
    <${Act} key="probe" label="Probe" name=${id} run=${(tell) => after(() => probe(id, tell))} />
    <${Act} key="delete" label="Delete" name=${id} twice run=${discard} />
  </div>`;
}

async function probe(model, tell) {
  let findings = null;
  await stream('admin/models/probe', { method: 'POST', body: { model, stream: true } }, (name, data) => {
    if (name === 'progress') tell(`${data.answered} of ${data.questions} questions`);
    else if (name === 'error') throw new Error(data.detail);
    else findings = data;
  });
  return findings ? 'Probed: what it can do is kept' : 'Ended without findings';
}
